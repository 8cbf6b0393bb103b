"""Every command of the documents, and what runs it: ``python tests/commands.py`` prints the table.

`tests/test_docs.py` runs the commands of `console` blocks but those that begin with a word of `NOT_RUN`, which install
something or take long. Each of these has a row in `ELSEWHERE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from test_docs import DOCUMENTS, NOT_RUN, ROOT, blocks, commands


class Runner(NamedTuple):
    """What runs a command: a file, and a text in it that does."""

    file: str
    text: str


CI, ACTION, CI_SCRIPT = ".github/workflows/ci.yml", "action.yml", ".ci/run"

ELSEWHERE = {
    "make conformance": Runner(CI_SCRIPT, "make conformance\n"),
    "make docs REPORTS=report.json": Runner(".github/workflows/weekly.yml", 'python -m docs "$REPORTS"/*.json'),
    "make lint test": Runner(CI_SCRIPT, "make lint"),
    "make test": Runner(CI_SCRIPT, "make test\n"),
    "pip install .": Runner(CI, "pip install . pytest\n"),
    "pip install '.[conformance]'": Runner(ACTION, 'pip install "${GITHUB_ACTION_PATH}[conformance]"'),
}
"""The commands that `tests/test_docs.py` does not run."""


class Command(NamedTuple):
    """A command of a document."""

    document: str
    line: int
    text: str

    @property
    def is_run_with_its_document(self) -> bool:
        """Whether `tests/test_docs.py` runs it."""
        return not self.text.startswith(NOT_RUN)

    @property
    def runner(self) -> str:
        """The test or the file that runs it."""
        if self.is_run_with_its_document:
            return f"tests/test_docs.py::test_its_code_blocks_run[{self.document.rpartition('/')[2]}]"
        return ELSEWHERE[self.text].file


def documented() -> Iterator[Command]:
    """Every command of a console block, without what a comment says behind it."""
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.language == "console":
                for text, _, _ in commands(block.text):
                    shown = re.sub(r"\s+# .*", "", text)
                    yield Command(document.relative_to(ROOT).as_posix(), block.line, shown)


def main() -> None:
    """Print the table."""
    print("| command | document | run by |\n| --- | --- | --- |")
    for one in documented():
        text = one.text.replace("|", "\\|")
        print(f"| `{text}` | {one.document}:{one.line} | {one.runner} |")


if __name__ == "__main__":
    main()
