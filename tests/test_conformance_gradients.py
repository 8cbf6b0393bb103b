"""The reference's gradients, which the generated cases expect: confirmed without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Case
from conformance.expected_values import expected_outputs, reference
from conformance.vectors import collect
from conformance.vectors.dialects import NAMES
from conformance.vectors.scenes import scatter
from ortops.operators.dml_resample import DML_RESAMPLE
from ortops.operators.dml_roi_align import DML_ROI_ALIGN
from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import Operator

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Family:
    """The forward operator of a family, its tensors by role, and the attribute that chooses the average."""

    operator: Operator
    names: Any
    mode: str
    average: str

    def is_average(self, case: Case) -> bool:
        return bool(case.attributes[self.mode] == self.average)

    def x(self, case: Case) -> Array:
        return case.inputs.get(self.names["x"], scatter(tuple(case.inputs["x_shape"]), seed=7))

    def loss_per_roi(self, case: Case, x: Array, rois: Array) -> Array:
        """[R]: the sum of dY * Y for each RoI."""
        dy = case.inputs[self.names["dy"]]
        attributes = {**case.attributes, "output_height": dy.shape[2], "output_width": dy.shape[3]}
        indices = self.names["indices"]
        inputs = {self.names["x"]: x, self.names["rois"]: rois, indices: case.inputs[indices]}
        y = reference(self.operator, attributes, inputs, [self.names["y"]])[self.names["y"]]
        return np.asarray((dy * y).sum(axis=(1, 2, 3)))


FAMILIES = {
    "roi_align": Family(ROI_ALIGN_22, NAMES["roi_align"], "mode", "avg"),
    "dml_roi_align": Family(DML_ROI_ALIGN, NAMES["dml_roi_align"], "reduction_function", "average"),
}


def cases_with(role: str) -> list[Any]:
    """The cases with this output. In one without extent, samples at one place tie for a maximum, which has no derivative."""
    return [
        pytest.param(case, family, id=case.id)
        for name, family in FAMILIES.items()
        for case in collect()
        if case.id.startswith(f"{name}_grad/matrix")
        and case.element_type == "double"
        and family.names[role] in case.outputs
        and (family.is_average(case) or "/no_extent/" not in case.id)
    ]


@pytest.mark.parametrize(("case", "family"), cases_with("dx"))
def test_dx_is_the_adjoint_of_the_average_and_the_derivative_of_a_maximum(case: Case, family: Family) -> None:
    x, rois, dx = family.x(case), case.inputs[family.names["rois"]], expected_outputs(case)[family.names["dx"]]
    if family.is_average(case):
        forward = float(family.loss_per_roi(case, x, rois).sum())
        assert forward == pytest.approx(float((dx * x).sum()), rel=1e-12, abs=1e-12)
        return
    step = 1e-6 * scatter(x.shape, seed=9)
    difference = family.loss_per_roi(case, x + step, rois) - family.loss_per_roi(case, x - step, rois)
    assert float((dx * step).sum()) == pytest.approx(float(difference.sum()) / 2, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(("case", "family"), cases_with("drois"))
def test_drois_is_the_derivative(case: Case, family: Family) -> None:
    x, rois, drois = family.x(case), case.inputs[family.names["rois"]], expected_outputs(case)[family.names["drois"]]
    assert drois.shape == rois.shape
    for k in range(4):
        step = 1e-6 * np.eye(4)[k]
        difference = family.loss_per_roi(case, x, rois + step) - family.loss_per_roi(case, x, rois - step)
        np.testing.assert_allclose(drois.reshape(-1, 4)[:, k], difference / 2e-6, rtol=1e-6, atol=1e-8)


RESAMPLE_CASES = [c for c in collect() if c.id.startswith("dml_resample_grad/matrix") and c.element_type == "double"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in RESAMPLE_CASES])
def test_the_gradient_of_resample_is_the_adjoint(case: Case) -> None:
    dy, x = case.inputs["InputGradientTensor"], scatter(tuple(case.inputs["x_shape"]), seed=7)
    attributes = {**case.attributes, "output_sizes": dy.shape}
    y = reference(DML_RESAMPLE, attributes, {"InputTensor": x}, ["OutputTensor"])["OutputTensor"]
    backward = float((expected_outputs(case)["OutputGradientTensor"] * x).sum())
    assert float((dy * y).sum()) == pytest.approx(backward, rel=1e-12, abs=1e-12)
