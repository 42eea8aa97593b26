# SPDX-License-Identifier: Apache-2.0
"""The server's supervisor: keeps the SuperLink running, registers nodes, submits the run, and resumes it.

A SuperLink that is killed takes its run with it. The supervisor starts it again, nodes come back with the
ids that their keys have, and a new Flower run goes on from the last checkpoint of ours.
"""

import contextlib
import json
import os
import secrets
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.files import write_durably
from feddag.deploy.folders import ServerFolder
from feddag.deploy.services import Service, environment

CONNECTION = "feddag"  # what Flower's configuration calls our SuperLink
UP_LIMIT = 180.0  # seconds that the SuperLink may take to answer
COMMAND_LIMIT = 300.0  # seconds for registering nodes and submitting a run
SERVING_LIMIT = 600.0  # seconds until the submitted app must have started
MOST_ATTEMPTS = 5  # that may fail one after another without a new checkpoint


class Supervisor:
    """Everything on the server's machine; `tend` is called again and again."""

    def __init__(self, place: ServerFolder) -> None:
        self.place, self.config = place, place.config
        self.env = environment(place.flower_home)
        self._write_flower_config()
        config = self.config
        command = ["flower-superlink", "--host", config.host, "--port", str(config.port)]
        command += ["--database", str(place.database), "--disable-runtime-dependency-installation"]
        if config.insecure:
            command += ["--insecure"]
        else:
            command += ["--enable-supernode-auth", "--ssl-ca-certfile", str(place.authority)]
            command += ["--ssl-certfile", str(place.certificate), "--ssl-keyfile", str(place.key)]
        self.superlink = Service("SuperLink", command, self.env, place.logs / "superlink.log")
        self._attempts, self._best = 0, -1
        self._submitted = 0.0  # when; 0: nothing is submitted to this SuperLink
        self._read = 0  # bytes of the watch file that were seen

    # -- the run -------------------------------------------------------------------------------------------

    def begin(self, run_folder: Path, experiment_digest: str) -> None:
        """Make a new run: its folder and its id, under which nodes keep their memory."""
        settings = self.place.experiment.read_bytes()
        try:
            (run_folder / "checkpoints").mkdir(parents=True)
        except OSError as error:
            raise InvalidInput(f"the run folder {run_folder} cannot be made: {error.strerror}") from None
        write_durably(run_folder / ".experiment.sha256", experiment_digest.encode())
        write_durably(run_folder / "experiment.json", settings)
        self.place.write_state(run=secrets.token_hex(8), folder=str(run_folder))

    def start(self) -> None:
        """Start the SuperLink, wait until it answers, register the nodes that are not yet."""
        self.place.watch.write_bytes(b"")
        self._read = 0
        self.superlink.start()
        self._wait_until_up()
        self.register()

    def tend(self) -> Iterator[dict[str, Any]]:
        """Events that are new; what has ended is started again."""
        if not self.superlink.alive:
            self._submitted = 0.0
            if not self.superlink.tend():
                return
            yield {"event": "warning", "text": "the SuperLink ended and was started again"}
            self._wait_until_up()
        if not self._submitted:
            self._submit()
        elif not self._serving():
            yield {"event": "warning", "text": "the server's app ended before the run did: it is sent again"}
            self._submit()
        yield from self._new_events()

    def end(self) -> None:
        """End the SuperLink and the app that it runs."""
        self.superlink.end()
        serving = self._serving_process()
        if serving:  # its group has been ended; this one is only left if somebody moved it
            with contextlib.suppress(OSError):
                os.kill(serving, 9)
        (self.place.folder / "serving").unlink(missing_ok=True)

    def register(self) -> None:
        """Let the SuperLink know the nodes' keys; each gets the node id that it keeps."""
        if self.config.insecure:
            self.place.write_state(nodes={})
            return
        known = dict(self.place.state().get("nodes", {}))
        new = {c: key for c, key in self.place.public_keys.items() if c not in known.values()}
        if not new:
            return
        calls = [["supernode", "register", str(key), CONNECTION, "--format", "json"] for key in new.values()]
        for client, answer in zip(new, self._flower(calls), strict=True):
            if not answer.get("success") or "node-id" not in answer:
                reason = answer.get("error-message", "no reason given")
                raise FederationError(f"the key of node '{client}' could not be registered: {reason}")
            known[str(answer["node-id"])] = client
        self.place.write_state(nodes=known)

    # -- details -------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        (self.place.folder / "serving").unlink(missing_ok=True)
        best = self._newest_checkpoint()
        self._attempts = 1 if best > self._best else self._attempts + 1
        self._best = max(best, self._best)
        if self._attempts > MOST_ATTEMPTS:
            raise FederationError(
                f"the server's app ended {MOST_ATTEMPTS} times without a new checkpoint; "
                f"{self.superlink.log} says why"
            )
        config = f'folder="{self.place.folder}"'
        (answer,) = self._flower(
            [["run", str(self.place.app), CONNECTION, "--run-config", config, "--format", "json"]]
        )
        if not answer.get("success"):
            reason = answer.get("error-message", "no reason given")
            raise FederationError(f"Flower did not take the run: {str(reason).strip()}")
        self._submitted = time.monotonic()

    def _flower(self, calls: list[list[str]]) -> list[dict[str, Any]]:
        """The answers of Flower's own command line, all in one process: to load it takes a second."""
        command = [sys.executable, "-m", "feddag.deploy.flower_app", *(json.dumps(call) for call in calls)]
        try:
            done = subprocess.run(
                command, env=self.env, capture_output=True, text=True, timeout=COMMAND_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            raise FederationError(f"Flower did not answer within {COMMAND_LIMIT:g} s") from None
        answers, rest, decoder = [], done.stdout.strip(), json.JSONDecoder()
        try:
            while rest:
                answer, end = decoder.raw_decode(rest)
                answers.append(answer)
                rest = rest[end:].lstrip()
        except ValueError:
            pass
        if len(answers) != len(calls):
            words = (done.stderr or done.stdout).strip().splitlines()
            raise FederationError(f"Flower's command failed: {words[-1] if words else 'it said nothing'}")
        return answers

    def _newest_checkpoint(self) -> int:
        saved = (Path(self.place.state()["folder"]) / "checkpoints").glob("round-*.json")
        return max((int(path.stem.removeprefix("round-")) for path in saved), default=-1)

    def _serving_process(self) -> int:
        """The app's process id, 0 if it has not started."""
        try:
            return int((self.place.folder / "serving").read_text())
        except (OSError, ValueError):
            return 0

    def _serving(self) -> bool:
        """Whether the app works, or may still be starting."""
        process = self._serving_process()
        if not process:
            return time.monotonic() - self._submitted < SERVING_LIMIT
        return Path(f"/proc/{process}").exists() if Path("/proc").exists() else True

    def _new_events(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self.place.watch.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                with contextlib.suppress(ValueError):
                    yield json.loads(line)

    def _wait_until_up(self) -> None:
        host = "127.0.0.1" if self.config.host in ("0.0.0.0", "::") else self.config.host
        scheme = "http" if self.config.insecure else "https"
        context = None if self.config.insecure else ssl.create_default_context(cafile=self.place.authority)
        until = time.monotonic() + UP_LIMIT
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # it is on this machine
            *([] if context is None else [urllib.request.HTTPSHandler(context=context)]),
        )
        while True:
            try:
                with opener.open(f"{scheme}://{_bracketed(host)}:{self.config.port}/health", timeout=5):
                    return
            except (OSError, urllib.error.URLError) as error:
                if not self.superlink.alive or time.monotonic() > until:
                    raise FederationError(
                        f"the SuperLink could not start ({error}); {self.superlink.log} says why"
                    ) from error
            time.sleep(0.1)

    def _write_flower_config(self) -> None:
        host = "127.0.0.1" if self.config.host in ("0.0.0.0", "::") else self.config.host
        trust = "insecure = true" if self.config.insecure else f'root-certificates = "{self.place.authority}"'
        self.place.flower_home.mkdir(parents=True, exist_ok=True)
        (self.place.flower_home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{_bracketed(host)}:{self.config.port}"\n{trust}\n'
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
