# SPDX-License-Identifier: Apache-2.0
"""`feddag list`: everything a user can set is there, with its default and its meaning."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from annotated_types import Ge

from feddag.algorithms import ALGORITHMS
from feddag.core.errors import InvalidInput
from feddag.experiment.listing import field_comments, settings, table_of, tables
from feddag.experiment.settings import DEFAULTS, Experiment


def leaves(table: dict, prefix: str = "") -> set[str]:
    found = set()
    for key, value in table.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return found


def test_every_setting_is_listed_with_its_default_and_a_meaning() -> None:
    rows = {name: (default, meaning) for name, default, meaning in tables()["settings"]}
    assert leaves(DEFAULTS) <= rows.keys()
    assert rows["training.lr"] == ("0.01", "learning rate")
    assert rows["num_clients"][0] == "not set"
    assert "partition.quantity.alpha" in rows  # a table that is not set by default
    assert not [name for name, (_, meaning) in rows.items() if not meaning]


def test_a_listed_default_can_be_set_and_changes_nothing() -> None:
    assignments = [
        f"{name}={default}"
        for name, default, _ in tables()["settings"]
        if default not in ("", "not set") and not name.startswith(("partition.", "algorithm."))
    ]
    assert len(assignments) > 30
    assert Experiment().with_overrides(assignments) == Experiment()


@pytest.mark.parametrize("method", ALGORITHMS)
def test_every_hyper_parameter_of_a_method_has_a_default_and_a_meaning(method: str) -> None:
    rows = table_of(method)
    assert all(default and meaning for _, default, meaning in rows), rows
    assert not [name for name, *_ in rows if name.startswith("local")]


def test_the_comment_of_a_hyper_parameter_is_its_help() -> None:
    rows = {name: (default, meaning) for name, default, meaning in table_of("ifca")}
    assert rows["num_clusters"] == ("2", "K; authors' code: 2 on CIFAR, 4 on MNIST")
    assert rows["initial_draws"][1].startswith("Initial models are drawn anew until")  # the lines above


@dataclass(frozen=True)
class Cut:
    linkage: Literal["average", "single"] = "average"
    # How many clusters there are:
    # zero means that the rule decides.
    number: Annotated[int, Ge(0)] = 0


@dataclass(frozen=True)
class Method:
    cut: Cut = Cut(number=3)  # how clusters are made
    other: Cut = field(default_factory=Cut)

    rate: float = 0.5  # learning rate
    bare: int = 1


@dataclass(frozen=True)
class Derived(Method):
    bare: int = 2  # now with a comment


def test_groups_of_options_are_listed_with_dotted_names() -> None:
    number = "How many clusters there are: zero means that the rule decides."
    assert settings(Derived) == [
        ("cut.linkage", "average", "one of average, single"),
        ("cut.number", "3", number),  # the default of the group, not of the class
        ("other.linkage", "average", "one of average, single"),
        ("other.number", "0", number),
        ("rate", "0.5", "learning rate"),
        ("bare", "2", "now with a comment"),
    ]


def test_a_class_without_source_has_no_comments() -> None:
    namespace: dict = {"__name__": "nowhere", "dataclass": dataclass}
    exec("@dataclass\nclass Made:\n    x: int = 1", namespace)
    assert field_comments(namespace["Made"]) == {}


def test_an_unknown_table_is_told_with_all_names() -> None:
    with pytest.raises(
        InvalidInput, match=r"no table 'colours': choose all, algorithms.* or a method \(feddag"
    ):
        table_of("colours")
