# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a round: by chance, or under secure sums so that every drawn cluster can be summed."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feddag.core.seeds import Seed
from feddag.experiment.settings import Experiment
from feddag.runs import driver
from feddag.runs.cohort import STEP, drawn, marked, places, too_small
from feddag.runs.simulate import run

CLIENTS = [f"c{i:03}" for i in range(40)]
FIVE = {client: i % 5 for i, client in enumerate(CLIENTS)}
ROUNDS = 200


def setting(**changes: Any) -> Experiment:
    return Experiment.from_settings({"num_clients": 40, "fraction_train": 0.25, **changes})


def by_chance(experiment: Experiment, round_: int, clients: list[str]) -> tuple[str, ...]:
    """The draw without clusters, written out."""
    generator = (Seed(7) / "cohort" / round_).numpy()
    size = experiment.cohort_size(len(clients), at_least=1)
    return tuple(str(c) for c in np.sort(generator.choice(clients, size=size, replace=False)))


@pytest.mark.parametrize("privacy", ["off", "guarded"])
def test_without_secure_sums_cohorts_are_drawn_by_chance_alone(privacy: str) -> None:
    experiment = setting(privacy=privacy)
    for round_ in range(1, 6):
        assert drawn(experiment, Seed(7), round_, CLIENTS, FIVE) == by_chance(experiment, round_, CLIENTS)


@pytest.mark.parametrize("labels", [{}, dict.fromkeys(CLIENTS, 0)])
def test_one_cluster_under_secure_sums_is_drawn_by_chance_too(labels: dict[str, int]) -> None:
    experiment = setting(privacy="private")
    for round_ in range(1, 6):
        assert drawn(experiment, Seed(7), round_, CLIENTS, labels) == by_chance(experiment, round_, CLIENTS)


def test_under_secure_sums_whole_clusters_take_turns_and_everybody_gets_its_share() -> None:
    experiment = setting(privacy="private")
    rounds = [drawn(experiment, Seed(7), r, CLIENTS, FIVE) for r in range(1, ROUNDS + 1)]
    for found in rounds:
        assert found == tuple(sorted(set(found)))
        assert set(Counter(FIVE[c] for c in found).values()) == {3}
        assert len(found) in (9, 12)
    assert np.mean([len(found) for found in rounds]) == pytest.approx(10, rel=0.02)
    times = Counter(c for found in rounds for c in found)
    deviation = np.sqrt(ROUNDS * 0.25 * 0.75)
    assert max(abs(times[c] - ROUNDS / 4) for c in CLIENTS) < 4 * deviation
    for z in range(5):
        served = [any(FIVE[c] == z for c in found) for found in rounds]
        assert sum(served) == pytest.approx(ROUNDS * 2 / 3, abs=3)
        assert not any(served[i : i + 2] == [False, False] for i in range(ROUNDS))  # nobody waits two rounds
    # The draw by chance leaves clusters with one or two clients in most rounds.
    chance = [Counter(FIVE[c] for c in by_chance(experiment, r, CLIENTS)) for r in range(1, ROUNDS + 1)]
    assert np.mean([any(n < 3 for n in found.values()) for found in chance]) > 0.9


def test_clients_without_a_cluster_are_drawn_by_chance_so_that_they_can_get_one() -> None:
    experiment = setting(privacy="private")
    labels = {c: z for c, z in FIVE.items() if c not in CLIENTS[:4]}
    for round_ in range(1, 20):
        found = drawn(experiment, Seed(7), round_, CLIENTS, labels)
        by_luck = set(by_chance(experiment, round_, CLIENTS))
        assert set(found) & set(CLIENTS[:4]) == by_luck & set(CLIENTS[:4])
        assert set(Counter(labels[c] for c in found if c in labels).values()) == {3}


@settings(max_examples=100, deadline=None)
@example(sizes=[1, 2], share=1.0, least=2, start=math.nextafter(1, 0))  # rounding up would give three places
@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=12),
    share=st.floats(0.02, 1.0),
    least=st.integers(2, 5),
    start=st.floats(0, 1),
)
def test_any_clusters_get_none_or_enough_places_and_on_average_their_share(
    sizes: list[int], share: float, least: int, start: float
) -> None:
    by_cluster = dict(enumerate(sizes))
    total: Counter[int] = Counter()
    for round_ in range(ROUNDS):
        found = places(by_cluster, share, least, start + round_ * STEP)
        assert all(least <= n <= by_cluster[z] for z, n in found.items())
        total.update(found)
    able = {z: n for z, n in by_cluster.items() if n >= least}
    assert set(total) <= set(able)
    fair = {z: share * n for z, n in able.items()}
    raised = max(1.0, least / sum(fair.values())) if fair and max(fair.values()) < least else 1.0
    for z in able:
        # Of many turns each mark is met as often as its length says, but for a few.
        assert total[z] / ROUNDS == pytest.approx(raised * fair[z], abs=least * 6 / ROUNDS + 1e-6)
    if able:
        assert all(places(by_cluster, share, least, start + r * STEP) for r in range(20))


def test_marks_are_as_many_as_the_lengths_say() -> None:
    lengths = {3: 0.4, 5: 1.6, 9: 2.0}
    for turn in np.linspace(0, 3, 31):
        found = marked(lengths, float(turn))
        assert sum(found.values()) == 4
        assert found[3] in (0, 1)
        assert found[5] in (1, 2)
        assert found[9] == 2


def test_clusters_that_can_never_be_summed_are_told() -> None:
    labels = {**FIVE, "c000": 9, "c005": 9}
    assert too_small(setting(), CLIENTS, labels) == []
    found = too_small(setting(privacy="private"), CLIENTS, labels)
    assert found == [{"group": 9, "why": "the cluster has 2 clients, a sum needs 3"}]


GROUPED = {
    "data": {"name": "synthetic", "synthetic": {"groups": 1, "dimensions": 12, "train": 4000, "test": 200}},
    "partition": {"kind": "label-groups", "groups": 3, "label_share": 0.34, "alpha": 100.0},
    "num_clients": 24,
    "model": "mlp",
    "algorithm": "feddag",
    "training": {"local_epochs": 1, "batch_size": 32},
    "num_rounds": 4,
    "fraction_train": 0.25,
    "engine": "inline",
    "privacy": {"level": "guarded", "update": {"mode": "secagg"}},
}


def refused_sums(folder: Path) -> int:
    return json.loads((folder / "result.json").read_text())["privacy"]["refused_sums"]


def test_a_run_with_small_cohorts_makes_every_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(Experiment.from_settings(GROUPED), folder=tmp_path / "turns")
    events = [json.loads(line) for line in (tmp_path / "turns" / "events.jsonl").read_text().splitlines()]
    assert next(e for e in events if e["event"] == "start")["notes"]["num_clusters"] >= 2
    assert refused_sums(tmp_path / "turns") == 0
    assert all(e["cohort"] for e in events if e["event"] == "round")
    # Drawn by chance, clusters are left out: that is what the turns are for.
    monkeypatch.setattr(driver, "fixed_labels", lambda state: {})
    run(Experiment.from_settings(GROUPED), folder=tmp_path / "chance")
    assert refused_sums(tmp_path / "chance") > 0
