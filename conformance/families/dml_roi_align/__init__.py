"""DirectML's RoiAlign and its gradient."""

from conformance.families import Family

FAMILY = Family(
    __name__,
    geometry="conformance.families.upright.geometry",
    bounds="conformance.families.upright.bounds",
)
