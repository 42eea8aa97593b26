# SPDX-License-Identifier: Apache-2.0
"""`feddag data get NAME` for whole datasets, against a web server on this machine."""

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from feddag.cli.data import app
from feddag.core.errors import InvalidInput
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig
from feddag.data.datasets import landmarks, office_caltech10, pacs, shakespeare, tiny_imagenet_c, uci_har


@pytest.fixture(autouse=True)
def empty_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDDAG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "cache"))


def get(name, *settings):
    result = CliRunner().invoke(app, ["get", name, *settings])
    if isinstance(result.exception, InvalidInput):
        raise result.exception
    return result.output


def serve(server, download, content, **more):
    """The same download from this machine's server, with the hash of what it has."""
    path = "/" + hashlib.sha256(content).hexdigest()[:8]
    server.others[path] = content
    if download.sha256:
        more["sha256"] = hashlib.sha256(content).hexdigest()
    if download.md5:
        more["md5"] = hashlib.md5(content).hexdigest()
    if download.size is not None:
        more["size"] = len(content)
    return replace(download, url=server.url + path, **more)


def picture(value, size=8) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def packed(members: dict[str, bytes], kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as pack:
            for name, content in members.items():
                pack.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as pack:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                pack.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# -- PACS ----------------------------------------------------------------------------------------------


def pacs_table(classes=tuple(pacs.CLASSES), domains=tuple(pacs.COUNTS)) -> bytes:
    pa = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    rows = [
        {
            "image": {"bytes": picture(40 * d + i), "path": f"pic_{i}.png"},
            "domain": domain,
            "label": c,
        }
        for i in (2, 0, 1)
        for c in reversed(range(len(classes)))
        for d, domain in enumerate(domains)
    ]
    table = pa.Table.from_pylist(rows)
    names = json.dumps({"info": {"features": {"label": {"names": list(classes)}}}})
    buffer = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"huggingface": names}), buffer)
    return buffer.getvalue()


def test_pacs_is_fetched_as_one_table_and_read_like_the_folders(server, tmp_path, monkeypatch):
    monkeypatch.setattr(pacs, "DOWNLOAD", serve(server, pacs.DOWNLOAD, pacs_table()))
    output = get("pacs")
    assert "56 training and 28 test samples, NOT the complete published set; download" in output
    assert "SHA-256 as published" in output
    table = load_dataset(DataConfig(name="pacs"))
    for d, domain in enumerate(pacs.COUNTS):
        for c in pacs.CLASSES:
            for i in range(3):
                path = tmp_path / "folders" / "PACS" / domain / c / f"pic_{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture(40 * d + i))
    folders = load_dataset(DataConfig(name="pacs", folder=tmp_path / "folders"))
    assert np.array_equal(table.train.x, folders.train.x)
    assert np.array_equal(table.test.y, folders.test.y)
    assert np.array_equal(table.domains.test, folders.domains.test)


def test_a_wrong_pacs_table_is_refused_before_it_is_read(server, tmp_path, monkeypatch):
    download = serve(server, pacs.DOWNLOAD, b"PAR1 something else")
    monkeypatch.setattr(pacs, "DOWNLOAD", replace(download, sha256=pacs.DOWNLOAD.sha256))
    with pytest.raises(InvalidInput, match=r"sha256 4fc041ee.* expected, got .*by hand: put PACS/ or"):
        get("pacs")
    assert not (tmp_path / "data" / "PACS" / pacs.TABLE).exists()


def test_a_pacs_table_with_other_classes_or_domains_is_named(server, tmp_path, monkeypatch):
    monkeypatch.setattr(pacs, "DOWNLOAD", serve(server, pacs.DOWNLOAD, pacs_table(classes=("dog", "person"))))
    with pytest.raises(InvalidInput, match=r"expected the classes dog, elephant, .*, got dog, person"):
        get("pacs")
    monkeypatch.setattr(
        pacs, "DOWNLOAD", serve(server, pacs.DOWNLOAD, pacs_table(domains=("photo", "clipart")))
    )
    with pytest.raises(InvalidInput, match="domain 'clipart' with label 6 is not one of PACS"):
        get("pacs", "-s", f"data.folder={tmp_path / 'other'}")


def test_pacs_asks_for_pyarrow_before_it_fetches_anything(server, monkeypatch):
    monkeypatch.setattr(pacs, "DOWNLOAD", serve(server, pacs.DOWNLOAD, b"never fetched"))
    monkeypatch.setattr(pacs, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"needs pyarrow \(pip install 'feddag\[data\]'\)"):
        get("pacs")
    assert server.ranges == []


# -- Office-Caltech-10 ---------------------------------------------------------------------------------


def office_members(counts) -> dict[str, bytes]:
    classes = [spellings[0] for spellings in office_caltech10.CLASSES.values()]
    spelled = {"caltech": "Caltech"}
    return {
        f"Office_Caltech_DA_Dataset-main/{spelled.get(domain, domain)}/{classes[i % 10]}/{i}.png": picture(9)
        for domain, number in counts.items()
        for i in range(number)
    } | {"Office_Caltech_DA_Dataset-main/amazon/.DS_Store": b""}


