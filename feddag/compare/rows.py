# SPDX-License-Identifier: Apache-2.0
"""Rows of a comparison: a method, or a method with one of its presets.

fedavg          the method with its defaults
feddag[paper]   with the preset `paper`
feddag*         FedDAG with one encoder, feddag† without sharing: the signs of the paper's tables
"""

import re
from dataclasses import dataclass

from feddag.algorithms import ALGORITHMS
from feddag.core.errors import InvalidInput
from feddag.experiment.sentences import shown_text

SIGNS = {"*": "one_encoder", "†": "no_sharing"}
FORM = re.compile(r"([\w.]+:\w+|\w+)(?:\[(\w+)\]|([*†]))?")


@dataclass(frozen=True)
class Row:
    """What a word such as `feddag[paper]` means."""

    label: str
    method: str
    preset: str = ""


def is_row(word: str) -> bool:
    """Whether a word names a method, with or without a preset (which may be wrong)."""
    found = FORM.fullmatch(word)
    return found is not None and found[1] in ALGORITHMS


def read_row(word: str) -> Row:
    """The row that a word names; refused if there is no such method or preset."""
    found = FORM.fullmatch(word)
    if found is None or found[1] not in ALGORITHMS:
        raise InvalidInput(
            f"'{shown_text(word)}' is neither a method ({', '.join(ALGORITHMS)}), recipe nor file"
        )
    method, preset = found[1], found[2] or SIGNS.get(found[3] or "", "")
    known = getattr(ALGORITHMS[method], "presets", {})
    if preset and preset not in known:
        has = ", ".join(f"{method}[{name}]" for name in known) or "no presets"
        raise InvalidInput(f"'{shown_text(word)}': '{method}' has {has}")
    return Row(word, method, preset)
