# SPDX-License-Identifier: Apache-2.0
"""The clustering page: every method gets one, it says the answer first, and names cannot break it."""

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from feddag.core.clustering import Clustering, SplitBy, View
from feddag.core.clusters import Clusters
from feddag.reporting.pages.clustering import PlantedTruth, learning_edges, write_clustering_page
from feddag.reporting.pages.content import main_classes
from tests.reporting.toys import HOSTILE, check_png, check_svg, clients, full_clustering


class Page(HTMLParser):
    """The text, elements and attributes of a page outside its pictures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text, self.elements, self.inside = "", [], 0
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.hidden = self.open_row = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        self.inside += tag == "svg"
        self.hidden = tag == "style" or self.hidden
        if tag == "tr":
            self.rows.append([])
            self.open_row = True
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag) -> None:
        self.inside -= tag == "svg"
        self.hidden = self.hidden and tag != "style"
        self.open_row = self.open_row and tag != "table"

    def handle_data(self, data) -> None:
        if not self.inside and not self.hidden:
            self.text += data
            if self.open_row and self.rows[-1]:
                self.rows[-1][-1] += data


def written(folder: Path, clustering: Clustering, *args, **options) -> tuple[dict, Page]:
    summary = write_clustering_page(folder / "page", clustering, *args, **options)
    return summary, Page(Path(summary["page"]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, Page]:
    """The page of a clustering with everything in it."""
    truth = PlantedTruth({c: int(i >= 4) for i, c in enumerate(clients(8))})
    return written(tmp_path_factory.mktemp("whole"), full_clustering(8, withheld=3), truth)


BARE = {"views": {}, "tree": None, "weights_N": None, "counts_NC": None, "sources": None}


def only(n: int, part: str, **changes) -> Clustering:
    """A clustering that reports nothing but one part."""
    return full_clustering(n, **{k: v for k, v in BARE.items() if k != part}, **changes)


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "page").iterdir()}


CLUSTERS = Clusters(members=(("a", "b"), ("c",)))
DISTANCES = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])


def test_a_full_clustering_gives_page_values_and_every_figure_twice(whole) -> None:
    summary, _ = whole
    folder = Path(summary["page"]).parent
    stems = {
        "distances-1-data-angles", "distances-2-gradient-angles", "tree", "thresholds", "weights", "classes",
        "graph",
    }  # fmt: skip
    pictures = {f"{stem}.{ending}" for stem in stems for ending in ("png", "svg")}
    assert files(folder.parent) == {"index.html", "clustering.json", "report.json"} | pictures
    for stem in stems:
        check_png(folder / f"{stem}.png")
        check_svg(folder / f"{stem}.svg")
    stored = json.loads((folder / "clustering.json").read_text())
    assert {**stored, "page": str(folder / "index.html")} == summary


def test_the_summary_holds_what_is_known(whole) -> None:
    summary, page = whole
    assert summary["num_clusters"] == 2
    assert summary["sizes"] == [4, 4]
    assert summary["labels"] == {c: int(i >= 4) for i, c in enumerate(clients(8))}
    assert summary["how"] == "Two groups were found."
    assert summary["threshold"] == 4.0
    assert summary["silhouette"] == pytest.approx(0.4)  # the fourth of the linear scores, at threshold 4
    assert summary["loss"] == pytest.approx(0.42)
    assert summary["learns_from"] == [[0, 1], [1, 0]]
    assert summary["withheld"] == 3
    assert (summary["planted_groups"], summary["ari"]) == (2, 1.0)
    assert "3 class signatures were not sent, for privacy." in page.text


def test_the_summary_has_no_keys_for_what_is_not_known(tmp_path: Path) -> None:
    summary, _ = written(tmp_path, Clustering(clusters=CLUSTERS, how="By hand."))
    assert set(summary) == {"num_clusters", "sizes", "labels", "how", "withheld", "page"}


def test_an_infinite_threshold_is_not_written_as_a_number(tmp_path: Path) -> None:
    known = only(4, "tree")
    assert known.tree is not None
    endless = dataclasses.replace(known, tree=dataclasses.replace(known.tree, threshold=float("inf")))
    summary, _ = written(tmp_path, endless)
    assert summary["threshold"] is None


# What each method reports: CFL has no tree, IFCA has no measurements at all, PACFL has no weights.
REPORTS = {
    "cfl": Clustering(CLUSTERS, "CFL split.", ("a", "b", "c"), {"Cosine": View(DISTANCES, "cosine")}),
    "ifca": Clustering(CLUSTERS, "Each client chose the model with the least loss."),
    "pacfl": full_clustering(6, weights_N=None, sources=None, counts_NC=None),
    "counts": Clustering(
        CLUSTERS, "By counts.", ("a", "b", "c"), counts_NC=np.array([[1, 0], [1, 0], [0, 2]])
    ),
}


@pytest.mark.parametrize("method", REPORTS)
def test_every_method_gets_a_page_of_what_it_knows(method: str, tmp_path: Path) -> None:
    clustering = REPORTS[method]
    _, page = written(tmp_path, clustering)
    assert clustering.how in page.text
    figures = page.elements.count("figure")
    assert figures == page.elements.count("svg") == len([f for f in files(tmp_path) if f.endswith(".png")])
    assert figures == {"cfl": 1, "ifca": 0, "pacfl": 4, "counts": 1}[method]
    assert "not in the pictures" not in page.text


@pytest.mark.parametrize("n", [0, 1, 2, 3, 61, 300])
def test_any_number_of_clients_gets_a_page(n: int, tmp_path: Path) -> None:
    summary, page = written(tmp_path, full_clustering(n))
    assert sum(summary["sizes"]) == n
    assert all(client in page.text for client in clients(n))
    assert ("their names do not fit into the pictures" in page.text) == (n > 60)
    if n == 0:
        assert "There are no clients yet." in page.text


def test_one_cluster_is_not_called_clusters(tmp_path: Path) -> None:
    _, page = written(tmp_path, Clustering(clusters=Clusters(members=(("a",),)), how="Alone."))
    assert "1 client in 1 cluster." in page.text
    for wrong in ("1 clients", "1 clusters"):
        assert wrong not in page.text


def test_the_answer_comes_before_the_reasons_and_the_pictures(whole) -> None:
    _, page = whole
    places = [
        page.text.index(t) for t in ("8 clients in 2 clusters of 4 and 4", "c000", "Two groups were found")
    ]
    assert places == sorted(places)
    assert page.elements.index("table") < page.elements.index("svg")


def test_the_table_names_members_main_classes_and_sources(tmp_path: Path) -> None:
    counts_NC = np.array([[8, 0, 2], [8, 0, 2], [0, 10, 0]])
    clustering = Clustering(CLUSTERS, "By hand.", ("a", "b", "c"), counts_NC=counts_NC, sources=((1,), ()))
    _, page = written(tmp_path, clustering, class_names=["cat", "dog", "bird"])
    assert [[cell.strip() for cell in row] for row in page.rows[:3]] == [
        ["cluster", "clients", "main classes", "learns from", "members"],
        ["0", "2", "cat 80% and 1 more class", "1", "a, b"],
        ["1", "1", "dog 100%", "none", "c"],
    ]


def test_main_classes_make_up_four_fifths_but_are_at_most_five() -> None:
    names = [f"k{c}" for c in range(10)]
    assert main_classes(np.array([50, 35, 15, *[0] * 7]), names) == "k0 50%, k1 35% and 1 more class"
    assert main_classes(np.ones(10), names) == "k0 10%, k1 10%, k2 10%, k3 10%, k4 10% and 5 more classes"
    assert main_classes(np.zeros(10), names) == "not known"


def test_a_class_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    clustering = Clustering(
        CLUSTERS, "By hand.", ("a", "b", "c"), counts_NC=np.array([[1, 0], [1, 0], [0, 2]])
    )
    _, page = written(tmp_path, clustering, class_names=["cat"])
    assert "cat 100%" in page.text
    assert "class 1 100%" in page.text


def test_newcomers_are_listed_and_a_sentence_says_that_they_are_not_in_the_pictures(tmp_path: Path) -> None:
    known = full_clustering(8, views={}, weights_N=None, sources=None)
    clustering = dataclasses.replace(known, clusters=known.clusters.add("late-1", 0).add("late-2", 2))
    summary, page = written(tmp_path, clustering)
    assert (summary["labels"]["late-1"], summary["labels"]["late-2"]) == (0, 2)
    assert "2 clients are in clusters but not in the pictures" in page.text
    assert "did not answer): late-1, late-2." in page.text
    assert "1 cluster holds only clients that are not in the tree" in page.text
    assert "No class counts are known of cluster 2." in page.text


def test_a_tree_of_some_clients_says_which_are_not_in_it(tmp_path: Path) -> None:
    part = full_clustering(4).tree
    _, page = written(tmp_path, dataclasses.replace(only(5, "tree"), tree=part))
    assert "The tree shows 4 of 5 clients; not in it: c004." in page.text


def test_clients_that_left_are_named_as_in_no_cluster(tmp_path: Path) -> None:
    clustering = only(4, "views", clusters=Clusters(members=(("c000", "c001"), ("c002",))))
    _, page = written(tmp_path, clustering)
    assert "In the pictures but in no cluster (grey): c003." in page.text


def test_absorbed_clusters_are_explained_where_the_plain_cut_differs(tmp_path: Path) -> None:
    known = only(8, "tree")
    assert known.tree is not None
    low = dataclasses.replace(known.tree, threshold=0.1)
    _, page = written(tmp_path, dataclasses.replace(known, tree=low))
    assert "but 2 clusters are in use" in page.text
    # matplotlib writes each text of a picture into a comment
    assert "<!-- in use: 2 -->" in (tmp_path / "page" / "thresholds.svg").read_text()


def test_equal_weights_are_a_sentence_and_not_a_chart(tmp_path: Path) -> None:
    _, page = written(tmp_path, full_clustering(8, weights_N=np.full(8, 0.25), tree=None, counts_NC=None))
    assert "For every client 'Data angles' counts 75% and 'Gradient angles' counts 25%." in page.text
    assert "weights.png" not in files(tmp_path)


def test_equal_distances_are_a_sentence_and_not_a_chart(tmp_path: Path) -> None:
    views = {"Angles": View(7.0 * (1 - np.eye(8)), "degrees")}
    _, page = written(tmp_path, only(8, "views", views=views))
    assert "Angles: the distance between every two clients is 7 (degrees)." in page.text
    assert not [name for name in files(tmp_path) if name.startswith("distances")]


def test_views_with_similar_names_have_different_files(tmp_path: Path) -> None:
    views = {name: View(DISTANCES, "u") for name in ("a b", "a-b", "é", "../x")}
    written(tmp_path, Clustering(CLUSTERS, "By hand.", ("a", "b", "c"), views))
    pictures = {name for name in files(tmp_path) if name.endswith(".png")}
    assert pictures == {"distances-1-a-b.png", "distances-2-a-b.png", "distances-3.png", "distances-4-x.png"}


def test_no_cluster_learns_from_another_is_a_sentence(tmp_path: Path) -> None:
    clustering = only(8, "sources", sources=((0,), (1,)))
    assert learning_edges(clustering) == []
    _, page = written(tmp_path, clustering)
    assert "No cluster learns from another one." in page.text
    assert "graph.png" not in files(tmp_path)


def test_of_very_many_classes_a_sentence_says_which_are_drawn(tmp_path: Path) -> None:
    _, page = written(tmp_path, only(4, "counts_NC", num_classes=130))
    assert "The picture shows the 100 classes with the most samples, out of 130." in page.text


def test_many_members_are_all_on_the_page(tmp_path: Path) -> None:
    names = clients(60)
    _, page = written(tmp_path, Clustering(clusters=Clusters(members=(names,)), how="One."))
    assert all(name in page.text for name in names)
    assert "and 36 more" in page.text


# -- planted groups ---------------------------------------------------------------------------------------


def test_planted_groups_are_shown_by_name(tmp_path: Path) -> None:
    truth = PlantedTruth({"a": 5, "b": 5, "c": 7}, {5: "rotated", 7: "upright"})
    summary, page = written(tmp_path, Clustering(clusters=CLUSTERS, how="By hand."), truth)
    assert (summary["planted_groups"], summary["ari"]) == (2, 1.0)
    table = [[cell.strip() for cell in row] for row in page.rows[-3:]]
    assert table == [["", "rotated", "upright"], ["cluster 0", "2", ""], ["cluster 1", "", "1"]]
    assert "2 groups were planted" in page.text


@pytest.mark.parametrize("truth", [None, PlantedTruth({}), PlantedTruth({"somebody else": 1})])
def test_without_known_groups_nothing_is_said_about_them(truth: PlantedTruth | None, tmp_path: Path) -> None:
    summary, page = written(tmp_path, Clustering(clusters=CLUSTERS, how="By hand."), truth)
    assert "ari" not in summary
    assert "planted" not in page.text


def test_clients_without_a_planted_group_do_not_count(tmp_path: Path) -> None:
    truth = PlantedTruth({"a": 0, "b": 1})
    summary, _ = written(tmp_path, Clustering(clusters=CLUSTERS, how="By hand."), truth)
    assert (summary["planted_groups"], summary["ari"]) == (2, 0.0)


# -- strangers' names -------------------------------------------------------------------------------------


def test_hostile_names_are_shown_as_text_everywhere(tmp_path: Path) -> None:
    names = (*HOSTILE, '"><img src=x onerror=alert(1)>', "\ud800", "--><b>")
    clustering = full_clustering(len(names), num_classes=len(names), names=names)
    truth = PlantedTruth(dict.fromkeys(names, 0), {0: "<b>group</b>"})
    summary, page = written(tmp_path, clustering, truth, list(names))
    visible = [n.replace("\n", "\\n").replace("\ud800", "\\ud800") for n in names]
    assert all(name in page.text for name in visible)
    assert "<b>group</b>" in page.text
    assert not {"script", "img", "b"} & set(page.elements)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert set(summary["labels"]) == set(names)
    assert set(json.loads((tmp_path / "page" / "clustering.json").read_text())["labels"]) == set(names)


def test_a_hostile_sentence_of_a_method_is_shown_as_text(tmp_path: Path) -> None:
    _, page = written(tmp_path, Clustering(clusters=CLUSTERS, how="<script>alert(1)</script>"))
    assert "<script>alert(1)</script>" in page.text
    assert "script" not in page.elements


def test_the_page_may_load_and_run_nothing(whole) -> None:
    _, page = whole
    policies = [value for name, value in page.attributes if name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in policies
    links = [v for name, v in page.attributes if name in ("src", "href", "xlink:href") and v is not None]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)


def test_the_same_clustering_gives_the_same_page(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_clustering_page(tmp_path / folder, only(8, "tree"))
    assert (tmp_path / "a" / "index.html").read_bytes() == (tmp_path / "b" / "index.html").read_bytes()


def test_the_page_says_in_words_which_view_split_what_and_who_is_alone(tmp_path: Path) -> None:
    whole = full_clustering(8)
    halves = tuple(tuple(members) for members in whole.clusters.members)
    told = dataclasses.replace(whole, splits=(SplitBy("texture", halves, 0.9),), unlike=whole.clients[1:2])
    summary = write_clustering_page(tmp_path, told)
    page = (tmp_path / "index.html").read_text()
    assert summary["splits"] == [{"view": "texture", "sizes": [len(h) for h in halves], "silhouette": 0.9}]
    assert "The view of texture splits" in page
    assert summary["unlike"] == list(whole.clients[1:2])
    assert f"Unlike anyone: {whole.clients[1]}." in page
    assert summary["confidence"].keys() == set(whole.clients)
    assert all(value["second"] in range(len(halves)) for value in summary["confidence"].values())
