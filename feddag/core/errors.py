# SPDX-License-Identifier: Apache-2.0
"""Every error a user can meet, each one sentence that says what was wrong, where, and what was expected."""

import errno
from pathlib import Path


class FederationError(Exception):
    """A problem the user can understand and act on; the command line prints it and exits with code 2."""


class InvalidInput(FederationError):
    """A setting, file or argument is not what it has to be."""


class InvalidMessage(FederationError):
    """A message has a missing, unknown, mistyped, misshapen or non-finite field."""

    def __init__(self, field: str, expected: str, got: str) -> None:
        self.field, self.expected, self.got = field, expected, got
        super().__init__(f"field '{field}': expected {expected}, got {got}")


class ClientFailed(FederationError):
    """One client could not answer one question; the round goes on without it."""

    def __init__(self, client: str, task: str, round_: int, reason: str) -> None:
        self.client, self.task, self.round, self.reason = client, task, round_, reason
        super().__init__(f"client '{client}', task '{task}', round {round_}: {reason}")


class QuorumMissed(FederationError):
    """Too few clients answered for the round to count."""

    def __init__(
        self, task: str, round_: int, answered: int, needed: int, asked: int, failures: list[ClientFailed]
    ) -> None:
        self.failures = failures
        first = f"; first failure: {failures[0]}" if failures else ""
        super().__init__(
            f"round {round_}, task '{task}': {answered} of {asked} clients answered, "
            f"{needed} are needed{first}"
        )


class Interrupted(FederationError):
    """The user stopped the run; everything up to the last checkpoint is kept."""


def cannot_write(path: Path, error: OSError) -> FederationError:
    """What to say when the disk refuses; a full disk is named as such."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FederationError(
            f"no space left while writing {path}: what was saved before is intact, free some space and resume"
        )
    return FederationError(f"{path} could not be written: {error.strerror or error}")
