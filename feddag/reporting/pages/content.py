# SPDX-License-Identifier: Apache-2.0
"""What a clustering page says, as plain values for the template."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from feddag.core.clustering import Clustering
from feddag.core.text import listed, plural
from feddag.reporting.colours import PALETTE, cluster_colour, ink_on
from feddag.reporting.figures.clustering import (
    CLASSES_SHOWN,
    CLUSTERS_IN_GRAPH,
    NAMES_SHOWN,
    same_everywhere,
)
from feddag.reporting.pages.clustering import PlantedTruth, borderline, confidences, learning_edges
from feddag.reporting.pages.cuts import CutFacts
from feddag.reporting.pages.pictures import Picture, cluster_counts

if TYPE_CHECKING:
    Part = dict[str, Any]

MOST_MEMBERS = 1000  # of a cluster that are named at all; clustering.json names everybody
MEMBERS_SHOWN = 24  # per cluster; the page shows more members after a click
MAIN_SHARE, MAIN_CLASSES = 0.8, 5  # the main classes make up this share of a cluster; their largest number


def page_content(
    clustering: Clustering,
    summary: Mapping[str, Any],
    truth: PlantedTruth | None,
    facts: CutFacts | None,
    class_names: Sequence[str],
    pictures: Mapping[str, Sequence[Picture]],
) -> dict[str, Any]:
    """Everything the template shows: the answer first, then how, then pictures."""
    return {
        "answer": answer(summary),
        "rows": cluster_rows(clustering, class_names),
        "has_classes": clustering.counts_NC is not None,
        "has_sources": clustering.sources is not None and len(clustering.clusters) > 1,
        "notes": notes(clustering),
        "how": how(clustering, summary, facts),
        "agreement": agreement_table(clustering, truth) if "ari" in summary else None,
        "parts": parts(clustering, class_names, pictures),
    }


def answer(summary: Mapping[str, Any]) -> str:
    """The result in one or two sentences."""
    sizes, count = summary["sizes"], summary["num_clusters"]
    if not sizes:
        return "There are no clients yet."
    words = f"{plural(sum(sizes), 'client')} in {plural(count, 'cluster')}"
    if 1 < count <= 20:
        words += f" of {', '.join(map(str, sizes[:-1]))} and {sizes[-1]} clients"
    words += "."
    if "ari" in summary:
        were = "was" if summary["planted_groups"] == 1 else "were"
        words += (
            f" {plural(summary['planted_groups'], 'group')} {were} planted in the simulated data; "
            f"the agreement (adjusted Rand index, 1 is perfect) is {summary['ari']:.3f}."
        )
    return words


def cluster_rows(clustering: Clustering, class_names: Sequence[str]) -> list[dict[str, Any]]:
    """One row per cluster."""
    counts_ZC = None if clustering.counts_NC is None else cluster_counts(clustering)
    sources: dict[int, list[int]] = {}
    for learner, source in learning_edges(clustering):
        sources.setdefault(learner, []).append(source)
    return [
        {
            "number": z,
            "colour": cluster_colour(z),
            "ink": ink_on(cluster_colour(z)),
            "size": len(members),
            "classes": "" if counts_ZC is None else main_classes(counts_ZC[z], class_names),
            "sources": ", ".join(map(str, sources.get(z, []))) or "none",
            "first": members[:MEMBERS_SHOWN],
            "rest": members[MEMBERS_SHOWN:MOST_MEMBERS],
            "unnamed": max(len(members) - MOST_MEMBERS, 0),
        }
        for z, members in enumerate(clustering.clusters.members)
    ]


def main_classes(counts_C: np.ndarray, class_names: Sequence[str]) -> str:
    """The classes that make up most of a cluster, with their shares."""
    present = [c for c in np.argsort(-counts_C, kind="stable") if counts_C[c] > 0]
    if not present:
        return "not known"
    shares_C = counts_C / counts_C.sum()
    enough = int(np.searchsorted(np.cumsum(shares_C[present]), MAIN_SHARE - 1e-9)) + 1
    main = present[: min(enough, MAIN_CLASSES)]
    words = ", ".join(f"{class_names[c]} {100 * shares_C[c]:.0f}%" for c in main)
    more = len(present) - len(main)
    return words + (f" and {plural(more, 'more class', 'more classes')}" if more else "")


def notes(clustering: Clustering) -> list[str]:
    """What the reader must know about the table and the pictures as a whole."""
    everybody = clustering.clusters.labels()
    result = []
    measured = set(clustering.clients)
    if measured or clustering.tree is not None:
        missing = [c for c in everybody if c not in measured]
        if clustering.sampled is not None:
            result.append(
                f"{len(measured):,} of {len(everybody):,} clients are shown, some of every cluster. "
                f"{clustering.sampled.landmarks:,} clients, drawn at random, were compared with each other; "
                "all others joined the cluster that is nearest on average."
            )
        elif measured and missing:
            are = "is in a cluster but" if len(missing) == 1 else "are in clusters but"
            result.append(
                f"{plural(len(missing), 'client')} {are} not in the pictures, because there were no "
                f"measurements when the pictures were made (joined later, or did not answer): "
                f"{listed(missing, 20)}."
            )
        outside = [c for c in clustering.clients if c not in everybody]
        if outside:
            result.append(f"In the pictures but in no cluster (grey): {listed(outside, 20)}.")
    if clustering.unlike:
        result.append(
            f"Unlike anyone: {listed(list(clustering.unlike), 20)}. No cluster resembles them; "
            "each was put into the nearest one. `algorithm.outliers` says what they are served."
        )
    unsure = borderline(confidences(clustering))
    if unsure:
        result.append(
            f"Borderline, because the second nearest cluster is nearly as near: {listed(unsure, 20)}."
        )
    if clustering.withheld:
        were = "was" if clustering.withheld == 1 else "were"
        result.append(f"{plural(clustering.withheld, 'class signature')} {were} not sent, for privacy.")
    if len(clustering.clusters) > len(PALETTE):
        result.append(f"Colours repeat after {len(PALETTE)} clusters.")
    return result


def how(clustering: Clustering, summary: Mapping[str, Any], facts: CutFacts | None) -> list[str]:
    """How the clusters were found, in sentences."""
    sentences = [clustering.how, *split_sentences(clustering)]
    if facts is None:
        return sentences
    if summary.get("threshold") is not None:
        words = f"The threshold is {summary['threshold']:.3g}"
        words += "".join(
            f", the {name} of these clusters is {summary[key]:.3f}"
            for key, name in (("silhouette", "mean silhouette"), ("loss", "loss"))
            if summary.get(key) is not None
        )
        sentences.append(f"{words}.")
    if facts.sentence:
        sentences.append(facts.sentence)
    return sentences


def split_sentences(clustering: Clustering) -> list[str]:
    """Which view split what, in words."""
    everybody = len(clustering.tree.clients) if clustering.tree is not None else 0
    sentences = []
    for split in clustering.splits:
        sizes = [str(len(part)) for part in split.parts]
        count = sum(map(len, split.parts))
        all_ = f"all {count} {'clients' if clustering.sampled is None else 'drawn clients'}"
        who = all_ if count == everybody else f"{count} of them, with {split.parts[0][0]},"
        sentences.append(
            f"The view of {split.view} splits {who} into {', '.join(sizes[:-1])} and {sizes[-1]} "
            f"(silhouette {split.silhouette:.2f})."
        )
    return sentences


def agreement_table(clustering: Clustering, truth: PlantedTruth | None) -> dict[str, Any] | None:
    """How many clients of each planted group are in each cluster."""
    if truth is None:
        return None
    members = [[c for c in cluster if c in truth.groups] for cluster in clustering.clusters.members]
    groups = sorted({truth.groups[c] for cluster in members for c in cluster})
    counts = [[sum(truth.groups[c] == g for c in cluster) for g in groups] for cluster in members]
    return {"groups": [truth.names.get(g, f"group {g}") for g in groups], "counts": counts}


def parts(
    clustering: Clustering, class_names: Sequence[str], pictures: Mapping[str, Sequence[Picture]]
) -> list["Part"]:
    """The parts with pictures; a part without pictures and sentences is left out."""
    texts = {
        "views": ("How far apart the clients are", _about_views(clustering, pictures)),
        "tree": ("Where the tree was cut", _about_tree(clustering)),
        "cuts": ("What other thresholds would give", _about_cuts(pictures)),
        "weights": ("How much each view counted", _about_weights(clustering, pictures)),
        "classes": ("What the clusters hold", _about_classes(clustering, class_names)),
        "graph": ("Who learns from whom", _about_graph(clustering)),
    }
    result = []
    for part, (heading, sentences) in texts.items():
        shown = [
            {"title": p.title, "file": p.file, "svg": Markup(p.svg)}  # matplotlib has escaped it
            for p in pictures.get(part, ())
        ]
        if shown or sentences:
            result.append({"heading": heading, "sentences": sentences, "pictures": shown})
    return result


def _about_views(clustering: Clustering, pictures: Mapping[str, Sequence[Picture]]) -> list[str]:
    sentences = []
    if pictures.get("views"):
        order = "in the order of the tree" if clustering.tree is not None else "cluster by cluster"
        sentences.append(
            f"Dark means near. Clients are drawn {order}; dark blocks on the diagonal are groups of similar "
            "clients. The strip on the left shows the clusters."
        )
        if len(clustering.clients) > NAMES_SHOWN:
            sentences.append(
                f"With more than {NAMES_SHOWN} clients their names do not fit into the pictures; "
                "the table above lists them."
            )
    for name, view in clustering.views.items():
        if len(clustering.clients) > 1 and same_everywhere(view.matrix_NN):
            value = float(view.matrix_NN[0, 1])
            who = "the two clients" if len(clustering.clients) == 2 else "every two clients"
            sentences.append(f"{name}: the distance between {who} is {value:.3g} ({view.unit}).")
    return sentences


def _about_tree(clustering: Clustering) -> list[str]:
    tree, sentences = clustering.tree, []
    if tree is None or len(tree.clients) < 2:
        return []
    if float(np.max(tree.linkage_matrix[:, 2])) <= 0:
        return ["All clients of the tree have distance 0, so there is nothing to cut."]
    sentences.append("Each bracket merges two groups at the distance where it is drawn.")
    everybody = clustering.clusters.labels()
    leaves = set(tree.clients)
    lacking = [c for c in everybody if c not in leaves]
    if lacking and leaves != set(clustering.clients):  # else the notes say it
        shown, all_ = len(everybody) - len(lacking), len(everybody)
        sentences.append(
            f"The tree shows {shown} of {plural(all_, 'client')}; not in it: {listed(lacking, 20)}."
        )
    return sentences


def _about_cuts(pictures: Mapping[str, Sequence[Picture]]) -> list[str]:
    if not pictures.get("cuts"):
        return []
    return [
        "The curves show plain cuts of the tree. A red dot shows the clusters in use; "
        "it is left out where their score is not known."
    ]


def _about_weights(clustering: Clustering, pictures: Mapping[str, Sequence[Picture]]) -> list[str]:
    if clustering.weights_N is None or not len(clustering.weights_N):
        return []
    names = [f"'{name}'" for name in clustering.views][:2]
    first, second = names if len(names) == 2 else ("the first view", "the second view")
    if pictures.get("weights"):
        return [f"0 means that only {first} counts for a client, 1 means that only {second} counts."]
    weight = float(clustering.weights_N[0])
    return [
        f"For every client {first} counts {100 * (1 - weight):.0f}% and {second} counts {100 * weight:.0f}%."
    ]


def _about_classes(clustering: Clustering, class_names: Sequence[str]) -> list[str]:
    if clustering.counts_NC is None:
        return []
    counts_ZC = cluster_counts(clustering)
    if counts_ZC.sum() <= 0:
        return []
    sentences = []
    if len(class_names) > CLASSES_SHOWN:
        sentences.append(
            f"The picture shows the {CLASSES_SHOWN} classes with the most samples, out of {len(class_names)}."
        )
    unknown = [str(z) for z in range(len(counts_ZC)) if counts_ZC[z].sum() <= 0]
    if unknown:
        of = "cluster" if len(unknown) == 1 else "clusters"
        sentences.append(f"No class counts are known of {of} {listed(unknown, 20)}.")
    return sentences


def _about_graph(clustering: Clustering) -> list[str]:
    if clustering.sources is None or len(clustering.clusters) < 2:
        return []
    if not learning_edges(clustering):
        return ["No cluster learns from another one."]
    if len(clustering.clusters) > CLUSTERS_IN_GRAPH:
        return [f"With more than {CLUSTERS_IN_GRAPH} clusters this is shown in the table above only."]
    return []
