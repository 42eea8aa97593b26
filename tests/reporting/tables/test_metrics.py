# SPDX-License-Identifier: Apache-2.0
"""Accuracies against numbers computed by hand."""

import pytest

from feddag.reporting.tables.metrics import client_scores, summary


def test_accuracy_counts_samples_and_balanced_accuracy_counts_classes() -> None:
    # 10 samples of class 0 with 9 correct, 2 of class 1 with 0 correct, none of class 2
    scores = client_scores([10, 2, 0], [9, 0, 0], loss=6.0)
    assert scores == {
        "accuracy": pytest.approx(0.75),
        "balanced_accuracy": pytest.approx(0.45),
        "loss": pytest.approx(0.5),
        "samples": 12,
    }


def test_a_client_without_samples_has_no_scores() -> None:
    assert client_scores([0, 0], [0, 0], loss=0.0) is None


def test_the_summary_is_the_unweighted_mean_over_clients_with_samples() -> None:
    large = {"accuracy": 0.9, "balanced_accuracy": 0.8, "loss": 1.0, "samples": 1000}
    small = {"accuracy": 0.5, "balanced_accuracy": 0.4, "loss": 3.0, "samples": 1}
    assert summary({"a": large, "b": small, "c": None}) == {
        "clients": 2,
        "accuracy": pytest.approx(0.7),
        "accuracy_std": pytest.approx(0.2),
        "balanced_accuracy": pytest.approx(0.6),
        "balanced_accuracy_std": pytest.approx(0.2),
        "loss": pytest.approx(2.0),
    }


def test_a_summary_of_nobody_is_unknown_and_not_zero() -> None:
    assert summary({"a": None}) == {
        "clients": 0,
        "accuracy": None,
        "accuracy_std": None,
        "balanced_accuracy": None,
        "balanced_accuracy_std": None,
        "loss": None,
    }
