# SPDX-License-Identifier: MIT OR Apache-2.0
"""The corpus: cases as data, for programs in any language and for ONNX's own runners. docs/corpus.md describes its files.

    DIR/KIND/test_NAME/model.onnx, case.json               the model of one node, and what the case is about
    DIR/KIND/test_NAME/test_data_set_0/tensors.json        what the plain files beside it hold
    DIR/KIND/test_NAME/test_data_set_0/input_0.bin, .pb    the tensors in the order of the model's inputs and outputs
    DIR/KIND/test_NAME/data.json, config.txt               tolerances, for onnx.backend.test and for onnx_test_runner

The calls of a session become data sets. KIND is the dialect, or must_fail, huge or large for cases that ONNX's runners must
not get. `huge` has cases with more than `MAX_SAMPLES` samples. The inputs of `large` ones are formulas.

ONNX's runners accept y' for y if |y' - y| <= atol + rtol |y|, with one atol and one rtol for all elements. The suite has a
bound for each element. So what is written for these runners allows at least as much, and more for elements that are smaller
than others. onnx.backend.test always takes an rtol of 2^-6 for bfloat16.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from onnx import GraphProto, numpy_helper

import ortops
from conformance import tensor_files
from conformance.backends import UnsupportedError
from conformance.backends.base import dialect_of, require_standard
from conformance.case import DTYPES, MAX_SAMPLES, Array, Case, element_type_of
from conformance.compare import allowed_errors, sampled
from conformance.error_terms import Floats, smallest_subnormal, unit_roundoff
from conformance.expected_values import expected_outputs
from conformance.families import family_of
from conformance.model import build, described_node

Names = Literal["id", "onnx"]

CATCHING = Path(__file__).parent / "cases/catching_cases.json"
"""For each mutant the id of a case that it fails; tests/catching_cases.py writes it."""

LICENCE = "MIT OR Apache-2.0"

SAMPLED = 2**12
"""About how many elements of a large output have an expected value."""

BITS = 12
"""Significant bits of a bound. With few bits, the last digit of a computation, which another machine may round otherwise,
decides hardly ever, and files pack well."""

_LEAST_PRINTED = float(np.finfo(np.float64).tiny)
"""The smallest atol, because a reader may refuse a subnormal decimal number."""


class Tolerances(NamedTuple):
    """The arguments of `numpy.testing.assert_allclose`, which hold for all outputs of a case."""

    rtol: float
    atol: float


def reason_left_out(case: Case) -> str:
    """The reason why ONNX's runners cannot run a case; empty if they can."""
    if case.expects_error:
        return "the case expects an error, and the layout only has values"
    try:
        require_standard(case, element_types=DTYPES)
    except UnsupportedError as error:
        return str(error)
    if case.formula is not None:
        return "large inputs, which a formula computes"
    return f"more than {MAX_SAMPLES} samples, too many for some runtimes" if _is_huge(case) else ""


def _is_huge(case: Case) -> bool:
    return any(family_of(case.definition).samples(call) > MAX_SAMPLES for call in _calls(case))


def _kind(case: Case) -> str:
    if case.expects_error:
        return "must_fail"
    if case.formula is not None:
        return "large"
    return "huge" if _is_huge(case) else dialect_of(case)


def core() -> frozenset[str]:
    """The ids of the cases that together reject every mutant: each mutant fails one of them."""
    return frozenset(json.loads(CATCHING.read_text("utf-8")).values())


def folder_name(case: Case, names: Names = "id") -> str:
    """Name of a case's folder: an identifier that begins with `test_`.

    Args:
        case: any case.
        names: `id` names it by its id, `onnx` as onnx names its own cases: `test_roialign_...`.
    """
    function, _, rest = case.id.partition("/")
    path = case.id if names == "id" else f"{function.replace('_', '')}/{rest}".lower()
    return "test_" + re.sub(r"\W", "_", path, flags=re.ASCII)


