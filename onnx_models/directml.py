"""Attributes that make `dml_roi_align`, `dml_resample` and their gradients equal to DirectML's older operators.

Source: Microsoft's documentation of DML_ROI_ALIGN_OPERATOR_DESC, DML_RESAMPLE_OPERATOR_DESC, DML_RESAMPLE1_OPERATOR_DESC
and DML_RESAMPLE2_OPERATOR_DESC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortops.spec import AttributeValue

ROI_ALIGN: Mapping[str, AttributeValue] = {
    "input_pixel_offset": 0.5,
    "output_pixel_offset": -0.5,
    "align_regions_to_corners": 0,
}
"""ROI_ALIGN of DirectML 3.0, without these fields of ROI_ALIGN1: pixel centres, regions not aligned to corners."""

RESAMPLE: Mapping[str, AttributeValue] = {
    "input_pixel_offsets": (),
    "output_pixel_offsets": (),
    "rounding_direction": "half_up",
}
"""RESAMPLE and RESAMPLE_GRAD, for any rank: offsets 0.5 and -0.5; nearest_neighbor rounds half up."""


def resample1(input_pixel_offsets: Sequence[float], output_pixel_offsets: Sequence[float]) -> dict[str, AttributeValue]:
    """Return the attributes of RESAMPLE1: RESAMPLE with offsets in pixels, one for each axis."""
    return {**RESAMPLE, **_offsets(input_pixel_offsets, output_pixel_offsets)}


def resample2(
    input_pixel_offsets: Sequence[float], output_pixel_offsets: Sequence[float], rounding_direction: str
) -> dict[str, AttributeValue]:
    """Return the attributes of RESAMPLE2 and RESAMPLE_GRAD1: offsets, and the direction of rounding.

    The gradient takes the offsets of the forward operator. DirectML's own RESAMPLE_GRAD1 expects the two exchanged.

    Args:
        input_pixel_offsets: in pixels, one for each axis.
        output_pixel_offsets: in pixels, one for each axis.
        rounding_direction: ``increasing`` or ``decreasing``.

    Raises:
        ValueError: rounding_direction is not one of these.
    """
    if rounding_direction not in ("increasing", "decreasing"):
        raise ValueError(f"rounding_direction = {rounding_direction!r}: must be 'increasing' or 'decreasing'")
    return {**_offsets(input_pixel_offsets, output_pixel_offsets), "rounding_direction": rounding_direction}


def _offsets(input_pixel_offsets: Sequence[float], output_pixel_offsets: Sequence[float]) -> dict[str, AttributeValue]:
    return {
        "input_pixel_offsets": tuple(input_pixel_offsets),
        "output_pixel_offsets": tuple(output_pixel_offsets),
    }
