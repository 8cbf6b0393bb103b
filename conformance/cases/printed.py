# SPDX-License-Identifier: MIT OR Apache-2.0
"""Vectors with printed numbers, from the JSON files in the folder `vectors` of each family.

A file has `function`, `family`, `source` and `attributes` for all of its cases, and `arrays` that they refer to. A case has

    fact, note      the scenario, which is the next part of its id, and a description of what it tests
    attributes      in addition to those of the file
    inputs          by name: numbers, the name of an array, or `zeros` with a shape
    expected        the same; the node has only these outputs
    types           element types that represent its numbers exactly; default: all
    decimals        the number of decimals, if `expected` is rounded
    published_type  the element type in which the numbers were published, if other types round them
    input_error     the largest difference of the inputs from those that `expected` was computed from
    function, source, basis   if they differ from those of the file; the default basis is "text"

Numbers without `decimals` are exact: they were derived from the source by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conformance.case import Array, Basis, Case, Source
from conformance.cases.make import FLOATS, expand
from conformance.cases.scenes import tuples
from conformance.families import families


def cases() -> Iterator[Case]:
    """The cases of all files."""
    files = [file for family in families() for file in family.vectors]
    # ONNX's own vectors come first, so that coverage shows what the later cases add to them.
    for file in sorted(files, key=lambda file: (file.name != "official.json", file.name)):
        data = json.loads(file.read_text("utf-8"))
        for entry in data["cases"]:
            yield from _expanded(data, entry)


def _expanded(data: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[Case]:
    def array(numbers: Any) -> Array:
        if isinstance(numbers, dict):
            return np.zeros(numbers["zeros"])
        return np.array(data["arrays"][numbers] if isinstance(numbers, str) else numbers, np.float64)

    expected = {name: array(numbers) for name, numbers in entry["expected"].items()}
    attributes = {**data["attributes"], **entry.get("attributes", {})}
    yield from expand(
        f"{data['family']}/{entry['fact']}",
        function=entry.get("function", data["function"]),
        source=Source(**entry.get("source", data["source"])),
        note=entry["note"],
        attributes=tuples(attributes),
        inputs={name: array(numbers) for name, numbers in entry["inputs"].items()},
        outputs=list(expected),
        expected=expected,
        types=entry.get("types", FLOATS),
        decimals=entry.get("decimals"),
        published_type=entry.get("published_type"),
        input_error=entry.get("input_error", 0.0),
        basis=Basis(entry.get("basis", data.get("basis", "text"))),
    )
