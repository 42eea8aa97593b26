# SPDX-License-Identifier: Apache-2.0
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddag.core.seeds import Seed
from feddag.data.dealing.allocate import (
    deal,
    dirichlet,
    log_dirichlet,
    normalise,
    raise_to_least,
    round_to_total,
)

alphas = st.floats(min_value=1e-300, max_value=1e6)


@given(alphas, st.integers(1, 50), st.integers(0, 2**32))
def test_dirichlet_shares_are_a_distribution_for_every_alpha(alpha, holders, seed):
    shares = dirichlet(alpha, holders, Seed(seed).numpy())
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()
    assert np.isclose(shares.sum(), 1.0)


def test_dirichlet_has_the_mean_and_variance_of_the_distribution():
    draws = np.stack([dirichlet(0.5, 3, (Seed(0) / i).numpy()) for i in range(4000)])
    variance = (1 / 3) * (2 / 3) / (3 * 0.5 + 1)
    assert np.allclose(draws.mean(axis=0), 1 / 3, atol=0.02)
    assert np.allclose(draws.var(axis=0), variance, atol=0.01)


def test_a_tiny_alpha_gives_everything_to_one_holder():
    assert np.isclose(dirichlet(1e-300, 5, Seed(1).numpy()).max(), 1.0)


def test_only_allowed_holders_get_a_share():
    logs = log_dirichlet(np.full(4, 0.01), Seed(3).numpy())
    shares = normalise(logs, np.array([False, True, False, True]))
    assert shares[0] == shares[2] == 0
    assert np.isclose(shares.sum(), 1.0)


def test_rounding_gives_the_rest_to_the_largest_remainders():
    assert round_to_total(np.array([0.5, 0.3, 0.2]), 9).tolist() == [4, 3, 2]
    assert round_to_total(np.array([1.0, 0.0, 0.0]), 5, least=1).tolist() == [3, 1, 1]
    assert round_to_total(np.array([0.9, 0.1]), 10, most=np.array([4, 20])).tolist() == [4, 6]


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 500), alphas, st.integers(0, 2**32))
def test_rounded_counts_sum_to_the_total(holders, least, more, alpha, seed):
    total = holders * least + more
    counts = round_to_total(dirichlet(alpha, holders, Seed(seed).numpy()), total, least=least)
    assert counts.sum() == total
    assert counts.min() >= least


def test_dealing_uses_each_sample_at_most_once_and_the_counts_asked_for():
    y = np.array([0, 0, 0, 1, 1, 2])
    counts = np.array([[2, 0, 1], [1, 1, 0]])
    rows = deal(y, counts, Seed(0).numpy())
    assert [np.bincount(y[r], minlength=3).tolist() for r in rows] == counts.tolist()
    assert len(np.unique(np.concatenate(rows))) == 5


def test_repair_moves_the_fewest_samples_from_the_largest():
    counts = np.array([[10, 0], [3, 3], [0, 0], [0, 1]])
    raised = raise_to_least(counts, 2, Seed(0).numpy())
    assert raised.sum(axis=1).tolist() == [7, 6, 2, 2]
    assert raised.sum(axis=0).tolist() == counts.sum(axis=0).tolist()
    assert (raised >= 0).all()


def test_repair_leaves_a_fair_table_alone():
    counts = np.array([[3, 1], [2, 2]])
    assert raise_to_least(counts, 4, Seed(0).numpy()).tolist() == counts.tolist()
