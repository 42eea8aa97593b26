# SPDX-License-Identifier: Apache-2.0
"""Data angles cleared of sampling noise: the default in place of Eqs. 5 and 6.

The principal vectors of n samples differ from those of the distribution by chance. Two independent samples of
the same class therefore lie apart by

    E sin² θ_ij = a_i / n_i + a_j / n_j

and small classes look different from everything. The noise level a of an item's class is estimated from its
nearest neighbours. What the noise explains is subtracted, and well known classes count more:

    ν_ij = b_i / n_i + b_j / n_j,     b = 10% quantile over j of  sin² θ_ij / (1/n_i + 1/n_j)
    D_ij = Σ_c (sin² θ_ijc - 1.4 ν_ijc) / ν_ijc²  /  Σ_c 1 / ν_ijc²      with error σ_ij = (Σ_c 1 / ν_ijc²)^-½
    θ_ij = arcsin √(D_ij + σ̄),        σ̄ = median of all errors

Vectors that carry noise on purpose (feddag.privacy) have a known error e, the expected sin² that it adds.
e_i + e_j is subtracted from sin² θ_ij first, and added to ν_ij where it weighs the evidence.

σ̄ keeps the remaining noise in the linear part of the root. Without it, clients that do not differ would
fall into arbitrary groups. If two items share only some classes, θ moves towards a right angle by u^1.5,
where u is the share of their samples that lie in classes which the other item lacks. With `shared_only`
absent classes say nothing here, because the view of labels shows them; b is then at most 4 times the 80%
quantile of its class, so that an item that resembles nobody is not taken for a noisy one.

Every view has this form: angles of principal vectors (pixels, shape), the root mean square difference of
class means as a sine (texture, tones), half the angle of two updates with all samples as one class
(gradient).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from feddag.clustering.angles import AngleBlock, KeptAngles, class_angle_blocks, mean_blocks, update_blocks
from feddag.clustering.arrays import RIGHT_ANGLE, FloatArray, IntArray, add_transpose
from feddag.clustering.confirm import class_halves
from feddag.clustering.evidence import MIN_NOISE, add_block, finish, finish_shared, median_error, median_known
from feddag.clustering.items import MEAN_VIEWS, Items, sketches_of
from feddag.clustering.levels import MAX_NOISE, Errors, noise_levels
from feddag.clustering.options import ClusteringOptions
from feddag.core.message import message, public

MIN_NOISE_OF = {"texture": 1e-9, "tones": 1e-9, "gradient": 1e-6}
"""MIN_NOISE of views that are computed with more, or fewer, digits."""
LARGEST_LEVEL, MOST_ITEMS = 4.0, 0.8
"""A noise level above 4 times the 80% quantile of its class is not noise."""


@message
class ReliableAngles:
    """Data angles cleared of noise. `fit` estimates the noise, which is kept to measure newcomers alike."""

    options: ClusteringOptions
    view: str = "pixels"
    shared_only: bool = False  # absent classes say nothing; a pair without a shared class is at `unknown`
    levels_NC: np.ndarray = public(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))  # b
    errors_N: np.ndarray = public(default_factory=lambda: np.zeros(0, dtype=np.float32))  # σ of each item
    typical_error: float = 0.0  # σ̄
    unknown: float = RIGHT_ANGLE  # degrees

    def fit(
        self,
        items: Items,
        keep: KeptAngles | None = None,
        only: Sequence[int] | None = None,
        limit: tuple[float, float] = (LARGEST_LEVEL, MOST_ITEMS),
    ) -> tuple["ReliableAngles", FloatArray]:
        """The estimated noise, and the angles of N items in degrees; `keep` collects class-wise angles.

        `only` names the classes that are compared, if not all are. With `shared_only`, a noise level is at
        most `limit[0]` times the quantile `limit[1]` of its class.
        """
        n = len(items)
        sizes_NC = self._sizes(items)
        errors_NC = items.known_errors(self.view)
        levels_NC = np.full(sizes_NC.shape, MAX_NOISE, dtype=np.float32)
        total_NN, evidence_NN = np.zeros((n, n), dtype=np.float32), np.zeros((n, n), dtype=np.float32)
        for label, blocks in self._blocks(items, None, only):
            if keep is not None:
                for block in blocks:
                    keep.add(block)
            errors = errors_NC[:, label], errors_NC[:, label]
            sizes_N = sizes_NC[:, label]
            levels_NC[:, label] = self._levels(blocks, sizes_N, sizes_N, errors, limit=limit)
            noise_N = levels_NC[:, label] / sizes_NC[:, label]
            while blocks:  # a block that has been added is not needed again
                add_block(total_NN, evidence_NN, blocks.pop(), noise_N, noise_N, errors, self._least_noise)
        add_transpose(total_NN)
        add_transpose(evidence_NN)
        fitted = replace(self, levels_NC=levels_NC, typical_error=median_error(evidence_NN))
        fitted = replace(fitted, errors_N=fitted._errors(items))
        if self.shared_only:
            known_NN = finish_shared(total_NN, evidence_NN, fitted.typical_error, RIGHT_ANGLE)
            fitted = replace(fitted, unknown=median_known(total_NN, known_NN))
            total_NN[~known_NN] = fitted.unknown
        else:
            held_NC = sizes_NC * items.present()
            finish(total_NN, evidence_NN, fitted.typical_error, held_NC, held_NC)
        np.fill_diagonal(total_NN, 0)
        return fitted, total_NN

    def halves(self, items: Items, members: IntArray) -> tuple[FloatArray, ...]:
        """The angles between some items, measured twice: by half of the classes, and by the others.

        Nothing for a view without classes, or of items that share only one.
        """
        if self.view == "gradient":
            return ()
        part = items.take(members)
        found = class_halves(self._tells(part).sum(axis=0))
        return tuple(self.fit(part, only=half.tolist())[1] for half in found)

    def newcomers(self, new: Items, old: Items) -> "ReliableAngles":
        """The noise of new items, estimated from their nearest old neighbours."""
        return self.measured(new, old)[0]

    def joined(self, newcomers: "ReliableAngles") -> "ReliableAngles":
        """The noise of old and new items together."""
        return replace(
            self,
            levels_NC=np.concatenate([self.levels_NC, newcomers.levels_NC]),
            errors_N=np.concatenate([self.errors_N, newcomers.errors_N]),
        )

    def between(self, new: Items, old: Items, of_new: "ReliableAngles | None" = None) -> FloatArray:
        """Angles of M new items to N old ones, in degrees; `of_new` is the noise of the new items."""
        return self.measured(new, old, of_new)[1]

    def measured(
        self, new: Items, old: Items, of_new: "ReliableAngles | None" = None
    ) -> tuple["ReliableAngles", FloatArray]:
        """The noise of M new items (estimated where it is not given), and their angles to N old ones."""
        total_MN = np.zeros((len(new), len(old)), dtype=np.float32)
        evidence_MN = np.zeros_like(total_MN)
        sizes_MC, sizes_NC = self._sizes(new), self._sizes(old)
        unknown_MC = np.full(sizes_MC.shape, MAX_NOISE, dtype=np.float32)
        levels_MC = unknown_MC if of_new is None else of_new.levels_NC
        errors_MC, errors_NC = new.known_errors(self.view), old.known_errors(self.view)
        tells_NC = self._tells(old)
        for label, blocks in self._blocks(new, old):
            errors = errors_MC[:, label], errors_NC[:, label]
            if of_new is None:
                known_N = self.levels_NC[tells_NC[:, label], label]
                sizes = sizes_MC[:, label], sizes_NC[:, label]
                levels_MC[:, label] = self._levels(blocks, *sizes, errors, known_N)
            noise_M = levels_MC[:, label] / sizes_MC[:, label]
            noise_N = self.levels_NC[:, label] / sizes_NC[:, label]
            for block in blocks:
                add_block(total_MN, evidence_MN, block, noise_M, noise_N, errors, self._least_noise)
        if self.shared_only:
            finish_shared(total_MN, evidence_MN, self.typical_error, self.unknown)
        else:
            held = sizes_MC * new.present(), sizes_NC * old.present()
            finish(total_MN, evidence_MN, self.typical_error, *held)
        if of_new is None:
            of_new = replace(self, levels_NC=levels_MC)
            of_new = replace(of_new, errors_N=of_new._errors(new))
        return of_new, total_MN

    def _blocks(
        self, rows: Items, columns: Items | None, only: Sequence[int] | None = None
    ) -> Iterator[tuple[int, list[AngleBlock]]]:
        """Class by class, all blocks of angles; `only` names the classes, if not all are wanted."""
        classes = range(rows.num_classes) if only is None else sorted(only)
        if self.view == "gradient":
            blocks = update_blocks(sketches_of(rows), None if columns is None else sketches_of(columns))
        else:
            others = None if columns is None else columns.class_vectors(self.view)
            if self.view in MEAN_VIEWS:
                blocks = mean_blocks(rows.class_vectors(self.view), others, classes)
            else:
                blocks = class_angle_blocks(
                    rows.class_vectors(self.view),
                    others,
                    num_classes=rows.num_classes,
                    angles=self.options.angles,
                    only=classes,
                )
        for label, of_class in groupby(blocks, key=lambda block: block.label):
            yield label, list(of_class)

    def _levels(
        self,
        blocks: Sequence[AngleBlock],
        sizes_M: FloatArray,
        sizes_N: FloatArray,
        errors: Errors | None = None,
        known_N: FloatArray | None = None,
        limit: tuple[float, float] = (LARGEST_LEVEL, MOST_ITEMS),
    ) -> FloatArray:
        """b of one class; `known_N` are levels of old items, by which a newcomer's level is limited."""
        levels_M = noise_levels(blocks, sizes_M, sizes_N, errors)
        if not self.shared_only:
            return levels_M
        compared = levels_M[levels_M < MAX_NOISE] if known_N is None or not len(known_N) else known_N
        largest = limit[0] * float(np.quantile(compared, limit[1])) if len(compared) else MAX_NOISE
        return np.minimum(levels_M, np.float32(largest))

    @property
    def _least_noise(self) -> float:
        return MIN_NOISE_OF.get(self.view, MIN_NOISE)

    def _sizes(self, items: Items) -> FloatArray:
        """Samples behind each angle: of every class, or of all classes for updates."""
        counts = items.counts_NC
        return _sizes(counts.sum(axis=1, keepdims=True) if self.view == "gradient" else counts)

    def _tells(self, items: Items) -> np.ndarray:
        """Items x classes: whether the view tells something of the class."""
        if self.view == "gradient":
            return np.ones((len(items), 1), dtype=bool)
        tells_NC = np.zeros(items.counts_NC.shape, dtype=bool)
        for i, item in enumerate(items.class_vectors(self.view)):
            tells_NC[i, item.classes_P] = True
        return tells_NC

    def _errors(self, items: Items) -> FloatArray:
        """σ of two items that are both like this one; 0 for an item that tells nothing."""
        noise_NC = np.maximum(2 * self.levels_NC / self._sizes(items), self._least_noise)
        noise_NC = noise_NC + 2 * items.known_errors(self.view)
        evidence_N = (self._tells(items) / np.square(noise_NC.astype(np.float64))).sum(axis=1)
        return np.where(evidence_N > 0, 1 / np.sqrt(np.maximum(evidence_N, 1e-300)), 0).astype(np.float32)


def _sizes(counts: FloatArray) -> FloatArray:
    """Class sizes; at least 1, because a vector comes from at least one sample, even if counts are noisy."""
    return np.maximum(counts, 1).astype(np.float32)
