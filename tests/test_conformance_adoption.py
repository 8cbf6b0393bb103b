"""What another project needs to run the suite in its continuous integration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from conformance import backends
from conformance.__main__ import main
from conformance.backends import ProviderError, session
from conformance.case import Case
from conformance.commands.run import shard_of
from conformance.expected_failures import ExpectedFailure, find, read
from conformance.isolate import Setting, child_of
from conformance.run import ask
from conformance.vectors import collect
from conformance.workers import LocalPool
from ortops.spec import AttributeValue
from ortops.worker_process import can_limit_memory

BY_ID = {case.id: case for case in collect()}
IDS = list(BY_ID)
INSIDE = "roi_align/edge/half_pixel_inside/v16/float"

FUNCTIONS = '''
"""Answers to RoiAlign on arrays."""

import os
import numpy as np
from conformance.expected_values import reference
from ortops.operators import BY_NAME


def right(op_type, inputs, attributes, outputs):
    if op_type != "RoiAlign":
        raise NotImplementedError(f"no {op_type}")
    operator = BY_NAME["RoiAlign_16"]
    given = {a.name: attributes[a.name] for a in operator.attributes}
    answer = reference(operator, given, {n: a for n, a in inputs.items() if a is not None}, outputs)
    return answer["Y"].astype(inputs["X"].dtype)


def wrong(op_type, inputs, attributes, outputs):
    return right(op_type, inputs, attributes, outputs) + 1


def wrong_in_float(op_type, inputs, attributes, outputs):
    return right(op_type, inputs, attributes, outputs) + (inputs["X"].dtype == np.float32)


def hungry(op_type, inputs, attributes, outputs):
    if attributes["mode"] == "max":
        np.ones(2**30)
    return right(op_type, inputs, attributes, outputs)


def ends(op_type, inputs, attributes, outputs):
    os.abort()


class NoFunction:
    pass
'''


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def words(result: Result) -> str:
    return " ".join(result.output.split())


def report(tmp_path: Path, *arguments: str) -> tuple[Result, dict[str, Any]]:
    file = tmp_path / "report.json"
    result = run(*arguments, "--json", str(file))
    data = json.loads(file.read_text("utf-8"))
    cases = [{**case, "seconds": 0} for case in data["cases"]]  # no test is about times
    return result, {**data, "date": "", "cases": cases}


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to import FUNCTIONS from."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "functions", raising=False)
    (tmp_path / "functions.py").write_text(FUNCTIONS, "utf-8")
    return tmp_path


@pytest.mark.parametrize("parts", [2, 7])
def test_shards_are_disjoint_even_and_together_all(parts: int) -> None:
    shards = [shard_of(collect(), part, parts) for part in range(1, parts + 1)]
    assert sorted(case.id for shard in shards for case in shard) == sorted(IDS)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    kinds = [Counter((case.group, case.element_type) for case in shard) for shard in shards]
    for kind in set().union(*kinds):
        assert max(counter[kind] for counter in kinds) - min(counter[kind] for counter in kinds) <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (["--list", f"--shard={value}"], f"'{value}': must be i/n with 1 <= i <= n")
            for value in ("0/3", "4/3", "a/b")
        ),
        (
            ["--list", "--select", INSIDE, "--shard", "1/2"],
            "'1/2': must have at most as many parts as there are cases, 1",
        ),
        (["--list", "--expected-failures", "none.toml"], "'none.toml' does not exist"),
        (["--backend", "reference", "--provider", session.CPU], "only with backend ortops, ortops-pyop, onnxruntime"),
        (["--backend", "onnxruntime", "--provider", "None", "--select", INSIDE], "'None': must be one of"),
        *((["--list", f"--time-limit={value}"], "--time-limit") for value in ("0", "nan")),
        (["--list", "--memory-limit=0"], "--memory-limit"),
        (
            ["--backend", "functions:NoFunction", "--select", INSIDE],
            "must be a function or have prepare(model, device)",
        ),
    ],
)
@pytest.mark.usefixtures("functions")
def test_a_wrong_call_is_status_2(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in words(result)


def toml(folder: Path, text: str) -> Path:
    file = folder / "known.toml"
    file.write_text(text, "utf-8")
    return file


def test_a_list_of_expected_failures_takes_the_place_of_the_backends(tmp_path: Path) -> None:
    text = f"""
