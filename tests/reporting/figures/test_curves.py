# SPDX-License-Identifier: Apache-2.0
"""Learning curves: means and bands by hand, names as they are."""

from pathlib import Path

import numpy as np
import pytest

from feddag.reporting.figures.curves import curves_figure, draw_curves
from tests.reporting.toys import HOSTILE, check_png, outcome, shown_texts

OUTCOMES = [
    outcome("a", 1, 0.5, [(1, 0.2, 1_000_000), (2, 0.4, 2_000_000)]),
    outcome("a", 2, 0.5, [(1, 0.4, 3_000_000), (2, 0.6, 4_000_000), (3, 0.9, 5_000_000)]),
]


def test_a_curve_is_the_mean_over_seeds_in_the_rounds_that_all_have() -> None:
    figure = curves_figure(OUTCOMES, ["a"], [""], "accuracy")
    by_round, by_traffic = figure.axes
    (line,) = by_round.lines
    assert line.get_xdata().tolist() == [1, 2]
    assert line.get_ydata() == pytest.approx([30, 50])
    (line,) = by_traffic.lines
    assert line.get_xdata() == pytest.approx([2, 3])  # mean megabytes
    band = by_round.collections[0].get_paths()[0].vertices[:, 1]
    deviation = np.std([20, 40], ddof=1)
    assert band.min() == pytest.approx(30 - deviation)
    assert band.max() == pytest.approx(50 + deviation)


def test_there_is_one_column_per_setting_and_the_legend_has_methods_of_every_column() -> None:
    runs = [
        outcome("a", 1, 0.5, [(1, 0.2, 10)], setting="x=1"),
        outcome("b", 1, 0.5, [(1, 0.2, 10)], setting="x=2"),
    ]
    figure = curves_figure(runs, ["a", "b"], ["x=1", "x=2"], "balanced_accuracy")
    assert [axes.get_title() for axes in figure.axes] == ["x=1", "x=2", "", ""]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert "balanced accuracy %" in shown_texts(figure)


def test_hostile_names_are_shown_as_they_are(tmp_path: Path) -> None:
    setting = "$x^2" + "".join(HOSTILE)  # two dollar signs: matplotlib would read a formula
    runs = [outcome(name, 1, 0.5, [(1, 0.2, 10)], setting=setting) for name in HOSTILE]
    texts = shown_texts(curves_figure(runs, HOSTILE, [setting], "accuracy"))
    assert {name.replace("\n", "\\n") for name in (*HOSTILE, setting)} <= set(texts)
    draw_curves(runs, HOSTILE, [setting], tmp_path / "curves.png", "accuracy")
    check_png(tmp_path / "curves.png")


def test_runs_without_an_evaluated_round_leave_no_line(tmp_path: Path) -> None:
    figure = curves_figure([outcome("a", 1, 0.5)], ["a"], [""], "accuracy")
    assert not figure.axes[0].lines
    assert not figure.legends
