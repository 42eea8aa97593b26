# SPDX-License-Identifier: Apache-2.0
"""The native trainer: small networks trained by C++ kernels, one client per thread; see README.md.

PyTorch stays the reference: `describe` says `Unsupported` for every network outside the vocabulary, and
`available()` is False where the package was installed without a C++ compiler.
"""

from feddag.native.library import Unavailable, available, isa, why_not
from feddag.native.plan import Plan, Unsupported, describe
from feddag.native.trainer import Stopped, Trained, features, forward, gradient, losses, predictions, train

__all__ = [
    "Plan",
    "Stopped",
    "Trained",
    "Unavailable",
    "Unsupported",
    "available",
    "describe",
    "features",
    "forward",
    "gradient",
    "isa",
    "losses",
    "predictions",
    "train",
    "why_not",
]
