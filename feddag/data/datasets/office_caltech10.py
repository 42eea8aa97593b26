# SPDX-License-Identifier: Apache-2.0
"""Office-Caltech-10: 2,533 images of 10 classes from Amazon, Caltech, DSLR and webcam (Gong et al., 2012)."""

from functools import partial

from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.domains import read_domain_atlases, read_domain_folders
from feddag.data.loading import Layout, find, load_found

COUNTS = {"caltech": 1123, "amazon": 958, "dslr": 157, "webcam": 295}
DOMAINS = {name: (name, name.capitalize(), name.upper()) for name in COUNTS}
CLASSES: dict[str, tuple[str, ...]] = {
    "backpack": ("backpack", "back_pack"),
    "bike": ("bike",),
    "calculator": ("calculator",),
    "headphones": ("headphones",),
    "keyboard": ("keyboard",),
    "laptop_computer": ("laptop_computer", "laptop"),
    "monitor": ("monitor",),
    "mouse": ("mouse",),
    "mug": ("mug", "coffee-mug"),
    "projector": ("projector", "video-projector"),
}
SCALING = pixel_scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FOLDERS = ("office_caltech_10", "Office-Caltech-10", "office_caltech10", "officecaltech")
FILES = ("[wW]*/*/*", "[aA]*/*/*", "[dD]*/*/*", "[cC]*/*/*")
LAYOUTS = (
    *(
        Layout(name, FILES, partial(read_domain_folders, domains=DOMAINS, classes=CLASSES, counts=COUNTS))
        for name in FOLDERS
    ),
    Layout(
        "office_caltech10",
        ("labels.npz", *(f"{domain}.webp" for domain in COUNTS)),
        partial(read_domain_atlases, counts=COUNTS),
    ),
)


def load(config: DataConfig) -> Dataset:
    """Office-Caltech-10 from the data folder; there is no stable address to download it from."""
    return load_found(config, find(config, LAYOUTS), SCALING)
