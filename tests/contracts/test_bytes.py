# SPDX-License-Identifier: Apache-2.0
"""What each question costs, by formula: bytes down and up for one client.

Parameters and means are float32 (4 bytes), counts int64 (8 bytes), every single number 8 bytes.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.toys import every_algorithm, reference, toy

NUMBER = 8
LOCAL = 6 * NUMBER  # the settings of local training
WIDTH, HIDDEN, FEATURES, CLASSES = 6, 128, 64, 4
E = (WIDTH + 1) * HIDDEN + (HIDDEN + 1) * FEATURES  # encoder
H = (FEATURES + 1) * CLASSES  # head
M = E + H  # model
D = (FEATURES + 1) * 2 * FEATURES + (2 * FEATURES + 1) * 2 * FEATURES + (2 * FEATURES + 1) * FEATURES
K = 2  # clusters of all toy methods that are told a number
SAMPLE = WIDTH + CLASSES  # floats of one mean of FedMix

Size = int | Callable[[int], int]  # bytes, where needed as a function of the client's number of samples

# method → task → (down, up) for each client that is asked
FORMULAS: dict[str, dict[str, tuple[Size, Size]]] = {
    "fedavg": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "fedprox": {"train": (4 * M + NUMBER + LOCAL, 4 * M + NUMBER)},
    "ditto": {"train": (4 * M + NUMBER + LOCAL, 4 * M + NUMBER)},
    "perfedavg": {"meta_train": (4 * M + 3 * NUMBER + LOCAL, 4 * M + NUMBER)},
    "fedmix": {
        "share_means": (NUMBER, lambda n: 4 * math.ceil(n / 5) * SAMPLE),
        "remember": (4 * 20 * SAMPLE, 0),
        "train": (4 * M + NUMBER + LOCAL, 4 * M + NUMBER),
    },
    "fedbr": {
        "make_pseudo": (2 * NUMBER, 0),  # 8 pseudo-samples in all, see below
        "remember": (4 * 8 * WIDTH, 0),
        "train": (4 * (M + D) + 4 * NUMBER + LOCAL, 4 * (M + D) + NUMBER),
    },
    "fedsoft": {
        "assess": (4 * K * M, NUMBER * K),
        "train": (4 * M + NUMBER + LOCAL, 4 * M + NUMBER),
    },
    "ifca": {
        "choose": (4 * K * M, NUMBER),
        "train": (4 * K * M + LOCAL, 4 * M + 2 * NUMBER),
    },
    "fedrc": {
        "train": (4 * K * (M + CLASSES) + K * NUMBER + LOCAL, 4 * K * (M + CLASSES) + NUMBER),
        "join": (4 * K * (M + CLASSES) + K * NUMBER + NUMBER, 4 * K),
    },
}
IN_TOTAL: dict[tuple[str, str], int] = {("fedbr", "make_pseudo"): 4 * 8 * WIDTH}  # up, over all clients


def size(formula: Size, samples: int) -> int:
    return formula(samples) if callable(formula) else formula


@every_algorithm
def test_bytes_equal_the_formula(name: str) -> None:
    if name not in FORMULAS:
        pytest.fail(f"state in FORMULAS what the questions of '{name}' cost")
    federation = toy(name).federation
    seen: set[str] = set()
    for asked in reference(name).asked:
        if asked.purpose == "evaluation":
            continue
        seen.add(asked.task)
        down, up = FORMULAS[name][asked.task]
        samples = {client: len(federation.clients[client].train) for client in asked.answers}
        assert {c: a.bytes_down for c, a in asked.answers.items()} == {
            c: size(down, n) for c, n in samples.items()
        }
        if (name, asked.task) in IN_TOTAL:
            assert sum(a.bytes_up for a in asked.answers.values()) == IN_TOTAL[name, asked.task]
        else:
            assert {c: a.bytes_up for c, a in asked.answers.items()} == {
                c: size(up, n) for c, n in samples.items()
            }
    assert seen == FORMULAS[name].keys(), "a formula without a question"


def test_the_toy_network_has_the_size_the_formulas_assume() -> None:
    networks: Any = toy("fedavg").site.network
    assert sum(p.numel() for p in networks("single").parameters()) == M
    assert sum(p.numel() for p in networks("projected").parameters()) == M + D
