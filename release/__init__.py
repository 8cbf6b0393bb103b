# SPDX-License-Identifier: MIT
"""What a release has: `python -m release DIR` builds it and tries each file as a user would."""
