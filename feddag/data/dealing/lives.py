# SPDX-License-Identifier: Apache-2.0
"""What a client holds over time: shares of its later lives, and the rounds in which they begin."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from feddag.core.seeds import Seed
from feddag.data.dealing.skews import label_map
from feddag.data.federation import Drift, Phase, Share
from feddag.data.scenario import Change, Life, Traits

SPLITS = ("train", "validation", "test")


def shares_of_lives(
    dealt: Sequence[Share], clients: int, lives: Sequence[Life], traits: Traits, num_classes: int, seed: Seed
) -> list[Share]:
    """Shares of all clients and then of all lives; `dealt` has those that were given samples of their own."""
    shares, own = list(dealt[:clients]), iter(dealt[clients:])
    for k, life in enumerate(lives):
        before, keep = shares[life.previous], life.change.drift.keep
        concept = None if traits.concepts is None else traits.concepts[clients + k]
        relabel = None if concept is None else label_map(traits.maps[int(concept)], num_classes)
        if not life.dealt:
            shares.append(replace(before, relabel=relabel))
            continue
        share = next(own)
        if keep:
            kept = part_of(before, keep, seed / "keep" / k)
            train, validation, test = (
                np.union1d(getattr(kept, split), getattr(share, split)) for split in SPLITS
            )
            share = Share(train, validation, test, relabel)
        shares.append(share)
    return shares


def part_of(share: Share, fraction: float, seed: Seed, *, last: bool = False) -> Share:
    """A random part of a share; parts of equal seeds are nested, and `last` is the rest of the others."""
    chosen: list[np.ndarray] = []
    for split in SPLITS:
        rows: np.ndarray = getattr(share, split)
        order = (seed / split).numpy().permutation(len(rows))
        count = min(max(round(fraction * len(rows)), int(split == "train")), len(rows))
        chosen.append(rows[np.sort(order[count:] if last else order[:count])])
    train, validation, test = chosen
    return Share(train, validation, test, share.relabel)


def timeline(
    ids: Sequence[str],
    shares: Sequence[Share],
    lives: Sequence[Life],
    changes: Sequence[Change],
    groups: Sequence[int] | None,
    train_y: np.ndarray,
    seed: Seed,
) -> tuple[dict[str, Share], dict[str, tuple[Phase, ...]], tuple[Drift, ...]]:
    """What everybody holds at first, the phases of those who change, and what was planted in words."""
    life_of = {id(life.change): len(ids) + k for k, life in enumerate(lives)}
    clients = dict(zip(ids, shares, strict=False))
    phases: dict[str, tuple[Phase, ...]] = {}
    for client in sorted({change.client for change in changes}):
        own = [change for change in changes if change.client == client]
        first, *later = _states(client, own, life_of)
        largest = max(scale for _, _, scale in (first, *later))
        held = [_mixed(shares, mix, s / largest, seed / "part" / client) for _, mix, s in (first, *later)]
        clients[ids[client]] = held[0]
        phases[ids[client]] = tuple(
            Phase(round_, share, None if groups is None else groups[_main(mix)])
            for (round_, mix, _), share in zip(later, held[1:], strict=True)
        )
    found = _drifts(ids, changes, {c: (Phase(0, clients[c]), *phases[c]) for c in phases}, train_y)
    return clients, phases, found


State = tuple[int, dict[int, float], float]  # first round; number of a life → its share of the data; scale


def _states(client: int, changes: Sequence[Change], life_of: Mapping[int, int]) -> list[State]:
    """From which round on a client holds which mixture of its lives, and how much of what was dealt."""
    now, scale = client, 1.0
    states: list[State] = [(0, {now: 1.0}, scale)]
    for change in changes:
        drift, then = change.drift, life_of.get(id(change), now)
        target = scale * (drift.factor or 1.0)
        for j in range(1, drift.over + 1):
            new = j / drift.over
            mix = {then: 1.0} if then == now or j == drift.over else {now: 1 - new, then: new}
            states.append((drift.at + j - 1, mix, scale * (target / scale) ** new))
        if drift.until is not None:
            states.append((drift.until, {now: 1.0}, scale))
        else:
            now, scale = then, target
    return states


def _main(mix: Mapping[int, float]) -> int:
    """The life that makes up most of a mixture; the newer one of two equal halves."""
    return max(mix, key=lambda life: (mix[life], life))


def _mixed(shares: Sequence[Share], mix: Mapping[int, float], fraction: float, seed: Seed) -> Share:
    """Parts of one or two lives. Two lives of the same samples take complementary parts of them."""
    (old, _), *more = mix.items()
    if not more:
        whole = shares[old]
        return whole if fraction >= 1 else part_of(whole, fraction, seed / "size")
    new, of_new = more[0]
    second = part_of(shares[new], of_new, seed / "mix")
    first = part_of(shares[old], of_new, seed / "mix", last=True)
    if fraction < 1:
        first, second = (part_of(part, fraction, seed / "size") for part in (first, second))
    return replace(first, also=second)


def _drifts(
    ids: Sequence[str],
    changes: Sequence[Change],
    phases: Mapping[str, Sequence[Phase]],
    train_y: np.ndarray,
) -> tuple[Drift, ...]:
    """What was planted, without drifts that change nothing (a swap of labels that a client does not hold)."""
    found = []
    for change in changes:
        client, drift = ids[change.client], change.drift
        held = {phase.first: phase.share for phase in phases[client]}
        before = held[max(first for first in held if first < drift.at)]
        done = drift.at + drift.over - 1
        if _same(before, held[done], train_y):
            continue
        found.append(Drift(client, drift.at, drift.kind, done))
        if drift.until is not None:
            found.append(Drift(client, drift.until, drift.kind, drift.until))
    return tuple(sorted(found, key=lambda d: (d.at, d.client)))


def _same(one: Share, other: Share, train_y: np.ndarray) -> bool:
    """Whether two shares have the same training samples with the same labels."""
    if not np.array_equal(one.train, other.train):
        return False
    y = np.asarray(train_y, dtype=np.int64)[one.train]
    labels = [y if share.relabel is None else share.relabel[y] for share in (one, other)]
    return np.array_equal(*labels)
