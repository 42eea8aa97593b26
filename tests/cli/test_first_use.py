# SPDX-License-Identifier: Apache-2.0
"""What a new user meets: odd terminals, full disks, closed pipes, odd folder names. Real processes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ("num_rounds=1", "num_clients=4", "fraction_train=1.0", "engine=inline", "training.local_epochs=1")
SETS = [word for assignment in TINY for word in ("-s", assignment)]
ASCII = {"PYTHONIOENCODING": "ascii"}
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def command(*words: str) -> list[str]:
    """The installed entry point, without any dependence on the folder of the test."""
    return [sys.executable, "-c", "from feddag.cli.main import main; main()", *words]


def feddag(*words: str, cwd: Path, env=None, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run(command(*words), cwd=cwd, env=environment, timeout=300, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a finished FedDAG run in `é[/b]$`, printed to an ASCII terminal."""
    place = tmp_path_factory.mktemp("first")
    words = ("run", "digits", *SETS, "-s", "algorithm=feddag", "--folder", "é[b]$")
    done = feddag(*words, cwd=place, env=ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "results in \\xe9[b]$" in done.stdout
    return place


def test_show_on_an_ascii_terminal_has_clusters_and_worst_clients(place):
    done = feddag("show", "é[b]$", cwd=place, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "mean accuracy" in done.stdout
    assert "lowest accuracy; all in clients.csv" in done.stdout
    assert re.search(r"^ c00\d +0 ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "settings"),
        ("list", "ifca"),
        ("data", "list"),
        ("--help",),
        ("compare", "--help"),
        ("show", "--json", "é[b]$"),
    ],
    ids=" ".join,
)
def test_every_listing_is_printed_on_an_ascii_terminal(words, place):
    done = feddag(*words, cwd=place, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_lists_of_settings_and_of_one_method_name_what_can_be_set(place):
    assert "training.lr" in feddag("list", "settings", cwd=place).stdout
    assert "num_clusters" in feddag("list", "ifca", cwd=place).stdout


def test_cluster_and_compare_work_on_an_ascii_terminal_and_with_brackets_in_folder_names(tmp_path):
    done = feddag("cluster", "digits", *SETS, "--folder", "é[/b]c", cwd=tmp_path, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert "why: \\xe9[/b]c/index.html" in done.stdout
    words = ("compare", "fedavg", "digits", *SETS, "--seeds", "1", "--jobs", "1", "--folder", "a[red]é")
    done = feddag(*words, cwd=tmp_path, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert "results in a[red]\\xe9" in done.stdout
    assert "10th" in done.stdout


def test_two_clusterings_one_after_the_other_do_not_collide(tmp_path):
    pages = set()
    for _ in range(2):
        done = feddag("cluster", "digits", *SETS, "--json", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        pages.add(json.loads(done.stdout)["page"])
    assert len(pages) == 2
    assert all(page.startswith("clustering/") and (tmp_path / page).is_file() for page in pages)


@pytest.mark.parametrize("words", [("cluster", "digits", *SETS), ("run", "digits", *SETS)])
def test_a_folder_that_cannot_be_made_is_one_sentence(words, tmp_path):
    (tmp_path / "file").write_text("")
    done = feddag(*words, "--folder", "file/inside", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"feddag: the (run )?folder file/inside cannot be made: .*\n", done.stderr)


def test_the_json_of_an_unfinished_run_is_refused_in_one_sentence(place, tmp_path):
    unfinished = tmp_path / "x"
    unfinished.mkdir()
    (unfinished / "experiment.json").write_text((place / "é[b]$" / "experiment.json").read_text())
    done = feddag("show", "--json", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "feddag: the run in x is not finished: go on with feddag resume x\n"


@needs_full
@pytest.mark.parametrize("words", [("list",), ("show", "é[b]$"), ("show", "--json", "é[b]$")], ids=" ".join)
def test_a_full_disk_behind_the_output_is_one_sentence(words, place):
    with Path("/dev/full").open("w") as full:
        done = feddag(*words, cwd=place, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "feddag: the output cannot be written: No space left on device\n"


def test_a_reader_that_goes_away_causes_no_traceback(tmp_path):
    process = subprocess.Popen(
        command("list"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is printed
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=300) != 0
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    assert len(errors.splitlines()) <= 1


def test_an_error_of_a_client_is_printed_as_it_is(tmp_path):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "class Odd(nn.Module):\n"
        "    def forward(self, x):\n"
        "        if self.training:\n"
        "            raise ValueError('a[/b]c $x$\\nnext')\n"
        "        return x\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), Odd(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    done = feddag("run", "digits", *SETS, "-s", "model=mynet:net", "--folder", "f", cwd=tmp_path)
    assert done.returncode == 2
    assert "a[/b]c $x$" in done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
