# SPDX-License-Identifier: MIT
"""What the project makes has the same bytes in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import python

PROGRAM = Path(__file__).parent / "made_digests.py"


# At each commit those whose graphs have parts, the documents and the corpus; each week all models.
@pytest.mark.parametrize(
    "pattern", ["(LSTM|GRU|RNN).*any|^documents|^corpus", pytest.param("", marks=pytest.mark.weekly)]
)
def test_models_corpus_and_documents_have_the_same_bytes_whatever_the_seed_of_hashes(pattern: str) -> None:
    digests = [python(PROGRAM, pattern, PYTHONPATH=str(PROGRAM.parent), PYTHONHASHSEED=seed) for seed in ("1", "2")]
    lines = [digest.splitlines() for digest in digests]
    assert [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]] == []
    assert lines[0]
