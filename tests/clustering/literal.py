# SPDX-License-Identifier: Apache-2.0
"""Slow, literal forms of the paper's equations: loops as they are written, float64, no shortcuts."""

import math

import numpy as np


def angle(v, x, signed=False):
    """Angle of two vectors in degrees; |v.x| unless signed."""
    norms = math.sqrt(float(v @ v)) * math.sqrt(float(x @ x))
    if norms == 0:
        return 90.0
    cosine = float(v @ x) / norms
    cosine = cosine if signed else abs(cosine)
    return math.degrees(math.acos(min(1.0, max(-1.0, cosine))))


def class_angle(left, right, label):
    """V' of Eq. 4 with the rules for absent classes."""
    ours = [v.astype(float) for v, c in zip(left.vectors_PD, left.classes_P, strict=True) if c == label]
    theirs = [v.astype(float) for v, c in zip(right.vectors_PD, right.classes_P, strict=True) if c == label]
    if not ours and not theirs:
        return 0.0
    if not ours or not theirs:
        return 90.0
    return min(angle(v, x) for v in ours for x in theirs)


def has(item, label):
    return label in item.classes_P


def raw_weight(n_i, n_j, epsilon):
    """W of Eq. 5."""
    left, right = math.log(n_i + epsilon), math.log(n_j + epsilon)
    return max(left, right) / min(left, right)


def data_matrix(items, counts, delta=0.6, epsilon=math.e, weigh_absent=False):
    """V of Eq. 6: three loops."""
    n, classes = counts.shape
    ratios = {}
    for i in range(n):
        for j in range(n):
            for c in range(classes):
                both = has(items[i], c) and has(items[j], c)
                one = has(items[i], c) != has(items[j], c)
                if i != j and (both or (weigh_absent and one)):
                    n_i = counts[i, c] if has(items[i], c) else 0
                    n_j = counts[j, c] if has(items[j], c) else 0
                    ratios[i, j, c] = raw_weight(n_i, n_j, epsilon)
    low, high = (min(ratios.values()), max(ratios.values())) if ratios else (1, 1)
    total = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for c in range(classes):
                if i == j:
                    continue
                degrees = class_angle(items[i], items[j], c)
                if (i, j, c) in ratios:
                    share = (ratios[i, j, c] - low) / (high - low) if high > low else 0.5
                    degrees *= 1 - delta + 2 * delta * share
                    if not weigh_absent:
                        degrees = min(degrees, 90.0)
                total[i, j] += degrees / classes
    return total


def reliable_matrix(items, counts):
    """Angles cleared of sampling noise, pair by pair, as the docstring of `reliable` writes them."""
    n, classes = len(items), len(counts[0])
    sine2 = {
        (i, j, c): math.sin(math.radians(class_angle(items[i], items[j], c))) ** 2
        for c in range(classes)
        for i in range(n)
        for j in range(n)
        if i != j and has(items[i], c) and has(items[j], c)
    }
    size = [[max(counts[i][c], 1) for c in range(classes)] for i in range(n)]
    level = {}
    for i in range(n):
        for c in range(classes):
            ratios = [
                sine2[i, j, c] / (1 / size[i][c] + 1 / size[j][c]) for j in range(n) if (i, j, c) in sine2
            ]
            if ratios:
                level[i, c] = min(float(np.quantile(ratios, 0.1)), 1 / 1.4)
    value, error = {}, {}
    for i in range(n):
        for j in range(n):
            noise = {
                c: max(level[i, c] / size[i][c] + level[j, c] / size[j][c], math.radians(0.1) ** 2)
                for c in range(classes)
                if (i, j, c) in sine2
            }
            if noise:
                total = sum(1 / v**2 for v in noise.values())
                value[i, j] = sum((sine2[i, j, c] - 1.4 * v) / v**2 for c, v in noise.items()) / total
                error[i, j] = total**-0.5
    typical = float(np.median(list(error.values()))) if error else 0.0
    angles = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            mine = {c: size[i][c] for c in range(classes) if has(items[i], c)}
            yours = {c: size[j][c] for c in range(classes) if has(items[j], c)}
            if i == j or not (mine or yours):
                continue
            apart = [
                1 - sum(v for c, v in a.items() if c in b) / sum(a.values()) if a else 1
                for a, b in ((mine, yours), (yours, mine))
            ]
            u = sum(apart) / 2
            sine = min(max(value[i, j] + typical, 0), 1) if (i, j) in value else 1
            angle_ij = math.degrees(math.asin(math.sqrt(sine)))
            angles[i, j] = angle_ij + (90 - angle_ij) * u**1.5
    return angles


def gradient_matrix(sketches):
    """G of Eq. 3."""
    n = len(sketches)
    return np.array(
        [
            [0.0 if i == j else angle(sketches[i], sketches[j], signed=True) for j in range(n)]
            for i in range(n)
        ]
    ).reshape(n, n)


def fused(data, gradient, weights, rule):
    """A of Eq. 7."""
    n = len(data)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            w = weights[i] if rule == "row" else (weights[i] + weights[j]) / 2
            out[i, j] = out[j, i] = w * gradient[i, j] + (1 - w) * data[i, j]
    return out


