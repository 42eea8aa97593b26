# SPDX-License-Identifier: Apache-2.0
"""The report of run folders: everything that is needed is read from the folders."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from feddag.core.errors import FederationError, InvalidInput, cannot_write
from feddag.reporting.pages.report.run_data import RunData, labelled, read_run
from feddag.reporting.pages.report.write import write_report


def with_clusters(run: RunData) -> RunData:
    """The run with the clusters of its newest checkpoint, if it is not finished and they can be read."""
    if run.result or run.clustering or not (run.folder / "checkpoints").is_dir():
        return run
    from feddag.reporting.pages.why import why_block
    from feddag.runs.result import found_clusters
    from feddag.runs.simulate import newest_state

    try:
        found = found_clusters(*newest_state(run.folder))
    except (FederationError, OSError):  # no clusters, no checkpoint yet, or the data are not here
        return run
    return replace(run, labels=found[0].clusters.labels(), clustering=why_block(*found))


def called_apart(runs: Sequence[RunData]) -> list[RunData]:
    """Runs with short names that differ: the method, or method and seed, or method and folder."""
    seeds = [f"{run.method}, seed {run.settings.get('seed')}" for run in runs]
    folders = [
        f"{run.method}: {name}" for run, name in zip(runs, labelled([r.folder for r in runs]), strict=True)
    ]
    for names in ([run.method for run in runs], seeds, folders):
        if len(set(names)) == len(runs):
            return [replace(run, label=name) for run, name in zip(runs, names, strict=True)]
    return list(runs)


def write_report_of(folders: Sequence[Path], path: Path) -> Path:
    """Write the page about these runs, finished or not; returns its path."""
    if not folders:
        raise InvalidInput("no run folder was named: at least one is needed")
    folders = list(dict.fromkeys(folders))
    runs = called_apart([with_clusters(read_run(folder)) for folder in folders])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    return write_report(runs, path)
