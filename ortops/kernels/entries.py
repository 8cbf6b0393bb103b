"""The records (`calls.records`) that configure the operators' entries and drivers.

An entry checks the data, places samples and calls drivers. `pool` has an entry for all poolings and one for their gradients;
`resample` has another. Drivers and the functions that fill tables are compiled once. Records give them the addresses of
specialised functions: loading and storing for each element type; arithmetic for float and double, and for each element type
where it reads single planes. Only this file knows how an operator's attributes choose these functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ortops.calls.layout import ATTRIBUTE_WORDS, ATTRIBUTES, DIMS, LENGTHS, TENSOR_WORDS, TENSORS
from ortops.calls.records import FunctionOf, Record, Word
from ortops.jit import python_api, tasks
from ortops.jit.elements import BFLOAT16, DOUBLE, FLOAT, FLOAT16, PANEL
from ortops.kernels import (
    argmax,
    average,
    axis,
    gather,
    maximum,
    pack,
    parts,
    pixel_bins,
    pool,
    refusals,
    resample,
    roi_tables,
    rotated,
    rotated_grid,
    rotated_tables,
    scatter,
    sliding,
    sums,
)
from ortops.kernels.layout import (
    ABOVE,
    BELOW,
    CANDIDATES,
    CEIL,
    EXTREMES,
    LISTS,
    MAX_PARAMETERS,
    NEAREST,
    PIXELS,
    TO_DROIS,
    TO_DX,
    TO_Y,
    WEIGHTS,
)
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    from ortops.kernels.functions import AddingToDrois, AddingToDx, Filling, Pooling

MAX_PIXELS, MAX_MAPS = 1 << 26, 16
"""The most work of one driver call for several RoIs: pixels to read plus bins to fill, or whole maps if they are larger.

No signal handler runs during a task, and a driver may pool all RoIs of an image in one task.
"""

MAX_LIST_BYTES = 16 << 20
"""The most bytes for the lists of one part, unless a single bin takes more. All panels of channels share the lists."""

KINDS: Mapping[str, int] = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float": FLOAT, "double": DOUBLE}
"""The element types that kernels compute."""

_NAMES = {kind: name for name, kind in KINDS.items()}


class Drivers(NamedTuple):
    """A node's driver records; 0 if the node never needs the driver.

    driver: fills Y or dX.
    of_rois: fills drois.
    """

    driver: Record
    of_rois: Record | Literal[0]


class Choices(NamedTuple):
    """An operator's drivers, and the attribute that chooses among them.

    row: the attribute's number, or -1 if no attribute decides.
    drivers: the drivers for each element type (`jit.elements`) and each value of the attribute, in the order of its choices.
    """

    row: int
    drivers: Mapping[int, Sequence[Drivers]]


Mode: TypeAlias = Literal["avg", "max", "max_interpolated", "max_pixel", "avg_rotated"]
"""The kind of pooling: average, largest weighted corner, largest sample, largest pixel, or average over rotated RoIs."""

_POOLING: Mapping[Mode, tuple[int, Pooling]] = {
    "avg": (WEIGHTS, average.average),
    "max": (EXTREMES, maximum.max_corner),
    "max_interpolated": (CANDIDATES, maximum.max_sample),
    "max_pixel": (PIXELS, maximum.max_pixel),
    "avg_rotated": (LISTS, rotated.average),
}
"""For each mode, the form of its tables and the function that applies them to panels and planes."""

_ADDING_TO_DX: Mapping[Mode, tuple[int, AddingToDx]] = {
    "avg": (WEIGHTS, average.add_gradient),
    "max": (CANDIDATES, argmax.add_to_max_corner),
    "max_interpolated": (CANDIDATES, argmax.add_to_max_sample),
    "max_pixel": (PIXELS, pixel_bins.add_to_argmax),
    "avg_rotated": (LISTS, rotated.add_gradient),
}
_ADDING_TO_DROIS: Mapping[Mode, tuple[int, AddingToDrois]] = {
    "avg": (WEIGHTS, average.add_box_gradient),
    "max": (CANDIDATES, argmax.add_drois_of_max_corner),
    "max_interpolated": (CANDIDATES, argmax.add_drois_of_max_sample),
}

_FILL: Mapping[int, Filling] = {
    WEIGHTS: roi_tables.fill_with_weights,
    EXTREMES: roi_tables.fill_with_extremes,
    CANDIDATES: roi_tables.fill_with_candidates,
    PIXELS: roi_tables.fill_with_pixels,
}


def _values_of(kind: int) -> int:
    """The element type's compute type: FLOAT or DOUBLE."""
    return max(kind, FLOAT)


