# SPDX-License-Identifier: Apache-2.0
import errno
import os

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.data.files.cache import cached, write_npy


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
