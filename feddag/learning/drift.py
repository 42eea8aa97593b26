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

Most checks find nothing. So a glance comes first, at the means of a few samples with half the limits: only
if it is suspicious are all samples looked at. It costs a few percent of an epoch, and raises no alarm itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from feddag.core.deployment import Deployment
from feddag.core.examples import Examples
from feddag.core.message import message, options, sensitive
from feddag.core.seeds import Seed
from feddag.core.task import Client, client_task
from feddag.learning.evaluation import score, serve
from feddag.learning.reference import LEAST, TINY, describe, detail, fingerprint, sine_squared

GLANCE, GLANCE_DETAIL = 24, 5  # samples of a class at a glance, and how many of them are looked at in detail
# Standard errors that make a glance suspicious, of all classes together and of one: 1% of glances, by chance.
TOGETHER_ERRORS, CLASS_ERRORS = 3.3, 4.0
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

    def times(self, factor: float) -> "DriftOptions":
        """The same for changes that are so many times as large; chance stays as unlikely."""
        sizes = ("label_change", "subspace_ratio", "mean_change", "class_change", "loss")
        return replace(self, **{name: factor * getattr(self, name) for name in sizes})


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
    if request.renew or not then:
        now = describe(client.train, options, client.seed) | _loss(request, client)
        memory.update({PREFIX + k: v for k, v in now.items()})
        memory[PREFIX + "digest"] = fingerprint(client.train)
        memory[PREFIX + "suspected"] = np.zeros(1)
        return Watched(alarm=False)
    if not options.loss and not may_have_changed(then, client.train, options, client.seed):
        memory[PREFIX + "suspected"] = np.zeros(1)
        return Watched(alarm=False)  # most checks end here
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


def may_have_changed(then: dict[str, np.ndarray], train: Examples, options: DriftOptions, seed: Seed) -> bool:
    """Whether all samples should be looked at: a glance is suspicious, and they are not the very same."""
    if labels_changed(then["counts"], train.counts(), options) or suspicious(then, train, options, seed):
        return not np.array_equal(fingerprint(train), then.get("digest", NO_DIGEST))
    return False


def _loss(request: Watch, client: Client) -> dict[str, np.ndarray]:
    """Mean loss of what the client uses on its training samples, if losses are looked at."""
    if request.deployment is None or not request.options.loss or not len(client.train):
        return {}
    scores = score(client, serve(client, request.deployment), client.train)
    return {"loss": np.array([scores.loss / len(client.train)])}


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


def suspicious(then: dict[str, np.ndarray], train: Examples, options: DriftOptions, seed: Seed) -> bool:
    """A glance at a few samples: whether means may have moved by half of what raises an alarm."""
    if not (options.subspaces or options.means):
        return False
    if "means" not in then or not len(train):
        return True
    counts_C = train.counts()
    at = np.flatnonzero(counts_C[then["mean_classes"]] >= LEAST)  # of the classes of the reference
    if not len(at):
        return True
    mixed = (seed / "watched").numpy().permutation(len(train))
    mixed = mixed[np.argsort(train.y[mixed], kind="stable")]  # by class, within each at random
    sizes_C = counts_C[then["mean_classes"][at]]
    starts_C = (np.cumsum(counts_C) - counts_C)[then["mean_classes"][at]]

    def moved(most: int, first: int, values_of: Callable[[np.ndarray], np.ndarray]) -> bool:
        few_C = np.minimum(sizes_C, most)
        rows = mixed[(starts_C[:, None] + np.arange(most))[np.arange(most) < few_C[:, None]]]
        values_NK = values_of(train.x[rows])
        columns = slice(first, first + values_NK.shape[1])
        means_CK = np.add.reduceat(values_NK, np.cumsum(few_C) - few_C) / few_C[:, None]
        spread_CK = np.sqrt(then["variances"][at, columns] + TINY)
        steps_CK = (means_CK - then["means"][at, columns]) / spread_CK
        errors_C = np.sqrt(1 / few_C + 1 / then["sizes"][at])
        together_K, error = _together(steps_CK, errors_C)
        least_C = np.maximum(options.class_change / 2, CLASS_ERRORS * errors_C)
        alike = (together_K > max(options.mean_change / 2, TOGETHER_ERRORS * error)).any()
        return bool(alike or (np.abs(steps_CK) > least_C[:, None]).any())

    width = len(then["basis"])
    return moved(GLANCE, 0, lambda x: x.reshape(len(x), -1).astype(np.float32) @ then["basis"].T) or (
        then["means"].shape[1] > width and moved(GLANCE_DETAIL, width, detail)
    )


def _together(steps_CK: np.ndarray, errors_C: np.ndarray) -> tuple[np.ndarray, float]:
    """By how many deviations all classes moved in common, and the standard error of that."""
    weights_C = 1 / np.square(errors_C)
    return np.abs(weights_C @ steps_CK) / weights_C.sum(), float(1 / np.sqrt(weights_C.sum()))


def means_changed(then: dict[str, np.ndarray], now: dict[str, np.ndarray], options: DriftOptions) -> bool:
    """Whether all classes moved together, or one of them by much; both by more than chance."""
    new = {int(label): j for j, label in enumerate(now["mean_classes"])}
    pairs = [(i, new[c]) for i, c in enumerate(then["mean_classes"].tolist()) if c in new]
    if not pairs:
        return False
    at, to = (np.array(side) for side in zip(*pairs, strict=True))
    steps_CK, errors_C = mean_steps(then, now, at, to)
    together_K, error = _together(steps_CK, errors_C)
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
