# SPDX-License-Identifier: Apache-2.0
"""A client's own limits: read from a file, refused in one sentence, enforced by the client."""

from pathlib import Path

import pytest

from feddag.core.errors import InvalidInput
from feddag.core.message import Kind
from feddag.privacy.limits import Limits, load_limits


def test_limits_are_read(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text('epsilon = 4\nleast_samples = 100\nplain = ["scores"]\n')
    assert load_limits(path) == Limits(4.0, 100, frozenset({Kind.SCORES}))


def test_without_keys_nothing_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text("")
    assert load_limits(path) == Limits()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("epsilon = 0", "above 0"),
        ("epsilon = true", "above 0"),
        ("least_samples = -1", "0 or more"),
        ('plain = ["everything"]', "subspaces"),
        ("budget = 3", "unknown key"),
        ("epsilon = ", "not a TOML file"),
    ],
)
def test_bad_limits_get_one_sentence(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=word) as refused:
        load_limits(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.toml"):
        load_limits(tmp_path / "none.toml")
