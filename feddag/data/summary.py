# SPDX-License-Identifier: Apache-2.0
"""A federation in numbers: where it came from, and classes × clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feddag.data.federation import Federation, Source


@dataclass(frozen=True)
class ClientRow:
    """One line of the table of classes × clients."""

    client: str
    group: str  # planted group in words, or ""
    newcomer: bool
    train: int
    validation: int
    test: int
    counts: tuple[int, ...]  # training samples of each class, in the client's own labels


def client_rows(federation: Federation) -> list[ClientRow]:
    """All clients, those of a planted group together."""
    counts = federation.counts()
    order = sorted(
        range(len(federation.ids)), key=lambda i: (federation.groups.get(federation.ids[i], -1), i)
    )
    rows = []
    for i in order:
        client = federation.ids[i]
        share = federation.clients[client]
        group = federation.groups.get(client)
        rows.append(
            ClientRow(
                client=client,
                group="" if group is None else federation.group_names.get(group, str(group)),
                newcomer=client in federation.newcomers,
                train=len(share.train),
                validation=len(share.validation),
                test=len(share.test),
                counts=tuple(int(c) for c in counts[i]),
            )
        )
    return rows


def source_line(source: Source) -> str:
    """Where the samples came from, in one line that says if they are only a part of the published set."""
    whole = "complete" if source.complete else "NOT the complete published set"
    return (
        f"{source.dataset}: {source.train_samples:,} training and {source.test_samples:,} test samples, "
        f"{whole}; {source.kind} ({source.detail}); SHA-256 {source.sha256[:16]}…"
    )


def class_lines(y: np.ndarray, names: Sequence[str], num_classes: int) -> list[tuple[str, int]]:
    """Number of samples of each class by name."""
    counts = np.bincount(y, minlength=num_classes)
    return [(names[c] if names else str(c), int(counts[c])) for c in range(num_classes)]
