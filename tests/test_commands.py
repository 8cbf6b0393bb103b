"""Every command of the documents is run: by the test of its document, or by what `commands.ELSEWHERE` names."""

from __future__ import annotations

import pytest

from commands import ELSEWHERE, Runner, documented
from test_docs import ROOT


def test_every_command_that_the_test_of_its_document_leaves_out_is_run_elsewhere() -> None:
    left = {one.text: f"{one.document}:{one.line}" for one in documented() if not one.is_run_with_its_document}
    assert {text: place for text, place in left.items() if text not in ELSEWHERE} == {}, "add a row to ELSEWHERE"


def test_no_row_is_of_a_command_that_no_document_has() -> None:
    assert set(ELSEWHERE) <= {one.text for one in documented() if not one.is_run_with_its_document}


@pytest.mark.parametrize("runner", sorted(set(ELSEWHERE.values())), ids=lambda runner: runner.file)
def test_what_runs_a_command_elsewhere_does(runner: Runner) -> None:
    assert runner.text in (ROOT / runner.file).read_text("utf-8")


def test_commands_are_found_in_the_documents() -> None:
    found = {one.text: one for one in documented()}
    assert found["make conformance"].document in ("README.md", "CONTRIBUTING.md")
    assert any(one.is_run_with_its_document for one in found.values())
