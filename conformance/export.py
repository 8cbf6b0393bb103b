"""Cases in the layout of ONNX's own test data, which `onnx.backend.test` and ONNX Runtime's `onnx_test_runner` read.

    DIR/KIND/test_NAME/model.onnx                       the model of one node
    DIR/KIND/test_NAME/data.json                        {"atol", "rtol"}, for onnx.backend.test
    DIR/KIND/test_NAME/config.txt                       the same, for onnx_test_runner
    DIR/KIND/test_NAME/test_data_set_0/input_0.pb ...   the tensors in the order of the model's inputs
    DIR/KIND/test_NAME/test_data_set_0/output_0.pb ...  and outputs

KIND is the dialect. NAME is the case's id with `_` in place of characters that an identifier cannot have. The calls of a
session become data sets, which a runner may take in any order. The same cases give the same bytes.

With --whole there are two more kinds, which ONNX's runners must not get, and DIR/index.json:

    DIR/must_fail/test_NAME/...       without outputs: the runtime must refuse the model or its inputs
    DIR/must_fail/test_NAME/twin/...  a valid case, which differs only in the fault; a refusal counts if the twin passes
    DIR/huge/test_NAME/...            cases with more than `MAX_SAMPLES` samples

Cases with large inputs, which take up to 60 MB each, are written only with --with-large.

    {"generator", "licence", "cases": [{"id", "folder", "dialect", "basis", "source", "note", "must_fail",
     "atol", "rtol", "twin", "sha256"}]}

`sha256` is the sum of the lines that `sha256sum` prints for the folder's files in the order of their paths. `dialect` is
ortops for nodes that ONNX does not have. A runtime must not write to its inputs.

Both runners accept y' for y if |y' - y| <= atol + rtol |y|, with one atol and one rtol for all elements and with y rounded
to the tensor's type; infinities and NaN must be the same. The suite has a tolerance for each element, so the exported ones
allow at least as much, and more for elements that are smaller than others. onnx.backend.test always takes an rtol of 2^-6
for bfloat16.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import ValueInfoProto, numpy_helper

import ortops
from conformance.backends import UnsupportedError
from conformance.backends.base import is_standard, require_standard
from conformance.case import DTYPES, MAX_SAMPLES, Array, Case
from conformance.compare import allowed_errors
from conformance.error_terms import Floats, smallest_subnormal, unit_roundoff
from conformance.expected_values import expected_outputs
from conformance.families import family_of
from conformance.model import Dialect, build

DATA_SET = "test_data_set_"

LARGE = "large inputs, which a formula computes (--with-large)"
"""The reason why a case is left out without --with-large."""

_LEAST_PRINTED = float(np.finfo(np.float64).tiny)
"""The smallest atol, because a reader may refuse a subnormal decimal number."""


class Tolerances(NamedTuple):
    """The arguments of `numpy.testing.assert_allclose`, which hold for all outputs of a case."""

    rtol: float
    atol: float


def reason_left_out(case: Case, *, with_large: bool = False) -> str:
    """The reason why an export for ONNX's runners does not have a case; empty if it has it.

    Args:
        case: any case.
        with_large: whether it has cases whose inputs are computed from a formula.
    """
    if case.expects_error:
        return "the case expects an error, and the layout only has values"
    try:
        require_standard(case, element_types=DTYPES)
    except UnsupportedError as error:
        return str(error)
    if case.formula is not None:
        return "" if with_large else LARGE
    return f"more than {MAX_SAMPLES} samples, too many for some runtimes (--whole)" if _is_huge(case) else ""


def _is_huge(case: Case) -> bool:
    return any(family_of(case.definition).samples(call) > MAX_SAMPLES for call in _calls(case))


def folder_name(case: Case) -> str:
    """Name of a case's folder: an identifier that begins with `test_`."""
    return "test_" + re.sub(r"\W", "_", case.id, flags=re.ASCII)


def write(case: Case, folder: Path, dialect: Dialect) -> None:
    """Write a case, and replace an older export of it. One that must fail has no outputs, and contains its twin.

    Args:
        case: any case.
        folder: that of the case, DIR/KIND/`folder_name`; created with its parents if it is missing.
        dialect: the kind of node that the model has.

    Raises:
        OSError: something cannot be written.
    """
    for stale in folder.glob(f"{DATA_SET}*"):
        shutil.rmtree(stale)
    model = build(case, dialect)
    for i, call in enumerate(_calls(case)):
        data = folder / f"{DATA_SET}{i}"
        data.mkdir(parents=True)
        _write_tensors(data, "input", model.graph.input, call.inputs)
        if not case.expects_error:
            _write_tensors(data, "output", model.graph.output, rounded_outputs(call))
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    if not case.expects_error:
        _write_tolerances(folder, tolerances(case))
    if case.twin:
        write(case.twin, folder / "twin", dialect)


