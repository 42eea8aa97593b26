# SPDX-License-Identifier: Apache-2.0
"""Printing: no name is read as markup, and no terminal is too plain."""

import os
import subprocess
import sys

import pytest

from feddag.reporting.terminal.console import EncodedStream, TextTable, safe_console, say
from tests.reporting.toys import HOSTILE, recorded, recording_console


@pytest.mark.parametrize("name", HOSTILE)
def test_a_line_shows_a_hostile_name_as_it_is(name: str) -> None:
    console = recording_console()
    say(console, f"client {name} failed")
    visible = name.replace("\n", "\\n")
    assert recorded(console) == f"client {visible} failed\n"


def test_a_line_is_never_broken() -> None:
    console = recording_console(width=10)
    say(console, "/a/very/long/folder/name that is copied")
    assert recorded(console) == "/a/very/long/folder/name that is copied\n"


def test_colour_codes_in_a_name_do_not_reach_the_terminal() -> None:
    console = recording_console(terminal=True)
    say(console, "\x1b[31mred", style="yellow")
    assert "\x1b[31m" not in recorded(console)
    assert "\\x1b[31mred" in recorded(console)


def table_of(name: str) -> TextTable:
    table = TextTable(name)
    table.heading(f"head {name}")
    table.heading("n", "right")
    table.line(name, "1 ± 2")
    table.note(f"note {name}")
    return table


@pytest.mark.parametrize("name", [*HOSTILE, "[x]"])
def test_a_table_shows_a_hostile_name_as_it_is(name: str) -> None:
    console = recording_console()
    console.print(table_of(name))
    text = recorded(console)
    assert text.count(name.replace("\n", "\\n")) >= 4  # title, heading, cell and note


def test_a_table_on_an_ascii_terminal_is_ascii_with_straight_borders() -> None:
    console = safe_console(recording_console("ascii"))
    console.print(table_of("é [/b]"))
    text = recorded(console)
    assert "1 +/- 2" in text
    assert "\\xe9 [/b]" in text
    borders = [line for line in text.splitlines() if line.startswith(("|", "+"))]
    assert len(borders) >= 4
    assert len({len(line) for line in borders}) == 1


def test_long_cells_are_folded_and_nothing_is_cut_off() -> None:
    console = recording_console(width=24)
    console.print(table_of("abcdefghijklmnopqrstuvwxyz"))
    assert "…" not in recorded(console)
    assert "z" in recorded(console)


def test_a_stream_replaces_only_what_it_cannot_encode() -> None:
    console = safe_console(recording_console("latin-1"))
    console.file.write("é ± –")
    assert recorded(console) == "\\xe9 +/- -"
    console = safe_console(recording_console("latin-1"))
    console.file.write("é ±")
    assert recorded(console) == "é ±"


def test_a_console_is_made_safe_once_and_a_utf8_console_stays_as_it_is() -> None:
    plain = recording_console("ascii")
    once = safe_console(plain).file
    assert isinstance(once, EncodedStream)
    assert safe_console(plain).file is once
    rich = recording_console()
    before = rich.file
    assert safe_console(rich).file is before


def test_a_run_is_shown_with_an_ascii_output() -> None:
    """The whole way, in a process whose output is ASCII as users have it."""
    code = (
        "from rich.console import Console\n"
        "from feddag.reporting.terminal.progress import Watcher\n"
        "scores = dict(accuracy=0.5, accuracy_std=0.1, balanced_accuracy=0.4, balanced_accuracy_std=None)\n"
        "for terminal in (False, True):\n"
        "    with Watcher(Console(force_terminal=terminal), 2) as watch:\n"
        "        watch(dict(event='evaluation', round=1, test=scores))\n"
        "        watch(dict(event='round', round=1, seconds=1.0))\n"
        "        watch(dict(event='finished', folder='é', algorithm='a', \n"
        "              final=dict(round=1, before=scores), bytes_down=1, bytes_up=1,\n"
        "              seconds=1.0, rounds=1, failures=0))\n"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode("ascii")
    assert text.count("50.00% +/- 10.00%") >= 4
    assert text.count("results in \\xe9") == 2
