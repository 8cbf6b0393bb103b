"""The words of records that register operators, which Python (`ortops.library.operators`) shares with compiled code."""

from __future__ import annotations

from ortops.calls.layout import ATTRIBUTES

DOMAINS, TABLES_WORDS, FIRST_DOMAIN = range(3)
"""Indices of the record of a registration.

DOMAINS: the number of domains. TABLES_WORDS: the number of words of all operators' tables, together.
FIRST_DOMAIN: from here on DOMAIN_WORDS for each domain: its name, a text, and the address of a record with the number of its
operators and the addresses of their records.
"""

DOMAIN_WORDS = 2

NODE_WORDS, DECIDING_ROW, DRIVERS, INFERS_FROM, TABLE_WORDS, NODE = range(6)
"""Indices of the record of an operator with an element type for each of its type variables.

NODE_WORDS: the size of a node.
DECIDING_ROW: the row of the attribute whose value chooses the drivers; -1 if there is but one choice.
DRIVERS: the address of a record with DRIVER_WORDS for each choice.
INFERS_FROM: the first release of ONNX Runtime in which shapes of its nodes are inferred: 1000 times the first number of its
    version, plus the second.
TABLE_WORDS: the number of words of its table (`engine.compiled.layout`).
NODE: the words of a node up to its attributes (`calls.layout`), of which the drivers are 0.
"""

TABLE = NODE + ATTRIBUTES
"""The index of the words of the table from NAME on."""

DRIVER_WORDS = 2
"""The addresses of the records of drivers, as in a node: DRIVER and DRIVER_OF_ROIS."""
