"""The page: one file without others and without scripts. Its sections are fit for pages of many cases, too."""

from __future__ import annotations

import functools

import jinja2

from conformance.explain.explanation import Explanation

SECTIONS = ("facts", "places", "outputs", "coordinates")
"""The sections of a page: facts in words, where samples fall, expected and answered outputs, tables of coordinates."""


def render(explanation: Explanation) -> str:
    """An explanation as HTML."""
    return environment().get_template("page.html.jinja").render(explanation=explanation)


def sections(explanation: Explanation) -> tuple[str, ...]:
    """The `SECTIONS` as HTML, the empty ones left out. They want the style sheet of drawings.css."""
    macros = environment().get_template("sections.html.jinja").module
    texts = (str(getattr(macros, name)(explanation)).strip() for name in SECTIONS)
    return tuple(text for text in texts if text)


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of this folder, made once: to read them takes longer than to fill them."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "explain"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
