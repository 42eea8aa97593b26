# SPDX-License-Identifier: Apache-2.0
"""Small inputs shared by the tests, and hypothesis strategies for odd ones."""

import numpy as np
from hypothesis import strategies as st

from feddag.clustering.subspaces import Subspaces

CLASSES = 4
WIDTH = 6


def toy_items(generator, n, classes=CLASSES, width=WIDTH, most=3):
    """n items with random classes, zero to `most` random unit vectors each, and matching counts."""
    items, counts = [], np.zeros((n, classes), dtype=int)
    for i in range(n):
        vectors, labels = [], []
        for c in range(classes):
            for _ in range(generator.integers(0, most + 1)):
                v = generator.normal(size=width)
                vectors.append(v / np.linalg.norm(v))
                labels.append(c)
            counts[i, c] = generator.integers(1, 300) if c in labels else 0
        items.append(
            Subspaces(
                np.array(vectors, dtype=np.float32).reshape(-1, width), np.array(labels, dtype=np.int64)
            )
        )
    return items, counts


def blobs(generator, sizes, apart=10.0, width=5):
    """Euclidean distances, scaled to [0, 1], of well separated groups; and the groups."""
    centres = generator.normal(size=(len(sizes), width)) * apart
    truth = np.repeat(np.arange(len(sizes)), sizes)
    points = centres[truth] + generator.normal(size=(len(truth), width))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    return distances / distances.max(), truth


seeds = st.integers(0, 10_000)


@st.composite
def distance_matrices(draw, smallest=0, largest=9):
    """Symmetric matrices in [0, 1], with many equal and zero entries."""
    n = draw(st.integers(smallest, largest))
    size = n * (n - 1) // 2
    values = draw(
        st.lists(st.sampled_from([0.0, 0.05, 0.3, 0.30001, 0.5, 1.0]), min_size=size, max_size=size)
    )
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n, 1)] = values
    return matrix + matrix.T
