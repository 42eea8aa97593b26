# SPDX-License-Identifier: Apache-2.0
"""Folders of your own data with random damage, drawn from a seed."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from feddag.core.seeds import Seed

NAMES = ("a", "B b", "ü", "..c", "-d", "client", "x" * 120, "e\nf", "=1+1", "[red]")
HEADERS = ("u,v,label", "u,u,label", "label", "", "u;v;label", "u,v,w,label", "id,v,label", "\ufeffu,v,label")
CELLS = ("1", "2.5", "NA", "", "x", "y", "inf", "-1e39", "1e999", '"', "é", "0" * 400)


def odd_folder(place: Path, number: int) -> Path:
    """A folder with up to four entries; in most folders many of them are damaged in some way."""
    rng = (Seed(number) / "odd folder").numpy()
    folder = place / f"odd{number}"
    folder.mkdir()
    gentle = rng.random() < 0.3
    for _ in range(int(rng.integers(0, 5))):
        name = NAMES[rng.integers(len(NAMES))] + ("" if rng.random() < 0.7 else str(rng.integers(9)))
        kind = "npz" if gentle else ("npz", "csv", "parquet", "images", "junk")[rng.integers(5)]
        path = folder / (name if kind == "images" else f"{name}.{kind}")
        if path.exists():
            continue
        {"npz": _npz, "csv": _csv, "parquet": _parquet, "images": _images, "junk": _junk}[kind](path, rng)
        if not gentle and rng.random() < 0.5:
            files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
            for file in files[:2]:
                if file.is_file() and not file.is_symlink():
                    _damage(file, rng)
    return folder


def _array(rng):
    shape = tuple(int(n) for n in rng.integers(0, 7, size=rng.integers(0, 4)))
    kind = ("f8", "f4", "f2", "i8", "u8", "u1", "b1", "U3", "S2", "c8", "M8[s]", "V3", ">f4", "i4")[
        rng.integers(14)
    ]
    raw = rng.bytes(int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize)
    return np.frombuffer(raw, dtype=kind).reshape(shape)


def _npz(path, rng):
    n = int(rng.integers(1, 12))
    arrays = {"x": rng.normal(size=(n, 2)), "y": np.arange(n) % 2}
    for name in ("x", "y", "x_test", "y_test", "z"):
        if rng.random() < 0.1:
            arrays[name] = _array(rng)
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(path, **arrays)


def _csv(path, rng):
    width = int(rng.integers(1, 5))
    lines = [",".join(CELLS[i] for i in rng.integers(len(CELLS), size=width)) for _ in range(rng.integers(8))]
    good = [f"{i},{i / 2},{i % 2}" for i in range(rng.integers(9))]
    text = "\n".join([HEADERS[rng.integers(len(HEADERS))], *good, *(lines if rng.random() < 0.5 else [])])
    path.write_bytes(text.encode(("utf-8", "utf-16", "latin-1")[rng.integers(3)], "replace"))


def _parquet(path, rng):
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        path.write_bytes(b"PAR1")
        return
    n = int(rng.integers(0, 9))
    columns = {
        "u": rng.normal(size=n),
        "v": pyarrow.array(
            [None if rng.random() < 0.2 else "xyz"[i % 3] for i in range(n)], pyarrow.string()
        ),
        "w": [[i] for i in range(n)],
        "t": pyarrow.array(range(n), pyarrow.timestamp("s")),
        "label": [i % 2 for i in range(n)],
    }
    kept = {name: column for name, column in columns.items() if rng.random() < 0.7}
    parquet.write_table(pyarrow.table(kept), path)


def _images(path, rng):
    for c in ("cat", "dog", ".hidden")[: rng.integers(0, 4)]:
        (path / c).mkdir(parents=True, exist_ok=True)
        for i in range(rng.integers(0, 3)):
            mode = ("L", "RGB", "RGBA", "P", "1", "I;16", "F", "CMYK")[rng.integers(8)]
            size = (4, 4) if rng.random() < 0.8 else (3, 5)
            suffix = {"F": "tiff", "CMYK": "jpg"}.get(mode, "png")
            file = path / c / f"{i}.{suffix}"
            Image.new(mode, size).save(file)
            if rng.random() < 0.2:
                file.rename(file.with_suffix(".webp"))
    path.mkdir(exist_ok=True)


def _junk(path, rng):
    choice = rng.integers(4)
    if choice == 0:
        os.mkfifo(path)
    elif choice == 1:
        path.symlink_to(path.parent)
    elif choice == 2:
        path.symlink_to(path)
    else:
        path.with_suffix((".csv", ".npz", ".parquet", "")[rng.integers(4)]).write_bytes(rng.bytes(300))


def _damage(file, rng):
    data = bytearray(file.read_bytes())
    choice = rng.integers(5)
    if choice == 0 and data:
        for i in rng.integers(len(data), size=rng.integers(1, 20)):
            data[i] = rng.integers(256)
    elif choice == 1:
        del data[int(rng.integers(len(data) + 1)) :]
    elif choice == 2:
        at = int(rng.integers(len(data) + 1))
        data[at:at] = rng.bytes(int(rng.integers(1, 40)))
    elif choice == 3 and len(data) > 8:
        start, end = sorted(rng.integers(len(data), size=2))
        data[start:end] = data[start:end][::-1]
    else:
        file = file.with_name("copy" + (".csv", ".npz", ".png")[rng.integers(3)])
    file.write_bytes(data)
