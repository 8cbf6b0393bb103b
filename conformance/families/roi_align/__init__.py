# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoiAlign at opsets 10, 16 and 22, and its gradient."""

from conformance.families import Family

FAMILY = Family(
    __name__,
    geometry="conformance.families.upright.geometry",
    bounds="conformance.families.upright.bounds",
)
