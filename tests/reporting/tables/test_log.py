# SPDX-License-Identifier: Apache-2.0
"""The event log: what is written is read again; digest and metrics come from the log alone."""

import csv
import errno
import os
from pathlib import Path

import pytest

from feddag.core.errors import FederationError, InvalidInput
from feddag.reporting.tables.log import log_digest, metrics_csv, read_events
from feddag.runs.events import EventLog

SCORES = {
    "accuracy": 0.5,
    "accuracy_std": 0.1,
    "balanced_accuracy": 0.4,
    "balanced_accuracy_std": 0.2,
    "loss": 1.5,
}


def write(path: Path, *events: dict) -> Path:
    log = EventLog(path)
    for event in events:
        log.write(**event)
    log.close()
    return path


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    told = log.write("round", round=1, names=["é", "\n", "<script>"])
    assert log.sync().bytes == (tmp_path / "log").stat().st_size
    log.close()
    assert list(read_events(tmp_path / "log")) == [told]
    assert told == {"event": "round", "round": 1, "names": ["é", "\n", "<script>"]}


def test_a_log_goes_on_after_the_bytes_that_are_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    log.write("kept")
    kept = log.sync()
    log.write("lost")
    log.close()
    log = EventLog(tmp_path / "log", kept)
    log.write("new")
    log.close()
    assert [e["event"] for e in read_events(tmp_path / "log")] == ["kept", "new"]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"event": "kepd"}\n', b"\0" * 18])
def test_a_log_that_was_changed_since_the_checkpoint_is_refused(tmp_path: Path, damage: bytes) -> None:
    log = EventLog(tmp_path / "log")
    log.write("kept")
    kept = log.sync()
    log.close()
    (tmp_path / "log").write_bytes(damage)
    with pytest.raises(InvalidInput, match="is not the log that this run wrote"):
        EventLog(tmp_path / "log", kept)
    assert (tmp_path / "log").read_bytes() == damage


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "log", {"kind": "a"}, {"kind": "b"})
    path.write_bytes(path.read_bytes()[:-4])
    assert [e["event"] for e in read_events(path)] == ["a"]


def test_numbers_that_json_lacks_are_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    with pytest.raises(ValueError, match="JSON compliant"):
        log.write("a", value=float("nan"))
    log.close()


def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, monkeypatch) -> None:
    log = EventLog(tmp_path / "log")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FederationError, match="no space left while writing"):
        log.sync()
    log.close()


def test_the_digest_ignores_times_and_processes_but_no_result(tmp_path: Path) -> None:
    def digest(name: str, seconds: float, accuracy: float, started: str) -> str:
        return log_digest(
            write(
                tmp_path / name,
                {"kind": started, "time": name},
                {
                    "kind": "round",
                    "round": 1,
                    "seconds": seconds,
                    "test": {"a": accuracy, "seconds": seconds},
                },
            )
        )

    first = digest("1", 1.0, 0.5, "started")
    assert digest("2", 9.0, 0.5, "resumed") == first
    assert digest("3", 1.0, 0.6, "started") != first


def test_metrics_add_up_traffic_and_time_up_to_each_evaluated_round(tmp_path: Path) -> None:
    def exchange(task: str, down: int, up: int) -> dict:
        return {"kind": "exchange", "task": task, "bytes_down": down, "bytes_up": up}

    validation = {"accuracy": 0.7, "balanced_accuracy": 0.6}
    path = write(
        tmp_path / "log",
        {"kind": "start", "seconds": 1.0},
        exchange("train", 10, 1),
        {"kind": "round", "round": 1, "seconds": 2.0},
        exchange("evaluate", 1000, 1000),
        {"kind": "evaluation", "round": 1, "test": SCORES, "validation": validation},
        exchange("train", 20, 2),
        {"kind": "round", "round": 2, "seconds": 0.5},
        {"kind": "evaluation", "round": 2, "test": SCORES, "validation": validation},
    )
    first, second = csv.DictReader(metrics_csv(path).splitlines())
    assert (first["round"], first["bytes_down"], first["bytes_up"], first["seconds"]) == (
        "1",
        "10",
        "1",
        "3.0",
    )
    assert (second["bytes_down"], second["bytes_up"], second["seconds"]) == ("30", "3", "3.5")
    assert (first["accuracy"], first["loss"], first["validation_accuracy"]) == ("0.5", "1.5", "0.7")
    assert first["validation_balanced_accuracy"] == "0.6"
