# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from feddag.core.errors import FederationError, Interrupted, InvalidInput
from feddag.experiment.recipes import RECIPES
from feddag.experiment.settings import Experiment
from feddag.reporting.tables.log import log_digest, read_events
from feddag.runs.simulate import resume, run

SMALL = ("num_rounds=4", "num_clients=6", "fraction_train=0.5", "engine=inline", "evaluation.every=2")


def small(*overrides: str) -> Experiment:
    return RECIPES["digits"]().with_overrides([*SMALL, *overrides])


def fingerprint(folder: Path) -> tuple:
    """All that must be equal between equal runs: models, metrics, log."""
    result = json.loads((folder / "result.json").read_text())
    for key in ("seconds",):
        result.pop(key)
    models = {p.name: p.read_bytes() for p in sorted((folder / "models").iterdir())}
    return result, models, log_digest(folder / "events.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(small(), root=tmp_path_factory.mktemp("runs"))


def test_a_run_leaves_experiment_log_metrics_models_and_checkpoints(finished):
    assert finished.folder.parent.name == "digits"
    assert finished.folder.parent.parent.name == "fedavg"
    assert Experiment.from_file(finished / "experiment.json") == small()
    rows = (finished / "metrics.csv").read_text().splitlines()
    assert rows[0].startswith("round,accuracy,")
    assert [r.split(",")[0] for r in rows[1:]] == ["2", "4"]
    clients = json.loads((finished / "models" / "clients.json").read_text())["clients"]
    assert len(clients) == 6
    tensors = load_file(finished / "models" / clients["c000"]["files"][0])
    assert "head.weight" in tensors
    assert [p.name for p in sorted((finished / "checkpoints").glob("*.json"))] == [
        "round-000003.json",
        "round-000004.json",
    ]


def test_the_log_names_versions_machine_source_bytes_and_digests(finished):
    events = list(read_events(finished / "events.jsonl"))
    started = events[0]
    assert started["machine"]["versions"]["torch"]
    assert started["source"]["dataset"] == "digits"
    exchange = next(e for e in events if e["event"] == "exchange")
    # MLP on 8×8 digits: 17,226 floats down and up; down 10 numbers and 2 words about training,
    # up the number of examples
    local = 10 * 8 + len("sgd") + len("constant")
    assert exchange["bytes_down"] == exchange["clients"] * (17_226 * 4 + local)
    assert exchange["bytes_up"] == exchange["clients"] * (17_226 * 4 + 8)
    assert len({e["digest"] for e in events if e["event"] in ("start", "round")}) == 5


def test_the_result_has_final_and_chosen_rounds_before_and_after_training_and_the_protocol(finished):
    result = json.loads((finished / "result.json").read_text())
    assert set(result["final"]) == {"round", "asked", "before", "after", "validation"}
    assert result["final"]["round"] == 4
    assert result["chosen"]["round"] in (2, 4)
    assert "test samples choose nothing" in result["protocol"]
    evaluations = [e for e in read_events(finished / "events.jsonl") if e["event"] == "evaluation"]
    best = max(evaluations, key=lambda e: e["validation"]["balanced_accuracy"])
    assert result["chosen"]["round"] == best["round"]
    assert result["final"]["before"]["accuracy"] == pytest.approx(
        sum(c["accuracy"] for c in evaluations[-1]["test_clients"].values()) / 6
    )


def test_the_same_experiment_gives_the_same_bits(finished, tmp_path):
    again = run(small(), folder=tmp_path / "again")
    assert fingerprint(again) == fingerprint(finished)
    other = run(small("seed=2"), folder=tmp_path / "other")
    assert fingerprint(other)[2] != fingerprint(finished)[2]


def test_worker_processes_give_the_bits_of_the_inline_engine(finished, tmp_path):
    workers = run(small("engine.name=process", "engine.workers=2"), folder=tmp_path / "workers")
    assert fingerprint(workers)[:2] == fingerprint(finished)[:2]


@pytest.mark.parametrize("stop_after", ["start", "round", "exchange", "evaluation"])
def test_an_interrupted_run_resumes_to_the_same_bits(finished, tmp_path, stop_after):
    seen = []

    def interrupt(event):
        seen.append(event["event"])
        if event["event"] == stop_after and seen.count(stop_after) == (1 if stop_after == "start" else 2):
            raise KeyboardInterrupt

    folder = tmp_path / "cut"
    with pytest.raises(Interrupted, match=f"go on with: feddag resume {folder}"):
        run(small(), folder=folder, watch=interrupt)
    assert not (folder / "result.json").exists()
    resume(folder)
    assert fingerprint(folder) == fingerprint(finished)


def test_resuming_a_finished_run_changes_nothing(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    resume(copy)
    assert fingerprint(copy) == fingerprint(finished)


def test_a_damaged_newest_checkpoint_is_reported_and_the_previous_one_used(finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    newest = copy / "checkpoints" / "round-000004.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    warnings = []
    resume(copy, watch=lambda e: warnings.append(e["text"]) if e["event"] == "warning" else None)
    assert len(warnings) == 1
    assert "the checkpoint of round 4 is damaged and was passed over" in warnings[0]
    assert fingerprint(copy)[:2] == fingerprint(finished)[:2]


# Runs or resumes, and kills itself with signal 9 at the n-th moment of a kind: an event of the run, or the
# instant before a file or folder is forced to the disk ("fsync").
KILLED = f"""
import os, signal, sys
from pathlib import Path
from {run.__module__} import Experiment, resume, run

settings, folder, kind, left = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def moment(name):
    global left
    left -= name == kind
    if name == kind and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def fsync(descriptor, force=os.fsync):
    moment("fsync")
    force(descriptor)

def watch(event):
    moment(event["event"])

os.fsync = fsync
if folder.exists():
    resume(folder, watch=watch)
else:
    run(Experiment.from_file(settings), folder=folder, watch=watch)
"""
# A checkpoint forces to the disk: the log (1), what the clients remember and its folder (2, 3), the json that
# seals it and the folder (4, 5), then the server's tensors (6, 7) and their json (8, 9) in the same way.
# Each process goes on from where the one before was killed.
KILLS = [
    ("answer", 8),  # in the middle of a question to the clients
    ("fsync", 2),  # memories are written, but not renamed
    ("fsync", 6),  # memories are sealed, the server's tensors are written, but not renamed
    ("fsync", 8),  # there are tensors of the server, but no json that makes them a checkpoint
    ("fsync", 13),  # a checkpoint later: memories are renamed, but not sealed
    ("final_evaluation", 1),  # all rounds are done
]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no signal 9")
def test_kill_minus_nine_at_any_moment_then_resume_gives_the_same_bits(tmp_path):
    """Real processes, killed at ever later moments of the same run, until one may finish it."""
    experiment = small("num_rounds=6", "engine=process", "engine.workers=1", "algorithm=ditto")
    whole = run(experiment, folder=tmp_path / "whole")
    (tmp_path / "settings.json").write_text(json.dumps(experiment.settings()))
    folder, codes = tmp_path / "killed", []
    for kind, number in [*KILLS, ("never", 1)]:
        command = [sys.executable, "-c", KILLED, tmp_path / "settings.json", folder, kind, str(number)]
        codes.append(subprocess.run(command, check=False, timeout=600).returncode)
    assert codes == [-signal.SIGKILL] * len(KILLS) + [0]
    assert fingerprint(folder) == fingerprint(whole)


def test_a_full_disk_leaves_the_last_good_checkpoint(finished, tmp_path, monkeypatch):
    folder, writes, write = tmp_path / "full", [], os.fsync

    def full_after_a_while(descriptor):
        writes.append(1)
        if len(writes) > 18:
            raise OSError(28, "No space left on device")
        write(descriptor)

    monkeypatch.setattr(os, "fsync", full_after_a_while)
    with pytest.raises(
        FederationError, match=r"no space left while writing .*: what was saved before is intact"
    ):
        run(small(), folder=folder)
    monkeypatch.undo()
    assert list((folder / "checkpoints").glob("*.json"))
    assert not list((folder / "checkpoints").glob(".*.tmp"))
    resume(folder)
    assert fingerprint(folder)[:2] == fingerprint(finished)[:2]


def test_a_run_folder_that_exists_is_refused_and_untouched(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidInput, match="exists: choose another, or use 'feddag resume"):
        run(small(), folder=tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []


def test_two_processes_on_one_run_folder_are_refused(finished, tmp_path):
    from feddag.core.files import lock_folder

    copy = shutil.copytree(finished, tmp_path / "copy")
    with lock_folder(copy), pytest.raises(InvalidInput, match="being worked on by another process"):
        resume(copy)


@pytest.mark.parametrize("clients", [1, 2])
def test_the_smallest_federations_run(tmp_path, clients):
    folder = run(
        small(f"num_clients={clients}", "fraction_train=1.0", "num_rounds=1"), folder=tmp_path / "tiny"
    )
    assert json.loads((folder / "result.json").read_text())["final"]["before"]["clients"] == clients


def test_no_rounds_at_all_are_refused():
    with pytest.raises(InvalidInput, match="num_rounds = 0: expected greater than or equal to 1"):
        small("num_rounds=0")


def test_newcomers_are_held_out_and_join_at_the_end(tmp_path):
    folder = run(small("partition.newcomers=0.34"), folder=tmp_path / "new")
    result = json.loads((folder / "result.json").read_text())
    assert result["final"]["before"]["clients"] == 4
    assert result["newcomers"]["before"]["clients"] == 2
    events = list(read_events(folder / "events.jsonl"))
    newcomers = next(e for e in events if e["event"] == "newcomers")["clients"]
    assert not any(c in e["cohort"] for e in events if e["event"] == "round" for c in newcomers)
