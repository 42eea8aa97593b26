# SPDX-License-Identifier: Apache-2.0
"""Hostile files are refused in one sentence each, and nothing but their headers is read."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.seeds import Seed
from feddag.data.build import build_federation
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.files.guard import MemoryBudget
from feddag.data.files.images import picture
from feddag.data.files.unpack import unpack
from feddag.data.own import arrays
from feddag.data.own.checking import client_facts
from feddag.data.own.reading import read_own
from tests.data import hostile
from tests.data.odd_folders import odd_folder

ROOT = Path(__file__).parents[2]
# Reads a folder with 200 MB of memory on top of what Python and its libraries need, in at most a minute.
LIMITED = """
import json, resource, signal, sys
from pathlib import Path
from feddag.data.own.reading import read_own
import pyarrow.parquet
signal.alarm(60)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000,) * 2)
print(json.dumps(read_own(Path(sys.argv[1])).problems))
"""
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, pipes and memory limits")


@needs_linux
def test_every_hostile_file_is_refused_in_one_sentence_with_little_memory(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install pyarrow")
    expected = hostile.make_all(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    problems = json.loads(done.stdout)
    for name, piece in expected.items():
        (sentence,) = [problem for problem in problems if problem.startswith(f"{name}:")]
        assert piece in sentence
        assert "\n" not in sentence
    assert len(problems) == len(expected)


def test_only_headers_of_a_file_that_is_too_large_are_read(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", x=np.zeros((1000, 100)), y=np.arange(1000) % 2)
    monkeypatch.setattr(arrays, "_values", lambda *_: pytest.fail("values were read"))
    (problem,) = read_own(tmp_path, budget=MemoryBudget(700_000)).problems
    assert problem == "a.npz: needs 0.8 MB of memory, but 0.7 MB are left"


def test_the_budget_counts_all_clients_together(tmp_path):
    for name in "abc":
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((1000, 10)), y=np.arange(1000) % 2)
    assert [p.split(":")[0] for p in read_own(tmp_path, budget=MemoryBudget(200_000)).problems] == ["c.npz"]


def test_a_parquet_file_that_unpacks_to_far_more_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    zeros = pyarrow.array(np.zeros(4_000_000, np.int8))
    parquet.write_table(pyarrow.table({"u": zeros, "label": zeros}), tmp_path / "a.parquet")
    with parquet.ParquetWriter(
        tmp_path / "b.parquet", pyarrow.schema([("u", "int8"), ("label", "int8")])
    ) as file:
        for _ in range(5):
            file.write_table(pyarrow.table({"u": zeros, "label": zeros}))
    first, second = read_own(tmp_path, budget=MemoryBudget(100_000_000)).problems
    assert first.startswith("a.parquet: needs 256.0 MB of memory, but 100.0 MB are left")
    assert second.startswith("b.parquet: a file of 0.1 MB claims to hold 1.3 GB")


def test_a_very_long_text_in_every_row_is_no_class(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    long = pyarrow.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * 1_000_000])
    columns = {"u": np.zeros(100_000), "label": long, "word": long}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    (problem,) = read_own(tmp_path).problems
    assert problem == "a.parquet: label column 'label' holds a text of 1,000,000 characters; expected names"


def test_sentences_stay_short_whatever_the_names_in_a_file(tmp_path):
    (tmp_path / "a.csv").write_text(f"{'u' * 100_000},label\n1,0\n2,1\n")
    (tmp_path / "b.csv").write_text(f"{'v' * 100_000},label\n1,0\n2,1\n")
    (problem,) = read_own(tmp_path).problems
    assert len(problem) < 2100


def test_values_that_are_damaged_are_noticed_by_their_checksum(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(200.0).reshape(100, 2), y=np.arange(100) % 2)
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    (problem,) = read_own(tmp_path).problems
    assert problem.startswith("a.npz: not an .npz file that can be read (Bad CRC-32")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", ">f4", "u1", "i2", "b1"])
def test_good_arrays_are_read_exactly(tmp_path, order, dtype):
    x = np.asarray(Seed(1).numpy().integers(0, 2, size=(6, 3, 2)).astype(dtype), order=order)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", x=x, y=np.array(["é", "b"] * 3))
        (client,) = read_own(tmp_path).clients
        assert client.x.dtype == x.dtype
        assert np.array_equal(client.x, x)
        assert client.y.tolist() == ["é", "b"] * 3


def test_an_image_between_the_limit_and_twice_the_limit_is_refused_too(tmp_path):
    hostile.bomb_png(tmp_path / "a.png", 12_000, 12_000)
    with pytest.raises(InvalidInput, match=r"a.png: 12,000×12,000 pixels are more than can be read"):
        picture(tmp_path / "a.png", "a.png", None)


def test_a_program_in_the_clothes_of_an_image_is_not_started(tmp_path):
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n"
    )
    with pytest.raises(InvalidInput, match="not an image that can be read"):
        picture(tmp_path / "a.png", "a.png", None)


@pytest.mark.parametrize("kind", ["webp", "mpo"])
def test_formats_that_pillow_loads_late_are_read_by_a_new_process(tmp_path, kind):
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "a.png", kind, save_all=kind == "mpo")
    script = "from feddag.data.files.images import picture as p; from pathlib import Path; import sys\n"
    script += "print(p(Path(sys.argv[1]), 'a', None).shape)"
    command = [sys.executable, "-c", script, str(tmp_path / "a.png")]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == "(3, 8, 8)\n"
    )


def test_images_with_16_bits_are_refused_because_their_pixels_would_be_cut_off(tmp_path):
    (tmp_path / "a" / "cat").mkdir(parents=True)
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "a" / "cat" / "1.png")
    assert "a/cat/1.png: has more than 8 bits per pixel" in read_own(tmp_path).problems[0]


def test_grey_images_among_coloured_ones_become_coloured(tmp_path):
    (tmp_path / "a" / "cat").mkdir(parents=True)
    (tmp_path / "a" / "dog").mkdir()
    Image.new("L", (4, 4), 7).save(tmp_path / "a" / "cat" / "1.png")
    Image.new("RGB", (4, 4), (1, 2, 3)).save(tmp_path / "a" / "dog" / "1.png")
    (tmp_path / "a" / "dog" / "2.tif").write_text("not used")
    reading = read_own(tmp_path)
    assert reading.clients[0].x[:, :, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3]]
    assert "a/: 1 entry is not used (.tif)" in reading.warnings


@pytest.mark.parametrize("kind", ["zip", "tar.xz", "tar.bz2"])
def test_a_damaged_archive_is_refused_in_one_sentence(tmp_path, kind):
    archive = tmp_path / f"a.{kind}"
    (tmp_path / "big").write_bytes(Seed(0).numpy().bytes(50_000))
    if kind == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as pack:
            pack.write(tmp_path / "big", "big")
    else:
        with tarfile.open(archive, f"w:{kind[4:]}") as tar:
            tar.add(tmp_path / "big", "big")
    data = bytearray(archive.read_bytes())
    for i in range(60, 40_000, 11):
        data[i] ^= 0x55
    archive.write_bytes(data)
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(InvalidInput, match=f"a.{kind}: damaged archive"):
        unpack(archive, target, 10**9)
    assert list(target.iterdir()) == []


def try_odd_folder(place, number):
    """Check and load one odd folder: it works, or a sentence says why not."""
    folder = odd_folder(place, number)
    reading = read_own(folder)
    client_facts(reading)
    for sentence in (*reading.problems, *reading.warnings):
        assert sentence.isprintable()
        sentence.encode()
    missing = ("refuse", "drop", "impute")[number % 3]
    config = DataConfig(name="own", path=folder, cache=place / "cache", missing=missing)
    try:
        made = build_federation(config, PartitionConfig(), None, Seed(0))
    except FederationError as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert refusal.isprintable()
        return False
    assert np.isfinite(np.asarray(made.train.x, dtype=np.float64)).all()
    return True


@needs_linux
@pytest.mark.parametrize(
    "numbers", [range(60), pytest.param(range(60, 260), marks=pytest.mark.hard)], ids=len
)
def test_odd_folders_are_read_or_refused_but_never_end_in_a_traceback(numbers, tmp_path, counted):
    read = [try_odd_folder(tmp_path, number) for number in numbers]
    assert any(read)  # else nothing but refusals was tested
    assert not all(read)
    counted("odd data folders", len(read))