@functools.cache
def _gather_of(mode: Mode, kind: int) -> Record:
    form, arithmetic = _POOLING[mode]
    return _driver(f"pool_{mode}", gather.gather, TO_Y, form, arithmetic, kind, kind)


@functools.cache
def _scatter_of(mode: Mode, kind: int) -> Record:
    form, arithmetic = _ADDING_TO_DX[mode]
    # An average's dX does not depend on the maps, so its planes have the compute type.
    of_planes = _values_of(kind) if form in (WEIGHTS, LISTS) else kind
    return _driver(f"dx_{mode}", scatter.scatter, TO_DX, form, arithmetic, kind, of_planes, _more_of_dx(mode, kind))


def _more_of_dx(mode: Mode, kind: int) -> tuple[Word, Word]:
    """The function that rounds the sums of several parts, and the driver that computes these sums."""
    return (FunctionOf(parts.add_up_in_float), _scatter_of(mode, FLOAT)) if kind < FLOAT else (0, 0)


@functools.cache
def _drois_of(mode: Mode, kind: int) -> Record:
    after: tuple[Word, Word] = FunctionOf(sums.round_sums, _NAMES[kind]), 0
    if mode == "avg_rotated":
        return _driver(
            "drois_avg_rotated", rotated.rotated_drois, TO_DROIS, LISTS, rotated.add_products, kind, kind, after
        )
    form, arithmetic = _ADDING_TO_DROIS[mode]
    return _driver(f"drois_{mode}", gather.gather_drois, TO_DROIS, form, arithmetic, kind, kind, after)


def _driver(
    name: str,
    drive: Any,
    role: int,
    form: int,
    arithmetic: Any,
    kind: int,
    of_planes: int,
    after: tuple[Word, Word] = (0, 0),
) -> Record:
    """The record of a driver for an element type; `layout` describes its words.

    Args:
        name: a part of the record's name.
        drive: the driver's function.
        role: the output that it fills. For drois, tables also hold derivatives with respect to the RoIs' coordinates.
        form: the form of the tables.
        arithmetic: the function that computes panels and planes.
        kind: the element type to load and store.
        of_planes: the element type of planes. Panels have the compute type.
        after: the words ROUND and OF_SUMS.
    """
    lists, element = form == LISTS, _NAMES[kind]
    numbers = DOUBLE if form == CANDIDATES or (lists and role == TO_DROIS) else _values_of(kind)
    words: list[Word] = [
        FunctionOf(drive),
        FunctionOf(parts.drive_with_lists if lists else parts.drive_in_parts),
        *((MAX_LIST_BYTES, 0) if lists else (MAX_PIXELS, MAX_MAPS)),
        *after,
        *(role, kind, form, int(role == TO_DROIS), numbers),
        FunctionOf(rotated_tables.share if lists else roi_tables.share),
        0 if lists else FunctionOf(_FILL[form]),
        FunctionOf(sliding.sort_by_first_row),
        FunctionOf(tasks.run_in_chunks),
        FunctionOf(python_api.signal_raised),
        *(FunctionOf(one, element) for one in (pack.pack, pack.unpack, pack.read, pack.write)),
        0 if lists and role == TO_DROIS else FunctionOf(arithmetic, _NAMES[_values_of(kind)] + PANEL),
        FunctionOf(arithmetic, _NAMES[of_planes]),
    ]
    return Record(f"{name}_{element}", words)


