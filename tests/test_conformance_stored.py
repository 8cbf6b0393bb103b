# SPDX-License-Identifier: MIT
"""Results of the reference that a run of the suite stores for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conformance import stored_results
from conformance.stored_results import Tensors, store_results, stored

RESULT: Tensors = {
    "Y magnitude": np.array([[-0.0, np.nan, np.inf]]),
    "Y terms": np.array(3.0),
    "empty": np.zeros((2, 0)),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache's folder of a process of a run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stored_results, "_is_enabled", True)
    stored_results._database.cache_clear()  # noqa: SLF001
    yield tmp_path / "ortops"
    next_process()


def next_process() -> None:
    if database := stored_results._database():  # noqa: SLF001
        database.close()
    stored_results._database.cache_clear()  # noqa: SLF001


def fails() -> Tensors:
    raise AssertionError("it is computed again")


def test_the_next_process_finds_the_same_bits() -> None:
    stored("key", lambda: RESULT)
    next_process()
    result = stored("key", fails)
    assert {name: (a.shape, a.tobytes()) for name, a in result.items()} == {
        name: (a.shape, a.tobytes()) for name, a in RESULT.items()
    }


def test_other_keys_large_results_and_other_sources_are_computed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("key", lambda: RESULT)
    large = {"Y": np.ones(stored_results.MAX_BYTES // 8 + 1)}
    for _ in range(2):
        with pytest.raises(AssertionError):
            stored("other", fails)
        assert stored("large", lambda: large) is large
    monkeypatch.setattr(stored_results, "_digest_of_sources", lambda: "edited")
    next_process()
    with pytest.raises(AssertionError):
        stored("key", fails)
    assert {path.name.split(".")[0] for path in folder.iterdir()} == {"results-edited"}  # the old file is gone


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_damaged_file_or_a_file_in_place_of_the_folder_costs_only_time(folder: Path, content: bytes) -> None:
    stored("key", lambda: RESULT)
    next_process()
    for path in folder.iterdir():
        path.write_bytes(content)
    assert stored("key", lambda: RESULT) == RESULT
    next_process()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_bytes(content)
    assert stored("key", lambda: RESULT) is RESULT


def test_a_damaged_row_is_computed_again() -> None:
    stored("key", lambda: RESULT)
    with stored_results._database() as database:  # noqa: SLF001
        database.execute("UPDATE results SET body = ?", (b"12345678",))
    assert stored("key", lambda: RESULT) is RESULT


def test_only_child_processes_store_results(monkeypatch: pytest.MonkeyPatch) -> None:
    store_results()  # in this process
    stored("key", lambda: RESULT)
    monkeypatch.setattr(stored_results, "_is_enabled", True)
    with pytest.raises(AssertionError):
        stored("key", fails)
