# SPDX-License-Identifier: MIT OR Apache-2.0
"""How a session is created and run: several times, with symbolic dimensions, and with constant inputs.

The RoIs are exact ones, whose results have a closed form (`exact_rois.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from conformance.case import Basis, Case, scenario_of
from conformance.cases import exact_rois
from conformance.cases.every_attribute import OF_MODE
from conformance.cases.exact_rois import ExactRois, reversed_channels
from conformance.cases.make import of_scene
from conformance.cases.scenes import Scene
from conformance.model import with_named_axes

TWO_THREADS = "two_threads"
"""The scenario whose calls are made by two threads."""

CROP = ExactRois((2, 3, 6, 7), ((1, 0, 1), (0, 2, 3)))
FINE = Scene(
    "",
    60,
    "",
    CROP.x_shape,
    ((20.546875, 17.671875, 85.328125, 70.859375, 1), (33.796875, 9.296875, 60.171875, 79.578125, 0)),
    CROP.bins,
    2,
    1 / 16,
)
OTHERS = (
    ("of_the_same_sizes", replace(CROP, windows=((0, 1, 0), (1, 3, 2)))),
    ("smaller", ExactRois((1, 2, 4, 5), ((0, 1, 2),))),
    ("larger", ExactRois((3, 40, 9, 20), ((2, 5, 17), (0, 2, 3), (1, 0, 0), (2, 6, 8), (1, 1, 1)))),
    ("without_rois", ExactRois((1, 3, 6, 7), ())),
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

Make = Callable[[str, str, ExactRois], Iterable[Case]]
"""A function that makes the cases of a scenario, given the part `family/scenario` of their ids, a note and a crop."""


def _call(turn: int, count: int, x_shape: tuple[int, int, int, int] = CROP.x_shape) -> ExactRois:
    """A call with other numbers at each turn, and this many RoIs on a map of this shape."""
    images, _, height, width = x_shape
    windows = (((turn + r) % images, (turn + r) % (height - 2), (turn + 2 * r) % (width - 2)) for r in range(count))
    return ExactRois(x_shape, tuple(windows), turn=turn)


def _one_at_a_time() -> Iterator[ExactRois]:
    """Calls in which one length grows, then the next one, and so on, and afterwards each one shrinks."""
    lengths = [*CROP.x_shape, 2]
    for turn, step in enumerate((1,) * len(lengths) + (-1,) * len(lengths)):
        yield _call(turn, lengths[-1], (lengths[0], lengths[1], lengths[2], lengths[3]))
        lengths[turn % len(lengths)] += step
    yield _call(turn + 1, lengths[-1], CROP.x_shape)


SEVERAL = (
    (
        "numbers_of_rois",
        "calls with 5, 2, 3, 3 and no RoIs, and else the same sizes, as in a detector",
        tuple(_call(turn, count) for turn, count in enumerate((5, 2, 3, 3, 0))),
    ),
    (
        "four_of_the_same_sizes",
        "four calls with the same sizes and other numbers",
        tuple(_call(n, 3) for n in range(4)),
    ),
    ("lengths_one_at_a_time", "calls in which one length at a time grows or shrinks", tuple(_one_at_a_time())),
    (
        TWO_THREADS,
        "two threads run one session at the same time",
        tuple(_call(turn, (9, 9, 4, 9)[turn % 4], (2, 8, 12, 12)) for turn in range(8)),
    ),
)
"""A name, a note and the calls of each scenario of several calls that are all of interest."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for turn, (scenario, other) in enumerate(OTHERS):
        mode = list(OF_MODE)[turn % len(OF_MODE)]
        note = f"the second call of a session; the tensors of the first were {scenario.replace('_', ' ')}"
        yield from _in_one_session(f"session/after_{scenario}", note, mode, (other,))
    for mode in OF_MODE:
        asked, before = (
            exact_rois.cases(*ANOTHER_MAP, replace(CROP, mode=mode), types=["float"], change=change)
            for change in (dict, reversed_channels)
        )
        yield from in_one_session(asked, [before])
    note = "the fifth call of a session, after calls with other sizes; the first had the same inputs"
    yield from _in_one_session("session/again", note, "avg", (CROP, *(other for _, other in OTHERS[1:])))
    yield from several_calls(partial(exact_rois.cases, types=["float"]))
    yield from single_calls(_of_fine_rois, "{} given as a constant of the model")


def several_calls(make: Make) -> Iterator[Case]:
    """The cases of `SEVERAL` for operators with RoIs."""
    for scenario, note, calls in SEVERAL:
        *before, asked = (list(make(f"session/{scenario}", note, crop)) for crop in calls)
        yield from in_one_session(asked, before)


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


def _of_fine_rois(scenario: str, note: str) -> Iterator[Case]:
    """The cases of RoIs that float16 would move, and in double also float32."""
    scene = replace(FINE, name=scenario, note=note)
    for element_type, more in (("float", 0.0), ("double", 2.0**-26)):
        tensors = {"rois": scene.tensors["rois"] + more}
        yield from of_scene(
            "session", scene, ["y", "dx", "drois"], "avg", "output_half_pixel", tensors, types=[element_type]
        )


def _in_one_session(scenario: str, note: str, mode: str, earlier: tuple[ExactRois, ...]) -> Iterator[Case]:
    """The cases of `CROP`, run after other inputs in the same session; all share the node's bins and attributes."""
    asked, *calls = (
        exact_rois.cases(scenario, note, replace(crop, mode=mode), types=["float"]) for crop in (CROP, *earlier)
    )
    yield from in_one_session(asked, calls)


def in_one_session(asked: Iterable[Case], earlier: Iterable[Iterable[Case]]) -> Iterator[Case]:
    """The cases, each run after the earlier calls of its operator in the same session; attributes must agree.

    That two threads may run a session at once, as those of `TWO_THREADS` do, is this project's rule.
    """
    before = [{case.operator: case for case in call} for call in earlier]
    for case in asked:
        is_at_once = scenario_of(case.id).endswith(TWO_THREADS)
        yield replace(
            with_named_axes(case),
            before=tuple(calls[case.operator] for calls in before),
            is_at_once=is_at_once,
            basis=Basis.OURS if is_at_once else case.basis,
        )
