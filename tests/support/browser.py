# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven through its debugging pipe: pages are opened as a reader opens them.

    with Browser() as browser:
        page = browser.open("file:///…/report.html")
        page.run("document.title"), page.problems, page.requests

Every request that the page makes and every error that it prints is recorded.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
WITHOUT = "no Chromium is installed: pages cannot be opened here"


class Browser:
    def __init__(self, *options: str) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.mkdtemp(prefix="feddag-chromium-")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def as_3_and_4() -> None:  # Chromium reads commands from 3 and writes answers to 4
            os.dup2(read_there, 103)
            os.dup2(write_there, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        words = "headless=new no-sandbox disable-gpu no-first-run disable-background-networking"
        words += " disable-component-update remote-debugging-pipe"
        flags = [f"--{word}" for word in words.split()]
        self._process = subprocess.Popen(
            [CHROMIUM, *flags, f"--user-data-dir={self._profile}", *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=as_3_and_4,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        self._in, self._out = (
            os.fdopen(read_here, "rb", buffering=0),
            os.fdopen(write_here, "wb", buffering=0),
        )
        self._buffer, self._number = b"", 0
        self.pages: dict[str, Page] = {}

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._in.close()
        self._out.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _send(self, method: str, session: str = "", **parameters: Any) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._out.write(json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        return self._number

    def receive(self) -> dict[str, Any]:
        """The next message of the browser; events are handed to their page."""
        while b"\0" not in self._buffer:
            more = os.read(self._in.fileno(), 1 << 20)
            if not more:
                raise RuntimeError("Chromium has ended")
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        page = self.pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.take(message["method"], message["params"])
        return message

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = self._send(method, session, **parameters)
        while (message := self.receive()).get("id") != number:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def open(self, url: str, width: int = 1400, height: int = 1000, dark: bool = False) -> "Page":
        """Open a page and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        page.call("Performance.enable", timeDomain="threadTicks")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        started = time.monotonic()
        page.call("Page.navigate", url=url)
        while not page.loaded:
            self.receive()
        page.seconds_to_load = time.monotonic() - started
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.loaded, self.seconds_to_load = False, 0.0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def take(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"][:200])
        elif method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])

    def run(self, expression: str) -> Any:
        """The value of an expression; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "?"))
        return found["result"].get("value")

    def processor_seconds(self) -> float:
        """Processor time that the page's main thread has used, in which scripts run and pages are drawn."""
        found = self.call("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in found if metric["name"] == "TaskDuration")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A picture of the page."""
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)
        path.write_bytes(base64.b64decode(picture["data"]))
