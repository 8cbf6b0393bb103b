"""Default attributes, empty tensors, and many RoIs at one place, for all operators with RoIs; and RoIs far from the map."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

import ortops
from conformance.case import Basis, Case, Source, weakest
from conformance.vectors.dialects import BOTH, NONE, POOL, RESAMPLE, ROTATED, Attributes, make_cases, of_scene
from conformance.vectors.expand import FLOATS
from conformance.vectors.matrix import CHOICES, DML_CHOICES, OF_MODE
from conformance.vectors.roi_align_rotated import SCENES as ROTATED_SCENES
from conformance.vectors.scenes import SCENES, Scene, load, scatter

ONNX, DIRECTML = BOTH
TEXT = Source("ONNX operators RoiAlign-10, -16, -22", "onnx 1.23.2", "Attributes")
PAGES = Source("Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC", "MicrosoftDocs/sdk-api 614385ee", "tensors")
OF_POOL = Source("ONNX operators MaxRoiPool-1 and -22", "onnx 1.23.2", "Inputs, Attributes, Outputs")
CLOSED = Source("conformance/vectors/extremes.py", f"ortops {ortops.__version__}", "closed forms")

TYPES = {ROTATED: ("float", "double")}
"""The element types of an operator's cases with default attributes or empty tensors, if not all."""

MANY = 4096
"""The number of RoIs. A float16 sum of so many ones stops at 2048, a bfloat16 one at 256."""


@dataclass(frozen=True, slots=True)
class Empty:
    """An operator with its attributes, and what its outputs are if a tensor is empty: an entry of `scenes/empty.json`.

    outputs: the roles of the outputs.
    roi: the numbers of each RoI.
    notes: by scenario, in words.
    source: a key of `OF_EMPTY`; empty for the reference.
    """

    operator: str
    outputs: tuple[str, ...]
    attributes: Attributes
    roi: tuple[float, ...]
    notes: Mapping[str, str]
    basis: Basis
    source: str = ""


OF_EMPTY = {
    "text": replace(TEXT, section="Outputs"),
    "pages": PAGES,
    "text of MaxRoiPool": OF_POOL,
    "closed forms": CLOSED,
}


def cases() -> Iterator[Case]:
    """The cases of this module."""
    yield from _defaults()
    yield from _empty()
    yield from _far()
    yield from _many_at_one_place()


