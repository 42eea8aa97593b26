# SPDX-License-Identifier: Apache-2.0
"""Problem: all a server may know of the data. Samples, amounts and labels stay with the clients."""

from dataclasses import dataclass, field

from feddag.core.examples import Scaling


@dataclass(frozen=True)
class Problem:
    """What networks are built for and what predictions mean."""

    input_shape: tuple[int, ...]  # of one sample
    num_classes: int
    class_names: tuple[str, ...] = ()  # empty: the classes have no names
    scaling: Scaling = field(default_factory=Scaling)
    integer_codes: bool = False  # samples are sequences of codes (text), not measurements
    # Of tables, in the order of the features: a column of numbers with (), or of texts with its values,
    # each of which is one feature.
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
