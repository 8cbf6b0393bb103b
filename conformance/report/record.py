# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report of a run, and the JSON file that stores it.

    {"backend", "version", "suite", "onnx", "python", "platform", "date", "complete", "seconds", "level",
     "summary": {outcome: count},
     "cases": [{"id", "outcome", "reason", "basis", "max_error", "allowed", "seconds", "message", "outputs"}]}

A case has `outputs` only if the backend answered and did not pass: {name: {"type": ONNX's name, "shape", "data": the
elements' bytes, little-endian, in base64}}. Bytes, because JSON has neither NaN nor infinities, and decimal digits take
three times the space.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib.metadata
import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import ortops
from conformance.backends import package_of
from conformance.case import DTYPES, Array, Basis, Level, element_type_of
from conformance.outcome import Difference, Outcome, Reason, Result
from conformance.printable import PrintableError, printable


class NotAReportError(PrintableError):
    """The file is not a JSON report of the suite."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The versions, the machine and the date of a run; unknown fields are empty.

    version: version of the backend's package, or the one that the backend states.
    suite: version of ortops, which includes the suite.
    onnx, python: their versions.
    platform: operating system and processor architecture.
    date: time of the run, in ISO format and UTC.
    """

    version: str = ""
    suite: str = ""
    onnx: str = ""
    python: str = ""
    platform: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a backend by case id, in the order of the cases.

    complete: whether every selected case has a result, which is not so during a run or if it was stopped.
    seconds: the time from the start of the run to its end; for several runs, the sum.
    level: that of the run; standard if an old report does not have it.
    """

    backend: str
    entries: Mapping[str, Result]
    origin: Origin = Origin()
    complete: bool = True
    seconds: float = field(default=0.0, compare=False)
    level: Level = Level.STANDARD

    @property
    def title(self) -> str:
        """Backend and version, as in headings."""
        return f"{self.backend} {self.origin.version}".rstrip()

    @property
    def summary(self) -> Counter[Outcome]:
        """The number of cases with each outcome."""
        return Counter(result.outcome for result in self.entries.values())

    @property
    def failing(self) -> dict[str, Result]:
        """The results that fail the run."""
        return {case_id: result for case_id, result in self.entries.items() if result.outcome.is_bad}


def report_of(
    backend: str,
    results: Iterable[Result],
    *,
    complete: bool = True,
    seconds: float = 0.0,
    level: Level = Level.STANDARD,
    version: str = "",
) -> Report:
    """The report of these results, with the current time and the versions in this environment.

    `version` is that of a backend outside this package.
    """
    origin = Origin(
        _installed(package_of(backend.partition(" on ")[0])) or version,
        ortops.__version__,
        _installed("onnx"),
        platform.python_version(),
        f"{platform.system()} {platform.machine()}",
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Report(backend, {result.id: result for result in results}, origin, complete, seconds, level)


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except (ValueError, importlib.metadata.PackageNotFoundError):
        return ""


def render(report: Report) -> str:
    """A report as JSON, with a line for each case."""
    counts = report.summary
    state = {"complete": report.complete, "seconds": round(report.seconds, 3), "level": report.level.value}
    head = {"backend": report.backend, **dataclasses.asdict(report.origin), **state}
    text = json.dumps({**head, "summary": {outcome.value: counts[outcome] for outcome in Outcome}}, indent=1)
    cases = ",\n".join(f"  {json.dumps(_stored(result), allow_nan=False)}" for result in report.entries.values())
    return f'{text.removesuffix(chr(10) + "}")},\n "cases": [\n{cases}\n ]\n}}\n'


def _stored(result: Result) -> dict[str, Any]:
    stored: dict[str, Any] = {
        "id": result.id,
        "outcome": result.outcome.value,
        "reason": result.reason.value if result.reason else None,
        "basis": result.basis.value if result.basis else None,
        "max_error": result.worst.error if result.worst else None,
        "allowed": result.worst.allowed if result.worst else None,
        "seconds": round(result.seconds, 6),
        "message": result.message,
    }
    outputs = encode(result.outputs)
    return {**stored, "outputs": outputs} if outputs else stored


def read(file: Path) -> Report:
    """The report in a file.

    Raises:
        NotAReportError: the file cannot be read or is not a report.
    """
    try:
        return _report(json.loads(file.read_text("utf-8")))
    except OSError as error:
        raise NotAReportError(f"{file}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise NotAReportError(f"{file} is not a report of --json: {error}") from error


def read_merged(files: Sequence[Path]) -> list[Report]:
    """The reports in files, merged for each backend and version, in the order of the first file of each.

    A field of the origin is empty if two files differ in it, except the date, which is the later one.

    Raises:
        NotAReportError: see `read`; or two files of one backend have the same case.
    """
    merged: dict[str, Report] = {}
    origin: dict[tuple[str, str], Path] = {}
    for file in files:
        report = read(file)
        for case_id in report.entries:
            first = origin.setdefault((report.title, case_id), file)
            if first is not file:
                rule = "releases must differ in their versions, such as `__version__` of the backend's module"
                raise NotAReportError(f"{file} has case {case_id} of {report.title}, which {first} has, too: {rule}")
        other = merged.get(report.title, report)
        pairs = zip(dataclasses.astuple(other.origin), dataclasses.astuple(report.origin), strict=True)
        common = Origin(*(a if a == b else "" for a, b in pairs))
        common = dataclasses.replace(common, date=max(other.origin.date, report.origin.date))
        entries, complete = {**other.entries, **report.entries}, other.complete and report.complete
        seconds = report.seconds + (other.seconds if other is not report else 0.0)
        merged[report.title] = Report(report.backend, entries, common, complete, seconds, report.level)
    return list(merged.values())


def _report(data: Any) -> Report:
    if not isinstance(data, dict) or not isinstance(data.get("backend"), str):
        raise ValueError("it names no backend")
    if not isinstance(data.get("cases"), list):
        raise ValueError("it has no list of cases")
    entries: dict[str, Result] = {}
    for case in data["cases"]:
        if not isinstance(case, dict) or not isinstance(case.get("id"), str):
            raise ValueError("a case has no id")
        case_id = printable(case["id"])
        if case_id in entries:
            raise ValueError(f"it has case {case_id} twice")
        try:
            entries[case_id] = _result(case_id, case)
        except ValueError as error:
            raise ValueError(f"case {case_id}: {error}") from error
    origin = Origin(*(printable(str(data.get(name.name, ""))) for name in dataclasses.fields(Origin)))
    complete = data.get("complete", True) is True
    seconds, level = _field("seconds", data), _field("level", data)
    return Report(printable(data["backend"]), entries, origin, complete, seconds, level)


def _size(value: object) -> float | None:
    """A stored finite number of at least 0, or None."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
        raise ValueError
    return float(value)


_NUMBER = "must be a finite number, 0 at least, or null"
_FIELDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "outcome": (Outcome, f"must be one of {', '.join(Outcome)}"),
    "reason": (lambda value: None if value is None else Reason(value), f"must be one of {', '.join(Reason)}, or null"),
    "basis": (lambda value: None if value is None else Basis(value), f"must be one of {', '.join(Basis)}, or null"),
    "level": (
        lambda value: Level("standard" if value is None else value),
        f"must be one of {', '.join(Level)}, or null",
    ),
    "seconds": (lambda value: _size(value) or 0.0, _NUMBER),
    "max_error": (_size, _NUMBER),
    "allowed": (_size, _NUMBER),
}
"""The functions that read the fields of a case and the level of a report, and the rules for their values."""


def _field(name: str, stored: Mapping[str, Any]) -> Any:
    read, rule = _FIELDS[name]
    try:
        return read(stored.get(name))
    except ValueError as error:
        raise ValueError(f"{name} = {stored.get(name)!r}: {rule}") from error


def _result(case_id: str, stored: Mapping[str, Any]) -> Result:
    fields = {name: _field(name, stored) for name in _FIELDS if name != "level"}
    error, allowed = fields.pop("max_error"), fields.pop("allowed")
    worst = None if error is None else Difference("", None, "", "", error, allowed)
    message, outputs = printable(str(stored.get("message", ""))), decode(stored.get("outputs", {}))
    return Result(case_id, **fields, message=message, worst=worst, outputs=outputs)


def encode(outputs: Mapping[str, Array]) -> dict[str, dict[str, Any]]:
    """Tensors by name in the form for JSON; tensors of element types that no operator has are left out."""
    encoded = {}
    for name, array in outputs.items():
        if array.dtype in set(DTYPES.values()):
            data = base64.b64encode(_little_endian(array).tobytes()).decode("ascii")
            encoded[name] = {"type": element_type_of(array.dtype), "shape": list(array.shape), "data": data}
    return encoded


def _little_endian(array: Array) -> Array:
    """Convert an array between native and little-endian byte order."""
    return array if sys.byteorder == "little" else array.byteswap()


def decode(stored: object) -> dict[str, Array]:
    """The inverse of `encode`.

    Raises:
        ValueError: the value is not in the form of `encode`.
    """
    if not isinstance(stored, dict):
        raise ValueError("its outputs have no names")
    return {printable(name): _decoded(name, tensor) for name, tensor in stored.items()}


def _decoded(name: str, tensor: object) -> Array:
    fields = tensor if isinstance(tensor, dict) else {}
    kind, shape, data = (fields.get(key) for key in ("type", "shape", "data"))
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"output {name}: type {kind!r} is not one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"output {name}: shape {shape!r} is not a list of lengths")
    try:
        stored = base64.b64decode(data if isinstance(data, str) else "?", validate=True)
    except ValueError as error:
        raise ValueError(f"output {name}: data is not base64: {error}") from error
    dtype = DTYPES[kind]
    if len(stored) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"output {name}: {len(stored)} bytes of data for shape {shape} of {kind}")
    return _little_endian(np.frombuffer(stored, dtype)).reshape(shape)
