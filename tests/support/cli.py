# SPDX-License-Identifier: Apache-2.0
"""The command line in this process: fast, and with real exit codes."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from feddag.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str


def feddag(*words: object) -> Done:
    """Type a command."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["feddag", *map(str, words)]),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
