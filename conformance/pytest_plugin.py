"""A plugin of pytest: the suite as tests of another project, an item for each case.

    pytest --pyargs conformance --conformance-backend your_module:function

Without `--conformance-backend` it does nothing, and imports nothing that a test run would notice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conformance.pytest_items import Suite

_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("conformance", "conformance to the specification of RoiAlign and its kin")
    group.addoption(
        "--conformance-backend",
        metavar="B",
        help="who answers, as `python -m conformance --backend` takes it; collects the suite for --pyargs conformance",
    )
    group.addoption("--conformance-provider", metavar="NAME", help="ONNX Runtime's execution provider")
    group.addoption("--conformance-select", metavar="GLOB", default="*", help="only cases whose id the pattern matches")
    group.addoption(
        "--conformance-expected-failures",
        metavar="FILE",
        help="TOML file of what is known to fail, in place of the backend's own list",
    )
    group.addoption(
        "--conformance-strict",
        choices=["text", "vectors", "reference", "all"],
        default="reference",
        help="the weakest rule whose breach fails a test: see `python -m conformance run --help`",
    )
    group.addoption(
        "--conformance-isolate", action="store_true", help="ask the backend in a child process, which a case may end"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Whatever is wrong with the options is said before anything is collected."""
    if session.config.getoption("conformance_backend") is not None:
        from conformance.pytest_items import prepare

        prepare(session.config)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> Suite | None:
    """The suite, where this package is collected and a backend is named."""
    is_asked = parent.config.getoption("conformance_backend") is not None
    if not is_asked or path.name != _HERE.name or not path.samefile(_HERE):
        return None
    from conformance.pytest_items import SUITE, Suite

    return Suite.from_parent(parent, path=path, nodeid=SUITE)
