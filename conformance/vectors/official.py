"""ONNX's own RoiAlign vectors, read from the installed onnx, at every opset and in every type that can express them.

The published numbers stay the expected ones in other types than float: what rounding the feature map to the type can
change is allowed for as the input's error (the RoIs are small integers, exact in every type).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase

from conformance.case import Array, Case, Source
from conformance.vectors.expand import expand
from ortops.spec import AttributeValue


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
    given = {a.name: onnx.helper.get_attribute_value(a) for a in operator.attribute}
    attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
    arrays = [_as_printed(array) for array in inputs]
    (y,) = [_as_printed(array) for array in outputs]
    name, printed = vector.name.removeprefix("test_roialign_"), PRINTED[vector.name]
    source = Source("onnx/backend/test/case/node/roialign.py", f"onnx {onnx.__version__}", vector.name)
    yield from expand(
        f"official/{name}",
        function="roi_align",
        source=source,
        note=printed.note,
        attributes=attributes,
        inputs=dict(zip(operator.input, arrays, strict=True)),
        outputs=list(operator.output),
        expected={operator.output[0]: y},
        published_type="float",
        decimals=printed.decimals,
        input_error=printed.input_error,
    )
    # DirectML's maximum is another.
    if attributes.get("mode", "avg") == "avg":
        yield from expand(
            f"official/{name}",
            function="dml_roi_align",
            source=source,
            note=f"ONNX's vector by DirectML's operator: {printed.note}",
            attributes=_of_directml(attributes),
            inputs=dict(zip(("InputTensor", "ROITensor", "BatchIndicesTensor"), arrays, strict=True)),
            outputs=["OutputTensor"],
            expected={"OutputTensor": y},
            types=["float", "double"],
            decimals=printed.decimals,
            input_error=printed.input_error,
        )


def _of_directml(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """What an average of RoiAlign-16 with a sampling_ratio is in DirectML, for RoIs that are larger than a pixel.

    Source: ``DmlOperatorRoiAlign.cpp`` of microsoft/onnxruntime, 129fc797.
    """
    # RoiAlign-16 has the default half_pixel.
    is_half = attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    return {
        "output_height": attributes["output_height"],
        "output_width": attributes["output_width"],
        "spatial_scale_x": attributes["spatial_scale"],
        "spatial_scale_y": attributes["spatial_scale"],
        "minimum_samples_per_output": attributes["sampling_ratio"],
        "maximum_samples_per_output": attributes["sampling_ratio"],
        "input_pixel_offset": 0.5 if is_half else 0.0,
    }


def _as_printed(array: Array) -> Array:
    """The decimal numbers that the file has, from the float32 that it makes of them."""
    return np.round(array.astype(np.float64), 7) if array.dtype == np.float32 else array