def entropy(matrix, sign=1, temperature=1.0, diagonal=True):
    """L_en of Eq. 8."""
    n = len(matrix)
    loss = 0.0
    for i in range(n):
        others = [j for j in range(n) if diagonal or j != i]
        exponentials = [math.exp(sign * matrix[i, j] / temperature) for j in others]
        for value in exponentials:
            share = value / sum(exponentials)
            loss -= share * math.log(share) / n
    return loss


def compactness(matrix, labels):
    """L1 of Eq. 9."""
    loss = 0.0
    for z in set(labels):
        members = [i for i, label in enumerate(labels) if label == z]
        loss += sum(matrix[i, j] for i in members for j in members) / len(members) ** 2
    return loss


def degeneracy(labels, gamma, tau):
    """L2 of Eq. 9."""
    sizes = [list(labels).count(z) for z in set(labels)]
    mean = len(labels) / len(sizes)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in sizes) / len(sizes))
    return sum(math.exp(max(0.0, mean - gamma * deviation - s) / tau) for s in sizes) / len(sizes)


def hierarchical(matrix, threshold, method):
    """Merge the two nearest clusters while they are within the threshold; ties to the lowest (i, j)."""
    clusters = [[i] for i in range(len(matrix))]
    between = {(a, b): float(matrix[a, b]) for a in range(len(matrix)) for b in range(len(matrix)) if a < b}
    ids = list(range(len(matrix)))
    following = len(matrix)
    while len(ids) > 1:
        ordered = sorted(ids, key=lambda k: min(clusters[k]))
        best = None
        for i, a in enumerate(ordered):
            for b in ordered[i + 1 :]:
                distance = between[min(a, b), max(a, b)]
                if best is None or distance < best[0]:
                    best = (distance, a, b)
        distance, a, b = best
        if distance > threshold:
            break
        clusters.append(clusters[a] + clusters[b])
        ids = [k for k in ids if k not in (a, b)]
        for k in ids:
            to_a, to_b = between[min(a, k), max(a, k)], between[min(b, k), max(b, k)]
            size_a, size_b = len(clusters[a]), len(clusters[b])
            between[k, following] = {
                "single": min(to_a, to_b),
                "complete": max(to_a, to_b),
                "weighted": (to_a + to_b) / 2,
                "average": (size_a * to_a + size_b * to_b) / (size_a + size_b),
            }[method]
        ids.append(following)
        following += 1
    labels = [0] * len(matrix)
    for number, k in enumerate(sorted(ids, key=lambda k: min(clusters[k]))):
        for i in clusters[k]:
            labels[i] = number
    return labels


def absorbed(matrix, labels, min_size):
    """Members of small clusters join the nearest large one; on a tie the one with the first member."""
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(label, []).append(i)
    large = [group for group in members.values() if len(group) >= min_size]
    if len(large) < 2:
        return [0] * len(labels)
    out = []
    for i in range(len(labels)):
        own = [z for z, group in enumerate(large) if i in group]
        means = [sum(matrix[i, j] for j in group) / len(group) for group in large]
        near = [z for z, mean in enumerate(means) if mean <= min(means) + 1e-12]
        out.append(own[0] if own else near[0])
    return out


def rarity_ranks(row):
    """r of Eq. 11 over present classes: equal counts share the mean of their places."""
    present = sorted(c for c in range(len(row)) if row[c] > 0)
    ranks = {}
    for c in present:
        below = sum(row[k] < row[c] for k in present)
        equal = sum(row[k] == row[c] for k in present)
        ranks[c] = below + (equal - 1) / 2
    return ranks


def demand_and_supply(counts, labels, lacking_classes):
    """d and s of Eq. 11 for every cluster."""
    clusters, classes = max(labels) + 1, counts.shape[1]
    demand, supply = np.zeros((clusters, classes)), np.zeros((clusters, classes))
    for i, row in enumerate(counts):
        ranks = rarity_ranks(row)
        size = list(labels).count(labels[i])
        for c in range(classes):
            if c in ranks:
                demand[labels[i], c] += len(ranks) - ranks[c]
                supply[labels[i], c] += (ranks[c] + 1) / size
            elif lacking_classes:
                demand[labels[i], c] += len(ranks) + 1
    return demand, supply


def alignment(items, labels, classes, shared_alignment):
    """Mean Gamma of Eq. 13 for every pair of clusters."""
    clusters = max(labels) + 1
    out = np.ones((clusters, clusters, classes))
    for p in range(clusters):
        for q in range(clusters):
            for c in range(classes):
                values = [
                    1 - class_angle(items[i], items[j], c) / 90
                    for i in range(len(items))
                    for j in range(len(items))
                    if labels[i] == p
                    and labels[j] == q
                    and (not shared_alignment or (has(items[i], c) and has(items[j], c)))
                ]
                out[p, q, c] = sum(values) / len(values) if values else 1.0
    return out


def complementarity(demand, supply, alignment_zzc):
    """H of Eq. 14."""
    clusters, classes = demand.shape
    out = np.full((clusters, clusters), -np.inf)
    for p in range(clusters):
        for q in range(clusters):
            if p != q:
                out[p, q] = sum(demand[p, c] * supply[q, c] * alignment_zzc[p, q, c] for c in range(classes))
    return out
