# SPDX-License-Identifier: Apache-2.0
"""Saving figures: the same picture gives the same file on every run."""

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that shows itself in a notebook, with whatever backend matplotlib has there."""

    def _repr_png_(self) -> bytes:
        FigureCanvasAgg(self)
        buffer = io.BytesIO()
        with _unknown_letters_allowed():
            self.savefig(buffer, dpi=100, format="png")
        return buffer.getvalue()


def save_png(figure: Figure, path: Path, dpi: int = 130, **options: Any) -> None:
    """Save a figure as PNG."""
    FigureCanvasAgg(figure)
    with _unknown_letters_allowed():
        figure.savefig(path, dpi=dpi, format="png", **options)


def save_png_and_svg(figure: Figure, stem: Path) -> str:
    """Save `stem`.png and `stem`.svg; return the SVG element for a page. It needs no fonts."""
    save_png(figure, stem.with_name(f"{stem.name}.png"))
    figure.set_layout_engine(None)  # saving the PNG has arranged everything; doing it again is slow
    buffer = io.StringIO()
    # The fixed salt makes the ids inside the file repeatable, and different from those of other figures.
    with mpl.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "path"}), _unknown_letters_allowed():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    stem.with_name(f"{stem.name}.svg").write_text(text, encoding="utf-8")
    return text[text.index("<svg") :]


class _unknown_letters_allowed(warnings.catch_warnings):
    """Letters that the font lacks are drawn as boxes, without a warning for each one."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
