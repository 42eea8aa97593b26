# SPDX-License-Identifier: Apache-2.0
"""One run of a comparison in a process of its own: `python -m feddag.compare.cell FOLDER`.

The first line of standard input holds the settings as JSON; when the input ends, because the comparison was
stopped or killed, the run stops too, at a checkpoint. Progress goes to standard output, a JSON object a line.
"""

import _thread
import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from feddag.core.errors import FederationError, Interrupted
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import resume, run


def tell(event: dict[str, Any]) -> None:
    """Pass on what a table of many runs shows."""
    if event["event"] == "round":
        print(json.dumps({"round": event["round"]}), flush=True)
    elif event["event"] == "evaluation":
        print(json.dumps({"round": event["round"], "scores": event["test"]}), flush=True)


def main() -> None:
    """Run or resume, whatever the folder needs."""
    folder = Path(sys.argv[1])
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_input, daemon=True).start()
    try:
        if (folder / "experiment.json").is_file():
            resume(folder, watch=tell)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # was killed before its settings were written
            run(Experiment.from_settings(settings), folder=folder, watch=tell)
    except (Interrupted, KeyboardInterrupt):
        sys.exit(130)
    except FederationError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _stop_with_input() -> None:
    sys.stdin.read()
    _thread.interrupt_main()


if __name__ == "__main__":
    main()
