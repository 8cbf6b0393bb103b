"""DmlRoiAlign and its gradient over the scenes, with every value of every attribute; expected values by the reference.

Pixel offsets, limits, scales, types and ranks take turns from case to case. Of the pairs of offsets a case takes the
first, from its turn on, that keeps its samples away from where a last bit decides: the border of the map, the middle
between two pixels where the nearest is read, the pixels where linear ones are, whole numbers of samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import ortops
from conformance.case import Array, Basis, Case, Source
from conformance.vectors.expand import expand
from conformance.vectors.scenes import SCENES, Scene, scatter
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, UINT32_MAX
from ortops.spec import AttributeValue

BY_REFERENCE = Source("ortops/reference/dml_roi_align.py", f"ortops {ortops.__version__}", "dml_roi_align")
BY_REFERENCE_OF_THE_GRADIENT = replace(BY_REFERENCE, section="dml_roi_align_grad")
DOCUMENTATION = Source(
    "Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC", "MicrosoftDocs/sdk-api 614385ee", "tensors"
)

CHOICES = {attribute.name: attribute.choices for attribute in DML_ROI_ALIGN.attributes}

OFFSETS = (
    (0.5, -0.5),
    (0.0, 0.0),
    (0.5, 0.0),
    (0.0, -0.5),
    (0.34375, -0.21875),
    (-0.28125, 0.40625),
    (0.15625, -0.59375),
    (0.40625, 0.28125),
)
"""Of input and output pixels. DirectML's pages call 0.5 or 0 and -0.5 or 0 typical and allow any."""

OUT_OF_BOUNDS = (0.0, 2.5, -3.0, 7.0)

LIMITS = ((1, UINT32_MAX), (1, 2), (2, UINT32_MAX), (2, 3), (1, 1))
"""Least and most samples, where a scene leaves their number to its regions."""

STRETCH = (1.0, 0.75, 1.25)
"""Of spatial_scale_y against spatial_scale_x."""

INDEX_TYPES = (np.uint32, np.int64)

MARGIN = 2e-3
"""Pixels. Rounding of float32 coordinates moves a sample of the scenes by less than a twentieth of it."""