def _defaults() -> Iterator[Case]:
    """Attributes left out. The default of coordinate_transformation_mode differs between opsets 10 and 16."""
    of_rois = next(scene.tensors for scene in SCENES if scene.name == "ratio_0_sides_differ")
    of_rotated = next(scene.tensors_of(1, 0) for scene in ROTATED_SCENES if scene.name == "ratio_0_sides_differ")
    tensors = {
        ONNX: of_rois,
        DIRECTML: of_rois,
        ROTATED: of_rotated,
        POOL: {
            "x": scatter((1, 2, 5, 6), seed=31),
            "rois": np.array([[0.0, 1, 1, 4, 3], [0, 0, 2, 5, 4]]),
            "dy": scatter((2, 2, 2, 3), seed=131),
        },
        RESAMPLE: {"x": scatter((5, 6), seed=1), "dy": scatter((7, 4), seed=2), "x_shape": np.array([5, 6])},
    }
    of_onnx = "avg, one output, adaptive sampling, scale 1; output_half_pixel before opset 16, half_pixel since"
    of_gradient = "avg, half_pixel, adaptive sampling, scale 1"
    of_directml = "ROI_ALIGN of DirectML 3.0: average, linear, offsets 0.5 and -0.5, adaptive sampling, scales 1"
    of_angles = "one output, aligned, counter-clockwise, adaptive sampling, scale 1"
    of_bins = "spatial_scale defaults to 1"
    of_resample = "RESAMPLE of DirectML 2.0: linear, offsets 0.5 and -0.5; the nearest pixel rounded half up"
    sizes: Attributes = {"output_height": 2, "output_width": 3}
    nearest: Attributes = {"interpolation_mode": "nearest_neighbor"}
    rows: tuple[tuple[str, str, str, Attributes, str], ...] = (
        (ONNX, "y", "none_given", NONE, of_onnx),
        (ONNX, "y", "sizes_given", sizes, of_onnx),
        (ONNX, "dx drois", "none_given", NONE, of_gradient),
        (DIRECTML, "y", "none_given", NONE, of_directml),
        (DIRECTML, "y", "sizes_given", sizes, of_directml),
        (DIRECTML, "dx drois", "none_given", NONE, of_directml),
        (ROTATED, "y", "none_given", NONE, of_angles),
        (ROTATED, "y", "sizes_given", {"output_height": 2, "output_width": 2}, of_angles),
        (ROTATED, "dx drois", "none_given", NONE, of_angles),
        (POOL, "y", "scale_left_out", {"pooled_shape": (2, 3)}, of_bins),
        (POOL, "dx", "scale_left_out", NONE, of_bins),
        (RESAMPLE, "y", "none_but_scales", {"scales": (1.3, 0.7)}, of_resample),
        (RESAMPLE, "y", "none_but_sizes", {"output_sizes": (7, 4)}, of_resample),
        (RESAMPLE, "y", "nearest_without_direction", {"output_sizes": (7, 4), **nearest}, of_resample),
        (RESAMPLE, "dx", "none_given", NONE, of_resample),
        (RESAMPLE, "dx", "nearest_without_direction", nearest, of_resample),
    )
    for operator, outputs, scenario, attributes, note in rows:
        yield from make_cases(
            f"defaults/{scenario}",
            operator,
            attributes,
            tensors[operator],
            outputs.split(),
            types=TYPES.get(operator, FLOATS),
            source=TEXT if note == of_onnx else None,
            note=note,
            write_defaults=False,
        )


def _empty() -> Iterator[Case]:
    """Tensors without RoIs, channels, images or pixels, which are valid."""
    shapes = (((2, 3, 4, 5), 0), ((2, 0, 4, 5), 2), ((0, 3, 4, 5), 0), ((2, 3, 0, 0), 0))
    for row in load("empty.json", Empty):
        for (scenario, note), (x_shape, count) in zip(row.notes.items(), shapes, strict=True):
            x, y, rois = np.zeros(x_shape), np.zeros((count, x_shape[1], 2, 3)), np.zeros((count, len(row.roi)))
            indices, shape = np.zeros(count, np.int64), np.array(x_shape)
            yield from make_cases(
                f"empty/{scenario}",
                row.operator,
                row.attributes,
                {"x": x + 1, "rois": rois + row.roi, "indices": indices, "dy": y + 1, "x_shape": shape},
                row.outputs,
                expected={"y": y, "dx": x, "drois": rois},
                types=TYPES.get(row.operator, FLOATS),
                note=note,
                source=OF_EMPTY.get(row.source),
                basis=row.basis,
            )


def _far() -> Iterator[Case]:
    """Coordinates that float16 cannot represent, from RoIs that it can; and RoIs that start far from the map."""
    note = "coordinates have more digits than the tensors' type: float16 cannot represent 300.3"
    fine = Scene("coordinates_are_not_half", 0, note, (1, 1, 1, 320), ((1000, 0, 1004, 2, 0),), (1, 4), 1, 0.3)
    row = np.abs(np.mod(np.arange(320.0), 8.0) - 4.0) / 4.0
    tensors = {**fine.tensors, "x": row.reshape(fine.x_shape)}
    for dialect, basis in ((ONNX, Basis.REFERENCE), (DIRECTML, Basis.VECTORS)):
        yield from of_scene("matrix", fine, ["y"], tensors=tensors, dialects=[dialect], variant="", basis=basis)
    note = "adaptive: a {} of 2e9 pixels that starts far from the map"
    huge = Scene("huge_from_far", 5, note.format("region"), (1, 1, 5, 6), ((-1e9, -1e9, 1e9, 1e9, 0),), (1, 1))
    for mode in CHOICES["mode"]:
        yield from of_scene(
            "matrix",
            huge,
            ["y"],
            mode,
            "half_pixel",
            {**huge.tensors, "x": np.arange(1.0, 31.0).reshape(huge.x_shape)},
            dialects=[ONNX],
            variant=mode,
            note=note.format("RoI"),
            basis=weakest(Basis.REFERENCE, OF_MODE[mode]),
            types=["double"],
        )
    for reduction, interpolation in itertools.product(
        DML_CHOICES["reduction_function"], DML_CHOICES["interpolation_mode"]
    ):
        chosen = {"reduction_function": reduction, "interpolation_mode": interpolation}
        outside: Attributes = {"output_pixel_offset": -0.28125, "out_of_bounds_input_value": -3.0}
        yield from of_scene(
            "matrix",
            huge,
            ["y"],
            more={**chosen, **outside},
            dialects=[DIRECTML],
            variant=f"{reduction}/{interpolation}",
            types=["double"],
        )