[[expected_failure]]
id = "{INSIDE}"
reason = "one case"
[[expected_failure]]
glob = "roi_align/edge/*/v16/*"
reason = "many"
crashes = true
"""
    known = read(toml(tmp_path, text), IDS)
    assert find(known, INSIDE) == ExpectedFailure(INSIDE, "one case")
    assert find(known, INSIDE.replace("float", "double")) == ExpectedFailure("roi_align/edge/*/v16/*", "many", True)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(("function", "status", "outcome"), [("wrong", 0, "expected_failure"), ("right", 1, "failed")])
def test_an_expected_failure_must_fail(tmp_path: Path, function: str, status: int, outcome: str) -> None:
    file = toml(tmp_path, f'[[expected_failure]]\nid = "{INSIDE}"\nreason = "one off"\n')
    arguments = ("--backend", f"functions:{function}", "--select", INSIDE, "--expected-failures", str(file))
    result, data = report(tmp_path, *arguments)
    assert result.exit_code == status
    assert [case["outcome"] for case in data["cases"]] == [outcome]
    assert "one off" in data["cases"][0]["message"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", "must be TOML in UTF-8"),
        ("failures = 1", "has failures: must have tables [[expected_failure]] and nothing else"),
        ("expected_failure = 1", "must have tables [[expected_failure]] and nothing else"),
        ('[[expected_failure]]\nreason = "x"', "expected_failure 1 has reason: must have either id or glob"),
        ('[[expected_failure]]\nid = "a"\nglob = "b"', "must have either id or glob"),
        ('[[expected_failure]]\nglob = "*"', "reason = None: must be a string that is not empty"),
        ('[[expected_failure]]\nglob = "*"\nreason = " "', "reason = ' ': must be a string that is not empty"),
        ('[[expected_failure]]\nglob = 3\nreason = "x"', "glob = 3: must be a string that is not empty"),
        ('[[expected_failure]]\nglob = "*"\nreason = "x"\ncrashes = 1', "crashes = 1: must be true or false"),
        ('[[expected_failure]]\nglob = "*"\nreason = "x"\nnote = "y"', "note = 'y': must be one of id, glob"),
        ('[[expected_failure]]\nglob = "no/such/*"\nreason = "x"', "glob = 'no/such/*': must match a case"),
        ('[[expected_failure]]\nid = "roi_align/*"\nreason = "x"', "id = 'roi_align/*': must be the id of a case"),
    ],
)
def test_a_wrong_list_of_expected_failures_is_status_2(tmp_path: Path, text: str, message: str) -> None:
    result = run("--backend", "reference", "--list", "--expected-failures", str(toml(tmp_path, text)))
    assert result.exit_code == 2
    assert "--expected-failures" in result.output
    assert message in words(result)


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


def other_provider() -> str:
    """A provider of this ONNX Runtime that has no kernel of RoiAlign."""
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no such provider")
    return "AzureExecutionProvider"


def test_the_cpus_answer_is_not_another_providers() -> None:
    provider = other_provider()
    kernels = backends.load("onnxruntime", provider)
    assert kernels.expected_failures == ()
    answer = ask(kernels, BY_ID[INSIDE])
    assert (answer.kind, answer.text) == ("unsupported", f"{provider} has no kernel for it")
    assert ask(backends.load("portable", provider), BY_ID[INSIDE]).kind == "outputs"


def test_a_provider_reaches_the_child() -> None:
    provider = other_provider()
    with LocalPool(1), child_of(Setting("onnxruntime", provider)) as child:
        assert child.answer(BY_ID[INSIDE]).text == f"{provider} has no kernel for it"


def asked(case: Case, answer: object, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
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
    (op_type, inputs, attributes, outputs), _ = asked(case, [], monkeypatch)
    assert (op_type, outputs) == ("RoiAlign", ("Y",))
    assert list(inputs) == ["X", "rois", "batch_indices"]
    np.testing.assert_array_equal(inputs["X"], case.inputs["X"])
    assert attributes["coordinate_transformation_mode"] == "output_half_pixel"
    assert attributes["mode"] == "avg"
    without = next(c for c in collect() if c.operator == "RoiAlignGrad" and "X" not in c.inputs and not c.expects_error)
    (op_type, inputs, _, outputs), _ = asked(without, [], monkeypatch)
    assert (op_type, inputs["X"], outputs) == ("RoiAlignGrad", None, without.outputs)


@pytest.mark.parametrize("wrong", [c for c in collect() if c.expects_error == "attribute"][::40], ids=lambda c: c.id)
def test_a_function_is_given_wrong_attributes_as_they_are(wrong: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, _, attributes, _), _ = asked(wrong, [], monkeypatch)

    def near(a: AttributeValue, b: AttributeValue) -> bool:
        return bool(a == b if isinstance(b, str) else np.array_equal(np.float32(a), np.float32(b), equal_nan=True))

    assert all(near(attributes[name], value) for name, value in wrong.attributes.items())


def test_what_a_function_may_return(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in collect() if c.operator == "RoiAlignGrad" and len(c.outputs) == 2)
    one, two = np.ones(2), np.zeros(3)
    for answer in ({"dX": one, "drois": two}, [one, two], (one, two)):
        _, got = asked(case, answer, monkeypatch)
        assert list(got) == ["dX", "drois"]
        assert got["drois"].shape == (3,)
    for too_little in (one, [one], None):
        assert list(asked(case, too_little, monkeypatch)[1]) == ["dX"]


def test_a_case_beyond_its_time_has_crashed(tmp_path: Path) -> None:
    glob = "roi_align/edge/max*has_no_floor/v22/float"
    arguments = ("--backend", "wrong_backends:Hangs", "--select", glob, "--time-limit", "0.5")
    result, data = report(tmp_path, *arguments)
    assert result.exit_code == 1
    assert sorted(case["outcome"] for case in data["cases"]) == ["crashed", "passed"]
    assert "no answer within 0.5 s" in result.output


@pytest.mark.skipif(not can_limit_memory(), reason="memory is limited on Linux only")
@pytest.mark.usefixtures("functions")
def test_a_case_beyond_its_memory_has_crashed_and_the_others_are_asked(tmp_path: Path) -> None:
    glob = "roi_align/edge/m*has_no_floor/v16/float"
    arguments = ("--backend", "functions:hungry", "--memory-limit", "2048")
    result, data = report(tmp_path, *arguments, "--select", glob)
    assert result.exit_code == 1
    assert {case["outcome"] for case in data["cases"]} == {"crashed", "passed"}
    assert "took more memory than the 2048 MiB it is allowed: MemoryError: Unable to allocate 8.00 GiB" in result.output
    result, data = report(tmp_path, *arguments, "--select", INSIDE)
    assert (result.exit_code, data["summary"]["passed"]) == (0, 1)


def test_memory_cannot_be_limited_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ortops.worker_process.can_limit_memory", lambda: False)
    result = run("--backend", "reference", "--select", INSIDE, "--memory-limit", "100")
    assert result.exit_code == 2
    assert "--memory-limit: 100: only on Linux" in words(result)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest in another project's folder."""
    # Of the plugins that are installed here hypothesis' takes as long to start as all else.
    off = [option for name in ("cacheprovider", "randomly", "hypothesispytest") for option in ("-p", f"no:{name}")]
    own = [*off, "-rA", "--pyargs", "conformance"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={folder}", *own, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    last = done.stdout.splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}


def test_plugin_has_an_item_for_each_case(functions: Path) -> None:
    """Of the cases in double, one is wrongly listed; of those in float, one is listed and the others fail."""
    glob = "*/edge/half_pixel_inside/*"
    double = INSIDE.replace("float", "double")
    rows = [f'[[expected_failure]]\nid = "{case_id}"\nreason = "one off"\n' for case_id in (INSIDE, double)]
    known = toml(functions, "\n".join(rows)).name
    options = ["--conformance-select", glob, "--conformance-expected-failures", known]
    done = run_pytest(functions, "--conformance-backend", "functions:wrong_in_float", *options)
    own = [i for i in IDS if fnmatchcase(i, glob)]
    answered = [i for i in own if i.startswith("roi_align/")]
    failed = [i for i in answered if i.endswith("/float") and i != INSIDE] + [double]
    assert counts(done) == {
        "passed": len(answered) - len(failed) - 1,
        "failed": len(failed),
        "xfailed": 1,
        **({"skipped": len(own) - len(answered)} if len(own) > len(answered) else {}),
    }
    assert done.returncode == 1
    assert f"XFAIL conformance::{INSIDE}" in done.stdout
    assert "passed, but is listed as an expected failure: one off" in done.stdout
    worst = r"^Y\[0, 0, 0, 0\]: expected 10, got 11, off by 1 where \S+ is allowed$"
    assert re.search(worst, done.stdout, re.MULTILINE)
    assert BY_ID[INSIDE].note in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_plugin_fails_if_nothing_is_tested_in_several_processes(functions: Path) -> None:
    options = ("--conformance-select", "dml_roi_align/edge/*_inside*/float", "-n", "2")
    done = run_pytest(functions, "--conformance-backend", "functions:right", *options)
    assert done.returncode == 1, done.stdout
    assert set(counts(done)) == {"skipped"}
    assert "nothing was tested" in done.stdout


@pytest.mark.slow
def test_plugin_runs_a_child_process_on_request(functions: Path) -> None:
    options = ("--conformance-select", INSIDE, "--conformance-isolate")
    done = run_pytest(functions, "--conformance-backend", "functions:ends", *options)
    assert (done.returncode, counts(done)) == (1, {"failed": 1}), done.stdout
    assert "the process ended with exit code" in done.stdout


@pytest.mark.slow
def test_plugin_refuses_wrong_options(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--conformance-backend", "nowhere")
    assert done.returncode == 4
    assert "--conformance-backend: backend nowhere: No module named 'nowhere'" in done.stderr


def test_plugin_does_nothing_without_a_backend(tmp_path: Path) -> None:
    heavy = "{'numpy', 'onnx', 'numba', 'onnxruntime', 'click', 'jinja2'}"
    own = f"import sys\n\ndef test_own():\n    assert not {heavy} & set(sys.modules)\n"
    (tmp_path / "test_own.py").write_text(own, "utf-8")
    done = run_pytest(tmp_path, "test_own.py")
    assert (done.returncode, counts(done)) == (0, {"passed": 1}), done.stdout
