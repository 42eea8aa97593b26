# SPDX-License-Identifier: Apache-2.0
"""One run in its folder, from the last valid checkpoint to the result, whoever carries the questions."""

import contextlib
import time
from pathlib import Path
from typing import Any

from feddag.core.engine import Engine, Presence
from feddag.core.errors import FederationError, Interrupted, InvalidInput, cannot_write
from feddag.core.plugins import folder_name
from feddag.experiment.settings import Experiment
from feddag.reporting.trackers import Tracking, open_trackers
from feddag.runs.checkpoint import latest_checkpoint
from feddag.runs.driver import Driver, Watch
from feddag.runs.events import EventLog, LogPrefix
from feddag.runs.prepare import Facts, Prepared
from feddag.runs.result import write_result


def drive(
    prepared: Prepared,
    engine: Engine,
    presence: Presence,
    facts: Facts,
    folder: Path,
    watch: Watch,
    about: dict[str, Any],
    go_on: str = "",
) -> None:
    """Run or go on with the rounds in a folder that the caller has locked, and write the result.

    `about` is what the log says first; `go_on` is the command that resumes the run.
    """
    checkpoints = folder / "checkpoints"
    found, problems = latest_checkpoint(checkpoints, prepared.state_class, engine.restore_memories)
    if found:
        _check_same(folder, prepared, facts, found[0].experiment, found[0].data)
    keep = LogPrefix(found[0].log_bytes, found[0].log_sha256) if found else LogPrefix()
    log = EventLog(folder / "events.jsonl", keep)
    experiment = prepared.experiment
    tracking = Tracking(watch, lambda: open_trackers(experiment.track, folder, experiment.name))
    try:
        driver = Driver(prepared, engine, presence, checkpoints, log, tracking, facts)
        if found:
            driver.continue_from(*found)
        driver.record("resumed" if found else "started", **about)
        for problem in problems:
            driver.record("warning", text=problem)
        _run_to_the_end(driver, folder, facts, go_on or f"feddag resume {folder}")
    finally:
        log.close()
        tracking.close()


def _run_to_the_end(driver: Driver, folder: Path, facts: Facts, go_on: str) -> None:
    try:
        driver.run_rounds()
        write_result(driver, folder, facts)
    except KeyboardInterrupt:
        driver.checkpoint()
        where = "before the first checkpoint"
        if driver.saved_round >= 0:
            where = f"after round {driver.saved_round}"
        raise Interrupted(f"stopped {where}; go on with: {go_on}") from None
    except FederationError:
        with contextlib.suppress(FederationError):  # the first error says what is wrong
            driver.checkpoint()
        raise
    except ConnectionError:  # the way to the clients, not a file
        raise
    except OSError as error:  # a file of the result
        raise cannot_write(Path(error.filename or folder), error) from error


def _check_same(folder: Path, prepared: Prepared, facts: Facts, settings_then: str, data_then: str) -> None:
    """Refuse to go on with other settings or other data than the checkpoint was made with."""
    for what, then, now in (
        ("settings", settings_then, prepared.experiment.digest),
        ("data", data_then, facts.digest()),
    ):
        if then != now:
            raise InvalidInput(
                f"the checkpoint in {folder} was made with other {what}: restore them, or start a new run"
            )


def new_folder(root: Path, experiment: Experiment) -> Path:
    """A free run folder: root/<algorithm>/<dataset>/<time>-<name>."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    method, data = folder_name(experiment.algorithm.name), folder_name(experiment.data.name)
    return free_path(root / method / data / f"{stamp}-{experiment.name}")


def free_path(base: Path) -> Path:
    """The path, or the first one with a number behind it that is free."""
    candidates = (base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000)))
    return next(path for path in candidates if not path.exists())
