# SPDX-License-Identifier: MIT OR Apache-2.0
"""A pytest plugin that runs the suite among another project's tests, with an item for each case.

    pytest --pyargs conformance --conformance-backend your_module:function

In other test runs, without `--conformance-backend`, it does nothing and imports only pytest.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.pytest_items import Suite

_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("conformance", "conformance to the specifications of RoiAlign and related operators")
    group.addoption(
        "--conformance-backend",
        metavar="B",
        help="backend to check, as for `python -m conformance --backend`; with it, --pyargs conformance collects the suite",
    )
    group.addoption("--conformance-provider", metavar="NAME", help="ONNX Runtime's execution provider")
    group.addoption("--conformance-select", metavar="GLOB", default="*", help="run only cases whose id matches")
    group.addoption(
        "--conformance-expected-failures",
        metavar="FILE",
        help="TOML file with the expected failures; it replaces the backend's own list",
    )
    group.addoption(
        "--conformance-level",
        choices=["core", "standard", "strict"],
        help="whose rules count: see `python -m conformance run --help`",
    )
    group.addoption(
        "--conformance-strict",  # deprecated
        choices=["text", "vectors", "reference", "all"],
        help=argparse.SUPPRESS,
    )
    group.addoption(
        "--conformance-isolate",
        action="store_true",
        help="run the backend in a child process, which may crash",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Check the options before anything is collected."""
    config = session.config
    if config.getoption("conformance_backend") is not None:
        from conformance.pytest_items import prepare

        prepare(config)
    elif config.option.pyargs and _HERE.name in config.args:
        raise pytest.UsageError("--pyargs conformance: must come with --conformance-backend, the backend to check")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> Suite | None:
    """The suite, if pytest collects this package and the options name a backend."""
    is_asked = parent.config.getoption("conformance_backend") is not None
    if not is_asked or path.name != _HERE.name or not path.samefile(_HERE):
        return None
    from conformance.pytest_items import SUITE, Suite

    return Suite.from_parent(parent, path=path, nodeid=SUITE)
