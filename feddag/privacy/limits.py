# SPDX-License-Identifier: Apache-2.0
"""A client's own limits, from a file on its own disk: whatever the server asks for, these hold."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feddag.core.errors import InvalidInput
from feddag.core.message import Kind

EXAMPLE = 'limits.toml: epsilon = 4.0, least_samples = 100, plain = ["scores"]'


@dataclass(frozen=True)
class Limits:
    """The largest ε, the least number of samples behind an answer, and which kinds may leave as they are."""

    epsilon: float = math.inf
    least_samples: int = 0
    plain: frozenset[str] = frozenset(Kind)


NO_LIMITS = Limits()


def load_limits(path: Path | str) -> Limits:
    """Read a limits.toml; one sentence says what is wrong with it."""
    try:
        found: dict[str, Any] = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise InvalidInput(f"the limits in {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not a TOML file ({error}); for example {EXAMPLE}") from None
    unknown = sorted(set(found) - {"epsilon", "least_samples", "plain"})
    if unknown:
        raise InvalidInput(f"{path}: unknown key '{unknown[0]}'; allowed: epsilon, least_samples, plain")
    epsilon, least = found.get("epsilon", math.inf), found.get("least_samples", 0)
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not epsilon > 0:
        raise InvalidInput(f"{path}: epsilon = {epsilon!r}: expected a number above 0")
    if isinstance(least, bool) or not isinstance(least, int) or least < 0:
        raise InvalidInput(f"{path}: least_samples = {least!r}: expected a whole number, 0 or more")
    plain = found.get("plain", sorted(Kind))
    if not isinstance(plain, list) or not all(kind in set(Kind) for kind in plain):
        raise InvalidInput(f"{path}: plain = {plain!r}: expected a list of {', '.join(sorted(Kind))}")
    return Limits(float(epsilon), least, frozenset(plain))
