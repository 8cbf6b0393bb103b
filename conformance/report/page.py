"""The matrix as an HTML page in a single file: totals, causes with pictures, the table, and each case that did not pass."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from conformance.outcome import Outcome
from conformance.report.causes import Cause
from conformance.report.matrix import Matrix
from conformance.report.pictures import address_of
from conformance.report.tally import MEANINGS, in_words, kind_of, reasons_of

MAX_PICTURES = 8
"""How many causes of a report have a picture."""


def render(matrix: Matrix, causes: Mapping[str, Sequence[Cause]]) -> str:
    """A matrix as HTML, with the causes of failures by title of report."""
    import jinja2  # of the extra conformance
    import markupsafe

    def breakable(name: str) -> markupsafe.Markup:
        """A name that may be broken behind its punctuation marks, and nowhere else."""
        return markupsafe.Markup("<wbr>").join(re.split("(?<=[/_.:])", name))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"in_words": in_words, "kind": kind_of, "breakable": breakable}
    plain = Outcome.PASSED, Outcome.UNSUPPORTED
    reports = {report.title: report for report in matrix.reports}
    return environment.get_template("page.html.jinja").render(
        matrix=matrix,
        totals=zip(matrix.reports, matrix.total.cells, strict=True),
        meanings=MEANINGS,
        causes={
            title: [(cause, address_of(cause) if k < MAX_PICTURES else "") for k, cause in enumerate(found)]
            for title, found in causes.items()
        },
        failures={
            title: {name: entry for name, entry in report.entries.items() if entry.outcome not in plain}
            for title, report in reports.items()
        },
        unsupported={title: reasons_of(report, Outcome.UNSUPPORTED) for title, report in reports.items()},
    )