WANTED = (
    ("OutputGradientTensor", "OutputROIGradientTensor"),
    ("OutputGradientTensor",),
    ("OutputROIGradientTensor",),
)

Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _Setting:
    """A scene with all attributes but the output's size and out_of_bounds_input_value; turn is its number."""

    scene: Scene
    turn: int
    attributes: Attributes

    @property
    def variant(self) -> str:
        """The part of an id that tells this setting from the scene's others."""
        corners = "corners" if self.attributes["align_regions_to_corners"] else "inside"
        return f"{self.attributes['reduction_function']}/{self.attributes['interpolation_mode']}/{corners}"

    @property
    def basis(self) -> Basis:
        """DirectML's pages say neither where the map ends nor how samples are aligned to corners."""
        is_silent = self.scene.basis is not Basis.TEXT or self.attributes["align_regions_to_corners"]
        return Basis.OURS if is_silent else Basis.TEXT

    @property
    def output_size(self) -> dict[str, AttributeValue]:
        return self.scene.output_size

    @property
    def inputs(self) -> dict[str, Array]:
        """The scene's, under DirectML's names, in the ranks and the index type whose turn it is."""
        x, rois, indices = self.scene.inputs.values()
        return {
            "InputTensor": x,
            "ROITensor": rois.reshape((1,) * (self.turn % 3) + rois.shape),
            "BatchIndicesTensor": indices.astype(INDEX_TYPES[self.turn % 2]).reshape(
                (1,) * (self.turn // 2 % 4) + indices.shape
            ),
        }


def cases() -> Iterator[Case]:
    """All of them."""
    for setting in _settings():
        yield from _forward(setting)
        yield from _gradient(setting)
    yield from _defaults()
    yield from _empty()
    yield from _far()
    yield from _many_at_one_place()


def _forward(setting: _Setting) -> Iterator[Case]:
    outside = OUT_OF_BOUNDS[setting.turn % len(OUT_OF_BOUNDS)]
    yield from expand(
        f"matrix/{setting.scene.name}",
        variant=setting.variant,
        function="dml_roi_align",
        source=BY_REFERENCE,
        basis=setting.basis,
        note=setting.scene.note,
        attributes={**setting.attributes, **setting.output_size, "out_of_bounds_input_value": outside},
        inputs=setting.inputs,
        outputs=["OutputTensor"],
    )


def _gradient(setting: _Setting) -> Iterator[Case]:
    outputs = WANTED[setting.turn % len(WANTED)]
    needs_x = setting.attributes["reduction_function"] == "max" or WANTED[2][0] in outputs
    inputs = {
        **setting.inputs,
        "InputGradientTensor": setting.scene.dy,
        "x_shape": np.array(setting.scene.x_shape),
    }
    yield from expand(
        f"matrix/{setting.scene.name}",
        variant=setting.variant,
        function="dml_roi_align_grad",
        source=BY_REFERENCE_OF_THE_GRADIENT,
        basis=setting.basis,
        note=setting.scene.note,
        attributes=setting.attributes,
        inputs={name: array for name, array in inputs.items() if name != "InputTensor" or needs_x},
        outputs=outputs,
    )


def _settings() -> Iterator[_Setting]:
    combinations = itertools.product(CHOICES["reduction_function"], CHOICES["interpolation_mode"], (0, 1))
    for turn, (scene, (reduction, interpolation, corners)) in enumerate(itertools.product(SCENES, list(combinations))):
        chosen: dict[str, AttributeValue] = {
            "reduction_function": reduction,
            "interpolation_mode": interpolation,
            "align_regions_to_corners": corners,
        }
        yield _Setting(scene, turn, {**chosen, **_sampling(scene, turn, chosen)})


def _sampling(scene: Scene, turn: int, chosen: Attributes) -> dict[str, AttributeValue]:
    """The attributes that say where samples lie: the first, from the turn on, that keep away from what a bit decides."""
    for i in range(turn, turn + len(OFFSETS) * len(STRETCH)):
        ratio = scene.sampling_ratio
        least, most = (ratio, ratio) if ratio else LIMITS[turn % len(LIMITS)]
        tried: dict[str, AttributeValue] = {
            "spatial_scale_x": scene.spatial_scale,
            "spatial_scale_y": float(np.float32(scene.spatial_scale * STRETCH[i % len(STRETCH)])),
            "input_pixel_offset": OFFSETS[i % len(OFFSETS)][0],
            "output_pixel_offset": OFFSETS[i % len(OFFSETS)][1],
            "minimum_samples_per_output": least,
            "maximum_samples_per_output": most,
        }
        if _is_settled(scene, {**chosen, **tried}):
            return tried
    raise ValueError(f"{scene.name}: no offsets of {OFFSETS} keep its samples away from where a last bit decides")


def _is_settled(scene: Scene, attributes: Attributes) -> bool:
    rois = np.array([roi[:4] for roi in scene.rois])
    for axis, (bins, length) in enumerate(zip(scene.bins[::-1], scene.x_shape[:1:-1], strict=True)):
        scale = float(np.float32(attributes[("spatial_scale_x", "spatial_scale_y")[axis]]))
        for a, b in scale * rois[:, axis::2]:
            c = _coordinates(a, b, bins, attributes)
            if c is None or not _is_clear(c, length, attributes["interpolation_mode"] == "linear"):
                return False
    return True


def _coordinates(a: float, b: float, bins: int, attributes: Attributes) -> npt.NDArray[Any] | None:
    """Of all samples along one axis of one region; None where their number is about to change."""
    least, most = (int(attributes[f"{limit}imum_samples_per_output"]) for limit in ("min", "max"))
    wanted = (b - a) / bins
    is_exact = (wanted * 2**20).is_integer()
    is_free = least - MARGIN < wanted < most + MARGIN and least < most
    if is_free and not is_exact and abs(wanted - round(wanted)) < MARGIN:
        return None
    count = bins * min(max(int(np.ceil(wanted)), least), most)
    s = np.arange(count) - float(attributes["output_pixel_offset"])
    t = s / count
    if attributes["align_regions_to_corners"]:
        t = s / (count - 1) if count > 1 else np.array([0.5])
    return np.asarray(a + (b - a) * t - float(attributes["input_pixel_offset"]))


def _is_clear(c: npt.NDArray[Any], length: int, is_linear: bool) -> bool:
    inside = c[(c > -MARGIN) & (c < length - 1 + MARGIN)]
    shifted = inside if is_linear else inside - 0.5
    distances = [np.abs(c + 1), np.abs(c - length), np.abs(shifted - np.round(shifted))]
    return min(float(np.min(distance, initial=1.0)) for distance in distances) > MARGIN


def _defaults() -> Iterator[Case]:
    scene = next(scene for scene in SCENES if scene.name == "ratio_0_sides_differ")
    x, rois, indices = scene.inputs.values()
    inputs = {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": indices}
    sizes: dict[str, AttributeValue] = {"output_height": 2, "output_width": 3}
    note = "ROI_ALIGN of DirectML 3.0: average, linear, offsets 0.5 and -0.5, adaptive sampling, scales 1"
    for name, attributes in (("none_given", {}), ("sizes_given", sizes)):
        yield from expand(
            f"defaults/{name}",
            function="dml_roi_align",
            source=BY_REFERENCE,
            note=note,
            attributes=attributes,
            inputs=inputs,
            outputs=["OutputTensor"],
            write_defaults=False,
        )
    yield from expand(
        "defaults/none_given",
        function="dml_roi_align_grad",
        source=BY_REFERENCE_OF_THE_GRADIENT,
        note=note,
        attributes={},
        inputs={**inputs, "InputGradientTensor": scene.dy, "x_shape": np.array(scene.x_shape)},
        outputs=WANTED[0],
        write_defaults=False,
    )


def _empty() -> Iterator[Case]:
    """Nothing to compute is no error."""
    for fact, note, x_shape, count in (
        (
            "no_regions",
            "without regions the output and their gradient are empty, the map's gradient is 0",
            (2, 3, 4, 5),
            0,
        ),
        ("no_channels", "without channels the output is empty, the regions' gradient is 0", (2, 0, 4, 5), 2),
        ("no_images_no_regions", "no images are no error where there are no regions", (0, 3, 4, 5), 0),
        ("no_pixels_no_regions", "no pixels are no error where there are no regions", (2, 3, 0, 0), 0),
    ):
        inputs = {
            "InputTensor": np.ones(x_shape),
            "ROITensor": np.ones((count, 4)),
            "BatchIndicesTensor": np.zeros(count, np.int64),
        }
        y = (count, x_shape[1], 2, 3)
        yield from expand(
            f"empty/{fact}",
            function="dml_roi_align",
            source=DOCUMENTATION,
            note=note,
            basis=Basis.OURS,
            attributes={"output_height": 2, "output_width": 3},
            inputs=inputs,
            outputs=["OutputTensor"],
            expected={"OutputTensor": np.zeros(y)},
        )
        yield from expand(
            f"empty/{fact}",
            function="dml_roi_align_grad",
            source=DOCUMENTATION,
            note=note,
            basis=Basis.OURS,
            attributes={},
            inputs={**inputs, "InputGradientTensor": np.ones(y), "x_shape": np.array(x_shape)},
            outputs=WANTED[0],
            expected={"OutputGradientTensor": np.zeros(x_shape), "OutputROIGradientTensor": np.zeros((count, 4))},
        )


def _far() -> Iterator[Case]:
    """Coordinates that half precision cannot hold, from regions that it can; and regions that begin far from the map."""
    row = np.abs(np.mod(np.arange(320.0), 8.0) - 4.0) / 4.0
    yield from expand(
        "matrix/coordinates_are_not_half",
        function="dml_roi_align",
        source=BY_REFERENCE,
        basis=Basis.OURS,
        note="coordinates have more digits than the tensor's type: 300.3 is no half-precision number",
        attributes={"spatial_scale_x": 0.3, "spatial_scale_y": 0.3, "maximum_samples_per_output": 1, "output_width": 4},
        inputs={
            "InputTensor": row.reshape(1, 1, 1, 320),
            "ROITensor": np.array([[1000, 0, 1004, 2]]),
            "BatchIndicesTensor": np.array([0]),
        },
        outputs=["OutputTensor"],
    )
    for reduction, interpolation in itertools.product(CHOICES["reduction_function"], CHOICES["interpolation_mode"]):
        yield from expand(
            "matrix/huge_from_far",
            variant=f"{reduction}/{interpolation}",
            function="dml_roi_align",
            source=BY_REFERENCE,
            basis=Basis.OURS,
            note="adaptive: a region of 2e9 pixels that begins far from the map",
            attributes={
                "reduction_function": reduction,
                "interpolation_mode": interpolation,
                "output_pixel_offset": -0.28125,
                "out_of_bounds_input_value": -3.0,
            },
            inputs={
                "InputTensor": scatter((1, 1, 5, 6), seed=5),
                "ROITensor": np.array([[-1e9, -1e9, 1e9, 1e9]]),
                "BatchIndicesTensor": np.array([0]),
            },
            outputs=["OutputTensor"],
            types=["double"],
        )


def _many_at_one_place() -> Iterator[Case]:
    """A sum in float16 stops at 2048."""
    count = 4096
    expected = np.zeros((1, 1, 3, 3))
    expected[0, 0, 1, 1] = count
    yield from expand(
        "edge/map_gradient_of_4096_regions",
        function="dml_roi_align_grad",
        source=DOCUMENTATION,
        basis=Basis.OURS,
        note="the gradients of many regions at one pixel are not summed in half precision",
        attributes={},
        inputs={
            "InputGradientTensor": np.ones((count, 1, 1, 1)),
            "ROITensor": np.full((count, 4), 1.5),
            "BatchIndicesTensor": np.zeros(count, np.uint32),
            "x_shape": np.array([1, 1, 3, 3]),
        },
        outputs=["OutputGradientTensor"],
        expected={"OutputGradientTensor": expected},
    )