def test_office_caltech_has_no_published_hash_and_the_result_says_so(server, monkeypatch):
    content = packed(office_members(office_caltech10.COUNTS), "zip")
    monkeypatch.setattr(office_caltech10, "ARCHIVE", serve(server, office_caltech10.ARCHIVE, content))
    output = get("office-caltech10")
    assert "complete; download" in output
    assert (
        f"NOT published, only counts were checked; SHA-256 as received: {hashlib.sha256(content).hexdigest()}"
        in output
    )
    later = load_dataset(DataConfig(name="office-caltech10"))
    assert later.source.kind == "local"
    assert any("NOT published" in note for note in later.notes.values())


def test_an_office_archive_with_too_few_images_is_not_kept(server, tmp_path, monkeypatch):
    content = packed(office_members({**office_caltech10.COUNTS, "dslr": 156}), "zip")
    monkeypatch.setattr(office_caltech10, "ARCHIVE", serve(server, office_caltech10.ARCHIVE, content))
    with pytest.raises(InvalidInput, match="157 images of dslr expected, got 156; nothing was kept"):
        get("office-caltech10")
    assert [p for p in (tmp_path / "data").rglob("*") if p.is_file()] == []


# -- Tiny-ImageNet-C -----------------------------------------------------------------------------------


def tiny_members() -> dict[str, bytes]:
    return {
        f"Tiny-ImageNet-C/{corruption}/3/{wnid}/val_{i}.JPEG": picture(50, 64)
        for corruption in ("fog", "contrast")
        for wnid in ("n01", "n02")
        for i in range(5)
    }


@pytest.mark.parametrize("version", [0, 1])
def test_either_copy_of_tiny_imagenet_c_is_right_and_the_result_says_which(server, monkeypatch, version):
    gone = replace(tiny_imagenet_c.DOWNLOADS[0], url=server.url + "/gone")
    content = packed(tiny_members(), "tar")
    if version == 1:
        content = packed({"TinyImageNet-C/Tiny-ImageNet-C.tar": content}, "tar")
    there = serve(server, tiny_imagenet_c.DOWNLOADS[version], content)
    monkeypatch.setattr(tiny_imagenet_c, "DOWNLOADS", [gone, there][1 - version :])
    output = get("tiny-imagenet-c")
    assert "16 training and 4 test samples" in output
    assert f"download {there.name}: {there.url}; MD5 as published" in output
    assert load_dataset(DataConfig(name="tiny-imagenet-c")).domains.names == ("fog", "contrast")


# -- Shakespeare, UCI HAR, landmarks -------------------------------------------------------------------


def test_shakespeare_is_fetched_and_another_text_is_refused(server, monkeypatch):
    text = "\n\n".join(f"{who}:\n{letter * 700}" for who, letter in (("LEAR", "k"), ("FOOL", "f"))).encode()
    download = serve(server, shakespeare.TEXT, text)
    monkeypatch.setattr(shakespeare, "TEXT", replace(download, sha256=shakespeare.TEXT.sha256))
    with pytest.raises(InvalidInput, match=r"sha256 86c4e6aa.* expected"):
        get("shakespeare")
    monkeypatch.setattr(shakespeare, "TEXT", download)
    assert "240 training and 30 test samples, NOT the complete published set; download" in get("shakespeare")


def test_uci_har_is_counted_because_its_hash_is_not_published(server, monkeypatch):
    labels = {f"UCI HAR Dataset/{s}/y_{s}.txt": b"1\n" * n for s, n in (("train", 7352), ("test", 2946))}
    monkeypatch.setattr(uci_har, "DOWNLOAD", serve(server, uci_har.DOWNLOAD, packed(labels, "zip")))
    with pytest.raises(InvalidInput, match=r"2,947 labels in .*y_test.txt expected, got 2,946"):
        get("uci-har")


def test_landmarks_says_where_its_images_are_to_be_had_and_where_to_put_them(server, monkeypatch):
    split = {
        "landmarks-user-160k/federated_train.csv": b"user_id,image_id,class\n7,aa1,3\n",
        "landmarks-user-160k/test.csv": b"image_id,class\ncc1,3\n",
    }
    monkeypatch.setattr(landmarks, "SPLIT", serve(server, landmarks.SPLIT, packed(split, "zip")))
    with pytest.raises(
        InvalidInput, match=r"its images are not; unpack https://.* as .*landmarks-user-160k/train"
    ):
        get("landmarks")


def test_get_knows_only_datasets(tmp_path):
    for name in ("own", str(tmp_path)):
        with pytest.raises(InvalidInput, match="not a dataset that can be fetched; datasets are cifar10, "):
            get(name)
    with pytest.raises(InvalidInput, match=r"did you mean shakespeare\?"):
        get("shakespear")


def test_get_says_that_only_a_part_is_there_and_how_to_have_the_whole(tmp_path):
    folder = tmp_path / "data" / "cifar100"
    folder.mkdir(parents=True)
    np.savez(folder / "labels.npz", y_train=np.arange(2), y_test=np.arange(2), classes=["a", "b"])
    for name in ("train_0.webp", "test_0.webp"):
        Image.fromarray(np.zeros((32, 64, 3), np.uint8)).save(folder / name, lossless=True)
    output = get("cifar100")
    assert "2 training and 2 test samples, NOT the complete published set; local" in output
    assert "For the whole set use another folder: feddag data get cifar100 -s data.folder=FOLDER" in output
    lines = CliRunner().invoke(app, ["list"]).output.splitlines()
    assert any(line.startswith("cifar100 ") and " a part " in line for line in lines)
