# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: it says who is best, shows every seed, and names cannot break it."""

from feddag.reporting.pages.comparison import comparison_html
from feddag.reporting.tables.comparison import summarise
from tests.reporting.pages.report.test_report import Content
from tests.reporting.toys import outcome


def page(scores: dict[str, list[float]], settings: tuple[str, ...] = ("",), **fields) -> Content:
    outcomes = [
        outcome(method, seed, a, [(1, a / 2, 10**6), (2, a, 2 * 10**6)], setting, **fields)
        for setting in settings
        for method, values in scores.items()
        for seed, a in enumerate(values)
    ]
    lines = summarise(outcomes, list(scores), list(settings), "accuracy", (0.5,))
    return Content(comparison_html(lines, outcomes, "accuracy", (0.5,), "toy data"))


def test_the_best_method_is_named_first_with_its_mean_and_spread() -> None:
    found = page({"fedavg": [0.5, 0.6], "feddag": [0.8, 0.9]})
    assert "Highest mean accuracy: feddag 85.0% ± 7.1%." in found.text
    assert "feddag is highest with 85.0% ± 7.1%, then fedavg with 55.0% ± 7.1%." in found.text


def test_a_method_within_the_spread_is_said_to_be_near() -> None:
    assert (
        "Within the spread over seeds of the highest: fedavg"
        in page({"fedavg": [0.78, 0.9], "feddag": [0.8, 0.9]}).text
    )
    assert "Within the spread" not in page({"fedavg": [0.1, 0.2], "feddag": [0.8, 0.9]}).text


def test_every_seed_is_a_dot_and_every_method_a_curve() -> None:
    plots = page({"fedavg": [0.5, 0.6], "feddag": [0.8, 0.9]}).plots
    assert plots["final-accuracy"]["data"][0]["x"] == [0.5, 0.6, 0.8, 0.9]
    curves = {t["name"]: t["y"] for t in plots["curves-against-rounds"]["data"] if "name" in t}
    assert curves == {"fedavg": [0.275, 0.55], "feddag": [0.425, 0.85]}


def test_several_settings_have_a_section_each_and_mean_ranks() -> None:
    found = page({"fedavg": [0.5], "feddag": [0.8]}, ("alpha = 1", "alpha = 2"))
    assert found.sections == ["ranks", "setting-1", "setting-2", "protocol"]
    assert "feddag has the best mean rank over all settings: 1.00" in found.text


def test_names_of_settings_are_escaped() -> None:
    found = page({"fedavg": [0.5], "feddag": [0.8]}, ("<script>alert(1)</script>",))
    assert "<script>alert(1)</script>" in found.text  # as text, not as an element
    assert set(found.scripts) == {"style", "plots", "plotly", "script"}
