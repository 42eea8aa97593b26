# SPDX-License-Identifier: Apache-2.0
"""The report of run folders: everything that is needed is read from the folders."""

from collections.abc import Sequence
from pathlib import Path

from feddag.core.errors import InvalidInput, cannot_write
from feddag.reporting.pages.report.run_data import labelled, read_run
from feddag.reporting.pages.report.write import write_report


def write_report_of(folders: Sequence[Path], path: Path) -> Path:
    """Write the page about these runs, finished or not; returns its path."""
    if not folders:
        raise InvalidInput("no run folder was named: at least one is needed")
    folders = list(dict.fromkeys(folders))
    runs = [read_run(folder, label) for folder, label in zip(folders, labelled(folders), strict=True)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    return write_report(runs, path)
