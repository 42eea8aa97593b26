# SPDX-License-Identifier: Apache-2.0
"""The guard of one answer: everything that leaves a client passes here, in one place, before it is sent.

    task → each field by its kind: plain, noisy, masked, withheld, refused → ledger entry written → reply

The client holds the guard, not the server. Its own limits (`limits.toml`) come last and cannot be overruled.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from feddag.core.deployment import LocalTraining
from feddag.core.engine import Exchange
from feddag.core.errors import FederationError
from feddag.core.message import Kind, is_message
from feddag.core.params import Params
from feddag.core.task import Client, ClientId, ClientTask, load_task
from feddag.privacy.accounting import DPSGD, GAUSSIAN, LAPLACE, Spend, gaussian_sigma, total_epsilon
from feddag.privacy.config import SAMPLES_PER_VECTOR, PrivacyOptions
from feddag.privacy.counts import noisy_counts
from feddag.privacy.gram import NoisyVectors, noisy_vectors, public_basis
from feddag.privacy.ledger import Entry, Ledger
from feddag.privacy.limits import NO_LIMITS, Limits, load_limits
from feddag.privacy.noise import Noise
from feddag.privacy.rules import NAMES, treatment

COUNTS, COUNTED = "privacy counts", "privacy counted"  # entries of a client's memory


class Refused(FederationError):
    """A client does not answer: its privacy does not allow it."""


class Protection:
    """The privacy of one place where tasks run: the policy, the ledger, the clients' own limits."""

    def __init__(
        self,
        options: PrivacyOptions,
        ledger: Path | None = None,
        limits: Limits | None = None,
        deployed: bool = False,
        tasks: Iterable[ClientTask] | None = None,
    ) -> None:
        self.options = options
        self.ledger = Ledger(ledger)
        self.limits = limits or (load_limits(options.limits) if options.limits else NO_LIMITS)
        self.deployed = deployed  # noise from the operating system, every answer a new release
        self.tasks = None if tasks is None else {task.address: task for task in tasks}

    def task(self, address: str) -> ClientTask:
        """A task that may be answered inside a masked sum: on a real node only those of its own method."""
        if self.tasks is None:
            return load_task(address)
        if address not in self.tasks:
            raise Refused("a masked sum was asked over a task that this client does not know")
        return self.tasks[address]

    def guard(self, client: ClientId, task: ClientTask, exchange: Exchange) -> "Guard":
        """A guard for one answer."""
        return Guard(self, client, task, exchange)


