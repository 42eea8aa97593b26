# SPDX-License-Identifier: Apache-2.0
"""The toy federation of `feddag.contracts`, and every method as a parameter."""

import pytest

from feddag.algorithms import ALGORITHMS
from feddag.contracts.toys import (
    COHORT,
    SETTINGS,
    TRAINING,
    Around,
    Asked,
    PowerCut,
    Trace,
    arrays_of,
    experiment,
    play,
    reference,
    toy,
    toy_server,
    toy_site,
)

__all__ = [
    "COHORT",
    "SETTINGS",
    "TRAINING",
    "Around",
    "Asked",
    "PowerCut",
    "Trace",
    "arrays_of",
    "every_algorithm",
    "experiment",
    "play",
    "reference",
    "toy",
    "toy_server",
    "toy_site",
]

every_algorithm = pytest.mark.parametrize("name", sorted(ALGORITHMS))
