"""``python -m conformance run-exported``: run exported cases with ONNX's own runner."""

from __future__ import annotations

import textwrap
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import numpy as np
import onnx
from onnx.backend.test import runner as onnx_runner
from onnx.backend.test.loader import load_model_tests

from conformance.backends import MissingBackendError
from conformance.backends.external import target_of
from conformance.commands.options import wrong_call
from conformance.printable import described, message_of, printable
from ortops.progress import with_progress


@click.command("run-exported")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--backend",
    "backend_name",
    required=True,
    metavar="MODULE",
    help="module[:Class] with ONNX's backend interface, such as onnxruntime.backend (see docs/conformance.md).",
)
@click.option("--select", "glob", default="*", metavar="GLOB", help="Only folders whose name matches.")
def run_exported_command(folder: Path, backend_name: str, glob: str) -> None:
    """Run the cases in DIR with the runner of onnx.backend.test.

    DIR is a folder that `export` wrote; the backend runs in this process. The exit status is 0 if no case failed, 1 if one
    did or if all were skipped, 2 for a wrong call.
    """
    with wrong_call("--backend", MissingBackendError):
        target = target_of(backend_name)
    if not callable(getattr(target, "prepare", None)):
        raise click.BadParameter(f"{backend_name}: must have prepare(model, device)", param_hint="--backend")
    kinds = sorted({model.parent.parent.name for model in folder.glob("*/test_*/model.onnx")})
    tests = [test for kind in kinds for test in _tests(_asked(target), folder, kind, glob)]
    if not tests:
        raise click.BadParameter(f"{folder} has no exported case that {glob!r} matches", param_hint="DIR")
    verdicts = Verdicts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a backend's warning fails no case
        for test in with_progress(tests, "run-exported", len(tests)):
            test.run(verdicts)
    for reason, count in Counter(_in_short(reason) for _, reason in verdicts.skipped).most_common():
        click.echo(f"{count} skipped: {reason}")
    skipped = len(verdicts.skipped)
    passed = len(tests) - verdicts.wrong - skipped
    click.echo(f"{passed} passed, {verdicts.wrong} failed, {skipped} skipped")
    if passed + verdicts.wrong == 0:
        click.echo("no case was answered: this shows nothing")
    if verdicts.wrong or not passed:
        raise click.exceptions.Exit(1)


def _tests(backend: Any, folder: Path, kind: str, glob: str) -> Iterator[unittest.TestCase]:
    """The tests that ONNX's runner makes from the folders of one kind."""

    def load(*, kind: str, ours: str = kind) -> list[Any]:
        found = load_model_tests(str(folder), ours) if kind == "simple" else []
        return [test for test in found if fnmatchcase(test.name, glob)]

    # The runner takes no folder. It calls this function for the test data of each kind in the onnx package.
    with mock.patch.object(onnx_runner, "load_model_tests", load):
        cases = onnx_runner.Runner(backend, __name__).test_cases
    for case in cases.values():
        yield from (case(name) for name in unittest.defaultTestLoader.getTestCaseNames(case) if name.endswith("_cpu"))


def _asked(target: Any) -> Any:
    """A backend for ONNX's runner, which skips the models that it does not support; `is_compatible` may be absent."""

    def is_compatible(model: onnx.ModelProto) -> bool:
        return not hasattr(target, "is_compatible") or bool(target.is_compatible(model, device="CPU"))

    def prepare(model: onnx.ModelProto, device: str) -> SimpleNamespace:
        prepared = _or_skip(target.prepare, model, device)
        return SimpleNamespace(run=lambda inputs: [np.asarray(output) for output in _or_skip(prepared.run, inputs)])

    return SimpleNamespace(supports_device="CPU".__eq__, is_compatible=is_compatible, prepare=prepare)


def _or_skip(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except NotImplementedError as error:
        raise unittest.SkipTest(message_of(error) or type(error).__name__) from error


class Verdicts(unittest.TestResult):
    """A test result that prints each failure and error, and counts both as `wrong`."""

    wrong = 0

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """Add a test that failed with `err`, a result of `sys.exc_info`."""
        self.wrong += 1
        name = test.id().rpartition(".")[2].removesuffix("_cpu")
        click.echo(f"failed {name}\n    {_in_short(described(err[1]))}")

    addError = addFailure  # noqa: N815


def _in_short(text: str) -> str:
    """A message in one short line; it may have had an array in it."""
    return textwrap.shorten(printable(" ".join(text.split())), 300)
