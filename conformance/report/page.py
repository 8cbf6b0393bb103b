"""A run as an HTML page in one file: totals, causes with pictures, groups, and each case that did not pass."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from conformance.outcome import Outcome
from conformance.report.causes import Cause
from conformance.report.matrix import Matrix
from conformance.report.pictures import address_of
from conformance.report.record import Report
from conformance.report.tally import MEANINGS, in_words, kind_of, reasons_of

MAX_PICTURES = 8
"""How many causes have a picture."""

MAX_WHOLE = 40
"""The length of a name's part that fits on a line of a telephone."""


def render(report: Report, causes: Sequence[Cause]) -> str:
    """A report and the causes of its failures as HTML."""
    import jinja2  # of the extra conformance
    import markupsafe

    def breakable(name: str) -> markupsafe.Markup:
        """A name in which a line may end after a slash or colon, and in a long part also after an underscore or a dot."""
        parts = re.split("(?<=[/:])", name)
        pieces = (re.split("(?<=[_.])", part) if len(part) > MAX_WHOLE else [part] for part in parts)
        return markupsafe.Markup("<wbr>").join(itertools.chain.from_iterable(pieces))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"in_words": in_words, "kind": kind_of, "breakable": breakable}
    plain = Outcome.PASSED, Outcome.UNSUPPORTED
    return environment.get_template("page.html.jinja").render(
        report=report,
        matrix=Matrix([report]),
        meanings=MEANINGS,
        causes=[(cause, address_of(cause) if k < MAX_PICTURES else "") for k, cause in enumerate(causes)],
        failures={name: entry for name, entry in report.entries.items() if entry.outcome not in plain},
        unsupported=reasons_of(report, Outcome.UNSUPPORTED),
    )
