# SPDX-License-Identifier: Apache-2.0
"""Names from strangers cannot run anything: parsed here, and opened in a real browser where there is one."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, WITHOUT, Browser

from feddag.reporting.dashboard.watch import Watch
from feddag.reporting.pages.clustering import PlantedTruth
from feddag.reporting.pages.comparison import comparison_html
from feddag.reporting.pages.report.run_data import CLUSTERING_BLOCK, read_run
from feddag.reporting.pages.report.write import report_html
from feddag.reporting.pages.section import save_block
from feddag.reporting.pages.why import why_block
from feddag.reporting.tables.comparison import summarise
from tests.reporting.payloads import CALL, PAYLOADS
from tests.reporting.run_folders import FolderMaker
from tests.reporting.toys import full_clustering, outcome

OURS = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "div",
    "nav",
    "a",
    "button",
    "main",
    "h1",
    "h2",
    "h3",
    "p",
    "b",
    "span",
    "section",
    "figure",
    "figcaption",
    "table",
    "caption",
    "tr",
    "th",
    "td",
    "pre",
    "footer",
    "script",
]
ATTRIBUTES = [
    "class",
    "id",
    "style",
    "href",
    "type",
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "role",
    "aria-label",
    "data-plot",
    "data-save",
    "data-copy",
    "data-theme",
]


class Nodes(HTMLParser):
    """Every element and attribute of a page; what could run is collected in `danger`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.danger: list[str] = []
        self.scripts, self.policy = 0, ""
        self.feed(html)

    def handle_starttag(self, tag, attrs) -> None:
        self.scripts += tag == "script"
        for name, value in attrs:
            if name not in ATTRIBUTES or (name == "href" and not value.startswith("#")):
                self.danger.append(f"{tag} {name}={value}")
            if name == "style" and ("(" in value or "<" in value):
                self.danger.append(f"{tag} {name}={value}")
            if name == "content" and value.startswith("default-src"):
                self.policy = value
        if tag not in OURS:
            self.danger.append(tag)


def check(html: str, scripts: int = 3) -> None:
    found = Nodes(html)
    assert found.danger == []
    assert found.scripts == scripts
    assert "default-src 'none'" in found.policy
    assert "'unsafe-eval'" not in found.policy
    assert "unsafe-inline" not in found.policy.split("script-src")[1]


def hostile_run(folder: Path, names: list[str]) -> Path:
    """A run in which every name is hostile: clients, classes, method, data, warnings, settings."""
    made = FolderMaker(
        folder, clients=names, rounds=2, clusters=2, classes=names[:6], method=names[0], failures=True
    )
    made.settings |= {"name": names[1], "data": {"name": names[2]}, "odd": {names[3]: names[4]}}
    (folder / "experiment.json").write_text(json.dumps(made.settings))
    made.start()
    made._write(event="warning", text=names[5 % len(names)])
    for round_ in (1, 2):
        made.round(round_)
    made.finish()
    return folder


def explain(folder: Path, names: list[str], truth: PlantedTruth | None = None) -> None:
    """Write why the clusters are what they are, as the end of a run does."""
    (folder / "clustering").mkdir()
    clustering = full_clustering(len(names), names=tuple(names), how=names[0])
    save_block(folder / CLUSTERING_BLOCK, why_block(clustering, truth, names[:3]))


def test_there_are_two_hundred_payloads_and_all_are_different() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 200


