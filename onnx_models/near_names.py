"""Near matches for a mistyped name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable

from ortops.foreign.near_names import near_names


def meant(name: object, known: Iterable[str]) -> str:
    """The known names close to an unknown one, to append to it: " (weight or weights?)"; "" if there are none."""
    close = near_names(name, known)
    return f" ({' or '.join(close)}?)" if close else ""
