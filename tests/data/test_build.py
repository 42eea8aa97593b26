# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation, partition_dataset
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.corruptions import corrupt
from feddag.data.federation import Federation
from tests.data.toys import even, split, used_rows


def test_label_view_is_every_test_sample_of_the_clients_classes():
    federation = split(even(10, 40, test_per_class=7), 10, kind="label-groups")
    for client in federation.ids:
        classes = set(federation.examples(client).y)
        test = federation.examples(client, "test")
        assert set(test.y) == classes
        assert len(test) == 7 * len(classes)


def test_proportional_tests_have_the_classes_in_the_clients_own_proportions():
    federation = split(even(4, 1000, test_per_class=500), 4, kind="lda", alpha=0.5, test="proportional")
    for client in federation.ids:
        train, test = federation.examples(client).counts(), federation.examples(client, "test").counts()
        assert np.array_equal(train > 0, test > 0)
        assert np.abs(train / train.sum() - test / test.sum()).max() < 0.02


def test_a_test_set_can_be_capped():
    federation = split(even(4, 100, test_per_class=50), 5, kind="iid", test_samples=30)
    assert {len(s.test) for s in federation.clients.values()} == {30}


def test_validation_comes_from_training_data_and_leaves_every_class_in_training():
    federation = split(even(5, 100), 10, kind="lda", alpha=0.2, validation=0.25)
    for share in federation.clients.values():
        assert not set(share.train) & set(share.validation)
        held = set(federation.train.y[share.validation])
        assert held <= set(federation.train.y[share.train])
    sizes = [(len(s.train), len(s.validation)) for s in federation.clients.values()]
    assert sum(v for _, v in sizes) == pytest.approx(125, abs=10)


def test_concepts_relabel_training_and_test_alike_on_equal_thirds():
    federation = split(even(5, 60), 9, kind="iid", concept={})
    assert sorted(np.bincount(list(federation.groups.values()))) == [3, 3, 3]
    for client in federation.ids:
        share = federation.clients[client]
        name = federation.group_names[federation.groups[client]].split(", ")[-1]
        meaning = {"identity": lambda y: y, "reverse": lambda y: 4 - y, "shift": lambda y: (y + 1) % 5}[name]
        assert np.array_equal(federation.examples(client).y, meaning(federation.train.y[share.train]))
        assert np.array_equal(federation.examples(client, "test").y, meaning(federation.test.y[share.test]))


def test_quantity_on_top_keeps_a_part_of_what_the_base_kind_gave():
    whole = split(even(10, 100), 10, kind="label-groups")
    parts = split(even(10, 100), 10, kind="label-groups", quantity={"alpha": 0.5})
    sizes = [len(s.train) for s in parts.clients.values()]
    assert sum(sizes) < 1000
    for client in whole.ids:
        assert set(parts.clients[client].train) <= set(whole.clients[client].train)


def test_newcomers_are_a_share_of_the_clients():
    federation = split(even(10, 100), 20, kind="label-groups", newcomers=0.2)
    assert len(federation.newcomers) == 4
    assert set(federation.newcomers) < set(federation.ids)


def test_label_quantity_feature_and_concept_go_together_and_every_combination_is_a_group():
    settings = PartitionConfig(
        kind="label-groups",
        groups=2,
        label_share=0.5,
        quantity={"alpha": 5.0},
        concept={"maps": ("identity", "reverse")},
        feature={"types": ("clean", "contrast")},
        validation=0.1,
        newcomers=0.25,
    )
    federation = build_federation(DataConfig(), settings, 16, Seed(3))
    traits = {tuple(name.split(", ")) for name in federation.group_names.values()}
    assert len(traits) == len(federation.group_names) <= 8
    assert {t[1] for t in traits} == {"clean", "contrast"}
    assert {t[2] for t in traits} == {"identity", "reverse"}
    assert len(federation.newcomers) == 4


