# SPDX-License-Identifier: MIT OR Apache-2.0
"""DirectML's Resample and its gradient."""

from conformance.families import Family

FAMILY = Family(__name__)
