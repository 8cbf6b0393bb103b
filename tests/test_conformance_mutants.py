"""The suite tells right from wrong: each mutant fails a case, and the control, the same code without a fault, none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.backends import MissingBackendError, load
from conformance.backends.external import OnnxBackend
from conformance.coverage.measure import OFFICIAL, decisive, failing
from conformance.fuzz import file
from conformance.fuzz.check import Failure
from conformance.fuzz.generate import generate
from conformance.model import build
from conformance.mutants import CONTROLS, MUTANTS, Category
from conformance.mutants.base import MutantFactory
from conformance.mutants.sizes import add_sizes
from conformance.vectors import collect
from large_cases import large_cases

OF_ROI_ALIGN = [mutant for mutant in MUTANTS if mutant.operators == "roi_align"]


def test_every_case_is_of_a_family_that_has_a_second_implementation() -> None:
    assert {case.definition.family for case in collect()} == set(CONTROLS)


@pytest.mark.parametrize("operators", ["roi_align", "dml_roi_align", "roi_align_rotated"])
def test_a_second_implementation_passes_large_cases(operators: str) -> None:
    assert [case.id for case in failing(CONTROLS[operators], large_cases(operators))] == []


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("operators", ["roi_align", "dml_roi_align", "roi_align_rotated"])
def test_a_large_case_catches_a_mutant_whatever_the_size_from_which_on_it_is_wrong(operators: str, seed: int) -> None:
    mutants = add_sizes(MutantFactory(CONTROLS[operators]), seed, has_maxima=operators != "roi_align_rotated")
    of_gradients = [case for case in large_cases(operators) if case.id.startswith("g/")]
    missed = [
        mutant.__doc__
        for mutant in mutants
        if not any(failing(mutant, of_gradients if mutant.gradient_only else large_cases(operators)))
    ]
    assert missed == []


def test_the_thresholds_of_mutants_are_drawn_from_a_seed() -> None:
    words = [
        [str(mutant.__doc__) for mutant in add_sizes(MutantFactory(CONTROLS["roi_align"]), seed)] for seed in (1, 1, 2)
    ]
    assert words[0] == words[1]
    assert words[0] != words[2]
    drawn = [int(number) for line in words[0] for number in re.findall(r"(?:beyond|block of) (\d+)", line)]
    assert len(drawn) >= 10
    assert all(4 <= number <= 65504 for number in drawn)


def test_a_prepared_model_runs_inputs_of_other_lengths_one_after_the_other() -> None:
    # Of the same model: attributes alike, lengths not.
    cases = [case for case in large_cases("roi_align") if case.id.startswith("f/large/channels")]
    assert len({case.inputs["X"].shape for case in cases}) == len(cases) == 2
    prepared = CONTROLS["roi_align"].prepare(build(replace(cases[0], named_axes=frozenset({("X", 1)})), "standard"))
    for case in (*cases, *cases):
        (y,) = prepared.run([case.inputs[name] for name in ("X", "rois", "batch_indices")])
        (alone,) = CONTROLS["roi_align"].prepare(build(case, "standard")).run(list(case.inputs.values()))
        np.testing.assert_array_equal(y, alone)


def test_inputs_may_be_constants_of_the_model() -> None:
    case = large_cases("roi_align")[0]
    constant = replace(case, initializers=("rois", "batch_indices"))
    (y,) = CONTROLS["roi_align"].prepare(build(constant, "standard")).run([case.inputs["X"]])
    (expected,) = CONTROLS["roi_align"].prepare(build(case, "standard")).run(list(case.inputs.values()))
    np.testing.assert_array_equal(y, expected)


def test_mutants_differ_in_name_and_description() -> None:
    assert len(MUTANTS) >= 380
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.operators, mutant.description) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_description_of_a_mutant_is_one_line() -> None:
    told = [mutant.description for mutant in MUTANTS]
    assert [words for words in told if not re.fullmatch(r"[^\n]{1,120}[^.]\.", words)] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_every_family_of_operators_has_mutants_of_every_category(operators: str) -> None:
    assert {mutant.category for mutant in MUTANTS if mutant.operators == operators} == set(Category)


def test_every_mutant_can_be_named_as_a_backend() -> None:
    assert [
        mutant for mutant in MUTANTS if not isinstance(load(f"conformance.mutants.{mutant.name}"), OnnxBackend)
    ] == []


@pytest.mark.parametrize("operators", CONTROLS)
def test_an_unknown_mutant_cannot_be_named_as_a_backend(operators: str) -> None:
    with pytest.raises(MissingBackendError, match="NoSuchMutant"):
        load(f"conformance.mutants.{operators}:NoSuchMutant")


def test_a_mutant_is_made_once_and_replaces_existing_steps() -> None:
    mutant = MutantFactory(CONTROLS["roi_align"])
    mutant("Once", "It is made once.")()
    with pytest.raises(ValueError, match="Once is made twice"):
        mutant("Once", "It is made twice.")()
    with pytest.raises(AttributeError, match="no_such_step"):
        mutant("Other", "It changes nothing.")(no_such_step=lambda _, up: up())


def test_the_readme_says_how_few_the_official_vectors_catch() -> None:
    official = tuple(case for case in collect() if case.group == OFFICIAL)
    caught = [mutant for mutant in OF_ROI_ALIGN if next(failing(mutant.backend, decisive(mutant, official)), None)]
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    said = f"ONNX's own vectors catch {len(caught)} of the {len(OF_ROI_ALIGN)} that are of RoiAlign"
    assert said in " ".join(readme.split())


OLD_NAME = """
import importlib, json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    old = importlib.import_module("conformance.wrong")
from conformance import mutants
from conformance.backends import load
from conformance.wrong import roi_align
assert (old.FAULTS, old.Fault, old.Family, old.CONTROLS) == (
    mutants.MUTANTS, mutants.Mutant, mutants.Category, mutants.CONTROLS
)
assert roi_align is mutants.roi_align
for mutant in mutants.MUTANTS:
    load(f"conformance.wrong.{mutant.name}")
print(json.dumps([[warning.category.__name__, str(warning.message)] for warning in caught]))
"""


def test_conformance_wrong_is_the_old_name_of_conformance_mutants() -> None:
    done = subprocess.run([sys.executable, "-c", OLD_NAME], check=True, capture_output=True, text=True)  # noqa: S603
    assert json.loads(done.stdout) == [["FutureWarning", "conformance.wrong is now conformance.mutants"]]


def test_a_backend_of_the_old_name_answers_as_the_mutant() -> None:
    arguments = [
        "--backend",
        "conformance.wrong.roi_align:NoHalfPixel",
        "--select",
        "roi_align/edge/half_pixel_inside/*",
    ]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "conformance", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "half_pixel_inside" in done.stdout


def test_a_fuzz_case_that_names_a_backend_by_the_old_name_is_read(tmp_path: Path) -> None:
    case, path = generate(2, 0), tmp_path / "case.json"
    file.write(path, Failure(case, "values", ""), "conformance.wrong.roi_align:NoHalfPixel")
    assert file.read(path).id == case.id
