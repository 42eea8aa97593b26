# SPDX-License-Identifier: Apache-2.0
"""No test leaves anything behind, nor pays for what it does not look at. Attacks are counted."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.support.forks import forked_workers

WITHOUT_PAGES = {"algorithms", "contracts", "deploy", "engines", "hard", "learning", "privacy"}
"""Folders of tests that look at no clustering page: drawing one takes longer than a whole toy run."""
WITH_FORKS = {"algorithms", "contracts", "privacy"}
"""Folders whose engines get forks as workers; tests/engines, /runs and /cli start them as users do."""


@pytest.fixture(autouse=True, scope="module")
def only_what_is_tested(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out pages and the import of everything in each worker, where a test is not about them."""
    folder, fresh = request.path.parent.name, getattr(request.module, "FRESH_WORKERS", False)
    with pytest.MonkeyPatch.context() as patch:
        if folder in WITHOUT_PAGES:
            patch.setattr("feddag.runs.result.MOST_ON_A_PAGE", 0)
        if folder in WITH_FORKS and not fresh and hasattr(os, "fork"):
            with forked_workers(patch, lambda number: 0):
                yield
        else:
            yield


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
