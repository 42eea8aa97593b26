# SPDX-License-Identifier: Apache-2.0
"""`feddag data list | get | check | show`: what there is, whether it is right, and what it looks like."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddag.cli.options import Overrides, terminal

if TYPE_CHECKING:
    from feddag.data.config import DataConfig
    from feddag.data.federation import Federation
    from feddag.experiment.settings import Experiment
    from feddag.reporting.terminal.console import TextTable

app = typer.Typer(help="Datasets and your own data: list, get, check, show.", no_args_is_help=True)

FEW = 12  # up to this number, every class has a column of its own
CLIENTS_SHOWN = 100  # rows of the table that `show` prints

Name = Annotated[
    str, typer.Argument(metavar="NAME|PATH", help="A dataset's name, or your own folder or table.")
]


@app.command("list")
def list_() -> None:
    """List the datasets: whether they are there, size of the download, terms."""
    from feddag.data.catalog import DATASETS, how_there
    from feddag.data.config import DataConfig

    table = _table("name", "there", "download", "terms", "what")
    for name, entry in DATASETS.items():
        there = "" if name == "own" else how_there(DataConfig(name=name))
        table.line(name, there, entry.download, entry.terms, entry.help)
    terminal().print(table)
    _say("")
    _say(f"Looked for in {DataConfig().data_folder} (set data.folder or FEDDAG_DATA to change that).")
    _say('Nothing is downloaded unless you ask: feddag data get NAME. Use one: data.name = "NAME".')


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A dataset's name.")],
    set_: Overrides = None,
) -> None:
    """Download a dataset if it is not there, check it, and convert it for fast loading."""
    from feddag.core.errors import InvalidInput
    from feddag.data.catalog import DATASETS, how_there, load_dataset
    from feddag.data.summary import source_line

    if name not in DATASETS or name == "own":
        names = [known for known in DATASETS if known != "own"]
        raise InvalidInput(f"'{name}' is not a dataset that can be fetched; {_nearest(name, names)}")
    config = _experiment(name, ["data.download=true", *(set_ or [])]).data
    dataset = load_dataset(config)
    _say(source_line(dataset.source))
    for key, note in dataset.notes.items():
        _say(f"{key}: {note}")
    if how_there(config) == "a part":
        _say(f"For the whole set use another folder: feddag data get {name} -s data.folder=FOLDER")


@app.command()
def check(name: Name, set_: Overrides = None) -> None:
    """Say what was found and everything that is wrong; the exit code is 2 if anything is wrong."""
    from feddag.data.catalog import DATASETS
    from feddag.data.files.cache import verify_always

    config = _experiment(name, set_ or []).data
    with verify_always() as damaged:
        try:
            if name in DATASETS and config.path is None:
                _check_dataset(config)
            else:
                _check_own(config)
        finally:
            for entry in damaged:
                _say(f"the cached copy {entry} was damaged; it is made anew from the original data")


@app.command()
def show(
    name: Name,
    clients: Annotated[int | None, typer.Option("--clients", "-n", help="Number of clients.")] = None,
    set_: Overrides = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("."),
    seed: Annotated[int, typer.Option(help="The number the partition is drawn from.")] = 1,
) -> None:
    """Deal a dataset to clients and write two pictures: samples with label histograms, classes × clients."""
    from feddag.core.errors import InvalidInput
    from feddag.core.seeds import Seed
    from feddag.data.build import partition_dataset
    from feddag.data.catalog import load_dataset
    from feddag.data.summary import source_line
    from feddag.reporting.figures.data import plot_classes_by_clients, plot_samples

    experiment = _experiment(name, set_ or [])
    dataset = load_dataset(experiment.data)
    if clients is None and not (dataset.owners and experiment.partition.kind in ("auto", "natural")):
        clients = 20
    federation = partition_dataset(
        dataset, experiment.partition, clients, Seed(seed), experiment.data.cache_folder
    )
    _say(source_line(federation.source))
    numbers = tuple(str(c) for c in range(federation.num_classes))
    if federation.num_classes <= FEW and federation.class_names not in ((), numbers):
        _say("classes: " + ", ".join(f"{c} {word}" for c, word in enumerate(federation.class_names)))
    width = max(terminal().width, 60 + 6 * min(FEW, federation.num_classes))
    terminal(width=width).print(_client_table(federation))
    if federation.newcomers:
        _say("* joins later")
    stem = Path(name).stem if Path(name).exists() else name
    for suffix, plot in (("samples", plot_samples), ("classes", plot_classes_by_clients)):
        picture = out / f"{stem}-{suffix}.png"
        try:
            out.mkdir(parents=True, exist_ok=True)
            plot(federation, picture)
        except OSError as error:
            raise InvalidInput(f"{picture}: cannot be written ({error.strerror})") from error
        _say(f"wrote {picture}")


def _experiment(name: str, overrides: list[str]) -> "Experiment":
    """The settings for a dataset's name or for a path to your own data."""
    from feddag.core.errors import InvalidInput
    from feddag.data.catalog import DATASETS
    from feddag.experiment.settings import Experiment

    if name in DATASETS:
        return Experiment().with_overrides([f'data.name="{name}"', *overrides])
    if Path(name).exists():
        settings = {"data": {"name": "own", "path": name}}
        return Experiment.from_settings(settings).with_overrides(overrides)
    raise InvalidInput(
        f"'{name}' is neither a dataset nor a folder or table; {_nearest(name, list(DATASETS))}"
    )


