# SPDX-License-Identifier: Apache-2.0
"""The report: one page out of a run folder, for finished, unfinished and several runs."""

import json
import re
import tomllib
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddag.core.errors import InvalidInput
from feddag.reporting.pages.clustering import PlantedTruth, write_clustering_page
from feddag.reporting.pages.report.run_data import labelled, read_run
from feddag.reporting.pages.report.settings import as_toml
from feddag.reporting.pages.report.write import SECTIONS, report_html
from feddag.reporting.pages.section import Block, Maker, load_block, save_block
from feddag.reporting.pages.why import MOST_CELLS, thinned, why_block
from feddag.runs.report import called_apart, write_report_of
from tests.reporting.run_folders import FolderMaker, run_folder
from tests.reporting.toys import clients, full_clustering


class Content(HTMLParser):
    """The text of a page, its sections, its scripts and its plots."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.sections, self.scripts, self.policy = "", [], {}, ""
        self._script: str | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs) -> None:
        found = dict(attrs)
        if tag == "section":
            self.sections.append(found["id"])
        elif tag in ("script", "style"):
            self._script = found.get("id") or found.get("type") or tag
        elif found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]

    def handle_endtag(self, tag) -> None:
        if tag in ("script", "style"):
            self._script = None

    def handle_data(self, data) -> None:
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def plots(self) -> dict[str, dict]:
        return {plot["key"]: plot for plot in json.loads(self.scripts["plots"])}


def report(*folders: Path) -> Content:
    labels = labelled(folders)
    return Content(report_html([read_run(f, label) for f, label in zip(folders, labels, strict=True)]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Content:
    return report(run_folder(tmp_path_factory.mktemp("whole") / "run", failures=True))


def test_a_finished_run_has_every_section_that_is_for_one_run(whole) -> None:
    # The toy has no clustering to explain, nobody joins or leaves, and nothing is protected.
    for_several = {"runs", "differences", "why", "lifecycle", "privacy"}
    assert whole.sections == [maker.key for maker in SECTIONS if maker.key not in for_several]


def test_every_part_of_a_sound_run_can_be_made(whole) -> None:
    assert "could not be made" not in whole.text


def test_a_part_that_cannot_be_made_does_not_cost_the_page(tmp_path: Path) -> None:
    broken = Maker("odd", "Odd", lambda run: Block(code=1 / 0))  # type: ignore[arg-type]
    section = broken.section([read_run(run_folder(tmp_path / "run"))])
    assert section is not None
    assert section.blocks[0].sentences == [
        "This part could not be made: ZeroDivisionError: division by zero."
    ]


def test_the_answer_comes_first_and_agrees_with_the_log(whole) -> None:
    curve = whole.plots["accuracy-against-rounds"]["data"][-1]
    assert curve["x"] == [1, 2, 3, 4]
    assert f"The models reach {curve['y'][-1]:.1%}" in whole.text[:2000]


def test_bytes_and_seconds_leave_evaluation_out(whole) -> None:
    # The start asks 6 clients and takes 1 s; each round asks 3 of them, 1,500 bytes each, and takes 0.5 s.
    assert whole.plots["accuracy-against-bytes"]["data"][-1]["x"] == [0.013, 0.018, 0.022, 0.027]
    assert whole.plots["accuracy-against-seconds"]["data"][-1]["x"] == [1.5, 2.0, 2.5, 3.0]


def test_every_client_is_in_the_distribution_and_the_map(whole) -> None:
    names = {f"c{i:04d}" for i in range(6)}
    assert set(whole.plots["clients"]["data"][0]["text"]) == names
    assert set(whole.plots["clients-over-rounds"]["data"][0]["y"]) == names
    assert set(whole.plots["classes"]["data"][0]["x"]) == names
    assert whole.plots["classes"]["data"][0]["y"] == ["shirt", "boot", "bag"]


def test_failures_are_told_by_name_and_reason(whole) -> None:
    assert "the client was too slow" in whole.text
    assert "4 questions had no valid answer" in whole.text
    assert sum(whole.plots["failures"]["data"][0]["y"]) == 4


def test_the_settings_can_be_run_again(whole, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    settings = read_run(folder).settings
    assert tomllib.loads(as_toml(settings)) == settings
    assert 'algorithm.name = "feddag"\n' in whole.text


def test_settings_with_odd_keys_and_values_stay_the_same_as_toml() -> None:
    odd = {
        "a b": {'"': 1},
        "list": [1, "x\ny\x7f", {"k": True}],
        "none": None,
        "deep": {"none": None, "f": 1e-9},
    }
    assert tomllib.loads(as_toml(odd)) == {"a b": {'"': 1}, "list": odd["list"], "deep": {"f": 1e-9}}


@pytest.mark.parametrize("until", [0, 1, 2])
def test_an_unfinished_run_has_a_report(tmp_path: Path, until: int) -> None:
    page = report(run_folder(tmp_path / "run", until=until))
    assert f"The run is not finished: round {until} of 4." in page.text
    assert ("accuracy" in page.sections) == (until > 0)
    assert "settings" in page.sections


def test_a_run_that_wrote_nothing_but_its_settings_has_a_report(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", until=0)
    (folder / "events.jsonl").unlink()
    (folder / "data.json").write_text("[")
    assert report(folder).sections == ["settings"]


def test_a_log_that_ends_in_the_middle_of_a_line_is_read_up_to_there(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", until=2)
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-30])
    assert report(folder).plots["accuracy-against-rounds"]["data"][-1]["x"] == [1]


def test_a_method_without_clusters_has_no_section_about_them(tmp_path: Path) -> None:
    page = report(run_folder(tmp_path / "run", clusters=0, method="fedavg"))
    assert "clusters" not in page.sections
    assert "cluster" not in page.text[: page.text.index("Settings\n")]


def test_several_runs_share_their_curves_and_stand_side_by_side(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / m, method=m, seed=k) for k, m in enumerate(("fedavg", "feddag"))]
    page = report(*folders)
    assert page.sections[0] == "runs"
    assert [t["name"] for t in page.plots["accuracy-against-rounds"]["data"]] == ["fedavg", "feddag"]
    assert "2 runs side by side" in page.text
    assert "algorithm.name" in page.text  # among the settings that differ


def test_short_names_of_runs_differ() -> None:
    assert labelled([Path("/a/x"), Path("/a/y")]) == ["x", "y"]
    assert labelled([Path("/a/x"), Path("/b/x")]) == ["a/x", "b/x"]


def test_the_policy_names_each_script_and_nothing_else(whole) -> None:
    assert "default-src 'none'" in whole.policy
    scripts = re.search(r"script-src ([^;]*)", whole.policy)
    assert scripts is not None
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", source) for source in scripts[1].split())


def test_a_folder_that_is_no_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a run folder: it has no experiment"):
        write_report_of([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


# -- the clustering as a part of the report --------------------------------------------------------------


def test_the_clustering_is_explained_inside_the_report(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", clients=list(clients(8)))
    truth = PlantedTruth({c: int(i >= 4) for i, c in enumerate(clients(8))}, {0: "shirts", 1: "boots"})
    write_clustering_page(folder / "clustering", full_clustering(8), truth, ("shirt", "boot", "bag"))
    page = report(folder)
    assert "why" in page.sections
    assert "8 clients in 2 clusters of 4 and 4 clients" in page.text
    assert {"distances-1", "distances-2", "tree", "thresholds-counts", "weights", "graph"} <= set(page.plots)
    assert page.plots["classes-of-clusters"]["data"][0]["y"] == ["shirt", "boot", "bag"]
    assert "shirts" in page.text


def test_a_block_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    block = why_block(full_clustering(5))
    save_block(tmp_path / "block.json", block)
    assert json.dumps(asdict(load_block(tmp_path / "block.json"))) == json.dumps(asdict(block))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tables": 3}', '{"plots": [{}], "tables": []}'])
def test_a_damaged_block_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "block.json").write_text(text)
    assert load_block(tmp_path / "block.json") is None


def test_a_map_of_many_clients_is_averaged_over_neighbours() -> None:
    n = 2 * MOST_CELLS
    matrix = np.add.outer(np.arange(n), np.arange(n)).astype(float)
    small, names = thinned(matrix, [f"c{i}" for i in range(n)])
    assert small.shape == (MOST_CELLS, MOST_CELLS)
    assert small[0, 0] == matrix[:2, :2].mean()
    assert small[-1, 3] == matrix[-2:, 6:8].mean()
    assert names[0] == "c0 to c1"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_clustering_of_few_clients_gives_a_block_without_empty_plots(n: int) -> None:
    for plot in why_block(full_clustering(n)).plots:
        assert all(len(trace.get("x", [])) > 0 for trace in plot.data)


# -- cost by phase -----------------------------------------------------------------------------------------


def test_the_cost_of_every_phase_is_shown_with_the_servers_own_work(whole) -> None:
    bytes_, seconds = whole.plots["cost-bytes"]["data"], whole.plots["cost-seconds"]["data"]
    # 6 clients sign; in 4 rounds 3 clients train; 6 clients are evaluated 4 times; 1,500 bytes each.
    assert {t["name"]: t["x"] for t in bytes_} == {
        "signature": [0.009], "primary": [0.018], "evaluation": [0.036],
    }  # fmt: skip
    assert {t["name"]: t["x"] for t in seconds} == {
        "signature": [0.06], "clustering": [0.6], "primary": [0.12], "averaging": [0.8], "evaluation": [0.24],
    }  # fmt: skip


def test_an_unfinished_run_shows_its_clusters(tmp_path: Path) -> None:
    page = report(run_folder(tmp_path / "run", until=2, clusters=3))
    assert [t["name"] for t in page.plots["clusters"]["data"]] == [f"cluster {z} (2)" for z in range(3)]


def test_runs_are_called_by_what_tells_them_apart(tmp_path: Path) -> None:
    def names(*of: tuple[str, int]) -> list[str]:
        made = [
            FolderMaker(tmp_path / f"{k}", method=method, seed=seed).folder
            for k, (method, seed) in enumerate(of)
        ]
        return [run.label for run in called_apart([read_run(folder) for folder in made])]

    assert names(("fedavg", 1), ("feddag", 1)) == ["fedavg", "feddag"]
    assert names(("feddag", 1), ("feddag", 2)) == ["feddag, seed 1", "feddag, seed 2"]
    assert names(("feddag", 1), ("feddag", 1)) == ["feddag: 0", "feddag: 1"]


# -- damage ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> Path:
    folder = run_folder(tmp_path_factory.mktemp("damaged") / "run", clients=3, rounds=2, failures=True)
    (folder / "clustering").mkdir()
    save_block(folder / "clustering" / "report.json", why_block(full_clustering(3)))
    return folder


FILES = [
    "experiment.json",
    "events.jsonl",
    "clients.csv",
    "result.json",
    "data.json",
    "clustering/report.json",
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_a_damaged_file_gives_a_page_without_it(damaged: Path, name: str, data: st.DataObject) -> None:
    path = damaged / name
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    how = data.draw(st.sampled_from(["cut", "replace", "drop"]))
    noise = data.draw(st.binary(min_size=1, max_size=6))
    end = b"" if how == "cut" else whole[at + (len(noise) if how == "replace" else 9) :]
    try:
        path.write_bytes(whole[:at] + (noise if how == "replace" else b"") + end)
        assert report(damaged).sections
    finally:
        path.write_bytes(whole)
