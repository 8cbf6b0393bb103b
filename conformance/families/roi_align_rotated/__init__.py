# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoIAlignRotated and its gradient."""

from conformance.families import Family

FAMILY = Family(__name__)
