# SPDX-License-Identifier: Apache-2.0
"""Real processes on loopback: TLS, authenticated nodes, no process left. The rest is in `test_faults.py`."""

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from tests.deploy.real import feddag, finish, inline_digest, make, processes_of, result, words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [(2, 1), pytest.param(4, 3, marks=pytest.mark.deploy)],  # Flower starts a process for every question
)
def test_authenticated_nodes_over_tls_give_the_digest_of_inline_without_any_network(
    nodes: int, rounds: int, tmp_path: Path
) -> None:
    deployment = make(tmp_path / "d", num_clients=nodes, num_rounds=rounds)
    # In a network namespace with loopback only, where the machine allows one: nothing needs the outside.
    alone = ("unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "alone")
    try:
        works = subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        works = False
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path, prefix=alone if works else ())
    assert finish(process) == 0, words(deployment)
    assert processes_of(deployment) == []
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")
    assert result(deployment)["failures"] == 0
