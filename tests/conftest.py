"""The order in which `pytest --dist loadfile --no-loadscope-reorder` hands out files."""

from __future__ import annotations

import pytest

FIRST = (
    "test_kernels",  # compiles most kernels, while another process has those below that need none
    "test_conformance_coverage",
    "test_conformance_fuzz_cluster",
    "test_conformance_wrong_backends",
    "test_conformance_cases",
    "test_gradient_movement",
    "test_gradient_elementwise",
    "test_engine",
    "test_conformance_backends",
    "test_conformance_fuzz",
    "test_conformance_adoption",
    "test_portable",
    "test_pyop",
    "test_disk",
    "test_package",
    "test_warmup",
)
"""Those that take longest, and those that go well beside them: no process is left with a long one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(FIRST)))
