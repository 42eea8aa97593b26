# SPDX-License-Identifier: Apache-2.0
"""What nodes and server agree on before a run: one problem for everybody's data."""

from dataclasses import replace

import numpy as np
import pytest

from feddag.core.errors import InvalidInput, InvalidMessage
from feddag.core.examples import Scaling
from feddag.core.problem import Problem
from feddag.engines.wire import Newcomer, agree, fits, read_problem, write_problem

TABLE = Problem((2,), 2, ("benign", "malignant"), Scaling(1.0, (0.5, 2.0), (1.0, 3.0)))


def nodes(*problems: Problem, examples: tuple[int, ...] = ()) -> list[Newcomer]:
    counts = examples or (10,) * len(problems)
    return [Newcomer(i, f"c{i}", p, n) for i, (p, n) in enumerate(zip(problems, counts, strict=True))]


def test_a_problem_comes_back_to_the_bit() -> None:
    odd = replace(TABLE, scaling=Scaling(255.0, (1 / 3, 1e-300), (np.nextafter(1, 2).item(), 0.1)))
    assert read_problem(write_problem(odd)) == odd


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        write_problem(TABLE).replace("0.5", "NaN"),
        write_problem(TABLE).replace('"num_classes":2', '"num_classes":0'),
        write_problem(TABLE).replace('"num_classes":2', '"num_classes":3'),
        write_problem(TABLE).replace("[2]", "[99999999999]"),
    ],
)
def test_a_problem_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage):
        read_problem(text)


def test_equal_problems_are_taken_as_they_are() -> None:
    assert agree(nodes(TABLE, TABLE)) is not None
    assert agree(nodes(TABLE, replace(TABLE))) == TABLE


def test_classes_are_united_in_one_order_whoever_comes_first() -> None:
    one, other = replace(TABLE, class_names=("cat", "dog")), replace(TABLE, class_names=("bird", "cat"))
    united = agree(nodes(one, other))
    assert united.class_names == agree(nodes(other, one)).class_names == ("bird", "cat", "dog")
    assert united.num_classes == 3
    numbers = agree(nodes(replace(TABLE, class_names=("10", "2")), replace(TABLE, class_names=("-1", "2"))))
    assert numbers.class_names == ("-1", "2", "10")


def test_features_are_standardised_as_if_all_samples_were_together() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.normal(i, 1 + i, size=(20 * (i + 1), 2)) for i in range(3)]
    problems = [
        replace(TABLE, scaling=Scaling(1.0, tuple(x.mean(0).tolist()), tuple(x.std(0).tolist())))
        for x in parts
    ]
    pooled = agree(nodes(*problems, examples=tuple(len(x) for x in parts))).scaling
    together = np.concatenate(parts)
    np.testing.assert_allclose(pooled.mean, together.mean(0), rtol=1e-12)
    np.testing.assert_allclose(pooled.std, together.std(0), rtol=1e-12)


def test_data_that_do_not_fit_together_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"'c0' and 'c1' do not fit together: input shape is \(3,\)"):
        agree(nodes(TABLE, replace(TABLE, input_shape=(3,))))
    with pytest.raises(InvalidInput, match="different units"):
        agree(nodes(TABLE, replace(TABLE, scaling=Scaling(255.0, (0.5, 2.0), (1.0, 3.0)))))


def test_a_late_node_with_a_class_nobody_knows_is_told_so() -> None:
    assert fits(TABLE, TABLE) == ""
    assert fits(replace(TABLE, class_names=("benign",), num_classes=1), TABLE) == ""
    assert "'unclear' is not one of the run" in fits(replace(TABLE, class_names=("benign", "unclear")), TABLE)
