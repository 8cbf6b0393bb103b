"""The least number of cases that a run must judge, so that no run passes because cases are skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Floor:
    """A number of cases that a run must judge. A case is judged unless it is unsupported.

    at_least: the number.
    select, exclude: globs of the ids of the cases that count, as `--select` and `--exclude` take them.
    """

    at_least: int
    select: str = "*"
    exclude: tuple[str, ...] = ()

    def __str__(self) -> str:
        excluded = "".join(f" without {glob}" for glob in self.exclude)
        return f"at least {self.at_least} judged cases in {self.select}{excluded}"

    def counted(self, ids: Collection[str]) -> set[str]:
        """The ids that count."""
        excluded = {case_id for glob in self.exclude for case_id in ids if fnmatchcase(case_id, glob)}
        return {case_id for case_id in ids if fnmatchcase(case_id, self.select)} - excluded

    def breach(self, outcomes: Mapping[str, Outcome], ids: Collection[str]) -> str:
        """A sentence if the run judged too few cases; empty if it judged enough, or did not run all cases that count.

        Args:
            outcomes: the outcomes of the run by case id.
            ids: the ids of all cases of the suite.
        """
        counted = self.counted(ids)
        judged = judged_of({case_id: outcomes[case_id] for case_id in counted & set(outcomes)})
        if judged >= self.at_least or not counted <= set(outcomes):
            return ""
        return f"{judged} of {len(counted)} cases were judged: must be at least {self.at_least}"


NOTHING_TESTED = "the backend supports none of the selected cases; nothing was tested"


def shortfalls(outcomes: Mapping[str, Outcome], floor: Floor | None, ids: Collection[str]) -> list[str]:
    """Why a run judged too few cases, as sentences: none, or fewer than the floor of its list. See `Floor.breach`."""
    breach = floor.breach(outcomes, ids) if floor else ""
    return [reason for reason in ("" if judged_of(outcomes) else NOTHING_TESTED, breach) if reason]


def judged_of(outcomes: Mapping[str, Outcome]) -> int:
    """How many of the cases were judged."""
    return sum(outcome is not Outcome.UNSUPPORTED for outcome in outcomes.values())
