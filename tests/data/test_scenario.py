# SPDX-License-Identifier: Apache-2.0
"""Time in the data: who holds which samples in which round."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.config import DriftConfig, PartitionConfig
from feddag.data.federation import Federation
from feddag.data.scenario import Plan
from tests.data.toys import even, toy

GROUPS = {"kind": "label-groups", "groups": 3, "label_share": 0.34, "alpha": 5.0}


def drifting(*drifts: dict[str, Any], rounds: int = 20, clients: int = 9, **partition: Any) -> Federation:
    settings_ = {"validation": 0.0, **(partition or GROUPS)}
    plan = Plan(tuple(DriftConfig(**drift) for drift in drifts), num_rounds=rounds)
    dataset = even(classes=6, per_class=120)
    return partition_dataset(dataset, PartitionConfig(**settings_), clients, Seed(1), plan=plan)


def rows(federation: Federation, client: str, round_: int) -> np.ndarray:
    return np.sort(np.concatenate([part.train for part in federation.at(round_).clients[client].parts()]))


def test_without_drifts_every_round_is_the_same_federation() -> None:
    federation = drifting()
    assert federation.at(0) is federation.at(7) is federation
    assert federation.drifts == ()


def test_a_label_drift_gives_the_labels_of_another_group_and_new_samples() -> None:
    federation = drifting({"at": 5, "clients": ["c002"], "kind": "label"})
    before, after = federation.at(4), federation.at(5)
    assert before.clients["c002"] is federation.clients["c002"]
    assert not set(rows(federation, "c002", 4)) & set(rows(federation, "c002", 5))
    assert after.groups["c002"] != before.groups["c002"]
    mate = next(c for c in federation.ids if c != "c002" and federation.groups[c] == after.groups["c002"])
    held = {c: set(np.flatnonzero(after.counts()[federation.ids.index(c)])) for c in ("c002", mate)}
    assert held["c002"] == held[mate]
    tested = after.examples("c002", "test").counts()
    assert set(np.flatnonzero(tested)) == held["c002"]
    assert [(d.client, d.at, d.kind) for d in federation.drifts] == [("c002", 5, "label")]


def test_a_concept_drift_may_keep_all_samples_and_change_only_what_labels_mean() -> None:
    federation = drifting({"at": 5, "clients": 1.0, "kind": "concept", "to": "swap-1-2", "keep": 1.0})
    for client in federation.ids:
        assert np.array_equal(rows(federation, client, 4), rows(federation, client, 5))
        then, now = (federation.at(r).examples(client).y for r in (4, 5))
        swapped = np.array([0, 2, 1, 3, 4, 5])[then]
        assert np.array_equal(now, swapped)
    holders = {c for c, n in zip(federation.ids, federation.counts(), strict=True) if n[1] + n[2]}
    assert {d.client for d in federation.drifts} == holders, "who holds neither label does not change"


def test_a_recurrent_drift_brings_the_same_samples_back() -> None:
    federation = drifting({"at": 5, "clients": ["c001"], "kind": "label", "until": 9})
    assert federation.at(9).clients["c001"] is federation.at(4).clients["c001"]
    assert federation.at(9).groups == federation.groups
    assert [d.at for d in federation.drifts] == [5, 9]


@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_an_incremental_drift_replaces_samples_round_by_round(keep: float) -> None:
    drift = {"at": 5, "clients": ["c001"], "kind": "concept", "to": "reverse", "over": 4, "keep": keep}
    federation = drifting(drift)
    old = federation.at(4).clients["c001"].train
    shares = []
    for round_ in range(4, 9):
        held = federation.at(round_).clients["c001"]
        parts = [*held.parts()]
        assert len(np.unique(rows(federation, "c001", round_))) == held.size(), "no sample twice"
        reversed_ = sum(len(part.train) for part in parts if part.relabel is not None)
        shares.append(round(reversed_ / held.size(), 1))
        assert len(federation.at(round_).examples("c001")) == held.size()
    assert shares[0] == 0
    assert shares[-1] == 1
    assert shares == sorted(shares)
    assert len(set(shares)) == 5
    assert (keep == 1) == (set(rows(federation, "c001", 8)) == set(old))
    groups = [federation.at(r).groups["c001"] for r in range(4, 9)]
    assert groups[1] == groups[0] != groups[2] == groups[4], "the truth changes at the half"


def test_growth_shows_more_and_more_of_the_same_samples() -> None:
    grow = [{"at": at, "clients": 1.0, "kind": "quantity", "factor": f} for at, f in ((5, 2), (10, 1.5))]
    federation, whole = drifting(*grow), drifting()
    for client in federation.ids:
        first, second, third = (set(rows(federation, client, r)) for r in (0, 5, 10))
        assert first < second < third == set(whole.clients[client].train)
        assert len(first) == pytest.approx(len(third) / 3, abs=1)
    assert federation.at(10).groups == federation.groups


@pytest.mark.parametrize("kind", ["iid", "lda"])
def test_a_label_drift_without_planted_groups(kind: str) -> None:
    drift = {"at": 5, "clients": ["c001"], "kind": "label"}
    if kind == "lda":
        federation = drifting(drift, kind=kind, alpha=0.3)
        assert not np.array_equal(federation.counts()[1], federation.at(5).counts()[1])
    else:
        with pytest.raises(InvalidInput, match=r"scenario.drift.0.kind 'label': all clients .* hold all"):
            drifting(drift, kind=kind)


@pytest.mark.parametrize(
    ("drift", "sentence"),
    [
        ({"at": 30, "clients": ["c001"], "kind": "label"}, "at = 30: the run has only 20 rounds"),
        ({"at": 3, "clients": ["x"], "kind": "label"}, "expected ids such as 'c000', got x"),
        ({"at": 3, "clients": ["c001"], "kind": "label", "to": "7"}, "to = '7': expected another one"),
        ({"at": 3, "clients": ["c001"], "kind": "concept"}, "expected another one of the label maps: none"),
        ({"at": 3, "clients": ["c001"], "kind": "concept", "to": "swap-1-9"}, "two different labels below 6"),
        ({"at": 3, "clients": ["c001"], "kind": "feature", "to": "fog"}, "expected images"),
    ],
)
def test_what_is_impossible_is_said_in_one_sentence(drift: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        drifting(drift)


def test_more_samples_than_there_are_is_refused() -> None:
    plan = Plan((DriftConfig(at=2, clients=1.0, kind="label"),), num_rounds=5)
    dataset = toy(np.tile(np.arange(4), 5))
    config = PartitionConfig(kind="label-groups", groups=2, label_share=0.5)
    with pytest.raises(InvalidInput, match=r"class \d has 5 training samples, but \d+ clients hold it"):
        partition_dataset(dataset, config, 8, Seed(1), plan=plan)


def test_two_drifts_of_one_client_at_the_same_time_are_refused() -> None:
    with pytest.raises(InvalidInput, match="data of client 'c001' are changing then already"):
        drifting(
            {"at": 5, "clients": ["c001"], "kind": "label", "until": 9},
            {"at": 7, "clients": ["c001"], "kind": "label"},
        )


def test_change_points_of_feddrift(tmp_path: Path) -> None:
    (tmp_path / "A.cp").write_text("0 0 0\n0 1 0\n2 1 0\n0 1 3\n")
    plan = Plan(change_points=tmp_path / "A.cp", step=5, num_rounds=15)
    config = PartitionConfig(kind="iid")
    dataset = even(classes=8, per_class=60)
    federation = partition_dataset(dataset, config, 3, Seed(1), plan=plan)
    assert [(d.client, d.at) for d in federation.drifts] == [("c001", 6), ("c000", 11)]  # row 3 is too late
    assert federation.at(11).groups["c001"] != federation.at(11).groups["c002"]
    (tmp_path / "A.cp").write_text("0 0\n0 1\n")
    with pytest.raises(InvalidInput, match="expected rows of 3 concept numbers from 0 to 3"):
        partition_dataset(dataset, config, 3, Seed(1), plan=plan)


def test_a_saved_federation_has_the_same_rounds(tmp_path: Path) -> None:
    federation = drifting(
        {"at": 5, "clients": 0.3, "kind": "concept", "to": "reverse", "over": 3, "keep": 1.0},
        {"at": 7, "clients": 0.3, "kind": "label", "until": 12},
        {"at": 15, "clients": 1.0, "kind": "quantity", "factor": 0.5},
    )
    federation.save(tmp_path / "data")
    opened = Federation.open(tmp_path / "data")
    for round_ in range(20):
        for client in federation.ids:
            for split in ("train", "validation", "test"):
                ours = federation.at(round_).examples(client, split)
                theirs = opened.at(round_).examples(client, split)
                assert np.array_equal(ours.x, theirs.x)
                assert np.array_equal(ours.y, theirs.y)
                assert ours.origin == theirs.origin


one_drift = st.fixed_dictionaries(
    {
        "at": st.integers(1, 12),
        "clients": st.sampled_from([0.12, 0.34, ["c001"], ["c004", "c005"]]),
        "kind": st.sampled_from(["label", "concept", "quantity"]),
        "over": st.integers(1, 3),
        "keep": st.sampled_from([0.0, 0.5, 1.0]),
        "until": st.sampled_from([None, 18]),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(one_drift, max_size=4))
def test_no_sample_has_two_holders_at_one_time(drifts: list[dict[str, Any]]) -> None:
    chosen = []
    for drift in drifts:
        more = {"label": {}, "concept": {"to": "reverse"}, "quantity": {"factor": 0.5, "keep": 0.0}}
        try:
            chosen.append({**drift, **more[drift["kind"]]})
            DriftConfig(**chosen[-1])
        except ValueError:
            chosen.pop()
    try:
        federation = drifting(*chosen)
    except InvalidInput:
        return
    for round_ in {0, 20, *(d.at for d in federation.drifts), *(d.done for d in federation.drifts)}:
        held = np.concatenate([rows(federation, client, round_) for client in federation.ids])
        assert len(held) == len(np.unique(held))
        assert all(share.size() for share in federation.at(round_).clients.values())
