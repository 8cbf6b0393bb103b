# SPDX-License-Identifier: MIT OR Apache-2.0
"""A run as an HTML page in one file: totals, causes with pictures, groups, and each case that did not pass."""

from __future__ import annotations

import base64
import itertools
import re
from collections import Counter
from collections.abc import Sequence

from conformance.cases import case_of
from conformance.explain import explain
from conformance.explain.drawing import picture
from conformance.outcome import Outcome, Result
from conformance.report import counts
from conformance.report.causes import Cause
from conformance.report.counts import MEANINGS, in_words, kind_of, reasons_of
from conformance.report.failure_list import quoted
from conformance.report.record import Report
from conformance.report.verdict import verdict
from conformance.run import Answer

MAX_PICTURES = 8
"""How many causes have a picture."""

MAX_BYTES = 150_000
"""The size of the largest picture."""

MAX_TRIED = 3
"""How many cases are drawn to find a picture that is small enough."""

MAX_WHOLE = 40
"""The length of a name's part that fits on a line of a telephone."""


def render(report: Report, causes: Sequence[Cause]) -> str:
    """A report and the causes of its failures as HTML."""
    plain = Outcome.PASSED, Outcome.UNSUPPORTED
    shown = [(cause, picture_of(cause.results) if k < MAX_PICTURES else "") for k, cause in enumerate(causes)]
    return rendered(
        "page.html.jinja",
        report=report,
        verdict=verdict(report, causes),
        tally=Counter(map(kind_of, report.entries.values())),
        groups=counts.rows([report]),
        bases=counts.basis_rows([report]),
        meanings=MEANINGS,
        causes=shown,
        failures={name: entry for name, entry in report.entries.items() if entry.outcome not in plain},
        unsupported=reasons_of(report, Outcome.UNSUPPORTED),
    )


def rendered(template: str, **values: object) -> str:
    """The text of a template of this folder."""
    import jinja2  # of the extra conformance
    import markupsafe

    def breakable(name: str) -> markupsafe.Markup:
        """A name in which a line may end after a slash or colon, and in a long part also after an underscore or a dot."""
        parts = re.split("(?<=[/:])", name)
        pieces = (re.split("(?<=[_.])", part) if len(part) > MAX_WHOLE else [part] for part in parts)
        return markupsafe.Markup("<wbr>").join(itertools.chain.from_iterable(pieces))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance", "report"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"in_words": in_words, "kind": kind_of, "breakable": breakable, "quoted": quoted}
    environment.filters |= {name: getattr(counts, name) for name in ("brief", "cell", "others", "total")}
    return environment.get_template(template).render(values)


def picture_of(results: Sequence[Result]) -> str:
    """A picture of one of these results, as a data URL with an SVG file; empty if the smallest cases have no small one."""
    drawable = [(case, result) for result in results if not (case := case_of(result)).expects_error]
    # Small inputs first, and gradients last, because their drawings show no pixels.
    drawable.sort(key=lambda pair: (pair[0].definition.is_gradient, pair[0].nbytes))
    for case, result in drawable[:MAX_TRIED]:
        answer = Answer("outputs", result.outputs) if result.outputs else None
        explained = explain(case, answer, result)
        if explained.drawing is not None:
            drawn = picture(case.id, explained.heading, [explained.drawing]).encode()
            if len(drawn) <= MAX_BYTES:
                return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"
    return ""
