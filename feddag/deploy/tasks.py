# SPDX-License-Identifier: Apache-2.0
"""The questions that a node of an experiment answers, and no others."""

from feddag.core.task import ClientTask
from feddag.experiment.settings import Experiment
from feddag.learning.evaluation import evaluate
from feddag.privacy.secagg import advertise, hide, reveal


def tasks_of(experiment: Experiment) -> dict[str, ClientTask]:
    """Name → task: those of the method, those of secure sums if they are used, and evaluation."""
    secure = (advertise, hide, reveal) if experiment.privacy.masks else ()
    return {task.name: task for task in (*experiment.build_algorithm().tasks, *secure, evaluate)}
