# SPDX-License-Identifier: MIT
"""What another project needs: the plugin of pytest, functions on arrays as backends, execution providers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from conformance import backends
from conformance.backends import ProviderError, session
from conformance.case import Case
from conformance.cases import collect
from conformance.run import ask
from suite_runs import INSIDE

BY_ID = {case.id: case for case in collect()}
SUITE = ("--pyargs", "conformance")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest in another project's folder."""
    # Of the plugins that are installed here hypothesis' takes as long to start as all else.
    off = [option for name in ("cacheprovider", "randomly", "hypothesispytest") for option in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", f"--rootdir={folder}", *off, "-rA", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120, env=environment
    )


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    last = done.stdout.splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}


def test_plugin_has_an_item_for_each_case(tmp_path: Path) -> None:
    """Of the cases in double, one is wrongly listed; of those in float, one is listed and the others fail."""
    double = INSIDE.replace("float", "double")
    rows = [f'[[expected_failure]]\nid = "{case_id}"\nreason = "one off"\n' for case_id in (INSIDE, double)]
    floor = 'at_least = 100\nselect = "*/edge/half_pixel_inside/*"\n'
    (tmp_path / "known.toml").write_text("\n".join([floor, *rows]), "utf-8")
    options = ["--conformance-select", "*/edge/half_pixel_inside/*", "--conformance-expected-failures", "known.toml"]
    done = run_pytest(tmp_path, *SUITE, "--conformance-backend", "wrong_backends:ten", *options)
    ids = [i for i in BY_ID if "/edge/half_pixel_inside/" in i]
    answered = [i for i in ids if i.startswith("roi_align/")]
    failed = [i for i in answered if i.endswith("/float") and i != INSIDE] + [double]
    passed, skipped = len(answered) - len(failed) - 1, len(ids) - len(answered)
    expected = {"passed": passed, "failed": len(failed), "xfailed": 1, "skipped": skipped}
    assert counts(done) == {name: count for name, count in expected.items() if count}
    assert done.returncode == 1
    assert "cases were judged: must be at least 100" in done.stdout
    assert f"XFAIL conformance::{INSIDE}" in done.stdout
    assert "passed, but is listed as an expected failure: one off" in done.stdout
    worst = r"^Y\[0, 0, 0, 0\]: expected 10, got 11, off by 1 where \S+ is allowed$"
    assert re.search(worst, done.stdout, re.MULTILINE)
    assert BY_ID[INSIDE].note in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "options", "status", "message"),
    [
        (
            "wrong_backends:ten",
            ("--conformance-select", "dml_roi_align/edge/*_inside*/float", "-n2"),
            1,
            "nothing was tested",
        ),
        (
            "rude_backends:ends_itself",
            ("--conformance-select", INSIDE, "--conformance-isolate"),
            1,
            "the process ended with ",
        ),
        ("nowhere", (), 4, "--conformance-backend: backend nowhere: No module named 'nowhere'"),
        ("", ("--conformance-select", INSIDE), 4, "--pyargs conformance: must come with --conformance-backend"),
        (
            "reference",
            ("--conformance-select", "roi_align"),
            4,
            "'roi_align' selects no case; did you mean roi_align/*?",
        ),
        ("reference", ("--conformance-provider", "x"), 4, "--conformance-provider: 'x': only with backend"),
        ("reference", ("--conformance-expected-failures", "x"), 4, "--conformance-expected-failures: x: No such file"),
        ("reference", ("--conformance-level", "all"), 4, "argument --conformance-level: invalid choice: 'all'"),
        (
            "wrong_backends:ten",
            ("--conformance-select", INSIDE, "--conformance-strict", "all"),
            1,
            "use --conformance-level",
        ),
    ],
)
def test_plugin_says_what_is_wrong(
    tmp_path: Path, backend: str, options: tuple[str, ...], status: int, message: str
) -> None:
    done = run_pytest(tmp_path, *SUITE, *(("--conformance-backend", backend) if backend else ()), *options)
    assert (done.returncode, message in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr


def test_plugin_does_nothing_without_a_backend(tmp_path: Path) -> None:
    heavy = "{'numpy', 'onnx', 'numba', 'onnxruntime', 'click', 'jinja2', 'rich', 'ortops'}"
    text = f"import sys\n\ndef test_own():\n    assert not {heavy} & set(sys.modules)\n"
    (tmp_path / "test_own.py").write_text(text, "utf-8")
    done = run_pytest(tmp_path, "test_own.py")
    assert (done.returncode, counts(done)) == (0, {"passed": 1}), done.stdout


# Execution providers of ONNX Runtime.


def test_a_provider_that_does_not_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider", "Broken"])

    class Fallen:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def get_providers(self) -> list[str]:
            return [session.CPU]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Fallen)
    with pytest.raises(ProviderError, match="'Broken': ONNX Runtime has it, but cannot start it here"):
        session.check_provider("Broken")


