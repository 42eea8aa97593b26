# SPDX-License-Identifier: Apache-2.0
"""Office-Caltech-10: 2,533 images of 10 classes from Amazon, Caltech, DSLR and webcam (Gong et al., 2012)."""

from functools import partial
from pathlib import Path

from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset, pixel_scaling
from feddag.data.files.domains import read_domain_atlases, read_domain_folders
from feddag.data.files.download import Download
from feddag.data.files.images import SUFFIXES
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
ARCHIVE_FOLDER = "Office_Caltech_DA_Dataset-main"
FOLDERS = ("office_caltech_10", "Office-Caltech-10", "office_caltech10", "officecaltech", ARCHIVE_FOLDER)
FILES = ("[wW]*/*/*", "[aA]*/*/*", "[dD]*/*/*", "[cC]*/*/*")


def wrong_counts(unpacked: Path) -> str | None:
    """What is wrong with an unpacked archive: every domain must have as many images as the authors say."""
    for domain, spellings in DOMAINS.items():
        images = [
            p for name in spellings for p in unpacked.glob(f"*/{name}/*/*") if p.suffix.lower() in SUFFIXES
        ]
        if len(images) != COUNTS[domain]:
            return f"{COUNTS[domain]:,} images of {domain} expected, got {len(images):,}"
    return None


ARCHIVE = Download(
    url="https://github.com/ChristophRaab/Office_Caltech_DA_Dataset/archive/refs/heads/main.zip",
    name="Office_Caltech_DA_Dataset-main.zip",
    unpack=True,
    wrong=wrong_counts,
)
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
    """Office-Caltech-10 from the data folder or, if allowed, from a public copy (no hash is published)."""
    return load_found(config, find(config, LAYOUTS, downloads=[ARCHIVE]), SCALING)
