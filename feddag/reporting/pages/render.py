# SPDX-License-Identifier: Apache-2.0
"""From a template to HTML. Everything is escaped, for client and class names come from strangers.

A page is one file. Its policy lets exactly the scripts run that are named by their SHA-256, and lets nothing
be loaded from anywhere.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from feddag.core.text import printable
from feddag.reporting.colours import cluster_colour, ink_on
from feddag.reporting.pages.section import Plot

HERE = "feddag.reporting.pages"
# Nothing on a page without plots may run a script or load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Plotly makes the pictures that people save out of blob addresses.
INTERACTIVE = f"{POLICY} blob:; base-uri 'none'; form-action 'none'; script-src"
TRUSTED = frozenset({"hovertemplate", "texttemplate"})  # written by us, never made from names


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(HERE, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"cell": shown, "colour": cluster_colour, "ink": ink_on, "code": _code}
    return environment


def render(template: str, content: Mapping[str, Any]) -> str:
    """The HTML of a page without scripts."""
    return _environment().get_template(template).render(policy=Markup(POLICY), **content)


def render_text(template: str, content: Mapping[str, Any]) -> str:
    """A part of a page."""
    return _environment().get_template(template).render(**content)


def render_interactive(template: str, content: Mapping[str, Any]) -> str:
    """The HTML of a page with plots: plotly, our script and the plots' data are inside."""
    sources = {"plotly": plotly_script(), "page": static("plots.js") + static("page.js")}
    names = " ".join(f"'sha256-{_sha256(text)}'" for text in sources.values())
    inside = {
        "policy": Markup(f"{INTERACTIVE} {names}"),
        "style": Markup(static("page.css")),
        "script": Markup(sources["page"]),
        "plotly": Markup(packed_plotly()),
        "script_json": script_json,
    }
    return _environment().get_template(template).render(**inside, **content)


@cache
def static(name: str) -> str:
    """A style sheet or script of ours."""
    return (files(HERE) / "static" / name).read_text(encoding="utf-8")


@cache
def plotly_script() -> str:
    """The whole of plotly.js, as the Python package holds it."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def packed_plotly() -> str:
    """The same, packed to a third; the page unpacks it, and the policy checks the unpacked text."""
    return base64.b64encode(gzip.compress(plotly_script().encode(), 6, mtime=0)).decode()


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def script_json(value: Any) -> Markup:
    """JSON that can stand inside a script element: no character in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def plots_json(plots: Sequence[Plot]) -> list[dict[str, Any]]:
    """Plots as the page's script takes them. Plotly reads some HTML in texts, so every text is escaped."""
    return [
        {"data": _escaped(list(plot.data)), "layout": _escaped(dict(plot.layout)), "title": plot.title,
         "key": plot.key}
        for plot in plots
    ]  # fmt: skip


def _escaped(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        if key in TRUSTED:
            return value
        return printable(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if isinstance(value, Mapping):
        return {k: _escaped(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(v, key) for v in value]
    return value


def _code(text: str) -> Markup:
    """A text of several lines: each line is made printable, the line breaks stay."""
    return Markup("\n").join(printable(line) for line in text.split("\n"))


def shown(value: Any, kind: str) -> str:
    """A table's value for people."""
    if value is None or value == "":
        return "–"
    if kind == "percent":
        return f"{100 * value:.1f}%"
    if kind == "bytes":
        return human_bytes(value)
    if kind == "seconds":
        return human_seconds(value)
    if kind == "number" and not isinstance(value, str):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return str(value)


def human_bytes(count: float) -> str:
    """A number of bytes for people, with the unit that fits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:.0f} B"


def human_seconds(seconds: float) -> str:
    """A time for people, with the unit that fits."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
