# SPDX-License-Identifier: Apache-2.0
"""Every test of the kernels runs with each instruction set this processor has, and with 16 lanes emulated."""

from __future__ import annotations

import pytest
import torch

from feddag import native
from feddag.native import library

ISAS = library.isas() if native.available() else ["not built"]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Forces one instruction set; skips with the reason where the kernels are not built."""
    if request.param == "not built":
        pytest.skip(native.why_not())
    monkeypatch.setenv(library.FORCE_ISA, request.param)
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20)
