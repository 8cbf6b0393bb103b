# SPDX-License-Identifier: MIT
"""What a plain installation, without extras but with pytest, must do; run it by such an environment's Python.

It imports every module that needs no extra, shows the help of every command, and judges cases. It ends with an error, or
with a line for each of the three.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

PACKAGES = ("ortops", "onnx_models", "conformance")
WITH_EXTRAS = (
    "onnx_models.torch",
    "ortops.torch",
    "conformance.backends.openvino",
    "conformance.backends.torchvision",
    "conformance.fuzz.campaign",
    "conformance.families.random_draw",
    "conformance.fuzz.strategy",
)
"""Modules that need an extra, or the runtime that they ask."""

COMPILED = ("ortops.compiler.", "ortops.custom.", "ortops.library.", "ortops.native.")
"""How the names of compiled modules and of their compiler begin, of which some need the extra `compile`."""

JUDGED = [("reference", "roi_align/[demor]*/v16/float"), ("onnxruntime", "roi_align/official/*/v16/float")]
"""Backends that compile nothing, and cases: none of the groups `sizes` and `users`, on whose large maps the reference takes
a minute.
"""


def main() -> None:
    """Do all three."""
    names = list(_modules())
    needing = [name for name in names if not _is_imported(name)]
    assert {name for name in needing if not name.startswith(COMPILED)} <= set(WITH_EXTRAS), needing
    print(f"{len(names)} modules, {len(needing)} of them for an extra")
    commands = [
        one for package in PACKAGES for one in _commands(importlib.import_module(f"{package}.__main__").main, [])
    ]
    for group, path in commands:
        shown = CliRunner().invoke(group, [*path, "--help"])
        assert shown.exit_code == 0, (path, shown.output)
        assert shown.output.startswith("Usage: "), (path, shown.output)
    print(f"{len(commands)} commands")
    for backend, glob in JUDGED:
        options = ["--conformance-backend", backend, "--conformance-select", glob]
        status = pytest.main(
            ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--pyargs", "conformance", *options]
        )
        assert status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), status
    print(f"{len(JUDGED)} backends")


def _modules() -> Iterator[str]:
    """The names of all modules. Packages that need an extra are not looked into."""
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None):
            if not any(found.name.startswith(f"{name}.") for name in WITH_EXTRAS):
                yield found.name


def _is_imported(name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of modules that have another name now
        try:
            importlib.import_module(name)
        except ImportError:
            return False
    return True


def _commands(command: click.Command, path: list[str]) -> Iterator[tuple[click.Command, list[str]]]:
    """Each command below a group, and the group itself, by the words that name it."""
    yield command, path
    for name in command.commands if isinstance(command, click.Group) else ():
        yield command, [*path, name]


if __name__ == "__main__":
    main()
