# SPDX-License-Identifier: Apache-2.0
"""Pictures of a federation: valid files for any number of clients and any kind of sample."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from toys import blobs

from feddag.data.federation import Federation, Pool, Share
from feddag.reporting.figures.data import (
    draw_classes_by_clients,
    draw_samples,
    plot_classes_by_clients,
    plot_samples,
)
from tests.reporting.toys import HOSTILE, check_png, shown_texts


@pytest.mark.parametrize("n", [1, 2, 3, 61, 300])
def test_both_pictures_are_valid_for_any_number_of_clients(n: int, tmp_path: Path) -> None:
    federation = blobs(sizes=(4,) * n)
    plot_classes_by_clients(federation, tmp_path / "classes.png")
    plot_samples(federation, tmp_path / "samples.png")
    check_png(tmp_path / "classes.png")
    check_png(tmp_path / "samples.png")


def test_clients_without_samples_give_a_sentence() -> None:
    assert shown_texts(draw_samples(blobs(sizes=(0, 0)))) == ["No client holds a training sample."]


def renamed(federation: Federation, names: list[str], **changes) -> Federation:
    shares = dict(zip(names, federation.clients.values(), strict=True))
    return dataclasses.replace(federation, clients=shares, **changes)


def test_hostile_names_of_clients_classes_and_groups_are_shown_as_they_are() -> None:
    names = [*HOSTILE, "$x^2$"]
    federation = renamed(
        blobs(sizes=(9,) * len(names), classes=len(names)),
        names,
        class_names=tuple(names),
        groups=dict.fromkeys(names, 0) | {"é": 1},
        group_names={0: "$y^2$", 1: "[x]"},
        notes={"partition": "by $z^2$"},
    )
    visible = {name.replace("\n", "\\n") for name in names}
    texts = shown_texts(draw_classes_by_clients(federation))
    assert visible | {"$y^2$", "[x]", "blobs: by $z^2$"} <= set(texts)
    texts = shown_texts(draw_samples(federation))
    assert {name + ("\n[x]" if name == "é" else "\n$y^2$") for name in visible} <= set(texts)


def test_newcomers_are_marked_with_a_star() -> None:
    texts = shown_texts(draw_classes_by_clients(dataclasses.replace(blobs(), newcomers=("c001",))))
    assert "c001*" in texts
    assert "c000" in texts
    assert "client (* joins later)" in texts


def test_names_are_left_out_where_they_would_overlap() -> None:
    texts = shown_texts(draw_classes_by_clients(blobs(sizes=(4,) * 41, classes=41)))
    assert "c000" not in texts
    assert {"class", "client"} <= set(texts)


SAMPLES = {
    "grey images": np.zeros((6, 1, 5, 5), np.uint8),
    "colour images": np.zeros((6, 3, 5, 5), np.uint8),
    "series": np.zeros((6, 2, 9), np.float32),
    "text": np.zeros((6, 40), np.uint8),
    "values": np.ones((6, 7), np.float32),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_of_sample_can_be_drawn(kind: str, tmp_path: Path) -> None:
    x, rows = SAMPLES[kind], np.arange(6)
    pool = Pool(x, np.arange(6) % 2)
    federation = Federation(
        clients={"a": Share(train=rows, validation=rows[:0], test=rows)},
        train=pool,
        test=pool,
        num_classes=2,
        source=blobs().source,
        class_names=("$", "b"),
    )
    plot_samples(federation, tmp_path / "samples.png")
    check_png(tmp_path / "samples.png")
