# SPDX-License-Identifier: Apache-2.0
"""What the log of a run says about a client whose replies are refused or clipped."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from feddag.engines.inline import InlineEngine
from feddag.reporting.tables.log import read_events
from feddag.runs.driver import Driver
from feddag.runs.events import EventLog
from feddag.runs.simulate import SimulationFacts
from tests.contracts.toys import Around, toy

VICTIM = "c000"


class Boosting(Around):
    """One client makes its update ten thousand times as long, and says that it has fewer than no samples."""

    examples: int | None = None

    def ask(self, task: Any, requests: Any, exchange: Any) -> Any:
        answers = dict(super().ask(task, requests, exchange))
        if task.name == "train" and VICTIM in answers:
            reply = answers[VICTIM].reply
            examples = reply.examples if self.examples is None else self.examples
            lie = dataclasses.replace(reply, update=reply.update * 1e4, examples=examples)
            answers[VICTIM] = dataclasses.replace(answers[VICTIM], reply=lie)
        return answers


def log_of(folder: Path, examples: int | None = None, **engine_settings: Any) -> list[dict[str, Any]]:
    simulation = toy("fedavg", fraction_train=1.0, engine={"name": "inline", **engine_settings})
    engine = Boosting(InlineEngine(simulation.site))
    engine.examples = examples
    facts = SimulationFacts(simulation.federation, engine.memories)
    (folder / "checkpoints").mkdir()
    log = EventLog(folder / "events.jsonl")
    checkpoints = folder / "checkpoints"
    driver = Driver(simulation.prepared, engine, simulation.presence, checkpoints, log, lambda e: None, facts)
    driver.run_rounds()
    log.close()
    engine.close()
    events = list(read_events(folder / "events.jsonl"))
    return [event for event in events if event["event"] == "exchange" and event["task"] == "train"]


def test_a_refused_reply_is_logged_by_client_and_field(tmp_path: Path) -> None:
    for event in log_of(tmp_path, examples=-5):
        assert event["failures"] == {
            VICTIM: "field 'examples': expected numbers from 0 to 1e+12, got -5",
        }


@pytest.mark.parametrize(("action", "key"), [("refuse", "failures"), ("clip", "clipped")])
def test_an_update_over_the_limit_is_logged_by_client_and_field(
    action: str, key: str, tmp_path: Path
) -> None:
    for event in log_of(tmp_path, max_update_norm=50.0, norm_action=action):
        assert list(event[key]) == [VICTIM]
        assert event[key][VICTIM].startswith("field 'update': ")
        assert event.get("clipped", {}).keys() | event["failures"].keys() == {VICTIM}
