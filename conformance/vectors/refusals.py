"""What has to be refused: one wrong thing a case. Any error of the backend is a refusal; a result is not.

ONNX does not say what a runtime does with wrong data: that it refuses them is this project's rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.vectors.expand import expand
from ortops.operators import OPERATORS
from ortops.spec import AttributeValue


class Wrong(NamedTuple):
    """One wrong thing.

    fact: the last part of an id; note: the same in words.
    change: attributes and inputs of a right case that are changed.
    is_of_type: whether the element type of the changed inputs is what is wrong.
    """

    fact: str
    note: str
    change: Mapping[str, Any]
    is_of_type: bool = False


INFINITY, NAN = float("inf"), float("nan")

ATTRIBUTES = (
    Wrong("mode_unknown", "mode 'median' is not one", {"mode": "median"}),
    Wrong("mode_upper_case", "the case of a mode matters", {"mode": "AVG"}),
    Wrong("mode_empty", "an empty mode is not the default", {"mode": ""}),
    Wrong(
        "coordinates_unknown",
        "coordinate_transformation_mode 'asymmetric' is not one",
        {"coordinate_transformation_mode": "asymmetric"},
    ),
    Wrong(
        "coordinates_upper_case",
        "the case of a coordinate_transformation_mode matters",
        {"coordinate_transformation_mode": "HALF_PIXEL"},
    ),
    Wrong("sampling_ratio_negative", "sampling_ratio must be >= 0", {"sampling_ratio": -1}),
    Wrong("spatial_scale_zero", "spatial_scale must be > 0", {"spatial_scale": 0.0}),
    Wrong("spatial_scale_negative", "spatial_scale must be > 0", {"spatial_scale": -0.5}),
    Wrong("spatial_scale_nan", "spatial_scale must be finite", {"spatial_scale": NAN}),
    Wrong("spatial_scale_infinite", "spatial_scale must be finite", {"spatial_scale": INFINITY}),
)

OUTPUT_SIZES = (
    Wrong("output_height_zero", "output_height must be >= 1", {"output_height": 0}),
    Wrong("output_width_zero", "output_width must be >= 1", {"output_width": 0}),
    Wrong("output_width_negative", "output_width must be >= 1", {"output_width": -2}),
)

SHAPES = (
    Wrong("rois_rank_1", "rois must have rank 2", {"rois": np.ones(8)}),
    Wrong("rois_of_5", "a RoI has four numbers; the image is a separate input", {"rois": np.ones((2, 5))}),
    Wrong("batch_indices_rank_2", "batch_indices must have rank 1", {"batch_indices": np.zeros((2, 1), np.int64)}),
    Wrong("fewer_batch_indices", "each RoI needs a batch index", {"batch_indices": np.zeros(1, np.int64)}),
    Wrong("more_batch_indices", "each batch index needs a RoI", {"batch_indices": np.zeros(3, np.int64)}),
)

VALUES = (
    Wrong("batch_index_negative", "-1 is not the last image", {"batch_indices": np.array([0, -1])}),
    Wrong("batch_index_N", "N is one more than the last image", {"batch_indices": np.array([0, 2])}),
    Wrong("batch_index_huge", "an index beyond 32 bits is not cut to them", {"batch_indices": np.array([2**32, 0])}),
    Wrong("roi_nan", "a RoI must be finite", {"rois": np.array([[0, 0, 1, 1], [0, NAN, 1, 1]])}),
    Wrong("roi_infinite", "a RoI must be finite", {"rois": np.array([[0, 0, INFINITY, 1], [0, 0, 1, 1]])}),
    Wrong("roi_minus_infinite", "a RoI must be finite", {"rois": np.array([[0, -INFINITY, 1, 1], [0, 0, 1, 1]])}),
)

MAPS = (
    Wrong("X_rank_3", "X must have rank 4", {"X": np.ones((2, 4, 5))}),
    Wrong("no_rows", "RoIs need pixels: H is 0", {"X": np.ones((2, 3, 0, 5))}),
    Wrong("no_columns", "RoIs need pixels: W is 0", {"X": np.ones((2, 3, 4, 0))}),
    Wrong("no_images", "RoIs need images: N is 0", {"X": np.ones((0, 3, 4, 5))}),
)

GRADIENTS = (
    Wrong("dY_rank_3", "dY must have rank 4", {"dY": np.ones((2, 3, 2))}),
    Wrong("dY_of_other_rois", "dY and rois must agree on the number of RoIs", {"dY": np.ones((3, 3, 2, 2))}),
    Wrong("dY_of_other_channels", "dY and x_shape must agree on the channels", {"dY": np.ones((2, 1, 2, 2))}),
    Wrong("dY_without_rows", "dY must have outputs: its height is 0", {"dY": np.ones((2, 3, 0, 2))}),
    Wrong("x_shape_of_3", "x_shape has four lengths", {"x_shape": np.array([2, 3, 4])}),
    Wrong("x_shape_rank_2", "x_shape must have rank 1", {"x_shape": np.array([[2, 3, 4, 5]])}),
    Wrong("x_shape_negative", "a length is not negative", {"x_shape": np.array([2, 3, -4, -5])}),
    Wrong("X_of_other_height", "X must have the shape that x_shape gives", {"X": np.ones((2, 3, 5, 5))}),
    Wrong("X_of_other_images", "X must have the shape that x_shape gives", {"X": np.ones((3, 3, 4, 5))}),
    Wrong("X_rank_3", "X must have rank 4", {"X": np.ones((3, 4, 5))}),
    Wrong("no_rows", "RoIs need pixels: H is 0", {"x_shape": np.array([2, 3, 0, 5]), "X": np.ones((2, 3, 0, 5))}),
    Wrong("no_images", "RoIs need images: N is 0", {"x_shape": np.array([0, 3, 4, 5]), "X": np.ones((0, 3, 4, 5))}),
    Wrong("drois_without_X", "drois needs X", {"X": None}),
)


def cases() -> Iterator[Case]:
    """For every operator, each wrong thing by itself; all else of the case is right."""
    rois = {"rois": np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 2.5]]), "batch_indices": np.array([0, 1])}
    forward = {"X": np.ones((2, 3, 4, 5)), **rois}
    sizes = {"sampling_ratio": 2, "output_height": 2, "output_width": 2}
    for wrong in (*ATTRIBUTES, *OUTPUT_SIZES):
        yield from refused("roi_align", wrong, "attribute", sizes, forward, ["Y"])
    for wrong in (*SHAPES, *VALUES, *MAPS):
        yield from refused("roi_align", wrong, "data", sizes, forward, ["Y"])

    backward = {"dY": np.ones((2, 3, 2, 2)), **rois, "x_shape": np.array([2, 3, 4, 5]), "X": np.ones((2, 3, 4, 5))}
    ratio, both = {"sampling_ratio": 2}, ["dX", "drois"]
    for wrong in ATTRIBUTES:
        yield from refused("roi_align_grad", wrong, "attribute", ratio, backward, both)
    for wrong in (*SHAPES, *VALUES, *GRADIENTS):
        yield from refused("roi_align_grad", wrong, "data", ratio, backward, both)
    # By themselves for runtimes that have no drois: what they read out of bounds forwards they write backwards.
    without_x = {name: array for name, array in backward.items() if name != "X"}
    for wrong in VALUES:
        yield from refused("roi_align_grad", wrong, "data", ratio, without_x, ["dX"], variant="dX_alone")
    for mode in ("max", "max_interpolated"):
        wrong = Wrong(f"{mode}_without_X", f"mode {mode} needs X for dX too", {"X": None})
        yield from refused("roi_align_grad", wrong, "data", {**ratio, "mode": mode}, backward, ["dX"])


def refused(
    function: str,
    wrong: Wrong,
    what: Literal["attribute", "data"],
    attributes: Mapping[str, AttributeValue],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    variant: str = "",
) -> Iterator[Case]:
    """The cases in which one thing is wrong, each with the right one as its twin.

    Args:
        function: of the operators.
        wrong: what is changed; an input that becomes None is left out.
        what: whether the attribute is wrong by itself, or does not go with the data, or the data are wrong.
        attributes: of the right case.
        inputs: of the right case.
        outputs: names of those wanted.
        variant: a further part of the id.
    """
    names = {tensor.name for operator in OPERATORS if operator.function == function for tensor in operator.inputs}
    changed = {name: value for name, value in wrong.change.items() if name in names}
    common: dict[str, Any] = {
        "function": function,
        "source": Source("ortops/operators", f"ortops {ortops.__version__}", "the rules of attributes and shapes"),
        "outputs": outputs,
        "types": ["float"],
        "variant": variant,
        "basis": Basis.OURS,
    }
    fact = f"refusal/{wrong.fact}"
    right = expand(f"{fact}/valid", note="the same without the fault", attributes=attributes, inputs=inputs, **common)
    twins = {case.operator: case for case in right}
    spoiled = expand(
        fact,
        note=wrong.note,
        attributes={**attributes, **{name: value for name, value in wrong.change.items() if name not in names}},
        inputs={name: array for name, array in {**inputs, **changed}.items() if array is not None},
        expects_error=what,
        **common,
    )
    for case in spoiled:
        # `expand` gives floats the type of the case, and that may be what is wrong.
        types = {name: array for name, array in changed.items() if array is not None and wrong.is_of_type}
        twin, inputs = twins[case.operator], {**case.inputs, **types}
        # Lengths that are wrong have names in both models, so that nothing but the data tells them apart.
        named = frozenset(
            (name, axis)
            for name, array in inputs.items()
            for axis, (length, right) in enumerate(zip(array.shape, twin.inputs[name].shape, strict=False))
            if array.ndim == twin.inputs[name].ndim and length != right
        )
        yield replace(case, inputs=inputs, named_axes=named, twin=replace(twin, named_axes=named))
