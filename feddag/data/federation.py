# SPDX-License-Identifier: Apache-2.0
"""Federation: which client holds which samples. Samples stay in shared, memory-mapped pools."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples, Scaling
from feddag.core.problem import Problem

NO_INDICES = np.empty(0, dtype=np.int64)
SPLITS, PARTS = ("train", "validation", "test"), ("rows", "ends", "which")


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
    also: "Share | None" = None  # a second part: while data change slowly, some are old and some are new

    def parts(self) -> Iterator["Share"]:
        """The part itself, and the second one where there is one."""
        yield self
        if self.also is not None:
            yield from self.also.parts()

    def size(self, split: str = "train") -> int:
        """Number of samples of a split."""
        return sum(len(getattr(part, split)) for part in self.parts())


@dataclass(frozen=True)
class Phase:
    """What a client holds from a round on, and the planted group that it belongs to then."""

    first: int
    share: Share
    group: int | None = None


@dataclass(frozen=True)
class Drift:
    """A planted change of one client's data: the truth that detectors are judged by."""

    client: str
    at: int  # the first round with other data
    kind: str  # "label" | "concept" | "feature" | "quantity"
    done: int  # the first round in which the change is complete


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
    # Later lives of clients whose data change.
    phases: Mapping[str, tuple[Phase, ...]] = field(default_factory=dict)
    drifts: tuple[Drift, ...] = ()  # in the order of their rounds
    _views: dict[int, "Federation"] = field(default_factory=dict, repr=False, compare=False)

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

    def at(self, round_: int) -> "Federation":
        """What everybody holds in a round; a view, nothing is copied."""
        if not self.phases:
            return self
        changes = sorted({phase.first for phases in self.phases.values() for phase in phases})
        count = bisect_right(changes, round_)
        if count not in self._views:
            self._views.clear()  # rounds go forward: the views of former ones are not needed again
            now = {
                client: phase
                for client, phases in self.phases.items()
                for phase in phases
                if phase.first <= round_
            }
            self._views[count] = replace(
                self,
                clients={**self.clients, **{c: phase.share for c, phase in now.items()}},
                groups={**self.groups, **{c: p.group for c, p in now.items() if p.group is not None}},
                phases={},
                _views={},
            )
        return self._views[count]

    def examples(self, client: str, split: str = "train") -> Examples:
        """A client's samples of one split: `train`, `validation` or `test`."""
        pool = self.test if split == "test" else self.train
        rows: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        for part in self.clients[client].parts():
            rows.append(getattr(part, split))
            y = np.asarray(pool.y[rows[-1]], dtype=np.int64)
            labels.append(y if part.relabel is None else part.relabel[y])
        all_rows, y = (a[0] if len(a) == 1 else np.concatenate(a) for a in (rows, labels))
        # Only held-out samples are shared by many clients; naming training samples would be wasted time.
        origin = "" if split == "train" else f"{split} {hashlib.sha256(all_rows.tobytes()).hexdigest()}"
        return Examples(np.asarray(pool.x[all_rows]), y, self.num_classes, self.scaling, origin)

    @property
    def problem(self) -> Problem:
        """What a server may know of these data."""
        integer_codes = self.train.x.dtype.kind in "iu" and self.scaling.unit == 1.0
        known = (self.class_names, self.scaling, integer_codes, self.columns)
        return Problem(self.input_shape, self.num_classes, *known)

    def counts(self, split: str = "train") -> np.ndarray:
        """Class counts of every client, `(clients, num_classes)`, rows in the order of `ids`."""
        y = (self.test if split == "test" else self.train).y
        counts_NC = np.zeros((len(self.ids), self.num_classes), dtype=np.int64)
        for i, client in enumerate(self.ids):
            for part in self.clients[client].parts():
                own = y[getattr(part, split)]
                own = own if part.relabel is None else part.relabel[own]
                counts_NC[i] += np.bincount(own, minlength=self.num_classes)
        return counts_NC

    def shares(self) -> list[Share]:
        """Every share of every client and phase once, second parts after their first ones."""
        first = [self.clients[client] for client in self.ids]
        later = [p.share for c in sorted(self.phases) for p in self.phases[c]]
        whole = {id(part): part for share in (*first, *later) for part in share.parts()}
        return [*whole.values()]

    # -- one folder of plain .npy files, so that worker processes can map it instead of copying ------------

    def save(self, folder: Path) -> None:
        """Write files that can be memory-mapped; a pool that is such a file already is not written again."""
        folder.mkdir(parents=True, exist_ok=True)
        pools = {
            f"{name}_{part}": _store(getattr(pool, part), folder / f"{name}_{part}.npy")
            for name, pool in (("train", self.train), ("test", self.test))
            for part in ("x", "y")
        }
        shares = self.shares()
        number = {id(share): i for i, share in enumerate(shares)}
        for split in SPLITS:
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
            "clients": {client: number[id(self.clients[client])] for client in self.ids},
            "phases": {c: [(p.first, number[id(p.share)]) for p in ps] for c, ps in self.phases.items()},
            "also": {i: number[id(s.also)] for i, s in enumerate(shares) if s.also is not None},
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
        stored = StoredShares(folder, description["clients"], description["also"], description["num_classes"])
        phases = {
            client: tuple(Phase(first, stored.share(i)) for first, i in listed)
            for client, listed in description["phases"].items()
        }
        scaling = description["scaling"]
        return cls(
            clients=stored,
            phases=phases,
            train=Pool(pools["train_x"], pools["train_y"]),
            test=Pool(pools["test_x"], pools["test_y"]),
            num_classes=description["num_classes"],
            source=Source(**description["source"]),
            scaling=Scaling(scaling["unit"], tuple(scaling["mean"]), tuple(scaling["std"])),
        )


class StoredShares(Mapping[str, Share]):
    """The shares of a saved federation: arrays are mapped, and a share is made when its client is asked."""

    def __init__(
        self, folder: Path, numbers: Mapping[str, int], also: Mapping[str, int], num_classes: int
    ) -> None:
        self._numbers, self._also, self._identity = numbers, also, np.arange(num_classes)
        self._relabel = np.load(folder / "relabel.npy", mmap_mode="r")
        self._splits = {
            split: tuple(np.load(folder / f"{part}_{split}.npy", mmap_mode="r") for part in PARTS)
            for split in SPLITS
        }

    def __getitem__(self, client: str) -> Share:
        return self.share(self._numbers[client])

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def share(self, number: int) -> Share:
        """One share by its number; a second part has a number of its own."""
        relabel, also = np.asarray(self._relabel[number]), self._also.get(str(number))
        return Share(
            train=self._rows("train", number),
            validation=self._rows("validation", number),
            test=self._rows("test", number),
            relabel=None if np.array_equal(relabel, self._identity) else relabel,
            also=None if also is None else self.share(also),
        )

    def _rows(self, split: str, number: int) -> np.ndarray:
        rows, ends, which = self._splits[split]
        place = int(which[number])
        return np.asarray(rows[int(ends[place - 1]) if place else 0 : int(ends[place])])


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
