# SPDX-License-Identifier: Apache-2.0
"""The audit of a run's privacy: the attacker has all samples of the dataset, and what a client would send.

For each attack the client's own code makes the releases, with the run's settings. Goals are those of
docs/privacy.md. Trials go on until an attack is surely within its goal or surely above it, or until there
have been very many; an attack that is above its goal makes the audit fail.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.core.text import plural
from feddag.learning.signature import SignatureOptions, data_view
from feddag.privacy import attacks
from feddag.privacy.accounting import total_epsilon
from feddag.privacy.guard import Guard
from feddag.runs.attacker import FALSE_ALARMS, PICKED, Attacker, Release, attacked_release
from feddag.runs.simulation import Simulation

SIZES = (1, 2, 5, 10, 20, 50, 100, 300)  # samples of a class
FIRST, MOST_MEMBERS, MOST_RELEASES = 30, 60_000, 6000  # per size; the attack stops earlier where it is clear
COUNTED = 10_000  # counts with a sample, and as many without
CANARIES = 1000  # trials with, and as many without
CANARY_CLASS = 11  # other samples of a planted one: about as few as are ever sent
MOST_AUC, MOST_TAIL, MOST_FOUND = 0.55, 0.02, 2.0
NOTHING_SENT = -1e9  # the score of a client that sends nothing


@dataclass(frozen=True)
class Finding:
    """The result of one attack."""

    attack: str
    sentence: str
    value: float  # the worst one
    target: float
    verdict: attacks.Verdict
    error: float = 0.0  # standard error of the value
    curve: tuple[tuple[int, float, float], ...] = ()  # (class size, value, standard error)

    @property
    def passed(self) -> bool:
        """Whether the attack is not surely better than it may be."""
        return self.verdict != "above"


@dataclass(frozen=True)
class Audit:
    """All attacks on one setting."""

    dataset: str
    level: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no attack did better than it may."""
        return all(finding.passed for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "dataset": self.dataset,
            "level": self.level,
            "passed": self.passed,
            "findings": [{**asdict(finding), "passed": finding.passed} for finding in self.findings],
        }


def attacker_of(simulation: Simulation) -> Attacker:
    """An attacker who owns all samples of this simulation."""
    pool = simulation.federation.train
    if not np.issubdtype(pool.x.dtype, np.number) or pool.x.ndim < 2:
        raise InvalidInput("the audit needs samples that are images or vectors of numbers")
    attacker = Attacker(
        pool.x,
        pool.y,
        simulation.federation.num_classes,
        simulation.experiment.privacy,
        getattr(simulation.prepared.algorithm, "signature", SignatureOptions()),
        Seed(simulation.experiment.seed) / "audit",
        simulation.prepared.network,
        simulation.federation.problem.scaling,
    )
    if not attacker.views:
        raise InvalidInput("the clients of this run send nothing about their data that could be attacked")
    return attacker


def audit(simulation: Simulation, effort: float = 1.0) -> Audit:
    """Attack what the clients of this simulation would send; `effort` multiplies the number of trials."""
    attacker = attacker_of(simulation)
    found = _attack_members(attacker, effort)
    found.append(_attack_counts(attacker, max(200, round(effort * COUNTED))))
    found.append(_attack_canaries(attacker, max(100, round(effort * CANARIES))))
    return Audit(simulation.federation.source.dataset, attacker.options.level, tuple(found))


