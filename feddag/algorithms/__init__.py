# SPDX-License-Identifier: Apache-2.0
"""The algorithms, in one explicit table: the name users type → the class; users add module:Class."""

import dataclasses
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
from feddag.core.errors import InvalidInput
from feddag.core.plugins import Table


def _checked(name: str, found: Any) -> Any:
    """A user's algorithm, if it has the form of one."""
    needed = ("tasks", "start", "round", "onboard", "deploy")
    lacking = [part for part in needed if not hasattr(found, part)]
    if not isinstance(found, type) or lacking:
        what = f"it has no {', '.join(lacking)}" if isinstance(found, type) else "it is no class"
        raise InvalidInput(f"algorithm '{name}' is not an algorithm: {what}")
    fields = getattr(found, "__dataclass_fields__", {})
    if not dataclasses.is_dataclass(found) or "local" not in fields:
        raise InvalidInput(
            f"algorithm '{name}': expected a class with the decorator feddag.core.algorithm.algorithm "
            "and a field 'local: LocalTraining = LocalTraining()'"
        )
    return found


_OURS: dict[str, Any] = {
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

ALGORITHMS: Table[Any] = Table("algorithm", _OURS, _checked)
