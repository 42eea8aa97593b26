# SPDX-License-Identifier: Apache-2.0
"""Real processes that are killed, refused, slowed down, and hidden behind a proxy (`make test-deploy`)."""

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra feddag[flower] is not installed")

from feddag.deploy.certificates import write_node_key
from feddag.deploy.services import free_port
from tests.deploy.real import (
    checkpoint,
    end,
    feddag,
    finish,
    inline_digest,
    make,
    processes_of,
    result,
    run_folder,
    until,
    words,
)

pytestmark = pytest.mark.deploy


def pids(*parts: str) -> list[int]:
    """Processes whose command line has all these parts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if all(part in line for part in parts) and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return found


def events(deployment: Path) -> list[dict]:
    lines = (run_folder(deployment) / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_without_tls_the_digest_is_the_same(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", insecure=True)
    assert finish(feddag("deploy", "up", "d", "--local", cwd=tmp_path)) == 0, words(deployment)
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def test_a_superlink_that_is_killed_comes_back_and_the_digest_is_the_same(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", num_rounds=5)
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path)
    try:
        until(lambda: checkpoint(deployment, 3), process)
        (superlink,) = pids("flower-superlink", str(deployment))
        os.kill(superlink, signal.SIGKILL)
        assert finish(process) == 0, words(deployment)
    finally:
        end(process)
    assert processes_of(deployment) == []
    assert [e["event"] for e in events(deployment)].count("resumed") == 1
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def test_everything_killed_at_once_is_resumed_to_the_same_digest(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", num_rounds=5)
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path)
    until(lambda: checkpoint(deployment, 3), process)
    process.kill()
    process.wait()
    until(lambda: not processes_of(deployment))  # nobody stays when the one who takes care is killed
    assert finish(feddag("deploy", "resume", "d", cwd=tmp_path)) == 0, words(deployment)
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def test_stop_leaves_nothing_and_resume_goes_on(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", num_rounds=5)
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path)
    until(lambda: checkpoint(deployment, 3), process)
    assert finish(feddag("deploy", "stop", "d", cwd=tmp_path)) == 0, words(deployment)
    assert finish(process) == 130
    assert processes_of(deployment) == []
    status = subprocess.run(
        ["feddag", "deploy", "status", "d", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(status.stdout)["running"] is False
    assert json.loads(status.stdout)["finished"] is False
    assert finish(feddag("deploy", "resume", "d", cwd=tmp_path)) == 0, words(deployment)
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def test_a_supernode_that_is_killed_returns_as_the_same_client_in_the_same_cluster(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", num_rounds=6)
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path)
    try:
        until(lambda: checkpoint(deployment, 3), process)
        (victim,) = pids("flower-supernode", str(deployment / "nodes" / "c001"))
        os.kill(victim, signal.SIGKILL)
        assert finish(process) == 0, words(deployment)
    finally:
        end(process)
    asked = [e for e in events(deployment) if e["event"] == "exchange"]
    assert all(set(e["failures"]) <= {"c001"} for e in asked)
    signed = [e["clients"] for e in asked if e["task"] == "sign"]
    assert signed == [4], "nobody signed a second time"
    nodes = json.loads((deployment / "server" / "state.json").read_text())["nodes"]
    assert sorted(nodes.values()) == ["c000", "c001", "c002", "c003"]


def test_a_node_whose_key_is_not_registered_is_refused(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d")
    stranger = tmp_path / "stranger"
    shutil.copytree(deployment / "nodes" / "c003", stranger)
    write_node_key(stranger / "node.key", stranger / "node.pub")  # its own key, which the server never saw
    (deployment / "server" / "server.toml").write_text(
        (deployment / "server" / "server.toml").read_text().replace("clients = 4", "clients = 1")
    )
    server = feddag("deploy", "serve", str(deployment / "server"), cwd=tmp_path)
    node = feddag("deploy", "node", str(stranger), cwd=tmp_path)
    log = stranger / "logs" / "supernode.log"
    try:
        until(lambda: log.exists() and "SuperNode ID" not in log.read_text() and refused(log), server)
        watch = (deployment / "server" / "watch.jsonl").read_text()
        assert '"started"' not in watch
    finally:
        end(node)
        end(server)
    assert processes_of(tmp_path) == []


def refused(log: Path) -> bool:
    text = log.read_text().lower()
    return any(
        word in text for word in ("permission", "unauthenticated", "not registered", "failed to activate")
    )


def test_wrong_certificates_are_refused(tmp_path: Path) -> None:
    deployment, other = make(tmp_path / "d"), make(tmp_path / "other")
    node = tmp_path / "node"
    shutil.copytree(deployment / "nodes" / "c000", node)
    shutil.copy(other / "server" / "ca.crt", node / "ca.crt")  # it trusts somebody else
    server = feddag("deploy", "serve", str(deployment / "server"), cwd=tmp_path)
    process = feddag("deploy", "node", str(node), cwd=tmp_path)
    log = node / "logs" / "supernode.log"
    try:
        until(lambda: log.exists() and "certificate" in log.read_text().lower(), server)
        assert "SuperNode ID" not in log.read_text()
    finally:
        end(process)
        end(server)


@contextlib.contextmanager
def slow_loopback() -> Iterator[tuple[str, ...]]:
    """A network namespace whose loopback loses 20% of the packets and delays the others by 500 ms."""
    name = f"feddag{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if not made:
        pytest.skip("network namespaces cannot be made here")
    try:
        inside = ("ip", "netns", "exec", name)
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        netem = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "20%", "delay", "500ms"]
        if subprocess.run([*inside, *netem], capture_output=True, check=False).returncode:
            pytest.skip("this kernel has no netem")
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


def test_a_run_ends_also_with_lost_packets_and_long_ways(tmp_path: Path) -> None:
    deployment = make(tmp_path / "d", num_clients=2)
    with slow_loopback() as inside:
        process = feddag("deploy", "up", "d", "--local", cwd=tmp_path, prefix=inside)
        assert finish(process) == 0, words(deployment)
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def test_a_proxy_shows_nothing_but_what_nodes_need(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    deployment = make(tmp_path / "d", num_clients=2)
    server, outside = deployment / "server", free_port()
    recipe = (server / "nginx.conf").read_text().replace("0.0.0.0:9443", f"127.0.0.1:{outside}")
    (server / "nginx.conf").write_text(recipe)
    for config in deployment.glob("nodes/*/node.toml"):
        text = config.read_text()
        inside = json.loads(text.split("server = ")[1].split(" ")[0]).rpartition(":")[2]
        config.write_text(text.replace(f"127.0.0.1:{inside}", f"127.0.0.1:{outside}"))
    proxy = subprocess.Popen(
        ["nginx", "-p", str(server), "-c", "nginx.conf"], start_new_session=True, stderr=subprocess.DEVNULL
    )
    process = feddag("deploy", "up", "d", "--local", cwd=tmp_path)
    try:
        until(lambda: checkpoint(deployment, 0), process)
        context = ssl.create_default_context(cafile=server / "ca.crt")
        routes = [
            "/", "/health", "/docs", "/openapi.json", "/v1/control/list-runs", "/v1/control/start-run",
            "/v1/runtime/pull-messages", "/v1/runtime/acquire-task", "/v1/fleet/../control/list-runs",
            "/v1/fleet/%2e%2e/control/list-runs", "//v1/control/list-runs", "/V1/control/list-runs",
        ]  # fmt: skip
        for route in routes:
            for method in ("GET", "POST"):
                assert status(f"https://127.0.0.1:{outside}{route}", method, context) in (400, 403), route
        assert status(f"https://127.0.0.1:{outside}/v1/fleet/pull-messages", "POST", context) != 403
        assert finish(process) == 0, words(deployment)
    finally:
        end(process)
        os.killpg(proxy.pid, signal.SIGTERM)
        proxy.wait()
    assert result(deployment)["state_digest"] == inline_digest(deployment, tmp_path / "inline")


def status(url: str, method: str, context: ssl.SSLContext) -> int:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    request = urllib.request.Request(url, data=b"" if method == "POST" else None, method=method)
    try:
        return opener.open(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
