# SPDX-License-Identifier: Apache-2.0
"""Logs of very many clients."""

import pytest

from feddag.core.seeds import Seed
from feddag.runs import thinned as module
from feddag.runs.thinned import thinned, thinned_report, thinned_sum

VALUES = {f"c{i:03d}": i / 8 for i in range(50)}


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(module, "LOGGED", 10)


def test_few_clients_are_logged_whole():
    assert thinned(VALUES, Seed(1)) == VALUES
    assert thinned_sum(VALUES, Seed(1)) == VALUES
    assert "logged" not in thinned_report({"test_clients": VALUES, "test": {}}, Seed(1))


def test_of_many_the_same_some_are_logged_in_every_event(few):
    shown = thinned(VALUES, Seed(1))
    assert len(shown) == 10
    assert shown.items() <= VALUES.items()
    assert thinned({c: -v for c, v in VALUES.items()}, Seed(1)).keys() == shown.keys()
    assert thinned(VALUES, Seed(2)).keys() != shown.keys()


def test_what_readers_add_up_stays_whole(few):
    shown = thinned_sum(VALUES, Seed(1))
    assert len(shown) == 11
    assert "40 others" in shown
    assert sum(shown.values()) == pytest.approx(sum(VALUES.values()))


def test_a_report_says_how_many_clients_it_holds_and_keeps_its_summary(few):
    report = {"round": 3, "test": {"accuracy": 0.5}, "test_clients": VALUES, "uses": {"c001": 0}}
    shown = thinned_report(report, Seed(1))
    assert (shown["logged"], len(shown["test_clients"]), shown["uses"]) == (10, 10, {"c001": 0})
    assert shown["test"] == report["test"]
    assert len(report["test_clients"]) == 50
