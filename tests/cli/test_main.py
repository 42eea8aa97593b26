# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: real processes, real exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feddag import __version__
from feddag.cli.main import main

TINY = ("num_rounds=2", "num_clients=4", "fraction_train=0.5", "engine=inline", "training.local_epochs=1")


def feddag(*words: str, cwd: Path, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "feddag", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder: (exit code, standard error)."""

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["feddag", *words])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), capsys.readouterr().err
        return 0, capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    return call


def sets(*assignments: str) -> list[str]:
    return [word for a in assignments for word in ("--set", a)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    done = feddag("run", "digits", *sets(*TINY), "--folder", "mine", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "results in mine" in done.stdout
    return root / "mine"


def test_plain_lines_are_printed_where_there_is_no_terminal(tmp_path):
    done = feddag("run", "digits", *sets(*TINY), cwd=tmp_path)
    assert "\x1b" not in done.stdout
    assert "round 2/2  accuracy" in done.stdout
    assert "as served" in done.stdout
    assert list(tmp_path.glob("runs/fedavg/digits/*-digits/result.json"))


def test_quiet_prints_the_folder_alone(tmp_path):
    done = feddag("run", "digits", *sets(*TINY), "--folder", "f", "--quiet", cwd=tmp_path)
    assert done.stdout.strip() == "results in f"


def test_show_tells_what_a_run_gave(finished):
    shown = feddag("show", str(finished), cwd=finished.parent)
    assert "fedavg" in shown.stdout
    assert "digits" in shown.stdout
    as_json = feddag("show", "--json", str(finished), cwd=finished.parent)
    assert json.loads(as_json.stdout)["rounds"] == 2


def test_list_names_everything_a_user_can_name(tmp_path):
    listed = feddag("list", cwd=tmp_path).stdout
    words = ("algorithms", "fedprox", "datasets", "digits", "partitions", "lda", "models", "lenet",
             "recipes", "demo", "engines", "inline", "training.lr", "fraction_train")  # fmt: skip
    for word in words:
        assert word in listed


def test_a_toml_file_with_overrides_is_run(tmp_path):
    (tmp_path / "mine.toml").write_text(
        """
        num_clients = 4
        num_rounds = 1
        fraction_train = 1.0
        data = "digits"
        partition.kind = "iid"
        engine = "inline"
        [algorithm]
        name = "fedprox"
        mu = 0.1
        [training]
        local_epochs = 1
        """
    )
    done = feddag("run", "mine.toml", "--set", "algorithm.mu=0.5", "--folder", "f", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    experiment = json.loads((tmp_path / "f" / "experiment.json").read_text())
    assert experiment["algorithm"] == {"name": "fedprox", "preset": "", "mu": 0.5}


def test_a_users_own_network_is_found_by_its_import_path(tmp_path):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "def small(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, num_classes))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = ("run", "digits", *sets(*TINY, "engine.name=process", "engine.workers=1"))
    done = feddag(*words, "--set", "model=mynet:small", "--folder", "f", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    described = json.loads((tmp_path / "f" / "models" / "clients.json").read_text())
    assert described["model"] == "mynet:small"


def test_the_installed_command_finds_a_network_in_the_folder_one_stands_in(tmp_path):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "def small(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    # The console script: unlike `python -m`, it has its own folder in front of the path, not the current one.
    script = "import sys; sys.path[0] = '/nowhere'; from feddag.cli.main import main; main()"
    words = ("run", "digits", *sets(*TINY, "model=mynet:small", "engine.name=process", "engine.workers=1"))
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--folder", "f"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "f" / "models" / "clients.json").read_text())["model"] == "mynet:small"


def test_the_version_can_be_asked_for(tmp_path):
    done = feddag("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"feddag {__version__}")


def test_a_misspelt_command_gets_one_suggestion_and_no_words_get_the_help_alone(here, capsys):
    code, errors = here("runn")
    assert code == 2
    assert errors == "feddag: No such command 'runn'. Did you mean 'run'?\n"
    code, errors = here()
    assert (code, errors) == (2, "")


BROKEN = {
    "def net(shape, classes)": "model 'mynet:net' cannot be imported: SyntaxError: expected ':'",
    "1 / 0": "model 'mynet:net' cannot be imported: ZeroDivisionError: division by zero",
    "other = 3": "model 'mynet:net' cannot be imported: module 'mynet' has no attribute 'net'",
    "def net(shape):\n    pass": "model 'mynet:net': net((1, 8, 8), 10) failed: TypeError: net() takes 1",
    "def net(shape, classes):\n    return 3": "model 'mynet:net' cannot be split",
    "net = 3": "model 'mynet:net': net((1, 8, 8), 10) failed: TypeError: 'int' object is not callable",
    "import nothing_here": "cannot be imported: No module named 'nothing_here' (looked in the current folder",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_fault_in_a_users_own_network_is_told_in_one_sentence(text, tmp_path, here, monkeypatch):
    (tmp_path / "mynet.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    code, errors = here("run", "digits", *sets(*TINY, "model=mynet:net"))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    assert code == 2
    assert BROKEN[text] in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_head_that_cannot_hold_the_prior_is_refused_before_anything_is_written(tmp_path, here, monkeypatch):
    (tmp_path / "biasless.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes, bias=False))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = sets(*TINY, "model=biasless:net", "training.prior_correction=1")
    code, errors = here("run", "digits", *settings, "--folder", "f")
    assert code == 2
    assert errors.startswith("feddag: training.prior_correction needs a network whose head is linear")
    assert not (tmp_path / "f").exists()


WRONG = {
    "an unknown algorithm": (["algorithm=fedsgd"], "algorithm = 'fedsgd': unknown: choose one of feddag"),
    "an unknown key": (["training.rate=1"], "training.rate: unknown key; allowed here: batch_size"),
    "an unknown top-level key": (["rounds=3"], "rounds: unknown key; allowed here: algorithm"),
    "an unknown hyper-parameter": (["algorithm.mu=1"], "'mu' is unknown: 'fedavg' has no hyper-parameters"),
    "a non-finite value": (["training.lr=nan"], "training.lr = NaN: expected a finite number"),
    "an infinite value": (["training.lr=inf"], "training.lr = Infinity: expected a finite number"),
    "a value out of range": (["training.lr=-0.1"], "training.lr = -0.1: expected greater than 0"),
    "a correction above one": (
        ["training.prior_correction=2"],
        "training.prior_correction = 2: expected less",
    ),
    "a fraction above one": (["fraction_train=1.5"], "fraction_train = 1.5: expected less than or equal to"),
    "text for a number": (["num_rounds=many"], 'num_rounds = "many": expected a'),
    "an unknown dataset": (["data=imagenet"], "data.name: 'imagenet' is not one of"),
    "an unknown partition": (["partition=shards"], 'partition.kind = "shards": expected'),
    "an unknown model": (["model=resnet1000"], "model 'resnet1000' is unknown: choose auto, lenet"),
    "a model that is not there": (["model=nowhere:net"], "model 'nowhere:net' cannot be imported"),
    "a model for other samples": (["model=conv3"], "model 'conv3' cannot take samples of shape (1, 8, 8)"),
    "participation that rounds to zero": (
        ["fraction_train=0.01"],
        "0.01 of 4 clients is less than one client: use at least 0.25",
    ),
    "no clients": (["num_clients=0"], "num_clients = 0: expected greater than or equal to 1"),
    "a name that leaves the folder": (["name=../../etc"], 'name = "../../etc": '),
    "an assignment without a value": (["seed"], "--set seed: expected key=value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_gets_one_sentence_exit_code_two_and_leaves_nothing_behind(case, tmp_path, here):
    overrides, sentence = WRONG[case]
    code, errors = here("run", "digits", *sets(*TINY), *sets(*overrides))
    assert code == 2
    assert sentence in errors
    assert errors.startswith("feddag: ")
    assert len(errors.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_the_wrong_number_of_outputs_is_refused(tmp_path):
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 3))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = feddag("run", "digits", *sets(*TINY, "model=mynet:net"), cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert "model 'mynet:net' returns (3,) outputs per sample, the data have 10 classes" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "nothing"], "'nothing' is neither a recipe (demo, fashion, digits"),
        (["resume", "nowhere"], "nowhere is not a run folder: it has no experiment.json"),
        (["show", "nowhere"], "nowhere is not a run folder: it has no events.jsonl"),
        (["list", "colours"], "there is no table 'colours': choose all, algorithms"),
        (["run", "--nonsense"], "No such option"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_wrong_words_on_the_command_line_get_one_sentence(words, sentence, here):
    code, errors = here(*words)
    assert code == 2
    assert sentence in errors


def test_a_broken_toml_file_is_refused_with_the_place(tmp_path, here):
    (tmp_path / "bad.toml").write_text("num_rounds = = 3\n")
    code, errors = here("run", "bad.toml")
    assert code == 2
    assert "bad.toml: not a valid toml file" in errors
    assert "line 1" in errors


def test_a_run_folder_that_exists_is_refused(finished):
    done = feddag("run", "digits", *sets(*TINY), "--folder", "mine", cwd=finished.parent)
    assert done.returncode == 2
    assert "the run folder mine exists" in done.stderr


def test_ctrl_c_keeps_the_checkpoint_says_how_to_resume_and_exits_130(tmp_path):
    words = ["run", "digits", *sets(*TINY, "num_rounds=100000", "engine.name=process"), "--folder", "f"]
    process = subprocess.Popen(
        [sys.executable, "-m", "feddag", *words], cwd=tmp_path, text=True, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # A background job of a shell ignores SIGINT and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    # The newest checkpoints are kept: however fast the rounds are, one of round 3 or later is seen.
    while not any(int(p.stem[6:]) >= 3 for p in tmp_path.glob("f/checkpoints/round-*.json")):
        assert process.poll() is None, "the run ended by itself"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "go on with: feddag resume f" in errors
    assert "Traceback" not in errors
    rounds = [int(p.stem[6:]) for p in (tmp_path / "f" / "checkpoints").glob("*.json")]
    assert f"stopped after round {max(rounds)}" in errors
