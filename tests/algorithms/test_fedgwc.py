# SPDX-License-Identifier: Apache-2.0
"""FedGWC: rewards, interactions, affinity and splits, each against a literal computation."""

from dataclasses import replace

import numpy as np
import pytest

from feddag.algorithms.fedavg import FedAvg
from feddag.algorithms.fedgwc import FedGWC, Leaf, State, affinity, best_parts, rewards
from feddag.core.clusters import Clusters
from tests.algorithms.toys import LOCAL, Toy, two_groups, with_newcomers


def test_equal_losses_are_rewarded_with_one() -> None:
    assert rewards(np.full((3, 2), 0.7), [1, 2, 3]).tolist() == [1.0, 1.0, 1.0]


def test_a_reward_is_the_gaussian_of_the_distance_from_the_weighted_mean() -> None:
    # sizes 3 and 1: mean (3·0 + 4)/4 = 1, variance (3·1 + 9)/4 = 3; distances 1 and 3
    expected = [np.exp(-1 / 6), np.exp(-9 / 6)]
    np.testing.assert_allclose(rewards(np.array([[0.0], [4.0]]), [3, 1]), expected)


def test_only_pairs_that_took_part_interact() -> None:
    toy = Toy(two_groups(4), fraction=0.5)
    algorithm = FedGWC(local=LOCAL)
    start = algorithm.start(toy.server(0))
    server = toy.server(1)
    (leaf,) = algorithm.round(start, server).leaves
    assert start.leaves[0].interactions_CC.tolist() == np.full((4, 4), 1 / 16).tolist()
    present = np.isin(toy.clients, server.cohort)
    changed = leaf.interactions_CC != 1 / 16
    assert not changed[~np.outer(present, present)].any()
    # two participants of four: P ← P/2 + ω_i/Σω / 2, and both ω are exp(−1/2) by symmetry
    np.testing.assert_allclose(leaf.interactions_CC[np.ix_(present, present)], 1 / 32 + 1 / 4, rtol=1e-6)
    assert leaf.mse == pytest.approx(0.5 + 0.5 * (1 / 32 + 1 / 4 - 1 / 16) ** 2)


def test_affinity_leaves_out_what_two_clients_say_of_themselves_and_each_other() -> None:
    matrix = np.random.default_rng(1).random((5, 5))
    seen = (matrix.T - matrix.min()) / (matrix.max() - matrix.min())
    found = affinity(matrix, 0.7)
    for i in range(5):
        for j in range(5):
            rest = [k for k in range(5) if k not in (i, j)]
            expected = np.exp(-0.7 * ((seen[i, rest] - seen[j, rest]) ** 2).sum()) if i != j else 1.0
            assert found[i, j] == pytest.approx(expected)


def test_two_blocks_are_parted_and_one_block_is_not() -> None:
    blocks = np.kron(np.eye(2), np.ones((4, 4))) + 1e-3
    parts = best_parts(blocks, 4, seed=0)
    assert parts is not None
    assert parts.tolist() == [0] * 4 + [1] * 4
    assert best_parts(blocks, 1, seed=0) is None
    assert best_parts(np.ones((2, 2)), 4, seed=0) is None


def test_at_epsilon_zero_it_is_fedavg_bit_for_bit() -> None:
    clustered, plain = Toy(two_groups(4), fraction=0.5), Toy(two_groups(4), fraction=0.5)
    state = clustered.play(FedGWC(local=LOCAL, epsilon=0.0), 5)
    assert [leaf.params for leaf in state.leaves] == [plain.play(FedAvg(local=LOCAL), 5).params]


def settled(toy: Toy, epsilon: float = 1.0) -> tuple[FedGWC, State]:
    """A state whose matrix shows two groups, the even and the odd clients."""
    algorithm = FedGWC(local=LOCAL, epsilon=epsilon, gamma=4.0)
    n = len(toy.clients)
    even = np.arange(n) % 2 == 0
    matrix = np.where(even[:, None] == even[None, :], 0.5, 0.0) + 0.01 * np.eye(n)
    leaf = Leaf(
        params=toy.server(0).initial_params(), interactions_CC=matrix, mse=1e-9, patience=round(1 / 0.25)
    )
    return algorithm, State(clusters=Clusters(members=(toy.clients,)), leaves=(leaf,))


