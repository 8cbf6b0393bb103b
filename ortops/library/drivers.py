# SPDX-License-Identifier: MIT
"""What configures the operators' entries and drivers.

An entry checks the data, places samples and calls drivers. `pool` has an entry for all poolings and one for their gradients;
`resample` has another. Drivers and the functions that fill tables are compiled once. Constants give them the addresses of
specialised functions: loading and storing for each element type; arithmetic for float and double, and for each element type
where it reads single planes. Only this file knows how an operator's attributes choose these functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from ortops.native import python_api, tasks
from ortops.native.constants import Constant, FunctionOf
from ortops.native.elements import BFLOAT16, DOUBLE, FLOAT, FLOAT16, PANEL
from ortops.native.kernels import (
    argmax,
    attention,
    attention_points,
    average,
    axis,
    error_texts,
    gather,
    layout,
    maximum,
    pack,
    parts,
    pixel_bins,
    pool,
    resample,
    roi_tables,
    rotated,
    rotated_grid,
    rotated_tables,
    scatter,
    sliding,
    sums,
)
from ortops.native.kernels.functions import (
    AddingToDrois,
    AddingToDx,
    AttentionDriver,
    Driver,
    Filling,
    Functions,
    Pooling,
    ResampleDriver,
)
from ortops.native.kernels.types import Parameter, PerAxis, ResampleEntry, RoiEntry
from ortops.native.types import NONE, Entry
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.spec import Operator

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
    """A node's drivers.

    driver: fills Y or dX.
    drois_driver: fills drois; None if the node never needs it.
    """

    driver: Constant
    drois_driver: Constant | None


class Choices(NamedTuple):
    """An operator's drivers, and the attribute that chooses among them.

    row: the attribute's number, or NONE if no attribute decides.
    drivers: the drivers for each element type and each value of the attribute, in the order of its choices.
    """

    row: int
    drivers: Mapping[int, Sequence[Drivers]]


Mode: TypeAlias = Literal["avg", "max", "max_interpolated", "max_pixel", "avg_rotated"]
"""The kind of pooling: average, largest weighted corner, largest sample, largest pixel, or average over rotated RoIs."""

_POOLING: Mapping[Mode, tuple[int, Pooling]] = {
    "avg": (layout.WEIGHTS, average.average),
    "max": (layout.EXTREMES, maximum.max_corner),
    "max_interpolated": (layout.CANDIDATES, maximum.max_sample),
    "max_pixel": (layout.PIXELS, maximum.max_pixel),
    "avg_rotated": (layout.LISTS, rotated.average),
}
"""For each mode, the form of its tables and the function that applies them to panels and planes."""

_ADDING_TO_DX: Mapping[Mode, tuple[int, AddingToDx]] = {
    "avg": (layout.WEIGHTS, average.add_gradient),
    "max": (layout.CANDIDATES, argmax.add_to_max_corner),
    "max_interpolated": (layout.CANDIDATES, argmax.add_to_max_sample),
    "max_pixel": (layout.PIXELS, pixel_bins.add_to_argmax),
    "avg_rotated": (layout.LISTS, rotated.add_gradient),
}
_ADDING_TO_DROIS: Mapping[Mode, tuple[int, AddingToDrois]] = {
    "avg": (layout.WEIGHTS, average.add_box_gradient),
    "max": (layout.CANDIDATES, argmax.add_drois_of_max_corner),
    "max_interpolated": (layout.CANDIDATES, argmax.add_drois_of_max_sample),
}

_FILL: Mapping[int, Filling] = {
    layout.WEIGHTS: roi_tables.fill_with_weights,
    layout.EXTREMES: roi_tables.fill_with_extremes,
    layout.CANDIDATES: roi_tables.fill_with_candidates,
    layout.PIXELS: roi_tables.fill_with_pixels,
}


def _values_of(kind: int) -> int:
    """The element type's compute type: FLOAT or DOUBLE."""
    return max(kind, FLOAT)


@functools.cache
def _gather_of(mode: Mode, kind: int) -> Constant:
    form, arithmetic = _POOLING[mode]
    return _driver(gather.gather, layout.TO_Y, form, arithmetic, kind, kind)


@functools.cache
def _scatter_of(mode: Mode, kind: int) -> Constant:
    form, arithmetic = _ADDING_TO_DX[mode]
    # An average's dX does not depend on the maps, so its planes have the compute type.
    plane_kind = _values_of(kind) if form in (layout.WEIGHTS, layout.LISTS) else kind
    sums_driver = _scatter_of(mode, FLOAT) if kind < FLOAT else None
    return _driver(scatter.scatter, layout.TO_DX, form, arithmetic, kind, plane_kind, sums_driver)


