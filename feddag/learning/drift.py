# SPDX-License-Identifier: Apache-2.0
"""Whether a client's data have changed: found out by the client itself, which tells no more than an alarm.

The reference is the data at the client's last signature. Compared with the check before, as in the paper, a
slow drift would never be seen. Three tests, each with an effect size, so that much data do not make small
changes alarming, and with a bound on chance, so that few data do not:

- labels: total variation of the class shares above 0.2, and a G-test;
- subspaces (concepts, features): for each class the angle between its old and new first vectors, against the
  angle that the client's own sampling explains, which it measures between two random halves of the class:

      R = Σ_c sin² θ_c / Σ_c ν_c,     ν_c = a_ref / n_ref + a_now / n_now,     a = n/4 · sin² θ(halves)

  R is about 1 without a drift. R > 4, or R > 2 at two checks in a row, is an alarm;
- means (concepts, features): the mean of each class in a few numbers per sample: its coordinates on the first
  vectors of the reference data and, for images, log energies of fine and coarse detail. A style moves all
  classes alike, a concept moves single classes by much.
"""

import hashlib
from math import prod
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.clustering.subspaces import principal_vectors
from feddag.core.deployment import Deployment
from feddag.core.examples import Examples
from feddag.core.message import message, options, sensitive
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import score, serve

LEAST, MOST = 8, 200  # samples of a class that are compared: fewer say nothing, more only cost time
DIRECTIONS = 6  # first vectors of the reference data that means are looked at on
TINY = 1e-12
NO_DIGEST = np.zeros(0, dtype=np.uint8)
PREFIX = "drift."  # of everything that a client remembers for its next check


@options
class DriftOptions:
    """When a client raises an alarm."""

    # Total variation with a G-test, or the paper's distance (W1) of the class shares.
    labels: Literal["variation", "wasserstein"] = "variation"
    label_change: Annotated[float, Gt(0)] = 0.2  # share of the samples with another label; W1: mean shift
    label_chance: Annotated[float, Gt(0), Le(1)] = 1e-4  # p-value of the G-test; variation only
    subspaces: bool = True  # watch concepts and features by the classes' first vectors
    subspace_ratio: Annotated[float, Gt(1)] = 4.0  # R of an alarm; half of it at two checks in a row
    means: bool = True  # watch concepts and features by class means
    mean_change: Annotated[float, Gt(0)] = 0.5  # deviations that all classes must move together
    mean_errors: Annotated[float, Gt(0)] = 6.0  # and standard errors
    class_change: Annotated[float, Gt(0)] = 1.0  # deviations that a single class must move
    class_chance: Annotated[float, Gt(0), Le(1)] = 1e-7  # and p-value of its t-test
    loss: Annotated[float, Ge(0)] = 0.0  # growth of the mean training loss that alarms; 0: not looked at


@message
class Watch:
    """Compare the data with the reference; or take them as the new reference."""

    scheduled: ClassVar[bool] = False

    options: DriftOptions
    renew: bool
    deployment: Deployment | None = None  # what the client uses now, where losses are looked at


@message
class Watched:
    """The alarm, and nothing else."""

    alarm: bool = sensitive("cluster")


@client_task
def watch(request: Watch, client: Client) -> Watched:
    """Look at the own data; what is found out stays in the client's memory."""
    memory, options = client.memory, request.options
    then = {k.removeprefix(PREFIX): np.asarray(v) for k, v in memory.items() if k.startswith(PREFIX)}
    digest = fingerprint(client.train)
    if request.renew or not then:
        now = describe(client.train, options, client.seed) | _loss(request, client) | {"digest": digest}
        memory.update({PREFIX + k: v for k, v in now.items()})
        memory[PREFIX + "suspected"] = np.zeros(1)
        return Watched(alarm=False)
    if not options.loss and np.array_equal(digest, then.get("digest", NO_DIGEST)):
        memory[PREFIX + "suspected"] = np.zeros(1)
        return Watched(alarm=False)  # the very same samples: most checks end here
    now = describe(client.train, options, client.seed, then.get("basis")) | _loss(request, client)
    ratio = subspace_ratio(then, now) if options.subspaces else 0.0
    suspected = ratio > options.subspace_ratio / 2
    alarm = (
        labels_changed(then["counts"], now["counts"], options)
        or ratio > options.subspace_ratio
        or (suspected and bool(then["suspected"][0]))
        or (options.means and means_changed(then, now, options))
        or ("loss" in now and "loss" in then and float((now["loss"] - then["loss"])[0]) > options.loss)
    )
    memory[PREFIX + "suspected"] = np.array([float(suspected)])
    if "loss" in now:  # models get better: the reference is the least loss so far
        memory[PREFIX + "loss"] = np.minimum(now["loss"], then.get("loss", now["loss"]))
    return Watched(alarm=bool(alarm))


