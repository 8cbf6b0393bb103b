# SPDX-License-Identifier: MIT OR Apache-2.0
"""The failures of a run as another project's list of expected failures, of the cases that ONNX's runners run.

    onnxruntime  categories of onnx_backend_test_series_filters.jsonc and fields of onnx_backend_test_series_overrides.jsonc
                 in onnxruntime/test/testdata, as onnxruntime/test/python/onnx_backend_test_series.py reads them
    openvino     marks for tests/__init__.py, and `tests_expected_to_fail` of tests/tests_python/test_backend.py, both in
                 src/frontends/onnx/tests
    opencv       modules/dnn/test/test_onnx_conformance_layer_*_denylist.inl.hpp, which test_onnx_conformance.cpp includes
    burn         crates/onnx-official-tests/expectations.toml of burn-onnx, whose first lines define the states. It has all
                 cases, since one that it lacks fails, and `flaky` for those that end the process, which are not run
    ini          metadata of web-platform-tests, as wptrunner's documentation "Test Metadata" defines them. The cases are
                 subtests of the page that the file's name has: page.https.any.js.ini

A case is named as the folder that `export --names onnx` writes. These projects have no levels, so the lists also have cases
that departed, and those that the runtime does not support.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from conformance.cases import case_of
from conformance.diagnosis import Diagnosis
from conformance.export import folder_name, reason_left_out, tolerances
from conformance.outcome import Outcome, Result
from conformance.report.counts import cut
from conformance.report.failure_list import reasons_of_failures
from conformance.report.page import rendered

FORMATS = ("onnxruntime", "openvino", "opencv", "burn", "ini")

TOLERANCES = {"rtol": 1e-3, "atol": 1e-5}
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
    entries = []
    for result in results:
        if not reason_left_out(case := case_of(result)):
            reason = reasons.get(result.id) or cut(result.message) or result.outcome.value
            is_passed = result.outcome is Outcome.PASSED
            entries.append(Entry(result, folder_name(case, "onnx"), "" if is_passed else reason))
    return entries


def render(form: str, entries: Sequence[Entry], title: str, file: Path) -> str:
    """The text of a list.

    Args:
        form: one of `FORMATS`.
        entries: the cases.
        title: the versions of the run.
        file: the list's path.
    """
    overrides = []
    if form == "onnxruntime":
        bounds = {entry.name: tolerances(case_of(entry.result))._asdict() for entry in entries if not entry.reason}
        for field, default in TOLERANCES.items():
            wider = {name: bound[field] for name, bound in bounds.items() if bound[field] > default}
            overrides.append((field, default, json.dumps(wider, indent=8).replace("\n}", "\n    }")))
    return rendered(
        "lists.jinja",
        form=form,
        entries=entries,
        failing=_groups(entry for entry in entries if entry.reason and entry.result.outcome is not Outcome.UNSUPPORTED),
        unsupported=_groups(entry for entry in entries if entry.result.outcome is Outcome.UNSUPPORTED),
        overrides=overrides,
        title=title,
        page=file.name.removesuffix(".ini").replace(".js", ".html"),
    )


def _groups(entries: Iterable[Entry]) -> list[tuple[str, bool, list[str]]]:
    """A reason, whether it is a crash, and the names of the cases with it."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.reason, entry.result.outcome is Outcome.CRASHED), []).append(entry.name)
    return [(*key, names) for key, names in groups.items()]
