"""Wrong implementations whose mistake lies at a seam of large problems: each needs two or three large lengths at once.

Each is a backend, such as `seams:LineOfTwoBands`. It computes with this project's kernels, and spoils what a runtime would
that cuts its work into tiles, bands, panels of channels or chunks of RoIs, and is wrong at one of their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import ortops
from conformance.vectors.dialects import NAMES
from ortops.operators import BY_NAME, OPERATORS

Array = npt.NDArray[Any]

_OF_ONNX = {op.standard[0]: op for op in OPERATORS if op.standard}


def computed(
    op_type: str, inputs: Mapping[str, Array | None], attributes: Mapping[str, Any], outputs: Sequence[str]
) -> dict[str, Array]:
    """The right outputs, by the kernels."""
    definition = BY_NAME.get(op_type) or _OF_ONNX[op_type]
    attributes = definition.check_attributes({n: v for n, v in attributes.items() if n not in definition.constants})
    function, names = definition.function, NAMES[definition.function.removesuffix("_grad")]
    given = {role: inputs[name] for role, name in names.items() if inputs.get(name) is not None}
    # The gradient of an average takes the map by name, since it may do without it.
    order = ["dy", "rois", "indices", "x_shape"] if function.endswith("_grad") else ["x", "rois", "indices"]
    order = ["dy", "x", "rois"] if function == "max_roi_pool_grad" else order
    positional = [given.pop(role) for role in order if role in given]
    if "drois" in names and function.endswith("_grad") and function not in ("max_roi_pool_grad", "dml_resample_grad"):
        wanted = [role for role in ("dx", "drois") if names[role] in outputs]
        found = getattr(ortops, function)(*positional, x=given.get("x"), **attributes, outputs=wanted)
        return {names[role]: np.array(one) for role, one in zip(("dx", "drois"), found, strict=True) if one is not None}
    return {outputs[0]: np.array(getattr(ortops, function)(*positional, **attributes))}


@dataclass
class Problem:
    """One call, and its right outputs, by their roles: y, dx and drois.

    n, c, h, w, r, ph, pw: the lengths; those that the operator does not have are 0.
    """

    op_type: str
    inputs: dict[str, Array | None]
    attributes: Mapping[str, Any]
    outputs: Sequence[str]

    def __post_init__(self) -> None:
        definition = BY_NAME.get(self.op_type) or _OF_ONNX[self.op_type]
        self.names = NAMES[definition.function.removesuffix("_grad")]
        self.found = computed(self.op_type, self.inputs, self.attributes, self.outputs)
        roles = {name: role for role, name in self.names.items()}
        self.by_role = {roles[name]: one for name, one in self.found.items()}
        y: Any = self.by_role.get("y", self.input("dy"))
        x = self.input("x")
        shape = self.input("x_shape").tolist() if x is None and self.input("x_shape") is not None else np.shape(x)
        self.is_resample = "Resample" in self.op_type
        if self.is_resample and "y" in self.by_role:
            shape = y.shape
        self.n, self.c, self.h, self.w = map(int, shape if len(shape) == 4 else (0, 0, 0, 0))
        self.r, _, self.ph, self.pw = (0, 0, 0, 0) if self.is_resample else map(int, y.shape)

    def input(self, role: str) -> Any:
        """An input by its role, or None."""
        return self.inputs.get(self.names.get(role, ""))

    def again(self, **changed: Array) -> dict[str, Array]:
        """The right outputs for other inputs, by their roles."""
        inputs = {**self.inputs, **{self.names[role]: one for role, one in changed.items()}}
        found = computed(self.op_type, inputs, self.attributes, self.outputs)
        return {role: found[name] for role, name in self.names.items() if name in found}

    def without(self, where: Callable[[Array], None]) -> dict[str, Array]:
        """The right outputs for a gradient that `where` has changed."""
        dy = self.input("dy").copy()
        where(dy)
        return self.again(dy=dy)

    @property
    def corners(self) -> tuple[Array, Array, Array, Array]:
        """x1, y1, x2 and y2 of each RoI in pixels, about; those of rotated RoIs are their centres."""
        scale = self.attributes.get("spatial_scale", self.attributes.get("spatial_scale_x", 1.0))
        rois = self.input("rois").astype(np.float64).reshape(self.r, -1) * scale
        if "Rotated" in self.op_type:
            return rois[:, 0], rois[:, 1], rois[:, 0], rois[:, 1]
        x1, y1, x2, y2 = rois[:, -4:].T
        return x1, y1, x2, y2


class Seam(NamedTuple):
    """A mistake.

    role: the output that `spoil` changes in place.
    needs: whether a problem is large enough for it.
    of_resample: whether it is of DmlResample, and not of the operators with RoIs.
    """

    description: str
    role: str
    needs: Callable[[Problem], bool]
    spoil: Callable[[Problem, Array], None]
    of_resample: bool = False


def _at(place: Any, p: Problem) -> Any:
    """The elements that an index, or a function of the problem, names."""
    return place(p) if callable(place) else place


def _times(factor: float, place: Any) -> Callable[[Problem, Array], None]:
    def spoil(p: Problem, a: Array) -> None:
        a[_at(place, p)] *= a.dtype.type(factor)

    return spoil


def _copied(to: Any, of: Any) -> Callable[[Problem, Array], None]:
    def spoil(p: Problem, a: Array) -> None:
        a[_at(to, p)] = a[_at(of, p)].copy()

    return spoil


def _as_without(role: str, place: Any) -> Callable[[Problem, Array], None]:
    def spoil(p: Problem, a: Array) -> None:
        def change(dy: Array) -> None:
            dy[_at(place, p)] = 0

        a[...] = p.without(change)[role]

    return spoil


def _image_of_four(p: Problem, y: Array) -> None:
    rois, indices = p.input("rois").copy(), p.input("indices")
    if indices is None:
        rois[:, 0] %= 4
        other = p.again(rois=rois)["y"]
    else:
        other = p.again(indices=indices % 4)["y"]
    y[:, 16:] = other[:, 16:]


def _tail(p: Problem) -> int:
    return p.c // 16 * 16


def _at_64(p: Problem) -> Any:
    x1, y1, x2, y2 = p.corners
    inside = (x1 < 72) & (x2 > 56) & (y1 < 72) & (y2 > 56)
    return np.flatnonzero(inside), slice(16, None), 0, 0


SEAMS = {
    "LastRowOfMasks": Seam(
        "Of 16 channels of 14 x 14 bins, the last one has its last row of bins twice.", "y",
        lambda p: p.c >= 16 and p.ph * p.pw >= 196,
        _copied(np.s_[:, 15::16, -1], np.s_[:, 15::16, -2]),
    ),
    "CornerOfTiles": Seam(
        "A RoI over row 64 and column 64 loses its first bin in channels from 16 on.", "y",
        lambda p: p.c >= 17 and p.h >= 65 and p.w >= 100, _times(0, _at_64),
    ),
    "ImagesModuloFour": Seam(
        "Channels from 16 on are those of the image modulo 4.", "y",
        lambda p: p.n > 4 and p.c >= 17 and p.r >= 64, _image_of_four,
    ),
    "LineOfTwoBands": Seam(
        "Every 64th row of dX lies in two bands, and is counted twice.", "dx",
        lambda p: p.h >= 65 and p.w >= 100 and p.c >= 17, _times(2, np.s_[:, :, 64::64]),
    ),
    "PartialPanelOfDx": Seam(
        "Row 32 of the last channels, fewer than 16, is counted twice in dX.", "dx",
        lambda p: p.r >= 100 and p.c > 16 and p.c % 16 > 0 and p.h > 32, _times(2, lambda p: np.s_[:, _tail(p) :, 32]),
    ),
    "LostUpdate": Seam(
        "What one RoI in the middle passes to the second half of the channels is lost.", "dx",
        lambda p: p.r >= 400 and p.c >= 64, _as_without("dx", lambda p: np.s_[p.r // 2, p.c // 2 :]),
    ),
    "DroisOfTheChunkBefore": Seam(
        "drois of RoIs 256 to 319 are those of the chunk before.", "drois",
        lambda p: p.r >= 320 and p.c >= 64, _copied(np.s_[256:320], np.s_[192:256]),
    ),
    "Channel64OfResample": Seam(
        "Channel 64 of a large tensor is channel 63.", "y",
        lambda p: p.is_resample and p.c > 64 and p.h >= 100, _copied(np.s_[:, 64], np.s_[:, 63]), True,
    ),
}  # fmt: skip
"""By the name of the backend."""


def _backend(seam: Seam) -> Callable[..., dict[str, Array]]:
    def answer(
        op_type: str, inputs: dict[str, Array | None], attributes: Mapping[str, Any], outputs: Sequence[str]
    ) -> dict[str, Array]:
        problem = Problem(op_type, inputs, attributes, outputs)
        spoilt = problem.by_role.get(seam.role)
        if spoilt is not None and problem.is_resample == seam.of_resample and seam.needs(problem):
            seam.spoil(problem, spoilt)
        return problem.found

    return answer


def __getattr__(name: str) -> Callable[..., dict[str, Array]]:
    if name not in SEAMS:
        raise AttributeError(name)
    return _backend(SEAMS[name])
