# SPDX-License-Identifier: Apache-2.0
"""Escapes and small words: one per output."""

import csv
import io
import subprocess
import sys

import pytest

from feddag.core.text import listed, plural, printable, shortened
from feddag.reporting.colours import GREY, PALETTE, cluster_colour, ink_on
from feddag.reporting.text import (
    ascii_only,
    csv_cell,
    figure_label,
    latex,
    markdown,
)
from tests.reporting.toys import HOSTILE


def test_one_is_singular_and_every_other_number_is_plural() -> None:
    assert [plural(n, "cluster") for n in (0, 1, 2)] == ["0 clusters", "1 cluster", "2 clusters"]
    assert plural(2, "class", "classes") == "2 classes"
    assert plural(1234, "row") == "1,234 rows"


def test_invisible_characters_become_visible_and_text_stays_on_one_line() -> None:
    assert printable("a\nb\x1b[31m\u202ec\ud800") == "a\\nb\\x1b[31m\\u202ec\\ud800"
    assert printable("é – 中 a b") == "é – 中 a b"


def test_long_text_is_shortened_to_exactly_the_length() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"


def test_a_long_list_says_how_many_more_there_are() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"


@pytest.mark.parametrize(
    ("name", "expected"),
    list(
        zip(
            HOSTILE,
            ["\\$", "[/b]", "<script>", "a\\_b\\%\\&", "\\textbackslash{}n", "é", "=1+1"],
            strict=True,
        )
    ),
)
def test_latex_gets_no_command_from_a_name(name: str, expected: str) -> None:
    assert latex(name) == expected


def test_latex_keeps_braces_carets_and_backslashes_as_characters() -> None:
    assert latex(r"\x{^~#}") == r"\textbackslash{}x\{\textasciicircum{}\textasciitilde{}\#\}"
    assert latex("1 ± 2 –") == r"1 $\pm$ 2 --"


@pytest.mark.parametrize(
    ("name", "expected"),
    list(zip(HOSTILE, ["\\$", "\\[/b\\]", "&lt;script&gt;", "a_b%&amp;", "\\\\n", "é", "=1+1"], strict=True)),
)
def test_markdown_gets_no_markup_from_a_name(name: str, expected: str) -> None:
    assert markdown(name) == expected


def test_a_bar_in_a_name_does_not_open_a_new_column_of_a_markdown_table() -> None:
    assert markdown("a|b") == "a\\|b"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_does_not_compute_a_name(name: str) -> None:
    assert csv_cell(name) == "'" + name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_csv_row_stays_one_row_with_any_name(name: str) -> None:
    text = io.StringIO()
    csv.writer(text).writerow([csv_cell(name), "next"])
    rows = list(csv.reader(text.getvalue().splitlines()))
    assert len(rows) == 1
    assert rows[0][1] == "next"


def test_dollar_signs_do_not_start_a_formula_in_a_figure() -> None:
    from matplotlib.text import Text

    text = Text(0, 0, figure_label("$x^2$ costs $5"))
    assert text._preprocess_math(text.get_text()) == ("$x^2$ costs $5", False)


def test_ascii_has_replacements_for_our_own_characters_and_codes_for_others() -> None:
    assert ascii_only("1 ± 2 – 3 → 4…é") == "1 +/- 2 - 3 -> 4...\\xe9"


def test_colours_repeat_and_text_on_them_is_readable() -> None:
    assert cluster_colour(len(PALETTE)) == cluster_colour(0) == PALETTE[0]
    assert cluster_colour(-1) == GREY
    assert (ink_on("#000000"), ink_on("#ffffff")) == ("#ffffff", "#000000")


def test_reporting_is_imported_without_matplotlib_and_scikit_learn() -> None:
    """They take long to import, and a command that draws nothing must start quickly."""
    code = (
        "import sys, feddag.reporting.pages.clustering, feddag.reporting.figures.curves\n"
        "import feddag.reporting.tables.comparison, feddag.reporting.terminal.board, feddag.runs.simulate\n"
        "slow = {'matplotlib', 'sklearn', 'scipy.stats', 'jinja2'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
