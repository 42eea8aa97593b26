# SPDX-License-Identifier: Apache-2.0
"""Text for people. Client, class and folder names come from strangers: each output has its own escape."""

from feddag.core.text import printable, shortened

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
