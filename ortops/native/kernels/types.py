"""What is special to an operator in the entries of all operators (`pool`, `resample`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

from ortops.native.kernels.layout import MAX_PARAMETERS
from ortops.native.structs import POINTER, Struct
from ortops.native.types import Entry, Text

if TYPE_CHECKING:
    from ortops.native.elements import Address, Doubles, Words
    from ortops.native.kernels.layout import PlacedRois
    from ortops.native.types import Call

    PlaceRois: TypeAlias = Address[Callable[[Doubles, PlacedRois, Words], int]]
    PlaceBins: TypeAlias = Address[Callable[[PlacedRois, PlacedRois], int]]
    Refuse: TypeAlias = Address[Callable[[Call, "RoiEntry", int, int, Doubles, int], None]]
    RefuseToResample: TypeAlias = Address[Callable[[Call, "ResampleEntry"], None]]
else:
    PlaceRois = PlaceBins = Refuse = RefuseToResample = int


class Parameter(Struct):
    """A parameter of a function that places RoIs: the first value of an attribute, perhaps translated; or a constant.

    attribute: the attribute's number, or NONE.
    meanings: what each choice of the attribute means; or None, to take the value as it is.
    constant: the value without an attribute.
    """

    attribute: int
    meanings: Annotated[list[int] | None, POINTER]
    constant: int


class RoiEntry(Struct):
    """The entry of an operator on RoIs. Tensors are numbers among a call's tensors, or NONE.

    place_rois: places the samples of RoIs.
    place_bins: `axis.place_bins`.
    refuse: writes the text of an error (`refusals`).
    map, boxes, of_images: X, rois and batch_indices.
    has_lengths: whether the dimensions of X are the call's lengths.
    output: Y, or dY of a gradient.
    to_map, to_boxes: the outputs dX and drois of a gradient.
    columns: the number of a RoI's coordinates.
    interleaves: whether each bin reads its own channels.
    outside: the number of the attribute that gives samples off the map their value, or NONE.
    nearest: the number of the parameter that holds an interpolation rule, or NONE.
    parameters: those of `place_rois`.
    map_name, boxes_name, of_images_name, output_name: the names that errors give the tensors.
    """

    entry: Entry
    place_rois: PlaceRois
    place_bins: PlaceBins
    refuse: Refuse
    map: int
    has_lengths: int
    boxes: int
    of_images: int
    output: int
    to_map: int
    to_boxes: int
    columns: int
    interleaves: int
    outside: int
    nearest: int
    parameters: Annotated[list[Parameter], MAX_PARAMETERS]
    map_name: Text
    boxes_name: Text
    of_images_name: Text
    output_name: Text


class PerAxis(Struct):
    """An attribute that has a value for each axis, and the value for each if it has none."""

    attribute: int
    default: float


class ResampleEntry(Struct):
    """The entry of DmlResample or its gradient.

    refuse: `refusals.refuse_to_resample`.
    source, target: the numbers of the tensors to read and to fill.
    transposed: whether the entry computes the gradient.
    mode, linear: the number of interpolation_mode, and its value for linear interpolation.
    rounding, rules: the number of rounding_direction, and each value's interpolation rule.
    per_axis: scales, input offsets and output offsets.
    """

    entry: Entry
    refuse: RefuseToResample
    source: int
    target: int
    transposed: int
    mode: int
    linear: int
    rounding: int
    rules: Annotated[list[int], POINTER]
    per_axis: Annotated[list[PerAxis], 3]
