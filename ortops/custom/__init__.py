# SPDX-License-Identifier: MIT
"""Operators of users: their definitions, and how sessions call them."""
