# SPDX-License-Identifier: Apache-2.0
"""From a template to HTML. Everything is escaped, for client and class names come from strangers."""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from feddag.core.text import printable

# Nothing on a page may run a script or load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("feddag.reporting.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )


def render(template: str, content: dict[str, Any]) -> str:
    """The HTML of a page."""
    return _environment().get_template(template).render(policy=Markup(POLICY), **content)
