# SPDX-License-Identifier: MIT OR Apache-2.0
"""Default attributes, empty tensors, and many RoIs at one place, for all operators with RoIs; and RoIs far from the map.

The files `data/{defaults,empty,many}.json` have entries for an operator with its attributes, the roles of its outputs, the
numbers of each RoI (`roi`), a note, a basis, and a key of `SOURCES`. Those of `empty.json` have a note for each scenario.
If the name of a scenario ends with `without`, each of its cases lacks another attribute.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import ortops
from conformance.case import Basis, Case, Source, weakest
from conformance.cases.every_attribute import CHOICES, DML_CHOICES, OF_MODE
from conformance.cases.make import BOTH, FLOATS, POOL, RESAMPLE, ROTATED, Attributes, make, of_scene
from conformance.cases.rotated import SCENES as ROTATED_SCENES
from conformance.cases.scenes import SCENES, Scene, load, scatter
from conformance.cases.values import MANY

ONNX, DIRECTML = BOTH
TEXT = Source("ONNX operators RoiAlign-10, -16, -22", "onnx 1.23.2", "Attributes")
PAGES = Source("Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC", "MicrosoftDocs/sdk-api 614385ee", "tensors")
OF_POOL = Source("ONNX operators MaxRoiPool-1 and -22", "onnx 1.23.2", "Inputs, Attributes, Outputs")
CLOSED = Source("conformance/cases/extremes.py", f"ortops {ortops.__version__}", "closed forms")

TYPES = {ROTATED: ("float", "double")}
"""The element types of an operator's cases with default attributes or empty tensors, if not all."""


SOURCES = {
    "text": TEXT,
    "text of outputs": replace(TEXT, section="Outputs"),
    "pages": PAGES,
    "text of MaxRoiPool": OF_POOL,
    "closed forms": CLOSED,
    "by hand": Source("ONNX operator RoiAlign-22", "onnx 1.23.2", "the derivative by hand"),
}
"""The sources that the files of this module name; without one, the reference is the source."""


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
    for row in load("defaults.json", dict[str, Any]):
        operator, scenario, attributes = row["operator"], row["scenario"], row["attributes"]
        rest: dict[str, Any] = {
            "types": TYPES.get(operator, FLOATS),
            "source": SOURCES.get(row.get("source", "")),
            "note": row["note"],
            "write_defaults": False,
        }
        if not scenario.endswith("without"):
            yield from make(f"defaults/{scenario}", operator, attributes, tensors[operator], row["outputs"], **rest)
            continue
        for name in attributes:
            others = {other: value for other, value in attributes.items() if other != name}
            named = f"defaults/{scenario}_{name}", operator, others, tensors[operator], row["outputs"]
            for case in make(*named, **{**rest, "types": ["float"]}):
                if any(attribute.name == name for attribute in case.definition.attributes):
                    yield case


def _empty() -> Iterator[Case]:
    """Tensors without RoIs, channels, images or pixels, which are valid."""
    shapes = (((2, 3, 4, 5), 0), ((2, 0, 4, 5), 2), ((0, 3, 4, 5), 0), ((2, 3, 0, 0), 0))
    for row in load("empty.json", dict[str, Any]):
        for (scenario, note), (x_shape, count) in zip(row["notes"].items(), shapes, strict=True):
            x, y, rois = np.zeros(x_shape), np.zeros((count, x_shape[1], 2, 3)), np.zeros((count, len(row["roi"])))
            indices, shape = np.zeros(count, np.int64), np.array(x_shape)
            yield from make(
                f"empty/{scenario}",
                row["operator"],
                row["attributes"],
                {"x": x + 1, "rois": rois + row["roi"], "indices": indices, "dy": y + 1, "x_shape": shape},
                row["outputs"],
                expected={"y": y, "dx": x, "drois": rois},
                types=TYPES.get(row["operator"], FLOATS),
                note=note,
                source=SOURCES.get(row.get("source", "")),
                basis=row["basis"],
            )


def _far() -> Iterator[Case]:
    """Coordinates that float16 cannot represent, from RoIs that it can; and RoIs that start far from the map."""
    note = "coordinates have more digits than the tensors' type: float16 cannot represent 300.3"
    fine = Scene("coordinates_are_not_half", 0, note, (1, 1, 1, 320), ((1000, 0, 1004, 2, 0),), (1, 4), 1, 0.3)
    row = np.abs(np.mod(np.arange(320.0), 8.0) - 4.0) / 4.0
    tensors = {"x": row.reshape(fine.x_shape)}
    for operator, basis in ((ONNX, Basis.REFERENCE), (DIRECTML, Basis.VECTORS)):
        yield from of_scene("matrix", fine, ["y"], tensors=tensors, operators=operator, variant="", basis=basis)
    note = "adaptive: a {} of 2^31 pixels that starts far from the map"
    huge = Scene(
        "huge_from_far",
        5,
        note.format("region"),
        (1, 1, 5, 6),
        ((-(2.0**30), -(2.0**30), 2.0**30, 2.0**30, 0),),
        (1, 1),
    )
    for mode in CHOICES["mode"]:
        yield from of_scene(
            "matrix",
            huge,
            ["y"],
            mode,
            "half_pixel",
            {"x": np.arange(1.0, 31.0).reshape(huge.x_shape)},
            operators=ONNX,
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
            operators=DIRECTML,
            variant=f"{reduction}/{interpolation}",
            types=["double"],
        )


def _many_at_one_place() -> Iterator[Case]:
    """Gradients that add up at one pixel, or at the four around a sample between them."""
    for row in load("many.json", dict[str, Any]):
        (height, width), each, pixels = row["bins"], row.get("each", 1.0), np.array(row["pixels"])
        dx, count = np.zeros((1, 1, 3, 3)), MANY // (height * width)
        dx[0, 0, pixels[:, 0], pixels[:, 1]] = MANY * each / len(pixels)
        yield from make(
            row["scenario"],
            row["operator"],
            row["attributes"],
            {
                "x": dx / MANY,
                "dy": np.full((count, 1, height, width), each),
                "rois": np.tile(np.array(row["roi"], np.float64), (count, 1)),
                "indices": np.zeros(count, np.uint32 if row["operator"] == DIRECTML else np.int64),
                "x_shape": np.array(dx.shape),
            },
            expected={"dx": dx},
            types=row.get("types", FLOATS),
            note=row["note"],
            source=SOURCES[row["source"]],
            basis=row["basis"],
        )
