# SPDX-License-Identifier: Apache-2.0
"""No test leaves anything behind in the process. Attacks are counted, and the sums are shown at the end."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def ordinary_arithmetic() -> Iterator[None]:
    """Engines that a test did not close must not change how the next one computes."""
    yield
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)


@pytest.fixture
def counted(record_property: Callable[[str, Any], None]) -> Callable[[str, int], None]:
    """Takes what a test has done, and how often."""
    return lambda what, number: record_property(f"counted {what}", number)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show the sums of all counted attacks."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        if report.when == "call":
            for name, number in report.user_properties:
                if name.startswith("counted "):
                    sums[name.removeprefix("counted ")] += number
    if sums:
        terminalreporter.section("attacks that were withstood")
        for what, number in sorted(sums.items()):
            terminalreporter.write_line(f"{number:>7,} {what}")
