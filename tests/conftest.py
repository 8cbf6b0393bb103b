# SPDX-License-Identifier: MIT
"""What is collected, and which skips continuous integration allows."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from skips import SkipCheck

NEEDING_TORCH = ["test_torch*.py"]
"""The files of which `make test-torch` runs everything."""

collect_ignore_glob = [] if find_spec("torch") else NEEDING_TORCH


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipCheck())


def pytest_report_header() -> list[str]:
    return [f"not collected without torch: {', '.join(collect_ignore_glob)}"] if collect_ignore_glob else []


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of the files that need PyTorch, and begin with what takes long: the last test keeps one process."""
    for item in items:
        if any(item.path.match(glob) for glob in NEEDING_TORCH):
            item.add_marker("torch")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of float for this machine, the only file of a folder."""
    import ortops
    from ortops.library.targets import TARGETS, this_machine
    from test_library import OPERATORS

    made = tmp_path_factory.mktemp("library") / f"ortops{TARGETS[this_machine()].ending}"
    ortops.build_library(made, OPERATORS, ["float"])
    return made


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of the suite run backends in this process."""
    from conformance import schedule
    from conformance.child import Child
    from suite_runs import call_here, start_here

    monkeypatch.setattr(Child, "start", start_here)
    monkeypatch.setattr(Child, "calls", call_here)
    schedule._loaded.cache_clear()  # noqa: SLF001  # backends of other tests may have the same name


@pytest.fixture
def own_schemas() -> Iterator[None]:
    """Forgets the operators that a test registers with onnx."""
    import onnx

    from onnx_models.tools.attributes import CUSTOM

    before = dict(CUSTOM)
    yield
    for domain, name in set(CUSTOM) - set(before):
        del CUSTOM[domain, name]
        onnx.defs.deregister_schema(name, 1, domain)
