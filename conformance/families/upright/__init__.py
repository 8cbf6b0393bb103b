# SPDX-License-Identifier: MIT OR Apache-2.0
"""What families with upright RoIs share: where samples lie, error bounds, random cases, drawings."""
