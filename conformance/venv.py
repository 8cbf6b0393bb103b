"""Run the suite in another virtual environment, by its own Python: for another release of a runtime, or of Python.

The suite need not be installed there: a temporary folder on PYTHONPATH has links to its packages. This environment's
site-packages cannot be on that path, because they would bring everything else that is installed here as well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import conformance
from conformance.printable import PrintableError
from conformance.report.record import Report, read

SHARED = ("conformance", "ortops", "onnx_models")
REQUIRED = ("click", "jinja2", "ml_dtypes", "numpy", "onnx", "rich")
"""The packages that the suite imports for any backend."""

OLDEST = (3, 10)
"""The oldest Python that the suite runs on."""

_PROBE = """
import importlib.util, sys
needs = sys.argv[1:] + ["tomli"] * (sys.version_info < (3, 11))
print(*sys.version_info[:2], *[name for name in needs if importlib.util.find_spec(name) is None])
"""


class OtherEnvironmentError(PrintableError):
    """An environment in which the suite cannot run."""


def run_suite(environment: Path, backend: str, glob: str = "*") -> Report:
    """The report of a backend in another environment, with each case in a child process.

    The suite's lists of expected failures are for the newest release of each runtime, so this applies none of them.

    Args:
        environment: folder of a virtual environment.
        backend: a name as `run --backend` takes it.
        glob: pattern for the ids of the cases.

    Raises:
        OtherEnvironmentError: the environment has no Python, or too old a one, or lacks a package; or the run ended
            without a report.
    """
    python = next((p for p in (environment / "bin/python", environment / "Scripts/python.exe") if p.is_file()), None)
    if python is None:
        raise OtherEnvironmentError(
            f"{environment}: must be the folder of a virtual environment, with bin/python in it"
        )
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        probed = _run(python, folder, "-c", _PROBE, *REQUIRED)
        if probed.returncode != 0:
            raise OtherEnvironmentError(f"{environment}: its Python does not run: {_last_words(probed)}")
        major, minor, *missing = probed.stdout.split()
        if (int(major), int(minor)) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise OtherEnvironmentError(f"{environment} has Python {major}.{minor}: must be {oldest} or later")
        if missing:
            raise OtherEnvironmentError(
                f"{environment} lacks {', '.join(missing)}: the suite needs {', '.join(REQUIRED)}"
            )
        _share(folder)
        file, nothing = folder / "report.json", folder / "no_failure_is_expected.toml"
        nothing.touch()
        options = ("--backend", backend, "--select", glob, "--json", str(file), "--expected-failures", str(nothing))
        done = _run(python, folder, "-m", "conformance", "run", *options)
        if not file.is_file():
            raise OtherEnvironmentError(f"{environment}: {_last_words(done)}")
        return read(file)


def _share(folder: Path) -> None:
    """Put the suite's packages into the folder."""
    here = Path(conformance.__file__).parents[1]
    for package in SHARED:
        if os.name == "nt":  # links need a privilege there
            shutil.copytree(here / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / package).symlink_to(here / package, target_is_directory=True)


def _run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the other Python, with the folder as its only path beyond its own."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
    command = [str(python), *arguments]
    try:
        return subprocess.run(  # noqa: S603  # the environment is the caller's
            command, env=variables, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last lines that a process printed before it failed."""
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip(" │╭╰─╮╯")]
    return " ".join(" ".join(lines[-3:]).split()) or f"it ended with status {done.returncode} and no output"
