# SPDX-License-Identifier: Apache-2.0
"""A client's model that is read back; that it predicts what was scored is a contract of every method."""

import json
from pathlib import Path

import numpy as np
import pytest

from feddag.core.errors import InvalidInput
from feddag.experiment.recipes import RECIPES
from feddag.runs.client_model import SavedModels
from feddag.runs.run import load_run
from feddag.runs.simulate import run


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = ["num_clients=6", "num_rounds=2", "engine=inline", "algorithm=ifca", "algorithm.num_clusters=2"]
    where = tmp_path_factory.mktemp("models") / "run"
    run(RECIPES["digits"]().with_overrides([*changes, "training.lr=0.3"]), folder=where)
    return where


def test_grey_images_may_come_without_a_channel_and_as_any_type_of_whole_numbers(digits: Path) -> None:
    model = load_run(digits).model("c000")
    x = np.arange(5 * 64).reshape(5, 1, 8, 8) % 17
    expected = model.predict_proba(x.astype(np.uint8))
    for same in (x, x[:, 0], x.astype(np.float64), x.tolist()):
        assert np.array_equal(model.predict_proba(same), expected)
    assert set(model.predict(x)) <= set(map(str, range(10)))
    assert model.predict_proba(x[:0]).shape == (0, 10)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros((1, 8, 8)), "expected several samples"),
        (np.zeros((3, 9, 9)), r"expected samples of shape \(1, 8, 8\), got an array \(3, 9, 9\)"),
        (np.full((2, 8, 8), np.nan), "missing or infinite"),
        (np.full((2, 8, 8), "a"), "expected numbers"),
        (np.zeros(()), "expected samples of shape"),
    ],
)
def test_samples_that_do_not_fit_are_refused(digits: Path, x: np.ndarray, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        load_run(digits).model("c000").predict(x)


def test_pixels_that_were_divided_by_255_are_refused(tmp_path: Path) -> None:
    settings = [
        "num_clients=4",
        "num_rounds=1",
        "training.local_epochs=1",
        "engine=inline",
        "data.max_train=200",
    ]
    done = RECIPES["demo"]().with_overrides([*settings, "algorithm=fedavg", "partition=iid"])
    model = load_run(run(done, folder=tmp_path / "run")).model("c000")
    with pytest.raises(InvalidInput, match=r"whole numbers from 0 to 255, got values from 0\.5 to 0\.5"):
        model.predict(np.full((2, 28, 28), 0.5))
    assert model.predict(np.full((2, 28, 28), 128.0)).shape == (2,)


def test_a_new_client_gets_the_model_with_the_least_loss_on_its_samples(digits: Path) -> None:
    done = load_run(digits)
    x = np.random.default_rng(0).integers(0, 17, size=(30, 8, 8))
    labels = np.arange(30) % 10
    model, users, loss = done.models.best_for(x, labels)
    losses = {clients[0]: done.model(clients[0]).loss(x, labels) for clients in done.models.users()}
    assert sorted(c for clients in done.models.users() for c in clients) == list(done.models.clients)
    assert loss == min(losses.values()) == losses[users[0]]
    assert np.array_equal(done.model_for(x, labels).predict_proba(x), model.predict_proba(x))
    with pytest.raises(InvalidInput, match="class 'eleven' is none of this run's: 0, 1"):
        done.model_for(x[:1], ["eleven"])
    with pytest.raises(InvalidInput, match="no labelled samples"):
        done.model_for(x[:0], [])


def test_what_cannot_be_used_is_refused_in_a_sentence(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"client 'nobody' took no part .* feddag newcomer"):
        load_run(digits).model("nobody")
    described = json.loads((digits / "models" / "clients.json").read_text())
    entry = described["clients"]["c000"]
    for change, sentence in (
        ({"uses": None}, "was offered several models and its evaluation failed"),
        ({"adapt": True}, "trains its model on its own data before it predicts"),
        ({"uses": "gone.safetensors"}, "gone.safetensors cannot be read"),
        ({"network": "dual"}, "does not fit the network"),
    ):
        saved = tmp_path / sentence.replace(" ", "-")
        saved.mkdir()
        changed = {**described, "clients": {"c000": entry | change}}
        (saved / "clients.json").write_text(json.dumps(changed))
        for file in entry["files"]:
            (saved / file).write_bytes((digits / "models" / file).read_bytes())
        with pytest.raises(InvalidInput, match=sentence):
            SavedModels(saved).of("c000")
    (tmp_path / "clients.json").write_text("{")
    with pytest.raises(InvalidInput, match="is damaged"):
        _ = SavedModels(tmp_path).clients
