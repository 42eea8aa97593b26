# SPDX-License-Identifier: Apache-2.0
"""What the event log says about clients that join, leave and change: detection, placement, recovery."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feddag.clustering.agglomerative import agreement
from feddag.reporting.tables.log import Event

WITHIN = 0.02  # accuracy that counts as recovered: this near to that before the drift
COLUMNS = ("present", "waiting", "clusters", "ari", "alarms", "moved")  # in metrics.csv, where there are any


@dataclass
class Story:
    """The lifecycle of a run, collected event by event."""

    standing: dict[int, Event] = field(default_factory=dict)  # round → who is there in which cluster
    drifts: list[tuple[str, int, int]] = field(default_factory=list)  # client, first round, round of the end
    checks: dict[int, int] = field(default_factory=dict)  # round → clients that were asked
    alarms: list[tuple[str, int]] = field(default_factory=list)
    moved: list[tuple[str, int]] = field(default_factory=list)
    newcomers: dict[str, int] = field(default_factory=dict)
    clusterings: list[Event] = field(default_factory=list)
    accuracy: dict[int, Mapping[str, float]] = field(default_factory=dict)  # round → client → accuracy

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Story":
        """The story that events tell."""
        story = cls()
        for event in events:
            story.add(event)
        return story

    def add(self, event: Event) -> None:
        """Take in the next event."""
        kind, round_ = event.get("event", ""), event.get("round", -1)
        if kind == "standing":
            self.standing[round_] = event
        elif kind == "drift" and event["change"] != "quantity":
            self.drifts += [(client, round_, event["done"]) for client in event["clients"]]
        elif kind == "check":
            self.checks[round_] = event["clients"]
            self.alarms += [(client, round_) for client in event["alarms"]]
        elif kind == "moved":
            self.moved += [(client, round_) for client in event["clients"]]
        elif kind == "newcomers":
            self.newcomers |= dict.fromkeys(event["clients"], round_)
        elif kind == "recluster":
            self.clusterings.append(event)
        elif kind == "evaluation":
            scores = event.get("test_clients", {})
            self.accuracy[round_] = {c: s["accuracy"] for c, s in scores.items() if s}

    def ari(self, round_: int) -> float | None:
        """Agreement of clusters and planted groups in a round; None without clusters or groups."""
        event = self.standing.get(round_)
        if event is None or not event["planted"] or not event["clusters"]:
            return None
        both = sorted(event["planted"])
        labels = [event["clusters"][c] for c in both]
        return float(agreement(np.array(labels), np.array([event["planted"][c] for c in both])))

    def row(self, round_: int, since: int) -> dict[str, Any]:
        """The columns of metrics.csv for a round; alarms and moves are those since the row before."""
        event = self.standing.get(round_)
        if event is None:
            return {}
        ari = self.ari(round_)
        return {
            "present": len(event["present"]),
            "waiting": len(event["waiting"]),
            "clusters": len(set(event["clusters"].values())),
            "ari": "" if ari is None else round(ari, 4),
            "alarms": sum(since < r <= round_ for _, r in self.alarms),
            "moved": sum(since < r <= round_ for _, r in self.moved),
        }


def lifecycle_summary(story: Story) -> dict[str, Any] | None:
    """`result.json["lifecycle"]`; None for a run in which nothing could change."""
    if not story.standing:
        return None
    rounds = sorted(story.standing)
    aris = {r: ari for r in rounds if (ari := story.ari(r)) is not None}
    return {
        **_detection(story),
        "moved": len(story.moved),
        "reassigned_right": _share(_right(story, c, r) for c, r in detected(story)[0].values()),
        "newcomers": len(story.newcomers),
        "newcomers_right": _share(_right(story, c, r) for c, r in story.newcomers.items()),
        "newcomers_right_final": _share(_right(story, c, rounds[-1]) for c in story.newcomers),
        "reclusterings": sum(event["accepted"] for event in story.clusterings),
        "looks": len(story.clusterings),
        "ari_final": aris.get(rounds[-1]),
        "ari": {str(r): round(aris[r], 4) for r in rounds if r in aris and r in story.accuracy},
        "accuracy": {name: curve(story, clients) for name, clients in groups(story).items() if clients},
        "rounds_to_recover": rounds_to_recover(story),
    }


def detected(story: Story) -> tuple[dict[tuple[str, int], tuple[str, int]], list[tuple[str, int]]]:
    """Drift → the alarm that noticed it, and false alarms.

    An alarm is right when the client's data have changed since its reference, which every alarm renews: a
    client that raised one in the middle of a slow drift is right to raise another.
    """
    found: dict[tuple[str, int], tuple[str, int]] = {}
    false = []
    references = dict(story.newcomers)
    for client, round_ in story.alarms:
        since = references.get(client, 0)
        changed = [at for c, at, done in story.drifts if c == client and at <= round_ and done > since]
        if changed:
            found.setdefault((client, changed[-1]), (client, round_))
        else:
            false.append((client, round_))
        references[client] = round_
    return found, false


def _detection(story: Story) -> dict[str, Any]:
    """Recall, precision, delay and false alarms, over drifts that some check could have noticed."""
    found, false = detected(story)
    checks = sorted(story.checks)
    visible = []
    for k, (client, at, _) in enumerate(story.drifts):
        later = [a for c, a, _ in story.drifts[k + 1 :] if c == client and a > at]
        until = min(later, default=1 << 60)
        due = [r for r in checks[bisect_left(checks, at) :] if r < until]
        if any(client in story.standing[r]["present"] for r in due if r in story.standing):
            visible.append((client, at))
    seen = [drift for drift in visible if drift in found]
    delays = [found[drift][1] - drift[1] for drift in seen]
    asked = sum(story.checks.values())
    return {
        "drifts": len(visible),
        "detected": len(seen),
        "recall": len(seen) / len(visible) if visible else None,
        "precision": 1 - len(false) / len(story.alarms) if story.alarms else None,
        "delay": float(np.mean(delays)) if delays else None,
        "client_checks": asked,
        "repeated_alarms": len(story.alarms) - len(found) - len(false),
        "false_alarms": len(false),
        "false_alarms_per_1000": 1000 * len(false) / asked if asked else None,
    }


def _right(story: Story, client: str, round_: int) -> bool | None:
    """Whether a client is, in a round, in a cluster where its planted group is the largest among the others.

    None where nobody else of its group is there: then no place is right.
    """
    event = story.standing.get(round_)
    if event is None or client not in event["planted"] or client not in event["clusters"]:
        return None
    planted, clusters = event["planted"], event["clusters"]
    group = planted[client]
    if not any(g == group for c, g in planted.items() if c != client):
        return None
    mates = [
        planted[c] for c, z in clusters.items() if z == clusters[client] and c != client and c in planted
    ]
    return bool(mates) and mates.count(group) == max(mates.count(g) for g in mates)


def _share(values: Iterable[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def groups(story: Story) -> dict[str, list[str]]:
    """Clients whose data changed, clients that joined, and all others."""
    drifted = {client for client, _, _ in story.drifts}
    new = set(story.newcomers) - drifted
    everyone = {client for scores in story.accuracy.values() for client in scores}
    return {
        "drifted": sorted(drifted),
        "new": sorted(new),
        "untouched": sorted(everyone - drifted - new),
    }


def curve(story: Story, clients: Sequence[str]) -> dict[str, float]:
    """Round → mean accuracy of those of the clients that were scored."""
    found = {}
    for round_, scores in sorted(story.accuracy.items()):
        some = [scores[c] for c in clients if c in scores]
        if some:
            found[str(round_)] = round(float(np.mean(some)), 5)
    return found


def rounds_to_recover(story: Story) -> float | None:
    """Mean rounds from a drift until its clients are within two points of their accuracy before it.

    None if nothing drifted, or if the accuracy did not come back.
    """
    spans = []
    rounds = sorted(story.accuracy)
    for at in sorted({at for _, at, _ in story.drifts}):
        clients = [c for c, a, _ in story.drifts if a == at]
        before, after = [r for r in rounds if r < at], [r for r in rounds if r >= at]
        if not before or not after:
            continue
        means = curve(story, clients)
        wanted = means.get(str(before[-1]))
        if wanted is None:
            continue
        back = [r for r in after if means.get(str(r), 0.0) >= wanted - WITHIN]
        spans.append(back[0] - at if back else None)
    if not spans or any(span is None for span in spans):
        return None
    return float(np.mean([span for span in spans if span is not None]))
