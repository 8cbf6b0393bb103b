"""Near matches for a mistyped name, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_NAMES = 3


def meant(name: object, known: Iterable[str]) -> str:
    """The known names close to an unknown one, to append to it: " (weight or weights?)"; "" if there are none."""
    close = get_close_matches(name, list(known), _MAX_NAMES, 0.7) if isinstance(name, str) else []
    return f" ({' or '.join(close)}?)" if close else ""
