# SPDX-License-Identifier: Apache-2.0
"""TensorBoard: event files in a folder, for `tensorboard --logdir`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feddag.reporting.trackers.numbers import final_scores


class TensorBoard:
    """Scalars per round, the settings as text."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        self._step = 0

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings down."""
        self._writer.add_text("settings", f"```json\n{json.dumps(settings, indent=1)}\n```")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """One point per number."""
        self._step = step
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def end(self, result: Mapping[str, Any] | None) -> None:
        """The headline, and everything on the disk."""
        if result is not None:
            self.log(final_scores(result), self._step)
        self._writer.close()