@functools.cache
def _drois_of(mode: Mode, kind: int) -> Constant:
    if mode == "avg_rotated":
        return _driver(rotated.rotated_drois, layout.TO_DROIS, layout.LISTS, rotated.add_products, kind, kind)
    form, arithmetic = _ADDING_TO_DROIS[mode]
    return _driver(gather.gather_drois, layout.TO_DROIS, form, arithmetic, kind, kind)


def _driver(
    drive: Any, role: int, form: int, arithmetic: Any, kind: int, plane_kind: int, sums_driver: Constant | None = None
) -> Constant:
    """A driver for an element type.

    Args:
        drive: the driver's function.
        role: the output that it fills. For drois, tables also hold derivatives with respect to the RoIs' coordinates.
        form: the form of the tables.
        arithmetic: the function that computes panels and planes.
        kind: the element type to load and store.
        plane_kind: the element type of planes. Panels have the compute type.
        sums_driver: the driver that adds up a 16-bit type's dX in parts.
    """
    lists, element, is_of_rois = form == layout.LISTS, _NAMES[kind], role == layout.TO_DROIS
    return Constant(
        Driver,
        drive=FunctionOf(drive),
        in_parts=FunctionOf(parts.drive_with_lists if lists else parts.drive_in_parts),
        part_work=MAX_LIST_BYTES if lists else MAX_PIXELS,
        part_maps=0 if lists else MAX_MAPS,
        add_up=FunctionOf(parts.add_up_in_float) if sums_driver else 0,
        of_sums=sums_driver,
        round_sums=FunctionOf(sums.round_sums, element) if is_of_rois else 0,
        role=role,
        kind=kind,
        form=form,
        with_grad=is_of_rois,
        numbers=DOUBLE if form == layout.CANDIDATES or (lists and is_of_rois) else _values_of(kind),
        functions=Constant(
            Functions,
            share=FunctionOf(rotated_tables.share if lists else roi_tables.share),
            fill=0 if lists else FunctionOf(_FILL[form]),
            sort=FunctionOf(sliding.sort_by_first_row),
            run=_RUN,
            stop=_STOP,
            pack=FunctionOf(pack.pack, element),
            unpack=FunctionOf(pack.unpack, element),
            read=FunctionOf(pack.read, element),
            write=FunctionOf(pack.write, element),
            panel=0 if lists and is_of_rois else FunctionOf(arithmetic, _NAMES[_values_of(kind)] + PANEL),
            plane=FunctionOf(arithmetic, _NAMES[plane_kind]),
        ),
    )


_RUN, _STOP = FunctionOf(tasks.run_in_chunks), FunctionOf(python_api.signal_raised)


@functools.cache
def _resample_of(kind: int) -> Constant:
    copy_lines, sum_lines = (
        FunctionOf(function, _NAMES[kind]) for function in (resample.copy_lines, resample.sum_lines)
    )
    return Constant(ResampleDriver, copy_lines=copy_lines, sum_lines=sum_lines, run=_RUN, stop=_STOP, kind=kind)


@functools.cache
def _attention_of(kind: int) -> Constant:
    functions = attention_points.attend, attention_points.attend_gradient, attention_points.scatter
    attend, attend_gradient, scattered = (FunctionOf(function, _NAMES[kind]) for function in functions)
    return Constant(
        AttentionDriver,
        attend=attend,
        attend_gradient=attend_gradient,
        scatter=scattered,
        run=_RUN,
        stop=_STOP,
        kind=kind,
    )


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
_INTERPOLATION = "interpolation_mode", {"linear": layout.CEIL, "nearest_neighbor": layout.NEAREST}

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


ENTRIES = {name + suffix for name in (*_ROI_OPERATORS, "dml_resample", "ms_deform_attn") for suffix in ("", "_grad")}
"""The operators that have an entry, by `Operator.function`."""


def _row(operator: Operator, name: str) -> int:
    """An attribute's number, or NONE if the operator does not have the attribute."""
    return next((i for i, attribute in enumerate(operator.attributes) if attribute.name == name), NONE)


def _by_choice(operator: Operator, name: str, meanings: Mapping[str, int]) -> list[int]:
    return [meanings[str(choice)] for choice in operator.attributes[_row(operator, name)].choices]


