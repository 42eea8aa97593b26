# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from feddag.cli.data import app
from feddag.core.errors import InvalidInput
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig
from feddag.data.files import cache

ROOT = Path(__file__).parents[2]


def call(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, InvalidInput):
        raise result.exception
    return result


def test_list_names_every_dataset_and_the_folder():
    result = call("list")
    assert result.exit_code == 0
    for word in ("cifar10", "office-caltech10", "synthetic", "always", "FEDDAG_DATA"):
        assert word in result.output


def test_get_prints_where_the_samples_came_from():
    assert "1,438 training and 359 test samples, complete; embedded" in call("get", "digits").output


def test_check_a_dataset_counts_its_classes():
    result = call("check", "fashion-mnist-sample")
    assert "NOT the complete published set" in result.output
    assert "Trouser" in result.output


def test_show_writes_two_pictures_and_prints_classes_by_clients(tmp_path):
    settings = (
        "-s",
        "partition.kind=label-groups",
        "-s",
        "partition.newcomers=0.2",
        "-s",
        "data.max_train=300",
    )
    result = call("show", "fashion-mnist-sample", "-n", "10", *settings, "--out", tmp_path)
    assert result.exit_code == 0
    assert "planted group" in result.output
    assert "classes: 0 T-shirt/top, 1 Trouser, " in result.output
    assert f"wrote {tmp_path / 'fashion-mnist-sample-samples.png'}" in result.output.replace("\n", "")
    assert "joins later" in result.output
    for name in ("fashion-mnist-sample-samples.png", "fashion-mnist-sample-classes.png"):
        with Image.open(tmp_path / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_checking_your_own_folder_says_everything_and_ends_with_two(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0, 1]))
    assert call("check", tmp_path).exit_code == 0
    np.savez(tmp_path / "b.npz", x=np.ones((4, 3)), y=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "c.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0]))
    result = call("check", tmp_path)
    assert result.exit_code == 2
    assert "2 problems:" in result.output
    assert "c: x has 4 samples but y has shape (3,)" in result.output


def test_the_real_command_ends_with_two_for_bad_data_and_with_zero_for_good_data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()

    def check():
        command = [sys.executable, "-m", "feddag", "data", "check", str(data)]
        environment = {**os.environ, "FEDDAG_CACHE": str(tmp_path / "cache")}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)

    np.savez(data / "a.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0]))
    bad = check()
    assert (bad.returncode, bad.stderr) == (2, "")
    assert "\n1 problem:\n- a: x has 4 samples but y has shape (3,)\n" in bad.stdout
    np.savez(data / "a.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0, 1]))
    good = check()
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.endswith("1 client, nothing is wrong\n")


def test_the_check_mentions_lonely_clients_and_classes_and_exits_with_zero(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "cache"))
    table = tmp_path / "all.csv"
    lines = [f"ward {i % 2},{i / 7},{'no' if i % 3 else 'yes'}" for i in range(12)] + ["ward 9,0.5,maybe"]
    table.write_text("\n".join(["client,a,label", *lines]))
    result = call("check", table)
    assert result.exit_code == 0
    output = " ".join(result.output.split())
    assert "4 warnings:" in output
    assert "1 client has only one sample, to train on: ward-9" in output
    assert "1 class occurs at one client only: 'maybe' (ward-9)" in output
    assert "'ward 0' is 'ward-0'" in output
    assert "3 clients, nothing is wrong" in output


def test_the_check_reads_the_whole_cache_whatever_was_checked_before(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SETTLED", -1.0)  # so that the entry counts as checked at once
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.arange(8.0).reshape(4, 2), y=np.array([0, 1, 0, 1]))
    assert call("check", data).exit_code == 0
    hashed = []
    original = cache.sha256_of_file
    monkeypatch.setattr(cache, "sha256_of_file", lambda path: hashed.append(path.name) or original(path))
    load_dataset(DataConfig(name="own", path=data))
    assert hashed == []
    assert call("check", data).exit_code == 0
    assert {"train_x.npy", "test_x.npy", "train_y.npy"} <= set(hashed)
    (file,) = (tmp_path / "cache").rglob("train_x.npy")
    before = file.read_bytes()
    file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    result = call("check", data)
    assert "was damaged; it is made anew from the original data" in result.output
    assert file.read_bytes() == before


def test_an_unknown_name_is_one_sentence():
    with pytest.raises(InvalidInput, match=r"'cifar' is neither a dataset .*; did you mean cifar10"):
        call("show", "cifar")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        call("show", "digits", "-n", "4", "--out", tmp_path / "file" / "inside")
