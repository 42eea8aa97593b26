# SPDX-License-Identifier: Apache-2.0
"""feddag: clustered federated learning, from a laptop run to a deployment, with one algorithm code.

>>> import feddag
>>> experiment = feddag.Experiment.from_settings({"data": "digits", "num_clients": 10, "num_rounds": 5})
>>> done = feddag.run(experiment)                                                         # doctest: +SKIP
>>> done.result["final"], done.clusters, done.model("c003").predict(x)                    # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feddag.compare.comparison import Comparison, compare_methods, load_comparison
    from feddag.experiment.settings import Experiment
    from feddag.runs.run import Run, load_run
    from feddag.runs.simulate import cluster, resume, run

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Experiment",
    "Run",
    "__version__",
    "cluster",
    "compare_methods",
    "load_comparison",
    "load_run",
    "resume",
    "run",
]

_HOMES = {
    "Comparison": "feddag.compare.comparison",
    "compare_methods": "feddag.compare.comparison",
    "load_comparison": "feddag.compare.comparison",
    "Experiment": "feddag.experiment.settings",
    "Run": "feddag.runs.run",
    "load_run": "feddag.runs.run",
    "cluster": "feddag.runs.simulate",
    "resume": "feddag.runs.simulate",
    "run": "feddag.runs.simulate",
}


def __getattr__(name: str) -> Any:
    """What people use, imported when it is first asked for: `import feddag` alone is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'feddag' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
