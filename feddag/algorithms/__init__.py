# SPDX-License-Identifier: Apache-2.0
"""The algorithms, in one explicit table: the name users type → the class."""

from typing import Any

from feddag.algorithms.cfl import CFL
from feddag.algorithms.cfl_gp import CFLGP
from feddag.algorithms.fblg import FBLG
from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.fedavg_ft import FedAvgFineTuned
from feddag.algorithms.fedgwc import FedGWC
from feddag.algorithms.fedper import FedPer
from feddag.algorithms.fedprox import FedProx
from feddag.algorithms.fedrep import FedRep
from feddag.algorithms.local import Local
from feddag.algorithms.pacfl import PACFL

ALGORITHMS: dict[str, Any] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavg_ft": FedAvgFineTuned,
    "local": Local,
    "pacfl": PACFL,
    "cfl": CFL,
    "cfl_gp": CFLGP,
    "fedgwc": FedGWC,
    "fblg": FBLG,
    "fedper": FedPer,
    "fedrep": FedRep,
}