def write_whole(cases: Iterable[Case], folder: Path) -> None:
    """Write cases of all kinds, and their index.

    Raises:
        OSError: something cannot be written.
    """
    entries = []
    for case in cases:
        dialect: Dialect = "standard" if is_standard(case) else "ortops"
        kind = "must_fail" if case.expects_error else "huge" if case.formula is None and _is_huge(case) else dialect
        name = f"{kind}/{folder_name(case)}"
        write(case, folder / name, dialect)
        rtol, atol = tolerances(case.twin or case)
        entries.append(
            {
                "id": case.id,
                "folder": name,
                "dialect": dialect,
                "basis": case.basis.value,
                "source": str(case.source),
                "note": case.note,
                "must_fail": bool(case.expects_error),
                "atol": atol,
                "rtol": rtol,
                "twin": f"{name}/twin" if case.twin else None,
                "sha256": _digest(folder / name),
            }
        )
    head = {"generator": f"ortops {ortops.__version__}", "licence": "MIT"}
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    text = f'{json.dumps(head)[:-1]}, "cases": [\n{lines}\n]}}\n'
    (folder / "index.json").write_text(text, "utf-8", newline="\n")


def _digest(folder: Path) -> str:
    """The SHA-256 sum of the output of `sha256sum` for the files below a folder."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _calls(case: Case) -> list[Case]:
    return [*case.before, case]


def _write_tensors(folder: Path, role: str, values: Iterable[ValueInfoProto], arrays: Mapping[str, Array]) -> None:
    """Write the tensors of a data set, with their names in the model."""
    for i, value in enumerate(values):
        tensor = numpy_helper.from_array(arrays[value.name], value.name)
        (folder / f"{role}_{i}.pb").write_bytes(tensor.SerializeToString(deterministic=True))


def rounded_outputs(case: Case) -> dict[str, Array]:
    """The expected outputs by name, rounded to the case's element type."""
    with np.errstate(over="ignore"):
        return {name: expected.astype(case.dtype) for name, expected in expected_outputs(case).items()}


def tolerances(case: Case) -> Tolerances:
    """An rtol of two roundings to the case's type, and the least atol that accepts all that the suite accepts.

    This holds in exact arithmetic and in the tensor's type, in which NumPy compares float16.
    """
    return Tolerances(2 * unit_roundoff(case.dtype), max(_LEAST_PRINTED, *map(_least_atol, _calls(case))))


def _least_atol(case: Case) -> float:
    rounding, smallest = unit_roundoff(case.dtype), smallest_subnormal(case.dtype)
    allowed, rounded = allowed_errors(case), rounded_outputs(case)
    atol = 0.0
    for name, expected in expected_outputs(case).items():
        written = rounded[name].astype(np.float64)
        needed = _needed(expected, written, allowed[name])
        # A runner rounds the difference up once at most, and the sum on the other side down twice; two numbers may
        # underflow, which costs half the least subnormal number each.
        beyond = needed * (1 + 4 * rounding) - 2 * rounding * np.abs(np.where(np.isfinite(written), written, 0.0))
        atol = max(atol, (float(np.max(beyond, initial=0.0)) + 2 * smallest) * (1 + 2 * rounding))
    return atol


def _needed(expected: Floats, written: Floats, allowed: Floats) -> Floats:
    """The largest error, relative to the written values, that the suite accepts; 0 where it demands equality."""
    comparable = np.isfinite(expected) & np.isfinite(written)
    moved = np.abs(np.subtract(written, expected, where=comparable, out=np.zeros(expected.shape)))
    return np.asarray(np.where(comparable, allowed + moved, 0.0), np.float64)


def _write_tolerances(folder: Path, scalars: Tolerances) -> None:
    (folder / "data.json").write_text(json.dumps(scalars._asdict(), sort_keys=True) + "\n", "utf-8", newline="\n")
    lines = f"per_sample_tolerance:{scalars.atol!r}\nrelative_per_sample_tolerance:{scalars.rtol!r}\n"
    (folder / "config.txt").write_text(lines, "utf-8", newline="\n")
