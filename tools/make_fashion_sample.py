# SPDX-License-Identifier: Apache-2.0
"""Make the embedded Fashion-MNIST sample from the full set.

apt-get install dataset-fashion-mnist
python tools/make_fashion_sample.py /usr/share/datasets/fashion-mnist feddag/data/embedded
"""

import gzip
import sys
from pathlib import Path

import numpy as np

from feddag.core.seeds import Seed

PER_CLASS = {"train": 600, "t10k": 100}


def read(path: Path) -> np.ndarray:
    """An idx file of bytes: two zeros, the type 8, the number of axes, the sizes, the values."""
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def main(source: Path, target: Path) -> None:
    """Draw the same balanced sample on every machine and write it as one compressed file."""
    arrays = {}
    for split, per_class in PER_CLASS.items():
        x = read(source / f"{split}-images-idx3-ubyte.gz")
        y = read(source / f"{split}-labels-idx1-ubyte.gz")
        rng = (Seed(0) / "fashion-mnist-sample" / split).numpy()
        rows = np.sort(
            np.concatenate([rng.permutation(np.flatnonzero(y == c))[:per_class] for c in range(10)])
        )
        name = "train" if split == "train" else "test"
        arrays[f"x_{name}"], arrays[f"y_{name}"] = x[rows][:, None], y[rows]
    np.savez_compressed(target / "fashion_mnist_sample.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
