# SPDX-License-Identifier: Apache-2.0
"""The estimators keep scikit-learn's rules, and the examples in their descriptions are true."""

import doctest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks

from feddag.clustering import estimators
from feddag.clustering.estimators import AgglomerativeByScore, SignatureClustering

# X is a matrix of distances, not of samples, and our message names the item with a negative distance.
NOT_APPLICABLE = {"check_clustering", "check_positive_only_tag_during_fit"}


def test_the_examples_are_true() -> None:
    result = doctest.testmod(estimators)
    assert (result.failed, result.attempted > 5) == (0, True)


@pytest.mark.filterwarnings("ignore")
def test_the_clustering_of_distances_passes_the_checks_of_scikit_learn() -> None:
    if not hasattr(estimator_checks, "_yield_all_checks"):
        pytest.skip("this scikit-learn has other checks")
    results = estimator_checks.check_estimator(AgglomerativeByScore(), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed <= NOT_APPLICABLE
    assert sum(result["status"] == "passed" for result in results) > 30


@pytest.mark.parametrize("estimator", [AgglomerativeByScore(min_size=2), SignatureClustering(num_sources=2)])
def test_parameters_survive_a_copy_and_nothing_else_is_set_before_fit(estimator) -> None:
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert vars(copy) == copy.get_params()
    assert copy.set_params(random_state=7).random_state == 7


def test_one_array_instead_of_one_per_data_set_is_told_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="X and y must hold one array of samples and one list of labels per"):
        SignatureClustering().fit(np.zeros((6, 2)), np.arange(6))


def test_sparse_and_textual_distances_are_refused() -> None:
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="Sparse data was passed"):
        AgglomerativeByScore().fit(csr_array(np.eye(4)))
    with pytest.raises(ValueError, match="could not convert string"):
        AgglomerativeByScore().fit([["near", "far"], ["far", "near"]])
