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
from feddag.core.examples import Examples, Scaling
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.core.text import plural
from feddag.learning.signature import DATA_VIEWS, SignatureOptions, data_view, seen_in, sign
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
NOTHING_SENT = -1e9  # the score of a client that sends nothing
CHANCE = 2.0  # standard deviations that a finite test may lie above its target


Looks = dict[str, np.ndarray]  # view → samples as rows


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
    scaling: Scaling
    classes: dict[int, tuple[np.ndarray, Looks, np.ndarray]] = field(default_factory=dict)

    def client(self, rows: np.ndarray, trial: str) -> Client:
        """A client that holds these samples, behind its guard if privacy is on."""
        exchange = Exchange(0, self.seed / trial)
        examples = Examples(self.x[rows], self.y[rows], self.num_classes, self.scaling)
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

    @cached_property
    def views(self) -> tuple[str, ...]:
        """The views of the data that clients send something about."""
        return tuple(view for view in DATA_VIEWS if view in self.signature.views and self.looks[view].size)

    def scores(self, rows: np.ndarray, trial: str, label: int, looks: Looks) -> np.ndarray | None:
        """How much samples resemble what such a client sends about a class; None: it sends nothing."""
        client, total = self.client(rows, trial), None
        for view in self.views:
            found = data_view(view, client, self.signature)
            sent = found.vectors_PD[found.classes_P == label]
            if len(sent):
                basis = self.basis(view)
                told = attacks.energies(sent if basis is None else sent @ basis.T, looks[view])
                # Every view counts the same: what differs between samples, in deviations of that view.
                told = (told - told.mean()) / max(float(told.std()), 1e-12) if len(told) > 1 else told
                total = told if total is None else total + told
        return total

    def basis(self, view: str) -> np.ndarray | None:
        """The public basis of a view, where releases are made in it."""
        return public_basis(self.shapes[view], self.options.subspaces.dims) if self.options.noisy else None

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The form of one sample in each view."""
        one = Examples(self.x[:1], self.y[:1], self.num_classes, self.scaling)
        return {view: seen_in(view, one, self.signature)[1].shape[1:] for view in DATA_VIEWS}

    @cached_property
    def looks(self) -> Looks:
        """All samples as each view sees them, in its public basis where it has one."""
        everything = Examples(self.x, self.y, self.num_classes, self.scaling)
        looks: Looks = {}
        for view in DATA_VIEWS:
            rows = seen_in(view, everything, self.signature)[0].astype(np.float32)
            basis = self.basis(view) if rows.size else None
            looks[view] = rows if basis is None else unit_rows(rows @ basis.T.astype(np.float32))
        return looks

    def known(self, label: int) -> tuple[np.ndarray, Looks, np.ndarray]:
        """Samples of a class, how they look, and which tenth is unusual: far from the mean of the class."""
        if label not in self.classes:
            rows = np.flatnonzero(self.y == label)[:CANDIDATES]
            looks = {view: self.looks[view][rows] for view in self.views}
            first = looks[self.views[0]]
            usual = attacks.energies(first.mean(axis=0, keepdims=True), first)
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
        simulation.federation.problem.scaling,
    )
    if not attacker.views:
        raise InvalidInput("the clients of this run send nothing about their data that could be attacked")
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
    scores = attacker.scores(of_class[members], f"release {size} {trial}", label, looks)
    if scores is None:  # nothing was sent: the attacker draws lots
        lots = [float(p) for p in generator.random(int((members & odd).sum()))]
        return Release(0.5, lots, chance, chance)
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
    sentence = f"Planted samples: their traces prove ε of at least {bound:.2f} with 95% confidence; {claim}."
    return Finding("canaries", sentence, bound, allowed, bound <= allowed)


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
