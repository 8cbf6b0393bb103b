"""The HTML page of an explanation, a single file without scripts. Pages of several cases reuse its sections."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from conformance.explain.explanation import Explanation

if TYPE_CHECKING:
    import jinja2

SECTIONS = ("facts", "places", "outputs", "coordinates")
"""The sections of a page: facts, drawings of the samples, outputs as heat maps, tables of coordinates."""


def render(explanation: Explanation) -> str:
    """An explanation as HTML."""
    return environment().get_template("page.html.jinja").render(explanation=explanation)


def sections(explanation: Explanation) -> tuple[str, ...]:
    """The `SECTIONS` that are not empty, as HTML. A page with them must include drawings.css."""
    macros = environment().get_template("sections.html.jinja").module
    texts = (str(getattr(macros, name)(explanation)).strip() for name in SECTIONS)
    return tuple(text for text in texts if text)


@functools.cache
def environment() -> jinja2.Environment:
    """The environment of this folder's templates. It is cached, since templates take longer to compile than to render."""
    import jinja2  # of the extra conformance

    return jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "explain"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