def test_a_settled_cluster_is_split_and_children_inherit_model_and_matrix() -> None:
    toy = Toy(two_groups(8), fraction=0.25)
    algorithm, state = settled(toy)
    after = algorithm.round(state, toy.server(1))
    assert after.clusters.members == (("c0", "c2", "c4", "c6"), ("c1", "c3", "c5", "c7"))
    assert after.leaves[0].params == after.leaves[1].params
    assert [leaf.interactions_CC.shape for leaf in after.leaves] == [(4, 4), (4, 4)]
    assert [(leaf.mse, leaf.patience) for leaf in after.leaves] == [(1.0, 0)] * 2
    later = algorithm.round(after, toy.server(2))
    assert sorted(c for cluster in later.clusters.members for c in cluster) == sorted(toy.clients)


def test_a_cluster_that_does_not_divide_settles_anew() -> None:
    toy = Toy(two_groups(8), fraction=0.75)  # ⌊8 / 6⌋ = 1 part at most
    algorithm, state = settled(toy)
    after = algorithm.round(state, toy.server(1))
    assert len(after.clusters) == 1
    assert (after.leaves[0].mse, after.leaves[0].patience) == (1.0, 0)


def test_newcomers_take_the_leaf_of_least_training_loss() -> None:
    toy = Toy(with_newcomers(two_groups(10), "c8", "c9"), fraction=0.25)
    algorithm, state = settled(toy, epsilon=0.0)
    split = FedGWC(local=LOCAL, epsilon=1.0, gamma=4.0).round(state, toy.server(1))
    for round_ in range(2, 14):
        split = algorithm.round(split, toy.server(round_))
    toy.traffic.clear()
    after = algorithm.onboard(split, ("c8", "c9"), toy.server(14, "newcomers"))
    assert after.clusters.of("c8") == after.clusters.of("c0")
    assert after.clusters.of("c9") == after.clusters.of("c1")
    assert [leaf.interactions_CC.shape for leaf in after.leaves] == [(5, 5), (5, 5)]
    model = 4 * state.leaves[0].params.layout.size
    assert toy.traffic == [("compare", 2 * 2 * model, 2 * (2 * 8 + 8))]


def test_a_cluster_no_larger_than_a_cohort_stays_whole() -> None:
    toy = Toy(two_groups(8), fraction=0.5)
    algorithm, state = settled(toy)
    small = Clusters(members=(toy.clients[:4], toy.clients[4:]))
    leaves = tuple(
        replace(state.leaves[0], interactions_CC=state.leaves[0].interactions_CC[:4, :4]) for _ in range(2)
    )
    after = algorithm.round(State(clusters=small, leaves=leaves), toy.server(1))
    assert len(after.clusters) == 2


def test_the_constant_vector_of_the_embedding_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first vector holds one number: with it, parts seem nearer to each other than they are.
    seen: list[tuple[int, ...]] = []

    def shape_of(points: np.ndarray, labels: np.ndarray) -> float:
        seen.append(points.shape)
        return 0.5

    monkeypatch.setattr("feddag.algorithms.fedgwc.davies_bouldin", shape_of)
    best_parts(np.kron(np.eye(2), np.ones((4, 4))) + 1e-3, 3, seed=0)
    assert seen == [(8, 1), (8, 2)]


def test_without_an_epsilon_a_matrix_can_settle_after_a_quarter_of_the_rounds() -> None:
    assert FedGWC().acts_from(num_rounds=200, participation=0.2) == 50 + 5
    assert FedGWC().acts_from(num_rounds=20, participation=0.2) == 5 + 5
    assert FedGWC(epsilon=1e-5).acts_from(num_rounds=20, participation=0.2) > 20
    assert FedGWC(epsilon=0.0).acts_from(num_rounds=20, participation=0.2) > 10**6
    assert FedGWC().acts_from(num_rounds=20, participation=1.0) == 1


def test_it_splits_within_few_rounds_when_the_number_of_rounds_is_small() -> None:
    toy = Toy(two_groups(16), fraction=0.25)
    state, algorithm = None, FedGWC(local=LOCAL, gamma=4.0)
    for round_ in range(25):
        server = replace(toy.server(round_), num_rounds=24)
        state = algorithm.start(server) if state is None else algorithm.round(state, server)
        first = algorithm.acts_from(24, 0.25)
        assert round_ >= first or len(state.clusters) == 1
        if round_ and state.leaves[0].patience == 0 and round_ > first:  # it settled and acted
            return
    pytest.fail("nothing happened within the rounds")
