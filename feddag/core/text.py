# SPDX-License-Identifier: Apache-2.0
"""Small words for sentences: numbers with nouns, lists of names, text on one line."""

from collections.abc import Sequence


def plural(count: int, noun: str, many: str = "") -> str:
    """A number with its noun in the right form: 1 cluster, 2 clusters, 1,000 classes."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def printable(text: str) -> str:
    r"""The text on one line: line breaks and other invisible characters become visible, for example \n."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, length: int) -> str:
    """The text with at most `length` characters; a longer one ends with three dots."""
    return text if len(text) <= length else text[: length - 1] + "…"


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
