# SPDX-License-Identifier: Apache-2.0
"""The scikit-learn estimators: names, labels and inputs of many kinds."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from feddag.clustering import estimators
from feddag.clustering.agglomerative import agreement
from feddag.clustering.estimators import AgglomerativeByScore, SignatureClustering
from tests.clustering.test_pipeline import planted
from tests.clustering.toys import CLASSES, blobs


def test_the_example_of_the_module_is_right():
    assert doctest.testmod(estimators).failed == 0


def test_distances_are_clustered_by_the_rule_or_into_a_given_number():
    distances, truth = blobs(np.random.default_rng(9), [8, 9])
    estimator = AgglomerativeByScore()
    assert agreement(estimator.fit_predict(distances), truth) == 1
    assert 0 < estimator.threshold_ < 1
    assert estimator.set_params(n_clusters=4).fit(distances).n_clusters_ == 4
    assert estimator.get_params()["n_clusters"] == 4
    assert clone(estimator).get_params() == estimator.get_params()


def test_the_metric_is_precomputed_and_nothing_else():
    distances, _ = blobs(np.random.default_rng(9), [8, 9])
    AgglomerativeByScore(metric="precomputed").fit(distances)
    with pytest.raises(ValueError, match="metric = 'euclidean': expected precomputed"):
        AgglomerativeByScore(metric="euclidean").fit(distances)
    with pytest.raises(ValueError, match="n_clusters = 0: expected at least 1"):
        AgglomerativeByScore(n_clusters=0).fit(distances)
    with pytest.raises(ValueError, match="cut_rule = 'elbow': expected one of structure"):
        AgglomerativeByScore(cut_rule="elbow").fit(distances)


def test_data_sets_are_clustered_without_any_other_preparation():
    x, y, sketches, truth = planted(6)
    estimator = SignatureClustering(num_classes=CLASSES)
    assert estimator.get_params()["vectors"] == 3
    assert agreement(estimator.fit(x, y).labels_, truth) == 1
    assert estimator.fit(x, y, sketches).n_clusters_ == 3
    assert clone(estimator).get_params() == estimator.get_params()


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["numbers", "gaps", "strings", "bytes"]), st.booleans())
def test_labels_of_any_kind_give_the_same_clusters(kind, by_name):
    x, y, _, _ = planted(6)
    rename = {
        "numbers": lambda c: c,
        "gaps": lambda c: 10 * c - 7,
        "strings": lambda c: "abcd"[c],
        "bytes": lambda c: b"abcd"[c : c + 1],
    }[kind]
    named = [np.array([rename(int(c)) for c in labels]) for labels in y]
    expected = SignatureClustering(num_classes=CLASSES).fit(x, y)
    if by_name:
        names = [f"site {i}" for i in range(len(x))]
        found = SignatureClustering().fit(
            dict(zip(names, x, strict=True)), dict(reversed(list(zip(names, named, strict=True))))
        )
        assert found.names_ == names
    else:
        found = SignatureClustering().fit(x, named)
    assert len(found.classes_) == CLASSES
    np.testing.assert_array_equal(found.labels_, expected.labels_)


def test_inputs_that_do_not_fit_are_refused_in_one_sentence():
    x, y, _, _ = planted(6)
    with pytest.raises(ValueError, match="15 data sets, but 3 sets of labels"):
        SignatureClustering().fit(x, y[:3])
    with pytest.raises(ValueError, match="the same names; only one of them has b"):
        SignatureClustering().fit({"a": x[0], "b": x[1]}, {"a": y[0]})
    with pytest.raises(ValueError, match="from 0 to 1"):
        SignatureClustering(num_classes=2).fit(x, y)
    strings = [np.array(list("abcd"))[labels] for labels in y]
    with pytest.raises(ValueError, match="4 different labels, but num_classes = 2"):
        SignatureClustering(num_classes=2).fit(x, strings)


def test_no_data_set_and_an_empty_one_do_no_harm():
    assert SignatureClustering().fit([], []).labels_.shape == (0,)
    x, y, _, _ = planted(6)
    found = SignatureClustering().fit([*x, np.zeros((0, 12))], [*y, np.array([])])
    assert len(found.labels_) == 16


@pytest.mark.parametrize("seed", range(4))
def test_eight_small_data_sets_are_not_cut_into_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(2, 20))
    kinds = [rng.integers(2, size=40) for _ in range(8)]
    samples = [centres[kind] + rng.normal(size=(40, 20)) for kind in kinds]
    labels = [np.where(kind == (i < 4), "ill", "healthy") for i, kind in enumerate(kinds)]
    assert SignatureClustering().fit(samples, labels).labels_.tolist() == [0] * 4 + [1] * 4
