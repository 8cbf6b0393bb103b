# SPDX-License-Identifier: MIT
"""The documents of this project. `python -m docs` writes those that are generated: operators.md, and all of images/."""

from __future__ import annotations

from typing import Any

import jinja2


def template(name: str, **filters: Any) -> jinja2.Template:
    """Return a template of a document, docs/templates/NAME.jinja, with further filters."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("docs"),
        autoescape=False,  # noqa: S701  # Markdown, of our own texts
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(f"{name}.jinja")
