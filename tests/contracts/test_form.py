# SPDX-License-Identifier: Apache-2.0
"""Each algorithm is one file that leans on core, learning and clustering alone, and has a page."""

import ast
import inspect
from pathlib import Path

import pytest

from feddag.algorithms import ALGORITHMS
from tests.contracts.toys import every_algorithm

ALLOWED = ("feddag.core", "feddag.learning", "feddag.clustering")
PAGES = Path(__file__).parents[2] / "docs" / "algorithms"


@every_algorithm
def test_it_imports_only_core_learning_and_clustering(name: str) -> None:
    tree = ast.parse(Path(inspect.getfile(ALGORITHMS[name])).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    ours = [module for module in modules if module.split(".")[0] == "feddag"]
    assert ours
    assert [module for module in ours if not module.startswith(ALLOWED)] == []


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_it_has_a_page_of_at_most_half_a_screen(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert text.splitlines()[0].endswith(f"(`{name}`)")
    assert len(text.splitlines()) <= 25