@functools.cache
def _resample_of(kind: int) -> Record:
    lines = [FunctionOf(one, _NAMES[kind]) for one in (resample.copy_lines, resample.sum_lines)]
    run = FunctionOf(tasks.run_in_chunks), FunctionOf(python_api.signal_raised)
    return Record(f"resample_{_NAMES[kind]}", [*lines, *run, *(0,) * 3, kind])


class _Roi(NamedTuple):
    """An operator on RoIs.

    place: the function that places its RoIs.
    parameters: the function's parameters: an attribute, an attribute with a number for each of its choices, or a constant.
    modes: the modes. If there are several, the attribute `mode` has as many choices, in the same order.
    mode: the attribute's name.
    names: the names of X, rois, batch_indices, and Y or dY.
    columns: the number of a RoI's coordinates.
    interleaves: whether each bin reads its own channels.
    outside: the attribute that gives samples off the map their value.
    """

    place: Any
    parameters: Sequence[str | tuple[str, Mapping[str, int]] | int]
    modes: Sequence[Mode]
    mode: str = ""
    names: Sequence[str] = ("X", "rois", "batch_indices", "dY")
    columns: int = 4
    interleaves: bool = False
    outside: str = ""


_HALF_PIXEL = "coordinate_transformation_mode", {"half_pixel": 1, "output_half_pixel": 0}
_ONNX_PARAMETERS = "spatial_scale", _HALF_PIXEL, "sampling_ratio"
_INTERPOLATION = "interpolation_mode", {"linear": CEIL, "nearest_neighbor": NEAREST}

_ROI_OPERATORS: Mapping[str, _Roi] = {
    "roi_align": _Roi(axis.place_onnx_rois, _ONNX_PARAMETERS, ("avg", "max", "max_interpolated"), "mode"),
    "ps_roi_align": _Roi(axis.place_onnx_rois, _ONNX_PARAMETERS, ("avg",), interleaves=True),
    "dml_roi_align": _Roi(
        axis.place_dml_regions,
        (
            *("spatial_scale_y", "spatial_scale_x", "input_pixel_offset", "output_pixel_offset"),
            *("minimum_samples_per_output", "maximum_samples_per_output", "align_regions_to_corners", _INTERPOLATION),
        ),
        ("avg", "max_interpolated"),
        "reduction_function",
        ("InputTensor", "ROITensor", "BatchIndicesTensor", "InputGradientTensor"),
        outside="out_of_bounds_input_value",
    ),
    "max_roi_pool": _Roi(pixel_bins.place_whole_rois, ("spatial_scale", MAX_COORDINATE), ("max_pixel",), columns=5),
    "roi_align_rotated": _Roi(
        rotated_grid.place_rotated_rois,
        ("spatial_scale", "aligned", "sampling_ratio", "clockwise"),
        ("avg_rotated",),
        columns=5,
    ),
}
"""The operators on RoIs, by `Operator.function` of the forward operator."""


ENTRIES = {name + suffix for name in (*_ROI_OPERATORS, "dml_resample") for suffix in ("", "_grad")}
"""The operators that have an entry, by `Operator.function`."""


def _row(operator: Operator, name: str) -> int:
    """An attribute's number, or -1 if the operator does not have the attribute."""
    return next((i for i, attribute in enumerate(operator.attributes) if attribute.name == name), -1)


def _value_at(operator: Operator, name: str) -> int:
    """The index of the node's word that holds an attribute's first value; 0 if the operator does not have the attribute."""
    row = _row(operator, name)
    return 0 if row < 0 else ATTRIBUTES + ATTRIBUTE_WORDS * row + 1


def _by_choice(operator: Operator, name: str, meanings: Mapping[str, int]) -> Record:
    choices = operator.attributes[_row(operator, name)].choices
    return Record(f"{operator.function}_{name}", [meanings[str(choice)] for choice in choices])


def _parameter(operator: Operator, parameter: str | tuple[str, Mapping[str, int]] | int) -> tuple[Word, Word]:
    """The words that describe a parameter of the function that places RoIs."""
    if isinstance(parameter, int):
        return 0, parameter
    if isinstance(parameter, str):
        return _value_at(operator, parameter), 0
    name, meanings = parameter
    if name in operator.constants:
        return 0, meanings[str(operator.constants[name])]
    return _value_at(operator, name), _by_choice(operator, name, meanings)


