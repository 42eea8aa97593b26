# SPDX-License-Identifier: Apache-2.0
"""Recipes, and the one way from a word on the command line to an Experiment.

A recipe is a Python function that returns an Experiment; a variant calls another one and changes some fields.

experiment = resolve("demo", ["training.lr=0.1"])    # or a settings file, a run folder, a folder of own data
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from feddag.core.deployment import LocalTraining
from feddag.core.errors import InvalidInput
from feddag.data.config import DataConfig, PartitionConfig
from feddag.data.own.tables import TABLES
from feddag.experiment.method import AlgorithmConfig
from feddag.experiment.overrides import Settings, override, read_settings
from feddag.experiment.sentences import shown_text
from feddag.experiment.settings import EvaluationConfig, Experiment

FEW = 20_000  # images with which a large network learns no better than a small one


def demo() -> Experiment:
    """FedDAG finds five planted groups of clients on the embedded Fashion-MNIST sample: about a minute."""
    return Experiment(
        name="demo",
        data=DataConfig(name="fashion-mnist-sample"),
        partition=PartitionConfig(kind="label-groups", alpha=1.0),
        num_clients=30,
        num_rounds=15,
        fraction_train=0.5,
        algorithm=AlgorithmConfig(name="feddag"),
        training=LocalTraining(local_epochs=3, batch_size=32, lr=0.05),
    )


def fashion() -> Experiment:
    """The paper's Fashion-MNIST setting: 100 clients, Distribution I at 20%, α' = 0.25 (full set)."""
    return Experiment(
        name="fashion",
        data=DataConfig(name="fashion-mnist"),
        partition=PartitionConfig(kind="label-groups", label_share=0.2, alpha=0.25),
        num_clients=100,
        num_rounds=200,
        fraction_train=0.2,
        algorithm=AlgorithmConfig(name="feddag"),
        evaluation=EvaluationConfig(every=10),
    )


def digits() -> Experiment:
    """Ten clients on scikit-learn's 8×8 digits, full participation: a few seconds, for trying things out."""
    return Experiment(
        name="digits",
        data=DataConfig(name="digits"),
        partition=PartitionConfig(kind="lda", alpha=0.5),
        num_clients=10,
        num_rounds=10,
        fraction_train=1.0,
        training=LocalTraining(local_epochs=2, batch_size=32, lr=0.1),
        evaluation=EvaluationConfig(every=2),
    )


RECIPES: dict[str, Callable[[], Experiment]] = {
    "demo": demo,
    "fashion": fashion,
    "digits": digits,
}


def resolve(what: str, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment that a word means, with `key=value` overrides applied."""
    where = "" if what in RECIPES else what
    return Experiment.from_settings(override(plain_settings(what), overrides), where)


def plain_settings(what: str, other_names: str = "") -> Settings:
    """The settings that a word means: of a recipe, a settings file, a run folder, or for your own data.

    `other_names` completes the refusal where the caller knows further names, for example of methods.
    """
    if what in RECIPES:
        return RECIPES[what]().settings()
    path = Path(what)
    if _is_file(path):
        return _own_data(path) if path.suffix in TABLES else read_settings(path)
    if _is_file(path / "experiment.json"):
        return read_settings(path / "experiment.json")
    name = shown_text(what)
    if _is_file(path / "compare.json"):
        raise InvalidInput(f"{name} is the folder of a comparison: use feddag compare --folder {name}")
    if what and _holds_clients(path):
        return _own_data(path)
    kinds = f"{other_names}a recipe ({', '.join(RECIPES)})"
    raise InvalidInput(
        f"'{name}' is neither {kinds}, nor a settings file, nor a run folder, nor a folder or table "
        "with your own data (one folder, .npz, .csv or .parquet file per client)"
    )


def _own_data(path: Path) -> Settings:
    """An experiment on the user's own data: FedDAG, which finds out whether its clients are alike.

    All clients train in every round, however few there are.
    Own data are often small. With the package's defaults 200 samples make 30 short steps per round, and
    training stands still near chance; smaller batches and a larger learning rate make enough of them.
    Few small images get the small network: it takes a tenth of the time, and the large one learns less.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().stem).lstrip("._-")[:64] or "own"
    data = {"name": "own", "path": str(path.absolute())}  # absolute: a run can be resumed from any folder
    training = {"batch_size": 16, "lr": 0.05}
    settings = {"name": name, "data": data, "algorithm": "feddag", "num_rounds": 20}
    if _holds_few_small_images(path):
        settings["model"] = "lenet"
    return {**settings, "fraction_train": 1.0, "training": training}


def _holds_few_small_images(path: Path) -> bool:
    """Whether these are fewer than 20,000 images of the sizes that `auto` would give a larger network."""
    from feddag.data.files.images import image_header
    from feddag.data.own.pictures import image_files, is_hidden

    try:
        clients = [entry for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry)]
        images = [file for client in clients for _, file in image_files(client)]
        return 0 < len(images) < FEW and 16 <= min(image_header(images[0], images[0].name)[0]) < 64
    except (OSError, ValueError, InvalidInput):  # `feddag data check` says what is wrong there
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # for example a name that is too long
        return False


def _holds_clients(folder: Path) -> bool:
    """Whether a folder looks like own data: `feddag data check` says what is wrong inside."""
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return False
    return any(entry.is_dir() or entry.suffix in (".npz", *TABLES) for entry in entries)
