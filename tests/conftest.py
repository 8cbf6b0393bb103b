"""What is collected, and which skips continuous integration allows."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from skips import SkipCheck

collect_ignore_glob = [] if find_spec("torch") else ["test_torch*.py", "test_gradient_networks.py"]
"""What `make test-torch` runs, which installs PyTorch."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipCheck())


def pytest_report_header() -> list[str]:
    return [f"not collected without torch: {', '.join(collect_ignore_glob)}"] if collect_ignore_glob else []
