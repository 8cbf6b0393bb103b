"""``python -m conformance run-exported``: give exported cases to ONNX's own runner."""

from __future__ import annotations

import textwrap
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from conformance.case import Array
from conformance.printable import printable, words_of
from conformance.progress import with_progress


@click.command("run-exported")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--backend",
    "backend_name",
    required=True,
    metavar="MODULE",
    help="module[:Class] with ONNX's backend interface, such as onnxruntime.backend (see docs/backends.md).",
)
@click.option("--select", "glob", default="*", metavar="GLOB", help="Only folders whose name the pattern matches.")
def run_exported_command(folder: Path, backend_name: str, glob: str) -> None:
    """Run what `export` has written to DIR by the runner of onnx.backend.test, in this process.

    The exit status is 0 when no case failed, 1 when one did or when none was answered, 2 for a wrong call.
    """
    try:
        target = target_of(backend_name)
    except MissingBackendError as error:
        raise click.BadParameter(str(error), param_hint="--backend") from error
    if not callable(getattr(target, "prepare", None)):
        raise click.BadParameter(f"{backend_name} must have prepare(model, device)", param_hint="--backend")
    kinds = sorted({model.parent.parent.name for model in folder.glob("*/test_*/model.onnx")})
    tests = [test for kind in kinds for test in _tests(Asked(target), folder, kind, glob)]
    if not tests:
        raise click.BadParameter(f"{folder} has no exported case that {glob!r} matches", param_hint="DIR")
    verdicts = Verdicts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a backend warns of fails no case
        for test in with_progress(tests, "run-exported", len(tests)):
            test.run(verdicts)
    for reason, count in verdicts.reasons.most_common():
        click.echo(f"{count} skipped: {reason}")
    skipped = verdicts.reasons.total()
    passed = len(tests) - verdicts.wrong - skipped
    click.echo(f"{passed} passed, {verdicts.wrong} failed, {skipped} skipped")
    if passed + verdicts.wrong == 0:
        click.echo("no case was answered: this shows nothing")
    if verdicts.wrong or not passed:
        raise click.exceptions.Exit(1)


def _tests(backend: Asked, folder: Path, kind: str, glob: str) -> Iterator[unittest.TestCase]:
    """The tests that ONNX's runner makes of the folders of one kind."""

    def load(*, kind: str, ours: str = kind) -> list[Any]:
        found = load_model_tests(str(folder), ours) if kind == "simple" else []
        return [test for test in found if fnmatchcase(test.name, glob)]

    # The runner cannot be given a folder. It asks this function for the test data of each kind that onnx brings.
    with mock.patch.object(onnx_runner, "load_model_tests", load):
        cases = onnx_runner.Runner(backend, __name__).test_cases  # type: ignore[arg-type]
    for case in cases.values():
        yield from (case(name) for name in unittest.defaultTestLoader.getTestCaseNames(case) if name.endswith("_cpu"))


class Asked:
    """A backend as ONNX's runner takes it: a model that it does not support is skipped.

    target: has `prepare`, and may have `is_compatible`.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def supports_device(self, device: str) -> bool:
        """Whether tests are made for a device."""
        return device == "CPU"

    def is_compatible(self, model: onnx.ModelProto) -> bool:
        """Whether the backend supports a model."""
        is_compatible = getattr(self._target, "is_compatible", None)
        return is_compatible is None or bool(is_compatible(model, device="CPU"))

    def prepare(self, model: onnx.ModelProto, device: str) -> SimpleNamespace:
        """What runs a model: has `run`, from inputs to outputs in the order of the model."""
        prepared = _or_skip(self._target.prepare, model, device)

        def run(inputs: Sequence[Array]) -> list[Array]:
            return [np.asarray(output) for output in _or_skip(prepared.run, inputs)]

        return SimpleNamespace(run=run)


def _or_skip(function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except NotImplementedError as error:
        raise unittest.SkipTest(words_of(error) or type(error).__name__) from error


class Verdicts(unittest.TestResult):
    """Prints what fails, and counts.

    wrong: how many tests failed, for whatever reason.
    reasons: why tests were skipped, and how many.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wrong = 0
        self.reasons: Counter[str] = Counter()

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """Take a test that failed. `err` is of `sys.exc_info`."""
        self.wrong += 1
        name = test.id().rpartition(".")[2].removesuffix("_cpu")
        click.echo(f"failed {name}\n    {_in_short(f'{err[0].__name__}: {words_of(err[1])}')}")

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """Take a test that raised an error, which is a failure, too."""
        self.addFailure(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802, ARG002
        """Take a test that was skipped."""
        self.reasons[_in_short(reason)] += 1


def _in_short(text: str) -> str:
    """One line of a message, which may have an array in it."""
    return textwrap.shorten(printable(" ".join(text.split())), 300)
