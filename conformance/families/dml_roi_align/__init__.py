# SPDX-License-Identifier: MIT OR Apache-2.0
"""DirectML's RoiAlign and its gradient."""

from conformance.families import Family

FAMILY = Family(
    __name__,
    geometry="conformance.families.upright.geometry",
    bounds="conformance.families.upright.bounds",
)
