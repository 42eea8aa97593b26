# SPDX-License-Identifier: Apache-2.0
"""Before a file from outside is read: is it a plain file, and is there memory for what it claims to hold?"""

import stat
from pathlib import Path

from feddag.core.errors import InvalidInput
from feddag.core.host import available_memory

USABLE = 0.8  # share of the free memory that data may fill
BOMB_BYTES = 1 << 30  # smaller contents are never called a bomb
BOMB_RATIO = 100  # real samples do not shrink to less than a hundredth of their size


def require_plain_file(path: Path, name: str) -> int:
    """Size of the file in bytes; pipes, devices, sockets, broken links and folders are refused unopened."""
    try:
        facts = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{name}: cannot be read ({reason})") from error
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidInput(f"{name}: is not a plain file, but {_kind(facts.st_mode)}")
    return facts.st_size


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


class MemoryBudget:
    """How many bytes may still be read; every reader asks before it reads anything but headers."""

    def __init__(self, limit: int | None = None) -> None:
        self.left = int(USABLE * available_memory()) if limit is None else limit

    def take(self, name: str, needed: int, file_size: int | None = None) -> None:
        """Reserve memory for contents that a header announces, or refuse them.

        With `file_size`, contents that are far larger than the file they come from are refused as well.
        """
        if file_size is not None and needed > BOMB_BYTES and needed > BOMB_RATIO * file_size:
            raise InvalidInput(
                f"{name}: a file of {size_in_words(file_size)} claims to hold {size_in_words(needed)}, "
                f"which no real data does; if it is real, save it without compression"
            )
        if needed > self.left:
            raise InvalidInput(
                f"{name}: needs {size_in_words(needed)} of memory, but {size_in_words(self.left)} are left"
            )
        self.left -= needed


def size_in_words(size: int) -> str:
    """A number of bytes for a sentence."""
    if size >= 10**15:
        return "more than a million GB"
    return f"{size / 1e9:,.1f} GB" if size >= 10**9 else f"{size / 1e6:,.1f} MB"