def write_corpus(cases: Iterable[Case], folder: Path, corpus: str, names: Names = "id") -> None:
    """Write cases, their index and the digests of all files.

    Args:
        cases: any cases.
        folder: the corpus, created with its parents if it is missing.
        corpus: what the index calls these cases.
        names: see `folder_name`.

    Raises:
        OSError: something cannot be written.
    """
    rows, sums = [], dict[str, str]()
    for case in cases:
        name = f"{_kind(case)}/{folder_name(case, names)}"
        write(case, folder / name)
        of_case = _sums(folder / name)
        sums |= {f"{name}/{file}": digest for file, digest in of_case.items()}
        meaning = "".join(f"{digest}  {file}\n" for file, digest in of_case.items() if not file.endswith("case.json"))
        row = {"id": case.id, "folder": name, "dialect": dialect_of(case), "basis": case.basis.value}
        rows.append({**row, "must_fail": bool(case.expects_error), "sha256": _sha256(meaning.encode())})
    head = {"format": 1, "corpus": corpus, "generator": f"ortops {ortops.__version__}", "licence": LICENCE}
    lines = ",\n".join(map(json.dumps, rows))
    _write_text(folder / "index.json", f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n')
    sums["index.json"] = _sha256((folder / "index.json").read_bytes())
    _write_text(folder / "SHA256SUMS", "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def _sums(folder: Path) -> dict[str, str]:
    """The SHA-256 sum of each file below a folder, in the order of their paths."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return {name: _sha256((folder / name).read_bytes()) for name in names}


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, "utf-8", newline="\n")


def write(case: Case, folder: Path) -> None:
    """Write a case, and replace an older export of it. One that must fail has no outputs, and contains its twin.

    Args:
        case: any case.
        folder: that of the case, created with its parents if it is missing.

    Raises:
        OSError: something cannot be written.
    """
    if folder.exists():
        shutil.rmtree(folder)
    model = build(case, dialect_of(case))
    for i, call in enumerate(_calls(case)):
        data = folder / f"test_data_set_{i}"
        data.mkdir(parents=True)
        _write_text(data / "tensors.json", json.dumps(_write_call(call, model.graph, data)) + "\n")
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    about = {
        "id": case.id,
        "dialect": dialect_of(case),
        "basis": case.basis.value,
        "source": str(case.source),
        "note": case.note,
        "must_fail": bool(case.expects_error),
        "node": described_node(case, model.graph.node[0]),
        "twin": "twin" if case.twin else None,
        "calls": len(_calls(case)),
        "at_once": case.is_at_once,
    }
    _write_text(folder / "case.json", json.dumps(about) + "\n")
    if case.expects_error is None and case.formula is None:
        _write_tolerances(folder, tolerances(case))
    if case.twin:
        write(case.twin, folder / "twin")


def _calls(case: Case) -> list[Case]:
    return [*case.before, case]


def _write_call(case: Case, graph: GraphProto, data: Path) -> dict[str, list[Any]]:
    """Write the tensors of a call, and return their descriptions."""
    inputs = [_write_input(case, data, i, value.name) for i, value in enumerate(graph.input)]
    outputs = [] if case.expects_error else [_write_output(case, data, i, v.name) for i, v in enumerate(graph.output)]
    return {"inputs": inputs, "outputs": outputs}


def _write_input(case: Case, data: Path, i: int, name: str) -> Any:
    array = case.inputs[name]
    if case.formula is None or not (recipe := case.formula.recipe(name)):
        _write_message(data / f"input_{i}.pb", array, name)
        return tensor_files.write(array, data, f"input_{i}.bin", name)
    head = {"name": name, "type": element_type_of(array.dtype), "shape": list(array.shape)}
    return {**head, "formula": recipe, "sha256": _digest_of(array)}


def _write_output(case: Case, data: Path, i: int, name: str) -> dict[str, Any]:
    output: dict[str, Any] = {"name": name, "type": case.element_type}
    if case.formula is None:
        expected, allowed = expected_outputs(case)[name], allowed_errors(case)[name]
        output["shape"] = list(expected.shape)
        _write_message(data / f"output_{i}.pb", rounded_outputs(case)[name], name)
    else:
        output["shape"] = list(case.formula.outputs[name].shape)
        output["step"] = _step(math.prod(output["shape"]))
        expected, allowed = sampled(case, name, output["step"])
    due = due_of(case.dtype, expected)
    bound = bound_of(case.dtype, expected, allowed, due)
    if case.formula is not None and not bound.any():
        output["sha256"] = _digest_of(rounded_outputs(case)[name])
    output["due"] = tensor_files.write(due, data, f"due_{i}.bin", name)
    first = float(bound.flat[0]) if bound.size else 0.0
    is_uniform = bool(np.all(bound == first))
    return {**output, "bound": first if is_uniform else tensor_files.write(bound, data, f"bound_{i}.bin", name)}


def _write_message(file: Path, array: Array, name: str) -> None:
    file.write_bytes(numpy_helper.from_array(array, name).SerializeToString(deterministic=True))


def _digest_of(array: Array) -> str:
    return _sha256(tensor_files.little_endian(array).data)


def _step(size: int) -> int:
    """The distance of the sampled elements, coprime to the size, so that they lie in all rows, columns and channels."""
    return next(step for step in itertools.count(max(size // SAMPLED, 1)) if math.gcd(step, size) == 1 or size == 0)


def rounded_outputs(case: Case) -> dict[str, Array]:
    """The expected outputs by name, rounded to the case's element type."""
    with np.errstate(over="ignore"):
        return {name: expected.astype(case.dtype) for name, expected in expected_outputs(case).items()}


def due_of(dtype: np.dtype[Any], expected: Floats) -> Array:
    """Expected values as files have them: in float32 for types of 16 bits, whose rounding would take half of the bound."""
    with np.errstate(over="ignore"):
        rounded = expected.astype(dtype)
        if dtype.itemsize > 2:
            return rounded
        narrow = rounded.astype(np.float32)
        return np.where(np.isfinite(narrow), expected.astype(np.float32), narrow)


def bound_of(dtype: np.dtype[Any], expected: Floats, allowed: Floats, due: Array) -> Floats:
    """The largest error relative to `due`, in float32, or float64 for double.

    It is 0 for infinities and NaN, and for numbers that no sum and no rounding changes.
    """
    written = due.astype(np.float64)
    comparable = np.isfinite(expected) & np.isfinite(written)
    moved = np.abs(np.subtract(written, expected, where=comparable, out=np.zeros(expected.shape)))
    rounding = unit_roundoff(dtype) * np.abs(expected) + smallest_subnormal(dtype) / 2
    with np.errstate(over="ignore"):
        is_exact = (expected.astype(dtype).astype(np.float64) == expected) & (allowed <= rounding)
    return _rounded_up(np.where(comparable & ~is_exact, allowed + moved, 0.0), dtype)


def _rounded_up(bound: Floats, dtype: np.dtype[Any]) -> Floats:
    """The bound with `BITS` significant bits, in float32, or float64 for double."""
    kind = np.float64 if dtype == np.float64 else np.float32
    fraction, exponent = np.frexp(bound)
    wide = np.ldexp(np.ceil(np.ldexp(fraction, BITS)), exponent - BITS)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(kind)
    return np.asarray(np.where(narrow < wide, np.nextafter(narrow, kind(np.inf)), narrow))


def tolerances(case: Case) -> Tolerances:
    """An rtol of two roundings to the case's type, and the least atol that accepts all that the suite accepts.

    This holds in exact arithmetic and in the tensor's type, in which NumPy compares float16.
    """
    return Tolerances(2 * unit_roundoff(case.dtype), max(_LEAST_PRINTED, *map(_least_atol, _calls(case))))


def _least_atol(case: Case) -> float:
    rounding, smallest = unit_roundoff(case.dtype), smallest_subnormal(case.dtype)
    rounded, allowed = rounded_outputs(case), allowed_errors(case)
    atol = 0.0
    for name, expected in expected_outputs(case).items():
        bound = bound_of(case.dtype, expected, allowed[name], rounded[name])
        written = rounded[name].astype(np.float64)
        # A runner rounds the difference up once at most, and the sum on the other side down twice; two numbers may
        # underflow, which costs half the least subnormal number each.
        beyond = bound * (1 + 4 * rounding) - 2 * rounding * np.abs(np.where(np.isfinite(written), written, 0.0))
        atol = max(atol, (float(np.max(beyond, initial=0.0)) + 2 * smallest) * (1 + 2 * rounding))
    return atol


def _write_tolerances(folder: Path, scalars: Tolerances) -> None:
    _write_text(folder / "data.json", json.dumps(scalars._asdict(), sort_keys=True) + "\n")
    lines = f"per_sample_tolerance:{scalars.atol!r}\nrelative_per_sample_tolerance:{scalars.rtol!r}\n"
    _write_text(folder / "config.txt", lines)
