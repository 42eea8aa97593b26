# SPDX-License-Identifier: Apache-2.0
"""The attacker of an audit: it owns all samples of the dataset, and sees what a client sends."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from feddag.core.engine import Exchange
from feddag.core.examples import Examples, Scaling
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning.signature import DATA_VIEWS, SignatureOptions, data_view, seen_in, sign
from feddag.privacy import attacks
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.gram import public_basis, unit_rows
from feddag.privacy.guard import Protection

PICKED = 10  # samples that the attacker picks
CANDIDATES = 6000  # among whom a member is to be found
FALSE_ALARMS = 0.01

Looks = dict[str, np.ndarray]  # view → samples as rows


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


@dataclass(frozen=True)
class Release:
    """What the attacker made of what one client sent about a class."""

    auc: float  # of members against all others of the class
    odd: list[float]  # for each unusual member: whether it was found at 1% false alarms among unusual others
    found: float  # share of members among the ten best scores
    chance: float  # of that, by guessing
    sent: bool  # whether there was anything to see


def attacked_release(attacker: Attacker, label: int, size: int, trial: int) -> Release:
    """A client with `size` samples of a class, and how its samples score among all of the class."""
    of_class, looks, odd = attacker.known(label)
    generator = (attacker.seed / "draw" / size / trial).numpy()
    members = np.zeros(len(of_class), dtype=bool)
    members[generator.choice(len(of_class), size=size, replace=False)] = True
    chance = size / len(of_class)
    scores = attacker.scores(of_class[members], f"release {size} {trial}", label, looks)
    if scores is None:  # nothing was sent: the attacker draws lots, and finds as much as lots do
        return Release(0.5, [FALSE_ALARMS] * int((members & odd).sum()), chance, chance, False)
    rest = np.sort(scores[odd & ~members])
    above = (len(rest) - np.searchsorted(rest, scores[odd & members]) + 1) / (len(rest) + 1)
    picked = members[np.argsort(-scores)[:PICKED]]
    auc = attacks.auc(scores[members], scores[~members])
    return Release(auc, (above <= FALSE_ALARMS).astype(float).tolist(), float(picked.mean()), chance, True)
