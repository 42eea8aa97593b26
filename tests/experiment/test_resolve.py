# SPDX-License-Identifier: Apache-2.0
"""From a word on the command line to an experiment: recipe, file, run folder, or one's own data."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.experiment.recipes import plain_settings, resolve
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import build, run

TINY = ("num_rounds=1", "num_clients=2", "fraction_train=1.0", "engine=inline", "training.local_epochs=1")


def own_data(folder: Path, clients: int = 3) -> Path:
    folder.mkdir()
    rng = Seed(1).numpy()
    for i in range(clients):
        np.savez(folder / f"site{i}.npz", x=rng.normal(size=(20, 4)).astype(np.float32), y=np.arange(20) % 2)
    return folder


def test_a_recipe_and_a_file_with_its_settings_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("num_rounds = 7\ndata = 'digits'\n")
    assert resolve(str(tmp_path / "e.toml"), ["training.lr=0.5"]).training.lr == 0.5
    assert resolve("digits", ["num_rounds=7"]).num_rounds == 7


def test_a_run_folder_stands_for_its_experiment(tmp_path: Path) -> None:
    experiment = resolve("digits", TINY)
    folder = run(experiment, folder=tmp_path / "run")
    assert resolve(str(folder)) == experiment


def test_a_folder_of_own_data_becomes_an_experiment_on_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FEDDAG_CACHE", str(tmp_path / "cache"))
    own_data(tmp_path / "my sites")
    monkeypatch.chdir(tmp_path)
    experiment = resolve("my sites", ["num_rounds=2"])
    assert (experiment.name, experiment.data.name, experiment.num_rounds) == ("my-sites", "own", 2)
    monkeypatch.chdir("/")  # the path in the settings holds from everywhere
    assert build(experiment).clients == ("site0", "site1", "site2")


def test_own_data_train_in_more_and_longer_steps_and_settings_still_decide(tmp_path: Path) -> None:
    folder = str(own_data(tmp_path / "sites"))
    assert (resolve(folder).training.batch_size, resolve(folder).training.lr) == (16, 0.05)
    changed = resolve(folder, ["training.lr=0.2"]).training
    assert (changed.batch_size, changed.lr) == (16, 0.2)
    assert (Experiment().training.batch_size, Experiment().training.lr) == (64, 0.01), "nothing else changes"


@pytest.mark.parametrize(("side", "model"), [(28, "lenet"), (8, "auto"), (64, "auto")])
def test_few_small_images_get_the_small_network(side: int, model: str, tmp_path: Path) -> None:
    for name in ("a/cat/1.png", "b/dog/2.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.fromarray(np.zeros((side, side, 3), dtype=np.uint8)).save(tmp_path / name)
    assert resolve(str(tmp_path)).model == model
    assert resolve(str(tmp_path), ["model=conv3"]).model == "conv3"


def test_damaged_images_are_left_to_the_check_of_data(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    (tmp_path / "a" / "cat" / "1.png").write_bytes(b"no image")
    assert resolve(str(tmp_path)).model == "auto"


def test_a_table_of_own_data_becomes_an_experiment_on_it(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("client,a,label\nx,1,0\n")
    assert resolve(str(tmp_path / "all.csv")).data.path == tmp_path / "all.csv"


@pytest.mark.parametrize("what", ["nothing", "", "x" * 5_000, "a\0b", "a\nb", "~nobody/x"])
def test_any_other_word_gets_one_sentence(what: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as told:
        resolve(what)
    sentence = (
        r"is neither a recipe (demo, fashion, digits), nor a settings file, nor a run folder, nor a folder"
    )
    assert sentence in str(told.value)
    assert str(told.value).isprintable()


def test_a_folder_without_data_and_the_folder_of_a_comparison_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is neither a method, a recipe"):
        plain_settings(str(tmp_path), "a method, ")
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(InvalidInput, match="is the folder of a comparison: use feddag compare --folder"):
        resolve(str(tmp_path))


def test_a_fault_in_a_file_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("rounds = 7")
    with pytest.raises(InvalidInput, match=r"e\.toml: rounds: unknown key"):
        resolve(str(tmp_path / "e.toml"))
