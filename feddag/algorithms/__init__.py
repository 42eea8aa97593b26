# SPDX-License-Identifier: Apache-2.0
"""The algorithms, in one explicit table: the name users type → the class."""

from typing import Any

from feddag.algorithms.ditto import Ditto
from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.fedbr import FedBR
from feddag.algorithms.fedmix import FedMix
from feddag.algorithms.fedprox import FedProx
from feddag.algorithms.fedrc import FedRC
from feddag.algorithms.fedsoft import FedSoft
from feddag.algorithms.ifca import IFCA
from feddag.algorithms.perfedavg import PerFedAvg

ALGORITHMS: dict[str, Any] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "perfedavg": PerFedAvg,
    "fedmix": FedMix,
    "fedbr": FedBR,
    "fedsoft": FedSoft,
    "ifca": IFCA,
    "fedrc": FedRC,
    "ditto": Ditto,
}
