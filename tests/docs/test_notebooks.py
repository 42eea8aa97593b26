# SPDX-License-Identifier: Apache-2.0
"""The notebooks in examples/ run from the first cell to the last, and show what they promise."""

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

EXAMPLES = Path(__file__).parents[2] / "examples"


def shown(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """All that the cells of a notebook display."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    book = nbformat.read(EXAMPLES / name, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "notebooks are kept without outputs"
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=resources).execute()
    return [out.data for cell in book.cells for out in cell.get("outputs", ()) if "data" in out]


def test_the_first_run_finds_both_groups_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = shown("first_run.ipynb", tmp_path, monkeypatch)
    assert any("feddag-run" in data.get("text/html", "") for data in outputs)
    assert sum("image/png" in data for data in outputs) == 2
    texts = [data.get("text/plain", "") for data in outputs]
    assert any("{'site0': ['well', 'ill'], 'site7': ['ill', 'well']}" in text for text in texts), texts


def test_the_comparison_shows_a_table_and_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = shown("compare_methods.ipynb", tmp_path, monkeypatch)
    assert any("feddag-comparison" in data.get("text/html", "") for data in outputs)
    assert any("image/png" in data for data in outputs)
    assert any("{0: [" in data.get("text/plain", "") for data in outputs)
