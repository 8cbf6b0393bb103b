"""The page: one file without others and without scripts."""

from __future__ import annotations

import jinja2

from conformance.explain.explanation import Explanation


def render(explanation: Explanation) -> str:
    """An explanation as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "explain"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(explanation=explanation)
