# SPDX-License-Identifier: Apache-2.0
"""Tables of what users can name: our own entries, those of installed packages, and `module:name`.

A package offers its own by an entry point; nobody has to edit this one:

    [project.entry-points."feddag.algorithms"]
    mine = "my_package.my_module:MyMethod"
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.text import printable

T = TypeVar("T")


class Table(Mapping[str, T]):
    """Name → thing. A name with a colon is imported; other unknown names are looked for in packages."""

    def __init__(self, what: str, ours: Mapping[str, T], made: Callable[[str, Any], T]) -> None:
        self.what = what  # "algorithm": the group of entry points is feddag.algorithms
        self.ours = dict(ours)
        self._made = made  # (name, what was imported) → an entry of the table; refuses what does not fit
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name in self.ours:
            return self.ours[name]
        if name not in self._loaded:
            offered = offers(self.group)
            if ":" not in name and name not in offered:
                raise KeyError(name)
            address = name if ":" in name else offered[name].value
            self._loaded[name] = self._made(name, load_object(address, self.what))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.ours or (isinstance(name, str) and (":" in name or name in offers(self.group)))

    def __iter__(self) -> Iterator[str]:
        yield from self.ours
        yield from (name for name in sorted(offers(self.group)) if name not in self.ours)

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def group(self) -> str:
        """The group of entry points that packages use."""
        return f"feddag.{self.what}s"


@cache
def offers(group: str) -> dict[str, EntryPoint]:
    """What installed packages offer."""
    return {point.name: point for point in entry_points(group=group)}


def load_object(address: str, what: str) -> Any:
    """Import `module:name`; whatever goes wrong is one sentence."""
    module, _, name = address.partition(":")
    told = f"{what} '{printable(address)}'"
    if not module or not name:
        raise InvalidInput(f"{told}: expected module:name, for example my_module:{name or 'Mine'}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        where = "looked in the current folder, PYTHONPATH and the installed packages"
        raise InvalidInput(f"{told} cannot be imported: {error} ({where})") from error
    except AttributeError as error:
        raise InvalidInput(f"{told} cannot be imported: {error}") from error
    except FederationError as error:
        raise InvalidInput(f"{told} cannot be imported: {error}") from error
    except Exception as error:  # whatever the user's file does while it is imported
        raise InvalidInput(f"{told} cannot be imported: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """An exception of a user's code: its type and the first line of its text."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def folder_name(name: str) -> str:
    """A name as a part of a path: `my.module:Mine` becomes my.module-Mine."""
    return name.replace(":", "-").replace(os.sep, "-")
