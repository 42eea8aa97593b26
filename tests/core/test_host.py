# SPDX-License-Identifier: Apache-2.0
"""What systems other than Linux do not have is taken away; everything still works."""

import errno
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from toys import Order, blob_site, obey

from feddag.core import files, host
from feddag.core.algorithm import Exchange, broadcast
from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.engines import process

# -- cores, memory, processor


def test_cores_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5}, raising=False)
    assert host.num_cores() == 3


@pytest.mark.parametrize(("counted", "expected"), [(6, 6), (None, 1)])
def test_cores_are_counted_where_processes_cannot_be_bound_to_them(monkeypatch, counted, expected):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert host.num_cores() == expected


@pytest.fixture
def no_proc(monkeypatch):
    read = Path.read_text

    def absent(path, *arguments, **options):
        if path.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", absent)


def test_without_proc_memory_is_unlimited_and_the_machine_is_described(no_proc, monkeypatch):
    monkeypatch.setattr(host.platform, "processor", lambda: "abacus")
    assert host.available_memory() == 2**60
    assert host.peak_memory(os.getpid()) == 0
    assert host.describe_machine()["cpu"] == "abacus"


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="this system has no /proc")
def test_with_proc_memory_is_what_the_system_says():
    assert 2**20 < host.peak_memory(os.getpid()) < 2**50
    assert 0 < host.available_memory() < 2**50


# -- Ctrl-C that must wait


@pytest.fixture
def handler():
    """Python's own handler, also when the tests run in a background job that ignores SIGINT."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, former)


def test_ctrl_c_waits_until_the_block_is_done(handler):
    done = []

    def work():
        with host.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it(handler):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with host.uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handler_alone(handler):
    seen = []

    def work():
        with host.uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handler]


# -- files and locks


def test_files_are_written_where_folders_cannot_be_opened(monkeypatch, tmp_path):
    def refused(path, *arguments, **options):
        raise PermissionError(errno.EACCES, "a folder", str(path))

    with monkeypatch.context() as windows:
        windows.setattr(files.os, "name", "nt")
        windows.setattr(files.os, "open", refused)
        files.sync_folder(tmp_path)
    monkeypatch.setattr(files.os, "open", refused)
    with pytest.raises(PermissionError):
        files.sync_folder(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be opened on this system")
def test_a_file_system_without_fsync_of_folders_is_good_enough_and_a_full_disk_is_not(monkeypatch, tmp_path):
    def fail(number):
        def fsync(descriptor):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files.os, "fsync", fsync)

    fail(errno.EINVAL)
    files.sync_folder(tmp_path)
    fail(errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        files.sync_folder(tmp_path)


def windows_locks(monkeypatch):
    """Locks by msvcrt; underneath are those of fcntl, which nobody can import any more."""
    fcntl = pytest.importorskip("fcntl")

    def locking(descriptor, mode, count):
        assert (mode, count) == (2, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setitem(sys.modules, "fcntl", None)  # import raises ImportError
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))


@pytest.mark.parametrize("windows", [False, True])
def test_a_locked_folder_is_refused_and_free_again_afterwards(monkeypatch, tmp_path, windows):
    if windows:
        windows_locks(monkeypatch)
    with files.lock_folder(tmp_path):
        with (
            pytest.raises(InvalidInput, match="being worked on by another process"),
            files.lock_folder(tmp_path),
        ):
            pytest.fail("both hold the lock")
    with files.lock_folder(tmp_path):
        pass


def test_a_system_without_locks_does_without(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with files.lock_folder(tmp_path), files.lock_folder(tmp_path):
        pass


# -- worker processes


def test_worker_processes_need_neither_shared_memory_nor_bound_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "SHARED_MEMORY", str(tmp_path / "absent"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    engine = process.ProcessEngine(blob_site(sizes=(4, 4)), "mlp")
    try:
        assert engine.workers == 1
        assert engine.folder.parent == tmp_path
        answers = engine.ask(obey, broadcast(Order(action="count"), ["c000"]), Exchange(1, Seed(1)))
        assert answers["c000"].reply.value == 1.0
    finally:
        engine.close()
    assert not list(tmp_path.glob("feddag-*"))
