# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's handwritten digits: 1,797 grey images of 8×8 pixels with values 0 to 16."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from feddag.core.examples import Scaling
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.federation import Pool, Source
from feddag.data.files.hashing import sha256_of_arrays

MEAN, STD = (0.3053,), (0.3760,)


def load(config: DataConfig) -> Dataset:
    """The digits as (n, 1, 8, 8); the set has no test part, so 20% of each class are always held out."""
    rows = _rows()
    x = rows[:, :-1].reshape(-1, 1, 8, 8)
    y = rows[:, -1].astype(np.int64)
    test = held_out_mask(y, 0.2, "digits")
    return Dataset(
        train=Pool(x[~test], y[~test]),
        test=Pool(x[test], y[test]),
        num_classes=10,
        source=Source(
            dataset="digits",
            kind="embedded",
            detail="scikit-learn",
            train_samples=int((~test).sum()),
            test_samples=int(test.sum()),
            sha256=sha256_of_arrays(x, y),
        ),
        scaling=Scaling(unit=16.0, mean=MEAN, std=STD),
        class_names=tuple(str(d) for d in range(10)),
        notes={"test split": "ours: 20% of each class, fixed"},
    )


def _rows() -> np.ndarray:
    """One row per digit, 64 pixels and the label: read without scikit-learn, whose import takes a second."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as text:
                return np.loadtxt(text, delimiter=",", dtype=np.uint8)
    from sklearn.datasets import load_digits  # a version that keeps the file elsewhere

    return np.column_stack(load_digits(return_X_y=True)).astype(np.uint8)
