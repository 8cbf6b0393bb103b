"""The reference's gradients, which the generated cases expect: confirmed without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Case
from conformance.expected_values import expected_outputs, reference
from conformance.vectors import collect
from conformance.vectors.scenes import scatter
from ortops.operators.dml_resample import DML_RESAMPLE
from ortops.operators.dml_roi_align import DML_ROI_ALIGN
from ortops.operators.roi_align import ROI_ALIGN_22

CASES = [c for c in collect() if c.id.startswith("roi_align_grad/matrix") and c.element_type == "double"]


def loss_per_roi(case: Case, *, x: npt.NDArray[Any], rois: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[R]: the sum of dY * Y for each RoI."""
    dy = case.inputs["dY"]
    attributes = {**case.attributes, "output_height": dy.shape[2], "output_width": dy.shape[3]}
    inputs = {"X": x, "rois": rois, "batch_indices": case.inputs["batch_indices"]}
    y = reference(ROI_ALIGN_22, attributes, inputs, ["Y"])["Y"]
    return np.asarray((dy * y).sum(axis=(1, 2, 3)))


def x_of(case: Case) -> npt.NDArray[Any]:
    return case.inputs.get("X", scatter(tuple(case.inputs["x_shape"]), seed=7))


def only(output: str, *modes: str) -> list[Any]:
    return [
        pytest.param(case, id=case.id)
        for case in CASES
        if output in case.outputs and case.attributes["mode"] in modes and not is_kink(case)
    ]


def is_kink(case: Case) -> bool:
    """Samples at one place tie for the maximum, which therefore has no derivative by the RoI."""
    return "/no_extent/" in case.id and case.attributes["mode"] != "avg"


@pytest.mark.parametrize("case", only("dX", "avg"))
def test_dx_is_the_adjoint_of_the_average(case: Case) -> None:
    x = x_of(case)
    forward = float(loss_per_roi(case, x=x, rois=case.inputs["rois"]).sum())
    backward = float((expected_outputs(case)["dX"] * x).sum())
    assert forward == pytest.approx(backward, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", only("dX", "max", "max_interpolated"))
def test_dx_is_the_derivative_of_the_maximum(case: Case) -> None:
    x, rois = x_of(case), case.inputs["rois"]
    step = 1e-6 * scatter(x.shape, seed=9)
    difference = loss_per_roi(case, x=x + step, rois=rois).sum() - loss_per_roi(case, x=x - step, rois=rois).sum()
    predicted = float((expected_outputs(case)["dX"] * step).sum())
    assert predicted == pytest.approx(float(difference) / 2, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize("case", only("drois", "avg", "max", "max_interpolated"))
def test_drois_is_the_derivative(case: Case) -> None:
    x, rois, drois = x_of(case), case.inputs["rois"], expected_outputs(case)["drois"]
    for k in range(4):
        step = np.zeros(4)
        step[k] = 1e-6
        difference = loss_per_roi(case, x=x, rois=rois + step) - loss_per_roi(case, x=x, rois=rois - step)
        np.testing.assert_allclose(drois[:, k], difference / 2e-6, rtol=1e-6, atol=1e-8)


DML_CASES = [c for c in collect() if c.id.startswith("dml_roi_align_grad/matrix") and c.element_type == "double"]


def dml_loss_per_roi(case: Case, *, x: npt.NDArray[Any], rois: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[R]: the sum of InputGradientTensor * OutputTensor for each region."""
    dy = case.inputs["InputGradientTensor"]
    attributes = {**case.attributes, "output_height": dy.shape[2], "output_width": dy.shape[3]}
    inputs = {"InputTensor": x, "ROITensor": rois, "BatchIndicesTensor": case.inputs["BatchIndicesTensor"]}
    y = reference(DML_ROI_ALIGN, attributes, inputs, ["OutputTensor"])["OutputTensor"]
    return np.asarray((dy * y).sum(axis=(1, 2, 3)))


def dml_x_of(case: Case) -> npt.NDArray[Any]:
    return case.inputs.get("InputTensor", scatter(tuple(case.inputs["x_shape"]), seed=7))


def dml_only(output: str, *reductions: str) -> list[Any]:
    return [
        pytest.param(case, id=case.id)
        for case in DML_CASES
        if output in case.outputs and case.attributes["reduction_function"] in reductions and not is_dml_kink(case)
    ]


def is_dml_kink(case: Case) -> bool:
    """As `is_kink`."""
    return "/no_extent/" in case.id and case.attributes["reduction_function"] == "max"


@pytest.mark.parametrize("case", dml_only("OutputGradientTensor", "average"))
def test_the_map_gradient_of_directml_is_the_adjoint_of_the_average(case: Case) -> None:
    x = dml_x_of(case)
    forward = float(dml_loss_per_roi(case, x=x, rois=case.inputs["ROITensor"]).sum())
    backward = float((expected_outputs(case)["OutputGradientTensor"] * x).sum())
    assert forward == pytest.approx(backward, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", dml_only("OutputGradientTensor", "max"))
def test_the_map_gradient_of_directml_is_the_derivative_of_the_maximum(case: Case) -> None:
    x, rois = dml_x_of(case), case.inputs["ROITensor"]
    step = 1e-6 * scatter(x.shape, seed=9)
    difference = dml_loss_per_roi(case, x=x + step, rois=rois) - dml_loss_per_roi(case, x=x - step, rois=rois)
    predicted = float((expected_outputs(case)["OutputGradientTensor"] * step).sum())
    assert predicted == pytest.approx(float(difference.sum()) / 2, rel=1e-6, abs=1e-14)


@pytest.mark.parametrize("case", dml_only("OutputROIGradientTensor", "average", "max"))
def test_the_region_gradient_of_directml_is_the_derivative(case: Case) -> None:
    x, rois, drois = dml_x_of(case), case.inputs["ROITensor"], expected_outputs(case)["OutputROIGradientTensor"]
    assert drois.shape == rois.shape
    for k in range(4):
        step = np.zeros(4)
        step[k] = 1e-6
        difference = dml_loss_per_roi(case, x=x, rois=rois + step) - dml_loss_per_roi(case, x=x, rois=rois - step)
        np.testing.assert_allclose(drois.reshape(-1, 4)[:, k], difference / 2e-6, rtol=1e-6, atol=1e-8)


RESAMPLE_CASES = [c for c in collect() if c.id.startswith("dml_resample_grad/matrix") and c.element_type == "double"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in RESAMPLE_CASES])
def test_the_gradient_of_resample_is_the_adjoint(case: Case) -> None:
    dy, x = case.inputs["InputGradientTensor"], scatter(tuple(case.inputs["x_shape"]), seed=7)
    attributes = {**case.attributes, "output_sizes": dy.shape}
    y = reference(DML_RESAMPLE, attributes, {"InputTensor": x}, ["OutputTensor"])["OutputTensor"]
    backward = float((expected_outputs(case)["OutputGradientTensor"] * x).sum())
    assert float((dy * y).sum()) == pytest.approx(backward, rel=1e-12, abs=1e-12)
