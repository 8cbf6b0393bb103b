# SPDX-License-Identifier: MIT
"""What is special to an operator in the entries of all operators (`pool`, `resample`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from ortops.native.elements import Address, Doubles, Words
from ortops.native.kernels.layout import MAX_PARAMETERS, PlacedRois
from ortops.native.structs import POINTER, Struct
from ortops.native.types import Call, Entry, Text

PlaceRois: TypeAlias = Address[Callable[[Doubles, PlacedRois, Words], int]]
PlaceBins: TypeAlias = Address[Callable[[PlacedRois, PlacedRois], int]]
WriteRoisError: TypeAlias = Address[Callable[[Call, "RoiEntry", int, int, Doubles, int], None]]
WriteResampleError: TypeAlias = Address[Callable[[Call, "ResampleEntry"], None]]


class Parameter(Struct):
    """A parameter of a function that places RoIs: the first value of an attribute, perhaps translated; or a constant."""

    attribute: int  # its number, or NONE
    meanings: Annotated[list[int] | None, POINTER]  # of each choice of the attribute; None to take the value as it is
    constant: int


class RoiEntry(Struct):
    """The entry of an operator on RoIs. Tensors are numbers among a call's tensors, or NONE."""

    entry: Entry
    place_rois: PlaceRois
    place_bins: PlaceBins  # `axis.place_bins`
    write_error: WriteRoisError  # `error_texts.write_rois_error`
    x: int
    has_lengths: int  # whether the dimensions of X are the call's lengths
    rois: int
    batch_indices: int
    output: int  # Y, or dY of a gradient
    dx: int  # the outputs of a gradient
    drois: int
    columns: int  # the number of a RoI's coordinates
    interleaves: int  # whether each bin reads its own channels
    outside: int  # the number of the attribute that gives samples off the map their value, or NONE
    nearest: int  # the number of the parameter that holds an interpolation rule, or NONE
    parameters: Annotated[list[Parameter], MAX_PARAMETERS]  # of `place_rois`
    x_name: Text  # the names that errors give the tensors
    rois_name: Text
    batch_indices_name: Text
    output_name: Text


class PerAxis(Struct):
    """An attribute that has a value for each axis, and the value for each if it has none."""

    attribute: int
    default: float


class ResampleEntry(Struct):
    """The entry of DmlResample or its gradient."""

    entry: Entry
    write_error: WriteResampleError  # `error_texts.write_resample_error`
    source: int  # the number of the tensor to read
    target: int  # the number of the tensor to fill
    transposed: int  # whether the entry computes the gradient
    mode: int  # the number of interpolation_mode
    linear: int  # its value for linear interpolation
    rounding: int  # the number of rounding_direction
    rules: Annotated[list[int], POINTER]  # the interpolation rule of each of its values
    per_axis: Annotated[list[PerAxis], 3]  # scales, input offsets and output offsets
