# SPDX-License-Identifier: Apache-2.0
"""A fixed test part for datasets that come without one."""

import numpy as np

from feddag.core.seeds import Seed


def held_out_mask(stratum: np.ndarray, share: float, name: str) -> np.ndarray:
    """Mask of the test samples: this share of every stratum, the same on every machine and run.

    A stratum (a class, or a class of one client) with one sample keeps it for training.
    """
    rng = (Seed(0) / "test-part" / name).numpy()
    mask = np.zeros(len(stratum), dtype=bool)
    for value in np.unique(stratum):
        rows = rng.permutation(np.flatnonzero(stratum == value))
        mask[rows[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
    return mask
