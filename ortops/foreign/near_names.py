# SPDX-License-Identifier: MIT
"""Names that a mistyped name may mean, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_MAX_NAMES = 3


def near_names(name: object, known: Iterable[str]) -> list[str]:
    """At most three known names that differ from a name by case, by a prefix, or by at most two letters; nearest first."""
    if not isinstance(name, str):
        return []
    distances = {other: _distance(name.casefold(), other.casefold()) for other in known}
    near = (other for other, distance in distances.items() if distance <= min(2, len(name) // 3))
    return sorted(near, key=distances.__getitem__)[:_MAX_NAMES]


def meant(name: object, known: Iterable[str]) -> str:
    """The known names close to an unknown one, to append to it: " (weight or weights?)"; "" if there are none."""
    close = near_names(name, known)
    return f" ({' or '.join(close)}?)" if close else ""


def _distance(name: str, other: str) -> int:
    """The number of letters that differ; 0 for a prefix of one of the names, if the rest has three letters or more."""
    shorter, longer = sorted((name, other), key=len)
    if longer.endswith(shorter) and len(shorter) >= 3:
        return 0
    same = sum(block.size for block in SequenceMatcher(None, name, other, autojunk=False).get_matching_blocks())
    return len(longer) - same
