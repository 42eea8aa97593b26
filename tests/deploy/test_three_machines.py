# SPDX-License-Identifier: Apache-2.0
"""The walk-through of docs/deploy.md, in three network namespaces with their own addresses."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from tests.deploy.real import end, finish, processes_of, words

pytestmark = pytest.mark.deploy

DOC = Path(__file__).parents[2] / "docs" / "deploy.md"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def machines(count: int) -> Iterator[list[tuple[str, ...]]]:
    """Namespaces on one switch, with addresses 10.0.0.1, 10.0.0.2, …; each as a prefix for commands."""
    tag = f"fd{os.getpid()}"
    names = [f"{tag}s", *(f"{tag}m{i}" for i in range(1, count + 1))]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", names[0], "link", "add", "br0", "type", "bridge")
            ip("-n", names[0], "link", "set", "br0", "up")
            for i, name in enumerate(names[1:], start=1):
                ip(
                    "link",
                    "add",
                    "net0",
                    "netns",
                    name,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    f"p{i}",
                    "netns",
                    names[0],
                )
                ip("-n", names[0], "link", "set", f"p{i}", "master", "br0", "up")
                ip("-n", name, "addr", "add", f"10.0.0.{i}/24", "dev", "net0")
                ip("-n", name, "link", "set", "net0", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield [("ip", "netns", "exec", name) for name in names[1:]]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def write_records(path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    lines = ["age,pressure,diagnosis"]
    for i in range(300):
        ill = i % 2
        age, pressure = generator.normal(50 + 20 * ill, 8), generator.normal(120 + 15 * ill, 8)
        lines.append(f"{age:.2f},{pressure:.2f},{'ill' if ill else 'well'}")
    path.write_text("\n".join(lines) + "\n")


def start(prefix: tuple[str, ...], folder: Path) -> subprocess.Popen:
    """`sh start.sh`, as the operator of the machine does it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log = (folder.parent / f"{folder.name}.log").open("wb")
    return subprocess.Popen(
        [*prefix, "sh", "start.sh"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def test_the_walk_through_works_on_three_machines(tmp_path: Path) -> None:
    text = DOC.read_text()
    (experiment,) = re.findall(r"```toml\n(   # clinics.toml\n.*?)```", text, flags=re.S)
    (command,) = re.findall(r"feddag (deploy init clinics.toml .*)\n", text)
    (tmp_path / "clinics.toml").write_text(experiment.replace("num_rounds = 20", "num_rounds = 3"))
    subprocess.run([sys.executable, "-m", "feddag", *command.split()], cwd=tmp_path, check=True)
    homes = [tmp_path / name for name in ("server", "c000", "c001")]
    for home in homes:  # each folder goes to its machine
        source = "server" if home.name == "server" else f"nodes/{home.name}"
        shutil.copytree(tmp_path / "deployment" / source, home)
    for number, home in enumerate(homes[1:]):
        write_records(home / "patients.csv", number)
        config = (home / "node.toml").read_text().replace('data = ""', f'data = "{home / "patients.csv"}"')
        (home / "node.toml").write_text(config)
    shutil.rmtree(tmp_path / "deployment")
    with machines(3) as prefixes:
        running = [start(prefix, home) for prefix, home in zip(prefixes, homes, strict=True)]
        try:
            assert finish(running[0]) == 0, words(homes[0]) + words(homes[1])
        finally:
            for process in running:
                end(process)
    assert processes_of(tmp_path) == []
    (result,) = homes[0].glob("runs/feddag/own/*/result.json")
    found = json.loads(result.read_text())
    assert found["failures"] == 0
    assert found["rounds"] == 3
    problem = json.loads((result.parent / "problem.json").read_text())
    assert problem["class_names"] == ["ill", "well"]
    # No record has left its machine.
    first = (homes[1] / "patients.csv").read_text().splitlines()[1].encode()
    assert not any(first in path.read_bytes() for path in homes[0].rglob("*") if path.is_file())
