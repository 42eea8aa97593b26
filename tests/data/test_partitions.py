# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from feddag.core.errors import InvalidInput
from feddag.data.config import PartitionConfig
from feddag.data.dataset import Dataset, Tags
from feddag.data.dealing.partitions import PARTITIONS
from tests.data.toys import even, split, toy, used_rows

KINDS = [
    {"kind": "iid"},
    {"kind": "quantity", "alpha": 0.3},
    {"kind": "lda", "alpha": 0.1},
    {"kind": "lda", "alpha": 0.1, "form": "hsu"},
    {"kind": "label-groups", "alpha": 0.1, "groups": 5},
    {"kind": "label-pairs", "alpha": 0.1, "groups": 6},
]
USES_ALL = KINDS[:5]  # label pairs may leave classes out


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_no_sample_goes_to_two_clients_and_nobody_is_empty(settings):
    federation = split(even(10, 60), 20, **settings, validation=0.2)
    rows = used_rows(federation)
    assert len(np.unique(rows)) == len(rows)
    assert min(len(s.train) for s in federation.clients.values()) >= 1


@pytest.mark.parametrize("settings", USES_ALL, ids=str)
def test_every_sample_is_used_exactly_once(settings):
    assert sorted(used_rows(split(even(10, 60), 20, **settings))) == list(range(600))


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_the_same_seed_gives_the_same_clients_and_another_seed_others(settings):
    def rows(seed):
        return [s.train.tolist() for s in split(even(10, 60), 20, seed, **settings).clients.values()]

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["iid", "quantity", "lda", "hsu", "label-groups", "label-pairs"]),
    alpha=st.floats(min_value=1e-12, max_value=1e4),
    clients=st.integers(1, 60),
    labels=st.lists(st.integers(0, 6), min_size=7, max_size=400),
    seed=st.integers(0, 1000),
)
def test_every_partition_ends_and_is_exact_or_says_why_it_is_impossible(kind, alpha, clients, labels, seed):
    form = {"form": "hsu"} if kind == "hsu" else {}
    more = {} if kind == "iid" else {"alpha": alpha}
    config = {"kind": "lda" if kind == "hsu" else kind, **form, **more}
    try:
        federation = split(toy(labels, 7), clients, seed, **config)
    except InvalidInput as error:
        why = str(error)
        assert "need" in why or "impossible" in why
        return
    rows = used_rows(federation)
    assert len(np.unique(rows)) == len(rows)
    assert len(federation.clients) == clients
    assert min(len(s.train) for s in federation.clients.values()) >= 1
    if not kind.startswith("label-"):
        assert len(rows) == len(labels)


@pytest.mark.parametrize("form", ["classwise", "hsu"])
def test_ten_thousand_clients_with_alpha_a_hundredth_end_and_all_have_samples(form):
    federation = split(even(10, 6000, test_per_class=10), 10_000, kind="lda", alpha=0.01, form=form)
    sizes = federation.counts().sum(axis=1)
    assert sizes.sum() == 60_000
    assert sizes.min() >= 1


def test_ten_thousand_clients_in_label_groups_all_hold_their_labels():
    federation = split(even(10, 6000, test_per_class=1), 10_000, kind="label-groups", alpha=0.01)
    assert ((federation.counts() > 0).sum(axis=1) == 2).all()
    assert federation.counts().sum() == 60_000


def test_iid_sizes_differ_by_at_most_one():
    sizes = split(even(3, 11), 4, kind="iid").counts().sum(axis=1)
    assert sorted(sizes) == [8, 8, 8, 9]


def test_clients_of_a_label_group_hold_exactly_its_labels():
    federation = split(even(10, 100), 30, kind="label-groups", label_share=0.3, alpha=0.25)
    held = federation.counts() > 0
    group = np.array([federation.groups[c] for c in federation.ids])
    assert len(set(group)) == 5
    for g in range(5):
        labels = {tuple(np.flatnonzero(row)) for row in held[group == g]}
        assert labels == {tuple(int(w) for w in federation.group_names[g].removeprefix("labels ").split())}
        assert len(labels.pop()) == 3


def test_labels_nobody_holds_yet_are_given_out_first():
    for seed in range(5):
        federation = split(even(10, 50), 25, seed, kind="label-groups", label_share=0.2)
        assert (federation.counts().sum(axis=0) == 50).all()


def test_eleven_of_forty_five_label_pairs_are_distinct_and_evenly_filled():
    federation = split(even(10, 200), 100, kind="label-pairs")
    held = federation.counts() > 0
    assert (held.sum(axis=1) == 2).all()
    assert len({tuple(row) for row in held}) == 11
    assert sorted(np.bincount(list(federation.groups.values())))[0] == 9


def test_a_smaller_alpha_makes_label_shares_more_unequal():
    spread = [
        split(even(10, 400), 40, kind="label-groups", alpha=alpha).counts().max() for alpha in (0.05, 100.0)
    ]
    assert spread[0] > 2 * spread[1]


