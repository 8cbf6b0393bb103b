# SPDX-License-Identifier: MIT
"""Wrong answers whose mistake lies at a seam of large problems: each needs two or three large lengths at once.

They are this project's answers, spoilt as by a runtime that cuts its work into tiles, bands, panels of channels or chunks of
RoIs, and is wrong at one of their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from conformance import backends
from conformance.backends.base import Backend, Session
from conformance.case import Array, Case
from conformance.cases.make import NAMES


class Seam(NamedTuple):
    """A mistake in an output, or in what is read of a map.

    case_id: a case that shows it.
    role: x [N, C, H, W], y [R, C, PH, PW] or [N, C, H, W], dx [N, C, H, W] or drois [R, 4].
    at_least: the lengths from which on it is made.
    """

    case_id: str
    description: str
    role: str
    at_least: tuple[int, ...]
    spoil: Callable[[Any], None]


def _times(factor: float, place: Any) -> Callable[[Array], None]:
    def spoil(a: Array) -> None:
        a[place] *= a.dtype.type(factor)

    return spoil


def _copied(to: Any, of: Any) -> Callable[[Array], None]:
    def spoil(a: Array) -> None:
        a[to] = a[of].copy()

    return spoil


def _cleared_beyond_24_bits(a: Array) -> None:
    a.reshape(-1)[2**24 :] = 0


SEAMS = {
    "LastRowOfMasks": Seam(
        "roi_align/users/masks_14x14/v16/avg/half_pixel/float",
        "Of 16 channels of 14 x 14 bins, the last one has its last row of bins twice.", "y",
        (1, 16, 14, 14), _copied(np.s_[:, 15::16, -1], np.s_[:, 15::16, -2]),
    ),
    "LastChunkOfRois": Seam(
        "max_roi_pool/users/map_131x203/v1/float",
        "RoI 65 is RoI 64.", "y", (66, 1, 1, 1), _copied(65, 64),
    ),
    "PanelOfManyRois": Seam(
        "roi_align_rotated/users/images_8/float",
        "Channel 16 of RoIs from 100 on is channel 15.", "y", (101, 17, 1, 1),
        _copied(np.s_[100:, 16], np.s_[100:, 15]),
    ),
    "LineOfTwoBands": Seam(
        "roi_align_grad/users/map_131x203/max/half_pixel/float",
        "Every 64th row of dX lies in two bands, and is counted twice.", "dx",
        (1, 17, 65, 100), _times(2, np.s_[:, :, 64::64]),
    ),
    "PartialPanelOfDx": Seam(
        "dml_roi_align_grad/users/map_131x203/max_interpolated/half_pixel/float16",
        "Row 32 of the channels from 16 on is counted twice in dX.", "dx",
        (1, 17, 33, 1), _times(2, np.s_[:, 16:, 32]),
    ),
    "FourthImage": Seam(
        "roi_align_rotated_grad/users/images_8/float",
        "The first row of the fourth image is 0 in dX.", "dx", (4, 32, 1, 1),
        _times(0, np.s_[3, :, 0]),
    ),
    "DroisOfTheChunkBefore": Seam(
        "roi_align_grad/users/images_8/avg/output_half_pixel/float",
        "drois of RoIs 256 to 319 are those of the chunk before.", "drois", (320, 4),
        _copied(np.s_[256:320], np.s_[192:256]),
    ),
    "PixelsIn24Bits": Seam(
        "roi_align/sizes/map_of_17_million/v10/avg/output_half_pixel/float16",
        "Pixels beyond 2^24 elements are read as 0.", "x", (1, 1, 1, 1), _cleared_beyond_24_bits,
    ),
    "OutputsIn24Bits": Seam(
        "max_roi_pool/sizes/17_million_outputs/v1/float16",
        "Outputs beyond 2^24 elements are 0.", "y", (1, 1, 1, 1), _cleared_beyond_24_bits,
    ),
    "DxIn24Bits": Seam(
        "roi_align_rotated_grad/sizes/map_of_17_million/float16",
        "dX beyond 2^24 elements is 0.", "dx", (1, 1, 1, 1), _cleared_beyond_24_bits,
    ),
    "Channel64OfResample": Seam(
        "dml_resample/users/rows_and_columns_halved/float16",
        "Channel 64 of a large tensor is channel 63.", "y", (1, 65, 100, 1),
        _copied(np.s_[:, 64], np.s_[:, 63]),
    ),
}  # fmt: skip


class Spoilt(Backend):
    """This project's answers with a mistake."""

    def __init__(self, name: str) -> None:
        self._right, self._seam = backends.load("ortops"), SEAMS[name]

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        session = self._right.prepare(case)
        wrong = NAMES[case.definition.function.removesuffix("_grad")][self._seam.role]

        def spoilt(tensors: Mapping[str, Array]) -> dict[str, Array]:
            spoilt = dict(tensors)
            if wrong in spoilt and np.all(np.array(spoilt[wrong].shape) >= self._seam.at_least):
                spoilt[wrong] = np.array(spoilt[wrong])
                self._seam.spoil(spoilt[wrong])
            return spoilt

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            return spoilt(session(spoilt(inputs)))

        return run
