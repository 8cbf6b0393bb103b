"""ONNX's own RoiAlign vectors, read from the installed onnx, at every opset and in every type that can express them.

The published numbers stay the expected ones in other types than float: what rounding the feature map to the type can
change is allowed for as the input's error (the RoIs are small integers, exact in every type).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase

from conformance.case import Array, Case, Source
from conformance.vectors.expand import expand


class _Printed(NamedTuple):
    """How far the published numbers are to be trusted.

    decimals: sure digits of Y after the point. The vector for max is printed in full but was computed in float32.
    input_error: half a unit of the last digit of X, where Y was computed from an X that had not been rounded yet.
    note: what the vector discriminates.
    """

    decimals: int
    input_error: float
    note: str


PRINTED = {
    "test_roialign_aligned_false": _Printed(4, 0.5e-4, "no half pixel: output_half_pixel, the average of four samples"),
    "test_roialign_aligned_true": _Printed(4, 0.0, "half_pixel shifts by half a pixel after scaling"),
    "test_roialign_mode_max": _Printed(5, 0.0, "max is the largest weighted corner, not the largest interpolation"),
}


def cases() -> Iterator[Case]:
    """The vectors of the operator's own test file."""
    # Importing one file of vectors runs that file alone; `collect_testcases` runs those of every operator.
    importlib.import_module("onnx.backend.test.case.node.roialign")
    for vector in node._NodeTestCases:  # noqa: SLF001
        if vector.name in PRINTED:
            yield from _expanded(vector)


def _expanded(vector: TestCase) -> Iterator[Case]:
    if vector.model is None or vector.data_sets is None:
        return
    (operator,) = vector.model.graph.node
    (inputs, outputs) = vector.data_sets[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in operator.attribute}
    printed = PRINTED[vector.name]
    yield from expand(
        f"official/{vector.name.removeprefix('test_roialign_')}",
        function="roi_align",
        source=Source("onnx/backend/test/case/node/roialign.py", f"onnx {onnx.__version__}", vector.name),
        note=printed.note,
        attributes={name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()},
        inputs={name: _as_printed(array) for name, array in zip(operator.input, inputs, strict=True)},
        outputs=list(operator.output),
        expected={name: _as_printed(array) for name, array in zip(operator.output, outputs, strict=True)},
        published_type="float",
        decimals=printed.decimals,
        input_error=printed.input_error,
    )


def _as_printed(array: Array) -> Array:
    """The decimal numbers that the file has, from the float32 that it makes of them."""
    return np.round(array.astype(np.float64), 7) if array.dtype == np.float32 else array
