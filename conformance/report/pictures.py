"""What explains a failure, as pages store it: pieces of HTML, gzipped and in base64, equal ones once.

A browser inflates them when they are looked at. Element types, versions and backends share most of their pieces.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from dataclasses import replace

from conformance.case import Case
from conformance.explain import explain, page
from conformance.outcome import Difference, Result
from conformance.report.read import Entry
from conformance.run import Answer, judge

NODE = ("operator", "attributes", "inputs")
"""The facts that are told with the pictures; pages have the others where they name the case."""


class Pictures:
    """The pieces of a page, by number."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, case: Case, entry: Entry, backend: str) -> tuple[list[int], Difference | None]:
        """The numbers of the pieces that explain an entry, and the worst element of its outputs, if there is one."""
        answer = Answer("outputs", dict(entry.outputs)) if entry.outputs else None
        worst = judge(case, answer).worst if answer else None
        explanation = explain(case, None, answer, Result(case, entry.outcome, entry.message, worst), backend)
        node = {heading: explanation.facts[heading] for heading in NODE}
        return [self._number(piece) for piece in page.sections(replace(explanation, facts=node))], worst

    def _number(self, piece: str) -> int:
        data = piece.encode("utf-8")
        key = hashlib.sha256(data).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.packed)
            self.packed.append(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii"))
        return self._numbers[key]
