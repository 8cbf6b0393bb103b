"""Mutants that RoiAlign and DmlRoiAlign share under two names, and replacements for several mutants on RoIs."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory

Steps = dict[str, Any]


def widened(step: str) -> Steps:
    """A replacement that rounds the result of a step to the type of the tensors."""
    return {step: lambda s, up, *a: up(*a).astype(s.dtype).astype(np.float64)}


def refused_without(axis: int) -> Steps:
    """A replacement of `check` that refuses RoIs or a map with length 0 along an axis."""

    def check(s: Any, up: Any, rois: Array, images: Array, shape: Any) -> None:
        up(rois, images, shape)
        if 0 in ((rois.size,), shape[1:2], shape[2:], shape[:1])[axis]:
            raise ValueError("empty")

    return {"check": check}


def too_many(s: Any, up: Any, *a: Any) -> Any:
    """A replacement of `adaptive_count` that refuses very many samples."""
    if up(*a) > 10**6:
        raise MemoryError("samples")
    return up(*a)


def whole_blocks(s: Any, up: Any, x: Array, n: int) -> Any:
    """A replacement of `image` that clears the channels after the last whole block of 16."""
    is_done = np.arange(x.shape[1]) < max(x.shape[1] // 16 * 16, min(x.shape[1], 16))
    return np.where(is_done[:, None, None], up(x, n), 0)


def in_32_bits(s: Any, up: Any, rois: Array, images: Array, shape: Any) -> Any:
    """A replacement of `regions` that truncates indices to 32 bits."""
    return up(rois, images.astype(np.int32 if images.dtype.kind == "i" else np.uint32), shape)


def down_the_columns(s: Any, up: Any, image: Array, axis_y: Any, axis_x: Any, winner: Array) -> Any:
    """A replacement of `effect` that chooses the first winner in column order."""
    candidates = s.candidates(image, axis_y, axis_x)
    each = 4 if s.mode == "max" else 1
    order = np.arange(candidates.shape[-1]).reshape(axis_y.inside.shape[1], -1, each).swapaxes(0, 1).ravel()
    return up(image, axis_y, axis_x, order[np.argmax(candidates[..., order], axis=-1)])


def as_average(s: Any, up: Any, dy: Array, image: Array, axis_y: Any, axis_x: Any) -> Any:
    """A replacement of `maximum_part` that is the gradient of an average."""
    return s.average_part(dy, image, axis_y, axis_x)


def last_cell(c: Array, length: int) -> Array:
    """The pixel before c, at most the last but one."""
    return np.clip(np.floor(c), 0, max(length - 2, 0))


def add_borders(mutant: MutantFactory) -> None:
    """Make the mutants of the border that upright and rotated RoIs have in common."""
    for name, words, low, high in (
        ("OutsideFrom0", "Samples between -1 and 0 count as outside the map.", 0, 0),
        ("OutsideFromTheLast", "Samples between the last pixel and the map's length count as outside.", -1, -1),
        (
            "BorderMovedByHalfAPixel",
            "The map reaches from -0.5 to its length - 0.5, instead of from -1 to its length.",
            -0.5,
            -0.5,
        ),
        ("WholePixelPastTheEnd", "The map reaches a whole pixel too far, to its length + 1.", -1, 1),
    ):
        mutant(name, words)(inside=lambda s, up, c, n, low=low, high=high: (c >= low) & (c <= n + high))
    mutant("Minus1Outside", "A sample at exactly -1 counts as outside the map.")(
        inside=lambda s, up, c, n: (c > -1) & (c <= n)
    )
    mutant("LengthOutside", "A sample at exactly the map's length counts as outside.")(
        inside=lambda s, up, c, n: (c >= -1) & (c < n)
    )
    mutant("FadesToZero", "The map is padded with zeros, as in coremltools, so samples between -1 and 0 fade to 0.")(
        weights=lambda s, up, c, n: up(c, n) * np.clip(1 + np.minimum(c, n - 1 - c), 0, 1)[..., None]
    )
    mutant("LastCellContinued", "Samples beyond the last pixel are extrapolated from the last two pixels.")(
        weights=lambda s, up, c, n: np.stack([1 - (f := (np.maximum(c, 0) - last_cell(c, n)) * (n > 1)), f], -1),
        taps=lambda s, up, c, n: last_cell(c, n)[..., None] + [0, 1],
    )


def refused_if(refuses: Any) -> Any:
    """A replacement that raises ValueError if `refuses` is true of the step's arguments."""

    def step(s: Any, up: Any, *a: Any) -> Any:
        if refuses(*a):
            raise ValueError("refused")
        return up(*a)

    return step


def with_dx_always(s: Any, up: Any, dy: Array, rois: Array, images: Array, x_shape: Array, x: Any) -> Any:
    """A replacement of `gradient` that returns the first of both gradients if one is wanted."""
    wanted, needs_x = sum(map(bool, s.outputs)), s.needs_x()
    s.outputs, names = ["dX", "drois"], s.outputs
    try:
        return up(dy, rois, images, x_shape, np.zeros(x_shape) if x is None and not needs_x else x)[:wanted]
    finally:
        s.outputs = names


