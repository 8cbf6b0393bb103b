"""The numbers in documents that follow from the code: of cases, and of implementations that are wrong on purpose."""

from __future__ import annotations

import re

from conformance.mutants import MUTANTS
from conformance.vectors import collect

SENTENCES = {
    "README.md": ("A conformance suite of {cases} cases",),
    "docs/conformance.md": ("The suite asks it {cases} small cases", "The suite has {mutants} *wrong implementations*"),
}
"""By document, the words around each number, which stand in one line."""


def numbered(document: str, text: str) -> str:
    """The text of a document with its numbers written anew.

    Raises:
        ValueError: the document lacks one of its sentences.
    """
    numbers = {"cases": f"{len(collect()):,}", "mutants": f"{len(MUTANTS):,}"}
    for sentence in SENTENCES[document]:
        pattern = re.sub(r"\\{\w+\\}", r"[\\d,]+", re.escape(sentence))
        text, found = re.subn(pattern, sentence.format(**numbers), text)
        if found != 1:
            raise ValueError(f"{document} has {sentence!r} {found} times: must have it once")
    return text
