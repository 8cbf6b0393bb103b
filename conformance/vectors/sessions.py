"""How a session is created and run: several times, with symbolic dimensions, and with constant inputs.

The RoIs are crops, whose results have a closed form (`crops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.model import with_named_axes
from conformance.vectors import crops
from conformance.vectors.crops import Crop, reversed_channels
from conformance.vectors.matrix import OF_MODE

CROP = Crop((2, 3, 6, 7), ((1, 0, 1), (0, 2, 3)))
OTHERS = (
    ("of_the_same_sizes", replace(CROP, windows=((0, 1, 0), (1, 3, 2)))),
    ("smaller", Crop((1, 2, 4, 5), ((0, 1, 2),))),
    ("larger", Crop((3, 40, 9, 20), ((2, 5, 17), (0, 2, 3), (1, 0, 0), (2, 6, 8), (1, 1, 1)))),
    ("without_rois", Crop((1, 3, 6, 7), ())),
)
ANOTHER_MAP = (
    "session/after_another_map",
    "the second call of a session; the first had the same RoIs and sizes, and another map",
)
CONSTANTS = {
    "map": ("X", "InputTensor"),
    "rois": ("rois", "ROITensor"),
    "batch_indices": ("batch_indices", "BatchIndicesTensor"),
    "x_shape": ("x_shape",),
    "rois_and_batch_indices": ("rois", "batch_indices", "ROITensor", "BatchIndicesTensor"),
}
"""The inputs that are constants of the model, by scenario."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scenario, other) in enumerate(OTHERS):
        mode = list(OF_MODE)[turn % len(OF_MODE)]
        note = f"the second call of a session; the tensors of the first were {scenario.replace('_', ' ')}"
        yield from _in_one_session(f"session/after_{scenario}", note, mode, (other,))
    for mode in OF_MODE:
        asked, before = (
            crops.cases(*ANOTHER_MAP, replace(CROP, mode=mode), types=["float"], change=change)
            for change in (dict, reversed_channels)
        )
        yield from in_one_session(asked, [before])
    note = "the fifth call of a session, after calls with other sizes; the first had the same inputs"
    yield from _in_one_session("session/again", note, "avg", (CROP, *(other for _, other in OTHERS[1:])))
    yield from single_calls(_of_crop, "{} given as a constant of the model")


def single_calls(make: Callable[..., Iterable[Case]], note: str) -> Iterator[Case]:
    """Cases with symbolic dimensions and constant inputs.

    Args:
        make: makes the cases of a scenario, given its name, a note and further fields of `Case`.
        note: that of constants.
    """
    yield from map(with_named_axes, make("named_lengths", "a model with symbolic dimensions"))
    for scenario, names in CONSTANTS.items():
        for case in make(f"constant_{scenario}", note.format(scenario.replace("_", " "))):
            constants = tuple(name for name in case.inputs if name in names)
            if constants:
                yield replace(case, initializers=constants)


def _of_crop(scenario: str, note: str, **rest: Any) -> Iterator[Case]:
    return crops.cases(f"session/{scenario}", note, CROP, types=["float"], **rest)


def _in_one_session(scenario: str, note: str, mode: str, earlier: tuple[Crop, ...]) -> Iterator[Case]:
    """The cases of `CROP`, run after other inputs in the same session; all share the node's bins and attributes."""
    asked, *calls = (
        crops.cases(scenario, note, replace(crop, mode=mode), types=["float"]) for crop in (CROP, *earlier)
    )
    yield from in_one_session(asked, calls)


def in_one_session(asked: Iterable[Case], earlier: Iterable[Iterable[Case]]) -> Iterator[Case]:
    """The cases, each run after the earlier calls of its operator in the same session; attributes must agree."""
    before = [{case.operator: case.inputs for case in call} for call in earlier]
    for case in asked:
        yield replace(with_named_axes(case), before=tuple(inputs[case.operator] for inputs in before))
