# SPDX-License-Identifier: Apache-2.0
"""Files that claim what they do not hold, or hold far more than they weigh."""

import os
import struct
import zipfile
import zlib
from io import BytesIO

import numpy as np
from PIL import Image


def npy_header(shape, dtype="|u1", version=1):
    """The first bytes of an .npy file that claims any shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}"
    size = 2 if version == 1 else 4
    text += " " * (-(8 + size + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(size, "little") + text.encode()


def npy(array):
    stream = BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def raw_zip(path, members):
    """A zip archive byte by byte: name → (stored bytes, method, claimed size)."""
    body, directory = b"", b""
    for name, (data, method, claimed) in members.items():
        crc = zlib.crc32(data) if method == 0 else 0
        common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, crc, len(data), claimed, len(name), 0)
        place = len(body)
        body += b"PK\x03\x04" + common + name.encode() + data
        directory += b"PK\x01\x02\x14\x00" + common + struct.pack("<HHHII", 0, 0, 0, 0, place) + name.encode()
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + b"PK\x05\x06" + end)


def stored(data, claimed=None):
    return data, 0, len(data) if claimed is None else claimed


LABELS = stored(npy(np.array([0, 1])))


def deflated(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def bomb_npz(path, size=2_300_000_000):
    """About 2 MB that really unpack to this number of zeros."""
    block = 1 << 24
    packer = zlib.compressobj(wbits=-15)
    start = packer.compress(npy_header((size // block * block, 1))) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(wbits=-15)
    zeros = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(wbits=-15).flush()
    claimed = len(npy_header((size // block * block, 1))) + size // block * block
    data = start + zeros * (size // block) + end
    raw_zip(path, {"x.npy": (data, 8, claimed), "y.npy": LABELS})


def damaged_lzma_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as pack:
        pack.writestr("x.npy", npy(np.arange(4000.0).reshape(1000, 4)))
        pack.writestr("y.npy", npy(np.arange(1000) % 2))
    data = bytearray(path.read_bytes())
    for i in range(200, 1200, 7):
        data[i] ^= 0x55
    path.write_bytes(data)


def bomb_png(path, width, height):
    """An image whose header claims any size; there are hardly any pixels in it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b""))


def text_bomb_png(path, size=300_000_000):
    """A small image with a comment that unpacks to this number of bytes."""
    stream = BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(stream, "png")
    plain = stream.getvalue()
    comment = b"Comment\0\0" + zlib.compress(bytes(size), 1)
    chunk = (
        struct.pack(">I", len(comment)) + b"zTXt" + comment + struct.pack(">I", zlib.crc32(b"zTXt" + comment))
    )
    path.write_bytes(plain[:33] + chunk + plain[33:])


def make_all(folder):
    """Every hostile file as an entry of the folder, and a piece of the sentence that must refuse it."""
    pairs = {"y.npy": LABELS}
    wide = npy_header((8_000_000_000,), "<f8")
    raw_zip(folder / "claims_64gb.npz", {"x.npy": stored(wide), **pairs})
    raw_zip(
        folder / "zip_claims_4gb.npz",
        {"x.npy": (deflated(npy_header((2**32 - 300, 1)) + bytes(100_000)), 8, 2**32 - 172), **pairs},
    )
    raw_zip(folder / "beyond_int64.npz", {"x.npy": stored(npy_header((2**70, 2))), **pairs})
    raw_zip(folder / "product.npz", {"x.npy": stored(npy_header((2**40, 2**40))), **pairs})
    raw_zip(folder / "negative.npz", {"x.npy": stored(npy_header((-4, 2))), **pairs})
    raw_zip(folder / "empty_rows.npz", {"x.npy": stored(npy_header((2**62, 0))), **pairs})
    raw_zip(folder / "no_width.npz", {"x.npy": stored(npy_header((2**50, 1), "<U0")), **pairs})
    raw_zip(folder / "not_an_array.npz", {"x.npy": stored(b"hello"), **pairs})
    raw_zip(folder / "text_member.npz", {"x": stored(b"hello"), **pairs})
    long = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little")
    raw_zip(folder / "long_header.npz", {"x.npy": stored(long), **pairs})
    bomb_npz(folder / "bomb.npz")
    damaged_lzma_zip(folder / "lzma.npz")
    os.mkfifo(folder / "pipe.csv")
    os.mkfifo(folder / "pipe.npz")
    os.mkfifo(folder / "pipe.parquet")
    (folder / "zero.csv").symlink_to("/dev/zero")
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    with (folder / "sparse.csv").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "nul.csv").write_bytes(b"a,label\n" + bytes(1000))
    (folder / "one_line.csv").write_bytes(b"1" * (20 << 20))
    for name in ("image", "text_image", "pipe_image"):
        (folder / name / "cat").mkdir(parents=True)
    bomb_png(folder / "image" / "cat" / "1.png", 60_000, 60_000)
    text_bomb_png(folder / "text_image" / "cat" / "1.png")
    os.mkfifo(folder / "pipe_image" / "cat" / "1.png")
    return {
        "claims_64gb.npz": "claims 64,000,000,000 bytes of values, but its member in the archive has 0",
        "zip_claims_4gb.npz": "claims to hold 4.3 GB, which no real data does",
        "beyond_int64.npz": "claims the impossible shape",
        "product.npz": "claims the impossible shape",
        "negative.npz": "claims the impossible shape",
        "empty_rows": "x has 4,611,686,018,427,387,904 samples but y has shape (2,)",
        "no_width.npz": "array 'x' holds <U0; expected numbers or texts",
        "not_an_array.npz": "'x' is not an array",
        "text_member.npz": "no array 'x'; it has x, y",
        "long_header.npz": "the header of array 'x' claims to have 4,294,967,295 bytes",
        "bomb.npz": "claims to hold 2.3 GB, which no real data does",
        "lzma.npz": "not an .npz file that can be read",
        "pipe.csv": "is not a plain file, but a pipe",
        "pipe.npz": "is not a plain file, but a pipe",
        "pipe.parquet": "is not a plain file, but a pipe",
        "zero.csv": "is not a plain file, but a device",
        "loop.csv": "cannot be read",
        "sparse.csv": "of memory, but",
        "nul.csv": "it is not plain text",
        "one_line.csv": "a line has more than 16,777,216 characters",
        "image/cat/1.png": "Image size (3600000000 pixels) exceeds limit",
        "text_image/cat/1.png": "not an image that can be read",
        "pipe_image/cat/1.png": "is not a plain file, but a pipe",
    }