class Guard:
    """Protects one answer of one client."""

    def __init__(self, place: Protection, client: ClientId, task: ClientTask, exchange: Exchange) -> None:
        self.place, self.options, self.client, self.task = place, place.options, client, task
        self.round = exchange.round
        seed = exchange.client_seed(client)
        self.question = "/".join(exchange.seed.path)
        if place.deployed:  # the same question may come twice: a second answer is a second release
            self.question += f"#{len(place.ledger.of(client))}"
        self.noise = Noise(None if place.deployed else seed / "privacy")
        self.entries: list[Entry] = []
        self.part_of_sum = False  # whether the answer will be masked
        self._released: list[np.ndarray] = []  # arrays that were made here

    # -- what tasks ask for ------------------------------------------------------------------------------

    def subspaces(
        self,
        x: np.ndarray,
        client: Client,
        *,
        view: str = "pixels",
        num_views: int = 1,
        sums: bool = False,
    ) -> NoisyVectors | None:
        """Noisy principal vectors of samples or of features of them; None where exact ones may leave.

        With several views of the same samples the noise grows, so that all of them cost the same ε. `sums`
        sends the direction of each class's sum instead: for samples that point to all sides.
        """
        if treatment(self.options, Kind.SUBSPACES) != "noise":
            return None
        wanted = self.options.subspaces
        present = np.flatnonzero(self.histogram(client) > 0)
        sigma = gaussian_sigma(wanted.epsilon, self.options.delta) * num_views**0.5
        self.spend(Kind.SUBSPACES, Spend(GAUSSIAN, sigma), view)
        shape = tuple(x.shape[1:])
        return self.released(
            noisy_vectors(
                np.asarray(x, dtype=np.float64),
                client.train.y,
                present,
                public_basis(shape, wanted.dims),
                sigma,
                wanted.vectors,
                self.noise.generator(f"gram {view}"),
                sums,
            )
        )

    @property
    def samples_per_vector(self) -> float:
        """Classes with fewer samples per vector send none."""
        return SAMPLES_PER_VECTOR if treatment(self.options, Kind.SUBSPACES) == "at-least-50" else 0

    def released(self, made: Any) -> Any:
        """Remember that these arrays may leave, because they were protected."""
        values = [made] if isinstance(made, np.ndarray) else vars(made).values()
        self._released += [value for value in values if isinstance(value, np.ndarray)]
        return made

    def histogram(self, client: Client) -> np.ndarray:
        """The noisy class counts: drawn once, then kept, until the samples change."""
        labels = np.frombuffer(hashlib.blake2b(client.train.y.tobytes()).digest()[:8], dtype=np.int64)
        kept, counted = client.memory.get(COUNTS), client.memory.get(COUNTED)
        if isinstance(kept, np.ndarray) and isinstance(counted, np.ndarray) and counted == labels:
            return kept
        counts_C = self._noisy(client.train.counts(), "class counts")
        client.memory[COUNTS], client.memory[COUNTED] = counts_C, labels
        return counts_C

    def spend(self, kind: Kind, spend: Spend, part: str = "") -> None:
        """Note a release that costs something; refused when the budget does not allow it."""
        entry = self._entry(
            kind, spend.mechanism, part, noise=spend.noise, rate=spend.rate, steps=spend.steps
        )
        before = self.place.ledger.of(self.client)
        if entry.release not in before:
            spent = [e.spend for e in (*before.values(), *self.entries, entry) if e.spend is not None]
            total = total_epsilon(spent, self.options.delta)
            own, budget = self.place.limits.epsilon, self.options.budget
            if total > min(own, budget):
                whose = f"its own limit of ε = {own:g}" if own < budget else f"its budget of ε = {budget:g}"
                raise Refused(f"{whose} would be exceeded by {NAMES[kind]} (ε = {total:.3g})")
        self.entries.append(entry)

    def training(
        self, client: Client, local: LocalTraining, part: str
    ) -> tuple[float, int, float, float, Noise]:
        """Sampling rate, steps, clipping norm, deviation and noise of one DP-SGD training, accounted here.

        The number of samples that rate and steps depend on is the noisy one, which may be told.
        """
        examples = int(self.histogram(client).sum())
        rate, steps = sampling(examples, local)
        update = self.options.update
        self.spend(Kind.UPDATE, Spend(DPSGD, update.noise, rate, steps), f"training {part}")
        seed = None if self.noise.seed is None else self.noise.seed / "training" / part
        return rate, steps, update.clip, update.noise, Noise(seed)

    @property
    def trains_noisily(self) -> bool:
        """Whether `sgd` must protect single samples; what is only scored stays with the client."""
        return self.options.dpsgd and not self.task.sees_test

    @contextmanager
    def inside(self, task: ClientTask) -> Iterator[None]:
        """Protect the answer of another task, which will leave only as a part of a masked sum."""
        outer, self.task, self.part_of_sum = self.task, task, True
        try:
            yield
        finally:
            self.task, self.part_of_sum = outer, False

    # -- the way out -------------------------------------------------------------------------------------

    def release(self, reply: Any, client: Client) -> Any:
        """The reply as it may leave; its entries are in the ledger when this returns."""
        least = self.place.limits.least_samples
        if len(client.train) < least:
            raise Refused(f"its own limit asks for at least {least} samples behind an answer")
        reply = self._message(reply, client)
        self.place.ledger.write(self.entries)
        self.entries = []
        return reply

    def _message(self, value: Any, client: Client) -> Any:
        changes = {}
        for f in dataclasses.fields(value):
            item, kind = getattr(value, f.name), f.metadata.get("privacy", "")
            new = self._field(item, Kind(kind), f, client) if kind else self._nested(item, client)
            if new is not item:
                changes[f.name] = new
        return dataclasses.replace(value, **changes) if changes else value

    def _nested(self, item: Any, client: Client) -> Any:
        return self._message(item, client) if is_message(item) else item

    def _field(self, item: Any, kind: Kind, f: dataclasses.Field, client: Client) -> Any:
        if item is None or (kind == Kind.CLUSTER and item == -1):  # nothing is told
            return item
        how = treatment(self.options, kind)
        if how in ("plain", "listed"):
            return self._plain(item, kind)
        if how == "refused":
            if kind == Kind.CLUSTER and self.task.sees_test:
                return -1  # the client scores its choice, and keeps it to itself
            raise Refused(f"privacy.level = '{self.options.level}' lets no {NAMES[kind]} leave")
        if kind == Kind.COUNTS:
            return self._counts(item, f, client)
        if kind == Kind.SUBSPACES:
            if how == "at-least-50":
                self._note(kind, "at-least-50")
                return item
            if item.size and not any(item is made for made in self._released):  # nothing tells nothing
                raise Refused(f"task '{self.task.name}' sends principal vectors that nobody has protected")
            return item
        return self._update(item, f)

    def _counts(self, item: Any, f: dataclasses.Field, client: Client) -> Any:
        if isinstance(item, int):  # the number of samples: the sum of the noisy counts
            return max(int(self.histogram(client).sum()), 1) if len(client.train) else 0
        if not isinstance(item, np.ndarray) or item.ndim != 1 or item.dtype.kind != "i":
            raise Refused(f"'{f.name}' is not a histogram of whole counts, so noise cannot protect it")
        if np.array_equal(item, client.train.counts()):
            return self.histogram(client)
        return self._noisy(item, f.name)

    def _noisy(self, counts: np.ndarray, part: str) -> np.ndarray:
        epsilon = self.options.counts.epsilon
        self.spend(Kind.COUNTS, Spend(LAPLACE, epsilon), part)
        return noisy_counts(counts, epsilon, self.noise.generator(f"counts {part}"))

    def _update(self, item: Any, f: dataclasses.Field) -> Any:
        """Trained parameters, and sketches of them."""
        if isinstance(item, np.ndarray) and any(item is made for made in self._released):
            return item  # a masked sum
        if self.part_of_sum or (self.options.dpsgd and self.task.by_sgd and not self.options.masks):
            return item
        if isinstance(item, np.ndarray) and self.options.dpsgd and self.task.by_sgd:
            return item  # computed from a noisy training, which is accounted
        hidden = self.options.masks or (self.options.noisy and isinstance(item, np.ndarray))
        if hidden:
            self._note(Kind.UPDATE, "withheld")
            return _zeros(item)
        if self.options.central and isinstance(item, Params):
            norm, most = item.norm(), self.options.update.clip
            item = item * (most / norm) if norm > most else item
        return self._plain(item, Kind.UPDATE)

    def _plain(self, item: Any, kind: Kind) -> Any:
        if kind not in self.place.limits.plain:
            raise Refused(f"its own limits do not let {NAMES[kind]} (kind '{kind}') leave as they are")
        self._note(kind, "plain")
        return item

    def _note(self, kind: Kind, mechanism: str) -> None:
        """One entry per kind and answer for what costs nothing."""
        entry = self._entry(kind, mechanism, mechanism)
        if entry not in self.entries:
            self.entries.append(entry)

    def note_masked(self) -> None:
        """The answer leaves as a part of a masked sum."""
        self._note(Kind.UPDATE, "masked")

    def _entry(self, kind: Kind, mechanism: str, part: str, **numbers: Any) -> Entry:
        return Entry(
            self.client, f"{self.question}:{kind} {part}", self.round, self.task.name, str(kind), mechanism,
            **numbers,
        )  # fmt: skip


def sampling(examples: int, local: LocalTraining) -> tuple[float, int]:
    """Probability of a sample to be in a batch, and number of batches, for so many samples."""
    n = max(examples, 1)
    steps = local.local_steps or local.local_epochs * math.ceil(n / local.batch_size)
    return min(1.0, local.batch_size / n), steps


def _zeros(item: Any) -> Any:
    """Something of the same form that tells nothing."""
    if isinstance(item, Params):
        return item * 0.0
    if isinstance(item, np.ndarray):
        return np.zeros_like(item)
    if isinstance(item, tuple):
        return tuple(_zeros(part) for part in item)
    return {key: _zeros(part) for key, part in item.items()}
