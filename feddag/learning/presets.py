# SPDX-License-Identifier: Apache-2.0
"""Named sets of FedDAG's settings: `algorithm.preset`, and rows of a comparison such as `feddag[paper]`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

FORMER = {
    "similarity": "signature.views",
    "clustering.views": "signature.views",
    "weighting": "clustering.class_weighting",
    "rule": "clustering.cut_rule",
    "encoders": "encoders.count",
    "combine": "encoders.combine_learners",
    "schedule": "encoders.primary_rounds",
}
"""Former names of settings that have another name now; those that only moved into a group are not here."""


def former_names(groups: Mapping[str, Any]) -> dict[str, str]:
    """Former name of a setting → its name now: all settings were once in no group."""
    moved = {f.name: f"{group}.{f.name}" for group, options in groups.items() for f in fields(options)}
    return {**moved, **FORMER}


# Clusters that learn nothing from each other by whole models.
ALONE: dict[str, Any] = {"shared_start": {"rounds": 0.0}, "mixture": {"most": 0}}
# Two encoders from a warm-up of all clients, each cluster with its own from the start.
TWO_ENCODERS: dict[str, Any] = {
    "signature": {"views": ["pixels", "shape", "texture", "gradient"]},
    "encoders": {"count": 2, "primary_start": "warm"},
    **ALONE,
    "seen_labels": False,
}
PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "two_encoders": TWO_ENCODERS,
    "paper": {  # literal, wherever the paper can be computed literally
        "signature": {"views": ["pixels", "gradient"], "side": 0, "vectors": 0.01},
        "clustering": {
            "angles": "pairs",
            "class_weighting": "frequency",
            "weigh_absent": True,
            "fusion": "mlp",
            "fusion_rule": "row",
            "cut_rule": "loss",
        },
        "graph": {"lacking_classes": False, "shared_alignment": False},
        "encoders": {
            **TWO_ENCODERS["encoders"],
            "combine_learners": "sum",
            "source_updates": "sum",
            "phases": "parallel",
            "head_start": "random",
            "secondary_start": "random",
        },
        **ALONE,
        "seen_labels": False,
    },
    # FedDAG* and FedDAG† of the paper's tables: clusters that learn nothing from each other
    "one_encoder": ALONE,
    # clusters have one model only as long as validation samples agree, and use their own models alone
    "shared_start": {"shared_start": {"rounds": 0.4, "pull": 1.0, "evidence": True}, "mixture": {"most": 0}},
    "no_sharing": {**TWO_ENCODERS, "encoders": {**TWO_ENCODERS["encoders"], "sharing": False}},
}
