# SPDX-License-Identifier: Apache-2.0
"""Worker processes under attack: killed while they start, orphaned, without space, among hostile files."""

import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from toys import Order, blob_site, obey

import feddag
from feddag.core.algorithm import broadcast
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError
from feddag.core.seeds import Seed
from feddag.engines import private_folder, process, workers
from feddag.engines.private_folder import PrivateFolder, lock_of, remove_leftovers
from feddag.engines.process import ProcessEngine

SIZES = (8, 8, 8)
CLIENTS = tuple(f"c{i:03d}" for i in range(len(SIZES)))
LONG = 120.0  # seconds after which a test that hangs fails
ROOT = Path(feddag.__file__).parents[1]


def ask(engine, order=None, **options):
    order = order or Order(action="count")
    return engine.ask(obey, broadcast(order, CLIENTS), Exchange(1, Seed(1), **options))


def failures(answers):
    return {client: answer.failure for client, answer in answers.items() if answer.failure}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A shared memory and a temporary folder of our own."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(process, "SHARED_MEMORY", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return shared, temporary


def kill(worker):
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()


# -- starting ------------------------------------------------------------------------------------------------


def test_workers_that_are_killed_while_they_start_are_replaced():
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=2)
    try:
        for worker in engine.crew.workers:
            kill(worker)  # it is still importing: nobody has admitted it
        assert failures(ask(engine)) == {}
        assert engine.workers == 2
        assert {worker.attempt for worker in engine.crew.workers if worker.ready} == {1}
    finally:
        engine.close()


def test_a_worker_that_dies_between_two_questions_costs_no_client_its_answer():
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    try:
        ask(engine)
        kill(engine.crew.workers[0])
        assert failures(ask(engine)) == {}
    finally:
        engine.close()


def test_a_worker_that_cannot_start_is_tried_again_then_its_last_words_are_told(monkeypatch, capfd):
    monkeypatch.setattr(workers, "BOOT", "raise RuntimeError('torch is broken here')")
    monkeypatch.setattr(workers, "START_ATTEMPTS", 2)
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    with pytest.raises(FederationError) as raised:
        ask(engine)
    engine.close()
    said = str(raised.value)
    assert said.startswith("a worker process could not start in 2 attempts (exit code 1)")
    assert said.endswith("RuntimeError: torch is broken here")
    assert "\n" not in said
    assert capfd.readouterr().err == "", "it is told once"


def test_a_worker_that_cannot_open_the_data_says_so_before_any_client_is_asked(monkeypatch):
    monkeypatch.setattr(workers, "START_ATTEMPTS", 1)
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    shutil.rmtree(engine.folder / "data")
    with pytest.raises(FederationError, match=r"could not start in 1 attempts .* its last words: "):
        ask(engine)
    engine.close()


# -- the engine is killed ------------------------------------------------------------------------------------

