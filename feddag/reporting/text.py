# SPDX-License-Identifier: Apache-2.0
"""Text for people. Client, class and folder names come from strangers: each output has its own escape."""

from collections.abc import Sequence

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}
MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{c: f"\\{c}" for c in "\\|`*[]$"}}
ASCII = {"±": "+/-", "–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "α": "alpha", "’": "'"}
FORMULA_STARTS = ("=", "+", "-", "@")  # a spreadsheet computes a cell that starts with one of these


def plural(count: int, noun: str, many: str = "") -> str:
    """A number with its noun: `plural(1, "cluster")` is "1 cluster", `plural(2, "cluster")` "2 clusters"."""
    return f"{count} {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def printable(text: str) -> str:
    r"""The text on one line: line breaks and other invisible characters become visible, for example \n."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, length: int) -> str:
    """The text with at most `length` characters; a longer one ends with three dots."""
    return text if len(text) <= length else text[: length - 1] + "…"


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def figure_label(text: str, length: int = 24) -> str:
    """A name for matplotlib, which would read text between two dollar signs as a formula."""
    return shortened(printable(text), length).replace("$", r"\$")


def latex(text: str) -> str:
    """A name or number for LaTeX."""
    return "".join(LATEX.get(c, c) for c in printable(text))


def markdown(text: str) -> str:
    """A name or number for a cell or heading of Markdown."""
    return "".join(MARKDOWN.get(c, c) for c in printable(text))


def csv_cell(text: str) -> str:
    """A name for CSV; an apostrophe in front keeps spreadsheets from computing it."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def ascii_only(text: str) -> str:
    """The text with ASCII characters alone, for terminals that cannot show others."""
    replaced = "".join(ASCII.get(c, c) for c in text)
    return replaced.encode("ascii", "backslashreplace").decode("ascii")