def _parameter(operator: Operator, parameter: str | tuple[str, Mapping[str, int]] | int) -> Constant:
    """A parameter of the function that places RoIs."""
    attribute, meanings, constant = NONE, None, 0
    if isinstance(parameter, int):
        constant = parameter
    elif isinstance(parameter, str):
        attribute = _row(operator, parameter)
    elif parameter[0] in operator.constants:
        constant = parameter[1][str(operator.constants[parameter[0]])]
    else:
        attribute, meanings = _row(operator, parameter[0]), _by_choice(operator, *parameter)
    return Constant(Parameter, attribute=attribute, meanings=meanings, constant=constant)


@functools.cache
def entry_of(operator: Operator) -> Constant:
    """An operator's entry."""
    tensors = {tensor.name: i for i, tensor in enumerate((*operator.inputs, *operator.outputs))}
    forward = operator.function.removesuffix("_grad")
    is_gradient = forward != operator.function
    if forward == "dml_resample":
        return _entry_of_resample(operator, tensors, is_gradient)
    if forward == "ms_deform_attn":
        enter = attention.attention_gradient if is_gradient else attention.attention
        return _entry(enter, "out of memory for the maps of a head")
    roi = _ROI_OPERATORS[forward]
    x, rois, batch_indices, output = roi.names
    first = len(operator.inputs)
    return Constant(
        RoiEntry,
        entry=_entry(pool.pool_gradient if is_gradient else pool.pool, "out of memory for the workspace of a RoI"),
        place_rois=FunctionOf(roi.place),
        place_bins=FunctionOf(axis.place_bins),
        write_error=FunctionOf(error_texts.write_rois_error),
        x=tensors[x],
        has_lengths=any(tensor.element_axes for tensor in operator.inputs),
        rois=tensors[rois],
        batch_indices=tensors.get(batch_indices, NONE),
        output=tensors[output] if is_gradient else first,
        dx=first if is_gradient else NONE,
        drois=first + 1 if is_gradient and len(operator.outputs) > 1 else NONE,
        columns=roi.columns,
        interleaves=roi.interleaves,
        outside=_row(operator, roi.outside),
        nearest=next((i for i, parameter in enumerate(roi.parameters) if parameter is _INTERPOLATION), NONE),
        parameters=[
            _parameter(operator, parameter)
            for parameter in (*roi.parameters, *(0,) * (layout.MAX_PARAMETERS - len(roi.parameters)))
        ],
        x_name=x,
        rois_name=rois,
        batch_indices_name=batch_indices,
        output_name=output,
    )


def _entry(enter: Any, short_of_memory: str) -> Constant:
    return Constant(Entry, enter=FunctionOf(enter), short_of_memory=short_of_memory)


def _entry_of_resample(operator: Operator, tensors: Mapping[str, int], is_gradient: bool) -> Constant:
    source, *_, target = tensors.values()
    mode = operator.attributes[_row(operator, "interpolation_mode")]
    defaults = {"scales": 0.0, "input_pixel_offsets": INPUT_PIXEL_OFFSET, "output_pixel_offsets": OUTPUT_PIXEL_OFFSET}
    return Constant(
        ResampleEntry,
        entry=_entry(resample.resample, "out of memory for a line of the tensor"),
        write_error=FunctionOf(error_texts.write_resample_error),
        source=source,
        target=target,
        transposed=is_gradient,
        mode=_row(operator, mode.name),
        linear=mode.choices.index("linear"),
        rounding=_row(operator, "rounding_direction"),
        rules=_by_choice(
            operator,
            "rounding_direction",
            {"half_up": layout.NEAREST, "increasing": layout.ABOVE, "decreasing": layout.BELOW},
        ),
        per_axis=[
            Constant(PerAxis, attribute=_row(operator, name), default=default) for name, default in defaults.items()
        ],
    )


@functools.cache
def drivers_of(operator: Operator) -> Choices:
    """The drivers of an operator's nodes."""
    forward = operator.function.removesuffix("_grad")
    kinds = [KINDS[name] for name in next(iter(operator.types.values()))]
    if forward == "dml_resample":
        return Choices(NONE, {kind: (Drivers(_resample_of(kind), None),) for kind in kinds})
    if forward == "ms_deform_attn":
        return Choices(NONE, {kind: (Drivers(_attention_of(kind), None),) for kind in kinds})
    roi, fill = _ROI_OPERATORS[forward], _gather_of
    if forward != operator.function:
        fill = _scatter_of
    drois_driver_of: Callable[[Mode, int], Constant | None] = (
        _drois_of if len(operator.outputs) > 1 else lambda *_: None
    )
    return Choices(
        _row(operator, roi.mode),
        {kind: [Drivers(fill(mode, kind), drois_driver_of(mode, kind)) for mode in roi.modes] for kind in kinds},
    )
