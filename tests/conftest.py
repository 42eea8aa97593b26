# SPDX-License-Identifier: Apache-2.0
"""No test leaves anything behind in the process."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def ordinary_arithmetic() -> Iterator[None]:
    """Engines that a test did not close must not change how the next one computes."""
    yield
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
