# SPDX-License-Identifier: Apache-2.0
"""Before a run: what will leave each client, protected how, and which ε it will have reached at the end."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from feddag.core.deployment import LocalTraining
from feddag.core.message import Kind, sensitive_kinds
from feddag.core.text import plural
from feddag.privacy.accounting import DPSGD, GAUSSIAN, LAPLACE, Spend, gaussian_sigma, total_epsilon
from feddag.privacy.config import SAMPLES_PER_VECTOR, PrivacyOptions
from feddag.privacy.counts import PRESENT
from feddag.privacy.gram import expected_error
from feddag.privacy.guard import sampling
from feddag.privacy.rules import NAMES, treatment

UNIT = "one sample of one client"
ALARMS = "drift alarms"
TYPICAL_CLASS = 100  # samples; for this size the error of a vector is told
TYPICAL_GAP = 0.8  # (λ₁ − λ₂) / n of image classes in the public basis


@dataclass(frozen=True)
class PlannedRelease:
    """One line of the table."""

    kind: str
    what: str
    protection: str
    times: str
    epsilon: float | None  # of these releases alone; None: it has none


@dataclass(frozen=True)
class Plan:
    """What is known before the run."""

    options: PrivacyOptions
    releases: tuple[PlannedRelease, ...]
    epsilon: float | None  # of a client with the median number of samples that trains as often as expected
    worst: float | None  # of the client that pays most, if it trains in every round
    warnings: tuple[str, ...]

    def lines(self) -> list[str]:
        """The table as text."""
        rows = [("what leaves a client", "protection", "times", "ε alone")]
        for r in self.releases:
            rows.append((r.what, r.protection, r.times, "none" if r.epsilon is None else f"{r.epsilon:.3g}"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        table = [
            "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows
        ]
        if self.epsilon is not None:
            table.append(
                f"together, for {UNIT}: ε = {self.epsilon:.3g} at δ = {self.options.delta:g} for a typical "
                f"client, at most {self.worst:.3g}; budget {self.options.budget:g}"
            )
        return [f"privacy level '{self.options.level}', updates '{self.options.mode}'", *table]

    def plain(self) -> dict[str, Any]:
        """As plain values, for the log and the result."""
        return {
            "level": self.options.level,
            "update_mode": self.options.mode,
            "unit": UNIT,
            "delta": self.options.delta,
            "budget": self.options.budget,
            "planned": [asdict(release) for release in self.releases],
            "planned_epsilon": self.epsilon,
            "planned_worst": self.worst,
            "lines": self.lines(),
            "warnings": list(self.warnings),
            "not_covered": not_covered(self.options, self.releases),
            "assumes": ASSUMES,
        }


ASSUMES = [
    "The server runs the protocol as it is, but keeps and studies everything it receives.",
    "In every cluster at least min_group clients are honest: they do not help the server against the others.",
    "Gaussian noise is drawn in floating point; counts are drawn exactly.",
]


def not_covered(options: PrivacyOptions, releases: Sequence[PlannedRelease]) -> list[str]:
    """What this level does not protect, as sentences for people."""
    kinds = {release.kind for release in releases}
    told = ["The server still learns which cluster a client is in, and when it answered."]
    if options.level == "guarded":
        told.append("Level 'guarded' adds no noise: it has no ε, and large classes leave as they are.")
    if Kind.SCORES in kinds:
        told.append("Results on held-out samples leave as they are.")
    if Kind.CLUSTER in kinds and options.level == "private":
        told.append("Where a client is offered several models, it tells without noise which one fits best.")
    if any(release.what == ALARMS for release in releases):
        told.append("A client whose data have changed says so without noise.")
    if options.mode == "plain":
        told.append("Trained parameters leave as they are; they can reveal training samples.")
    if options.masks and not options.dpsgd:
        told.append("Sums of updates carry no noise: the cluster's models themselves have no ε.")
    if options.central:
        told.append("The server sees every update; its noise only hides clients from each other.")
    told.append("A server that lies, and clients that send wrong answers on purpose, are not covered.")
    return told


def make_plan(
    options: PrivacyOptions,
    algorithm: Any,
    local: LocalTraining,
    num_rounds: int,
    fraction: float,
    sizes: Sequence[int],
    evaluated: bool = True,
    again: int = 0,
    alarms: bool = False,
) -> Plan:
    """The plan of a run: `sizes` are the numbers of training samples of the clients.

    `again` is how often a client whose data change can be asked for a new signature, at most; `alarms` says
    whether clients tell that their data have changed.
    """
    kinds = {Kind(kind) for task in algorithm.tasks for kind in sensitive_kinds(task.reply)}
    start, per_round = algorithm.trainings() if hasattr(algorithm, "trainings") else (0, 1)
    expected = max(1, round(num_rounds * fraction))
    ordered = sorted(n for n in sizes if n) or [1]
    median = ordered[len(ordered) // 2]

    def spends(n: int, participations: int, signatures: int = 1) -> list[Spend]:
        found = _data_spends(options, kinds) * signatures
        if options.dpsgd:
            rate, steps = sampling(n, local)
            trainings = start * signatures + per_round * participations
            found.append(Spend(DPSGD, options.update.noise, rate, steps * trainings))
        return found

    releases = [
        _planned(options, kind, spends(median, expected), expected, num_rounds) for kind in sorted(kinds)
    ]
    if evaluated:
        releases = [r for r in releases if r.kind != Kind.SCORES] + _at_evaluations(options, kinds)
    if alarms:
        releases.append(PlannedRelease(str(Kind.CLUSTER), ALARMS, "as it is", "in every check", None))
    epsilon = worst = None
    if options.noisy or options.dpsgd:
        epsilon = total_epsilon(spends(median, expected), options.delta)
        again = again if Kind.SUBSPACES in kinds else 0
        extremes = {ordered[0], ordered[-1]}
        worst = max(total_epsilon(spends(n, num_rounds, 1 + again), options.delta) for n in extremes)
    warnings = _warnings(options, epsilon, kinds, expected, num_rounds)
    if epsilon is not None and again:
        costs = [total_epsilon(spends(median, expected, 1 + k), options.delta) for k in range(again + 1)]
        lasts = sum(cost <= options.budget for cost in costs) - 1
        if 0 <= lasts < again:
            warnings.append(
                f"a client whose data change signs again, at most {plural(again, 'time')} in this run; its "
                f"budget of {options.budget:g} lasts for {plural(lasts, 'new signature')} "
                f"(ε = {costs[lasts]:.3g}), then it stops answering"
            )
    if options.dpsgd and epsilon is not None and epsilon > options.budget:
        warnings.append(_enough_noise(options, median, local, start + per_round * expected, kinds))
    return Plan(options, tuple(releases), epsilon, worst, tuple(warnings))


def _data_spends(options: PrivacyOptions, kinds: set[Kind]) -> list[Spend]:
    found = []
    if options.noisy or options.dpsgd:
        found.append(Spend(LAPLACE, options.counts.epsilon))
    if options.noisy and Kind.SUBSPACES in kinds:
        found.append(Spend(GAUSSIAN, gaussian_sigma(options.subspaces.epsilon, options.delta)))
    return found


def _planned(
    options: PrivacyOptions, kind: Kind, spends: list[Spend], expected: int, num_rounds: int
) -> PlannedRelease:
    how = treatment(options, kind)
    often = f"about {expected} of {num_rounds} rounds"
    text, times, mechanism = "as it is", often, ""
    if kind == Kind.COUNTS and how == "noise":
        text, times, mechanism = (
            f"discrete Laplace noise; below {PRESENT / options.counts.epsilon:g}: 0",
            "once",
            LAPLACE,
        )
    elif kind == Kind.SUBSPACES and how == "noise":
        sigma, wanted = gaussian_sigma(options.subspaces.epsilon, options.delta), options.subspaces
        error = min(expected_error(sigma, wanted.dims, TYPICAL_GAP * TYPICAL_CLASS), 1.0)
        degrees = math.degrees(math.asin(math.sqrt(error)))
        text = f"Gaussian noise; {TYPICAL_CLASS} samples: {degrees:.0f}° off"
        times, mechanism = "once", GAUSSIAN
    elif kind == Kind.SUBSPACES and how == "at-least-50":
        text, times = f"only of {SAMPLES_PER_VECTOR} samples or more per vector", "once"
    elif kind == Kind.UPDATE:
        mechanism = DPSGD if options.dpsgd else ""
        text = {
            "plain": "as it is",
            "secagg": "masked: only sums over clusters are seen",
            "dpsgd": f"noisy gradients, clip {options.update.clip:g}, noise {options.update.noise:g}",
            "dpsgd+secagg": f"noisy gradients (noise {options.update.noise:g}), and masked",
            "central": "clipped; the server adds noise to means",
        }[options.mode]
    alone = [s for s in spends if s.mechanism == mechanism]
    epsilon = total_epsilon(alone, options.delta) if alone else None
    return PlannedRelease(str(kind), NAMES[kind], text, times, epsilon)


def _at_evaluations(options: PrivacyOptions, kinds: set[Kind]) -> list[PlannedRelease]:
    """What leaves when clients score a model: results, and which of several models a client would use."""
    new = [kind for kind in (Kind.SCORES, Kind.CLUSTER) if kind == Kind.SCORES or kind not in kinds]
    told = [kind for kind in new if treatment(options, kind) != "refused"]
    return [PlannedRelease(str(kind), NAMES[kind], "as it is", "in every evaluation", None) for kind in told]


def _warnings(
    options: PrivacyOptions, epsilon: float | None, kinds: set[Kind], expected: int, num_rounds: int
) -> list[str]:
    found = []
    if options.mode == "plain" and options.noisy:
        found.append("privacy.update.mode = 'plain': updates leave as they are and can reveal samples")
    if options.central:
        client_level = total_epsilon([Spend(GAUSSIAN, options.update.noise)] * expected, options.delta)
        found.append(
            f"privacy.update.mode = 'central' protects whole clients (ε = {client_level:.3g} after "
            f"{expected} rounds) from each other, not from the server, and needs some 700 clients per cluster"
        )
    if epsilon is not None and epsilon > options.budget:
        found.append(
            f"a typical client reaches ε = {epsilon:.3g} in {plural(num_rounds, 'round')}, its budget is "
            f"{options.budget:g}: it will stop answering"
        )
    return found


def _enough_noise(
    options: PrivacyOptions, n: int, local: LocalTraining, trainings: int, kinds: set[Kind]
) -> str:
    """The noise with which the budget would last, to a tenth."""
    rate, steps = sampling(n, local)
    low, high = options.update.noise, 1000.0
    for _ in range(24):
        middle = (low + high) / 2
        spent = [*_data_spends(options, kinds), Spend(DPSGD, middle, rate, steps * trainings)]
        low, high = (low, middle) if total_epsilon(spent, options.delta) <= options.budget else (middle, high)
    if high > 999:
        return "no amount of noise makes the budget last: train less or raise privacy.budget"
    return f"privacy.update.noise = {math.ceil(10 * high) / 10:g} would make the budget last"
