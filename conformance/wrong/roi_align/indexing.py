"""Faults in which image and which channel is read, and where results go."""

from __future__ import annotations

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Control


class IndexFault(Control):
    """Has its family."""

    family = Family.INDEXING


class BatchIndexIgnored(IndexFault):
    """Every RoI is of image 0."""

    def image_of(self, r: int, images: Array) -> int:
        return 0


class ImagesInTurn(IndexFault):
    """RoI r is of image r, and of the first again after the last."""

    def image_of(self, r: int, images: Array) -> int:
        return int(r % (images.max() + 1))


class FirstImageForAll(IndexFault):
    """Every RoI is of the image of the first one."""

    def image_of(self, r: int, images: Array) -> int:
        return int(images[0])


class NegativeIndexWraps(IndexFault):
    """A batch index of -1 is the last image, as in NumPy."""

    def are_images(self, images: Array, count: int) -> bool:
        return bool(np.all((images >= -count) & (images < count)))


class IndexNTaken(IndexFault):
    """A batch index of N is read as the last image."""

    def are_images(self, images: Array, count: int) -> bool:
        return bool(np.all((images >= 0) & (images <= count))) and (count > 0 or not len(images))

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, min(n, len(x) - 1))

    def add(self, dx: Array, n: int, part: Array) -> None:
        super().add(dx, min(n, len(dx) - 1), part)


class IndexIn32Bits(IndexFault):
    """Batch indices are cut to 32 bits."""

    def are_images(self, images: Array, count: int) -> bool:
        return super().are_images(images.astype(np.int32), count)

    def image_of(self, r: int, images: Array) -> int:
        return int(images.astype(np.int32)[r])


class FirstChannelForAll(IndexFault):
    """Every channel is the first."""

    def image(self, x: Array, n: int) -> Array:
        return np.asarray(x[n][:1].repeat(x.shape[1], 0))


class WholeBlocksOfChannels(IndexFault):
    """Channels beyond the last whole block of sixteen stay 0."""

    def image(self, x: Array, n: int) -> Array:
        is_done = np.arange(x.shape[1]) < max(x.shape[1] // 16 * 16, min(x.shape[1], 16))
        return np.where(is_done[:, None, None], x[n], 0)


class WholeBlocksOfDx(IndexFault):
    """Channels beyond the last whole block of sixteen get no gradient."""

    of_gradients_alone = True

    def add(self, dx: Array, n: int, part: Array) -> None:
        done = max(len(part) // 16 * 16, min(len(part), 16))
        dx[n, :done] += part[:done].astype(dx.dtype)


class ChannelsReversed(IndexFault):
    """Channels are read from the last to the first."""

    def image(self, x: Array, n: int) -> Array:
        return np.asarray(x[n][::-1])


class ChannelsLast(IndexFault):
    """X is read as if its channels were its last axis in memory."""

    def image(self, x: Array, n: int) -> Array:
        return np.moveaxis(x[n].reshape(*x.shape[2:], x.shape[1]), 2, 0)


class NAndCExchanged(IndexFault):
    """X is read as [C, N, H, W]."""

    def image(self, x: Array, n: int) -> Array:
        return x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]


class HAndWExchanged(IndexFault):
    """X is read as [N, C, W, H]."""

    def image(self, x: Array, n: int) -> Array:
        return np.asarray(x[n].reshape(x.shape[1], x.shape[3], x.shape[2]).swapaxes(1, 2))


class ResultTransposed(IndexFault):
    """The result is written as [R, C, PW, PH]."""

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        y = super().forward(x, rois, images)
        return np.asarray(y.swapaxes(2, 3).reshape(y.shape))


class ResultChannelsLast(IndexFault):
    """The result is written with its channels last in memory."""

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        y = super().forward(x, rois, images)
        return np.moveaxis(y, 1, 3).reshape(y.shape)


class RoisGroupedByImage(IndexFault):
    """Results are in the order of the images, not of the RoIs."""

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        return super().forward(x, rois, images)[np.argsort(images, kind="stable")]


class FirstImageAlone(IndexFault):
    """Results of RoIs on other images than the first stay 0."""

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        y = super().forward(x, rois, images)
        y[images != 0] = 0
        return y


class DxOfImage0(IndexFault):
    """Every RoI passes its gradient to image 0."""

    of_gradients_alone = True

    def add(self, dx: Array, n: int, part: Array) -> None:
        super().add(dx, 0, part)


class DyTransposed(IndexFault):
    """dY is read as [R, C, PW, PH]."""

    of_gradients_alone = True

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        exchanged = dy.reshape(*dy.shape[:2], *dy.shape[:1:-1]).swapaxes(2, 3) if dy.ndim == 4 else dy
        return super().gradient(exchanged, rois, images, x_shape, x)


class DroisOfImage0(IndexFault):
    """Gradients of RoIs read image 0."""

    of_gradients_alone = True

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, 0 if self.is_gradient else n)


FAULTS = (
    BatchIndexIgnored,
    ImagesInTurn,
    FirstImageForAll,
    NegativeIndexWraps,
    IndexNTaken,
    IndexIn32Bits,
    FirstChannelForAll,
    WholeBlocksOfChannels,
    WholeBlocksOfDx,
    ChannelsReversed,
    ChannelsLast,
    NAndCExchanged,
    HAndWExchanged,
    ResultTransposed,
    ResultChannelsLast,
    RoisGroupedByImage,
    FirstImageAlone,
    DxOfImage0,
    DyTransposed,
    DroisOfImage0,
)
