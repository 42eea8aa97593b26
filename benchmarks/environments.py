# SPDX-License-Identifier: Apache-2.0
"""Environments of the peers: made on first use, remade when their requirements change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent / ".envs"

# Flower reports home, looks for updates and installs packages unless told not to; Ray reports usage.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def make(name: str, requirements: list[str]) -> Path:
    """Return the interpreter of environment `name`, installing the requirements if need be."""
    folder = ROOT / name
    python, installed = folder / "bin" / "python", folder / "requirements.json"
    if installed.exists() and json.loads(installed.read_text()) == requirements:
        return python
    print(f"making benchmarks/.envs/{name}: {', '.join(requirements)} (a minute or more)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    # One call, so that the pinned torch is not replaced by what a peer would choose.
    if subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements]).returncode:
        sys.exit(
            f"could not install {', '.join(requirements)} (reasons above): set other versions with "
            f"--torch and --{name}, or leave '{name}' out of --only"
        )
    installed.write_text(json.dumps(requirements))
    return python


def variables(name: str, python: Path) -> dict[str, str]:
    """Environment variables for a process of environment `name`."""
    values = {**os.environ, **QUIET, "FLWR_HOME": str(ROOT / name / "flower-home")}
    values["PATH"] = f"{python.parent}{os.pathsep}{values.get('PATH', '')}"
    for unwanted in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONPATH"):
        values.pop(unwanted, None)  # each contender decides for itself
    return values