def _many_at_one_place() -> Iterator[Case]:
    """Gradients that add up at one pixel, or at the four around a sample between them."""
    by_hand = Source("ONNX operator RoiAlign-22", "onnx 1.23.2", "the derivative by hand")
    note = "the gradients of many {} at one pixel are not summed in half precision"
    of_outputs = f"the gradients of {MANY} outputs at one pixel are not summed in 16 bits"
    rows: tuple[tuple[str, str, Attributes, list[float], tuple[int, int], str, Source, Basis], ...] = (
        (
            ONNX,
            "dX_of_4096_rois",
            {"sampling_ratio": 1},
            [1.5] * 4,
            (1, 1),
            note.format("RoIs"),
            by_hand,
            Basis.REFERENCE,
        ),
        (DIRECTML, "map_gradient_of_4096_regions", NONE, [1.5] * 4, (1, 1), note.format("regions"), PAGES, Basis.TEXT),
        (POOL, "dX_of_4096_rois", {"pooled_shape": (1, 1)}, [0, 0, 0, 2, 2], (1, 1), of_outputs, OF_POOL, Basis.TEXT),
        (
            POOL,
            "dX_of_4096_bins",
            {"pooled_shape": (64, 64)},
            [0, 1, 1, 1, 1],
            (64, 64),
            of_outputs,
            OF_POOL,
            Basis.TEXT,
        ),
    )
    for operator, scenario, attributes, roi, bins, note, source, basis in rows:
        dx, count = np.zeros((1, 1, 3, 3)), MANY // (bins[0] * bins[1])
        dx[0, 0, 1, 1] = MANY
        yield from make_cases(
            f"edge/{scenario}",
            operator,
            attributes,
            {
                "x": dx / MANY,
                "dy": np.ones((count, 1, *bins)),
                "rois": np.tile(np.array(roi, np.float64), (count, 1)),
                "indices": np.zeros(count, np.uint32 if operator == DIRECTML else np.int64),
                "x_shape": np.array(dx.shape),
            },
            expected={"dx": dx},
            note=note,
            source=source,
            basis=basis,
        )
    for scenario, each in (("dX_of_4096_rois", 1.0), ("dX_beyond_float16", 80.0), ("dX_up_to_float16", 63.9375)):
        dx = np.zeros((1, 1, 3, 3))
        dx[0, 0, :2, :2] = MANY * each / 4
        yield from make_cases(
            f"values/{scenario}",
            ROTATED,
            {"sampling_ratio": 1},
            {
                "dy": np.full((MANY, 1, 1, 1), each),
                "rois": np.tile([1.0, 1.0, 1.0, 1.0, 0.0], (MANY, 1)),
                "indices": np.zeros(MANY, np.int64),
                "x_shape": np.array(dx.shape),
            },
            expected={"dx": dx},
            types=("float16", "float"),
            note=f"{MANY} RoIs pass {each / 4:g} each to four pixels, {MANY * each / 4:g} together",
            source=CLOSED,
        )
