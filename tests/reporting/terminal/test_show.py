# SPDX-License-Identifier: Apache-2.0
"""What `feddag show` prints of a run folder."""

import json
from pathlib import Path

import pytest

from feddag.core.errors import InvalidInput
from feddag.reporting.tables.clients import clients_csv
from feddag.reporting.terminal.show import show_run
from tests.reporting.terminal.test_progress import SCORES, finished, started
from tests.reporting.toys import ALL_HOSTILE, HOSTILE, recorded, recording_console

SOURCE = {
    "dataset": "digits",
    "kind": "embedded",
    "complete": False,
    "train_samples": 1500,
    "test_samples": 297,
}


def run_folder(folder: Path, rounds: int = 3, result: bool = True, **changes) -> Path:
    events = [started(source=SOURCE, notes={"partition": "lda"}, **changes)]
    for r in range(1, rounds + 1):
        events.append({"event": "round", "round": r})
        events.append({"event": "evaluation", "round": r, "test": {**SCORES, "accuracy": r / 1000}})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    if result:
        (folder / "result.json").write_text(json.dumps(finished()))
    return folder


def shown(folder: Path, encoding: str = "utf-8") -> str:
    console = recording_console(encoding, width=200)
    show_run(folder, console)
    return recorded(console)


def test_a_finished_run_shows_data_curve_and_result(tmp_path: Path) -> None:
    text = shown(run_folder(tmp_path))
    assert text.startswith(
        "fedavg on digits (embedded, 1,500 + 297 samples, not the full set), 1 client\n"
        "partition: lda; model mlp\n"
    )
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "0.10%", "10.00%", "40.00%", "1.0000"] in rows
    assert "final (2)" in text
    assert "unfinished" not in text


def test_an_unfinished_run_says_how_far_it_is_and_how_to_go_on(tmp_path: Path) -> None:
    text = shown(run_folder(tmp_path, rounds=2, result=False))
    assert f"unfinished: round 2 of 1; go on with: feddag resume {tmp_path}\n" in text


def test_a_run_without_evaluations_shows_no_empty_table(tmp_path: Path) -> None:
    text = shown(run_folder(tmp_path, rounds=0, result=False))
    assert "accuracy" not in text
    assert "unfinished: round 0 of 1" in text


def test_of_many_rounds_about_twenty_are_shown_with_the_last_one(tmp_path: Path) -> None:
    text = shown(run_folder(tmp_path, rounds=95, result=False))
    rounds = [int(line.split()[0]) for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert rounds[-1] == 95
    assert len(rounds) == 19


def test_an_unknown_loss_is_a_dash(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, rounds=0, result=False)
    event = {"event": "evaluation", "round": 1, "test": {**dict.fromkeys(SCORES), "loss": None}}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    assert ["1", "–", "–", "–", "–"] in [line.split() for line in shown(folder).splitlines()]


def test_another_folder_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is not a run folder: it has no events\.jsonl"):
        show_run(tmp_path, recording_console())
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="has not started yet"):
        show_run(tmp_path, recording_console())


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", [*HOSTILE, ALL_HOSTILE])
def test_hostile_names_are_shown_as_they_are(name: str, encoding: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / name.replace("/", "_"), result=False, model=name)
    text = shown(folder, encoding)
    visible = name.replace("\n", "\\n")
    visible = visible.replace("é", "\\xe9") if encoding == "ascii" else visible
    assert f"model {visible}\n" in text
    assert visible.replace("/", "_") + "\n" in text


def test_a_finished_run_shows_its_clusters_and_the_five_worst_clients_by_name(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    scores = {f"c{i}": {"accuracy": i / 10, "balanced_accuracy": 0, "samples": 4} for i in range(8)}
    scores["[/b]"] = {"accuracy": 0.05, "balanced_accuracy": 0, "samples": 4}
    clusters = {client: int(client > "c3") for client in scores}
    table = clients_csv({"test_clients": scores}, clusters, dict.fromkeys(scores, "m"), {"c0": ["weak"]})
    (folder / "clients.csv").write_text(table)
    rows = [line.split() for line in shown(folder).splitlines()]
    assert ["0", "5", "13.00%"] in rows
    assert ["1", "4", "55.00%"] in rows
    assert rows[-5:] == [
        ["c0", "0", "4", "0.00%", "weak"],
        ["[/b]", "0", "4", "5.00%"],
        ["c1", "0", "4", "10.00%"],
        ["c2", "0", "4", "20.00%"],
        ["c3", "0", "4", "30.00%"],
    ]


def test_a_run_in_which_nobody_was_scored_has_no_list_of_worst_clients(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / "clients.csv").write_text(clients_csv({"unscored": ["a"]}, {"a": 0}, {"a": "m"}, {}))
    text = shown(folder)
    assert "lowest" not in text
    assert ["0", "1", "–"] in [line.split() for line in text.splitlines()]


def test_an_enormous_loss_does_not_fill_the_screen(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, rounds=0, result=False)
    event = {"event": "evaluation", "round": 1, "test": {**SCORES, "loss": 5.34e22}}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    assert "5.34e+22" in shown(folder)
