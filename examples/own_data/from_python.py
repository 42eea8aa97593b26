# SPDX-License-Identifier: Apache-2.0
"""Your own data without files: any object with `clients()`, used as it is or with a skew on top.

python examples/own_data/from_python.py
"""

from collections.abc import Mapping

import numpy as np

from feddag.data.config import PartitionConfig
from feddag.data.memory import federation_from
from feddag.data.summary import client_rows


class Sensors:
    """Six machines; each has measured 40 curves of two kinds."""

    def clients(self) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """Machine → (curves, kinds)."""
        rng = np.random.default_rng(0)
        time = np.linspace(0, 1, 50)
        found = {}
        for machine in range(6):
            kind = rng.integers(2, size=40)
            curves = np.sin(2 * np.pi * (2 + 3 * kind[:, None]) * time) + rng.normal(0, 0.3, size=(40, 50))
            found[f"machine{machine}"] = (curves[:, None].astype(np.float32), kind)
        return found


def main() -> None:
    """Print what every client holds; on half of the machines the labels mean the opposite."""
    settings = PartitionConfig(kind="natural", concept={"maps": ("identity", "reverse")})
    federation = federation_from(Sensors(), partition=settings)
    for row in client_rows(federation):
        print(f"{row.client}: {row.train} training, {row.test} test samples, {row.counts}, {row.group}")


if __name__ == "__main__":
    main()