def test_the_cpus_answer_is_not_another_providers() -> None:
    provider = "AzureExecutionProvider"  # it has no kernel of RoiAlign
    if provider not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no such provider")
    kernels = backends.load("onnxruntime", provider)
    assert kernels.expected_failures == ()
    answer = ask(kernels, BY_ID[INSIDE])
    assert (answer.kind, answer.text) == ("unsupported", f"{provider} has no kernel for it")
    assert ask(backends.load("portable", provider), BY_ID[INSIDE]).kind == "outputs"


# Functions on arrays.


def call_of(case: Case, answer: object, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
    """What a function is called with in this case, and what becomes of its answer."""
    calls: list[Any] = []

    def function(*arguments: object) -> object:
        calls.append(arguments)
        return answer

    monkeypatch.setattr(sys.modules[__name__], "function_of_test", function, raising=False)
    got = backends.load(f"{__name__}:function_of_test").prepare(case)(case.inputs)
    ((op_type, inputs, attributes, outputs),) = calls
    return [op_type, inputs, attributes, outputs], got


def test_what_a_function_is_called_with(monkeypatch: pytest.MonkeyPatch) -> None:
    case = BY_ID["roi_align/defaults/none_given/v10/float"]
    (op_type, inputs, attributes, outputs), _ = call_of(case, [], monkeypatch)
    assert (op_type, outputs) == ("RoiAlign", ("Y",))
    assert list(inputs) == ["X", "rois", "batch_indices"]
    np.testing.assert_array_equal(inputs["X"], case.inputs["X"])
    assert attributes["coordinate_transformation_mode"] == "output_half_pixel"
    assert attributes["mode"] == "avg"
    newest = BY_ID[INSIDE.replace("v16", "v22")]
    (op_type, _, attributes, _), _ = call_of(newest, [], monkeypatch)
    assert (op_type, set(attributes)) == ("RoiAlign", set(onnx.defs.get_schema("RoiAlign", 22).attributes))
    without = next(c for c in collect() if c.operator == "RoiAlignGrad" and "X" not in c.inputs and not c.expects_error)
    (op_type, inputs, _, outputs), _ = call_of(without, [], monkeypatch)
    assert (op_type, inputs["X"], outputs) == ("RoiAlignGrad", None, without.outputs)


def test_what_a_function_may_return(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in collect() if c.operator == "RoiAlignGrad" and len(c.outputs) == 2)
    dx, drois = np.ones(2), np.zeros(3)
    for answer in ({"dX": dx, "drois": drois}, [dx, drois], (dx, drois)):
        _, got = call_of(case, answer, monkeypatch)
        assert {name: y.shape for name, y in got.items()} == {"dX": (2,), "drois": (3,)}
    for too_little in (dx, [dx], [dx, None]):
        assert list(call_of(case, too_little, monkeypatch)[1]) == ["dX"]
