# SPDX-License-Identifier: Apache-2.0
"""A web server on this machine that misbehaves as it is told."""

import contextlib
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

CONTENT = bytes(range(256)) * 4000


@dataclass
class Behaviour:
    """How the server misbehaves, and what it was asked."""

    cut_after: int | None = None  # bytes per answer
    pause: float = 0.0
    resumes: bool = True
    content: bytes = CONTENT
    others: dict[str, bytes] = field(default_factory=dict)  # what else it has, by path
    ranges: list[str | None] = field(default_factory=list)
    says_length: bool = True


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self):
        b = self.behaviour
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path != "/file" and self.path not in b.others:
            self.send_error(404)
            return
        b.ranges.append(self.headers.get("Range"))
        start = 0
        if b.resumes and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
        else:
            self.send_response(200)
        body = b.others.get(self.path, b.content)[start:]
        if b.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        time.sleep(b.pause)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body if b.cut_after is None else body[: b.cut_after])
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    behaviour = Behaviour()
    handler = type("H", (Handler,), {"behaviour": behaviour})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    behaviour.url = f"http://127.0.0.1:{http.server_port}"
    yield behaviour
    http.shutdown()
    http.server_close()
    thread.join()
