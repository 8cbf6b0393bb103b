"""Faults in what versions and absent attributes mean, and in what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Control


class DefaultFault(Control):
    """Has its family."""

    family = Family.DEFAULTS


class Opset10As16(DefaultFault):
    """Opset 10 has half_pixel, as in onnx's reference evaluator."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "coordinate_transformation_mode": "half_pixel"}


class Opset16As10(DefaultFault):
    """Opset 16 has output_half_pixel where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "coordinate_transformation_mode": "output_half_pixel"}


class Opset22As10(DefaultFault):
    """An opset that is not known is taken for the first."""

    def defaults(self) -> dict[str, Any]:
        is_known = self.is_gradient or self.opset in (10, 16)
        mode = {} if is_known else {"coordinate_transformation_mode": "output_half_pixel"}
        return {**super().defaults(), **mode}


class Ratio1ByDefault(DefaultFault):
    """sampling_ratio is 1 where nothing is said, as in onnx-tensorrt, OpenVINO's frontend and PopART."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "sampling_ratio": 1}


class Ratio2ByDefault(DefaultFault):
    """sampling_ratio is 2 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "sampling_ratio": 2}


class Output7x7ByDefault(DefaultFault):
    """The output is 7 x 7 where nothing is said, as in PopART."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "output_height": 7, "output_width": 7}


class MaxByDefault(DefaultFault):
    """mode is max where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "mode": "max"}


class SixteenthByDefault(DefaultFault):
    """spatial_scale is 1/16 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "spatial_scale": 0.0625}


class HeightForWidth(DefaultFault):
    """The output is as wide as it is high."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {**attributes, "output_width": attributes["output_height"]}


class HeightAndWidthExchanged(DefaultFault):
    """output_height is the width, and output_width the height."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        height, width = attributes["output_height"], attributes["output_width"]
        return {**attributes, "output_height": width, "output_width": height}


class AttributesUnchecked(DefaultFault):
    """No attribute is refused."""

    def check_attributes(self) -> None:
        pass


class UnknownModeIsMax(DefaultFault):
    """A mode that is not avg is a maximum."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["mode"]
        return {**attributes, "mode": mode if mode in ("avg", "max_interpolated") else "max"}


class CaseOfModesIgnored(DefaultFault):
    """Modes may be in upper case, as in onnx's reference evaluator."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        names = ("mode", "coordinate_transformation_mode")
        return {**attributes, **{name: attributes[name].lower() for name in names}}


class UnknownCoordinatesAreOutputHalfPixel(DefaultFault):
    """A coordinate_transformation_mode other than half_pixel does not shift, as in ONNX Runtime."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["coordinate_transformation_mode"]
        return {**attributes, "coordinate_transformation_mode": mode if mode == "half_pixel" else "output_half_pixel"}


class NegativeRatioIsAdaptive(DefaultFault):
    """A negative sampling_ratio is 0, as in onnx's reference evaluator."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {**attributes, "sampling_ratio": max(attributes["sampling_ratio"], 0)}


class EmptyOutputTaken(DefaultFault):
    """An output without rows or columns is no error, as in ONNX Runtime."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        sizes = {name: max(attributes[name], 1) for name in ("output_height", "output_width")}
        return {**attributes, **sizes}


class ScaleUnchecked(DefaultFault):
    """spatial_scale may be anything."""

    def check_attributes(self) -> None:
        scale, self.attributes["spatial_scale"] = self.attributes["spatial_scale"], 1.0
        super().check_attributes()
        self.attributes["spatial_scale"] = scale


class RoisUnchecked(DefaultFault):
    """RoIs that are not finite are empty."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(np.nan_to_num(rois, posinf=0.0, neginf=0.0), images, shape)

    def count(self, size: float, bins: int) -> int:
        return super().count(size, bins) if np.isfinite(size) else 0


class NaNAloneRefused(DefaultFault):
    """RoIs that are infinite are empty; only NaN is refused."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(np.where(np.isinf(rois), 0, rois), images, shape)

    def count(self, size: float, bins: int) -> int:
        return super().count(size, bins) if np.isfinite(size) else 0


class FiveNumbersTaken(DefaultFault):
    """RoIs of five numbers lose the last."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois[:, :4] if rois.ndim == 2 else rois, images, shape)

    def corners(self, roi: Array) -> Array:
        return roi[:4]


class MoreIndicesTaken(DefaultFault):
    """Batch indices beyond the RoIs are not read."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images[: len(rois)], shape)


class NoRoisRefused(DefaultFault):
    """No RoIs are an error."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images, shape)
        if not len(rois):
            raise ValueError("no RoIs")


class NoChannelsRefused(DefaultFault):
    """No channels are an error."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images, shape)
        if not shape[1]:
            raise ValueError("no channels")


class NoPixelsRefused(DefaultFault):
    """No pixels are an error without RoIs, too."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images, shape)
        if 0 in shape[2:]:
            raise ValueError("no pixels")


class NoImagesRefused(DefaultFault):
    """No images are an error without RoIs, too."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images, shape)
        if not shape[0]:
            raise ValueError("no images")


class NoPixelsTaken(DefaultFault):
    """RoIs on a map without pixels are 0."""

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        super().check(rois, images, (*shape[:2], *(max(length, 1) for length in shape[2:])))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        return super().forward(np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])]), rois, images)


class XOfAnotherShapeTaken(DefaultFault):
    """The gradient of an average does not look at the shape of X where it does not read it."""

    of_gradients_alone = True

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        is_read = x is None or x.shape == tuple(x_shape)
        return super().gradient(dy, rois, images, x_shape, x if is_read else np.zeros(x_shape))


FAULTS = (
    Opset10As16,
    Opset16As10,
    Opset22As10,
    Ratio1ByDefault,
    Ratio2ByDefault,
    Output7x7ByDefault,
    MaxByDefault,
    SixteenthByDefault,
    HeightForWidth,
    HeightAndWidthExchanged,
    AttributesUnchecked,
    UnknownModeIsMax,
    CaseOfModesIgnored,
    UnknownCoordinatesAreOutputHalfPixel,
    NegativeRatioIsAdaptive,
    EmptyOutputTaken,
    ScaleUnchecked,
    RoisUnchecked,
    NaNAloneRefused,
    FiveNumbersTaken,
    MoreIndicesTaken,
    NoRoisRefused,
    NoChannelsRefused,
    NoPixelsRefused,
    NoImagesRefused,
    NoPixelsTaken,
    XOfAnotherShapeTaken,
)
