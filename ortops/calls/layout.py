"""A node's and a call's words, which compiled code reads and writes."""

from __future__ import annotations

from ortops.jit.elements import INTERRUPTED as INTERRUPTED  # noqa: PLC0414 - a result of calls, too
from ortops.jit.elements import OUT_OF_MEMORY as OUT_OF_MEMORY  # noqa: PLC0414

MAX_DIMS = 8
"""The most dimensions that are stored for a tensor, enough to refuse a tensor with more."""

DEFINITION, SHAPES, ENTRY, DRIVER, DRIVER_OF_ROIS, LABEL, ATTRIBUTES = range(7)
"""Indices of a node's words.

DEFINITION: the address of the operator's definition record (`definitions`).
SHAPES: the address of the record with the functions `shapes.infer_shapes` and `shapes.check_wanted`.
ENTRY: the address of the operator's entry record (`kernels.entries`).
DRIVER, DRIVER_OF_ROIS: the addresses of two driver records, for Y or dX and for drois, which the node's attributes and
    element type choose; 0 if the node never needs the driver.
LABEL: the address of the operator's name in errors.
ATTRIBUTES: from here on ATTRIBUTE_WORDS for each attribute in the definition.
"""

ENTER, SHORT_OF_MEMORY = range(2)
"""Word indices in an entry's record: its function, and the error text if memory runs out."""

ATTRIBUTE_WORDS = 5
"""The number of an attribute's values, then at most 4 values: an int64, a float64's bits, or a string's number among the
choices. A number or a string has one value; an empty list has no values. For a list of any length (`Attribute.any_length`),
the address of the values follows."""

RUNNER, CONTEXT, STATUS, LENGTHS = 0, 1, 2, 3
"""Indices of a call's words.

RUNNER, CONTEXT: the runner of tasks (`jit.runners`); RUNNER is 0 in a model's shape inference.
STATUS: the address of an OrtStatus if ONNX Runtime failed.
LENGTHS: MAX_DIMS words: a copy of the input's elements if they are lengths (`Tensor.element_axes`).
"""

TENSORS = LENGTHS + MAX_DIMS
"""The index of the first tensor: TENSOR_WORDS for each input in the definition, then for each output."""

ADDRESS, TYPE, DIMS_COUNT, DIMS = range(4)
"""Indices of a tensor's words: its elements' address; its element type as ONNX's TensorProto.DataType, 0 for an absent
tensor; its rank and its dimensions."""

TENSOR_WORDS = DIMS + MAX_DIMS

MAX_TENSORS = 8
"""The most inputs and outputs of an operator together."""

TEXT = TENSORS + MAX_TENSORS * TENSOR_WORDS
"""The index of an error's text (`messages`): its length in bytes, then TEXT_BYTES bytes with a zero byte at the end."""

TEXT_BYTES = 2048

CALL_WORDS = TEXT + 1 + TEXT_BYTES // 8
"""The number of a call's words."""

OK, INVALID, FAILED = 0, 2, 3
"""A compiled call's statuses, in addition to OUT_OF_MEMORY and INTERRUPTED.

INVALID: the call's words hold an error text.
FAILED: ONNX Runtime failed, with STATUS.
INTERRUPTED: a signal handler raised an exception, which is saved for the thread (`jit.exceptions`).
"""