def _attack_members(attacker: Attacker, effort: float) -> list[Finding]:
    """Membership, the most unusual tenth, and re-identification, for every class size."""
    curves = tuple(attacks.Curve(goal) for goal in (MOST_AUC, MOST_TAIL, MOST_FOUND))
    for size in SIZES:
        labels = [c for c in range(attacker.num_classes) if (attacker.y == c).sum() >= 3 * size + 60]
        most = round(effort * min(MOST_MEMBERS // size, MOST_RELEASES)) if labels else 0
        sent: list[Release] = []
        while len(sent) < most and not _clear(curves, size):
            batch = range(len(sent), min(max(2 * len(sent), FIRST), most))
            sent += [attacked_release(attacker, labels[i % len(labels)], size, i) for i in batch]
            _measure(curves, size, sent)
    auc, tail, times = curves
    if not auc.points:
        raise InvalidInput("the dataset has no class with enough samples to attack")
    n, value, _ = auc.worst
    texts = [
        f"Who was in the data? With {plural(n, 'sample')} of a class the attack reaches AUC {value:.2f} "
        f"(0.50 is guessing, goal at most {MOST_AUC:g})"
    ]
    n, value, _ = tail.worst
    texts.append(
        f"Unusual samples: at 1% false alarms the attack finds {100 * value:.1f}% of them, with "
        f"{plural(n, 'sample')} of a class (guessing finds 1%, goal at most {100 * MOST_TAIL:g}%)"
    )
    n, value, _ = times.worst
    texts.append(
        f"Of {PICKED} samples picked out of all of a class, {value:.1f} times as many are members as by "
        f"guessing, with {plural(n, 'sample')} of a class (goal at most {MOST_FOUND:g} times)"
    )
    return [
        _finding(attack, text, curve)
        for attack, text, curve in zip(
            ("membership", "tail", "re-identification"), texts, curves, strict=True
        )
    ]


def _clear(curves: tuple[attacks.Curve, ...], size: int) -> bool:
    """Whether more trials at this class size would tell nothing new: all is sure, or members are seen."""
    return curves[0].at(size) == "above" or all(curve.at(size) != "unclear" for curve in curves)


def _measure(curves: tuple[attacks.Curve, ...], size: int, sent: list[Release]) -> None:
    """Put the trials of one class size into the curves."""
    auc, tail, times = curves
    # A client that sends nothing leaves nothing to chance: the attack is then as good as lots, exactly.
    told = float(np.mean([r.sent for r in sent])) ** 0.5
    chance = float(np.mean([r.chance for r in sent]))
    auc.add(size, [r.auc for r in sent], told * 0.29 / size**0.5)
    odd = [float(np.mean(r.odd)) for r in sent if r.odd]
    each = max(float(np.mean([len(r.odd) for r in sent if r.odd])) if odd else 1.0, 1.0)
    tail.add(size, odd, told * (FALSE_ALARMS / each) ** 0.5)
    times.add(size, [r.found / chance for r in sent], told * (1 / (PICKED * chance)) ** 0.5)


def _finding(attack: str, text: str, curve: attacks.Curve) -> Finding:
    _, value, error = curve.worst
    points = tuple((size, *point) for size, point in curve.points.items())
    sentence = f"{text}: {attacks.WORDS[curve.verdict]}."
    return Finding(attack, sentence, value, curve.goal, curve.verdict, error, points)


def _attack_counts(attacker: Attacker, trials: int) -> Finding:
    """One sample more or less: can it be seen in the count that a client sends?"""
    label = int(np.bincount(attacker.y).argmax())
    rows = np.flatnonzero(attacker.y == label)[:61]
    noisy, epsilon = attacker.options.noisy, attacker.options.counts.epsilon

    def told(number: int, trial: str) -> int:
        client = attacker.client(rows[:number], trial)
        if not isinstance(client.privacy, Guard) or not noisy:
            return number
        return int(client.privacy.histogram(client)[label])

    with_sample = np.array([told(61, f"count with {i}") for i in range(trials)])
    without = np.array([told(60, f"count without {i}") for i in range(trials)])
    value, error = attacks.count_advantage(with_sample, without)
    allowed = attacks.largest_advantage(epsilon)
    # The noise reaches its bound exactly: that is what ε promises, so only more than it is too much.
    verdict: attacks.Verdict = "above" if value - attacks.SURE * error > allowed else "within"
    sentence = (
        f"Counts: whether one sample is there is guessed right in {100 * (0.5 + value):.1f}% of cases "
        f"(a coin has 50%, ε = {epsilon:g} allows {100 * (0.5 + allowed):.1f}%): {attacks.WORDS[verdict]}."
    )
    return Finding("counts", sentence, value, allowed, verdict, error)


def _attack_canaries(attacker: Attacker, trials: int) -> Finding:
    """A planted sample unlike its class: the ε that its traces prove, against the ε of the ledger."""
    label = int(np.bincount(attacker.y).argmax())
    rows = np.flatnonzero(attacker.y == label)[: CANARY_CLASS if attacker.options.noisy else 1]
    first = attacker.looks[attacker.views[0]]
    mean = first[attacker.y == label].mean(axis=0, keepdims=True)
    planted = int(np.argmin(attacks.energies(mean, first)))
    y = attacker.y.copy()
    y[planted] = label
    attacker = replace(attacker, y=y, classes={})
    # Among a few usual samples, how much does the planted one resemble what is sent?
    shown = np.concatenate([[planted], np.flatnonzero(attacker.y == label)[200:220]])
    looks = {view: attacker.looks[view][shown] for view in attacker.views}

    def score(held: np.ndarray, trial: str) -> float:
        scores = attacker.scores(held, trial, label, looks)
        return NOTHING_SENT if scores is None else float(scores[0])

    seen = np.array([score(np.append(rows, planted), f"canary {i}") for i in range(trials)])
    unseen = np.array([score(rows, f"control {i}") for i in range(trials)])
    bound = attacks.best_epsilon_bound(seen, unseen, attacker.options.delta)
    allowed = _ledger_epsilon(attacker, rows)
    claim = f"the ledger says ε = {allowed:.2f}" if attacker.options.noisy else "no ε is promised"
    told: attacks.Verdict = "within" if bound <= allowed else "above"
    sentence = (
        f"Planted samples: their traces prove ε of at least {bound:.2f} with 95% confidence; {claim}: "
        f"{attacks.WORDS[told]}."
    )
    return Finding("canaries", sentence, bound, allowed, told)


def _ledger_epsilon(attacker: Attacker, rows: np.ndarray) -> float:
    """What a client pays for counts and vectors, by its own ledger; 0 where nothing is promised."""
    client = attacker.client(rows, "ledger")
    for view in attacker.views:
        data_view(view, client, attacker.signature)
    if not isinstance(client.privacy, Guard):
        return 0.0
    spent = [entry.spend for entry in client.privacy.entries]
    return total_epsilon([spend for spend in spent if spend is not None], attacker.options.delta)


def write_audit(found: Audit, folder: Path) -> Path:
    """Write audit.json and audit.png; returns the picture."""
    import json

    from feddag.core.files import write_durably
    from feddag.reporting.figures.audit import audit_figure
    from feddag.reporting.figures.save import save_png

    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / "audit.json", json.dumps(found.plain(), indent=1).encode())
    save_png(audit_figure(found.plain()), folder / "audit.png")
    return folder / "audit.png"
