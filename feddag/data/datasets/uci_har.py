# SPDX-License-Identifier: Apache-2.0
"""UCI HAR: 10,299 windows of phone sensors, 30 people, 6 activities (Anguita et al., 2013)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig
from feddag.data.dataset import Dataset
from feddag.data.dealing.holdout import held_out_mask
from feddag.data.files.download import Download
from feddag.data.loading import Content, Layout, Samples, find, load_found

CLASSES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
PEOPLE = 30
SPLIT = "ours: about 20% of each person's activity, whole recordings only, fixed"
WINDOWS = {"train": 7352, "test": 2947}


def wrong_counts(unpacked: Path) -> str | None:
    """What is wrong with the unpacked archive: each half must have as many labels as its authors say."""
    for split, number in WINDOWS.items():
        path = unpacked / "UCI HAR Dataset" / split / f"y_{split}.txt"
        found = len(path.read_text().split()) if path.is_file() else 0
        if found != number:
            return f"{number:,} labels in {path.relative_to(unpacked)} expected, got {found:,}"
    return None


DOWNLOAD = Download(
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
    name="UCI_HAR_Dataset.zip",
    about=61,
    unpack=True,
    wrong=wrong_counts,
)


def read_published(folder: Path) -> Content:
    """The published text files; the official split is by person, so both halves are put together again."""
    parts = []
    for split in ("train", "test"):
        signals = [
            np.loadtxt(
                folder / split / "Inertial Signals" / f"{signal}_{split}.txt", dtype=np.float32, ndmin=2
            )
            for signal in SIGNALS
        ]
        y = np.loadtxt(folder / split / f"y_{split}.txt", dtype=np.int64, ndmin=1) - 1
        user = np.loadtxt(folder / split / f"subject_{split}.txt", dtype=np.int64, ndmin=1) - 1
        parts.append((np.stack(signals, axis=1), y, user))
    x, y, user = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _content(x, y, user)


def read_npz(folder: Path) -> Content:
    """All windows in one file, as whole numbers of 1/1024."""
    arrays = np.load(folder / "uci_har.npz")
    x = arrays["x_q"].astype(np.float32) * arrays["scale"]
    rounded = {"values": "rounded to 1/1024; the published files have more digits"}
    return _content(x, arrays["y"].astype(np.int64), arrays["user"].astype(np.int64), rounded)


def _content(
    x: np.ndarray, y: np.ndarray, user: np.ndarray, notes: Mapping[str, str] | None = None
) -> Content:
    if not len(x) == len(y) == len(user):
        raise InvalidInput(
            f"uci-har: {len(x)} windows, {len(y)} labels and {len(user)} people differ in number"
        )
    test = _whole_runs(x, y, user)
    return Content(
        train=Samples([x[~test]], y[~test], owner=user[~test]),
        test=Samples([x[test]], y[test], owner=user[test]),
        shape=x.shape[1:],
        dtype=np.float32,
        class_names=CLASSES,
        owner_names=[f"person{p + 1:02d}" for p in range(PEOPLE)],
        complete=len(x) == sum(WINDOWS.values()),
        notes={"test split": SPLIT, **(notes or {})},
    )


def _whole_runs(x: np.ndarray, y: np.ndarray, user: np.ndarray) -> np.ndarray:
    """Test mask that never cuts a recording: windows overlap by half, so a random split would leak.

    The second half of a window is the first half of the next one, which tells the recordings apart.
    """
    half = x.shape[-1] // 2
    starts = {(user[i], x[i, :, :half].tobytes()): i for i in range(len(x))}
    following = [starts.get((user[i], x[i, :, half:].tobytes())) for i in range(len(x))]
    run = np.arange(len(x))
    for i, after in enumerate(following):  # join the two runs under one number
        if after is not None:
            a, b = _root(run, i), _root(run, after)
            run[max(a, b)] = min(a, b)
    run = np.array([_root(run, i) for i in range(len(x))])
    heads = np.unique(run)
    return held_out_mask(user[heads] * len(CLASSES) + y[heads], 0.2, "uci-har")[np.searchsorted(heads, run)]


def _root(run: np.ndarray, i: int) -> int:
    while run[i] != i:
        run[i] = run[run[i]]
        i = int(run[i])
    return i


FILES = tuple(
    f"{split}/{name}_{split}.txt" for split in ("train", "test") for name in ("y", "subject")
) + tuple(
    f"{split}/Inertial Signals/{signal}_{split}.txt" for split in ("train", "test") for signal in SIGNALS
)
LAYOUTS = (
    Layout("UCI HAR Dataset", FILES, read_published),
    Layout("uci_har", ("uci_har.npz",), read_npz),
)


def load(config: DataConfig) -> Dataset:
    """UCI HAR as (n, 9, 128) float32; every person is a natural client."""
    return load_found(config, find(config, LAYOUTS, downloads=[DOWNLOAD]), None)
