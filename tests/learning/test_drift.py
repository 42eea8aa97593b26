# SPDX-License-Identifier: Apache-2.0
"""A client notices that its data have changed, and tells no more than that."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind, wasserstein_distance

from feddag.core.deployment import Deployment
from feddag.core.examples import Examples
from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.core.task import Client
from feddag.learning import drift
from feddag.learning.drift import (
    DriftOptions,
    Watch,
    Watched,
    describe,
    detail,
    labels_changed,
    mean_steps,
    sine_squared,
    subspace_ratio,
    suspicious,
    watch,
)
from tests.support.toys import blob_site, toy_client

OPTIONS = DriftOptions()
PAPER = DriftOptions(labels="wasserstein", subspaces=False, means=False)


def images(per_class: int = 30, classes: int = 3, seed: int = 0, **change: Any) -> Examples:
    """Small pictures: a bright bar per class, at a place of its own, with noise."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), per_class)
    x = rng.normal(40, 12, size=(len(y), 1, 8, 8))
    for i, label in enumerate(y):
        x[i, 0, 2 * label : 2 * label + 2] += 120 + 20 * rng.normal()
    x = x * change.get("contrast", 1.0)
    if change.get("noise"):
        x = x + rng.normal(0, change["noise"], size=x.shape)
    y = y if "swap" not in change else np.array([1, 0, 2])[y]
    return Examples(np.clip(x, 0, 255).astype(np.uint8), y, classes)


def holding(client: Client, train: Examples, round_: int = 0) -> Client:
    return replace(client, train=train, seed=Seed(9) / round_)


def alarms(first: Examples, *later: Examples, options: DriftOptions = OPTIONS) -> list[bool]:
    """The answers to checks, after a reference."""
    client = holding(toy_client(blob_site()), first)
    watch(Watch(options=options, renew=True), client)
    answers = []
    for k, train in enumerate(later):
        client = holding(client, train, k + 1)
        answers.append(watch(Watch(options=options, renew=False), client).alarm)
    return answers


def test_nothing_but_an_alarm_travels() -> None:
    assert [f.name for f in fields(Watched)] == ["alarm"]
    assert Watched.__annotations__ == {"alarm": bool}


@pytest.mark.parametrize("seed", range(5))
def test_other_samples_of_the_same_kind_raise_no_alarm(seed: int) -> None:
    assert alarms(images(seed=seed), images(seed=seed + 50), images(seed=seed + 90)) == [False, False]


@pytest.mark.parametrize("change", [{"contrast": 0.5}, {"noise": 30}, {"swap": True}])
def test_looks_and_meanings_that_change_raise_one(change: dict[str, Any]) -> None:
    assert alarms(images(), images(seed=1, **change)) == [True]


def test_more_of_the_same_data_raises_no_alarm() -> None:
    assert alarms(images(20), images(40), images(80), images(160)) == [False] * 3


def test_the_reference_is_the_last_signature_so_that_slow_drift_is_seen() -> None:
    slow = [images(seed=k, contrast=1 - 0.03 * k) for k in range(10)]
    assert True in alarms(slow[0], *slow[1:])


def test_a_renewed_reference_ends_the_alarm() -> None:
    client = holding(toy_client(blob_site()), images())
    watch(Watch(options=OPTIONS, renew=True), client)
    changed = holding(client, images(swap=True), 1)
    assert watch(Watch(options=OPTIONS, renew=False), changed).alarm
    watch(Watch(options=OPTIONS, renew=True), changed)
    assert not watch(
        Watch(options=OPTIONS, renew=False), holding(changed, images(seed=4, swap=True), 2)
    ).alarm


def test_a_glance_is_enough_in_nearly_all_checks_without_a_change() -> None:
    then = describe(images(), OPTIONS, Seed(0))
    looks = [suspicious(then, images(seed=50 + k), OPTIONS, Seed(k)) for k in range(40)]
    assert sum(looks) <= 4  # by chance alone about one of a hundred


@pytest.mark.parametrize("change", [{"contrast": 0.5}, {"noise": 30}, {"swap": True}])
def test_a_glance_raises_no_alarm_but_asks_for_a_look(change: dict[str, Any]) -> None:
    then, now = describe(images(), OPTIONS, Seed(0)), images(seed=1, **change)
    assert suspicious(then, now, OPTIONS, Seed(1))
    assert not suspicious(then, images(seed=1), OPTIONS, Seed(1))
    assert suspicious({k: v for k, v in then.items() if k != "means"}, now, OPTIONS, Seed(1)), "no means"