def scale_unchecked(s: Any, up: Any) -> None:
    """A replacement of `check_attributes` that does not check spatial_scale."""
    given, s.attributes = s.attributes, s.attributes | {"spatial_scale": 1.0}
    up()
    s.attributes = given


def add_mutants(mutant: MutantFactory, which: int) -> None:
    """Make the shared mutants of one control; `which` is 0 for the names of RoiAlign, 1 for those of DmlRoiAlign."""

    def name(*names: str) -> str:
        return names[which]

    mutant.begin_category(Category.COORDINATES)
    mutant(name("XAndYSwapped", "RegionsAreY1X1Y2X2"), "RoIs are read as y1, x1, y2 and x2.")(
        corners=lambda s, up, roi: up(roi)[[1, 0, 3, 2]]
    )
    mutant(
        name("EndsOrdered", "RegionEndsOrdered"),
        "Swapped ends of a RoI are put in order, so nothing is mirrored.",
    )(corners=lambda s, up, roi: np.sort(up(roi).reshape(2, 2), axis=0).ravel())
    mutant.begin_category(Category.BORDERS)
    mutant(
        name("EdgesReplicated", "RegionEdgesReplicated"),
        "Samples outside the map read the nearest edge pixel, as in torchvision's deterministic path.",
    )(inside=lambda s, up, c, n: np.ones_like(c, bool))
    mutant.begin_category(Category.COUNTS)
    mutant(
        name("Ratio0RoundedDown", "SamplesRoundedDown"),
        "The adaptive number of samples is rounded down instead of up, as in MindSpore.",
    )(adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins)))
    mutant(
        name("Ratio0RoundedToTheNearest", "SamplesRoundedToTheNearest"),
        "The adaptive number of samples is rounded to nearest instead of up.",
    )(adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins + 0.5)))
    mutant(
        name("Ratio0OfTheAbsoluteSize", "SamplesOfTheAbsoluteSize"),
        "The adaptive number of samples of a RoI with swapped ends follows from its absolute size.",
    )(adaptive_count=lambda s, up, size, bins: up(abs(size), bins))
    mutant(
        name("Ratio0OfTheRoi", "SamplesOfTheRegion"),
        "The adaptive number of samples follows from the size of the RoI instead of the bin.",
    )(adaptive_count=lambda s, up, size, bins: up(size, 1))
    mutant(name("ManySamplesRefused", "ManySamplesRefused"), "RoIs with very many samples are refused.")(
        adaptive_count=too_many
    )
    mutant.begin_category(Category.REDUCTIONS)
    mutant(
        name("MaxFromZero", "MaxOfRegionFrom0"), "A maximum starts at 0, so negative values are lost, as in OpenVINO."
    )(maximum=lambda s, up, v: np.maximum(up(v), 0.0))
    mutant(
        name("MaxFromMinus10000", "MaxOfRegionFromMinus10000"),
        "A maximum starts at -10000, so lower values are lost, as with mmcv on the CPU.",
    )(maximum=lambda s, up, v: np.maximum(up(v), -10000.0))
    mutant(
        name("MaxFirstSampleAlone", "MaxOfTheFirstSample"), "A maximum is taken over the first sample of a bin only."
    )(candidates=lambda s, up, *a: up(*a)[..., : 4 if s.mode == "max" else 1])
    mutant.begin_category(Category.TYPES)
    mutant(
        name("CoordinatesInTheTensorsType", "RegionCoordinatesInHalf"),
        "Coordinates are computed in the type of the tensors, as in TensorRT's plugin.",
    )(**widened("place"))
    mutant(name("CoordinatesInFloat", "RegionCoordinatesInFloat"), "Coordinates are float32 even for double tensors.")(
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
    mutant(name("DoubleInFloat", "RegionsOfDoubleInFloat"), "Results of double tensors have the precision of float32.")(
        rounded=lambda s, up, v: v.astype(np.float32).astype(s.dtype)
    )
    mutant(
        name("DxSumsInTheTensorsType", "MapGradientSumsInTheTensorsType"),
        "dX is summed in the type of the tensors, as in torchvision, so float16 sums stop growing.",
        gradient_only=True,
    )(sum_type=lambda s, up: s.dtype)
    mutant.begin_category(Category.INDEXING)
    mutant(name("BatchIndexIgnored", "RegionIndexIgnored"), "Every RoI reads image 0.")(
        image_of=lambda s, up, r, images: 0
    )
    mutant(
        name("NegativeIndexWraps", "NegativeRegionIndexWraps"),
        "Negative batch indices count from the last image, as in NumPy, instead of being refused.",
    )(are_images=lambda s, up, images, n: up(np.where((images < 0) & (images >= -n), 0, images), n))
    mutant(
        name("IndexNTaken", "RegionIndexNTaken"),
        "A batch index of N, one too large, reads the last image instead of being refused.",
    )(
        are_images=lambda s, up, images, count: up(images, count + 1 if count else 0),
        image=lambda s, up, x, n: up(x, min(n, len(x) - 1)),
        add=lambda s, up, dx, n, part: up(dx, min(n, len(dx) - 1), part),
    )
    mutant(name("IndexIn32Bits", "RegionIndexIn32Bits"), "Batch indices are truncated to 32 bits.")(regions=in_32_bits)
    mutant(
        name("WholeBlocksOfChannels", "WholeBlocksOfRegionChannels"),
        "Channels after the last whole block of 16 stay 0.",
    )(image=whole_blocks)
    mutant(name("ChannelsReversed", "RegionChannelsReversed"), "Channels are read in reverse order.")(
        image=lambda s, up, x, n: up(x, n)[::-1]
    )
    mutant(name("NAndCExchanged", "RegionNAndCExchanged"), "The map is read as [C, N, H, W].")(
        image=lambda s, up, x, n: x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]
    )
    mutant(name("ResultTransposed", "RegionResultTransposed"), "The result is written as [R, C, PW, PH].")(
        forward=lambda s, up, *a: (y := up(*a)).swapaxes(2, 3).reshape(y.shape)
    )
    mutant(name("DxOfImage0", "MapGradientOfImage0"), "dX of every RoI goes to image 0.", gradient_only=True)(
        add=lambda s, up, dx, n, part: up(dx, 0, part)
    )
    mutant.begin_category(Category.GRADIENTS)
    mutant(
        name("DxOverwritten", "DmlDxOverwritten"),
        "dX of an image is overwritten by each RoI instead of summed: only the last RoI counts.",
    )(add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe"))
    mutant(
        name("DxOfReplicatedEdges", "MapGradientOfReplicatedEdges"),
        "Samples outside the map pass their gradient to the nearest edge pixel.",
    )(inside=lambda s, up, c, n: up(c, n) | s.is_gradient)
    mutant(
        name("TieToTheLast", "DmlTieToTheLast"),
        "The last of several equal candidates gets the gradient of a maximum instead of the first.",
    )(winner=lambda s, up, v: v.shape[-1] - 1 - up(v[..., ::-1]))
    mutant(
        name("TieDownTheColumns", "DmlTieDownTheColumns"),
        "Ties of a maximum go to the first sample in column order instead of row order.",
    )(effect=down_the_columns)
    mutant(
        name("OutsideLoses", "DmlOutsideLoses"),
        "A sample outside the map is never the maximum in the gradient, though it may be in the forward operator.",
    )(outside_value=lambda s, up: -np.inf if s.is_gradient else up())
    mutant(
        name("MaximumPassedAsAverage", "MaximumGradientAsAverage"), "The gradient of a maximum is that of an average."
    )(maximum_part=as_average)
    mutant(
        name("DxNeedsX", "MapNeededByAverages"),
        "dX of an average is refused unless X is given, though it does not need X.",
    )(needs_x=lambda s, up: True)
    mutant(name("DroisWithoutScale", "DmlDroisWithoutScale"), "drois lacks the factor spatial_scale.")(
        by_ends=lambda s, up, t, scale, is_fixed: up(t, 1.0, is_fixed)
    )
    mutant(
        name("DroisEndsExchanged", "DmlDroisEndsExchanged"), "drois of the start and of the end of a RoI are exchanged."
    )(by_ends=lambda s, up, *a: up(*a)[::-1])
    mutant(
        name("DroisHalfAndHalf", "DmlDroisHalfAndHalf"),
        "drois gives half of each sample's gradient to either end, wherever the sample lies.",
    )(by_ends=lambda s, up, t, *a: up(0 * t + 0.5, *a))
    mutant(name("DroisAre0", "DmlDroisAre0"), "drois is 0, as in MXNet.")(
        has_slope=lambda s, up, c, inside, n: np.zeros_like(inside)
    )
    mutant.begin_category(Category.DEFAULTS)
    mutant(name("AttributesUnchecked", "RegionAttributesUnchecked"), "Attribute values are not checked, as in ncnn.")(
        check_attributes=lambda s, up: None, count=lambda s, up, *a: max(up(*a), 1)
    )
    mutant(name("NoRoisRefused", "NoRegionsRefused"), "An input without RoIs is refused.")(**refused_without(0))
    mutant(name("NoChannelsRefused", "NoChannelsOfAMapRefused"), "A map without channels is refused.")(
        **refused_without(1)
    )
    mutant(
        name("NoPixelsRefused", "NoPixelsOfAMapRefused"), "A map without pixels is refused even if there are no RoIs."
    )(**refused_without(2))
    mutant(
        name("NoImagesRefused", "NoImagesOfAMapRefused"), "A map without images is refused even if there are no RoIs."
    )(**refused_without(3))
