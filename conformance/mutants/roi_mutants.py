"""Faults that RoiAlign and DmlRoiAlign may both have, each by its two names, and steps of faults on RoIs."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory

Steps = dict[str, Any]


def widened(step: str) -> Steps:
    """A step whose result is rounded to the type of the tensors."""
    return {step: lambda s, up, *a: up(*a).astype(s.dtype).astype(np.float64)}


def refused_without(axis: int) -> Steps:
    """A map or RoIs with a length of 0 are refused."""

    def check(s: Any, up: Any, rois: Array, images: Array, shape: Any) -> None:
        up(rois, images, shape)
        if 0 in ((rois.size,), shape[1:2], shape[2:], shape[:1])[axis]:
            raise ValueError("empty")

    return {"check": check}


def too_many(s: Any, up: Any, *a: Any) -> Any:
    """The step `adaptive_count` without memory for many samples."""
    if up(*a) > 10**6:
        raise MemoryError("samples")
    return up(*a)


def whole_blocks(s: Any, up: Any, x: Array, n: int) -> Any:
    """The step `image` without the channels that fill no block of sixteen."""
    is_done = np.arange(x.shape[1]) < max(x.shape[1] // 16 * 16, min(x.shape[1], 16))
    return np.where(is_done[:, None, None], up(x, n), 0)


def in_32_bits(s: Any, up: Any, rois: Array, images: Array, shape: Any) -> Any:
    """The step `regions` of indices that are cut to 32 bits."""
    return up(rois, images.astype(np.int32 if images.dtype.kind == "i" else np.uint32), shape)


def down_the_columns(s: Any, up: Any, image: Array, axis_y: Any, axis_x: Any, winner: Array) -> Any:
    """The step `effect` of the first winner in the order of the columns."""
    candidates = s.candidates(image, axis_y, axis_x)
    each = 4 if s.mode == "max" else 1
    order = np.arange(candidates.shape[-1]).reshape(axis_y.inside.shape[1], -1, each).swapaxes(0, 1).ravel()
    return up(image, axis_y, axis_x, order[np.argmax(candidates[..., order], axis=-1)])


def as_average(s: Any, up: Any, dy: Array, image: Array, axis_y: Any, axis_x: Any) -> Any:
    """The step `maximum_part` that does as for an average."""
    return s.average_part(dy, image, axis_y, axis_x)


def last_cell(c: Array, length: int) -> Array:
    """The pixel before c, never the last one."""
    return np.clip(np.floor(c), 0, max(length - 2, 0))


def add_borders(mutant: MutantFactory) -> None:
    """Make the faults of ONNX's border, which RoIs along the axes and rotated ones have in common."""
    for name, words, low, high in (
        ("OutsideFrom0", "Samples between -1 and 0 are outside.", 0, 0),
        ("OutsideFromTheLast", "Samples between the last pixel and L are outside.", -1, -1),
        ("BorderMovedByHalfAPixel", "The map reaches from -0.5 to L - 0.5.", -0.5, -0.5),
        ("WholePixelPastTheEnd", "The map reaches to L + 1.", -1, 1),
    ):
        mutant(name, words)(inside=lambda s, up, c, n, low=low, high=high: (c >= low) & (c <= n + high))
    mutant("Minus1Outside", "A sample at -1 is outside.")(inside=lambda s, up, c, n: (c > -1) & (c <= n))
    mutant("LengthOutside", "A sample at L is outside.")(inside=lambda s, up, c, n: (c >= -1) & (c < n))
    mutant("FadesToZero", "The map is padded by a row of zeros, as in coremltools: samples between -1 and 0 fade.")(
        weights=lambda s, up, c, n: up(c, n) * np.clip(1 + np.minimum(c, n - 1 - c), 0, 1)[..., None]
    )
    mutant("LastCellContinued", "Samples beyond the last pixel go on along the slope of the last cell.")(
        weights=lambda s, up, c, n: np.stack([1 - (f := (np.maximum(c, 0) - last_cell(c, n)) * (n > 1)), f], -1),
        taps=lambda s, up, c, n: last_cell(c, n)[..., None] + [0, 1],
    )


def refused_if(refuses: Any) -> Any:
    """A step that fails where `refuses` says so of its arguments."""

    def step(s: Any, up: Any, *a: Any) -> Any:
        if refuses(*a):
            raise ValueError("refused")
        return up(*a)

    return step


def with_dx_always(s: Any, up: Any, dy: Array, rois: Array, images: Array, x_shape: Array, x: Any) -> Any:
    """Both gradients, of which as many as are wanted are taken from the front."""
    wanted, needs_x = sum(map(bool, s.outputs)), s.needs_x()
    s.outputs, names = ["dX", "drois"], s.outputs
    try:
        return up(dy, rois, images, x_shape, np.zeros(x_shape) if x is None and not needs_x else x)[:wanted]
    finally:
        s.outputs = names


