# SPDX-License-Identifier: Apache-2.0
"""The audit of a run's privacy: the attacker has all samples of the dataset, and what a client would send.

For each attack the client's own code makes the releases, with the run's settings. Targets are those of
docs/privacy.md; an attack that does better than its target makes the audit fail.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.engine import Exchange
from feddag.core.errors import InvalidInput
from feddag.core.examples import Examples
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.core.text import plural
from feddag.learning.signature import SignatureOptions, own_subspaces, sign
from feddag.privacy import attacks
from feddag.privacy.accounting import total_epsilon
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.gram import public_basis, unit_rows
from feddag.privacy.guard import Guard, Protection
from feddag.runs.simulation import Simulation

SIZES = (1, 2, 5, 10, 20, 50, 100, 300)  # samples of a class
RELEASES, MEMBERS = 200, 3000  # per size: at least so many releases, and about so many members
SURE, SUCCESS = 30, 0.6  # an AUC above 0.6 in the first 30 releases needs no more of them
PICKED = 10  # samples that the attacker picks
CANDIDATES = 6000  # among whom a member is to be found
CANARIES = 1000  # trials with, and as many without
CANARY_CLASS = 11  # other samples of a planted one: about as few as are ever sent
FALSE_ALARMS = 0.01
MOST_AUC, MOST_TAIL, MOST_FOUND = 0.55, 0.02, 2.0
CHANCE = 2.0  # standard deviations that a finite test may lie above its target


@dataclass(frozen=True)
class Finding:
    """The result of one attack."""

    attack: str
    sentence: str
    value: float  # the worst one
    target: float
    passed: bool
    curve: tuple[tuple[float, float], ...] = ()  # (class size, value)


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
            "findings": [asdict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, eq=False)
class Attacker:
    """All samples, and a way to make any client send what it would send."""

    x: np.ndarray
    y: np.ndarray
    num_classes: int
    options: PrivacyOptions
    signature: SignatureOptions
    seed: Seed
    network: Callable[[str], Any]
    classes: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)

    def client(self, rows: np.ndarray, trial: str) -> Client:
        """A client that holds these samples, behind its guard if privacy is on."""
        exchange = Exchange(0, self.seed / trial)
        examples = Examples(self.x[rows], self.y[rows], self.num_classes)
        nothing = examples.take(np.empty(0, dtype=np.int64))
        # Every trial is a client of its own: budgets do not add up over trials.
        place = Protection(replace(self.options, limits="")) if self.options.on else None
        return Client(
            id="audited",
            train=examples,
            validation=nothing,
            test=nothing,
            network=self.network,
            seed=exchange.client_seed("audited"),
            shared_seed=exchange.shared_seed,
            privacy=place.guard("audited", sign, exchange) if place is not None else None,
        )

    def vectors(self, rows: np.ndarray, trial: str, label: int) -> np.ndarray | None:
        """What such a client sends about a class, in the attacker's coordinates; None: nothing."""
        found = own_subspaces(self.client(rows, trial), self.signature)
        of_class = found.vectors_PD[found.classes_P == label]
        if not len(of_class):
            return None
        return of_class if self.basis is None else of_class @ self.basis.T

    @cached_property
    def basis(self) -> np.ndarray | None:
        """The public basis, where releases are made in it."""
        if not self.options.noisy:
            return None
        return public_basis(self.x.shape[1:], self.options.subspaces.dims)

    @cached_property
    def looks(self) -> np.ndarray:
        """All samples as a release sees them."""
        flat = self.x.reshape(len(self.x), -1).astype(np.float32)
        return flat if self.basis is None else unit_rows(flat @ self.basis.T.astype(np.float32))

    def known(self, label: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples of a class, how they look, and which tenth is unusual: far from the mean of the class."""
        if label not in self.classes:
            rows = np.flatnonzero(self.y == label)[:CANDIDATES]
            looks = self.looks[rows]
            usual = attacks.energies(looks.mean(axis=0, keepdims=True), looks)
            self.classes[label] = rows, looks, usual <= np.quantile(usual, 0.1)
        return self.classes[label]


def audit(simulation: Simulation, effort: float = 1.0) -> Audit:
    """Attack what the clients of this simulation would send; `effort` multiplies the number of trials."""
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
    )
    trials = max(100, round(effort * CANARIES))
    found = _attack_members(attacker, effort)
    found += [_attack_counts(attacker, trials), _attack_canaries(attacker, trials)]
    return Audit(simulation.federation.source.dataset, attacker.options.level, tuple(found))


@dataclass(frozen=True)
class Release:
    """What one client sent about a class, as the attacker sees it."""

    auc: float  # of members against all others of the class
    odd: list[float]  # for each unusual member: the share of unusual others that score at least as high
    found: float  # share of members among the ten best scores
    chance: float  # of that, by guessing


def _attack_members(attacker: Attacker, effort: float) -> list[Finding]:
    """Membership, the most unusual tenth, and re-identification, for every class size."""
    auc, tail, times = _Curve(), _Curve(), _Curve()
    for size in SIZES:
        labels = [c for c in range(attacker.num_classes) if (attacker.y == c).sum() >= 3 * size + 60]
        if not labels:
            continue
        number = max(30, round(effort * max(RELEASES, MEMBERS // size)))
        sent = [_release(attacker, labels[i % len(labels)], size, i) for i in range(SURE)]
        if np.mean([r.auc for r in sent]) < SUCCESS:  # else a few releases are enough to see it
            sent += [_release(attacker, labels[i % len(labels)], size, i) for i in range(SURE, number)]
        auc.add(size, [r.auc for r in sent], 0.29 / np.sqrt(size))
        tail.add(size, [float(p <= FALSE_ALARMS) for r in sent for p in r.odd], np.sqrt(FALSE_ALARMS))
        chance = float(np.mean([r.chance for r in sent]))
        times.add(size, [r.found / chance for r in sent], np.sqrt(1 / (PICKED * chance)))
    if not auc.points:
        raise InvalidInput("the dataset has no class with enough samples to attack")
    n, value = auc.worst()
    found = [
        Finding(
            "membership",
            f"Who was in the data? With {plural(n, 'sample')} of a class the attack reaches AUC {value:.2f} "
            f"(0.50 is guessing, target at most {MOST_AUC:g}).",
            value, MOST_AUC, auc.below(MOST_AUC), tuple(auc.points),
        )
    ]  # fmt: skip
    n, value = tail.worst()
    found.append(
        Finding(
            "tail",
            f"Unusual samples: at 1% false alarms the attack finds {100 * value:.1f}% of them, with "
            f"{plural(n, 'sample')} of a class (guessing finds 1%, target at most {100 * MOST_TAIL:g}%).",
            value, MOST_TAIL, tail.below(MOST_TAIL), tuple(tail.points),
        )
    )  # fmt: skip
    n, value = times.worst()
    found.append(
        Finding(
            "re-identification",
            f"Of {PICKED} samples picked out of all of a class, {value:.1f} times as many are members as by "
            f"guessing, with {plural(n, 'sample')} of a class (target at most {MOST_FOUND:g} times).",
            value, MOST_FOUND, times.below(MOST_FOUND), tuple(times.points),
        )
    )  # fmt: skip
    return found


class _Curve:
    """Means over trials for every class size, and how far chance alone moves them."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self.errors: list[float] = []

    def add(self, size: int, values: list[float], deviation: float) -> None:
        """One class size; `deviation` is that of one value when the attack only guesses."""
        if values:
            self.points.append((size, float(np.mean(values))))
            self.errors.append(deviation / np.sqrt(len(values)))

    def worst(self) -> tuple[int, float]:
        """The class size at which the attack does best."""
        return max(self.points, key=lambda point: point[1])

    def below(self, target: float) -> bool:
        """Whether the target holds for every size, up to what chance explains."""
        return all(v - CHANCE * e <= target for (_, v), e in zip(self.points, self.errors, strict=True))


def _release(attacker: Attacker, label: int, size: int, trial: int) -> Release:
    """A client with `size` samples of a class, and how its samples score among all of the class."""
    of_class, looks, odd = attacker.known(label)
    generator = (attacker.seed / "draw" / size / trial).numpy()
    members = np.zeros(len(of_class), dtype=bool)
    members[generator.choice(len(of_class), size=size, replace=False)] = True
    chance = size / len(of_class)
    vectors = attacker.vectors(of_class[members], f"release {size} {trial}", label)
    if vectors is None:  # nothing was sent: the attacker draws lots
        lots = [float(p) for p in generator.random(int((members & odd).sum()))]
        return Release(0.5, lots, chance, chance)
    scores = attacks.energies(vectors, looks)
    rest = np.sort(scores[odd & ~members])
    above = (len(rest) - np.searchsorted(rest, scores[odd & members]) + 1) / (len(rest) + 1)
    picked = members[np.argsort(-scores)[:PICKED]]
    return Release(attacks.auc(scores[members], scores[~members]), above.tolist(), picked.mean(), chance)


def _attack_counts(attacker: Attacker, trials: int) -> Finding:
    """One sample more or less: can it be seen in the count that a client sends?"""
    label = int(np.bincount(attacker.y).argmax())
    rows = np.flatnonzero(attacker.y == label)[:61]
    noisy, epsilon = attacker.options.noisy, attacker.options.counts.epsilon

    def told(number: int, trial: str) -> int:
        guard = attacker.client(rows[:number], trial).privacy
        if not isinstance(guard, Guard) or not noisy:
            return number
        return int(guard.histogram(attacker.client(rows[:number], trial))[label])

    with_sample = np.array([told(61, f"count with {i}") for i in range(trials)])
    without = np.array([told(60, f"count without {i}") for i in range(trials)])
    value, by_chance = attacks.count_advantage(with_sample, without)
    allowed = attacks.largest_advantage(epsilon)
    sentence = (
        f"Counts: whether one sample is there is guessed right in {100 * (0.5 + value):.0f}% of cases "
        f"(a coin has 50%, ε = {epsilon:g} allows at most {100 * (0.5 + allowed):.0f}%)."
    )
    return Finding("counts", sentence, value, allowed, value - CHANCE * by_chance <= allowed)


def _attack_canaries(attacker: Attacker, trials: int) -> Finding:
    """A planted sample unlike its class: the ε that its traces prove, against the ε of the ledger."""
    label = int(np.bincount(attacker.y).argmax())
    rows = np.flatnonzero(attacker.y == label)[: CANARY_CLASS if attacker.options.noisy else 1]
    mean = attacker.looks[attacker.y == label].mean(axis=0, keepdims=True)
    planted = int(np.argmin(attacks.energies(mean, attacker.looks)))
    y = attacker.y.copy()
    y[planted] = label
    attacker = replace(attacker, y=y, classes={})
    look = attacker.looks[[planted]]

    def score(held: np.ndarray, trial: str) -> float:
        vectors = attacker.vectors(held, trial, label)
        return 0.0 if vectors is None else float(attacks.energies(vectors, look)[0])

    seen = np.array([score(np.append(rows, planted), f"canary {i}") for i in range(trials)])
    unseen = np.array([score(rows, f"control {i}") for i in range(trials)])
    bound = attacks.best_epsilon_bound(seen, unseen, attacker.options.delta)
    allowed = _ledger_epsilon(attacker, rows)
    claim = f"the ledger says ε = {allowed:.2f}" if attacker.options.noisy else "no ε is promised"
    sentence = f"Planted samples: their traces prove ε of at least {bound:.2f} with 95% confidence; {claim}."
    return Finding("canaries", sentence, bound, allowed, bound <= allowed)


def _ledger_epsilon(attacker: Attacker, rows: np.ndarray) -> float:
    """What a client pays for counts and vectors, by its own ledger; 0 where nothing is promised."""
    client = attacker.client(rows, "ledger")
    own_subspaces(client, attacker.signature)
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
