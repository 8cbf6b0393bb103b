"""The matrix as an HTML page in a single file: the table, the diagnoses, and each case that did not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.outcome import Outcome
from conformance.report.matrix import Matrix
from conformance.report.tally import MEANINGS, in_words, kind_of

if TYPE_CHECKING:
    from conformance.diagnosis import Diagnosis


def render(matrix: Matrix, diagnoses: Mapping[str, Sequence[Diagnosis]] | None = None) -> str:
    """A matrix as HTML, with the diagnoses by title of report."""
    import jinja2  # of the extra conformance

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"in_words": in_words, "kind": kind_of}
    plain = Outcome.PASSED, Outcome.UNSUPPORTED
    return environment.get_template("page.html.jinja").render(
        matrix=matrix,
        meanings=MEANINGS,
        diagnoses=diagnoses or {},
        failures={
            report.title: {name: entry for name, entry in report.entries.items() if entry.outcome not in plain}
            for report in matrix.reports
        },
        unsupported={
            report.title: Counter(e.message for e in report.entries.values() if e.outcome is Outcome.UNSUPPORTED)
            for report in matrix.reports
        },
    )
