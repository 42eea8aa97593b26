# SPDX-License-Identifier: Apache-2.0
"""What a client that resembles nobody is served: its own validation samples choose."""

from dataclasses import replace
from typing import Any

from feddag.core.averaging import mean
from feddag.core.deployment import Deployment, LocalTraining
from feddag.learning.partners import label_counts


def offered(served: Deployment, state: Any, local: LocalTraining) -> Deployment:
    """The nearest cluster's model as it is, or trained on the client's own data, or the mean of all clusters.

    The client takes the one with the least loss on its validation samples, which it tells nobody.
    """
    samples = [int(counts_C.sum()) for counts_C in label_counts(state)]
    everyone = (mean(state.models, samples),) if len(state.models) > 1 and any(samples) else ()
    return replace(served, models=(*served.models, *everyone), choose="validation", adapt=local)
