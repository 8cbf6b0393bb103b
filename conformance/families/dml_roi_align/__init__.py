"""DirectML's RoiAlign and its gradient."""

from conformance.families import Family

FAMILY = Family(
    __name__,
    geometry="conformance.upright.geometry",
    bounds="conformance.upright.bounds",
    drawing="conformance.upright.drawing",
)
