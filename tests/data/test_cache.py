# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.files import cache
from feddag.data.files.cache import cached, verify_always, write_npy
from tests.hard.attacks import DAMAGES


def make_three(folder):
    write_npy(folder / "x.npy", iter([np.array([[1], [2]]), np.array([[3]])]), (3, 1), np.uint8)
    return {"what": "three numbers"}


def never(folder):
    raise AssertionError("made again")


def test_an_entry_is_made_once_and_mapped(tmp_path):
    first = cached(tmp_path, "toy", "abc", make_three)
    again = cached(tmp_path, "toy", "abc", never)
    assert isinstance(again.arrays["x"], np.memmap)
    assert again.arrays["x"].tolist() == first.arrays["x"].tolist() == [[1], [2], [3]]
    assert again.facts == {"what": "three numbers"}


def test_another_key_is_another_entry(tmp_path):
    cached(tmp_path, "toy", "abc", make_three)
    with pytest.raises(AssertionError, match="made again"):
        cached(tmp_path, "toy", "abd", never)


@pytest.mark.parametrize("damage", ["truncate", "remove", "garble"])
def test_a_damaged_entry_is_made_anew(tmp_path, damage):
    cached(tmp_path, "toy", "abc", make_three)
    (file,) = tmp_path.rglob("x.npy")
    if damage == "truncate":
        os.truncate(file, 10)
    elif damage == "remove":
        file.unlink()
    else:
        (file.parent / "facts.json").write_text("{")
    assert cached(tmp_path, "toy", "abc", make_three).arrays["x"].tolist() == [[1], [2], [3]]


def wait_for_the_clock(file):
    """Wait until the file system's clock has ticked since the file was changed."""
    clock = file.parent.parent / "clock"
    clock.touch()
    while clock.stat().st_ctime_ns == file.stat().st_ctime_ns:
        clock.chmod(0o600)
    clock.unlink()


def flip_one_bit(file, keep_times=False):
    """Change the last value of an array; the size stays, and if wanted the modification time too."""
    times = file.stat()
    wait_for_the_clock(file)
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([file.read_bytes()[-1] ^ 1]))
    if keep_times:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("keep_times", [False, True], ids=["", "modification time set back"])
@pytest.mark.parametrize("opened_before", [0, 1, 2])
def test_one_flipped_bit_makes_the_entry_anew(tmp_path, monkeypatch, keep_times, opened_before):
    monkeypatch.setattr(cache, "SETTLED", -1.0)  # so that the proof is written at once
    for _ in range(1 + opened_before):
        cached(tmp_path, "toy", "abc", make_three)
    (file,) = tmp_path.rglob("x.npy")
    flip_one_bit(file, keep_times)
    assert cached(tmp_path, "toy", "abc", make_three).arrays["x"].tolist() == [[1], [2], [3]]


def test_an_entry_changed_right_after_it_was_opened_is_noticed(tmp_path):
    cached(tmp_path, "toy", "abc", make_three)
    cached(tmp_path, "toy", "abc", never)
    (file,) = tmp_path.rglob("x.npy")
    assert not (file.parent / cache.PROOF).exists()  # too soon: time stamps are coarse
    flip_one_bit(file, keep_times=True)
    with pytest.raises(AssertionError, match="made again"):
        cached(tmp_path, "toy", "abc", never)


@pytest.fixture
def hashed(tmp_path, monkeypatch):
    """The names of the files that were read and hashed, for an entry that has just been proven."""
    monkeypatch.setattr(cache, "SETTLED", -1.0)
    cached(tmp_path, "toy", "abc", make_three)
    names = []
    original = cache.sha256_of_file
    monkeypatch.setattr(cache, "sha256_of_file", lambda path: names.append(path.name) or original(path))
    return names


def test_a_proven_entry_is_not_hashed_again(tmp_path, hashed):
    cached(tmp_path, "toy", "abc", never)
    assert hashed == []


def test_every_entry_is_hashed_when_the_user_asks_for_a_check(tmp_path, hashed):
    with verify_always():
        cached(tmp_path, "toy", "abc", never)
    assert hashed == ["x.npy"]