def test_no_payload_becomes_an_element_of_a_report(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run", PAYLOADS)
    names = PAYLOADS[:40]
    truth = PlantedTruth({c: i % 2 for i, c in enumerate(names)}, {0: names[0], 1: names[1]})
    explain(folder, names, truth)
    check(report_html([read_run(folder, PAYLOADS[0])]))
    check(report_html([read_run(folder, PAYLOADS[0]), read_run(folder, PAYLOADS[1])]))


@pytest.mark.parametrize("start", range(0, len(PAYLOADS), 20))
def test_no_payload_alone_breaks_the_page(tmp_path: Path, start: int) -> None:
    """Each payload once as the name of a method, a data set, a client and a class."""
    for k, name in enumerate(PAYLOADS[start : start + 20]):
        check(report_html([read_run(hostile_run(tmp_path / f"run{k}", [name, *"abcdef"]), name)]))


def test_no_payload_becomes_an_element_of_a_comparison() -> None:
    outcomes = [outcome(name, 1, 0.5, [(1, 0.2, 1), (2, 0.5, 2)], setting=name) for name in PAYLOADS]
    lines = summarise(outcomes, PAYLOADS, PAYLOADS[:30], "accuracy", ())
    check(comparison_html(lines, outcomes, "accuracy", (), PAYLOADS[0]))


def test_no_payload_becomes_an_element_of_the_dashboard(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the extra 'dashboard' is not installed")
    from feddag.reporting.dashboard.app import page_of

    hostile_run(tmp_path / "run", PAYLOADS)
    watch = Watch(tmp_path)
    html = page_of(watch, watch.news()["ids"])["html"]
    found = Nodes(html)
    assert (found.danger, found.scripts) == ([], 0)


def test_texts_of_plots_reach_plotly_without_a_tag(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run", PAYLOADS)
    html = report_html([read_run(folder)])
    begin = html.index('id="plots">') + len('id="plots">')
    inside = html[begin : html.index("</script>", begin)]
    assert "<" not in inside
    for plot in json.loads(inside):
        for trace in plot["data"]:
            for key, value in trace.items():
                if key != "hovertemplate":
                    assert "<" not in json.dumps(value, ensure_ascii=False)


@pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT)
def test_in_a_browser_hostile_names_run_nothing_and_nothing_leaves_the_page(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run", PAYLOADS)
    names = PAYLOADS[:40]
    explain(folder, names)
    path = tmp_path / "report.html"
    path.write_text(report_html([read_run(folder, PAYLOADS[0])]), encoding="utf-8")
    with Browser() as browser:
        page = browser.open(path.as_uri())
        page.run("window.feddagReady")
        page.run("window.feddagDrawAll().then(() => 1)")
        assert page.run("window.hit === undefined")
        assert (
            page.run(
                "document.querySelectorAll('img[src=x],iframe,object,embed,base,[onerror],[onload]').length"
            )
            == 0
        )
        drawn = page.run("document.querySelectorAll('.chart[data-drawn]').length")
        assert drawn == page.run("document.querySelectorAll('.chart').length") > 8
        assert CALL in page.run("feddagCsv(page.findIndex(plot => plot.key === 'clients'))")
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT)
def test_in_a_browser_every_plot_can_be_saved_as_png_svg_and_csv(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run", ["ann", "bob", "cy", "dora", "eve", "flo"])
    path = tmp_path / "report.html"
    path.write_text(report_html([read_run(folder)]), encoding="utf-8")
    saved = tmp_path / "saved"
    saved.mkdir()
    with Browser() as browser:
        page = browser.open(path.as_uri(), dark=True)
        page.run("window.feddagReady")
        page.run(
            "window.kept = {}; "
            "save = (name, blob) => blob.arrayBuffer().then(b => { kept[name] = new Uint8Array(b); })"
        )
        for kind in ("png", "svg", "csv"):
            page.run(f"document.querySelector('figure [data-save={kind}]').click()")
            name = f"accuracy-against-rounds.{kind}"
            page.run(
                f"(async () => {{ while (!kept['{name}']) await new Promise(r => setTimeout(r, 20)); }})()"
            )
        heads = page.run("Object.entries(kept).map(([name, b]) => [name, Array.from(b.slice(0, 60))])")
        assert page.problems == []
    heads = {name.rpartition(".")[2]: bytes(start) for name, start in heads}
    assert heads["png"].startswith(b"\x89PNG")
    assert heads["svg"].startswith(b"<svg")
    assert heads["csv"].startswith(b"series,round,accuracy,name\n")


def test_numbers_for_plots_have_no_value_that_json_lacks() -> None:
    from feddag.reporting.pages.section import compact

    assert compact([[1.0, np.nan], [np.inf, 0.123456]]) == [[1, None], [None, 0.1235]]
