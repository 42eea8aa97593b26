# SPDX-License-Identifier: Apache-2.0
"""Starting the dashboard: an address with a random token, printed once."""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from feddag.core.errors import InvalidInput


def serve(root: Path, host: str, port: int, foreign: bool, say: Callable[[str], None]) -> None:
    """Serve the runs below a folder until Ctrl-C. Other hosts than this machine's own need `foreign`."""
    if not root.is_dir():
        raise InvalidInput(f"the folder {root} does not exist: name a folder with runs")
    if not is_loopback(host) and not foreign:
        raise InvalidInput(
            f"--host {host}: others could read your runs; add --allow-others if that is what you want"
        )
    try:
        import uvicorn

        from feddag.reporting.dashboard.app import make_app
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"feddag dashboard needs {error.name}, which is not installed: pip install 'feddag[dashboard]'"
        ) from None
    from feddag.reporting.dashboard.watch import Watch

    listener = _listen(host, port)
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    app = make_app(Watch(root), token, [f"{name}:{port}" for name in names])
    shown = f"[{host}]" if ":" in host else host
    say(f"dashboard of {root}: http://{shown}:{port}/?token={token}")
    say("the address is a password: whoever knows it can read these runs; Ctrl-C ends the dashboard")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none")
    config.timeout_graceful_shutdown = 1
    uvicorn.Server(config).run(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidInput(f"{host}:{port} cannot be listened on: {error.strerror or error}") from None
    return listener