def _nearest(name: str, known: list[str]) -> str:
    """The name that was probably meant, else all of them."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"datasets are {', '.join(known)}"


def _check_dataset(config: "DataConfig") -> None:
    from feddag.data.catalog import load_dataset
    from feddag.data.summary import class_lines, source_line

    dataset = load_dataset(config)
    _say(source_line(dataset.source))
    _say(f"samples: {dataset.train.x.dtype} of shape {dataset.train.x.shape[1:]}")
    for what, tags in (("natural clients", dataset.owners), ("domains", dataset.domains)):
        if tags is not None:
            more = ", …" if len(tags.names) > 6 else ""
            _say(f"{what}: {len(tags.names)} ({', '.join(tags.names[:6])}{more})")
    _say(f"SHA-256: {dataset.source.sha256}")
    for key, note in dataset.notes.items():
        _say(f"{key}: {note}")
    table = _table("class", "training", "test")
    test = dict(class_lines(dataset.test.y, dataset.class_names, dataset.num_classes))
    for class_name, count in class_lines(dataset.train.y, dataset.class_names, dataset.num_classes):
        table.line(class_name, f"{count:,}", f"{test[class_name]:,}")
    terminal().print(table)


def _check_own(config: "DataConfig") -> None:
    from feddag.core.errors import InvalidInput
    from feddag.core.text import plural
    from feddag.data.datasets.own import load_read, own_path, own_settings
    from feddag.data.own.checking import client_facts
    from feddag.data.own.reading import read_own

    reading = read_own(own_path(config), own_settings(config))
    table = _table("client", "samples", "test", "shape", "type", "classes", "missing values")
    for facts in client_facts(reading):
        table.line(*facts)
    if reading.clients:
        terminal().print(table)
    problems = list(reading.problems)
    if not problems:
        try:
            dataset = load_read(config, reading)
        except InvalidInput as error:
            problems.append(str(error))
        else:
            for key, note in dataset.notes.items():
                if key != "warnings":
                    _say(f"{key}: {note}")
            _say(f"SHA-256: {dataset.source.sha256}")
    for noun, sentences in (("warning", reading.warnings), ("problem", problems)):
        if sentences:
            _say("")
            _say(f"{plural(len(sentences), noun)}:")
            for sentence in sentences:
                _say(f"- {sentence}")
    if problems:
        raise SystemExit(2)  # unlike typer.Exit, this ends `main` with 2 as well
    _say(f"{plural(len(reading.clients), 'client')}, nothing is wrong")


def _client_table(federation: "Federation") -> "TextTable":
    from feddag.core.text import plural
    from feddag.data.summary import client_rows

    few = federation.num_classes <= FEW
    rows = client_rows(federation)
    classes = [str(c) for c in range(federation.num_classes)] if few else ["classes"]
    planted = ["planted group"] if any(row.group for row in rows) else []
    table = _table("client", "train", "val", "test", *classes, *planted)
    for column in table.columns[1 : 4 + len(classes)]:
        column.justify = "right"
    for row in rows[:CLIENTS_SHOWN]:
        counts = [str(c) if c else "·" for c in row.counts] if few else [str(sum(c > 0 for c in row.counts))]
        name = row.client + ("*" if row.newcomer else "")
        amounts = (str(row.train), str(row.validation), str(row.test))
        table.line(name, *amounts, *counts, *([row.group] if planted else []))
    if len(rows) > CLIENTS_SHOWN:
        table.note(f"the first {CLIENTS_SHOWN} of {plural(len(rows), 'client')}")
    return table


def _table(*headings: str) -> "TextTable":
    from feddag.reporting.terminal.console import TextTable

    table = TextTable(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.heading(heading)
    return table


def _say(text: str) -> None:
    from feddag.reporting.terminal.console import say

    say(terminal(), text)