ORPHANS = """
import json, os, signal, sys
from toys import Order, blob_site, obey
from feddag.core.algorithm import broadcast
from feddag.core.engine import Exchange
from feddag.core.seeds import Seed
from feddag.engines.process import ProcessEngine

engine = ProcessEngine(blob_site(sizes=(8, 8, 8)), "mlp", workers=2)
answered = []

def on_answer(client):
    answered.append(client)
    if len(answered) == 2:  # only the one that hangs is left
        pids = [worker.process.pid for worker in engine.crew.workers]
        print(json.dumps([pids, str(engine.folder)]), flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)

order = Order(action="hang", victim="c002")
engine.ask(obey, broadcast(order, ["c000", "c001", "c002"]), Exchange(1, Seed(1), on_answer=on_answer))
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system cannot wait for foreign processes")
def test_no_worker_and_no_file_outlives_an_engine_that_is_killed_while_a_client_hangs():
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    engine = subprocess.Popen(
        [sys.executable, "-c", ORPHANS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=path),
    )
    with engine:
        pids, folder = json.loads(engine.stdout.readline())
        handles = [os.pidfd_open(pid) for pid in pids]
        assert Path(folder).is_dir()
        engine.stdin.write(b"go\n")
        engine.stdin.flush()
        assert engine.wait(LONG) == -signal.SIGKILL
    try:
        for handle in handles:
            assert select.select([handle], [], [], LONG)[0], "a worker lives on"
    finally:
        for handle in handles:
            os.close(handle)
    assert not Path(folder).exists()
    assert not lock_of(Path(folder)).exists()


# -- the shared folder ---------------------------------------------------------------------------------------


def test_folder_and_socket_are_private(places):
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    try:
        assert stat.S_IMODE(engine.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(lock_of(engine.folder).stat().st_mode) == 0o600
        # The path of pytest's folder may be too long for a socket: then it is a port of this machine.
        if len(str(engine.folder / "socket")) < workers.LONGEST_SOCKET:
            assert stat.S_ISSOCK((engine.folder / "socket").stat().st_mode)
        assert failures(ask(engine)) == {}
    finally:
        engine.close()


def test_a_socket_lies_in_the_private_folder_of_shared_memory():
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    assert str(engine.crew._listener.address) == str(engine.folder / "socket")
    engine.close()


def test_a_live_folder_is_no_leftover_and_a_killed_ones_is(tmp_path):
    alive = PrivateFolder(tmp_path)
    script = (
        "import os, sys, pathlib; from feddag.engines.private_folder import PrivateFolder;"
        "made = PrivateFolder(pathlib.Path(sys.argv[1])); print(made.path, flush=True); os._exit(9)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    left = Path(dead.stdout.strip())
    assert left.is_dir()
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert not lock_of(left).exists()
    assert alive.path.is_dir()
    alive.close()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_was_taken_for_a_leftover_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    lock, swept = private_folder.lock_file, []

    def sweep_first(file):
        if not swept:
            swept.append(file.name)
            os.unlink(file.name)
        lock(file)

    monkeypatch.setattr(private_folder, "lock_file", sweep_first)
    made = PrivateFolder(tmp_path)
    assert lock_of(made.path).exists()
    assert str(lock_of(made.path)) != swept[0]
    made.close()


def usage(free):
    def disk_usage(path):
        return shutil._ntuple_diskusage(100, 0, free.get(Path(path).name, 2**40))

    return disk_usage


def test_samples_that_do_not_fit_into_shared_memory_go_to_the_temporary_folder(places, monkeypatch):
    shared, temporary = places
    monkeypatch.setattr(private_folder.shutil, "disk_usage", usage({"shm": 2**20}))
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    try:
        assert engine.folder.parent == temporary
        assert failures(ask(engine)) == {}
    finally:
        engine.close()
    assert [*shared.iterdir(), *temporary.glob("feddag-*")] == []


def test_shared_memory_that_fills_up_while_the_samples_are_written_is_left_clean(places):
    shared, temporary = places
    site = blob_site(sizes=SIZES)
    save, tried = type(site.federation).save, []

    def fill(folder):
        tried.append(folder)
        save(site.federation, folder)
        if shared in folder.parents:
            raise OSError(28, "No space left on device")

    object.__setattr__(site.federation, "save", fill)
    engine = ProcessEngine(site, "mlp", workers=1)
    try:
        assert [path.parents[1] for path in tried] == [shared, temporary]
        assert list(shared.iterdir()) == []
        assert failures(ask(engine)) == {}
    finally:
        engine.close()


def test_when_the_samples_fit_nowhere_one_sentence_says_so_and_nothing_is_left(places, monkeypatch):
    shared, temporary = places
    monkeypatch.setattr(private_folder.shutil, "disk_usage", usage({"shm": 0, "tmp": 0}))
    made = []
    spawn = workers.Crew._spawn
    monkeypatch.setattr(workers.Crew, "_spawn", lambda self: made.append(spawn(self)) or made[-1])
    with pytest.raises(FederationError, match="the samples find no room for the worker processes") as raised:
        ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    assert "\n" not in str(raised.value)
    assert [*shared.iterdir(), *temporary.glob("feddag-*")] == []
    assert [worker.process.returncode for worker in made] == [-signal.SIGKILL]


def test_a_request_that_does_not_fit_into_shared_memory_goes_to_the_temporary_folder(places, monkeypatch):
    shared, temporary = places
    engine = ProcessEngine(blob_site(sizes=SIZES), "mlp", workers=1)
    write = Path.write_bytes

    def full(path, data):
        if shared in path.parents:
            write(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    try:
        assert failures(ask(engine)) == {}
        assert list(engine.folder.glob("request-*")) == []
        assert list(temporary.glob("feddag-*")) == [], "the block is removed after the question"
    finally:
        engine.close()


# -- files in the current folder -----------------------------------------------------------------------------

BESIDE = """
import sys
from toys import Order, blobs, obey
from feddag.core.algorithm import broadcast
from feddag.core.engine import Exchange
from feddag.core.seeds import Seed
from feddag.engines.perform import open_site
from feddag.engines.process import ProcessEngine

sys.path.append("")  # as the command does
engine = ProcessEngine(open_site(blobs(sizes=(8,)), "mynet:make"), "mynet:make", workers=1)
answer = engine.ask(obey, broadcast(Order(action="count"), ["c000"]), Exchange(1, Seed(1)))["c000"]
engine.close()
assert not answer.failure, answer.failure
"""
NETWORK = """
from torch import nn

def make(input_shape, num_classes):
    return nn.Sequential(nn.Linear(input_shape[0], 4), nn.ReLU(), nn.Linear(4, num_classes))
"""


def test_no_file_in_the_current_folder_stands_for_a_library_but_a_users_network_is_found(tmp_path):
    for name in ("numpy", "torch", "json", "safetensors"):
        (tmp_path / f"{name}.py").write_text("open('HIJACK', 'w')\n")
    (tmp_path / "feddag").mkdir()
    (tmp_path / "feddag" / "__init__.py").write_text("open('HIJACK', 'w')\n")
    (tmp_path / "mynet.py").write_text(NETWORK)
    # An entry "" at the end of PYTHONPATH is the current folder.
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-P", "-c", BESIDE],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "HIJACK").exists()


def test_the_current_folder_is_the_last_one_that_workers_search(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/somewhere", str(tmp_path / "sub")])
    assert workers.import_path() == ["/somewhere", str(tmp_path / "sub"), str(tmp_path)]
