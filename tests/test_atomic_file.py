# SPDX-License-Identifier: MIT
"""A file that is replaced is never half written, and a link or a pipe stays one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ortops import atomic_file


def test_a_file_stays_as_it_was_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.json"
    atomic_file.write(file, "old")

    def refuse(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no room"):
        atomic_file.write(file, "new")
    assert file.read_text("utf-8") == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_a_link_stays_one_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    atomic_file.write(tmp_path / "link.json", "report")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text("utf-8") == "report"
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=atomic_file.write, args=(tmp_path / "pipe", "report"))
    writer.start()
    assert (tmp_path / "pipe").read_text("utf-8") == "report"
    writer.join()


def test_a_part_file_is_never_one_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its random name were guessed: a link of this name is not followed."""
    precious = tmp_path / "precious"
    precious.write_text("precious", "utf-8")
    monkeypatch.setattr("ortops.atomic_file.secrets.token_hex", lambda _: "guessed")
    (tmp_path / ".guessed.part").symlink_to(precious)
    with pytest.raises(FileExistsError):
        atomic_file.write(tmp_path / "r.json", "report")
    assert precious.read_text("utf-8") == "precious"
    assert not (tmp_path / "r.json").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_file_has_the_mode_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    atomic_file.write(tmp_path / "r.json", "report")
    assert (tmp_path / "r.json").stat().st_mode == (tmp_path / "other").stat().st_mode
