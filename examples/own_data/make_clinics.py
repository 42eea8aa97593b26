# SPDX-License-Identifier: Apache-2.0
"""Write twelve clinics as CSV files; half of them code the label the other way.

python examples/own_data/make_clinics.py clinics
feddag data check clinics -s data.label=diagnosis
feddag data show clinics -s data.label=diagnosis --out clinics-pictures
feddag cluster clinics -s data.label=diagnosis
feddag run examples/own_data/clinics.toml
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

CLINICS = 12


def main(folder: Path) -> None:
    """Deal scikit-learn's breast-cancer table to clinics and write one file each."""
    table = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(table.target))
    folder.mkdir(parents=True, exist_ok=True)
    header = [name.replace(" ", "_") for name in table.feature_names] + ["diagnosis"]
    for number, rows in enumerate(np.array_split(order, CLINICS)):
        names = ("malignant", "benign") if number % 2 == 0 else ("benign", "malignant")
        with (folder / f"clinic{number:02d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for row in rows:
                writer.writerow([*(f"{value:g}" for value in table.data[row]), names[table.target[row]]])
    print(f"{CLINICS} clinics with {len(order)} patients in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "clinics"))
