"""One page without other files, for people."""

from __future__ import annotations

import jinja2

from conformance.outcome import Outcome
from conformance.report.run import Run


def render(run: Run) -> str:
    """A run as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.jinja").render(run=run, outcomes=list(Outcome))
