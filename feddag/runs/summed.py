# SPDX-License-Identifier: Apache-2.0
"""Scores as sums over clusters: what a server records where a client's own numbers are its own."""

from collections.abc import Iterable, Mapping

import numpy as np

from feddag.core.task import ClientId
from feddag.learning.evaluation import Evaluated, Scores

LEAST = 3  # clients in a sum: a sum of one is that client's number, and of two each knows the other's


def summed(replies: Mapping[ClientId, Evaluated], labels: Mapping[ClientId, int]) -> dict[str, Evaluated]:
    """One entry per cluster, named after it; clusters that are too small are summed together.

    Fewer than three clients in all have no sum.
    """
    groups: dict[str, list[Evaluated]] = {}
    for client, reply in replies.items():
        groups.setdefault(f"cluster {labels.get(client, 0)}", []).append(reply)
    small = sorted((name for name in groups if len(groups[name]) < LEAST), key=lambda n: (len(groups[n]), n))
    together: list[Evaluated] = [reply for name in small for reply in groups.pop(name)]
    if together and len(together) < LEAST and groups:
        # Even together they are too few: the smallest other cluster takes them in.
        name = min(groups, key=lambda n: (len(groups[n]), n))
        small, together = [name, *small], [*groups.pop(name), *together]
    if len(together) >= LEAST:
        groups[", ".join(sorted(small))] = together
    return {name: _sum(groups[name]) for name in sorted(groups)}


def _sum(replies: list[Evaluated]) -> Evaluated:
    return Evaluated(
        test=_sum_of(reply.test for reply in replies),
        validation=_sum_of(reply.validation for reply in replies),
        test_after=_optional([reply.test_after for reply in replies]),
        validation_after=_optional([reply.validation_after for reply in replies]),
    )


def _optional(scores: list[Scores | None]) -> Scores | None:
    known = [score for score in scores if score is not None]
    return _sum_of(known) if known else None


def _sum_of(scores: Iterable[Scores]) -> Scores:
    parts = list(scores)
    return Scores(
        total=np.sum([part.total for part in parts], axis=0),
        correct=np.sum([part.correct for part in parts], axis=0),
        loss=float(sum(part.loss for part in parts)),
    )
