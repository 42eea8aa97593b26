# SPDX-License-Identifier: Apache-2.0
"""The base kinds of partition: labels in, one list of rows per client out, with the planted groups.

Each function looks at labels only, checks first whether what is asked for is possible, and is exact: a sample
goes to at most one client.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddag.core.errors import FederationError, InvalidInput
from feddag.core.plugins import Table, in_one_line
from feddag.data.config import PartitionConfig
from feddag.data.dealing.allocate import (
    deal,
    dirichlet,
    log_dirichlet,
    normalise,
    raise_to_least,
    round_to_total,
)
from feddag.data.dealing.planting import PlantedGroups, label_groups, label_pairs, no_groups, one_group


@dataclass(frozen=True)
class DealingJob:
    """One block of samples to deal: their labels, the number of clients, the settings and the generator."""

    y: np.ndarray
    num_classes: int
    clients: int
    config: PartitionConfig
    rng: np.random.Generator
    holds_NC: np.ndarray | None = None  # which client may hold which class; None: every class
    place: str = ""  # " of domain 'photo'", for sentences


def iid(job: DealingJob) -> list[np.ndarray]:
    """Equal sizes (they differ by at most one); each client gets a random part of all samples."""
    _enough_samples(job, 1)
    return np.array_split(job.rng.permutation(len(job.y)), job.clients)


def by_holders(job: DealingJob) -> list[np.ndarray]:
    """Each label is dealt to its holders by Dirichlet(α'); every holder gets at least one sample of it."""
    assert job.holds_NC is not None
    available = np.bincount(job.y, minlength=job.num_classes)
    counts = np.zeros((job.clients, job.num_classes), dtype=np.int64)
    for c in range(job.num_classes):
        holders = np.flatnonzero(job.holds_NC[:, c])
        if len(holders) > available[c]:
            raise InvalidInput(
                f"partition.kind '{job.config.kind}': class {c}{job.place} has {available[c]} training "
                f"samples, but {len(holders)} clients hold it and each needs at least 1"
            )
        if len(holders):
            shares = dirichlet(job.config.alpha, len(holders), job.rng)
            counts[holders, c] = round_to_total(shares, int(available[c]), least=1)
    return deal(job.y, counts, job.rng)


def lda(job: DealingJob) -> list[np.ndarray]:
    """Distribution III: latent Dirichlet allocation, in the class-wise form or that of Hsu et al."""
    least = _least(job)
    counts = _lda_classwise(job) if job.config.form == "classwise" else _lda_hsu(job)
    return deal(job.y, raise_to_least(counts, least, job.rng), job.rng)


def _lda_classwise(job: DealingJob) -> np.ndarray:
    """Each class is dealt by Dirichlet(α'); a client that has reached the mean size gets no more classes."""
    available = np.bincount(job.y, minlength=job.num_classes)
    counts = np.zeros((job.clients, job.num_classes), dtype=np.int64)
    sizes = np.zeros(job.clients, dtype=np.int64)
    for c in job.rng.permutation(job.num_classes):
        logs = log_dirichlet(np.full(job.clients, job.config.alpha), job.rng)
        below_mean = sizes * job.clients < len(job.y)
        if available[c]:  # samples are left, so at least one client is below the mean
            counts[:, c] = round_to_total(normalise(logs, below_mean), int(available[c]))
            sizes += counts[:, c]
    return counts


def _lda_hsu(job: DealingJob) -> np.ndarray:
    """All clients have the same size; each draws its class mix from Dirichlet(α'·class shares)."""
    left = np.bincount(job.y, minlength=job.num_classes)
    shares = left / left.sum()
    present = left > 0
    counts = np.zeros((job.clients, job.num_classes), dtype=np.int64)
    sizes = np.full(job.clients, len(job.y) // job.clients)
    sizes[: len(job.y) % job.clients] += 1
    alphas = np.where(present, job.config.alpha * shares, 1.0)
    logs_NC = log_dirichlet(np.broadcast_to(alphas, counts.shape), job.rng)
    for i in range(job.clients):
        wanted = int(sizes[i])
        while wanted:  # each pass is the last one or uses up at least one class
            drawn = np.minimum(job.rng.multinomial(wanted, normalise(logs_NC[i], left > 0)), left)
            counts[i] += drawn
            left = left - drawn
            wanted -= int(drawn.sum())
    return counts


def quantity(job: DealingJob) -> list[np.ndarray]:
    """Sizes from Dirichlet(α'), classes by chance."""
    least = _least(job)
    shares = dirichlet(job.config.alpha, job.clients, job.rng)
    sizes = round_to_total(shares, len(job.y), least=least)
    return np.split(job.rng.permutation(len(job.y)), np.cumsum(sizes)[:-1])


def _least(job: DealingJob) -> int:
    """Samples that each client must hold: the setting, or the smaller of 10 and half the mean size."""
    if job.config.min_samples is not None:
        _enough_samples(job, job.config.min_samples)
        return job.config.min_samples
    _enough_samples(job, 1)
    return max(1, min(10, len(job.y) // (2 * job.clients)))


def _enough_samples(job: DealingJob, least: int) -> None:
    if job.clients * least > len(job.y):
        raise InvalidInput(
            f"partition.kind '{job.config.kind}': {job.clients} clients with at least {least} training "
            f"samples each need {job.clients * least} samples{job.place}, but there are {len(job.y)}"
        )


@dataclass(frozen=True)
class PartitionKind:
    """One base kind: a line of help, the function that plants groups, the function that deals samples."""

    help: str
    plant: Callable[[int, int, PartitionConfig, np.random.Generator], PlantedGroups]
    split: Callable[[DealingJob], list[np.ndarray]] | None = None  # None: by owner


_OURS: dict[str, PartitionKind] = {
    "iid": PartitionKind("equal sizes, classes by chance; one planted group", one_group, iid),
    "label-groups": PartitionKind(
        "Distribution I: groups hold a share of the labels, Dirichlet inside", label_groups, by_holders
    ),
    "label-pairs": PartitionKind(
        "many clusters: every group holds its own two labels, Dirichlet inside", label_pairs, by_holders
    ),
    "lda": PartitionKind("Distribution III: latent Dirichlet allocation; no planted groups", no_groups, lda),
    "quantity": PartitionKind("Dirichlet sizes, classes by chance; one planted group", one_group, quantity),
    "natural": PartitionKind("the data's own clients (people, speakers, files)", no_groups),
}


def _users_own(name: str, function: Any) -> PartitionKind:
    """The kind of a user's function: (labels, number of clients, generator) → rows of each client."""
    if not callable(function):
        raise InvalidInput(f"partition '{name}': expected a function, got {type(function).__name__}")

    def split(job: DealingJob) -> list[np.ndarray]:
        try:
            rows = [np.asarray(part) for part in function(job.y, job.clients, job.rng)]
        except FederationError:
            raise
        except Exception as error:
            raise InvalidInput(f"partition '{name}' failed: {in_one_line(error)}") from error
        if len(rows) != job.clients:
            raise InvalidInput(f"partition '{name}' gave rows for {len(rows)} of {job.clients} clients")
        dealt = np.concatenate(rows) if any(len(part) for part in rows) else np.empty(0, dtype=np.int64)
        if dealt.dtype.kind not in "iu" or dealt.ndim != 1:
            raise InvalidInput(f"partition '{name}': expected row numbers, got {dealt.dtype}")
        if len(dealt) and not 0 <= dealt.min() <= dealt.max() < len(job.y):
            raise InvalidInput(f"partition '{name}': expected rows from 0 to {len(job.y) - 1}{job.place}")
        if len(np.unique(dealt)) < len(dealt):
            raise InvalidInput(f"partition '{name}' gave a row to two clients, or twice to one")
        return [part.astype(np.int64) for part in rows]

    help_ = (function.__doc__ or "").strip().splitlines() or ["a user's own"]
    return PartitionKind(help_[0], no_groups, split)


PARTITIONS: Table[PartitionKind] = Table("partition", _OURS, _users_own)
