# SPDX-License-Identifier: Apache-2.0
"""Trainings of several clients, computed at once where they fit together, else one after another."""

import sys
from collections.abc import Callable, Hashable, Sequence

from feddag.core.params import Params
from feddag.learning.losses import cross_entropy
from feddag.learning.modules import check_layout
from feddag.learning.sgd import Training, run


def to_screen(text: str) -> None:
    """Say something where a worker's words reach the user too."""
    print(f"feddag: {text}", file=sys.stderr, flush=True)


class Cohort:
    """Trains clients together, and remembers which networks cannot be."""

    def __init__(self, say: Callable[[str], None] = to_screen) -> None:
        self.say = say
        self.alone: set[Hashable] = set()  # what was found to be impossible, said once

    def train(self, trainings: Sequence[Training]) -> list[Params | Exception]:
        """The trained parameters of each client, or the error that its training ended with."""
        results: list[Params | Exception | None] = [None] * len(trainings)
        groups: dict[Hashable, list[int]] = {}
        for i, training in enumerate(trainings):
            groups.setdefault(likeness(training) or i, []).append(i)
        for like, group in groups.items():
            # Those with most steps first.
            group.sort(key=lambda i: -len(trainings[i].client.train))
            for i, trained in zip(group, self._together(like, [trainings[i] for i in group]), strict=True):
                results[i] = trained
        return [result for result in results if result is not None]

    def _together(self, like: Hashable, trainings: Sequence[Training]) -> Sequence[Params | Exception]:
        if len(trainings) > 1 and like not in self.alone:
            try:
                return run(trainings)
            except Exception as error:  # vmap refuses many things, each in its own way
                self.alone.add(like)
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                self.say(f"clients are trained one by one, not at once: {reason}")
        return [_alone(training) for training in trainings]


def _alone(training: Training) -> Params | Exception:
    try:
        return run((training,))[0]
    except Exception as error:
        return error


def likeness(training: Training) -> Hashable:
    """What trainings must have in common to be computed at once; None: this one is computed alone."""
    if training.loss is not cross_entropy or training.epoch_losses is not None:
        return None
    examples = training.client.train
    try:
        check_layout(training.module, training.start)
    except Exception:  # said to its own client when it runs
        return None
    return (
        id(training.module),
        training.local,
        training.train,
        training.sample_weights is None,
        training.proximal and training.proximal[0],
        training.correction is None,
        examples.x.shape[1:],
        examples.x.dtype,
        examples.scaling,
    )
