# SPDX-License-Identifier: Apache-2.0
"""What README and docs say is true: snippets run, commands parse, settings, files and links exist.

The Python snippets of docs/data.md and docs/own-data.md are run by tests/data/test_memory.py.
"""

import importlib
import itertools
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest
import typer

from feddag import __version__, native
from feddag.algorithms import ALGORITHMS
from feddag.cli.main import app
from feddag.experiment.listing import hyper_parameters, settings, table_of
from feddag.experiment.overrides import override
from feddag.experiment.recipes import RECIPES
from feddag.experiment.settings import Experiment
from feddag.runs.simulate import build, run

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    ROOT / "feddag" / "native" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = typer.main.get_command(app)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def options() -> dict[str, set[str]]:
    """Method → names of its hyper-parameters."""
    return {method: {name for name, *_ in hyper_parameters(method)} for method in ALGORITHMS}


@cache
def known_settings() -> set[str]:
    """Every setting of every method, and FedDAG's also without `algorithm.` in front."""
    of_methods = {f"algorithm.{name}" for names in options().values() for name in names}
    return {name for name, *_ in settings(Experiment)} | of_methods | options()["feddag"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def inline_codes(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


def shell_lines(page: Path) -> list[str]:
    """Every line of a shell block and every inline code, continued lines joined, comments removed."""
    text = "".join(blocks(page, "(?:sh)?")).replace("\\\n", " ")
    return [line.partition(" #")[0].strip() for line in text.splitlines()] + inline_codes(page)


def commands(page: Path, first: str) -> list[list[str]]:
    lines = [line for line in shell_lines(page) if line.startswith(f"{first} ")]
    return [shlex.split(line)[1:] for line in lines if "|" not in line and "…" not in line]


def parsed(words: list[str]) -> dict:
    """The values of a command's options; click refuses unknown commands and options."""
    command: click.Command = COMMANDS
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    try:
        return command.make_context("feddag", list(words)).params
    except click.MissingParameter:  # the text names a command without its arguments
        return {}


def check_setting(assignment: str, method: str) -> None:
    """A `key=value` of `--set`: a known key, and a value that is allowed (other than one from the data)."""
    if "my_module:" in assignment:  # a user's own, which test_python_snippets_run tries
        return
    owner, _, rest = assignment.partition(".")
    if owner in ALGORITHMS:  # of `feddag compare`
        method, assignment = owner, f"algorithm.{rest}"
    if assignment.endswith("=planted"):
        assert assignment.removesuffix("=planted").removeprefix("algorithm.") in options()[method]
        return
    base = override(RECIPES["demo"]().settings(), [f"algorithm={method}"])
    Experiment.from_settings(override(base, [assignment]))


@every_page
def test_feddag_commands_parse_and_their_settings_are_known(page: Path) -> None:
    for args in commands(page, "feddag"):
        values = parsed(args)
        if args[0] == "list":
            own = values["kind"].startswith("my_module:")
            assert own or values["kind"] == "all" or table_of(values["kind"])
        if args[0] == "compare":
            methods = [name for name in values["names"] or () if "." not in name]
            assert set(methods) <= ALGORITHMS.keys()
        for assignment in values.get("set_") or ():
            check_setting(assignment, "feddag")


@every_page
def test_commands_of_python_and_make_name_what_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for args in commands(page, "make"):
        assert args[0] in targets
    for args in commands(page, "python"):
        script = ROOT / (args[1].replace(".", "/") + ".py" if args[0] == "-m" else args[0])
        assert script.is_file(), args
        for option, assignment in itertools.pairwise(args):
            if option == "--set":
                check_setting(assignment, "feddag")


@every_page
def test_settings_in_toml_are_valid(page: Path) -> None:
    for block in blocks(page, "toml"):
        Experiment.from_settings(tomllib.loads(block))


@every_page
def test_settings_in_the_text_exist(page: Path) -> None:
    """`engine.backend`, `training.lr = 0.1`, `algorithm.graph.num_sources`, and FedDAG's groups."""
    known = known_settings()
    tables = {name.partition(".")[0] for name in known if "." in name}
    for code in inline_codes(page):
        key = re.match(r"([a-z]+)\.[a-z_.]+(?=( =.*|\.\*)?$)", code)
        if key and key[1] in tables and not code.endswith((".py", ".md", ".json")):
            assert [name for name in known if f"{name}.".startswith(key[0].rstrip(".") + ".")], code


@every_page
def test_files_modules_and_links_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    for code in inline_codes(page):
        if re.fullmatch(r"(\w+/)+[\w.]*", code) and code.split("/")[0] in (
            "feddag",
            "tests",
            "benchmarks",
            "docs",
        ):
            assert (ROOT / code).exists() or code.startswith("benchmarks/."), code
        if re.fullmatch(r"feddag(\.\w+)+", code):
            assert importable(code), code


def importable(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    return True


def test_the_architecture_page_draws_the_layers_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"feddag\.(\w+)", layer) for layer in contracts[0]["layers"]]
    drawing = next(b for b in blocks(ROOT / "docs" / "architecture.md", "") if b.startswith(" cli"))
    lines = [re.split(r"\s{3,}", line.strip())[0] for line in re.sub(r" *│ ", "│", drawing).splitlines()]
    assert [line.split("│") for line in lines] == layers
    folders = {path.parent.name for path in (ROOT / "feddag").glob("*/__init__.py")}
    assert folders == {folder for layer in layers for folder in layer}


def test_the_citation_names_the_version_of_the_package() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/feddag.md",
        "docs/own-network.md",
        "docs/plug-ins.md",
        "docs/python.md",
        "docs/use-the-models.md",
        "feddag/native/README.md",
    ],
)
def test_python_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "native" in name and not native.available():
        pytest.skip(native.why_not())
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": name}
    snippets = blocks(ROOT / name, "python")
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, name, "exec"), names)
    if name == "README.md":
        assert names["done"].finished
        assert len(names["done"].clients) == 5
    if "found" in names:  # the comment behind the last line of both examples
        assert names["found"].labels_.tolist() == [0] * 4 + [1] * 4
    if "MyMethod" in names:
        (tmp_path / "my_module.py").write_text("\n".join(snippets))
        monkeypatch.syspath_prepend(tmp_path)
        settings_ = {
            "data": "my_module:load",
            "partition": "my_module:deal",
            "algorithm": "my_module:MyMethod",
        }
        settings_ |= {"num_clients": 3, "num_rounds": 1, "fraction_train": 1.0, "engine": "inline"}
        assert run(Experiment.from_settings(settings_), folder=tmp_path / "run").finished
        assert table_of("my_module:MyMethod") == [("step", "0.5", "part of the way")]
    if "make" in names:
        (tmp_path / "my_net.py").write_text(snippets[0])
        monkeypatch.syspath_prepend(tmp_path)
        settings_ = {"data": "fashion-mnist-sample", "num_clients": 5, "model": "my_net:make"}
        assert build(Experiment.from_settings(settings_)).prepared.network.name == "my_net:make"
