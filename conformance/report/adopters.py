"""The failures of a run as another project's list of expected failures, of the cases that ONNX's runners run.

    onnxruntime  categories of onnx_backend_test_series_filters.jsonc and fields of onnx_backend_test_series_overrides.jsonc
                 in onnxruntime/test/testdata, as onnxruntime/test/python/onnx_backend_test_series.py reads them
    openvino     marks for tests/__init__.py, and `tests_expected_to_fail` of tests/tests_python/test_backend.py, both in
                 src/frontends/onnx/tests
    opencv       modules/dnn/test/test_onnx_conformance_layer_*_denylist.inl.hpp, which test_onnx_conformance.cpp includes
    burn         crates/onnx-official-tests/expectations.toml of burn-onnx, whose first lines define the states
    ini          metadata of web-platform-tests for one page, as wptrunner's documentation "Test Metadata" defines it

A case is named as the folder that `export --names onnx` writes. These projects have no levels, so the lists also have cases
that departed, and those that the runtime does not support.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from conformance.cases import case_of
from conformance.diagnosis import Diagnosis
from conformance.export import folder_name, reason_left_out, tolerances
from conformance.outcome import Outcome, Result
from conformance.report.counts import cut
from conformance.report.failure_list import quoted, reasons_of_failures

RTOL, ATOL = 1e-3, 1e-5
"""The tolerances of ONNX Runtime's tests for cases without an override."""


class Entry(NamedTuple):
    """A case that ran and the reason why it does not pass, which cases with one cause share; empty if it passes."""

    result: Result
    name: str
    reason: str


def entries_of(results: Sequence[Result], diagnoses: Sequence[Diagnosis]) -> list[Entry]:
    """The entries of the cases that ONNX's runners run."""
    said: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for failures in reasons_of_failures(results, diagnoses).values():
        reasons |= {case_id: said.setdefault(key, reason) for case_id, (key, reason) in failures.items()}
    exported = [(result, case) for result in results if not reason_left_out(case := case_of(result))]
    said_of = {r.id: reasons.get(r.id) or cut(r.message) or r.outcome.value for r, _ in exported}
    return [Entry(r, folder_name(c, "onnx"), "" if r.outcome is Outcome.PASSED else said_of[r.id]) for r, c in exported]


def _is_unsupported(entry: Entry) -> bool:
    return entry.result.outcome is Outcome.UNSUPPORTED


def _by_reason(entries: Sequence[Entry]) -> Mapping[tuple[str, bool], Sequence[str]]:
    """The names of the cases that do not pass, by their reason and whether they crash."""
    names: dict[tuple[str, bool], list[str]] = {}
    for entry in entries:
        if entry.reason:
            names.setdefault((entry.reason, entry.result.outcome is Outcome.CRASHED), []).append(entry.name)
    return names


def _onnxruntime(entries: Sequence[Entry], title: str, _: Path) -> str:
    """A pattern is anchored, since one name may begin like another, and holds for names with and without a device."""
    parts = []
    for category, is_unsupported in (("current_failing_tests", False), ("unsupported_usages", True)):
        groups = _by_reason([entry for entry in entries if _is_unsupported(entry) == is_unsupported])
        lines = [
            f"        // {quoted(reason)}\n" + ",\n".join(f'        "^{name}(_cpu|_cuda)?$"' for name in names)
            for (reason, _), names in groups.items()
        ]
        parts.append(f'    "{category}": [\n' + ",\n".join(lines) + "\n    ]")
    bounds = {e.name: tolerances(case_of(e.result)) for e in entries if not e.reason}
    for field, default, wider in (
        ("rtol", RTOL, {name: bound.rtol for name, bound in bounds.items() if bound.rtol > RTOL}),
        ("atol", ATOL, {name: bound.atol for name, bound in bounds.items() if bound.atol > ATOL}),
    ):
        rows = json.dumps(wider, indent=8).replace("\n}", "\n    }")
        parts.append(f'    "{field}_default": {default},\n    "{field}_overrides": {rows}')
    return f"// {title}\n{{\n" + ",\n".join(parts) + "\n}\n"


def _openvino(entries: Sequence[Entry], title: str, _: Path) -> str:
    marks, rows = [], []
    for i, ((reason, crashes), names) in enumerate(_by_reason(entries).items(), 1):
        mark = f"{'skip' if crashes else 'xfail'}_conformance_{i}"
        marks.append(f"{mark} = {'pytest.mark.skip' if crashes else 'xfail_test'}(reason={quoted(reason)})\n")
        tests = "".join(f'        "OnnxBackendNodeModelTest.{name}_cpu",\n' for name in names)
        rows.append(f"    (\n        {mark},\n{tests}    ),\n")
    head = f"# {title}\nimport pytest\nfrom tests import xfail_test\n\n"
    return f"{head}{''.join(marks)}\ntests_expected_to_fail = [\n{''.join(rows)}]\n"


def _opencv(entries: Sequence[Entry], title: str, _: Path) -> str:
    groups = [
        f"// {quoted(r)}\n" + "".join(f'"{n}",\n' for n in names) for (r, _), names in _by_reason(entries).items()
    ]
    return f"// {title}\n{''.join(groups)}"


def _burn(entries: Sequence[Entry], title: str, _: Path) -> str:
    """All cases, since its runner fails for one that the list lacks. It does not run those that are flaky."""
    tables = []
    for entry in entries:
        status = "fail-compare" if entry.result.wrong_output else "skip-codegen"
        status = "flaky" if entry.result.outcome is Outcome.CRASHED else status
        fields = f'status = "{status}"\nreason = {quoted(entry.reason)}\n' if entry.reason else 'status = "pass"\n'
        tables.append(f"\n[{entry.name}]\n{fields}")
    return f"# {title}\n{''.join(tables)}"


def _ini(entries: Sequence[Entry], title: str, file: Path) -> str:
    """Subtests of the page that the file's name has: page.https.any.js.ini. A crash ends the page."""
    name = file.name.removesuffix(".ini").replace(".js", ".html")
    page = name.translate({ord(c): f"\\{c}" for c in "\\]"})
    has_crash = any(entry.result.outcome is Outcome.CRASHED for entry in entries)
    texts = [f"# {title}\n[{page}]\n"] + ["  expected: [OK, CRASH, TIMEOUT]\n"] * has_crash
    for entry in entries:
        status = "PRECONDITION_FAILED" if _is_unsupported(entry) else "FAIL"
        status = "[FAIL, NOTRUN, TIMEOUT]" if entry.result.outcome is Outcome.CRASHED else status
        if entry.reason:
            texts.append(f"\n  # {quoted(entry.reason)}\n  [{entry.name}]\n    expected: {status}\n")
    return "".join(texts)


FORMATS: Mapping[str, Callable[[Sequence[Entry], str, Path], str]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "opencv": _opencv,
    "burn": _burn,
    "ini": _ini,
}
"""The functions that make the text of a list from its entries, the versions of the run, and the file's name."""
