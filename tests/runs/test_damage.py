# SPDX-License-Identifier: Apache-2.0
"""A run with damaged files, on a full disk, or killed at any instant: the same bits, or one sentence."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from feddag.core.errors import FederationError, Interrupted
from feddag.runs import result
from feddag.runs.simulate import resume, run
from tests.hard.attacks import cut_off, damage, disk, evidence, outcome, small, snapshots

ALLOWED = {"same", "refused", "warned"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> dict[str, Any]:
    return evidence(run(small(), folder=tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: Any) -> Path:
    return cut_off(tmp_path_factory.mktemp("cut") / "run", small(), round_=4)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: Any) -> Path:
    """Another run of the same length, with another seed."""
    return run(small(seed=77), folder=tmp_path_factory.mktemp("foreign") / "run")


def damaged(seeds: range, broken_off: Path, foreign: Path, whole: Any, tmp_path: Path) -> Counter:
    counts: Counter = Counter()
    for seed in seeds:
        folder = shutil.copytree(broken_off, tmp_path / str(seed))
        what = damage(folder, seed, foreign)
        found = outcome(folder, whole)
        assert found in ALLOWED, f"{what} (seed {seed}): {found}"
        counts[found] += 1
        shutil.rmtree(folder)
    return counts


def test_damaged_files_give_the_same_bits_or_one_sentence(broken_off, foreign, whole, tmp_path) -> None:
    counts = damaged(range(40), broken_off, foreign, whole, tmp_path)
    assert counts["same"] > 5
    assert counts["refused"] > 5


@pytest.mark.hard
@pytest.mark.parametrize("first", range(1000, 1600, 150))
def test_six_hundred_damaged_folders_give_the_same_bits_or_one_sentence(
    first, broken_off, foreign, whole, tmp_path, counted
) -> None:
    damaged(range(first, first + 150), broken_off, foreign, whole, tmp_path)
    counted("damaged checkpoints, memories, logs and settings", 150)


# -- a full disk ---------------------------------------------------------------------------------------------


def fill_the_disk(level: int, whole: Any, tmp_path: Path, patch: Any) -> None:
    folder = tmp_path / f"full-{level}"
    with disk(folder, level, patch), pytest.raises(FederationError) as raised:
        run(small(), folder=folder)
    assert "\n" not in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert not list(folder.rglob(".*.tmp")), "nothing is half-written"
    if (folder / "experiment.json").exists():
        resume(folder)
        assert evidence(folder) == whole
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: Any) -> int:
    """How many operations on files a whole run has."""
    folder = tmp_path_factory.mktemp("counted") / "run"
    with disk(folder, 10**9, pytest.MonkeyPatch()) as counted:
        run(small(), folder=folder)
    return counted.done


def test_a_disk_that_fills_up_costs_one_sentence_and_no_bit(whole, operations, tmp_path, monkeypatch) -> None:
    for level in range(1, operations, max(1, operations // 20)):
        fill_the_disk(level, whole, tmp_path, monkeypatch)


@pytest.mark.hard
def test_a_disk_that_fills_up_at_any_of_its_operations(
    whole, operations, tmp_path, monkeypatch, counted
) -> None:
    levels = range(1, operations, max(1, operations // 150))
    for level in levels:
        fill_the_disk(level, whole, tmp_path, monkeypatch)
    counted("full disks", len(levels))


# -- kills ---------------------------------------------------------------------------------------------------


def check_snapshots(name: str, every: int, tmp_path: Path, patch: Any) -> int:
    patch.setattr(result, "MOST_ON_A_PAGE", 0)  # a page is drawn after everything else, and drawing is slow
    taken = snapshots(small(name), tmp_path / "run", tmp_path / "taken", patch)
    expected = evidence(tmp_path / "run")
    for folder in taken[::every]:
        found = outcome(folder, expected)
        assert found == "same", f"{folder.name} of {len(taken)}: {found}"
    return len(taken)


def test_what_is_on_the_disk_at_any_instant_can_be_resumed(tmp_path, monkeypatch) -> None:
    assert check_snapshots("ditto", 9, tmp_path, monkeypatch) > 60


@pytest.mark.hard
@pytest.mark.parametrize(("name", "every"), [("ditto", 1), ("feddag", 5), ("fedrc", 5), ("fedmix", 5)])
def test_what_is_on_the_disk_at_every_instant_can_be_resumed(
    name, every, tmp_path, monkeypatch, counted
) -> None:
    counted("states of the disk at an instant", check_snapshots(name, every, tmp_path, monkeypatch) // every)


@pytest.mark.parametrize("how", [KeyboardInterrupt, FederationError("the network is gone")])
def test_a_run_that_stops_in_mid_round_between_checkpoints_resumes_to_the_same_bits(how, tmp_path) -> None:
    """Log and memories have gone on since the last round: they must not be saved as that round's."""
    sparse = small(checkpoint_every=10, evaluation={"every": 10})

    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "exchange" and event["round"] == 3:
            raise how

    expected = evidence(run(sparse, folder=tmp_path / "whole"))
    with pytest.raises((Interrupted, FederationError)):
        run(sparse, folder=tmp_path / "cut", watch=watch)
    resume(tmp_path / "cut")
    assert evidence(tmp_path / "cut") == expected


def test_settings_that_were_changed_before_the_first_checkpoint_are_refused(tmp_path) -> None:
    folder = cut_off(tmp_path / "cut", small(num_rounds=1, checkpoint_every=9), round_=1)
    for path in (*(folder / "checkpoints").iterdir(), *(folder / "memories").iterdir()):
        path.unlink()
    settings = (folder / "experiment.json").read_text()
    (folder / "experiment.json").write_text(settings.replace('"lr": 0.1', '"lr": 0.2'))
    with pytest.raises(FederationError, match="has other settings than the run was started with"):
        resume(folder)
