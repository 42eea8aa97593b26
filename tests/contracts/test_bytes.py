# SPDX-License-Identifier: Apache-2.0
"""What each question costs, by formula: bytes down and up for one client.

Parameters and means are float32 (4 bytes), counts int64 (8 bytes), every single number 8 bytes.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.toys import SETTINGS, every_algorithm, play, reference, toy

NUMBER = 8
LOCAL = 10 * NUMBER + len("sgd") + len("constant")  # the settings of local training
WIDTH, HIDDEN, FEATURES, CLASSES = 6, 128, 64, 4
E = (WIDTH + 1) * HIDDEN + (HIDDEN + 1) * FEATURES  # encoder
H = (FEATURES + 1) * CLASSES  # head
H_DUAL = (2 * FEATURES + 1) * CLASSES  # head over two encoders
M = E + H  # model
D = (FEATURES + 1) * 2 * FEATURES + (2 * FEATURES + 1) * 2 * FEATURES + (2 * FEATURES + 1) * FEATURES
K = 2  # clusters of all toy methods that are told a number
SAMPLE = WIDTH + CLASSES  # floats of one mean of FedMix

# Bytes; where needed as a function of the client's number of samples, or one of several.
Size = int | set[int] | Callable[[int], int]

SIGN = (
    4 * M + LOCAL + 8 * NUMBER + len("pixels shape texture gradient".replace(" ", "") + "total" + "exact"),
    4 * round(0.02 * M) + 2 * (4 * WIDTH + NUMBER) * CLASSES + NUMBER * CLASSES + NUMBER,
)
# method → task → (down, up) for each client that is asked
FORMULAS: dict[str, dict[str, tuple[Size, Size]]] = {
    "feddag": {
        # sketch (2% of M), for pixels and shape one vector a class with its class, class counts, classes
        # withheld; vectors have no texture and no tones
        "sign": (SIGN[0] + len("tones"), SIGN[1]),
        "train": (4 * M + LOCAL, 4 * M + NUMBER),
        # the models of both clusters, network, samples that speak for the own one; weights and samples
        "explain": (4 * 2 * M + len("single") + NUMBER, 2 * NUMBER + NUMBER),
    },
    "feddag, two encoders": {
        "sign": SIGN,
        "share_warm": (len("primary.head."), 4 * M + NUMBER),
        # own encoders and head, and the learners' combined encoder: 3E + H₂ down, 2E + H₂ up
        "train_dual": (
            4 * (3 * E + H_DUAL) + LOCAL + 4 * NUMBER,
            4 * (2 * E + H_DUAL) + NUMBER,
        ),
    },
    "fedavg": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "fedprox": {"train": (4 * M + NUMBER + LOCAL, 4 * M + NUMBER)},
    "fedavgm": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "fedadam": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    # model and control variate, both ways
    "scaffold": {"train_controlled": (4 * 2 * M + NUMBER + LOCAL, 4 * 2 * M + NUMBER)},
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
        "choose_and_train": (4 * K * M + LOCAL, 4 * M + 2 * NUMBER),
    },
    "pacfl": {
        "describe": (NUMBER, 4 * WIDTH * CLASSES),  # one vector a class, everyone has all classes
        "train": (4 * M + LOCAL, 4 * M + NUMBER),
    },
    "cfl": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "cfl_gp": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "fedgwc": {
        "train_with_losses": (4 * M + LOCAL, 4 * M + NUMBER + 2 * NUMBER),  # two epochs
        "compare": (4 * K * M, NUMBER * K + NUMBER),
    },
    "feddrift": {
        "train": (4 * M + LOCAL, 4 * M + NUMBER),
        "compare": (4 * M, 2 * NUMBER),
    },
    "fblg": {
        "embed_noise": (4 * M + LOCAL + NUMBER, NUMBER * FEATURES),
        "compare": (4 * M, 2 * NUMBER),
        "train": (4 * M + LOCAL, 4 * M + NUMBER),
    },
    "fedper": {"train_part": (4 * E + LOCAL, 4 * E + NUMBER)},
    "fedrep": {"train_in_turn": (4 * E + 2 * LOCAL, 4 * E + NUMBER)},
    "local": {"train_alone": (LOCAL, NUMBER)},
    "fedavg_ft": {"train": (4 * M + LOCAL, 4 * M + NUMBER)},
    "fedrc": {
        "train": (4 * K * (M + CLASSES) + K * NUMBER + LOCAL, 4 * K * (M + CLASSES) + NUMBER),
        "join": (4 * K * (M + CLASSES) + K * NUMBER + NUMBER, 4 * K),
    },
}
IN_TOTAL: dict[tuple[str, str], int] = {("fedbr", "make_pseudo"): 4 * 8 * WIDTH}  # up, over all clients
FIRST_TIME = {"fedper": 4 * H, "fedrep": 4 * H, "local": 4 * M}  # down, once to each client


def sizes(formula: Size, samples: int, once: int = 0) -> set[int]:
    """What a question may cost."""
    if isinstance(formula, set):
        return formula
    return {once + (formula(samples) if callable(formula) else formula)}


@every_algorithm
def test_bytes_equal_the_formula(name: str) -> None:
    if name not in FORMULAS:
        pytest.fail(f"state in FORMULAS what the questions of '{name}' cost")
    check(name, toy(name).federation, reference(name).asked)


def test_bytes_of_two_encoders_equal_the_formula() -> None:
    prepared = toy("feddag", {**SETTINGS["feddag"], "preset": "two_encoders"})
    check("feddag, two encoders", prepared.federation, play(prepared).asked)


def check(name: str, federation: Any, questions: Any) -> None:
    seen: set[str] = set()
    known: set[str] = set()
    for asked in questions:
        if asked.purpose == "evaluation":
            continue
        seen.add(asked.task)
        down, up = FORMULAS[name][asked.task]
        for client, answer in asked.answers.items():
            samples = len(federation.clients[client].train)
            once = 0 if client in known else FIRST_TIME.get(name, 0)
            assert answer.bytes_down in sizes(down, samples, once)
            if (name, asked.task) not in IN_TOTAL:
                assert answer.bytes_up in sizes(up, samples)
        if (name, asked.task) in IN_TOTAL:
            assert sum(a.bytes_up for a in asked.answers.values()) == IN_TOTAL[name, asked.task]
        known |= asked.answers.keys()
    assert seen == FORMULAS[name].keys(), "a formula without a question"


def test_the_toy_network_has_the_size_the_formulas_assume() -> None:
    networks: Any = toy("fedavg").site.network
    assert sum(p.numel() for p in networks("single").parameters()) == M
    assert sum(p.numel() for p in networks("projected").parameters()) == M + D
