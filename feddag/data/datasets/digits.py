# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's handwritten digits: 1,797 grey images of 8×8 pixels with values 0 to 16."""

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
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = images.reshape(-1, 1, 8, 8).astype(np.uint8)
    y = labels.astype(np.int64)
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
