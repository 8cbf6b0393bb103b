"""What comes back in any order, put in the order of numbers: then it does not matter who did what, nor when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.fuzz.check import Failure
from conformance.fuzz.tasks import MOST_ALIKE, Part
from conformance.fuzz.work import Found


class Parts:
    """Takes parts, and gives the cases that are to be made small: of each signature the first few."""

    def __init__(self) -> None:
        self.complete = 0
        """All cases below this are done."""
        self._waiting: dict[int, Part] = {}
        self._alike = Counter[tuple[str, ...]]()

    def add(self, part: Part) -> Iterator[Found]:
        """Those that are known to be the first, with this part."""
        self._waiting[part.first] = part
        while (following := self._waiting.pop(self.complete, None)) is not None:
            self.complete = following.stop
            yield from self._first_few(following)

    def rest(self) -> Iterator[Found]:
        """Those of parts before which something is missing, and will be."""
        for first in sorted(self._waiting):
            yield from self._first_few(self._waiting.pop(first))

    def _first_few(self, part: Part) -> Iterator[Found]:
        for found in part.found:
            self._alike[found.signature] += 1
            if self._alike[found.signature] <= MOST_ALIKE:
                yield found


class Failures:
    """Takes small failures by their place, and gives them by it, without those like an earlier one."""

    def __init__(self) -> None:
        self._waiting: dict[int, Failure] = {}
        self._place = 0
        self._seen: set[tuple[str, ...]] = set()

    def add(self, place: int, failure: Failure) -> Iterator[Failure]:
        """Those whose turn it is, with this one."""
        self._waiting[place] = failure
        while (following := self._waiting.pop(self._place, None)) is not None:
            self._place += 1
            if following.signature not in self._seen:
                self._seen.add(following.signature)
                yield following
