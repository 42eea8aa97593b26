# SPDX-License-Identifier: Apache-2.0
"""Reading .npz files: headers first, so that a false claim is refused before any memory is used for it."""

import math
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.text import listed
from feddag.data.files.guard import MemoryBudget, require_plain_file
from feddag.data.own.clients import ClientArrays

ARRAYS = ("x", "y", "x_test", "y_test")
MAGIC = b"\x93NUMPY"
LENGTH_BYTES = {1: 2, 2: 4}  # of the header's length, by major version of the format
LONGEST_HEADER = 10_000
CHUNK = 1 << 24  # bytes that are read at a time


@dataclass(frozen=True)
class Header:
    """What a member of the archive claims to hold."""

    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int  # of the first value

    @property
    def nbytes(self) -> int:
        """Bytes of all values, as an exact Python number."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npz(path: Path, budget: MemoryBudget) -> ClientArrays:
    """Arrays `x` and `y`, and `x_test` and `y_test` if there are any; other members are not looked at."""
    found = read_arrays(path, budget, needed=("x", "y"))
    return ClientArrays(path.stem, found["x"], found["y"], found.get("x_test"), found.get("y_test"))


def read_arrays(path: Path, budget: MemoryBudget, needed: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The members of an .npz file that have one of the four names; those that are needed must be there."""
    size = require_plain_file(path, path.name)
    try:
        with zipfile.ZipFile(path) as pack:
            headers = _headers(path.name, pack, needed)
            for header in headers.values():
                budget.take(path.name, max(header.nbytes, header.member.file_size), size)
            return {array: _values(pack, header) for array, header in headers.items()}
    except InvalidInput:
        raise
    except Exception as error:  # the unpackers (zlib, bz2, lzma, zipfile) raise a dozen types of error
        reason = str(error) or type(error).__name__
        raise InvalidInput(f"{path.name}: not an .npz file that can be read ({reason})") from error


def _headers(name: str, pack: zipfile.ZipFile, needed: tuple[str, ...]) -> dict[str, Header]:
    members = [member.filename for member in pack.infolist()]
    for array in needed:
        if f"{array}.npy" not in members:
            has = listed([member.removesuffix(".npy") for member in sorted(members)]) or "none"
            raise InvalidInput(f"{name}: no array '{array}'; it has {has}")
    twice = [array for array in ARRAYS if members.count(f"{array}.npy") > 1]
    if twice:
        raise InvalidInput(f"{name}: array '{twice[0]}' is there twice")
    wanted = [array for array in ARRAYS if f"{array}.npy" in members]
    return {array: _header(name, array, pack, pack.getinfo(f"{array}.npy")) for array in wanted}


def _header(name: str, array: str, pack: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    with pack.open(member) as stream:
        start = stream.read(len(MAGIC) + 2)
        if not start.startswith(MAGIC) or len(start) < len(MAGIC) + 2:
            raise InvalidInput(f"{name}: '{array}' is not an array")
        major = start[len(MAGIC)]
        if major not in LENGTH_BYTES:
            raise InvalidInput(f"{name}: array '{array}' has a format that is not known (version {major})")
        length = stream.read(LENGTH_BYTES[major])
        announced = int.from_bytes(length, "little")
        if announced > LONGEST_HEADER:
            raise InvalidInput(f"{name}: the header of array '{array}' claims to have {announced:,} bytes")
        text = stream.read(announced)
    parse = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, fortran_order, dtype = parse(BytesIO(length + text))
    except Exception as error:  # the header is parsed as Python text, which can be wrong in many ways
        raise InvalidInput(f"{name}: the header of array '{array}' is damaged") from error
    header = Header(member, shape, fortran_order, dtype, len(start) + len(length) + len(text))
    _check_header(name, array, header)
    return header


def _check_header(name: str, array: str, header: Header) -> None:
    if header.dtype.hasobject:
        raise InvalidInput(f"{name}: holds Python objects, which are never read; save plain arrays")
    if header.dtype.kind not in "fiubUS" or header.dtype.itemsize == 0:
        raise InvalidInput(f"{name}: array '{array}' holds {header.dtype}; expected numbers or texts")
    if any(size < 0 for size in header.shape) or max((*header.shape, header.nbytes)) >= 2**63:
        raise InvalidInput(f"{name}: array '{array}' claims the impossible shape {header.shape}"[:200])
    if header.nbytes + header.offset != header.member.file_size:
        raise InvalidInput(
            f"{name}: array '{array}' claims {header.nbytes:,} bytes of values, "
            f"but its member in the archive has {header.member.file_size - header.offset:,}"
        )


def _values(pack: zipfile.ZipFile, header: Header) -> np.ndarray:
    values = np.empty(header.nbytes, dtype=np.uint8)
    with pack.open(header.member) as stream:
        stream.read(header.offset)
        filled = 0
        while filled < len(values):
            chunk = stream.read(min(CHUNK, len(values) - filled))
            if not chunk:
                raise EOFError("it ends too early")
            values[filled : filled + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            filled += len(chunk)
        stream.read(1)  # at the end of the member its checksum is compared
    order = "F" if header.fortran_order else "C"
    return values.view(header.dtype).reshape(header.shape, order=order)  # type: ignore[call-overload]
