"""Failing cases as JSON files, which `conformance fuzz --replay` reads.

    id, note                         the case's name and description
    operator, attributes, outputs    of the node
    inputs                           by name: element type, shape and flat values; NaN and infinities as Python writes them
    backend, kind, message           the backend that failed, the kind of failure, and its message

Expected values are not stored, because the reference computes them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import ortops
from conformance.case import DTYPES, Array, Case, Source, element_type_of
from conformance.fuzz.check import Failure
from conformance.printable import printable
from ortops import atomic_file

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")


def write(path: Path, failure: Failure, backend: str) -> None:
    """Write the case of a failure to a file; `backend` is the name of the backend that failed."""
    case = failure.case
    data = {
        "id": case.id,
        "note": case.note,
        "backend": backend,
        "kind": failure.kind,
        "message": failure.message,
        "operator": case.operator,
        "attributes": dict(case.attributes),
        "outputs": list(case.outputs),
        "inputs": {name: _written(array) for name, array in case.inputs.items()},
    }
    atomic_file.write(path, json.dumps(data, indent=1) + "\n")


def read(path: Path) -> Case:
    """Read a case from a file.

    Raises:
        ValueError: the file does not hold a case.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        return Case(
            id=printable(str(data["id"])),
            source=BY_REFERENCE,
            operator=data["operator"],
            attributes={
                n: tuple(value) if isinstance(value, list) else value for n, value in data["attributes"].items()
            },
            inputs={name: _read(entry) for name, entry in data["inputs"].items()},
            outputs=tuple(data["outputs"]),
            note=printable(str(data["note"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold a case: {type(error).__name__}: {error}") from error


def _written(array: Array) -> dict[str, Any]:
    exact = array if array.dtype.kind in "iu" else array.astype(np.float64)
    return {"type": element_type_of(array.dtype), "shape": list(array.shape), "values": exact.ravel().tolist()}


def _read(entry: dict[str, Any]) -> Array:
    dtype = DTYPES[entry["type"]]
    exact = np.array(entry["values"], np.int64 if dtype.kind in "iu" else np.float64)
    return np.asarray(exact.astype(dtype).reshape(entry["shape"]))
