# SPDX-License-Identifier: Apache-2.0
"""Distinct objects: many clients share one request or one model, which is then encoded or written once."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Distinct(Generic[T]):
    """Numbers objects by identity, in the order they are first seen; keeps them, so that ids stay unique."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._things: list[T] = []

    def number(self, thing: T) -> int:
        """The number of an object; the next free one when it is new."""
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._things)
            self._things.append(thing)
        return self._numbers[id(thing)]

    def __iter__(self) -> Iterator[T]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
