# SPDX-License-Identifier: Apache-2.0
"""Skews that can be added to any base kind: feature, concept, quantity; and clients that join later."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.data.config import ConceptMap, FeatureConfig, QuantityConfig
from feddag.data.corruptions import CORRUPTIONS
from feddag.data.dataset import Dataset
from feddag.data.dealing.allocate import dirichlet

CLEAN = "clean"


@dataclass(frozen=True)
class Styles:
    """Feature skew: which style (a domain or a corruption) each client's inputs have."""

    kind: str  # "domain" | "corruption"
    names: tuple[str, ...]
    of_client: np.ndarray  # (clients,) index into names


def choose_styles(dataset: Dataset, feature: FeatureConfig, clients: int, rng: np.random.Generator) -> Styles:
    """Give every client one domain or one corruption."""
    kind = feature.kind
    if kind == "auto":
        kind = "corruption" if dataset.domains is None else "domain"
    if kind == "domain":
        if dataset.domains is None:
            raise InvalidInput(
                f"partition.feature.kind 'domain': dataset '{dataset.source.dataset}' has no domains"
            )
        known: tuple[str, ...] = dataset.domains.names
    else:
        check_images(dataset, "partition.feature.kind 'corruption'")
        known = (CLEAN, *CORRUPTIONS)
    unknown = [name for name in feature.types if name not in known]
    if unknown:
        raise InvalidInput(
            f"partition.feature.types: '{unknown[0]}' is not one of the {kind}s {', '.join(known)}"
        )
    names = feature.types or known
    if feature.assign == "random":
        return Styles(kind, names, rng.integers(len(names), size=clients))
    return Styles(kind, names, rng.permutation(np.arange(clients) % len(names)))


def check_images(dataset: Dataset, where: str) -> None:
    """Refuse samples that cannot be corrupted."""
    shape = dataset.train.x.shape[1:]
    if dataset.train.x.dtype != np.uint8 or len(shape) != 3 or shape[0] not in (1, 3):
        raise InvalidInput(
            f"{where}: expected images of 1 or 3 channels with 8 bits, "
            f"but samples of '{dataset.source.dataset}' are {dataset.train.x.dtype} of shape {shape}"
        )


def label_map(name: str, num_classes: int) -> np.ndarray | None:
    """Stored class → the client's own label: y, C−1−y, (y+1) mod C, or two swapped; None is the identity."""
    y = np.arange(num_classes)
    if match := re.fullmatch(r"swap-(\d+)-(\d+)", name):
        a, b = (int(label) for label in match.groups())
        if a == b or max(a, b) >= num_classes:
            raise InvalidInput(f"label map '{name}': expected two different labels below {num_classes}")
        y[[a, b]] = b, a
        return y
    maps = {"identity": None, "reverse": num_classes - 1 - y, "shift": (y + 1) % num_classes}
    if name not in maps:
        raise InvalidInput(f"label map '{name}': expected {', '.join(maps)}, or for example swap-1-2")
    return maps[name]


def choose_concepts(maps: Sequence[ConceptMap], clients: int, rng: np.random.Generator) -> np.ndarray:
    """Index of the label map of each client, equally many clients per map."""
    if clients < len(maps):
        raise InvalidInput(
            f"partition.concept.maps: {len(maps)} concepts need at least as many clients, "
            f"but num_clients is {clients}"
        )
    return rng.permutation(np.arange(clients) % len(maps))


def keep_unequal_parts(
    rows: list[np.ndarray], quantity: QuantityConfig, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each client keeps a random part of its rows: its Dirichlet(α') share divided by the largest share."""
    shares = dirichlet(quantity.alpha, len(rows), rng)
    parts = shares / shares.max()
    smallest = min(len(r) for r in rows)
    if smallest < quantity.min_samples:
        raise InvalidInput(
            f"partition.quantity.min_samples: a client was dealt only {smallest} samples, "
            f"so it cannot keep at least {quantity.min_samples}"
        )
    return [
        np.sort(rng.choice(r, size=max(quantity.min_samples, round(part * len(r))), replace=False))
        for r, part in zip(rows, parts, strict=True)
    ]


def choose_newcomers(ids: Sequence[str], share: float, rng: np.random.Generator) -> tuple[str, ...]:
    """The clients that join later; at least one client is there from the start."""
    number = round(share * len(ids))
    if number == len(ids):
        raise InvalidInput(
            f"partition.newcomers: a share of {share} makes all {len(ids)} clients newcomers, "
            f"but one must start"
        )
    return tuple(sorted(str(c) for c in rng.choice(np.array(ids), size=number, replace=False)))
