# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a round.

Without secure sums: a share of all clients, drawn by chance. With them a cluster learns nothing from fewer
clients than a sum needs. So none or enough of a cluster are drawn: clusters whose share of the places is too
small for a sum take turns. On average everybody takes part as often as without secure sums.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feddag.core.clusters import Clusters
from feddag.core.seeds import Seed
from feddag.core.task import ClientId
from feddag.core.text import plural
from feddag.experiment.settings import Experiment

# From round to round the marks of `marked` move on by the golden section: every part of a line is met as
# often as its length says, and none waits long.
STEP = (math.sqrt(5) - 1) / 2
PARTS = 10**9  # of the distance between two marks


def drawn(
    experiment: Experiment,
    seed: Seed,
    round_: int,
    clients: Sequence[ClientId],
    labels: Mapping[ClientId, int],
) -> tuple[ClientId, ...]:
    """The cohort of a round, sorted; `labels` are the clusters of those clients whose cluster is known."""
    generator = (seed / "cohort" / round_).numpy()
    size = experiment.cohort_size(len(clients), at_least=1)
    cohort = [str(c) for c in generator.choice(clients, size=size, replace=False)]
    members = _members(clients, labels)
    if experiment.privacy.masks and len(members) > 1:
        least = experiment.privacy.update.min_group
        turn = (seed / "turns").numpy().random() + round_ * STEP
        number = places({z: len(group) for z, group in members.items()}, size / len(clients), least, turn)
        cohort = [c for c in cohort if c not in labels]
        for z, count in sorted(number.items()):
            chosen = (seed / "cohort" / round_ / z).numpy().permutation(members[z])[:count]
            cohort += [str(c) for c in chosen]
    return tuple(sorted(cohort))


def places(sizes: Mapping[int, int], share: float, least: int, turn: float) -> dict[int, int]:
    """How many of each cluster take part: none, or at least `least`; on average `share` of its clients.

    Clusters with fewer than `least` clients never do. At least one cluster takes part if any can.
    """
    fair = {z: share * n for z, n in sorted(sizes.items()) if n >= least}
    large = {z: n for z, n in fair.items() if n >= least}
    often = {z: n / least for z, n in fair.items() if n < least}  # the share of rounds that it takes part in
    total = sum(often.values())
    if not large and 0 < total < 1:
        often = {z: p / total for z, p in often.items()}
    turns = {z: least * hit for z, hit in marked(often, turn).items()}
    return {z: n for z, n in (turns | marked(large, turn)).items() if n}


def marked(lengths: Mapping[int, float], turn: float) -> dict[int, int]:
    """Parts of these lengths lie one after the other, with a mark at every whole number plus `turn`.

    How many marks are in each part: its length rounded down or up, and so for all parts together.
    """
    # In whole numbers: rounding must not put a third mark into a part of length 2.
    ends = np.rint(np.cumsum([0.0, *lengths.values()]) * PARTS).astype(np.int64) + int(turn % 1 * PARTS)
    return {z: int(n) for z, n in zip(lengths, np.diff(ends // PARTS), strict=True)}


def too_small(
    experiment: Experiment, clients: Sequence[ClientId], labels: Mapping[ClientId, int]
) -> list[dict[str, Any]]:
    """The clusters that no secure sum can be made of, as the notes of a round tell them."""
    least, members = experiment.privacy.update.min_group, _members(clients, labels)
    if not experiment.privacy.masks or len(members) < 2:
        return []
    return [
        {"group": z, "why": f"the cluster has {plural(len(group), 'client')}, a sum needs {least}"}
        for z, group in sorted(members.items())
        if len(group) < least
    ]


def fixed_labels(state: Any) -> dict[ClientId, int]:
    """Client → cluster, for methods whose clusters are known before a round; else nothing."""
    clusters = getattr(state, "clusters", None)
    return clusters.labels() if isinstance(clusters, Clusters) else {}


def _members(clients: Sequence[ClientId], labels: Mapping[ClientId, int]) -> dict[int, list[ClientId]]:
    found: dict[int, list[ClientId]] = {}
    for client in clients:
        if client in labels:
            found.setdefault(labels[client], []).append(client)
    return found
