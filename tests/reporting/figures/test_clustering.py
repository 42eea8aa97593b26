# SPDX-License-Identifier: Apache-2.0
"""Pictures of a clustering: valid files, real names, and no empty chart."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from feddag.core.clustering import Tree
from feddag.reporting.figures.clustering import (
    CLASSES_SHOWN,
    draw_classes,
    draw_cuts,
    draw_graph,
    draw_matrix,
    draw_tree,
    draw_weights,
    largest_classes,
    leaf_order,
)
from feddag.reporting.figures.save import save_png_and_svg
from tests.reporting.toys import HOSTILE, check_png, check_svg, clients, full_clustering, shown_texts, tree_of

SIZES = [0, 1, 2, 3, 61, 300]


def figures_of(n: int, names: tuple[str, ...] = ()) -> dict[str, Figure | None]:
    c = full_clustering(n, names=names)
    labels_N = np.array([c.clusters.labels()[x] for x in c.clients], dtype=np.int64)
    order_N = np.arange(n)
    view, tree = c.views["Data angles"], c.tree
    assert tree is not None
    return {
        "matrix": draw_matrix(view.matrix_NN, c.clients, labels_N, order_N, "Data angles", view.unit),
        "tree": draw_tree(tree.linkage_matrix, c.clients, labels_N, tree.threshold),
        "weights": draw_weights(c.weights_N, c.clients, labels_N, order_N),
    }


@pytest.mark.parametrize("n", SIZES)
def test_every_picture_is_a_valid_png_and_svg_or_is_not_drawn(n: int, tmp_path: Path) -> None:
    for name, figure in figures_of(n).items():
        least = 3 if name == "matrix" else 2  # two clients have one distance: a sentence is enough
        assert (figure is None) == (n < least), name
        if figure is not None:
            svg = save_png_and_svg(figure, tmp_path / name)
            check_png(tmp_path / f"{name}.png")
            check_svg(tmp_path / f"{name}.svg")
            assert svg.startswith("<svg")


def test_saving_the_same_picture_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figure = figures_of(5)["tree"]
        assert figure is not None
        save_png_and_svg(figure, tmp_path / folder / "tree")
    for ending in ("png", "svg"):
        assert (tmp_path / f"a/tree.{ending}").read_bytes() == (tmp_path / f"b/tree.{ending}").read_bytes()


def test_a_name_with_a_dot_keeps_its_dot(tmp_path: Path) -> None:
    figure = figures_of(3)["tree"]
    assert figure is not None
    save_png_and_svg(figure, tmp_path / "v1.5")
    assert {p.name for p in tmp_path.iterdir()} == {"v1.5.png", "v1.5.svg"}


@pytest.mark.parametrize("picture", ["matrix", "tree", "weights"])
def test_names_are_shown_up_to_sixty_clients_and_their_number_beyond(picture: str) -> None:
    few, many = figures_of(60)[picture], figures_of(61)[picture]
    assert few is not None
    assert many is not None
    assert set(clients(60)) <= set(shown_texts(few))
    assert not set(clients(61)) & set(shown_texts(many))
    assert "61 clients" in shown_texts(many)


@pytest.mark.parametrize("picture", ["matrix", "tree", "weights"])
def test_hostile_client_names_are_shown_as_they_are(picture: str, tmp_path: Path) -> None:
    names = (*HOSTILE, "$x^2$")
    figure = figures_of(len(names), names)[picture]
    assert figure is not None
    expected = {n if n != "\n" else "\\n" for n in names}
    assert expected <= set(shown_texts(figure))
    save_png_and_svg(figure, tmp_path / "x")
    check_svg(tmp_path / "x.svg")
    assert "<script>" not in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_letters_without_a_glyph_give_no_warning(tmp_path: Path, recwarn) -> None:
    figure = figures_of(3, ("\U0001f600", "中", "a"))["tree"]
    assert figure is not None
    save_png_and_svg(figure, tmp_path / "x")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_a_matrix_with_equal_distances_is_not_drawn() -> None:
    matrix_NN = 5.0 * (1 - np.eye(4))
    names, labels_N = clients(4), np.zeros(4, dtype=np.int64)
    assert draw_matrix(matrix_NN, names, labels_N, np.arange(4), "t", "u") is None
    matrix_NN[0, 1] = 4
    assert draw_matrix(matrix_NN, names, labels_N, np.arange(4), "t", "u") is not None


def test_equal_weights_are_not_drawn() -> None:
    labels_N = np.zeros(4, dtype=np.int64)
    assert draw_weights(np.full(4, 0.3), clients(4), labels_N, np.arange(4)) is None


def test_a_tree_of_identical_clients_is_not_drawn() -> None:
    tree = tree_of(clients(4), np.zeros(4), 1.0)
    assert draw_tree(tree.linkage_matrix, tree.clients, np.zeros(4, dtype=np.int64), 1.0) is None


def test_the_leaves_of_the_tree_stand_in_the_order_of_the_linkage() -> None:
    tree = tree_of(("far", "a", "b"), np.array([50.0, 0.0, 1.0]), 4.0)
    figure = draw_tree(tree.linkage_matrix, tree.clients, np.array([0, 1, 1]), 4.0)
    assert figure is not None
    shown = [tick.get_text() for tick in figure.axes[1].get_xticklabels()]
    assert shown == [tree.clients[i] for i in leaf_order(tree.linkage_matrix, 3)]
    assert sorted(shown) == ["a", "b", "far"]


def test_a_long_chain_of_two_thousand_clients_is_drawn() -> None:
    n = 2000
    steps = [(0, 1, 1.0, 2), *((n + i - 1, i + 1, 1.0 + i, i + 2) for i in range(1, n - 1))]
    figure = draw_tree(np.array(steps, dtype=float), clients(n), np.zeros(n, dtype=np.int64), 3.0)
    assert figure is not None


def test_the_red_dot_shows_the_clusters_in_use_and_not_the_plain_cut() -> None:
    tree = full_clustering(8).tree
    assert tree is not None
    figure = draw_cuts(tree, in_use=5, silhouette=None, loss=0.4)
    assert figure is not None
    counts, losses, silhouettes = figure.axes
    assert [line.get_label() for line in counts.lines if line.get_label().startswith("in use")] == [
        "in use: 5"
    ]
    (dot,) = [line for line in counts.lines if line.get_label() == "in use: 5"]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (tree.threshold, 5)
    assert "in use: 0.4" in [line.get_label() for line in losses.lines]
    assert not [line for line in silhouettes.lines if line.get_label().startswith("in use")]


def test_only_curves_with_values_are_drawn() -> None:
    whole = full_clustering(8).tree
    assert whole is not None
    bare = Tree(whole.clients, whole.linkage_matrix, 4.0)
    assert draw_cuts(bare, in_use=2) is None
    counts_only = Tree(
        whole.clients, whole.linkage_matrix, 4.0, whole.thresholds_T, whole.counts_T,
        silhouettes_T=np.full(len(whole.thresholds_T), np.nan),
    )  # fmt: skip
    figure = draw_cuts(counts_only, in_use=2)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["number of clusters"]


def test_classes_are_shown_by_name() -> None:
    figure = draw_classes(np.array([[5.0, 0, 1], [0, 7, 2]]), [0, 1], ["cat", "$x^2$", "a_b%&"])
    assert figure is not None
    assert {"cat", "$x^2$", "a_b%&"} <= set(shown_texts(figure))
    assert "7" in shown_texts(figure)  # the count of class 1 in cluster 1


def test_the_names_of_a_hundred_classes_do_not_overlap() -> None:
    names = [f"a class with number {c}" for c in range(CLASSES_SHOWN)]
    figure = draw_classes(np.ones((3, CLASSES_SHOWN)), [0, 1, 2], names)
    assert figure is not None
    assert set(names) <= set(shown_texts(figure))
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == CLASSES_SHOWN
    tops = sorted((box.y0, box.y1) for box in boxes)
    assert all(upper[0] >= lower[1] for lower, upper in itertools.pairwise(tops))


def test_of_very_many_classes_the_largest_are_drawn() -> None:
    counts_ZC = np.ones((1, CLASSES_SHOWN + 2))
    counts_ZC[0, 3] = counts_ZC[0, 7] = 0
    chosen = largest_classes(counts_ZC).tolist()
    assert len(chosen) == CLASSES_SHOWN
    assert 3 not in chosen
    assert 7 not in chosen
    assert chosen == sorted(chosen)


@pytest.mark.parametrize("counts_ZC", [np.zeros((0, 3)), np.zeros((2, 3))])
def test_classes_without_samples_are_not_drawn(counts_ZC: np.ndarray) -> None:
    assert draw_classes(counts_ZC, list(range(len(counts_ZC))), ["a", "b", "c"]) is None


def test_the_graph_has_one_arrow_per_edge_and_one_number_per_cluster() -> None:
    figure = draw_graph([(0, 1), (2, 1)], [4, 4, 4])
    assert figure is not None
    assert {"0", "1", "2"} <= set(shown_texts(figure))
    assert len([t for t in figure.axes[0].texts if t.get_text() == ""]) == 2  # arrows are empty annotations


def test_a_graph_without_edges_or_with_too_many_clusters_is_not_drawn() -> None:
    assert draw_graph([], [1, 1]) is None
    assert draw_graph([(0, 1)], [1] * 41) is None
    assert draw_graph([(0, 1)], [1] * 40) is not None