def fingerprint(train: Examples) -> np.ndarray:
    """Names the samples: other samples have another one."""
    sha = hashlib.blake2b(np.ascontiguousarray(train.x).data, digest_size=16)
    sha.update(np.ascontiguousarray(train.y).data)
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def _loss(request: Watch, client: Client) -> dict[str, np.ndarray]:
    """Mean loss of what the client uses on its training samples, if losses are looked at."""
    if request.deployment is None or not request.options.loss or not len(client.train):
        return {}
    scores = score(client, serve(client, request.deployment), client.train)
    return {"loss": np.array([scores.loss / len(client.train)])}


def describe(
    train: Examples, options: DriftOptions, seed: Seed, basis: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """What a client remembers of its data; `basis` is that of its reference, where there is one."""
    found = {"counts": train.counts()}
    rows_of = _rows_of_classes(train, seed)
    if options.subspaces:
        found |= _subspaces(train, rows_of)
    if options.means:
        found |= _means(train, rows_of, basis)
    return found


def _flat(train: Examples) -> np.ndarray:
    """Samples as rows of numbers."""
    return train.x.reshape(len(train), prod(train.x.shape[1:])).astype(np.float32)


def _rows_of_classes(train: Examples, seed: Seed) -> dict[int, np.ndarray]:
    """Random rows of every class that has enough samples, at most `MOST`."""
    generator, found = (seed / "watched").numpy(), {}
    for label in np.unique(train.y):
        rows = generator.permutation(np.flatnonzero(train.y == label))[:MOST]
        if len(rows) >= LEAST:
            found[int(label)] = rows
    return found


# -- labels ------------------------------------------------------------------------------------------------


def labels_changed(then_C: np.ndarray, now_C: np.ndarray, options: DriftOptions) -> bool:
    """Whether the class shares differ by enough, and by more than chance."""
    if not then_C.sum() or not now_C.sum():
        return False
    shares = [counts / counts.sum() for counts in (then_C, now_C)]
    if options.labels == "wasserstein":
        # On the line of class numbers: the area between the cumulative shares.
        return float(np.abs(np.cumsum(shares[0] - shares[1])).sum()) > options.label_change
    if np.abs(shares[0] - shares[1]).sum() / 2 <= options.label_change:
        return False
    from scipy.stats import chi2_contingency

    table = np.stack([then_C, now_C])[:, (then_C + now_C) > 0]
    return chi2_contingency(table, lambda_="log-likelihood").pvalue < options.label_chance


# -- subspaces ---------------------------------------------------------------------------------------------


def _subspaces(train: Examples, rows_of: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
    """The first vector of every class, and its noise a / n."""
    x_ND = _flat(train)
    labels, vectors, noise = [], [], []
    for label, rows in rows_of.items():
        half = len(rows) // 2
        whole, one, other = (first_vector(x_ND[part]) for part in (rows, rows[:half], rows[half : 2 * half]))
        labels.append(label)
        vectors.append(whole)
        noise.append(max(sine_squared(one, other) / 4, TINY))  # the halves have n/2 samples each
    return {
        "classes": np.array(labels, dtype=np.int64),
        "vectors": np.array(vectors, dtype=np.float32).reshape(len(labels), x_ND.shape[1]),
        "noise": np.array(noise),
    }


def first_vector(x_ND: np.ndarray) -> np.ndarray:
    """The first right singular vector; zeros for samples that are all zero."""
    found = principal_vectors(x_ND, 1)
    return found[0] if len(found) else np.zeros(x_ND.shape[1])


def sine_squared(one_D: np.ndarray, other_D: np.ndarray) -> float:
    """sin² of the angle between two unit vectors."""
    return float(max(1 - np.dot(one_D, other_D) ** 2, 0.0))


def subspace_ratio(then: dict[str, np.ndarray], now: dict[str, np.ndarray]) -> float:
    """R: how far the classes have turned, over what sampling explains; 0 without a common class."""
    turned = explained = 0.0
    new = {int(label): i for i, label in enumerate(now["classes"])}
    for i, label in enumerate(then["classes"].tolist()):
        if label in new:
            j = new[label]
            turned += sine_squared(
                then["vectors"][i].astype(np.float64), now["vectors"][j].astype(np.float64)
            )
            explained += float(then["noise"][i] + now["noise"][j])
    return turned / explained if explained else 0.0


# -- means -------------------------------------------------------------------------------------------------


def detail(x_NCHW: np.ndarray) -> np.ndarray:
    """Logs of each image's mean squares (itself, its slopes, its bends) and of its noise, (n, 4)."""
    x = x_NCHW.astype(np.float32).mean(axis=1)
    slopes = np.diff(x, axis=1), np.diff(x, axis=2)
    bends = np.diff(x, n=2, axis=1), np.diff(x, n=2, axis=2)
    squares = [
        np.mean([np.square(part).mean(axis=(1, 2)) for part in parts], axis=0)
        for parts in ((x,), slopes, bends)
    ]
    # Edges are few and noise is everywhere, so the median of the mixed differences shows the noise.
    mixed = np.abs(np.diff(slopes[0], axis=2)).reshape(len(x), -1)
    return np.log(np.stack([*squares, np.median(mixed, axis=1)], axis=1) + 1.0)


def _means(
    train: Examples, rows_of: dict[int, np.ndarray], basis_KD: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Mean and variance of each class in a few numbers per sample."""
    x_ND = _flat(train)
    if basis_KD is None:
        every = np.concatenate([np.zeros(0, dtype=np.int64), *rows_of.values()])
        basis_KD = principal_vectors(x_ND[every[:: max(1, len(every) // MOST)]], DIRECTIONS)
    is_image = train.x.ndim == 4 and min(train.x.shape[2:]) >= 3
    means, variances, sizes = [], [], []
    for rows in rows_of.values():
        values = x_ND[rows] @ basis_KD.T.astype(np.float32)
        if is_image:
            values = np.concatenate([values, detail(train.x[rows])], axis=1)
        means.append(values.mean(axis=0))
        variances.append(values.var(axis=0, ddof=1))
        sizes.append(len(rows))
    width = len(basis_KD) + 4 * is_image
    return {
        "basis": basis_KD.astype(np.float32),
        "mean_classes": np.array([*rows_of], dtype=np.int64),
        "means": np.array(means, dtype=np.float64).reshape(-1, width),
        "variances": np.array(variances, dtype=np.float64).reshape(-1, width),
        "sizes": np.array(sizes, dtype=np.int64),
    }


def means_changed(then: dict[str, np.ndarray], now: dict[str, np.ndarray], options: DriftOptions) -> bool:
    """Whether all classes moved together, or one of them by much; both by more than chance."""
    new = {int(label): j for j, label in enumerate(now["mean_classes"])}
    pairs = [(i, new[c]) for i, c in enumerate(then["mean_classes"].tolist()) if c in new]
    if not pairs:
        return False
    at, to = (np.array(side) for side in zip(*pairs, strict=True))
    steps_CK, errors_C = mean_steps(then, now, at, to)
    weights_C = 1 / np.square(errors_C)
    together_K = np.abs(weights_C @ steps_CK) / weights_C.sum()
    error = 1 / np.sqrt(weights_C.sum())
    if (together_K > max(options.mean_change, options.mean_errors * error)).any():
        return True
    freedom_C = then["sizes"][at] + now["sizes"][to] - 2
    from scipy.special import stdtr

    chances_CK = 2 * stdtr(freedom_C[:, None], -np.abs(steps_CK) / errors_C[:, None])
    return bool(((np.abs(steps_CK) > options.class_change) & (chances_CK < options.class_chance)).any())


def mean_steps(
    then: dict[str, np.ndarray], now: dict[str, np.ndarray], at: np.ndarray, to: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By how many deviations the mean of each common class moved, and the standard error of that."""
    old, new = then["sizes"][at], now["sizes"][to]
    pooled = (old - 1)[:, None] * then["variances"][at] + (new - 1)[:, None] * now["variances"][to]
    spread = np.sqrt(pooled / (old + new - 2)[:, None] + TINY)
    return (now["means"][to] - then["means"][at]) / spread, np.sqrt(1 / old + 1 / new)
