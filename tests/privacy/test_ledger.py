# SPDX-License-Identifier: Apache-2.0
"""The ledger and its sums against dp-accounting; entries that neither vanish nor come twice."""

import math
from pathlib import Path

import dp_accounting as dp
import pytest

from feddag.core.seeds import Seed
from feddag.privacy.accounting import (
    DPSGD,
    GAUSSIAN,
    LAPLACE,
    Spend,
    event_of,
    gaussian_sigma,
    total_epsilon,
)
from feddag.privacy.ledger import Entry, Ledger


def entry(client: str, release: str, spend: Spend | None = None) -> Entry:
    if spend is None:
        return Entry(client, release, 1, "train", "scores", "plain")
    numbers = {"noise": spend.noise, "rate": spend.rate, "steps": spend.steps}
    return Entry(client, release, 1, "train", "update", spend.mechanism, **numbers)


def random_spends(seed: int) -> list[Spend]:
    """What a client could have spent: counts, signatures and trainings, in some order."""
    g = (Seed(seed) / "spends").numpy()
    spends = [Spend(LAPLACE, round(float(g.uniform(0.1, 2)), 3)) for _ in range(g.integers(0, 4))]
    spends += [Spend(GAUSSIAN, round(float(g.uniform(1, 8)), 3)) for _ in range(g.integers(1, 4))]
    if seed % 2:
        rate, noise = round(float(g.uniform(0.02, 0.5)), 3), round(float(g.uniform(1, 6)), 2)
        spends += [Spend(DPSGD, noise, rate, int(g.integers(1, 90))) for _ in range(g.integers(1, 5))]
    return [spends[i] for i in g.permutation(len(spends))]


@pytest.mark.parametrize("seed", range(50))
def test_sums_are_those_of_dp_accounting(seed: int) -> None:
    spends = random_spends(seed)
    sampled = any(s.mechanism == DPSGD for s in spends)
    accountant = (
        dp.rdp.RdpAccountant() if sampled else dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    )
    for spend in spends:
        pure = sampled and spend.mechanism == LAPLACE  # Rényi accounting has no discrete Laplace
        accountant.compose(dp.ZCDpEvent(spend.noise**2 / 2) if pure else event_of(spend))
    assert total_epsilon(spends, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)


def test_known_values() -> None:
    assert total_epsilon([], 1e-5) == 0
    assert gaussian_sigma(2.0, 1e-5) == pytest.approx(1.9938, abs=1e-3)
    assert total_epsilon([Spend(LAPLACE, 0.5)], 1e-5) == pytest.approx(0.5, abs=2e-3)
    assert total_epsilon([Spend(GAUSSIAN, gaussian_sigma(2.0, 1e-5))], 1e-5) == pytest.approx(2.0, abs=5e-3)


def test_several_views_with_more_noise_cost_what_one_costs() -> None:
    sigma = gaussian_sigma(2.0, 1e-5)
    three = total_epsilon([Spend(GAUSSIAN, sigma * math.sqrt(3))] * 3, 1e-5)
    assert three == pytest.approx(2.0, abs=1e-2)


def test_a_release_that_is_written_again_is_not_counted_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    one = entry("a", "question 1", Spend(LAPLACE, 0.5))
    ledger.write([one])
    ledger.write([one])
    Ledger(tmp_path / "ledger.jsonl").write([one, entry("a", "question 2"), entry("b", "question 1")])
    assert len(ledger.of("a")) == 2
    assert ledger.spends("a") == [Spend(LAPLACE, 0.5)]
    assert ledger.clients() == ["a", "b"]


def test_entries_of_other_processes_are_seen(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    first.write([entry("a", "1")])
    assert len(second.of("a")) == 1
    second.write([entry("a", "2")])
    assert len(first.of("a")) == 2


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_a_kill_has_cut_off_spoils_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).write([entry("a", "1", Spend(LAPLACE, 0.5))])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[1 : 1 + cut])  # the start of a second line
    after = Ledger(path)
    assert len(after.of("a")) == 1
    after.write([entry("a", "3", Spend(LAPLACE, 0.5))])
    assert len(Ledger(path).spends("a")) == 2
