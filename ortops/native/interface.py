# SPDX-License-Identifier: MIT
"""A library's interface for hosts (ortops.h), and what it registers: its operators with element types."""

from __future__ import annotations

from typing import Annotated

from ortops.native.kernels.functions import Driver
from ortops.native.structs import POINTER, Struct
from ortops.native.types import MAX_TENSORS, Node, Text

VERSION = 1
"""The version of the interface, which changes when a field changes its meaning; later versions only append fields."""


REQUIRED, OPTIONAL, VARIADIC = range(3)
"""What a tensor may be (OrtCustomOpInputOutputCharacteristic)."""


class TensorTypes(Struct):
    """The element types of the input and of the output of one number."""

    input_type: int
    input_presence: int  # REQUIRED, OPTIONAL or VARIADIC
    output_type: int
    output_presence: int


class Signature(Struct):
    """The name of an operator, and its inputs and outputs."""

    name: Text
    input_count: int
    output_count: int
    tensors: Annotated[list[TensorTypes], MAX_TENSORS]


class Drivers(Struct):
    """The drivers of a node, as in `Node`."""

    driver: Annotated[Driver, POINTER]
    driver_of_rois: Annotated[Driver, POINTER]


class TypedOperator(Struct):
    """An operator of the library, with an element type for each of its type variables."""

    deciding: int  # the number of the attribute whose value chooses the drivers; NONE if there is but one choice
    drivers: Annotated[list[Drivers], POINTER]  # for each choice
    infers_from: int  # the first release of ONNX Runtime that infers its shapes: 1024 for 1.24
    signature: Signature
    node: Node  # what all its nodes have


class Domain(Struct):
    """A domain and its operators."""

    name: Text
    count: int
    operators: Annotated[list[Annotated[TypedOperator, POINTER]], POINTER]


class Domains(Struct):
    """What a function registers."""

    count: int
    domains: Annotated[list[Domain], POINTER]
    operator_count: int  # of all domains together


class Given(Struct):
    """An attribute that a caller gives."""

    name: Text
    type: int  # as OrtOpAttrType (`native.types`)
    count: int  # the number of values of a list
    values: int  # their address: int64s for INT and INTS, float64s for FLOAT and FLOATS, a C string for STRING


class ListedOperator(Struct):
    """An operator: its domain, its name, the version of one of ONNX's own operators or 0, and what it is for some types."""

    domain: Text
    name: Text
    version: int
    operator: Annotated[TypedOperator, POINTER]


class OperatorList(Struct):
    """All operators of a library."""

    count: int
    operators: Annotated[list[ListedOperator], POINTER]


class Interface(Struct):
    """What OrtopsGetInterface returns (ortops.h): the operators, and the addresses of functions (`interface`)."""

    version: int  # VERSION
    operators: Annotated[OperatorList, POINTER]
    python: int  # the address of the shared word "python"
    make_node: int
    release_node: int
    infer_shapes: int
    compute: int
    run_on_threads: int
    infer_shapes_of_arrays: int
    infer_by_definition: int
    check_wanted: int
    make_table: int
    release_table: int
    fill_callbacks: int
    describe_inputs: int
