# SPDX-License-Identifier: MIT
"""Each number with a unit in the prose of a document is written by a command, equals a constant, or is a definition.

test_generated_docs.py compares those that a command writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from benchmarks.measure import MIN_ROUNDS
from catching_cases import failing
from conformance import child, diagnosis, schedule
from conformance.backends import program
from conformance.cases import collect
from conformance.families import families
from docs import findings
from docs.generate import FOLDER, NUMBERED, numbered
from docs.speeds import SENTENCES
from onnx_models.tools import functions, protos
from ortops import forks, spec
from ortops.compiler import cache
from ortops.custom.code import MIN_ELEMENTS
from ortops.library.drivers import MAX_LIST_BYTES
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO
from test_kernels import MAX_TEMPORARY_BYTES

NAMES = ["../README.md", "../CONTRIBUTING.md", "../SECURITY.md", *sorted(path.name for path in FOLDER.glob("*.md"))]

CONSTANTS = {
    "../README.md": [f"{len(findings.runtimes())} runtimes"],
    "../SECURITY.md": [f"its sampling_ratio is at most {MAX_SAMPLING_RATIO}"],
    "conformance.md": [
        f"at most {diagnosis.TIME_LIMIT:.0f} s of processor time",
        f"its full {schedule.TIME_LIMIT:.0f} s",
        f"`--time-limit SECONDS`, by default {schedule.TIME_LIMIT:.0f}",
        f"with {schedule.WARM_UP_LIMITS} times the time limit",
    ],
    "custom_operators.md": [
        f"More than {spec.MAX_COMBINATIONS:,} are refused",
        f"at least {MIN_ELEMENTS:,} elements",
        f"takes longer than {forks.MAX_WAIT_SECONDS:.0f} s",
    ],
    "design.md": [f"at most {MAX_LIST_BYTES >> 20} MiB"],
    "performance.md": [
        f"at least {MIN_ROUNDS} calls",
        f"at most {cache.MAX_BYTES >> 20} MiB, and of an operator of your own the {cache.MAX_VERSIONS} versions",
    ],
    "protocol.md": [
        f"within {program.STOP_SECONDS} s is killed",
        f"{schedule.WARM_UP_LIMITS} times the limit, whose answer does not count",
        f"A program may take {child.START_TIMEOUT:.0f} s to start",
        f"at most {program.MAX_LINE >> 20} MiB, and an output at most {program.MAX_TENSOR >> 30} GiB",
    ],
    "run.md": [
        f"at most {MAX_TEMPORARY_BYTES >> 20} MiB of temporary memory",
        f"more than {protos.MAX_NESTED} deep",
        f"{functions.MAX_NODES:,} nodes or {functions.MAX_BYTES >> 20} MiB larger",
    ],
}
"""By document, the passages that have a constant of the code."""

DEFINITIONS = {
    "conformance.md": ["an adaptive RoI of 10^9 pixels"],
    "corpus.md": ["outputs of 16 bits"],
    "findings.md": [
        "bin 6 of 7 over 57 pixels",
        *("32 bits", "within 20 s", "none within 60 seconds", "a second axis"),
        *("up to 268 times what is allowed", "published 21 cases"),
    ],
    "operators.md": ["the last of 7 bins over 57 pixels"],
    "performance.md": ["### On 16 processors", "per 1,000 nodes"],
    "pytorch.md": ["models of 2 GiB or more", "152 x 176 pixels"],
    "run.md": ["half a pixel for maps of 1,000 pixels"],
}
"""By document, the passages whose numbers say what something is: an input, a format, a fault."""

_NOT_PROSE = re.compile(r"^ *```.*?^ *```$|^ *\|.*?$|<[a-z/!][^>]*>|\]\([^)]*\)|`[^`]*`", re.MULTILINE | re.DOTALL)
_MEASURES = r"[nuµm]?s|seconds?|minutes?|hours?|days?|[kKMGT]?i?B|bytes|times|x(?= as| faster| slower)|%|percent|lines"
_THINGS = (
    "bits|cases|nodes|mutants|implementations|runtimes|files|operators|elements|pixels|threads|cores|processors|queries"
)
_WORDS = r"\b(?:an?|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|forty|fifty|hundred|thousand|million)"
NUMBER = re.compile(
    rf"(?<![\w.,-])\d[\d.,]*(?:\sto\s\d[\d.,]*)?[\s-]*(?:{_MEASURES}|{_THINGS})(?!\w)|{_WORDS}[\s-](?:{_MEASURES})(?!\w)"
    r"|\b(?:half|an?\s(?:third|quarter|fifth|tenth))(?: of)? (?:the|its|their) time\b"
)

ADVICE = (
    "leave the number out, or let `python -m docs` write it (docs/speeds.py), or compare it with a constant (CONSTANTS of "
    "this file), or, if it says what something is, list it (DEFINITIONS)"
)


def pattern(passage: str) -> str:
    """A pattern of a passage, whose spaces may be ends of lines."""
    return r"\s+".join(map(re.escape, passage.split()))


def unexplained(name: str, text: str) -> Iterator[str]:
    """The numbers of a document that nobody writes or lists."""
    passages = [*CONSTANTS.get(name, ()), *DEFINITIONS.get(name, ())]
    listed = [match.span() for passage in passages for match in re.finditer(pattern(passage), text)]
    prose = _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", "|", match[0]), text)
    for number in NUMBER.finditer(prose):
        start, end = number.span()
        if not any(first <= start and end <= last for first, last in listed):
            changed = text[:start] + re.sub(r"\d[\d.,]*", "98765", number[0]) + text[end:]
            if changed == text or name not in NUMBERED or numbered(changed) != numbered(text):
                yield f"{name}, line {text.count(chr(10), 0, start) + 1}: {number[0]!r}"


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_document_can_go_stale(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    found = list(unexplained(name, text))
    assert not found, f"{'; '.join(found)}: {ADVICE}"
    for passage in (*CONSTANTS.get(name, ()), *DEFINITIONS.get(name, ())):
        assert re.search(pattern(passage), text), f"{name} must have {passage!r}"


def test_each_sentence_stands_in_a_document() -> None:
    texts = [(FOLDER / name).read_text("utf-8") for name in NUMBERED]
    for words in SENTENCES:
        assert any(re.search(rf"{pattern(words)}\s[\d.]+ to\s[\d.]+ times", text) for text in texts), words


@pytest.mark.weekly
def test_onnx_vectors_reject_as_many_mutants_as_the_readme_says() -> None:
    cases = [case for case in collect() if case.group == "roi_align/official"]
    mutants = next(family for family in families() if family.name == "roi_align").mutants.values()
    count = sum(any(True for _ in failing(mutant.backend, cases)) for mutant in mutants)
    sentence = f"ONNX's own vectors reject {count} of the {len(mutants)} wrong implementations of RoiAlign"
    assert re.search(pattern(sentence), (FOLDER / "../README.md").read_text("utf-8")), sentence
