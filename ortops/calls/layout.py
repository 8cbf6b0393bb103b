"""The words of a node and of a call, which compiled code reads and writes."""

from __future__ import annotations

from ortops.jit.elements import INTERRUPTED as INTERRUPTED  # noqa: PLC0414 - a result of calls, too
from ortops.jit.elements import OUT_OF_MEMORY as OUT_OF_MEMORY  # noqa: PLC0414

MAX_DIMS = 8
"""The most dimensions of a tensor that are stored, enough to refuse one with more."""

DEFINITION, SHAPES, ENTRY, DRIVER, DRIVER_OF_ROIS, LABEL, ATTRIBUTES = range(7)
"""Indices of a node's words.

DEFINITION: the address of the record of the operator's definition (`definitions`).
SHAPES: the address of the record with the functions `shapes.infer_shapes` and `shapes.check_wanted`.
ENTRY: the address of the record of the operator's entry (`kernels.entries`).
DRIVER, DRIVER_OF_ROIS: the addresses of the records of the node's drivers, that of Y or dX and that of drois, which its
    attributes and its element type choose; 0 for one that it never needs.
LABEL: the address of the operator's name in errors.
ATTRIBUTES: from here on ATTRIBUTE_WORDS for each attribute of the definition.
"""

ENTER, SHORT_OF_MEMORY = range(2)
"""Indices of words of an entry's record: its function, and the text of the error if memory runs out."""

ATTRIBUTE_WORDS = 5
"""The number of values of an attribute, then the values, of which there are at most 4: int64, the bits of float64, or for a
string its number among the choices. A number or a string has one value; an empty list has none. Of a list of any length
(`Attribute.any_length`) the address of its values follows."""

RUNNER, CONTEXT, NEEDED, LENGTHS = 0, 1, 2, 3
"""Indices of a call's words.

RUNNER, CONTEXT: what runs tasks (`jit.runners`).
NEEDED: the address of the word, of a record, for the address of a function that the call needs and that is not loaded.
LENGTHS: MAX_DIMS words: a copy of the elements of the input whose elements are lengths (`Tensor.element_axes`).
"""

TENSORS = LENGTHS + MAX_DIMS
"""The index of the first tensor: TENSOR_WORDS for each input of the definition, then for each output."""

ADDRESS, TYPE, DIMS_COUNT, DIMS = range(4)
"""Indices of a tensor's words: the address of its elements; its element type as ONNX's TensorProto.DataType, 0 if it is
absent; its rank and its dimensions."""

TENSOR_WORDS = DIMS + MAX_DIMS

MAX_TENSORS = 8
"""The most inputs and outputs of an operator, together."""

TEXT = TENSORS + MAX_TENSORS * TENSOR_WORDS
"""The index of the text of an error (`messages`): its length in bytes, then TEXT_BYTES bytes with a zero byte at the end."""

TEXT_BYTES = 2048

CALL_WORDS = TEXT + 1 + TEXT_BYTES // 8
"""The number of a call's words."""

OK, INVALID, NEEDS, FAILED = 0, 2, 3, 4
"""What a compiled call returns, beside OUT_OF_MEMORY and INTERRUPTED.

INVALID: an error whose text is in the call.
NEEDS: the call has done nothing that matters, needs the function of NEEDED, and is to be repeated.
FAILED: ONNX Runtime failed; NEEDED is the address of its OrtStatus.
INTERRUPTED: a signal handler raised an exception, which is saved for the thread (`jit.exceptions`).
"""
