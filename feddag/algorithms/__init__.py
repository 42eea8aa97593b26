# SPDX-License-Identifier: Apache-2.0
"""The algorithms, in one explicit table: the name users type → the class."""

from typing import Any

from feddag.algorithms.cfl import CFL
from feddag.algorithms.cfl_gp import CFLGP
from feddag.algorithms.ditto import Ditto
from feddag.algorithms.fblg import FBLG
from feddag.algorithms.fedadam import FedAdam
from feddag.algorithms.fedavg import FedAvg, FedAvgFineTuned
from feddag.algorithms.fedavgm import FedAvgM
from feddag.algorithms.fedbr import FedBR
from feddag.algorithms.feddag import FedDAG
from feddag.algorithms.feddrift import FedDrift
from feddag.algorithms.fedgwc import FedGWC
from feddag.algorithms.fedmix import FedMix
from feddag.algorithms.fedper import FedPer
from feddag.algorithms.fedprox import FedProx
from feddag.algorithms.fedrc import FedRC
from feddag.algorithms.fedrep import FedRep
from feddag.algorithms.fedsoft import FedSoft
from feddag.algorithms.ifca import IFCA
from feddag.algorithms.local import Local
from feddag.algorithms.pacfl import PACFL
from feddag.algorithms.perfedavg import PerFedAvg
from feddag.algorithms.scaffold import Scaffold

ALGORITHMS: dict[str, Any] = {
    "feddag": FedDAG,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "scaffold": Scaffold,
    "perfedavg": PerFedAvg,
    "fedmix": FedMix,
    "fedbr": FedBR,
    "fedsoft": FedSoft,
    "pacfl": PACFL,
    "ifca": IFCA,
    "cfl": CFL,
    "cfl_gp": CFLGP,
    "fedgwc": FedGWC,
    "feddrift": FedDrift,
    "fedrc": FedRC,
    "fblg": FBLG,
    "fedper": FedPer,
    "fedrep": FedRep,
    "ditto": Ditto,
    "fedavg_ft": FedAvgFineTuned,
    "local": Local,
}
