# SPDX-License-Identifier: MIT OR Apache-2.0
"""Multi-scale deformable attention and its gradient."""

from conformance.families import Family

FAMILY = Family(__name__)
