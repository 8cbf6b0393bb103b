"""Heat colours, all light enough for black text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

_WHITE, _BLUE, _RED, _NONE = (255, 255, 255), (112, 168, 224), (232, 128, 112), "#d4d4d4"

Colour = Callable[[float], str]


def sequential(values: Iterable[float]) -> Colour:
    """From white at the least finite value to blue at the largest; grey for what is not finite."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    half = high / 2 - low / 2

    def colour(value: float) -> str:
        return _mixed(_BLUE, (value / 2 - low / 2) / half if half > 0 else 0.0) if math.isfinite(value) else _NONE

    return colour


def diverging(values: Iterable[float]) -> Colour:
    """Blue below 0, white at 0, red above; grey for what is not finite."""
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)

    def colour(value: float) -> str:
        if not math.isfinite(value):
            return _NONE
        return _mixed(_RED if value > 0 else _BLUE, abs(value) / most if most > 0 else 0.0)

    return colour


def _mixed(end: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(_WHITE, end, strict=True))
