# SPDX-License-Identifier: Apache-2.0
"""Attacks on the files of a run: damage, a full disk, and the state of the disk at every instant."""

import builtins
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import FederationError
from feddag.core.seeds import Seed
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import resume, run
from tests.contracts.toys import experiment as toy_experiment

DECISIVE = ("final", "chosen", "newcomers", "state_digest", "bytes_down", "bytes_up", "failures", "rounds")


class Killed(BaseException):
    """Stands for a power cut: nobody handles it, nothing is saved because of it."""


def small(name: str = "ditto", **changes: Any) -> Experiment:
    """A short run whose clients remember something, so that memories count."""
    return toy_experiment(name, **({"num_rounds": 5, "evaluation": {"every": 2}} | changes))


def evidence(folder: Path) -> dict[str, Any]:
    """All that must not depend on what happened on the way."""
    result = json.loads((folder / "result.json").read_text())
    models = {path.name: path.read_bytes() for path in sorted((folder / "models").iterdir())}
    return {"models": models, **{key: result[key] for key in DECISIVE}}


def cut_off(folder: Path, settings: Experiment, round_: int) -> Path:
    """A run that was killed in the middle of a round."""

    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "exchange" and event["round"] == round_:
            raise Killed

    try:
        run(settings, folder=folder, watch=watch)
    except Killed:
        return folder
    raise AssertionError("the run was not cut off")


def outcome(folder: Path, expected: dict[str, Any]) -> str:
    """Resume, and say how it ended: "same", "refused", "warned" (no chosen round), or what is wrong."""
    warnings: list[str] = []
    try:
        resume(folder, watch=lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None)
    except FederationError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 1000 else f"unclear: {error}"
    found = evidence(folder)
    if found == expected:
        return "same"
    if {**found, "chosen": None} == {**expected, "chosen": None} and any(
        "chosen round" in w for w in warnings
    ):
        return "warned"
    return f"other results: {[key for key in expected if found[key] != expected[key]]}"


# -- damage --------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    """The files that a resumed run reads."""
    names = ("experiment.json", ".experiment.sha256", "events.jsonl")
    sealed = [*sorted((folder / "checkpoints").iterdir()), *sorted((folder / "memories").iterdir())]
    return [*(folder / name for name in names), *sealed]


def damage(folder: Path, seed: int, foreign: Path) -> str:
    """Do one random thing to one random file; says what. `foreign` is the folder of another run."""
    generator = (Seed(seed) / "damage").numpy()
    files = files_of(folder)
    path = files[int(generator.integers(len(files)))]
    kinds = sorted(DAMAGES)
    kind = kinds[int(generator.integers(len(kinds)))]
    DAMAGES[kind](path, generator, folder, foreign)
    return f"{kind}: {path.relative_to(folder)}"


def truncate(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(generator.integers(len(data) + 1))])


def flip(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(int(generator.integers(1, 4))):
        if data:
            data[int(generator.integers(len(data)))] ^= 1 << int(generator.integers(8))
    path.write_bytes(bytes(data))


def nulls(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    data = bytearray(path.read_bytes())
    start = int(generator.integers(len(data) + 1))
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    path.write_bytes(bytes(data))


def noise(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    path.write_bytes(generator.bytes(int(generator.integers(1, 2000))))


def nested(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    path.write_text("[" * 100_000)


def delete(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    path.unlink()


def become_folder(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    path.unlink()
    path.mkdir()


def append(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    path.write_bytes(path.read_bytes() + generator.bytes(7))


def swap(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    """Exchange two sealed files with their seals: each is whole, both lie in the wrong place."""
    labels = sorted(p.stem for p in path.parent.glob("round-*.json"))
    if len(labels) < 2:
        return
    one, other = generator.choice(labels, size=2, replace=False)
    for ending in (".json", ".safetensors"):
        a, b = path.parent / f"{one}{ending}", path.parent / f"{other}{ending}"
        if a.is_file() and b.is_file():
            first, second = a.read_bytes(), b.read_bytes()
            a.write_bytes(second)
            b.write_bytes(first)


def replace_by_foreign(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    """The same files of another run, with their seals."""
    for ending in (".json", ".safetensors", path.suffix):
        name = path.with_suffix(ending).relative_to(folder)
        if (foreign / name).is_file():
            shutil.copyfile(foreign / name, folder / name)


def strange_names(path: Path, generator: np.random.Generator, folder: Path, foreign: Path) -> None:
    names = (
        "round-².json",
        "round-.json",
        "round-9.json",
        "round--00001.json",
        "notes.json",
        "round-000099.json",
    )
    for name in names:
        (path.parent / name).write_text("{}")


DAMAGES: dict[str, Callable[[Path, np.random.Generator, Path, Path], None]] = {
    "append": append, "become a folder": become_folder, "delete": delete, "flip": flip,
    "foreign": replace_by_foreign, "nested": nested, "noise": noise, "nulls": nulls,
    "strange names": strange_names, "swap": swap, "truncate": truncate,
}  # fmt: skip


# -- a full disk ---------------------------------------------------------------------------------------------


class Disk:
    """Counts what is done to files in a folder; from the n-th operation on, the disk is full."""

    def __init__(self, folder: Path, full_from: int) -> None:
        self.folder, self.full_from, self.done = str(folder), full_from, 0

    def operation(self, name: str) -> None:
        self.done += 1
        if self.done >= self.full_from:
            raise OSError(28, "No space left on device", name)

    def open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            inside = isinstance(file, str | Path) and str(file).startswith(self.folder)
            writes = any(letter in mode for letter in "wax")
            if not (inside and writes):
                return original(file, mode, *arguments, **options)
            self.operation(str(file))
            return _Watched(original(file, mode, *arguments, **options), self, str(file))

        return opened


class _Watched:
    """A file that asks the disk before each write."""

    def __init__(self, file: Any, disk: Disk, name: str) -> None:
        self._file, self._disk, self._name = file, disk, name

    def write(self, data: Any) -> Any:
        self._disk.operation(self._name)
        return self._file.write(data)

    def __enter__(self) -> "_Watched":
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def disk(folder: Path, full_from: int, patch: Any) -> Iterator[Disk]:
    """While this lasts, writing below a folder is counted, and fails from the n-th operation on."""
    watched, fsync = Disk(folder, full_from), os.fsync
    with patch.context() as during:

        def forced(descriptor: int) -> None:
            watched.operation("fsync")
            fsync(descriptor)

        during.setattr(os, "fsync", forced)
        during.setattr(builtins, "open", watched.open(builtins.open))
        during.setattr(io, "open", watched.open(io.open))
        yield watched


# -- the state of the disk at every instant ------------------------------------------------------------------


def snapshots(settings: Experiment, folder: Path, into: Path, patch: Any) -> list[Path]:
    """Run, and copy the folder before everything that changes what a killed process would leave.

    What is only in the buffers of this process is not in the copies, just as after a kill.
    """
    taken: list[Path] = []

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            if folder.exists() and (folder / "experiment.json").exists():
                taken.append(into / f"{len(taken):04d}")
                copy(folder, taken[-1])
            return original(*arguments, **options)

        return changed

    copy = shutil.copytree
    with patch.context() as during:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            during.setattr(owner, name, before(getattr(owner, name)))
        run(settings, folder=folder)
    return taken