def scale_unchecked(s: Any, up: Any) -> None:
    """The step `check_attributes` without spatial_scale."""
    given, s.attributes = s.attributes, s.attributes | {"spatial_scale": 1.0}
    up()
    s.attributes = given


def add_mutants(mutant: MutantFactory, which: int) -> None:
    """Make them all of the control of one dialect: by their first names, or the second."""

    def name(*names: str) -> str:
        return names[which]

    mutant.begin_category(Category.COORDINATES)
    mutant(name("XAndYSwapped", "RegionsAreY1X1Y2X2"), "Reads RoIs as y1 x1 y2 x2.")(
        corners=lambda s, up, roi: up(roi)[[1, 0, 3, 2]]
    )
    mutant(
        name("EndsOrdered", "RegionEndsOrdered"),
        "Exchanges the ends of a RoI where they are swapped, so that nothing is mirrored.",
    )(corners=lambda s, up, roi: np.sort(up(roi).reshape(2, 2), axis=0).ravel())
    mutant.begin_category(Category.BORDERS)
    mutant(
        name("EdgesReplicated", "RegionEdgesReplicated"),
        "Samples off the map read its edge, as in torchvision's deterministic path.",
    )(inside=lambda s, up, c, n: np.ones_like(c, bool))
    mutant.begin_category(Category.COUNTS)
    mutant(
        name("Ratio0RoundedDown", "SamplesRoundedDown"),
        "The adaptive number of samples is rounded down, as in MindSpore.",
    )(adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins)))
    mutant(
        name("Ratio0RoundedToTheNearest", "SamplesRoundedToTheNearest"),
        "The adaptive number of samples is rounded to the nearest.",
    )(adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins + 0.5)))
    mutant(
        name("Ratio0OfTheAbsoluteSize", "SamplesOfTheAbsoluteSize"), "Samples a mirrored RoI as often as it is long."
    )(adaptive_count=lambda s, up, size, bins: up(abs(size), bins))
    mutant(
        name("Ratio0OfTheRoi", "SamplesOfTheRegion"),
        "The adaptive number of samples of a bin is that of the whole RoI.",
    )(adaptive_count=lambda s, up, size, bins: up(size, 1))
    mutant(name("ManySamplesRefused", "ManySamplesRefused"), "Makes a list of all samples and has no memory for it.")(
        adaptive_count=too_many
    )
    mutant.begin_category(Category.REDUCTIONS)
    mutant(name("MaxFromZero", "MaxOfRegionFrom0"), "A maximum begins at 0, as OpenVINO's does.")(
        maximum=lambda s, up, v: np.maximum(up(v), 0.0)
    )
    mutant(
        name("MaxFromMinus10000", "MaxOfRegionFromMinus10000"), "A maximum begins at -10000, as mmcv's does on the CPU."
    )(maximum=lambda s, up, v: np.maximum(up(v), -10000.0))
    mutant(name("MaxFirstSampleAlone", "MaxOfTheFirstSample"), "A maximum is over the first sample.")(
        candidates=lambda s, up, *a: up(*a)[..., : 4 if s.mode == "max" else 1]
    )
    mutant.begin_category(Category.TYPES)
    mutant(
        name("CoordinatesInTheTensorsType", "RegionCoordinatesInHalf"),
        "Coordinates have the type of the tensors, as in TensorRT's plugin.",
    )(**widened("place"))
    mutant(name("CoordinatesInFloat", "RegionCoordinatesInFloat"), "Coordinates are float32 for double tensors, too.")(
        place=lambda s, up, *a: up(*a).astype(np.float32).astype(np.float64)
    )
    mutant(
        name("ScaleInTheTensorsType", "RegionScalesInTheTensorsType"),
        "spatial_scale is rounded to the type of the tensors.",
    )(scales=lambda s, up: tuple(map(float, np.array(up()).astype(s.dtype))))
    mutant(
        name("PartialSumsInTheTensorsType", "RegionSumsInTheTensorsType"),
        "Partial sums are rounded to the type of the tensors.",
    )(**widened("partial"))
    mutant(name("DoubleInFloat", "RegionsOfDoubleInFloat"), "double tensors are computed in float32.")(
        rounded=lambda s, up, v: v.astype(np.float32).astype(s.dtype)
    )
    mutant(
        name("DxSumsInTheTensorsType", "MapGradientSumsInTheTensorsType"),
        "dX is summed in the type of the tensors, as torchvision does: float16 sums stall.",
        gradient_only=True,
    )(sum_type=lambda s, up: s.dtype)
    mutant.begin_category(Category.INDEXING)
    mutant(name("BatchIndexIgnored", "RegionIndexIgnored"), "Every RoI is of image 0.")(
        image_of=lambda s, up, r, images: 0
    )
    mutant(
        name("NegativeIndexWraps", "NegativeRegionIndexWraps"), "A batch index of -1 is the last image, as in NumPy."
    )(are_images=lambda s, up, images, n: up(np.where((images < 0) & (images >= -n), 0, images), n))
    mutant(name("IndexNTaken", "RegionIndexNTaken"), "A batch index of N is read as the last image.")(
        are_images=lambda s, up, images, count: up(images, count + 1 if count else 0),
        image=lambda s, up, x, n: up(x, min(n, len(x) - 1)),
        add=lambda s, up, dx, n, part: up(dx, min(n, len(dx) - 1), part),
    )
    mutant(name("IndexIn32Bits", "RegionIndexIn32Bits"), "Batch indices are cut to 32 bits.")(regions=in_32_bits)
    mutant(
        name("WholeBlocksOfChannels", "WholeBlocksOfRegionChannels"),
        "Channels beyond the last whole block of sixteen stay 0.",
    )(image=whole_blocks)
    mutant(name("ChannelsReversed", "RegionChannelsReversed"), "Channels are read from the last to the first.")(
        image=lambda s, up, x, n: up(x, n)[::-1]
    )
    mutant(name("NAndCExchanged", "RegionNAndCExchanged"), "The map is read as [C, N, H, W].")(
        image=lambda s, up, x, n: x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]
    )
    mutant(name("ResultTransposed", "RegionResultTransposed"), "The result is written as [R, C, PW, PH].")(
        forward=lambda s, up, *a: (y := up(*a)).swapaxes(2, 3).reshape(y.shape)
    )
    mutant(name("DxOfImage0", "MapGradientOfImage0"), "Every RoI passes its gradient to image 0.", gradient_only=True)(
        add=lambda s, up, dx, n, part: up(dx, 0, part)
    )
    mutant.begin_category(Category.GRADIENTS)
    mutant(name("DxOverwritten", "DmlDxOverwritten"), "The last RoI of an image alone passes its gradient.")(
        add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe")
    )
    mutant(
        name("DxOfReplicatedEdges", "MapGradientOfReplicatedEdges"),
        "Samples off the map pass their gradient to its edge.",
    )(inside=lambda s, up, c, n: up(c, n) | s.is_gradient)
    mutant(name("TieToTheLast", "DmlTieToTheLast"), "Of equal candidates the last wins.")(
        winner=lambda s, up, v: v.shape[-1] - 1 - up(v[..., ::-1])
    )
    mutant(
        name("TieDownTheColumns", "DmlTieDownTheColumns"),
        "Of equal samples the first down a column wins, not the first along a row.",
    )(effect=down_the_columns)
    mutant(name("OutsideLoses", "DmlOutsideLoses"), "A sample outside the map never wins a maximum's gradient.")(
        outside_value=lambda s, up: -np.inf if s.is_gradient else up()
    )
    mutant(
        name("MaximumPassedAsAverage", "MaximumGradientAsAverage"), "The gradient of a maximum is that of an average."
    )(maximum_part=as_average)
    mutant(name("DxNeedsX", "MapNeededByAverages"), "dX of an average is refused without the map.")(
        needs_x=lambda s, up: True
    )
    mutant(name("DroisWithoutScale", "DmlDroisWithoutScale"), "The gradient by a RoI is by scaled coordinates.")(
        by_ends=lambda s, up, t, scale, is_fixed: up(t, 1.0, is_fixed)
    )
    mutant(name("DroisEndsExchanged", "DmlDroisEndsExchanged"), "The gradients by a RoI's ends are exchanged.")(
        by_ends=lambda s, up, *a: up(*a)[::-1]
    )
    mutant(
        name("DroisHalfAndHalf", "DmlDroisHalfAndHalf"), "Both ends have half of the gradient, wherever a sample lies."
    )(by_ends=lambda s, up, t, *a: up(0 * t + 0.5, *a))
    mutant(name("DroisAre0", "DmlDroisAre0"), "The gradient by a RoI is 0, as in MXNet.")(
        has_slope=lambda s, up, c, inside, n: np.zeros_like(inside)
    )
    mutant.begin_category(Category.DEFAULTS)
    mutant(name("AttributesUnchecked", "RegionAttributesUnchecked"), "No attribute is refused, as in ncnn.")(
        check_attributes=lambda s, up: None, count=lambda s, up, *a: max(up(*a), 1)
    )
    mutant(name("NoRoisRefused", "NoRegionsRefused"), "No RoIs are an error.")(**refused_without(0))
    mutant(name("NoChannelsRefused", "NoChannelsOfAMapRefused"), "No channels are an error.")(**refused_without(1))
    mutant(name("NoPixelsRefused", "NoPixelsOfAMapRefused"), "No pixels are an error without RoIs, too.")(
        **refused_without(2)
    )
    mutant(name("NoImagesRefused", "NoImagesOfAMapRefused"), "No images are an error without RoIs, too.")(
        **refused_without(3)
    )
