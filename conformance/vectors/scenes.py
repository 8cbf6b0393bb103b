"""Maps and RoIs that the generated cases share. Each scene tests one property of the sampling geometry.

Coordinates are short binary fractions, which are exact in every element type, so the type rounds only values. Samples keep
away from where rounding of a coordinate decides: borders, pixels, ties between samples, and whole numbers of samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.case import Array, Basis


@dataclass(frozen=True, slots=True)
class Scene:
    """A feature map, RoIs on it, and how they are sampled.

    seed: the seed of the map's numbers; those of dY have `seed + 100`.
    note: what the scene tests, in words.
    x_shape: [N, C, H, W].
    rois: x1, y1, x2, y2 and the index of the image.
    bins: output height and width.
    basis: whose rule decides what the samples of these RoIs are.
    """

    name: str
    seed: int
    note: str
    x_shape: tuple[int, int, int, int]
    rois: tuple[tuple[float, float, float, float, int], ...]
    bins: tuple[int, int]
    sampling_ratio: int
    spatial_scale: float = 1.0
    basis: Basis = Basis.TEXT

    @property
    def tensors(self) -> dict[str, Array]:
        """The tensors by role: x, rois, indices, dy and x_shape, in float64 and int64."""
        y_shape = (len(self.rois), self.x_shape[1], *self.bins)
        return {
            "x": scatter(self.x_shape, seed=self.seed),
            "rois": np.array([roi[:4] for roi in self.rois], np.float64).reshape(-1, 4),
            "indices": np.array([roi[4] for roi in self.rois], np.int64),
            "dy": scatter(y_shape, seed=100 + self.seed),
            "x_shape": np.array(self.x_shape),
        }


def scatter(shape: tuple[int, ...], *, seed: int) -> Array:
    """Quasi-random numbers between -2 and 3, the same on every machine and with every release of NumPy."""
    i = np.arange(1.0, 1.0 + np.prod(shape)) + 1000.0 * seed
    values: Array = 5.0 * np.mod(i * (np.sqrt(5.0) - 1) / 2 + i * i * (np.sqrt(2.0) - 1), 1.0) - 2.0
    return values.reshape(shape)


SCENES = (
    Scene(
        "images_and_channels",
        19,
        "RoIs out of order on three images of two channels, the second image without any",
        (3, 2, 6, 7),
        ((1.25, 0.75, 4.6875, 5.0625, 2), (0.4375, 1.1875, 6.3125, 3.9375, 0), (2.0, 2.1875, 5.8125, 4.5625, 2)),
        (2, 3),
        2,
    ),
    Scene(
        "scale_0_3",
        9,
        "a scale that is not a power of two and, as float32, not exactly 0.3",
        (1, 2, 7, 6),
        ((3.25, 2.5, 15.75, 20.25, 0), (6.5, 5.25, 12.0, 9.75, 0), (0.75, 13.5, 17.25, 19.0, 0)),
        (3, 2),
        2,
        0.3,
    ),
    Scene(
        "scale_1_16",
        10,
        "a scale of 1/16, with RoIs in image coordinates",
        (2, 1, 8, 9),
        ((13.5, 9.5, 110.5, 97.5, 0), (41.5, 22.5, 75.5, 118.5, 1)),
        (2, 2),
        3,
        0.0625,
    ),
    Scene(
        "ratio_0_sides_differ",
        20,
        "adaptive: one to three samples per bin, a different number along each axis of each RoI",
        (1, 2, 8, 9),
        ((0.6875, 1.125, 5.4375, 2.9375, 0), (3.1875, 0.8125, 4.5625, 6.9375, 0), (1.0, 2.3125, 1.9375, 2.8125, 0)),
        (2, 2),
        0,
    ),
    Scene(
        "ratio_0_scale_0_7",
        17,
        "adaptive: the numbers of samples follow from the scaled sizes",
        (1, 1, 8, 9),
        ((1.25, 0.75, 9.5, 6.25, 0), (2.5, 3.25, 5.75, 9.5, 0)),
        (3, 2),
        0,
        0.7,
    ),
    Scene(
        "half_outside",
        12,
        "RoIs across each side of the map and across a corner: samples outside are 0 and count",
        (1, 2, 5, 6),
        (
            (-3.3125, 1.125, 2.0625, 3.8125, 0),
            (1.4375, -3.6875, 4.3125, 2.1875, 0),
            (3.6875, 1.0625, 9.4375, 4.1875, 0),
            (1.125, 2.8125, 4.6875, 8.5625, 0),
            (3.8125, 3.375, 8.6875, 8.9375, 0),
        ),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "overlapping",
        11,
        "five RoIs over the same pixels of one image and one of another",
        (2, 1, 5, 5),
        (
            (0.8125, 0.6875, 3.9375, 3.5625, 1),
            (1.1875, 1.0625, 4.3125, 3.8125, 1),
            (0.8125, 0.6875, 3.9375, 3.5625, 1),
            (1.4375, 0.5, 3.1875, 4.3125, 1),
            (0.625, 1.5625, 4.1875, 2.9375, 1),
            (1.0625, 1.1875, 3.6875, 3.3125, 0),
        ),
        (2, 2),
        2,
    ),
    Scene(
        "larger_than_the_map",
        19,
        "adaptive: RoIs around the whole map, most of their samples outside",
        (1, 2, 4, 3),
        ((-5.8125, -4.6875, 7.9375, 9.0625, 0), (-2.3125, -9.1875, 12.4375, 3.3125, 0)),
        (2, 3),
        0,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "upsampled",
        9,
        "more bins than pixels in the RoI",
        (1, 1, 4, 4),
        ((1.0625, 1.125, 2.4375, 2.8125, 0),),
        (5, 6),
        1,
    ),
    Scene(
        "one_row",
        7,
        "a map of one row: nothing to interpolate between along y",
        (1, 2, 1, 9),
        ((1.3125, 0.1875, 6.8125, 0.9375, 0), (3.0, -0.3125, 9.8125, 1.8125, 0)),
        (1, 3),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "one_column",
        10,
        "a map of one column: nothing to interpolate between along x",
        (1, 2, 9, 1),
        ((0.1875, 1.3125, 0.9375, 6.8125, 0), (-0.3125, 3.0, 1.8125, 9.8125, 0)),
        (3, 1),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "swapped_ends",
        12,
        "RoIs with swapped ends along either axis or both",
        (1, 2, 6, 6),
        (
            (4.6875, 4.1875, 1.3125, 0.9375, 0),
            (4.6875, 1.1875, 1.3125, 3.9375, 0),
            (1.25, 4.4375, 3.6875, 1.0625, 0),
        ),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "no_extent",
        9,
        "RoIs that are a line or a point: samples at one place tie in every maximum, and the first wins",
        (1, 2, 6, 6),
        (
            (2.1875, 1.4375, 2.1875, 4.3125, 0),
            (1.25, 2.3125, 3.6875, 2.3125, 0),
            (2.3125, 3.1875, 2.3125, 3.1875, 0),
        ),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "many",
        4,
        "seven channels and nine RoIs on two images: counts that no block of a kernel divides",
        (2, 7, 5, 7),
        (
            (0.3125, 0.4375, 3.1875, 2.0625, 0),
            (0.6875, 0.6875, 3.625, 2.375, 1),
            (1.0625, 0.9375, 4.0625, 2.6875, 0),
            (1.4375, 1.1875, 4.5, 3.0, 1),
            (1.8125, 1.375, 4.9375, 3.3125, 0),
            (2.1875, 1.6875, 5.375, 3.625, 1),
            (2.5625, 1.9375, 5.8125, 3.9375, 0),
            (2.9375, 2.1875, 6.25, 4.25, 1),
            (3.25, 2.375, 6.6875, 4.5625, 0),
        ),
        (3, 3),
        1,
    ),
    Scene(
        "scale_1_4",
        9,
        "a scale above 1 that is not a power of two",
        (1, 2, 7, 6),
        ((0.75, 0.5, 3.0625, 4.1875, 0), (1.3125, 1.0, 4.6875, 2.9375, 0)),
        (2, 2),
        2,
        1.4,
    ),
)
