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

GIVEN_NAME, GIVEN_TYPE, GIVEN_COUNT, GIVEN_VALUES, GIVEN_WORDS = range(5)
"""Indices of the row of an attribute that a caller gives.

GIVEN_NAME: a C string.
GIVEN_TYPE: the type, as OrtOpAttrType (`calls.definition_words`).
GIVEN_COUNT: the number of values of a list.
GIVEN_VALUES: their address: int64s for INT and INTS, float64s for FLOAT and FLOATS, and for STRING a C string.
"""

OPERATOR_COUNT, FIRST_OPERATOR = 0, 1
"""Indices of the record that lists operators: their number, then OPERATOR_WORDS for each."""

OPERATOR_DOMAIN, OPERATOR_NAME, OPERATOR_VERSION, OPERATOR_RECORD, OPERATOR_WORDS = range(5)
"""The domain and the name of an operator, which are texts; of ONNX's own operators the version, else 0; and the address of
its record for some element types."""

VERSION = 1
"""The version of the interface, which changes when a field changes its meaning; later versions only append fields."""

INTERFACE = (
    "version",
    "operators",
    "python",
    "make_node",
    "release_node",
    "infer_shapes",
    "compute",
    "run_on_threads",
    "infer_shapes_of_arrays",
    "infer_by_definition",
    "check_wanted",
    "make_table",
    "release_table",
    "fill_callbacks",
    "fill_allocator",
    "describe_inputs",
)
"""The fields of the interface (ortops.h), which OrtopsGetInterface returns: VERSION, the record of operators, the address of
the shared word "python", and functions (`interface`)."""
