# SPDX-License-Identifier: Apache-2.0
"""The native trainer: C++ kernels train small networks, one client per thread; see README.md.

PyTorch is the reference. `describe` raises `Unsupported` for a network that the kernels cannot compute, and
`available()` is False when feddag was installed without a C++ compiler.
"""

from feddag.native.library import Unavailable, available, isa, why_not
from feddag.native.plan import NetworkPlan, Unsupported, describe
from feddag.native.trainer import Trained, features, forward, gradient, train

__all__ = [
    "NetworkPlan",
    "Trained",
    "Unavailable",
    "Unsupported",
    "available",
    "describe",
    "features",
    "forward",
    "gradient",
    "isa",
    "train",
    "why_not",
]