def test_hsu_clients_have_equal_sizes_and_classwise_clients_have_not():
    hsu = split(even(10, 100), 30, kind="lda", form="hsu").counts().sum(axis=1)
    classwise = split(even(10, 100), 30, kind="lda", form="classwise").counts().sum(axis=1)
    assert hsu.max() - hsu.min() <= 1
    assert classwise.max() - classwise.min() > 10


def test_lda_clients_hold_at_least_ten_samples_if_there_are_enough():
    assert split(even(10, 100), 30, kind="lda", alpha=0.05).counts().sum(axis=1).min() >= 10


def test_lda_and_natural_clients_have_no_planted_groups_and_iid_clients_have_one():
    assert split(even(10, 50), 10, kind="lda").groups == {}
    assert set(split(even(10, 50), 10, kind="iid").groups.values()) == {0}


def test_client_ids_sort_naturally():
    assert split(even(2, 600), 1001, kind="iid").ids[:2] == ("c0000", "c0001")
    assert split(even(2, 6), 2, kind="iid").ids == ("c000", "c001")


@pytest.mark.parametrize(
    ("clients", "settings", "words"),
    [
        (50, {"kind": "iid"}, "50 clients .* need 50 samples, but there are 20"),
        (3, {"kind": "label-groups"}, "5 planted groups need at least as many clients"),
        (5, {"kind": "label-groups", "label_share": 1.0}, "2 classes have only 1 different sets of 2 labels"),
        (20, {"kind": "label-pairs", "groups": 3}, "2 classes have only 1 pairs"),
        (11, {"kind": "label-pairs", "groups": 1}, "class 0 has 10 training samples, but 11 clients hold it"),
        (4, {"kind": "lda", "min_samples": 6}, "at least 6 training samples each need 24"),
        (0, {"kind": "iid"}, "num_clients: expected at least 1, got 0"),
        (3, {"kind": "natural"}, "has no clients of its own"),
        (2, {"kind": "iid", "concept": {}}, "3 concepts need at least as many clients"),
        (2, {"kind": "iid", "newcomers": 0.9}, "but one must start"),
        (2, {"kind": "iid", "feature": {"kind": "domain"}}, "has no domains"),
        (2, {"kind": "iid", "feature": {"kind": "corruption"}}, "expected images"),
    ],
)
def test_what_is_impossible_is_said_in_one_sentence(clients, settings, words):
    with pytest.raises(InvalidInput, match=words) as error:
        split(even(2, 10), clients, **settings)
    assert "\n" not in str(error.value)


def test_a_setting_that_would_be_ignored_is_refused():
    with pytest.raises(ValidationError, match="'alpha' has no meaning for kind 'iid'"):
        PartitionConfig(kind="iid", alpha=0.1)
    with pytest.raises(ValidationError):
        PartitionConfig(kind="lda", alpah=0.1)
    with pytest.raises(ValidationError):
        PartitionConfig(kind="lda", alpha=0.0)


def test_every_kind_has_a_line_of_help():
    assert all(kind.help and "\n" not in kind.help for kind in PARTITIONS.values())


# -- natural clients and domains -----------------------------------------------------------------------


def with_owners() -> Dataset:
    owners = Tags(("ann", "bob", "eve"), np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 1, 2, 2, 2]))
    return toy([0, 1, 0, 1, 1, 0], 2, owners=owners)


def test_natural_clients_keep_their_names_and_samples():
    federation = split(with_owners(), None)
    assert federation.ids == ("ann", "bob", "eve")
    assert federation.clients["bob"].train.tolist() == [2, 3, 4]
    assert federation.clients["bob"].test.tolist() == [1, 2]


def test_fewer_natural_clients_can_be_asked_for_but_not_more():
    assert len(split(with_owners(), 2, kind="natural").clients) == 2
    assert split(with_owners(), None, kind="natural", min_samples=3).ids == ("bob",)
    with pytest.raises(InvalidInput, match="4 natural clients are impossible"):
        split(with_owners(), 4, kind="natural")


def with_domains() -> Dataset:
    codes = np.repeat([0, 1, 2], 40)
    tests = np.array([0, 1, 2, 0, 1, 2])
    domains = Tags(("photo", "sketch", "art"), codes, tests)
    return toy(np.tile([0, 1], 60), 2, domains=domains)


@pytest.mark.parametrize("kind", ["iid", "lda", "quantity"])
def test_with_domains_every_client_holds_one_domain_and_is_tested_on_it(kind):
    dataset = with_domains()
    federation = split(dataset, 6, kind=kind, feature={})
    for client in federation.ids:
        share = federation.clients[client]
        domain = set(dataset.domains.train[share.train])
        assert len(domain) == 1
        assert set(dataset.domains.test[share.test]) <= domain
        assert federation.group_names[federation.groups[client]].endswith(dataset.domains.names[domain.pop()])
    assert len(used_rows(federation)) == 120


def test_data_with_domains_is_split_by_domain_without_being_asked():
    assert len(set(split(with_domains(), 6).groups.values())) == 3


def test_a_domain_that_is_too_small_is_named():
    with pytest.raises(InvalidInput, match="samples of domain 'photo', but there are 40"):
        split(with_domains(), 150, kind="iid", feature={"types": ("photo",)})
