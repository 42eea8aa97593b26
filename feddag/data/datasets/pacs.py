# SPDX-License-Identifier: Apache-2.0
"""PACS: 9,991 images of 7 classes as art painting, cartoon, photo and sketch (Li et al., 2017)."""

from functools import partial

from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.domains import read_domain_atlases, read_domain_folders
from feddag.data.loading import Layout, find, load_found

COUNTS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
CLASSES = {name: (name,) for name in ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")}
DOMAINS = {name: (name,) for name in COUNTS}
SCALING = pixel_scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FILES = tuple(f"{domain}/*/*" for domain in COUNTS)
LAYOUTS = (
    *(
        Layout(name, FILES, partial(read_domain_folders, domains=DOMAINS, classes=CLASSES, counts=COUNTS))
        for name in ("PACS", "PACS/kfold", "pacs_data")
    ),
    Layout(
        "pacs",
        ("labels.npz", *(f"{domain}.webp" for domain in COUNTS)),
        partial(read_domain_atlases, counts=COUNTS),
    ),
)


def load(config: DataConfig) -> Dataset:
    """PACS from the data folder; its authors publish no stable address, so it is not downloaded."""
    return load_found(config, find(config, LAYOUTS), SCALING)
