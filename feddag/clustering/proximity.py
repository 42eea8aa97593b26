# SPDX-License-Identifier: Apache-2.0
"""From items to one distance matrix: any number of views, or the two of Eqs. 3 to 8 of the paper."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from feddag.clustering.angles import KeptAngles
from feddag.clustering.arrays import FloatArray
from feddag.clustering.frequency import FrequencyAngles
from feddag.clustering.fusion import fuse, learned_weights, pair_weights
from feddag.clustering.items import Items, sketches_of
from feddag.clustering.options import ClusteringOptions
from feddag.clustering.reliable import ReliableAngles
from feddag.clustering.similarity import (
    MinMax,
    gradient_angles,
    gradient_angles_between,
    min_max,
    normalised,
)
from feddag.clustering.views import ViewFit, among
from feddag.core.clustering import View
from feddag.core.message import message, public

Told = Literal["fused", "data", "gradient"]


@dataclass(frozen=True)
class ViewAngles:
    """Angles between rows and columns in degrees; None for a view that is not used."""

    data: FloatArray | None
    gradient: FloatArray | None


@message
class Frame:
    """How the proximity of N items was measured: kept, so that newcomers are measured in the same way."""

    told: Told = "fused"  # the two matrices of Eq. 7, or the one of them that items told something in
    frequency: FrequencyAngles | None = None  # the data angles are one of these two
    reliable: ReliableAngles | None = None
    data_scale: MinMax = MinMax()
    gradient_scale: MinMax = MinMax()
    weights_N: np.ndarray = public()  # w of Eq. 7: 1 is all gradient, 0 is all data
    fits: tuple[ViewFit, ...] = ()  # fusion `views`: in place of all constants above

    @classmethod
    def unfitted(cls, items: Items, options: ClusteringOptions) -> "Frame":
        """The frame before anything was measured; both views count equally, or the one that was told."""
        told: Told = "data" if items.sketches_NK is None else "fused" if items.views() else "gradient"
        weight = {"fused": 0.5, "data": 0.0, "gradient": 1.0}[told]
        by_frequency = options.class_weighting == "frequency"
        return cls(
            told=told,
            frequency=FrequencyAngles(options=options) if by_frequency else None,
            reliable=None if by_frequency else ReliableAngles(options=options),
            weights_N=np.full(len(items), weight),
        )

    @property
    def data_angles(self) -> FrequencyAngles | ReliableAngles:
        """The strategy that measures data angles."""
        found = self.frequency or self.reliable
        assert found is not None
        return found

    @property
    def options(self) -> ClusteringOptions:
        """The choices that were made."""
        return self.data_angles.options

    @property
    def shown_weights(self) -> np.ndarray | None:
        """w of Eq. 7 where two views were fused; None otherwise."""
        return self.weights_N if self.told == "fused" and not self.fits else None

    def with_data_angles(self, fitted: FrequencyAngles | ReliableAngles) -> "Frame":
        """The frame with another state of its strategy."""
        if isinstance(fitted, FrequencyAngles):
            return replace(self, frequency=fitted)
        return replace(self, reliable=fitted)


def measure(
    items: Items, options: ClusteringOptions, keep: KeptAngles | None = None
) -> tuple[Frame, ViewAngles]:
    """Angles of the views that were told, and the frame they were measured in; `keep` takes data angles."""
    frame = Frame.unfitted(items, options)
    data_NN = gradient_NN = None
    if frame.told != "gradient":
        fitted, data_NN = frame.data_angles.fit(items, keep)
        frame = replace(frame.with_data_angles(fitted), data_scale=min_max(data_NN))
    if frame.told != "data":
        gradient_NN = gradient_angles(sketches_of(items))
        frame = replace(frame, gradient_scale=min_max(gradient_NN))
    return frame, ViewAngles(data_NN, gradient_NN)


def fuse_views(frame: Frame, views: ViewAngles, seed: int) -> tuple[Frame, FloatArray]:
    """A of Eq. 7, and the frame with the weights that were learned; a single view is only normalised."""
    if views.gradient is None and views.data is not None:
        return frame, normalised(views.data, frame.data_scale)
    if views.data is None and views.gradient is not None:
        return frame, normalised(views.gradient, frame.gradient_scale)
    assert views.data is not None
    assert views.gradient is not None
    data_NN = normalised(views.data, frame.data_scale)
    gradient_NN = normalised(views.gradient, frame.gradient_scale)
    weights_N = learned_weights(data_NN, gradient_NN, frame.options, seed)
    fused_NN = fuse(data_NN, gradient_NN, weights_N, frame.options.fusion_rule)
    return replace(frame, weights_N=weights_N), fused_NN


def views_between(frame: Frame, new: Items, old: Items, of_new: Frame) -> ViewAngles:
    """Angles of new items to old ones; `frame` belongs to the old items, `of_new` to the new ones."""
    data_MN = gradient_MN = None
    if frame.told != "gradient":
        strategy = frame.data_angles
        data_MN = strategy.between(new, old, of_new.data_angles)  # type: ignore[arg-type]
    if frame.told != "data":
        gradient_MN = gradient_angles_between(sketches_of(new), sketches_of(old))
    return ViewAngles(data_MN, gradient_MN)


def fused_between(frame: Frame, views: ViewAngles, pairs_MN: FloatArray) -> FloatArray:
    """A of Eq. 7 with the frame's constants and the given weights of pairs."""
    data_MN, gradient_MN = scaled(frame, views)
    return (data_MN + pairs_MN * (gradient_MN - data_MN)).astype(np.float32)


def scaled(frame: Frame, views: ViewAngles) -> tuple[FloatArray, FloatArray]:
    """Both views normalised by the frame's constants; a view that is not used is 0."""
    data, gradient = views.data, views.gradient
    some = data if data is not None else gradient
    assert some is not None
    return (
        np.zeros_like(some) if data is None else frame.data_scale.apply(data),
        np.zeros_like(some) if gradient is None else frame.gradient_scale.apply(gradient),
    )


def proximity_among(items: Items, frame: Frame, views: ViewAngles | None = None) -> FloatArray:
    """A of Eq. 7 between items whose frame is known: by their stored weights, nothing is learned anew."""
    if frame.fits:
        return among(frame.fits, items)
    views = views or views_between(frame, items, items, frame)
    pairs_NN = pair_weights(frame.weights_N, slice(0, len(items)), frame.options.fusion_rule)
    return _symmetric(fused_between(frame, views, pairs_NN))


def shown_views(items: Items, frame: Frame) -> dict[str, View]:
    """The views of items whose frame is known, for people: measured again, nothing is found anew."""
    if frame.fits:
        found = {
            fit.name.capitalize(): View(_symmetric(fit.between(items, items, fit)), fit.unit)
            for fit in frame.fits
        }
    else:
        views = views_between(frame, items, items, frame)
        angles = {"Data angles": views.data, "Gradient angles": views.gradient}
        found = {name: View(_symmetric(a_NN), "degrees") for name, a_NN in angles.items() if a_NN is not None}
    return {**found, "Proximity": View(proximity_among(items, frame), "0 near, 1 far")}


def _symmetric(matrix_NN: FloatArray) -> FloatArray:
    """The mean of both halves, with a zero diagonal."""
    result_NN = (matrix_NN + matrix_NN.T) / 2
    np.fill_diagonal(result_NN, 0)
    return result_NN