def test_class_shares_need_an_effect_and_significance() -> None:
    counts = np.array([50, 50, 0, 0])
    assert labels_changed(counts, counts[::-1].copy(), OPTIONS)
    assert not labels_changed(counts, 2 * counts, OPTIONS), "growth"
    assert not labels_changed(np.array([3, 2, 0, 0]), np.array([2, 1, 1, 1]), OPTIONS), "too few to tell"
    assert not labels_changed(1000 * counts, 1000 * np.array([55, 45, 0, 0]), OPTIONS), "too small a change"
    assert not labels_changed(np.zeros(4, int), counts, OPTIONS)


def test_the_papers_distance_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        then, now = rng.integers(1, 40, size=(2, 6))
        places = np.arange(6)
        distance = wasserstein_distance(places, places, then, now)
        assert labels_changed(then, now, PAPER) == (distance > 0.2)


def test_the_papers_distance_sees_no_concepts() -> None:
    assert alarms(images(), images(swap=True), options=PAPER) == [False]


def test_the_ratio_against_a_literal_one() -> None:
    then, now = (describe(images(seed=s), OPTIONS, Seed(s)) for s in (0, 1))
    turned = explained = 0.0
    for k in range(3):
        cosine = float(then["vectors"][k].astype(float) @ now["vectors"][k].astype(float))
        turned += 1 - cosine**2
        explained += then["noise"][k] + now["noise"][k]
    assert subspace_ratio(then, now) == pytest.approx(turned / explained)
    assert subspace_ratio(then, {**now, "classes": now["classes"] + 10}) == 0.0


def test_a_half_of_a_class_has_twice_its_noise() -> None:
    e = np.eye(3)
    assert sine_squared(e[0], e[0]) == 0.0
    assert sine_squared(e[0], e[1]) == 1.0


def test_steps_of_means_are_t_values() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(0, 1, size=(20, 3)), rng.normal(0.5, 1, size=(31, 3))

    def facts(values: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "means": values.mean(0)[None],
            "variances": values.var(0, ddof=1)[None],
            "sizes": np.array([len(values)]),
        }

    steps, errors = mean_steps(facts(one), facts(other), np.array([0]), np.array([0]))
    expected = ttest_ind(other, one).statistic
    assert steps[0] / errors[0] == pytest.approx(expected)


def test_noise_shows_in_the_detail_of_a_flat_picture() -> None:
    flat = np.zeros((1, 1, 8, 8), dtype=np.uint8)
    noisy = flat + np.random.default_rng(0).integers(0, 9, size=flat.shape).astype(np.uint8)
    assert (detail(flat) == 0).all()
    assert detail(noisy)[0, 3] > 1


@pytest.mark.parametrize("size", [0, 1, 3, 9])
def test_few_samples_raise_no_alarm_and_no_error(size: int) -> None:
    few = images(10).take(np.arange(size))
    assert alarms(few, few, images(10)) in ([False, False], [False, True])
    assert alarms(images(10), few)[0] in (False, True)


def test_a_loss_that_grows_is_an_alarm_only_if_it_is_asked_for() -> None:
    site = blob_site()
    client = toy_client(site)
    blank = Params.from_module(site.network("single")) * 0.0
    wrong = blank.replace(Params.of({"head.bias": blank["head.bias"] + np.float32(0)}))
    bias = wrong["head.bias"].clone()
    bias[0] = 30.0
    wrong = blank.replace(Params.of({"head.bias": bias}))
    for options, expected in ((replace(OPTIONS, loss=0.5), True), (OPTIONS, False)):
        here = replace(client, memory={})
        watch(Watch(options=options, renew=True, deployment=Deployment(models=(blank,))), here)
        request = Watch(options=options, renew=False, deployment=Deployment(models=(wrong,)))
        assert watch(request, here).alarm is expected


def test_the_very_same_samples_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data, client = images(), toy_client(blob_site())
    here = holding(client, data)
    watch(Watch(options=OPTIONS, renew=True), here)
    monkeypatch.setattr(drift, "describe", lambda *arguments: pytest.fail("all samples were described again"))
    again = holding(here, data, 1)
    again.memory["drift.suspected"] = np.ones(1)
    assert not watch(Watch(options=OPTIONS, renew=False), again).alarm
    assert not again.memory["drift.suspected"].any(), "what was suspected before has not come true"
    changed = replace(data, y=data.y[::-1].copy())
    with pytest.raises(pytest.fail.Exception, match="described again"):
        watch(Watch(options=OPTIONS, renew=False), holding(here, changed, 2))


def test_changes_several_times_as_large_are_asked_for_by_size_and_not_by_chance() -> None:
    large, usual = DriftOptions(loss=0.5).times(2), DriftOptions(loss=0.5)
    sizes = {"label_change", "subspace_ratio", "mean_change", "class_change", "loss"}
    for field in fields(usual):
        factor = 2 if field.name in sizes else 1
        value = getattr(usual, field.name)
        assert getattr(large, field.name) == (factor * value if factor > 1 else value)
