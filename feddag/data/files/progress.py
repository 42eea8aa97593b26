# SPDX-License-Identifier: Apache-2.0
"""Progress bars on the error stream: they vanish when the work is done, and appear only in a terminal."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

MANY = 10_000  # images; fewer need no bar, because they are made quickly


@contextlib.contextmanager
def progress_bar(
    name: str, total: int | None, done: int = 0, is_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar; the caller reports how much is done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total, completed=done)
        yield lambda completed: progress.update(task, completed=completed)


def watched(chunks: Iterable[np.ndarray], total: int, name: str) -> Iterator[np.ndarray]:
    """The same chunks, with a bar if there are many samples."""
    if total < MANY:
        yield from chunks
        return
    done = 0
    with progress_bar(name, total) as update:
        for chunk in chunks:
            done += len(chunk)
            update(done)
            yield chunk
