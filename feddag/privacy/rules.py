# SPDX-License-Identifier: Apache-2.0
"""One rule for every level and kind. What has no rule, or is refused at a level, does not start."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from feddag.core.errors import InvalidInput
from feddag.core.message import Kind, sensitive_kinds
from feddag.core.task import ClientTask
from feddag.privacy.config import PrivacyOptions

Treatment = Literal["plain", "at-least-50", "noise", "mode", "listed", "refused"]

GUARDED: dict[Kind, Treatment] = {
    Kind.UPDATE: "mode",
    Kind.SUBSPACES: "at-least-50",
    Kind.COUNTS: "plain",
    Kind.MEANS: "plain",
    Kind.EMBEDDING: "plain",
    Kind.LOSSES: "plain",
    Kind.SCORES: "plain",
    Kind.CLUSTER: "plain",
}
PRIVATE: dict[Kind, Treatment] = {
    Kind.UPDATE: "mode",
    Kind.SUBSPACES: "noise",
    Kind.COUNTS: "noise",
    Kind.MEANS: "refused",
    Kind.EMBEDDING: "refused",
    Kind.LOSSES: "refused",
    Kind.SCORES: "listed",  # results on held-out samples; the report says that they are not covered
    Kind.CLUSTER: "listed",  # to know who belongs together is the purpose
}
RULES: dict[str, Mapping[Kind, Treatment]] = {
    "guarded": GUARDED,
    "private": PRIVATE,
    "strict": PRIVATE | {Kind.CLUSTER: "refused"},
}
NAMES = {
    Kind.UPDATE: "trained parameters",
    Kind.SUBSPACES: "principal vectors",
    Kind.COUNTS: "numbers of samples",
    Kind.MEANS: "means of samples",
    Kind.EMBEDDING: "features of a locally trained encoder",
    Kind.LOSSES: "losses on training samples",
    Kind.SCORES: "results on held-out samples",
    Kind.CLUSTER: "which model fits a client",
}


def treatment(options: PrivacyOptions, kind: str) -> Treatment:
    """How a kind leaves; InvalidInput for a kind without a rule."""
    found = RULES[options.level].get(Kind(kind)) if kind in set(Kind) else None
    if found is None:
        raise InvalidInput(f"kind '{kind}' has no privacy rule at level '{options.level}': add one to RULES")
    return found


def check_start(
    name: str, algorithm: Any, options: PrivacyOptions, watched: Iterable[ClientTask] = ()
) -> None:
    """Refuse, in one sentence, a method that this level cannot protect, or alarms that it does not allow."""
    if not options.on:
        return
    for task in watched:
        if any(treatment(options, kind) == "refused" for kind in sensitive_kinds(task.reply)):
            raise InvalidInput(
                f"lifecycle.detector = 'client' sends drift alarms, which privacy.level = '{options.level}' "
                "does not let leave: use lifecycle.detector = 'none', or privacy.level = 'private'"
            )
    tasks: Iterable[ClientTask] = algorithm.tasks
    for task in tasks:
        for kind in sorted(sensitive_kinds(task.reply)):
            if treatment(options, kind) == "refused":
                raise InvalidInput(
                    f"algorithm '{name}' sends {NAMES[Kind(kind)]} (kind '{kind}', task '{task.name}'), "
                    f"which privacy.level = '{options.level}' does not allow: "
                    "use a lower level or another method"
                )
        if options.dpsgd and Kind.UPDATE in sensitive_kinds(task.reply) and not task.by_sgd:
            raise InvalidInput(
                f"algorithm '{name}' does not train by plain SGD alone (task '{task.name}'), so noisy "
                f"gradients cannot protect it: use another method, or privacy.update.mode = 'secagg'"
            )
    reason = getattr(type(algorithm), "needs_single_updates", "")
    if reason and (options.masks or options.central):
        why = (
            "secure aggregation hides single updates"
            if options.masks
            else "'central' adds noise to means alone"
        )
        raise InvalidInput(
            f"algorithm '{name}' {reason}, and {why}: use another method, or privacy.update.mode = 'plain'"
        )