@functools.cache
def entry_of(operator: Operator) -> Record:
    """The record of an operator's entry; `layout` describes its words."""
    tensors = {
        tensor.name: TENSORS + TENSOR_WORDS * i for i, tensor in enumerate((*operator.inputs, *operator.outputs))
    }
    forward = operator.function.removesuffix("_grad")
    is_gradient = forward != operator.function
    if forward == "dml_resample":
        return _entry_of_resample(operator, tensors, is_gradient)
    roi = _ROI_OPERATORS[forward]
    x, rois, of_images, output = roi.names
    out = list(tensors.values())[len(operator.inputs) :]
    words: list[Word] = [
        FunctionOf(pool.pool_gradient if is_gradient else pool.pool),
        "out of memory for the workspace of a RoI",
        FunctionOf(roi.place),
        FunctionOf(axis.place_bins),
        FunctionOf(refusals.refuse_rois),
        tensors[x],
        LENGTHS if any(tensor.element_axes for tensor in operator.inputs) else tensors[x] + DIMS,
        *(tensors[rois], tensors.get(of_images, 0)),
        *((tensors[output], out[0], out[1] if len(out) > 1 else 0) if is_gradient else (out[0], 0, 0)),
        *(roi.columns, int(roi.interleaves), _value_at(operator, roi.outside)),
        next((i for i, one in enumerate(roi.parameters) if one is _INTERPOLATION), -1),
    ]
    for parameter in (*roi.parameters, *(0,) * (MAX_PARAMETERS - len(roi.parameters))):
        words += _parameter(operator, parameter)
    return Record(f"entry_{operator.name}", [*words, *roi.names])


def _entry_of_resample(operator: Operator, tensors: Mapping[str, int], is_gradient: bool) -> Record:
    source, *_, target = tensors.values()
    mode = operator.attributes[_row(operator, "interpolation_mode")]
    rules = {"half_up": NEAREST, "increasing": ABOVE, "decreasing": BELOW}
    words: list[Word] = [
        FunctionOf(resample.resample),
        "out of memory for a line of the tensor",
        *(0, 0, FunctionOf(refusals.refuse_to_resample)),
        *(source, target, int(is_gradient)),
        *(_value_at(operator, mode.name), mode.choices.index("linear")),
        *(_value_at(operator, "rounding_direction"), _by_choice(operator, "rounding_direction", rules)),
        *(_value_at(operator, "scales") - 1, 0.0),
        *(_value_at(operator, "input_pixel_offsets") - 1, INPUT_PIXEL_OFFSET),
        *(_value_at(operator, "output_pixel_offsets") - 1, OUTPUT_PIXEL_OFFSET),
    ]
    return Record(f"entry_{operator.name}", words)


@functools.cache
def drivers_of(operator: Operator) -> Choices:
    """The drivers of an operator's nodes."""
    forward = operator.function.removesuffix("_grad")
    kinds = [KINDS[name] for name in next(iter(operator.types.values()))]
    if forward == "dml_resample":
        return Choices(-1, {kind: (Drivers(_resample_of(kind), 0),) for kind in kinds})
    roi, fill = _ROI_OPERATORS[forward], _gather_of
    if forward != operator.function:
        fill = _scatter_of
    of_rois: Callable[[Mode, int], Record | Literal[0]] = _drois_of if len(operator.outputs) > 1 else lambda *_: 0
    return Choices(
        _row(operator, roi.mode),
        {kind: [Drivers(fill(mode, kind), of_rois(mode, kind)) for mode in roi.modes] for kind in kinds},
    )


def drivers_for(operator: Operator, attributes: Mapping[str, AttributeValue], kind: int) -> Drivers:
    """A node's drivers, chosen by an attribute and the element type."""
    row, drivers = drivers_of(operator)
    attribute = operator.attributes[row]
    return drivers[kind][0 if row < 0 else attribute.choices.index(attributes[attribute.name])]
