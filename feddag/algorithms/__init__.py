# SPDX-License-Identifier: Apache-2.0
"""The algorithms, in one explicit table: the name users type → the class."""

from typing import Any

from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.fedprox import FedProx

ALGORITHMS: dict[str, Any] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
}
