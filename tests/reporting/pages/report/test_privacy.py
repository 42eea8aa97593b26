# SPDX-License-Identifier: Apache-2.0
"""The section "what left whom": from a finished run, from a young one, and none without privacy."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from feddag.privacy.account import account, by_cluster
from feddag.privacy.accounting import DPSGD, LAPLACE
from feddag.privacy.config import PrivacyOptions
from feddag.privacy.ledger import Entry, Ledger
from feddag.privacy.plan import Plan, PlannedRelease
from feddag.reporting.pages.report.privacy import block


def run(result: Any = None, about: Any = None) -> Any:
    return SimpleNamespace(result=result, log=SimpleNamespace(about=about or {}))


def told() -> dict[str, Any]:
    options = PrivacyOptions(level="strict")
    ledger = Ledger()
    ledger.write(
        [Entry("a", "q0", 0, "sign", "counts", LAPLACE, 0.5), Entry("b", "q0", 0, "t", "scores", "plain")]
    )
    ledger.write([Entry("a", f"q{r}", r, "train", "update", DPSGD, 4.0, 0.1, 10) for r in (1, 2)])
    planned = PlannedRelease("counts", "numbers of samples", "noise", "once", 0.5)
    plan = Plan(options, (planned,), 3.0, 4.0, ()).plain()
    return plan | account(options, ledger) | {"refused_sums": 2, "withheld_classes": 5}


def test_a_finished_run_shows_sentences_tables_and_epsilon_over_rounds() -> None:
    found = block(run({"privacy": told()}))
    assert "level 'strict'" in found.sentences[0]
    assert "2 sums over too few clients" in " ".join(found.sentences)
    assert "5 class signatures of too few samples stayed at home." in found.sentences
    assert any(text.startswith("Not covered: ") for text in found.sentences)
    assert found.tables[0].title == "Planned"
    assert len(found.tables[1].rows) == 3
    (plot,) = found.plots
    assert list(plot.data[0]["x"]) == [0, 1, 2]
    assert sorted(plot.data[0]["y"]) == list(plot.data[0]["y"])


def test_a_young_run_shows_what_is_planned() -> None:
    plan = {k: v for k, v in told().items() if k not in ("releases", "by_round", "largest", "clients")}
    found = block(run(None, {"privacy": plan}))
    assert "planned to reach" in " ".join(found.sentences)
    assert not found.plots


def test_without_privacy_there_is_no_section(tmp_path: Path) -> None:
    assert block(run({"privacy": None})) is None
    assert block(run()) is None


def test_clusters_have_the_largest_epsilon_of_their_clients() -> None:
    assert by_cluster({"a": 1.0, "b": 2.0, "c": 0.5}, {"a": 0, "b": 0, "c": 1}) == {"0": 2.0, "1": 0.5}
