# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fuzzing: random cases, compared with the reference.

`strategy` lets hypothesis draw cases, some of them invalid. `check` compares a backend with the reference, and rejects
failures that only rounding causes. `campaign` lets hypothesis search for failures and shrink them, in child processes.
"""
