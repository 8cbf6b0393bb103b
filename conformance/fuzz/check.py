# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compare a backend with the reference on a random case.

A wrong answer counts only if the case is well-posed: its result does not depend on how a coordinate or a product is rounded.
The conditions depend on the operator's family, except for overflow, which is tested here. Only failing cases are tested,
because a test evaluates the reference dozens of times.

A failing case is a JSON file, which `conformance fuzz --replay` reads:

    id, note                         the case's name and description
    operator, attributes, outputs    of the node
    inputs                           by name: element type, shape and flat values; NaN and infinities as Python writes them
    backend, kind, message           the backend that failed, the kind of failure, and its message

Expected values are not stored, because the reference computes them again.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

import ortops
from conformance.backends.base import Reference
from conformance.case import DTYPES, Array, Case, Source, element_type_of
from conformance.child import START_TIMEOUT, stage
from conformance.compare import allowed_errors
from conformance.error_terms import overflow_threshold
from conformance.expected_values import clear_cache, expected_outputs
from conformance.families import error_terms, family_of
from conformance.families.roundings import Perturbations, Perturbed
from conformance.outcome import Outcome
from conformance.printable import printable
from conformance.run import Answer, CaseRunner, ask
from ortops import atomic_file

Kind = Literal["values", "refused", "accepted", "missing", "crash", "reference"]
Verdict = Literal["passed", "unsupported", "ill-posed"]

REFERENCE = "the reference"
"""The stage of a call in which the reference computes a case."""

TIME_LIMIT = 60.0
"""Seconds that the backend or the reference may take for a case: the first may compile, on a busy machine."""

BY_REFERENCE = Source("ortops/reference", f"ortops {ortops.__version__}", "any input")

_backend = Reference()


class ReferenceFailedError(Exception):
    """The reference neither computed a case nor refused it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that a backend fails.

    kind: "values" are wrong, a valid case is "refused", an invalid one is "accepted", the operator is "missing", the process
        ends ("crash"), or the "reference" itself fails.
    message: a description of what is wrong.
    """

    case: Case
    kind: Kind
    message: str

    def __str__(self) -> str:
        kind = "" if self.message.startswith(self.kind) else f"{self.kind}: "
        return f"{self.case.operator}: {kind}{self.message}"

    @property
    def signature(self) -> tuple[str, ...]:
        """A key that similar failures share: operator, kind, message without numbers, and attributes without numbers."""
        attributes = {n: v if isinstance(v, str) else "" for n, v in self.case.attributes.items()}
        return (*self.rough_signature, *(f"{n}={v}" for n, v in sorted(attributes.items())))

    @property
    def rough_signature(self) -> tuple[str, ...]:
        """The signature without attributes, for cases that are not shrunk yet."""
        text = re.sub(r"[-+]?\b(\d[\d.e+-]*|nan|inf)\b", "#", self.message).split("0x")[0][:120]
        return (self.case.operator, self.kind, text)


def check(case: Case, runner: CaseRunner) -> Failure | Verdict:
    """Run a case and return its failure or verdict. The reference computes the expected values."""
    bare = replace(case, expected=None, expects_error=None, twin=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expecting = with_expectation(case)
            answer = runner.answer(expecting)
            result = runner.result_of(expecting, answer)
            if result.outcome is Outcome.PASSED:
                return "passed"
            if result.outcome is Outcome.UNSUPPORTED:
                return "unsupported"
            if answer.kind == "outputs" and not is_well_posed(expecting):
                return "ill-posed"
        except Exception as error:  # noqa: BLE001  # any exception of the reference or the error bounds is a finding
            return Failure(bare, "reference", f"{type(error).__name__}: {error}")
        finally:
            # A campaign never runs the same case twice, so cached results would only fill the memory.
            clear_cache()
    kinds: dict[str, Kind] = {"refusal": "refused", "missing": "missing", "crash": "crash"}
    kind = kinds.get(answer.kind, "accepted" if expecting.expects_error else "values")
    failed = replace(bare, expects_error=expecting.expects_error, note=expecting.note)
    return Failure(failed, kind, result.message)


def with_expectation(case: Case) -> Case:
    """Return the case with the reference's result: expected values, or the expected error with its message as note.

    Raises:
        ReferenceFailedError: the reference neither computes the case nor refuses it.
    """
    case = replace(case, expected=None, expects_error=None)
    try:
        case.definition.check_attributes(case.attributes)
    except (TypeError, ValueError) as error:
        return _refused(case, "attribute", str(error))
    answer = reference(case)
    if answer.kind == "outputs" and answer.outputs is not None:
        return replace(case, expected=answer.outputs, twin=None)
    kind, _, words = answer.text.partition(": ")
    if answer.kind == "refusal" and kind in ("TypeError", "ValueError"):
        return _refused(case, "data", words)
    raise ReferenceFailedError(f"the reference has no answer: {answer.text}")


def _refused(case: Case, due: Literal["attribute", "data"], words: str) -> Case:
    twin = None if case.twin is None else with_expectation(case.twin)
    # A twin that is invalid too cannot prove that the refusal has the right reason.
    return replace(case, expects_error=due, note=words, twin=None if twin is None or twin.expects_error else twin)


def reference(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Answer:
    """The reference's answer to a case in double, so that it is not rounded, with some inputs changed."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    stage(REFERENCE, TIME_LIMIT)
    try:
        return ask(_backend, replace(case, inputs=wide, expected=None, expects_error=None, twin=None))
    finally:
        stage(REFERENCE, START_TIMEOUT)


def is_well_posed(case: Case) -> bool:
    """Whether a case, with its expected values or error, is well-posed."""
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    perturbed: Perturbed | None = family_of(case.definition).perturbed(case)
    return perturbed is not None and _is_stable(perturbed.case, perturbed.perturbations)


def _is_stable(case: Case, perturbations: Perturbations) -> bool:
    """Whether every perturbation changes the outputs by no more than their error bounds allow."""
    terms, allowed = error_terms(case), allowed_errors(case)
    expected = expected_outputs(case)
    for name, factor, array in perturbations:
        answer = reference(case, {name: array.reshape(case.inputs[name].shape)})
        if answer.outputs is None:
            return False
        for output, y in answer.outputs.items():
            wanted, tolerance = expected[output], allowed[output] + (factor - 1) * terms[output].coordinate_error
            with np.errstate(invalid="ignore"):
                is_near = np.abs(y - wanted) <= tolerance
            if not np.all(is_near | (y == wanted) | (np.isnan(y) & np.isnan(wanted))):
                return False
    return True


def _fits(case: Case) -> bool:
    """Whether no output is so close to the largest number of its type that rounding decides whether it overflows.

    The sums of a gradient must be within the range of the compute type. Those of an average need not be: they exceed its
    values only if the division comes too late.
    """
    largest, widest = overflow_threshold(case.dtype), overflow_threshold(case.compute_dtype)
    terms, allowed = error_terms(case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size, error = np.abs(y[np.isfinite(y)]), allowed[name][np.isfinite(y)]
        if np.any((size - error < largest) & (size + error >= largest)):
            return False
        if case.definition.is_gradient and np.max(terms[name].magnitude, initial=0.0) >= widest / 2:
            return False
    return True


def write_failure(path: Path, failure: Failure, backend: str) -> None:
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


def read_case(path: Path) -> Case:
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
