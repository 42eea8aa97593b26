# SPDX-License-Identifier: Apache-2.0
"""Recipes: Python functions that return an Experiment. A variant calls another and changes two fields."""

from collections.abc import Callable

from feddag.core.deployment import LocalTraining
from feddag.data.config import DataConfig, PartitionConfig
from feddag.experiment.settings import AlgorithmConfig, EvaluationConfig, Experiment


def demo() -> Experiment:
    """FedDAG finds five planted groups of clients on the embedded Fashion-MNIST sample: about a minute."""
    return Experiment(
        name="demo",
        data=DataConfig(name="fashion-mnist-sample"),
        partition=PartitionConfig(kind="label-groups", alpha=1.0),
        num_clients=30,
        num_rounds=15,
        fraction_train=0.5,
        algorithm=AlgorithmConfig(name="feddag"),
        training=LocalTraining(local_epochs=3, batch_size=32, lr=0.05),
    )


def fashion() -> Experiment:
    """The paper's Fashion-MNIST setting: 100 clients, Distribution I at 20%, α' = 0.25 (full set)."""
    return Experiment(
        name="fashion",
        data=DataConfig(name="fashion-mnist"),
        partition=PartitionConfig(kind="label-groups", label_share=0.2, alpha=0.25),
        num_clients=100,
        num_rounds=200,
        fraction_train=0.2,
        algorithm=AlgorithmConfig(name="feddag"),
        evaluation=EvaluationConfig(every=10),
    )


def digits() -> Experiment:
    """Ten clients on scikit-learn's 8×8 digits, full participation: a few seconds, for trying things out."""
    return Experiment(
        name="digits",
        data=DataConfig(name="digits"),
        partition=PartitionConfig(kind="lda", alpha=0.5),
        num_clients=10,
        num_rounds=10,
        fraction_train=1.0,
        training=LocalTraining(local_epochs=2, batch_size=32, lr=0.1),
        evaluation=EvaluationConfig(every=2),
    )


RECIPES: dict[str, Callable[[], Experiment]] = {
    "demo": demo,
    "fashion": fashion,
    "digits": digits,
}
