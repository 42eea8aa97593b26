# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases: one run of a project per run folder; WANDB_MODE=offline keeps everything on the disk."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddag.reporting.trackers.numbers import final_scores


class WeightsAndBiases:
    """Settings, numbers per round, the headline as summary."""

    def __init__(self, project: str, folder: Path, name: str) -> None:
        import wandb

        self._wandb, self._project, self._folder, self._name = wandb, project, folder, name
        self._run: Any = None

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Begin, or go on: the folder names the run."""
        self._run = self._wandb.init(
            project=self._project,
            name=self._name,
            id=hashlib.sha256(str(self._folder.absolute()).encode()).hexdigest()[:16],
            resume="allow",
            dir=str(self._folder),
            config=dict(settings),
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One point per number."""
        self._run.log({**numbers, "round": step})

    def end(self, result: Mapping[str, Any] | None) -> None:
        """The headline, and how the run ended."""
        if self._run is None:
            return
        if result is not None:
            self._run.summary.update(final_scores(result))
        self._run.finish(exit_code=0 if result is not None else 1)
