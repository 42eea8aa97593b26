# SPDX-License-Identifier: Apache-2.0
"""Hints that a run can give about itself while it runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from feddag.core.contract import HUGE
from feddag.core.text import plural

EVALUATIONS = 2  # a hint is given after this many, and only then
ROUND_OF_SUMS = 3  # the round in which is said that clusters are left out
NEAR = 0.07  # a loss within this share of chance is near it
OUT_OF_HAND = ("expected finite numbers", "expected a finite number", f"to {HUGE:g}")  # of refused replies
FALL = 0.03  # a loss that has fallen by this share of chance is on its way


def left_out(round_: int, notes: Mapping[str, Any]) -> str:
    """One sentence, after the round in which it is said, if clusters had too few clients for a secure sum."""
    refused = notes.get("refused_sums", ())
    if round_ != ROUND_OF_SUMS or not refused:
        return ""
    reasons = {refusal["group"]: refusal["why"] for refusal in refused}
    drawn = any("took part" in why for why in reasons.values())
    return (
        f"round {round_}: {plural(len(reasons), 'cluster')} learned nothing, because a secure sum needs more "
        f"clients (privacy.update.min_group): {next(iter(reasons.values()))}"
        + ("; raise fraction_train" if drawn else "")
    )


def diverged(failures: Sequence[str], asked: int) -> str:
    """One sentence if at least half of the asked clients failed because numbers got out of hand, else ""."""
    gone = [reason for reason in failures if any(words in reason for words in OUT_OF_HAND)]
    if not gone or 2 * len(gone) < asked:
        return ""
    return (
        f"training diverged: {len(gone)} of {asked} clients got numbers that are huge or not finite; "
        "lower training.lr (a tenth of it is a good start), or check the scale of the samples"
    )


def stalled(losses: Sequence[float], num_classes: int) -> str:
    """One sentence if training stands still near chance, else "".

    `losses` are the mean cross-entropies of all evaluations so far, the latest last. Without any knowledge
    a model has the loss ln C. The hint is given once, after the second evaluation: after a single one,
    nobody knows whether the loss falls.
    """
    if len(losses) != EVALUATIONS or num_classes < 2:
        return ""
    chance, first, last = math.log(num_classes), losses[0], losses[-1]
    if not abs(last - chance) <= NEAR * chance or first - last >= FALL * chance:
        return ""
    return (
        f"loss {last:.2f} is near chance ({chance:.2f}): raise training.lr or training.local_epochs, "
        "or lower training.batch_size"
    )
