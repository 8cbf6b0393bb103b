"""Wrong implementations whose mistake lies at a seam of large problems: each needs two or three large lengths at once.

`python tests/seams.py` prints a case of small and one of large inputs that fails each of them. Each is a backend, such as
`seams:LineOfTwoBands`. It computes with this project's kernels, and spoils what a runtime would that cuts its work into
tiles, bands, panels of channels or chunks of RoIs, and is wrong at one of their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import ortops
from conformance.case import Case
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


def _few_samples(p: Problem, y: Array) -> None:
    """At most eight samples along an axis, for RoIs from 64 on."""
    name = next((n for n in ("sampling_ratio", "maximum_samples_per_output") if n in p.attributes), None)
    if name is None or p.attributes.get("sampling_ratio"):
        return
    x1, y1, x2, y2 = p.corners
    many = (np.maximum((x2 - x1) / p.pw, (y2 - y1) / p.ph) > 8) & (np.arange(p.r) >= 64)
    given = {**p.attributes, name: 8}
    other = computed(p.op_type, p.inputs, given, p.outputs)
    y[many] = next(iter(other.values()))[many]


def _tail(p: Problem) -> int:
    return p.c // 16 * 16


def _last_bins_twice(p: Problem, y: Array) -> None:
    wide = _wide(p)
    y[wide, 16:, :, -1] = y[wide, 16:, :, -2]


def _shift_from_12(_p: Problem, y: Array) -> None:
    y[:, 16:, :, 12:] = np.roll(y[:, 16:, :, 12:], 1, axis=3)


def _shift_of_dy(p: Problem, dx: Array) -> None:
    def change(dy: Array) -> None:
        dy[:, 16:, :, 12:] = np.roll(dy[:, 16:, :, 12:], 1, axis=3)

    dx[...] = p.without(change)["dx"]


def _at_64(p: Problem) -> Any:
    x1, y1, x2, y2 = p.corners
    inside = (x1 < 72) & (x2 > 56) & (y1 < 72) & (y2 > 56)
    return np.flatnonzero(inside), slice(16, None), 0, 0


def _far(p: Problem) -> Any:
    x1, y1, _, _ = p.corners
    return np.flatnonzero((y1 >= 128) & (x1 >= 256)), slice(None), slice(1, None)


def _far_before(p: Problem) -> Any:
    return (*_far(p)[:2], slice(None, -1))


def _wide(p: Problem) -> Array:
    x1, _, x2, _ = p.corners
    return np.flatnonzero(x2 - x1 > 64)


SEAMS = {
    "PartialPanelOfManyRois": Seam(
        "The last channels, fewer than 16, of RoIs from 100 on are those of the channel before.", "y",
        lambda p: p.r >= 100 and p.c > 16 and p.c % 16 > 0,
        _copied(lambda p: np.s_[100:, _tail(p)], lambda p: np.s_[100:, _tail(p) - 1]),
    ),
    "LastRowOfMasks": Seam(
        "Of 16 channels of 14 x 14 bins, the last one has its last row of bins twice.", "y",
        lambda p: p.c >= 16 and p.ph * p.pw >= 196,
        _copied(np.s_[:, 15::16, -1], np.s_[:, 15::16, -2]),
    ),
    "LastChunkOfRois": Seam(
        "The RoIs after the last multiple of 64 are the first of them, from 17 channels on.", "y",
        lambda p: p.r >= 100 and p.c >= 17 and p.r % 64 > 1,
        _copied(lambda p: np.s_[p.r // 64 * 64 + 1 :], lambda p: np.s_[p.r // 64 * 64 : p.r // 64 * 64 + 1]),
    ),
    "CornerOfTiles": Seam(
        "A RoI over row 64 and column 64 loses its first bin in channels from 16 on.", "y",
        lambda p: p.c >= 17 and p.h >= 65 and p.w >= 100, _times(0, _at_64),
    ),
    "BinsBeyondTwelve": Seam(
        "Bins from 12 on are shifted by one in channels from 16 on.", "y",
        lambda p: p.c >= 17 and p.pw >= 14, _shift_from_12,
    ),
    "ImagesModuloFour": Seam(
        "Channels from 16 on are those of the image modulo 4.", "y",
        lambda p: p.n > 4 and p.c >= 17 and p.r >= 64, _image_of_four,
    ),
    "Roi512": Seam(
        "RoI 512 is RoI 0, if there are more than 16 channels.", "y",
        lambda p: p.r > 512 and p.c > 16, _copied(512, 0),
    ),
    "LastRoiOfTheFirstTask": Seam(
        "The last RoI of the first of two tasks is counted twice in channels from 16 on.", "y",
        lambda p: p.r >= 64 and p.c >= 32, _times(2, lambda p: np.s_[p.r // 2 - 1, 16:]),
    ),
    "FarRows": Seam(
        "RoIs that begin beyond row 128 and column 256 are a row of bins too low.", "y",
        lambda p: p.h > 128 and p.w > 256 and p.r >= 100, _copied(_far, _far_before),
    ),
    "Channel255": Seam(
        "Channel 255 of 500 RoIs is channel 254.", "y",
        lambda p: p.c >= 256 and p.r >= 500, _copied(np.s_[:, 255], np.s_[:, 254]),
    ),
    "LastOfManyBins": Seam(
        "The last of 1024 bins is 0 in channels from 32 on.", "y",
        lambda p: p.ph * p.pw >= 1024 and p.c >= 33, _times(0, np.s_[:, 32:, -1, -1]),
    ),
    "ColumnsOfTables": Seam(
        "A RoI of more than 64 columns has its last bins twice in channels from 16 on.", "y",
        lambda p: p.c >= 17 and p.r >= 64 and p.w > 64,
        _last_bins_twice,
    ),
    "EightSamples": Seam(
        "From RoI 64 on, adaptive bins have at most eight samples along an axis.", "y",
        lambda p: p.r >= 100 and p.c >= 17 and p.pw > 1, _few_samples,
    ),
    "LineOfTwoBands": Seam(
        "Every 64th row of dX lies in two bands, and is counted twice.", "dx",
        lambda p: p.h >= 65 and p.w >= 100 and p.c >= 17, _times(2, np.s_[:, :, 64::64]),
    ),
    "ColumnOfTwoTiles": Seam(
        "Column 128 of dX is lost.", "dx",
        lambda p: p.w >= 200 and p.c >= 17, _times(0, np.s_[..., 128]),
    ),
    "PartialPanelOfDx": Seam(
        "Row 32 of the last channels, fewer than 16, is counted twice in dX.", "dx",
        lambda p: p.r >= 100 and p.c > 16 and p.c % 16 > 0 and p.h > 32, _times(2, lambda p: np.s_[:, _tail(p) :, 32]),
    ),
    "RoisBeyond256": Seam(
        "What RoIs from 256 on pass to channels from 48 on is lost.", "dx",
        lambda p: p.r > 256 and p.c > 48, _as_without("dx", np.s_[256:, 48:]),
    ),
    "FourthImage": Seam(
        "The first row of the fourth image is 0 in dX.", "dx",
        lambda p: p.n >= 4 and p.c >= 32 and p.h >= 50, _times(0, np.s_[3, :, 0]),
    ),
    "LostUpdate": Seam(
        "What one RoI in the middle passes to the second half of the channels is lost.", "dx",
        lambda p: p.r >= 400 and p.c >= 64, _as_without("dx", lambda p: np.s_[p.r // 2, p.c // 2 :]),
    ),
    "Channel64Column100": Seam(
        "Column 100 of channel 64 is counted twice in dX.", "dx",
        lambda p: p.c > 64 and p.w > 100, _times(2, np.s_[:, 64, :, 100]),
    ),
    "BinsBeyondTwelveOfDx": Seam(
        "What bins from 12 on pass to channels from 16 on is shifted by a bin.", "dx",
        lambda p: p.pw >= 14 and p.c >= 17, _shift_of_dy,
    ),
    "Row100Halved": Seam(
        "Row 100 of dX has one of two threads' sums in channels from 16 on.", "dx",
        lambda p: p.h > 100 and p.c >= 17, _times(0.5, np.s_[:, 16:, 100]),
    ),
    "WinnersBeyondColumn128": Seam(
        "The gradients of maxima in column 128 go to column 129.", "dx",
        lambda p: p.w >= 200 and p.c >= 33 and p.input("x") is not None,
        _copied(np.s_[..., 129], np.s_[..., 128]),
    ),
    "PartialPanelOfDrois": Seam(
        "drois leaves out channels from 48 on, of RoIs from 100 on.", "drois",
        lambda p: p.r >= 100 and p.c > 48, _as_without("drois", np.s_[100:, 48:]),
    ),
    "DroisOfTheChunkBefore": Seam(
        "drois of RoIs 256 to 319 are those of the chunk before.", "drois",
        lambda p: p.r >= 320 and p.c >= 64, _copied(np.s_[256:320], np.s_[192:256]),
    ),
    "LastBinsOfDrois": Seam(
        "drois leaves out the last row of bins in RoIs from 256 on.", "drois",
        lambda p: p.r > 256 and p.c >= 64, _as_without("drois", np.s_[256:, :, -1]),
    ),
    "Channel64OfResample": Seam(
        "Channel 64 of a large tensor is channel 63.", "y",
        lambda p: p.is_resample and p.c > 64 and p.h >= 100, _copied(np.s_[:, 64], np.s_[:, 63]), True,
    ),
    "Column128OfResample": Seam(
        "Column 128 of a large tensor is column 127.", "y",
        lambda p: p.is_resample and p.c >= 33 and p.w > 128, _copied(np.s_[..., 128], np.s_[..., 127]), True,
    ),
    "Row64OfResampleGrad": Seam(
        "Row 64 of a gradient is counted twice in channels from 32 on.", "dx",
        lambda p: p.is_resample and p.c >= 33 and p.w >= 100 and p.h > 64, _times(2, np.s_[:, 32:, 64]), True,
    ),
    "LastImageOfResampleGrad": Seam(
        "The last row of the last image of a gradient is 0.", "dx",
        lambda p: p.is_resample and p.n >= 2 and p.c >= 33 and p.w >= 100, _times(0, np.s_[-1, :, -1]), True,
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


def concerns(seam: Seam, case: Case) -> bool:
    """Whether a case has the kind of output that a mistake changes."""
    names = NAMES[case.definition.function.removesuffix("_grad")]
    return names[seam.role] in case.outputs and seam.of_resample == (case.definition.family == "dml_resample")


def main() -> None:
    """Print the first case that fails each of them, among all and among those of the suite without this kind."""
    from conformance.backends.external import FunctionBackend
    from conformance.run import ask, judge
    from conformance.vectors import collect

    for name, seam in SEAMS.items():
        backend = FunctionBackend(_backend(seam))
        found: dict[bool, str] = {}
        for case in collect():
            is_large = getattr(case, "formula", None) is not None
            if is_large in found or not concerns(seam, case) or case.expects_error or case.element_type != "float":
                continue
            if judge(case, ask(backend, case)).outcome.is_bad:
                found[is_large] = case.id
        print(f"{name:28} small: {found.get(False, '-'):60} large: {found.get(True, '-')}", flush=True)


if __name__ == "__main__":
    main()
