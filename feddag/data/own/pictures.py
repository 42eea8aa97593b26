# SPDX-License-Identifier: Apache-2.0
"""Reading images in `<client>/<class>/`: the headers of all of them first, then the pixels."""

from collections import Counter
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import listed, plural
from feddag.data.files.guard import MemoryBudget, require_plain_file
from feddag.data.files.images import SUFFIXES, image_header, picture
from feddag.data.own.clients import ClientArrays

GREY = ("1", "L")


def is_hidden(path: Path) -> bool:
    """Whether the operating system put the file there, not the user."""
    return path.name.startswith(".") or path.name in ("Thumbs.db", "desktop.ini")


def image_files(folder: Path) -> list[tuple[str, Path]]:
    """Class and path of every image of one client, sorted."""
    return [
        (inner.name, file)
        for inner in sorted(folder.iterdir())
        if inner.is_dir() and not is_hidden(inner)
        for file in sorted(inner.iterdir())
        if file.suffix.lower() in SUFFIXES and not is_hidden(file)
    ]


def read_class_folders(folder: Path, budget: MemoryBudget, warnings: list[str]) -> ClientArrays:
    """All images of one client; they stay grey if all of them are grey."""
    files = image_files(folder)
    if not files:
        raise InvalidInput(f"{folder.name}/: no images in class folders such as {folder.name}/cat/1.png")
    sizes, modes = set(), set()
    for c, file in files:
        name = f"{folder.name}/{c}/{file.name}"
        file_size = require_plain_file(file, name)
        size, mode = image_header(file, name)
        if mode.startswith(("I", "F")):
            raise InvalidInput(
                f"{name}: has more than 8 bits per pixel; save it with 8 bits, or use arrays in an .npz file"
            )
        sizes.add(size)
        modes.add(mode)
        budget.take(name, 3 * size[0] * size[1], file_size)
    if len(sizes) > 1:
        first, last = min(sizes), max(sizes)
        raise InvalidInput(
            f"{folder.name}/: images of different sizes ({first[0]}×{first[1]} and "
            f"{last[0]}×{last[1]}); all must be equal"
        )
    warnings += _ignored(folder, {file for _, file in files})
    mode = "L" if all(mode in GREY for mode in modes) else "RGB"
    images = [picture(file, f"{folder.name}/{c}/{file.name}", None, mode) for c, file in files]
    return ClientArrays(folder.name, np.stack(images), np.array([c for c, _ in files]))


def _ignored(folder: Path, used: set[Path]) -> list[str]:
    """A sentence about files that are neither images in class folders nor hidden."""
    places = [folder, *(inner for inner in sorted(folder.iterdir()) if inner.is_dir())]
    extra = [p for place in places for p in place.iterdir() if p not in used and not is_hidden(p)]
    kinds = Counter(p.suffix or p.name for p in extra if not (p.is_dir() and p.parent == folder))
    if not kinds:
        return []
    number = plural(sum(kinds.values()), "entry is", "entries are")
    return [f"{folder.name}/: {number} not used ({listed(sorted(kinds))})"]
