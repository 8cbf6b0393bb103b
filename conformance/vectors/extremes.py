"""RoiAlign and DmlRoiAlign with default attributes, empty tensors, RoIs far from the map, and many RoIs at one place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from conformance.case import Basis, Case, Source, weakest
from conformance.vectors.dialects import BOTH, NAMES, Rule, of_rule
from conformance.vectors.dml_matrix import CHOICES as OF_DIRECTML
from conformance.vectors.expand import expand
from conformance.vectors.matrix import CHOICES as OF_ONNX
from conformance.vectors.matrix import OF_MODE
from conformance.vectors.scenes import SCENES, scatter
from ortops.spec import AttributeValue

ONNX, DIRECTML = BOTH
TEXT = Source("ONNX operators RoiAlign-10, -16, -22", "onnx 1.23.2", "Attributes")
PAGES = Source("Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC", "MicrosoftDocs/sdk-api 614385ee", "tensors")

MANY = 4096
"""The number of RoIs. A float16 sum of so many ones stops at 2048, a bfloat16 one at 256."""


def cases() -> Iterator[Case]:
    """The cases of this module."""
    yield from _defaults()
    yield from _empty()
    yield from _far()
    yield from _many_at_one_place()


def _defaults() -> Iterator[Case]:
    """Attributes left out. The default of coordinate_transformation_mode differs between opsets 10 and 16."""
    given: dict[str, dict[str, AttributeValue]] = {
        "none_given": {},
        "sizes_given": {"output_height": 2, "output_width": 3},
    }
    of_onnx = "avg, one output, adaptive sampling, scale 1; output_half_pixel before opset 16, half_pixel since"
    of_gradient = "avg, half_pixel, adaptive sampling, scale 1"
    of_directml = "ROI_ALIGN of DirectML 3.0: average, linear, offsets 0.5 and -0.5, adaptive sampling, scales 1"
    tensors = next(scene.tensors for scene in SCENES if scene.name == "ratio_0_sides_differ")
    for dialect, suffix, note, source in (
        (ONNX, "", of_onnx, TEXT),
        (ONNX, "_grad", of_gradient, None),
        (DIRECTML, "", of_directml, None),
        (DIRECTML, "_grad", of_directml, None),
    ):
        names, backward = NAMES[dialect], ["dy", "x_shape"] if suffix else []
        for scenario, attributes in given.items():
            if not (suffix and attributes):  # a gradient has no output sizes
                yield from expand(
                    f"defaults/{scenario}",
                    function=dialect + suffix,
                    source=source,
                    note=note,
                    attributes=attributes,
                    inputs={names.get(role, role): tensors[role] for role in ("x", "rois", "indices", *backward)},
                    outputs=[names[role] for role in (("dx", "drois") if suffix else ("y",))],
                    write_defaults=False,
                )


def _empty() -> Iterator[Case]:
    """Empty tensors, which are valid."""
    no_images, no_pixels = (f"a map without {things} is valid if there are no" for things in ("images", "pixels"))
    without_both = {"no_images_no_rois": f"{no_images} RoIs", "no_pixels_no_rois": f"{no_pixels} RoIs"}
    of_onnx = {
        "no_rois": "without RoIs, the result is empty",
        "no_channels": "without channels, the result is empty",
        **without_both,
    }
    of_gradient = {
        "no_rois": "without RoIs, dX is 0 and drois is empty",
        "no_channels": "without channels, dX is empty and drois is 0",
        **without_both,
    }
    of_directml = {
        "no_regions": "without regions, the output and the gradient by regions are empty, and the gradient by the map is 0",
        "no_channels": "without channels, the output is empty, and the gradient by regions is 0",
        "no_images_no_regions": f"{no_images} regions",
        "no_pixels_no_regions": f"{no_pixels} regions",
    }
    sizes = (((2, 3, 4, 5), 0), ((2, 0, 4, 5), 2), ((0, 3, 4, 5), 0), ((2, 3, 0, 0), 0))
    for dialect, scenarios, outputs, source, basis in (
        (ONNX, of_onnx, ["y"], replace(TEXT, section="Outputs"), Basis.REFERENCE),
        (ONNX, of_gradient, ["dx", "drois"], None, Basis.REFERENCE),
        (DIRECTML, of_directml, ["y", "dx", "drois"], PAGES, Basis.OURS),
    ):
        for (scenario, note), (x_shape, count) in zip(scenarios.items(), sizes, strict=True):
            x, y, rois = np.zeros(x_shape), np.zeros((count, x_shape[1], 2, 3)), np.zeros((count, 4))
            indices = np.zeros(count, np.int64)
            yield from of_rule(
                f"empty/{scenario}",
                Rule(),
                {"x": x + 1, "rois": rois + 1, "indices": indices, "dy": y + 1, "x_shape": np.array(x_shape)},
                outputs,
                bins=(2, 3),
                expected={"y": y, "dx": x, "drois": rois},
                dialects=[dialect],
                variant="",
                note=note,
                source=source,
                basis=basis,
            )


def _far() -> Iterator[Case]:
    """Coordinates that float16 cannot represent, from RoIs that it can; and RoIs that start far from the map."""
    row = np.abs(np.mod(np.arange(320.0), 8.0) - 4.0) / 4.0
    indices, far = np.array([0]), np.array([[-1e9, -1e9, 1e9, 1e9]])
    for dialect, basis in ((ONNX, Basis.REFERENCE), (DIRECTML, Basis.VECTORS)):
        yield from of_rule(
            "matrix/coordinates_are_not_half",
            Rule(scale=0.3, ratio=1),
            {"x": row.reshape(1, 1, 1, 320), "rois": np.array([[1000, 0, 1004, 2]]), "indices": indices},
            ["y"],
            bins=(1, 4),
            dialects=[dialect],
            variant="",
            note="coordinates have more digits than the tensors' type: float16 cannot represent 300.3",
            basis=basis,
        )
    for mode in OF_ONNX["mode"]:
        yield from of_rule(
            "matrix/huge_from_far",
            Rule(mode, "half_pixel"),
            {"x": np.arange(1.0, 31.0).reshape(1, 1, 5, 6), "rois": far, "indices": indices},
            ["y"],
            dialects=[ONNX],
            variant=mode,
            note="adaptive: a RoI of 2e9 pixels that starts far from the map",
            basis=weakest(Basis.REFERENCE, OF_MODE[mode]),
            types=["double"],
        )
    for reduction, interpolation in itertools.product(
        OF_DIRECTML["reduction_function"], OF_DIRECTML["interpolation_mode"]
    ):
        yield from of_rule(
            "matrix/huge_from_far",
            Rule(),
            {"x": scatter((1, 1, 5, 6), seed=5), "rois": far, "indices": indices},
            ["y"],
            more={
                "reduction_function": reduction,
                "interpolation_mode": interpolation,
                "output_pixel_offset": -0.28125,
                "out_of_bounds_input_value": -3.0,
            },
            dialects=[DIRECTML],
            variant=f"{reduction}/{interpolation}",
            note="adaptive: a region of 2e9 pixels that starts far from the map",
            types=["double"],
        )


def _many_at_one_place() -> Iterator[Case]:
    dx = np.zeros((1, 1, 3, 3))
    dx[0, 0, 1, 1] = MANY
    by_hand = Source("ONNX operator RoiAlign-22", "onnx 1.23.2", "the derivative by hand")
    for dialect, scenario, rois, ratio, index_type, source, basis in (
        (ONNX, "dX_of_4096_rois", "RoIs", 1, np.int64, by_hand, Basis.REFERENCE),
        (DIRECTML, "map_gradient_of_4096_regions", "regions", 0, np.uint32, PAGES, Basis.TEXT),
    ):
        yield from of_rule(
            f"edge/{scenario}",
            Rule(ratio=ratio),
            {
                "dy": np.ones((MANY, 1, 1, 1)),
                "rois": np.full((MANY, 4), 1.5),
                "indices": np.zeros(MANY, index_type),
                "x_shape": np.array([1, 1, 3, 3]),
            },
            ["dx"],
            expected={"dx": dx},
            dialects=[dialect],
            variant="",
            note=f"the gradients of many {rois} at one pixel are not summed in half precision",
            source=source,
            basis=basis,
        )
