# SPDX-License-Identifier: Apache-2.0
"""Every dataset in its published layout, tiny; and the real ones where they are there."""

import gzip
import hashlib
import os
import struct

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import partition_dataset
from feddag.data.catalog import DATASETS, how_there, load_dataset
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.corruptions import CORRUPTIONS, corrupt
from feddag.data.dataset import Dataset
from feddag.data.datasets import fashion_mnist, office_caltech10, uci_har
from tests.data.places import needs, needs_debian


def load(name, folder, **more) -> Dataset:
    return load_dataset(DataConfig(name=name, folder=folder, cache=folder / ".cache", **more))


def save_image(path, value, size=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(path)


# -- published layouts ---------------------------------------------------------------------------------


def test_cifar10_binary(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rng = Seed(0).numpy()
    batches = {}
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        batches[name] = np.column_stack([np.arange(4), rng.integers(0, 256, size=(4, 3072))]).astype(np.uint8)
        batches[name].tofile(folder / name)
    dataset = load("cifar10", tmp_path)
    assert dataset.train.x.shape == (20, 3, 32, 32)
    assert isinstance(dataset.train.x, np.memmap)
    assert np.array_equal(dataset.train.x[4:8].reshape(4, -1), batches["data_batch_2.bin"][:, 1:])
    assert dataset.test.y.tolist() == [0, 1, 2, 3]
    assert dataset.source.kind == "local"
    assert not dataset.source.complete


def test_cifar100_binary(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_text("\n".join(f"name{i}" for i in range(100)))
    for name, labels in (("train.bin", [99, 5]), ("test.bin", [7])):
        np.column_stack([np.zeros(len(labels)), labels, np.full((len(labels), 3072), 3)]).astype(
            np.uint8
        ).tofile(folder / name)
    dataset = load("cifar100", tmp_path)
    assert dataset.train.y.tolist() == [99, 5]
    assert dataset.num_classes == 100
    assert (dataset.test.x == 3).all()


def test_svhn_matlab_files_have_label_ten_for_zero(tmp_path):
    x = Seed(0).numpy().integers(0, 256, size=(32, 32, 3, 4)).astype(np.uint8)
    for name in ("train", "test"):
        savemat(tmp_path / f"{name}_32x32.mat", {"X": x, "y": np.array([[10], [1], [9], [10]])})
    dataset = load("svhn", tmp_path)
    assert dataset.train.y.tolist() == [0, 1, 9, 0]
    assert np.array_equal(dataset.train.x[2], x[:, :, :, 2].transpose(2, 0, 1))


def write_idx(path, array):
    header = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_fashion_mnist_idx_files_come_before_the_systems(tmp_path):
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    for split, n in (("train", 5), ("t10k", 3)):
        write_idx(folder / f"{split}-images-idx3-ubyte.gz", np.full((n, 28, 28), n, np.uint8))
        write_idx(folder / f"{split}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8))
    dataset = load("fashion-mnist", tmp_path)
    assert dataset.source.kind == "local"
    assert dataset.train.x.shape == (5, 1, 28, 28)
    assert dataset.test.y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("damage", ["gzip", "magic", "length"])
def test_a_damaged_idx_file_is_named(tmp_path, damage):
    path = tmp_path / "images.gz"
    write_idx(path, np.zeros((2, 3), np.uint8))
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(
        {"gzip": b"x", "magic": gzip.compress(b"abcd" + content), "length": gzip.compress(content[:-1])}[
            damage
        ]
    )
    with pytest.raises(InvalidInput, match=r"images.gz: "):
        fashion_mnist.read_idx(path)


def test_pacs_folders_are_split_per_domain_and_class(tmp_path):
    for d, domain in enumerate(("art_painting", "cartoon", "photo", "sketch")):
        for c in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"):
            for i in range(5):
                save_image(tmp_path / "PACS" / domain / c / f"{i}.png", 40 * d, size=20)
    dataset = load("pacs", tmp_path)
    assert dataset.train.x.shape == (4 * 7 * 4, 3, 64, 64)
    assert len(dataset.test) == 4 * 7
    assert (dataset.train.x[:, 0, 0, 0] == 40 * dataset.domains.train).all()
    assert dataset.domains.names == ("art_painting", "cartoon", "photo", "sketch")


def test_office_caltech_folders_in_other_spellings(tmp_path):
    for domain in ("Caltech", "amazon", "DSLR", "webcam"):
        for spellings in office_caltech10.CLASSES.values():
            for i in range(2):
                save_image(tmp_path / "officecaltech" / domain / spellings[-1] / f"{i}.jpg", 9)
    dataset = load("office-caltech10", tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (40, 40)


def test_a_broken_image_is_named(tmp_path):
    test_office_caltech_folders_in_other_spellings(tmp_path)
    (tmp_path / "officecaltech" / "webcam" / "bike" / "1.jpg").write_bytes(b"broken")
    with pytest.raises(InvalidInput, match=r"1.jpg: not an image that can be read"):
        load("office-caltech10", tmp_path)


def test_published_cifar10_c_files(tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10), 5).astype(np.uint8))
    for name in ("fog", "snow"):
        images = np.repeat(np.arange(1, 6), 10)[:, None, None, None] * np.ones((1, 32, 32, 3))
        np.save(folder / f"{name}.npy", (images + (100 if name == "fog" else 0)).astype(np.uint8))
    dataset = load("cifar10-c", tmp_path, severity=4)
    assert dataset.domains.names == ("snow", "fog")
    assert set(np.unique(dataset.train.x)) == {4, 104}
    assert dataset.source.kind == "local"


def test_tiny_imagenet_folders_and_their_corruptions(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for c, name in enumerate(("n01", "n02")):
        for i in range(3):
            save_image(root / "train" / name / "images" / f"{name}_{i}.JPEG", 100 * c)
    for i in range(10):
        save_image(root / "val" / "images" / f"val_{i}.JPEG", 10 * i)
    (root / "wnids.txt").write_text("n02\nn01\n")
    lines = [f"val_{i}.JPEG\tn0{1 + i % 2}\t0\t0\t1\t1" for i in range(10)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines))
    clean = load("tiny-imagenet", tmp_path)
    assert clean.class_names == ("n01", "n02")
    assert clean.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    made = load("tiny-imagenet-c", tmp_path, severity=2)
    assert made.source.kind == "generated"
    assert len(made.domains.names) == 20
    assert len(made.train) + len(made.test) == 20 * 10
    for i in range(5):
        for c in ("n01", "n02"):
            for domain in ("fog", "contrast"):
                save_image(tmp_path / "Tiny-ImageNet-C" / domain / "2" / c / f"test_{i}.JPEG", 50)
    published = load("tiny-imagenet-c", tmp_path, severity=2)
    assert published.source.kind == "local"
    assert published.domains.names == ("fog", "contrast")


def test_landmarks_in_the_published_layout(tmp_path):
    folder = tmp_path / "landmarks-user-160k"
    folder.mkdir()
    (folder / "federated_train.csv").write_text(
        "user_id,image_id,class\n7,aa1,3\n7,aa2,11\n21,bb1,3\n21,bb2,3\n21,lost1,11\n"
    )
    (folder / "test.csv").write_text("image_id,class\ncc1,3\ncc2,11\n")
    for i, image in enumerate(("aa1", "aa2", "bb1", "cc1", "cc2")):
        save_image(folder / "images" / f"{image}.jpg", 20 * i, size=90)
    save_image(folder / "train" / "b" / "b" / "2" / "bb2.jpg", 9, size=50)
    dataset = load("landmarks", tmp_path)
    assert dataset.owners.names == ("user7", "user21")
    assert dataset.train.y.tolist() == [0, 1, 0, 0]
    assert "1 of 7 are not there" in dataset.notes["images"]
    assert not dataset.source.complete
    federation = partition_dataset(dataset, PartitionConfig(validation=0.0), None, Seed(0))
    assert federation.ids == ("user21", "user7")
    assert federation.clients["user21"].test.tolist() == [0]  # test photographs of its classes
    assert federation.clients["user7"].test.tolist() == [0, 1]


def test_uci_har_text_files_put_both_halves_together(tmp_path):
    root = tmp_path / "UCI HAR Dataset"
    rng = Seed(0).numpy()
    for split, person in (("train", 1), ("test", 30)):
        (root / split / "Inertial Signals").mkdir(parents=True)
        np.savetxt(root / split / f"y_{split}.txt", np.repeat(np.arange(1, 7), 2), fmt="%d")
        np.savetxt(root / split / f"subject_{split}.txt", np.full(12, person), fmt="%d")
        for signal in uci_har.SIGNALS:
            np.savetxt(
                root / split / "Inertial Signals" / f"{signal}_{split}.txt", rng.normal(size=(12, 128))
            )
    dataset = load("uci-har", tmp_path)
    assert dataset.train.x.shape[1:] == (9, 128)
    assert len(dataset.train) + len(dataset.test) == 24
    assert set(dataset.owners.train) == {0, 29}
    assert set(dataset.test.y) == set(range(6))


def test_shakespeare_windows_come_from_one_speaker_and_never_cross_into_the_test_part(tmp_path):
    (tmp_path / "tinyshakespeare").mkdir()
    text = "\n\n".join(
        f"{who}:\n{letter * 700}" for who, letter in (("KING LEAR", "k"), ("FOOL", "f"), ("KENT", ""))
    )
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(text)
    dataset = load("shakespeare", tmp_path)
    assert dataset.owners.names == ("FOOL", "KING-LEAR")
    for owner, letter in ((0, "f"), (1, "k")):
        mine = dataset.train.x[dataset.owners.train == owner]
        assert {dataset.class_names[c] for c in np.unique(mine)} == {letter}
    assert len(dataset.train) == 2 * len(range(0, 560 - 80, 4))
    assert len(dataset.test) == 2 * len(range(0, 140 - 80, 4))


# -- what is not there, or not whole -------------------------------------------------------------------


def test_what_is_missing_is_said_with_where_and_how(tmp_path):
    with pytest.raises(
        InvalidInput,
        match=r"no cifar-10-batches-bin/ or cifar10/ in .* download \(170 MB\): feddag data get cifar10",
    ):
        load("cifar10", tmp_path)
    assert how_there(DataConfig(name="cifar10", folder=tmp_path)) == "no"


def test_half_a_dataset_names_the_missing_file(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"cifar-10-batches-bin/data_batch_2.bin is missing in"):
        load("cifar10", tmp_path)


def test_pickles_are_never_read(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(InvalidInput, match="holds pickles, which are never read; use the binary version"):
        load("cifar10", tmp_path)


def test_a_file_of_a_wrong_size_is_named(tmp_path):
    test_cifar10_binary(tmp_path)
    with (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidInput, match=r"data_batch_3.bin: its size is not a multiple of 3073 bytes"):
        load("cifar10", tmp_path)


def test_damaged_labels_are_said_in_a_sentence(tmp_path):
    (tmp_path / "cifar10").mkdir()
    for name in ("labels.npz", "train_0.webp", "test_0.webp"):
        (tmp_path / "cifar10" / name).write_bytes(b"rubbish")
    with pytest.raises(InvalidInput, match="cifar10: a file is damaged or not what was expected"):
        load("cifar10", tmp_path)
    np.savez(tmp_path / "cifar10" / "labels.npz", y_train=np.arange(5), y_test=np.arange(5))
    with pytest.raises(InvalidInput, match=r"train_0.webp: not an image that can be read"):
        load("cifar10", tmp_path)


def test_a_changed_file_is_converted_again(tmp_path):
    test_cifar10_binary(tmp_path)
    before = load("cifar10", tmp_path)
    np.zeros((4, 3073), np.uint8).tofile(tmp_path / "cifar-10-batches-bin" / "test_batch.bin")
    after = load("cifar10", tmp_path)
    assert after.source.sha256 != before.source.sha256
    assert (after.test.x == 0).all()


def write_cifar10_c(folder, value):
    folder.mkdir(exist_ok=True)
    np.save(folder / "labels.npy", np.tile(np.arange(10), 5).astype(np.uint8))
    np.save(folder / "fog.npy", np.full((50, 32, 32, 3), value, np.uint8))
    return folder / "fog.npy"


def write_tiny_imagenet_c(folder, value):
    for i in range(5):
        save_image(folder / "fog" / "3" / "n01" / f"{i}.JPEG", value)
    return folder / "fog" / "3" / "n01" / "0.JPEG"


def write_landmarks(folder, value):
    folder.mkdir(exist_ok=True)
    (folder / "federated_train.csv").write_text("user_id,image_id,class\n7,a1,3\n7,a2,3\n")
    (folder / "test.csv").write_text("image_id,class\na3,3\n")
    for image in ("a1", "a2", "a3"):
        save_image(folder / "images" / f"{image}.jpg", value)
    return folder / "images" / "a1.jpg"


@pytest.mark.parametrize(
    ("name", "folder", "write"),
    [
        ("cifar10-c", "CIFAR-10-C", write_cifar10_c),
        ("tiny-imagenet-c", "Tiny-ImageNet-C", write_tiny_imagenet_c),
        ("landmarks", "landmarks", write_landmarks),
    ],
)
def test_sets_too_large_to_hash_at_every_start_notice_a_change_of_the_same_size(
    tmp_path, name, folder, write
):
    path = write(tmp_path / folder, 3)
    size, changed = path.stat().st_size, path.stat().st_mtime_ns
    before = load(name, tmp_path)
    assert load(name, tmp_path).source.sha256 == before.source.sha256
    assert (before.train.x == 3).all()
    write(tmp_path / folder, 4)
    assert path.stat().st_size == size
    os.utime(path, ns=(changed, changed + 1))  # two writes in one test may bear the same time
    after = load(name, tmp_path)
    assert (after.train.x == 4).all()
    assert after.source.sha256 != before.source.sha256


def test_the_hash_of_a_large_set_is_that_of_its_contents_whenever_they_were_written(tmp_path):
    hashes = set()
    for place, time in (("a", 1_000), ("b", 2_000)):
        (tmp_path / place).mkdir()
        path = write_cifar10_c(tmp_path / place / "CIFAR-10-C", 3)
        os.utime(path, (time, time))
        hashes.add(load("cifar10-c", tmp_path / place).source.sha256)
    assert len(hashes) == 1


def test_every_dataset_has_help_and_terms():
    assert all(entry.help and entry.terms for entry in DATASETS.values())


def test_data_folders_come_from_the_setting_then_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDDAG_DATA", str(tmp_path / "a"))
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "b"))
    assert DataConfig().data_folder == tmp_path / "a"
    assert DataConfig(folder=tmp_path).data_folder == tmp_path
    assert DataConfig().cache_folder == tmp_path / "b"
    monkeypatch.delenv("FEDDAG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert DataConfig().cache_folder == tmp_path / "c" / "feddag"


# -- always there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [
        ("digits", (1, 8, 8), 1438, 359),
        ("fashion-mnist-sample", (1, 28, 28), 6000, 1000),
        ("synthetic", (16,), 4000, 1000),
    ],
)
def test_what_is_always_there(name, shape, train, test):
    dataset = load_dataset(DataConfig(name=name))
    assert dataset.train.x.shape == (train, *shape)
    assert len(dataset.test) == test
    scaled = dataset.scaling(torch.from_numpy(dataset.train.x))
    if name != "synthetic":
        assert abs(float(scaled.mean())) < 0.05
        assert float(scaled.std()) == pytest.approx(1, abs=0.05)


def test_the_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    dataset = load_dataset(DataConfig(name="digits"))
    parts = (dataset.train, dataset.test)
    ours = {(row.tobytes(), int(y)) for part in parts for row, y in zip(part.x, part.y, strict=True)}
    assert ours == {(row.astype(np.uint8).tobytes(), int(y)) for row, y in zip(images, labels, strict=True)}


def test_the_embedded_sample_is_balanced_small_and_not_called_complete():
    dataset = load_dataset(DataConfig(name="fashion-mnist-sample"))
    assert np.bincount(dataset.train.y).tolist() == [600] * 10
    assert np.bincount(dataset.test.y).tolist() == [100] * 10
    assert not dataset.source.complete


def test_synthetic_mixtures_differ_more_between_groups_than_within():
    dataset = load_dataset(DataConfig(name="synthetic"))
    means = [
        dataset.train.x[(dataset.domains.train == g) & (dataset.train.y == 0)].mean(axis=0) for g in range(4)
    ]
    distances = [np.linalg.norm(means[i] - means[j]) for i in range(4) for j in range(i)]
    assert np.mean(distances) == pytest.approx(3.0, rel=0.3)


# -- the real ones -------------------------------------------------------------------------------------


@needs("cifar10", "labels.npz")
def test_cifar10_equals_the_published_binary_batches():
    dataset = load_dataset(DataConfig(name="cifar10"))
    md5 = [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
    ]
    for i, expected in enumerate(md5):
        batch = slice(10_000 * i, 10_000 * (i + 1))
        rows = np.column_stack([dataset.train.y[batch], dataset.train.x[batch].reshape(10_000, -1)])
        assert hashlib.md5(rows.astype(np.uint8).tobytes()).hexdigest() == expected
    rows = np.column_stack([dataset.test.y, dataset.test.x.reshape(10_000, -1)]).astype(np.uint8)
    assert hashlib.md5(rows.tobytes()).hexdigest() == "803d5f7f4d78ea53de84dbe85f74fb6d"
    assert dataset.source.complete


@needs_debian
def test_debians_fashion_mnist_is_the_whole_published_set(tmp_path):
    dataset = load("fashion-mnist", tmp_path)
    assert dataset.source.kind == "system"
    assert dataset.source.complete
    header = struct.pack(">IIII", 0x803, 60_000, 28, 28)
    digest = hashlib.sha256(header + dataset.train.x.tobytes()).hexdigest()
    assert digest == "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"


@needs("cifar100", "labels.npz")
def test_cifar100s_part_is_not_called_complete():
    dataset = load_dataset(DataConfig(name="cifar100"))
    assert np.bincount(dataset.train.y).tolist() == [50] * 100
    assert not dataset.source.complete


@needs("svhn", "labels.npz")
def test_svhns_part_is_not_called_complete():
    dataset = load_dataset(DataConfig(name="svhn"))
    assert (len(dataset.train), len(dataset.test)) == (20_000, 5_000)
    assert not dataset.source.complete
    assert np.allclose(dataset.train.x[::10].mean(axis=(0, 2, 3)) / 255, (0.4377, 0.4438, 0.4728), atol=0.01)


@needs("pacs", "labels.npz")
@needs("office_caltech10", "labels.npz")
@pytest.mark.parametrize(("name", "total", "domains"), [("pacs", 9991, 4), ("office-caltech10", 2533, 4)])
def test_domains_are_whole_and_split_per_domain(name, total, domains):
    dataset = load_dataset(DataConfig(name=name))
    assert len(dataset.train) + len(dataset.test) == total
    assert dataset.source.complete
    for d in range(domains):
        assert set(dataset.test.y[dataset.domains.test == d]) == set(range(dataset.num_classes))


@needs("uci_har", "uci_har.npz")
def test_uci_har_has_thirty_people_and_no_window_overlaps_from_training_into_test():
    dataset = load_dataset(DataConfig(name="uci-har"))
    federation = partition_dataset(dataset, PartitionConfig(), None, Seed(0))
    assert len(federation.ids) == 30
    assert len(dataset.test) / (len(dataset.train) + len(dataset.test)) == pytest.approx(0.2, abs=0.05)
    halves = {x[:, :64].tobytes() for x in dataset.train.x} | {x[:, 64:].tobytes() for x in dataset.train.x}
    tests = {x[:, :64].tobytes() for x in dataset.test.x} | {x[:, 64:].tobytes() for x in dataset.test.x}
    assert not halves & tests
    standing = dataset.train.x[dataset.train.y == 4][:, 6].mean()  # total acceleration along the body, in g
    assert standing == pytest.approx(1.0, abs=0.05)


@needs("shakespeare", "input.txt.gz")
def test_shakespeare_has_its_speakers():
    dataset = load_dataset(DataConfig(name="shakespeare"))
    assert dataset.num_classes == 65
    assert "KING-RICHARD-II" in dataset.owners.names
    assert dataset.source.complete


@needs("cifar10", "labels.npz")
def test_cifar10_c_is_made_from_the_test_images_and_no_image_is_in_both_parts():
    dataset = load_dataset(DataConfig(name="cifar10-c", max_train=400, max_test=100, severity=5))
    clean = load_dataset(DataConfig(name="cifar10")).test
    assert dataset.source.kind == "generated"
    assert dataset.domains.names == ("clean", *CORRUPTIONS)
    assert not dataset.source.complete
    row = {x.tobytes(): i for i, x in enumerate(clean.x)}
    train = [row[x.tobytes()] for x in dataset.train.x[dataset.domains.train == 0]]
    test = [row[x.tobytes()] for x in dataset.test.x[dataset.domains.test == 0]]
    assert len(train) == 20
    assert not set(train) & set(test)
    contrast = 1 + list(CORRUPTIONS).index("contrast")
    expected = corrupt(clean.x[train], "contrast", 5, train, Seed(0))
    assert np.array_equal(dataset.train.x[dataset.domains.train == contrast], expected)


@needs("tiny_imagenet20", "tiny_imagenet20.npz")
def test_tiny_imagenets_part_has_twenty_classes():
    dataset = load_dataset(DataConfig(name="tiny-imagenet"))
    assert np.bincount(dataset.train.y).tolist() == [150] * 20
    assert np.bincount(dataset.test.y).tolist() == [50] * 20
