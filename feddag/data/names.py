# SPDX-License-Identifier: Apache-2.0
"""Client names: letters, digits, dot, dash and underscore, so that they can be file names anywhere."""

import re
from collections.abc import Iterable

ALLOWED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def is_allowed(name: str) -> bool:
    """Whether a name can be a client's id without a change."""
    return ALLOWED.fullmatch(name) is not None


def allowed_names(names: Iterable[str]) -> list[str]:
    """Names made of allowed characters, all different, in the same order."""
    taken: set[str] = set()
    out = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:90] or "client"
        unique, number = plain, 2
        while unique in taken:
            unique, number = f"{plain}-{number}", number + 1
        taken.add(unique)
        out.append(unique)
    return out