@pytest.mark.parametrize("change", ["a day later", "a clock set back", "touched", "copied", "garbled proof"])
def test_a_proof_ends_when_anything_changed_or_a_day_has_passed(tmp_path, hashed, change):
    (file,) = tmp_path.rglob("x.npy")
    proof = file.parent / cache.PROOF
    if change in ("a day later", "a clock set back"):
        said = json.loads(proof.read_text())
        said["time"] += -cache.VALID_FOR if change == "a day later" else 3600
        proof.write_text(json.dumps(said))
    elif change == "touched":
        os.utime(file, (1, 1))
    elif change == "copied":
        copy = file.with_name("copy")
        copy.write_bytes(file.read_bytes())
        copy.replace(file)
    else:
        proof.write_text("[1, 2")
    cached(tmp_path, "toy", "abc", never)
    assert hashed == ["x.npy"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '{"content": 1, "sha256": 2}', '{"content": "{}", "sha256": ""}', "[" * 9999],
)
def test_malformed_facts_count_as_no_entry(tmp_path, text):
    cached(tmp_path, "toy", "abc", make_three)
    (file,) = tmp_path.rglob("facts.json")
    file.write_text(text)
    assert cached(tmp_path, "toy", "abc", make_three).facts == {"what": "three numbers"}


def test_altered_facts_count_as_no_entry(tmp_path):
    cached(tmp_path, "toy", "abc", make_three)
    (file,) = tmp_path.rglob("facts.json")
    file.write_text(file.read_text().replace("three numbers", "four numbers"))
    assert cached(tmp_path, "toy", "abc", make_three).facts == {"what": "three numbers"}


@pytest.mark.parametrize("what", ["a file", "a link to nowhere"])
def test_something_else_in_the_place_of_an_entry_is_replaced(tmp_path, what):
    cached(tmp_path, "toy", "abc", make_three)
    (folder,) = tmp_path.iterdir()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    if what == "a file":
        folder.write_text("hello")
    else:
        folder.symlink_to(tmp_path / "nowhere")
    assert cached(tmp_path, "toy", "abc", make_three).arrays["x"].tolist() == [[1], [2], [3]]


def test_a_cache_that_is_read_only_is_used_and_hashed_every_time(tmp_path, hashed, monkeypatch):
    (file,) = tmp_path.rglob(cache.PROOF)
    file.unlink()

    def refuse(self, text):
        raise PermissionError(errno.EACCES, "read-only")

    monkeypatch.setattr(type(file), "write_text", refuse)
    for _ in range(2):
        cached(tmp_path, "toy", "abc", never)
    assert hashed == ["x.npy", "x.npy"]


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path):
    def half(folder):
        make_three(folder)
        raise InvalidInput("broken file")

    with pytest.raises(InvalidInput, match="broken file"):
        cached(tmp_path, "toy", "abc", half)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_in_a_sentence(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InvalidInput, match="the disk is full; free some space or set FEDDAG_CACHE"):
        cached(tmp_path, "toy", "abc", full)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot be written .* set FEDDAG_CACHE"):
        cached(tmp_path / "file" / "cache", "toy", "abc", make_three)


def test_two_makers_at_once_leave_one_whole_entry(tmp_path):
    def meanwhile(folder):
        cached(tmp_path, "toy", "abc", make_three)  # another process is faster
        return make_three(folder)

    assert cached(tmp_path, "toy", "abc", meanwhile).arrays["x"].tolist() == [[1], [2], [3]]
    assert len(list(tmp_path.iterdir())) == 1


def test_the_number_of_samples_written_must_be_right(tmp_path):
    with pytest.raises(InvalidInput, match="x: 4 samples expected, got 2"):
        write_npy(tmp_path / "x.npy", [np.zeros((2, 1))], (4, 1), np.uint8)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 220), marks=pytest.mark.hard)], ids=len)
def test_whatever_happens_to_an_entry_its_arrays_are_right(tmp_path, monkeypatch, counted, seeds):
    kinds = {name: DAMAGES[name] for name in DAMAGES if name not in ("foreign", "strange names", "swap")}
    for seed in seeds:
        generator = (Seed(seed) / "cache").numpy()
        monkeypatch.setattr(
            cache, "SETTLED", float(generator.choice([-1.0, 2.0]))
        )  # with and without a proof
        place = tmp_path / str(seed)
        for _ in range(int(generator.integers(1, 3))):
            cached(place, "toy", "abc", make_three)
        (folder,) = place.iterdir()
        files = sorted(folder.iterdir())
        wait_for_the_clock(files[0])
        kinds[str(generator.choice(sorted(kinds)))](generator.choice(files), generator, folder, folder)
        assert cached(place, "toy", "abc", make_three).arrays["x"].tolist() == [[1], [2], [3]]
    counted("damaged cache entries", len(seeds))
