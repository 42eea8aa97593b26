# SPDX-License-Identifier: Apache-2.0
"""What the tests of several methods need."""

from feddag.core.params import Params
from feddag.core.seeds import Seed
from feddag.engines.perform import Site
from tests.support.toys import blob_site


def fresh(number: int = 0, kind: str = "single", site: Site | None = None) -> Params:
    """Initial parameters of the toy network; another number, other ones."""
    with Seed(number).ambient():
        return Params.from_module((site or blob_site()).network.fresh(kind))
