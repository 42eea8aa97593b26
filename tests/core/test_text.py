# SPDX-License-Identifier: Apache-2.0
"""Small words that data and reports share."""

from feddag.core.text import listed, plural, printable, shortened


def test_one_is_singular_and_large_numbers_have_commas() -> None:
    assert [plural(n, "class", "classes") for n in (1, 2, 1234)] == ["1 class", "2 classes", "1,234 classes"]
    assert plural(0, "row") == "0 rows"


def test_a_list_is_cut_after_six_names_and_says_how_many_follow() -> None:
    assert listed(list("abcdef")) == "a, b, c, d, e, f"
    assert listed([str(i) for i in range(1500)], 2) == "0, 1 and 1,498 more"


def test_text_is_made_visible_and_short() -> None:
    assert printable("a\n\x00") == "a\\n\\x00"
    assert shortened("abcdef", 3) == "ab…"
