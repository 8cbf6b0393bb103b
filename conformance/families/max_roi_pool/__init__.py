# SPDX-License-Identifier: MIT OR Apache-2.0
"""MaxRoiPool at opsets 1 and 22, and its gradient."""

from conformance.families import Family

FAMILY = Family(__name__)
