# SPDX-License-Identifier: Apache-2.0
"""Federation: which client holds which samples. Samples stay in shared, memory-mapped pools."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples, Scaling
from feddag.core.problem import Problem

NO_INDICES = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Pool:
    """Samples as stored, ideally memory-mapped: `x` (n, ...), `y` (n,) class indices."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Share:
    """One client's part: row numbers into the pools, and what its labels mean."""

    train: np.ndarray  # rows of the training pool
    validation: np.ndarray = field(default_factory=NO_INDICES.copy)  # rows of the training pool
    test: np.ndarray = field(default_factory=NO_INDICES.copy)  # rows of the test pool
    relabel: np.ndarray | None = None  # (num_classes,): stored class → the client's own label (concept shift)


@dataclass(frozen=True)
class Source:
    """Where the samples came from, so that a part or a substitute is never reported as the full set."""

    dataset: str
    kind: str  # "local" | "system" | "download" | "generated" | "embedded"
    detail: str = ""  # folder or file name, generator settings
    train_samples: int = 0
    test_samples: int = 0
    sha256: str = ""
    complete: bool = True  # False: a part of the published set, or a substitute for it


@dataclass(frozen=True)
class Federation:
    """Client id → samples. `groups` is the planted truth, which algorithms never see."""

    clients: Mapping[str, Share]
    train: Pool
    test: Pool
    num_classes: int
    source: Source
    scaling: Scaling = field(default_factory=Scaling)
    class_names: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)  # client id → planted group; may be empty
    group_names: Mapping[int, str] = field(default_factory=dict)  # planted group → what it is, in words
    newcomers: tuple[str, ...] = ()  # clients that join later
    notes: Mapping[str, str] = field(default_factory=dict)  # e.g. "partition": "lda, class-wise form"
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of tables, see Problem

    def __post_init__(self) -> None:
        if not self.clients:
            raise InvalidInput("the federation has no clients: at least 1 is needed")

    @property
    def ids(self) -> tuple[str, ...]:
        """All client ids, sorted."""
        return tuple(sorted(self.clients))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one stored sample."""
        return tuple(self.train.x.shape[1:])

    def examples(self, client: str, split: str = "train") -> Examples:
        """A client's samples of one split: `train`, `validation` or `test`."""
        share = self.clients[client]
        rows: np.ndarray = getattr(share, split)
        pool = self.test if split == "test" else self.train
        y = np.asarray(pool.y[rows], dtype=np.int64)
        if share.relabel is not None:
            y = share.relabel[y]
        # Only held-out samples are shared by many clients; naming training samples would be wasted time.
        origin = "" if split == "train" else f"{split} {hashlib.sha256(rows.tobytes()).hexdigest()}"
        return Examples(np.asarray(pool.x[rows]), y, self.num_classes, self.scaling, origin)

    @property
    def problem(self) -> Problem:
        """What a server may know of these data."""
        integer_codes = self.train.x.dtype.kind in "iu" and self.scaling.unit == 1.0
        known = (self.class_names, self.scaling, integer_codes, self.columns)
        return Problem(self.input_shape, self.num_classes, *known)

    def counts(self, split: str = "train") -> np.ndarray:
        """Class counts of every client, `(clients, num_classes)`, rows in the order of `ids`."""
        rows = []
        for client in self.ids:
            share = self.clients[client]
            y = (self.test if split == "test" else self.train).y[getattr(share, split)]
            y = y if share.relabel is None else share.relabel[y]
            rows.append(np.bincount(y, minlength=self.num_classes))
        return np.stack(rows)

    # -- one folder of plain .npy files, so that worker processes can map it instead of copying ------------

    def save(self, folder: Path) -> None:
        """Write files that can be memory-mapped; a pool that is such a file already is not written again."""
        folder.mkdir(parents=True, exist_ok=True)
        pools = {
            f"{name}_{part}": _store(getattr(pool, part), folder / f"{name}_{part}.npy")
            for name, pool in (("train", self.train), ("test", self.test))
            for part in ("x", "y")
        }
        shares = [self.clients[c] for c in self.ids]
        for split in ("train", "validation", "test"):
            parts = [getattr(s, split) for s in shares]
            unique, which = distinct_arrays(parts)  # clients with equal test views share one array
            ends = np.cumsum([len(p) for p in unique], dtype=np.int64)
            np.save(folder / f"rows_{split}.npy", np.concatenate([NO_INDICES, *unique]))
            np.save(folder / f"ends_{split}.npy", ends)
            np.save(folder / f"which_{split}.npy", which)
        identity = np.arange(self.num_classes)
        np.save(
            folder / "relabel.npy", np.stack([identity if s.relabel is None else s.relabel for s in shares])
        )
        description = {
            "ids": self.ids,
            "pools": pools,
            "num_classes": self.num_classes,
            "scaling": vars(self.scaling),
            "source": vars(self.source),
        }
        (folder / "federation.json").write_text(json.dumps(description))

    @classmethod
    def open(cls, folder: Path) -> "Federation":
        """Map a saved federation; planted groups are not stored, because workers must not see them."""
        description = json.loads((folder / "federation.json").read_text())
        pools = {name: np.load(path, mmap_mode="r") for name, path in description["pools"].items()}
        splits = {}
        for split in ("train", "validation", "test"):
            ends = np.load(folder / f"ends_{split}.npy")
            unique = np.split(np.load(folder / f"rows_{split}.npy"), ends[:-1])
            splits[split] = [unique[i] for i in np.load(folder / f"which_{split}.npy")]
        relabel = np.load(folder / "relabel.npy")
        identity = np.arange(description["num_classes"])
        clients = {
            client: Share(
                train=splits["train"][i],
                validation=splits["validation"][i],
                test=splits["test"][i],
                relabel=None if np.array_equal(relabel[i], identity) else relabel[i],
            )
            for i, client in enumerate(description["ids"])
        }
        scaling = description["scaling"]
        return cls(
            clients=clients,
            train=Pool(pools["train_x"], pools["train_y"]),
            test=Pool(pools["test_x"], pools["test_y"]),
            num_classes=description["num_classes"],
            source=Source(**description["source"]),
            scaling=Scaling(scaling["unit"], tuple(scaling["mean"]), tuple(scaling["std"])),
        )


def distinct_arrays(arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Each array object once, in order of appearance, and for every given array its place in that list."""
    places: dict[int, int] = {}
    unique: list[np.ndarray] = []
    for array in arrays:
        if id(array) not in places:
            places[id(array)] = len(unique)
            unique.append(array)
    return unique, np.array([places[id(array)] for array in arrays], dtype=np.int64)


def _store(array: np.ndarray, path: Path) -> str:
    """Path of a file that holds exactly this array: the file it is mapped from, or a new one."""
    if isinstance(array, np.memmap) and array.filename is not None:
        header = np.load(array.filename, mmap_mode="r")
        if header.shape == array.shape and header.dtype == array.dtype:
            return str(array.filename)
    np.save(path, array)
    return str(path)
