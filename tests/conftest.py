"""The order in which `pytest --dist loadfile --no-loadscope-reorder` hands out files."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from skips import SkipCheck

collect_ignore_glob = [] if find_spec("torch") else ["test_torch*.py", "test_gradient_networks.py"]
"""What `make test-torch` runs, which installs PyTorch."""

FIRST = (
    "test_torch_operators",
    "test_gradient_twice",
    "test_conformance_backends",
    "test_conformance_fuzz",
    "test_kernels",
    "test_processors",
    "test_wheel",
    "test_conformance_fuzz_cluster",
    "test_portable",
    "test_conformance_mutants",
    "test_conformance_adoption",
    "test_benchmarks",
    "test_conformance_cli",
    "test_gradient_movement",
    "test_resize",
    "test_package",
)
"""Those that take longest: no process is left with a long one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(FIRST)))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipCheck())


def pytest_report_header() -> list[str]:
    return [f"not collected without torch: {', '.join(collect_ignore_glob)}"] if collect_ignore_glob else []
