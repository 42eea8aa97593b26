# SPDX-License-Identifier: Apache-2.0
"""Everything a user can name, with a line of help each, for `feddag list` and the documentation."""

from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from feddag.algorithms import ALGORITHMS
from feddag.core.deployment import LocalTraining
from feddag.data.catalog import DATASETS
from feddag.data.dealing.partitions import PARTITIONS
from feddag.experiment.recipes import RECIPES
from feddag.experiment.settings import Experiment
from feddag.models import FAMILIES

Rows = list[tuple[str, str]]

ENGINES = {
    "process": "persistent worker processes, one per core; the default",
    "inline": "one client after another in this process; for debugging",
}


def tables() -> dict[str, Rows]:
    """Table name → (name, help) rows."""
    return {
        "algorithms": [(name, first_line(cls)) for name, cls in ALGORITHMS.items()],
        "datasets": [(name, dataset.help) for name, dataset in DATASETS.items()],
        "partitions": [(name, partition.help) for name, partition in PARTITIONS.items()],
        "models": [(name, family.help) for name, family in FAMILIES.items()]
        + [("module:factory", "your own: factory(input_shape, num_classes) returns an nn.Module")],
        "recipes": [(name, first_line(recipe)) for name, recipe in RECIPES.items()],
        "engines": list(ENGINES.items()),
        "settings": settings(Experiment),
    }


def first_line(thing: Any) -> str:
    """First line of a docstring."""
    return (thing.__doc__ or "").strip().splitlines()[0]


def settings(section: Any, prefix: str = "") -> Rows:
    """Every setting with its default and its meaning, on one screen."""
    rows: Rows = []
    for name, info in section.model_fields.items():
        default = info.get_default(call_default_factory=True)
        if isinstance(default, LocalTraining):
            rows += [(f"{prefix}{name}.{f.name}", f"{getattr(default, f.name)}") for f in fields(default)]
        elif isinstance(default, BaseModel) and name in ("engine", "evaluation", "algorithm"):
            rows += settings(type(default), f"{prefix}{name}.")
        elif isinstance(default, BaseModel):
            key = "kind" if name == "partition" else "name"
            rows.append((f"{prefix}{name}.{key}", f"{getattr(default, key)}: {info.description}"))
        else:
            rows.append((prefix + name, f"{default}: {info.description}"))
    return rows
