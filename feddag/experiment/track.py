# SPDX-License-Identifier: Apache-2.0
"""`[track]`: which trackers of other people see the numbers of a run."""

from importlib.util import find_spec

from pydantic import BaseModel, ConfigDict, Field

from feddag.core.errors import InvalidInput


class TrackConfig(BaseModel):
    """`[track]`: one setting for each tracker; none of them changes a result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensorboard: bool = Field(
        default=False, description="event files for TensorBoard in the folder tensorboard/ of the run"
    )
    mlflow: str = Field(
        default="", description="tracking address of MLflow, such as sqlite:///mlflow.db or http://…"
    )
    wandb: str = Field(default="", description="project of Weights & Biases")

    def check_installed(self) -> None:
        """Refuse a tracker whose package is not there, before anything runs."""
        for package in ("tensorboard", "mlflow", "wandb"):
            if getattr(self, package) and find_spec(package) is None:
                raise InvalidInput(f"track.{package} needs {package} (pip install 'feddag[{package}]')")
