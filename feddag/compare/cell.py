# SPDX-License-Identifier: Apache-2.0
"""One run of a comparison in its own process: `python -P -m feddag.compare.cell FOLDER`.

The first line of standard input holds the settings as JSON. When the input ends, because the comparison was
stopped or killed, the run stops too: at once while it still imports or builds data, later at a checkpoint.
Progress goes to standard output, one JSON object per line.
"""

import _thread
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

STOPPED = 130  # exit code
PATIENCE = 60.0  # seconds to reach a checkpoint after the input has ended

_started = threading.Event()  # the run has its folder: from now on there is something to save


def report(event: dict[str, Any]) -> None:
    """Pass on what a table of many runs shows."""
    _started.set()
    if event["event"] == "round":
        print(json.dumps({"round": event["round"]}), flush=True)
    elif event["event"] == "evaluation":
        print(json.dumps({"round": event["round"], "scores": event["test"]}), flush=True)


def main() -> None:
    """Run the experiment, or resume it if the folder holds one."""
    folder = Path(sys.argv[1])
    line = sys.stdin.readline()
    # A process inherits from its parent that Ctrl-C is ignored, as in background jobs of a shell. Here
    # Ctrl-C has to work, because `_stop_with_input` raises it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_with_input, daemon=True).start()
    # A user's own network may be in the current folder. It comes last: no file there replaces a library.
    sys.path.append(os.getcwd())
    try:
        _run(folder, line)
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def _run(folder: Path, line: str) -> None:
    # Slow imports come after the watch over the input has begun.
    from feddag.core.errors import FederationError, Interrupted
    from feddag.experiment.settings import Experiment
    from feddag.runs.simulate import resume, run

    try:
        if (folder / "experiment.json").is_file():
            resume(folder, watch=report)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # was killed before its settings were written
            run(Experiment.from_settings(json.loads(line)), folder=folder, watch=report)
    except Interrupted:
        sys.exit(STOPPED)
    except FederationError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _stop_with_input() -> None:
    while os.read(
        sys.stdin.fileno(), 4096
    ):  # not sys.stdin.read: its lock would block the end of the process
        pass
    if _started.is_set():
        _thread.interrupt_main()
        threading.Event().wait(PATIENCE)  # the process normally ends during this wait
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