def test_corrupted_clients_hold_and_are_tested_on_corrupted_copies_of_their_samples():
    settings = {"kind": "iid", "validation": 0.2}
    clean = build_federation(DataConfig(max_train=300, max_test=60), PartitionConfig(**settings), 6, Seed(0))
    feature = {"types": ("clean", "contrast", "pixelate"), "severity": 5}
    skewed = build_federation(
        DataConfig(max_train=300, max_test=60), PartitionConfig(**settings, feature=feature), 6, Seed(0)
    )
    for client in clean.ids:
        name = skewed.group_names[skewed.groups[client]].split(", ")[-1]
        for part in ("train", "validation", "test"):
            before, after = clean.examples(client, part), skewed.examples(client, part)
            expected = corrupt(before.x, name, 5, range(len(before)), Seed(0))  # these three draw nothing
            assert np.array_equal(after.x, expected)
            assert np.array_equal(after.y, before.y)
    assert sorted(np.bincount(list(skewed.groups.values()))) == [2, 2, 2]


def test_noise_of_an_image_does_not_depend_on_who_else_takes_part():
    feature = {"types": ("gaussian_noise",)}
    federations = [
        build_federation(
            DataConfig(max_train=100, max_test=20),
            PartitionConfig(kind="iid", feature=feature, validation=0.0),
            n,
            Seed(0),
        )
        for n in (2, 5)
    ]
    images = [{x.tobytes() for client in f.ids for x in f.examples(client).x} for f in federations]
    assert images[0] == images[1]


def test_large_corrupted_pools_are_mapped_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("feddag.data.dealing.features.IN_MEMORY", 0)
    data = DataConfig(max_train=100, max_test=20, cache=tmp_path)
    partition = PartitionConfig(kind="iid", feature={"types": ("fog", "clean")})
    first = build_federation(data, partition, 4, Seed(0))
    assert isinstance(first.train.x, np.memmap)
    files = sorted(tmp_path.rglob("x.npy"))
    assert len(files) == 2
    again = build_federation(data, partition, 4, Seed(0))
    assert sorted(tmp_path.rglob("x.npy")) == files
    assert np.array_equal(first.train.x, again.train.x)
    monkeypatch.undo()
    assert np.array_equal(build_federation(data, partition, 4, Seed(0)).train.x, first.train.x)


def test_an_unknown_corruption_is_named():
    with pytest.raises(InvalidInput, match="'fogg' is not one of the corruptions clean, gaussian_noise"):
        build_federation(DataConfig(), PartitionConfig(kind="iid", feature={"types": ("fogg",)}), 4, Seed(0))


def test_rows_given_by_the_user_are_used_as_they_are():
    federation = partition_dataset(
        even(3, 10),
        PartitionConfig(validation=0.0),
        None,
        Seed(0),
        dealt={"a": np.array([0, 1]), "b": np.array([1, 2])},
    )
    assert federation.clients["b"].train.tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="client 'a': rows from 0 to 29 expected"):
        partition_dataset(even(3, 10), PartitionConfig(), None, Seed(0), dealt={"a": np.array([30])})


def test_a_saved_federation_opens_with_the_same_samples(tmp_path):
    federation = split(even(5, 40), 8, kind="lda", concept={}, validation=0.1)
    federation.save(tmp_path)
    opened = Federation.open(tmp_path)
    assert opened.ids == federation.ids
    assert opened.groups == {}
    for client in federation.ids:
        for part in ("train", "validation", "test"):
            assert np.array_equal(opened.examples(client, part).x, federation.examples(client, part).x)
            assert np.array_equal(opened.examples(client, part).y, federation.examples(client, part).y)


def test_equal_test_views_are_saved_once(tmp_path):
    split(even(2, 500, test_per_class=100), 50, kind="iid").save(tmp_path)
    assert len(np.load(tmp_path / "rows_test.npy")) == 200


def test_max_train_takes_classes_evenly_and_is_never_called_complete():
    dataset = load_dataset(DataConfig(name="digits", max_train=100, max_test=50))
    assert (len(dataset.train), len(dataset.test)) == (100, 50)
    assert np.bincount(dataset.train.y).tolist() == [10] * 10
    assert not dataset.source.complete
    assert dataset.source.train_samples == 100


def test_an_unknown_dataset_is_named():
    with pytest.raises(InvalidInput, match=r"data.name: 'cifar' is not one of cifar10, cifar100"):
        load_dataset(DataConfig(name="cifar"))


def test_samples_of_a_federation_are_those_of_the_pool():
    federation = split(even(5, 40), 8, kind="iid")
    assert sorted(used_rows(federation)) == list(range(200))
    client = federation.ids[0]
    assert federation.examples(client).x[:, 0].tolist() == federation.clients[client].train.tolist()
