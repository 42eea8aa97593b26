# SPDX-License-Identifier: Apache-2.0
"""The Flower app: a ServerApp that drives a run, and a ClientApp that hands questions to its node's desk.

Flower starts a new process for every message to a node. So the ClientApp imports no torch and reads no data:
it passes the bytes on to the desk, a process that stays (`feddag.deploy.desk`), and waits for its answer.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from feddag.deploy.counter import through_the_desk
from feddag.engines.flower import MEGABYTE, FlowerPost, from_records, to_records

MOST_REQUEST = 1024 * MEGABYTE  # bytes of one request that a node takes

Forward = Callable[[Mapping[str, Any], bytes, bytes], tuple[bytes, bytes]]  # node config, head, body → same


def client_app(tasks: Iterable[str], forward: Forward = through_the_desk) -> ClientApp:
    """One handler per client task, one for evaluation, and one for the question who a node is."""
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        head, body = from_records(message.content, MOST_REQUEST)
        return Message(to_records(*forward(context.node_config, head, body)), reply_to=message)

    def echo(message: Message, context: Context) -> Message:
        """Flower alone, without any work: what a round costs at least."""
        return Message(message.content, reply_to=message)

    for task in tasks:
        app.train(task)(handle)
    app.evaluate("evaluate")(handle)
    app.query("hello")(handle)
    app.query("echo")(echo)
    return app


def server_app() -> ServerApp:
    """Drives the run in the folder that the run's configuration names."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # Not before: `flwr run` loads this module only to see whether it can be.
        from feddag.deploy.folders import ServerFolder
        from feddag.deploy.server import serve

        folder = ServerFolder(str(context.run_config["folder"]))
        (folder.folder / "serving").write_text(str(os.getpid()))
        serve(FlowerPost(grid, folder.config.max_reply_megabytes * MEGABYTE), folder.folder)

    return app


def main() -> None:
    """Run commands of Flower's own command line, one per argument (a list in JSON), in this one process."""
    from flwr.cli.app import app

    for call in sys.argv[1:]:
        try:
            app(json.loads(call), standalone_mode=False)
        except SystemExit as stop:
            if stop.code:
                raise
        sys.stdout.flush()


if __name__ == "__main__":
    main()
