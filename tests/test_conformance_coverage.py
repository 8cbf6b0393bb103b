"""What the suite covers: every fault is caught, and no name of an attribute is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.__main__ import main
from conformance.case import scenario_of
from conformance.commands import coverage as command
from conformance.coverage.measure import OFFICIAL, Catch, asked, caught, decisive, failing, measure
from conformance.coverage.report import Summary
from conformance.coverage.values import ABSENT, INTEGERS, NUMBERS, by_operator, label_of, lines
from conformance.mutants import CONTROLS, MUTANTS, Category, Mutant
from conformance.vectors import collect
from ortops.operators import BY_NAME, OPERATORS
from watched_steps import Watch

INTEGERS_TAKEN = "dml_resample/refusal/input_of_integers/float"


def named(name: str) -> Mutant:
    return next(fault for fault in MUTANTS if fault.name == name)


def test_a_fact_is_needed_where_it_is_the_first_to_catch_a_fault() -> None:
    first, second = collect()[0].id, collect()[-1].id
    catches = [Catch(f, (i,), i, None) for f, i in zip(MUTANTS[:3], (first, second, first), strict=True)]
    names = [fault.name for fault in MUTANTS[:3]]
    needed = Summary(collect(), catches).needed
    assert needed == {scenario_of(first): [names[0], names[2]], scenario_of(second): [names[1]]}


def test_a_fault_of_types_is_decided_by_all_cases_and_others_by_one_type() -> None:
    types = named("roi_align:DoubleInFloat")
    assert decisive(types, collect()) == asked(types, collect())
    kept = decisive(named("roi_align:NoHalfPixel"), collect())
    assert {scenario_of(case.id) for case in kept} == {
        scenario_of(case.id) for case in asked(named("roi_align:NoHalfPixel"), collect())
    }
    assert {case.element_type for case in kept if case.expects_error is None} == {"float", "double"}


def test_a_fault_of_gradients_alone_passes_the_forward_cases() -> None:
    forward = [c for c in collect() if c.operator == "RoiAlign_16" and c.element_type == "float"][::7]
    alone = [fault for fault in MUTANTS if fault.operators == "roi_align" and fault.is_gradient_only]
    assert len(alone) > 30
    watch = Watch(CONTROLS["roi_align"], [fault.backend for fault in alone])
    assert not any(failing(watch.control, forward))
    differing = [fault for fault in alone if fault.backend in watch.differing]
    assert [fault.name for fault in differing if next(failing(fault.backend, forward), None)] == []


def test_every_fault_of_the_family_of_gradients_is_of_them_alone() -> None:
    assert [f.name for f in MUTANTS if f.category is Category.GRADIENTS and not f.is_gradient_only] == []


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_every_case_has_one_value_of_each_attribute_that_is_no_list(operator: object) -> None:
    name = str(getattr(operator, "name", ""))
    own = [case for case in collect() if case.operator == name]
    for attribute in BY_NAME[name].attributes:
        counted = [line for line in lines(BY_NAME[name], own) if line.thing == attribute.name]
        total = sum(line.answered + line.refused for line in counted)
        assert total >= len(own) if attribute.is_list else total == len(own)


def test_no_name_of_an_attribute_is_never_used() -> None:
    gaps = {
        (name, line.thing, line.value)
        for name, found in by_operator(collect()).items()
        for line in found
        if line.is_gap and line.value in {ABSENT, *(c for a in BY_NAME[name].attributes for c in a.choices)}
    }
    assert gaps == set()


def test_the_class_of_a_value_is_that_of_its_example() -> None:
    for attribute in BY_NAME["DmlRoiAlign"].attributes:
        examples = {"INT": INTEGERS, "FLOAT": NUMBERS}.get(attribute.type, {})
        assert [label for label, value in examples.items() if label_of(attribute, value) != label] == []


def test_what_is_refused_is_no_gap() -> None:
    (line,) = [
        line
        for line in by_operator(collect())["RoiAlign_16"]
        if (line.thing, line.value) == ("sampling_ratio", "negative")
    ]
    assert line.refused
    assert not line.is_legal
    assert not line.is_gap


def few_catches() -> Iterator[Catch]:
    """Of two faults what catches them in some cases, of the others nothing; the last fault first."""
    official = tuple(case for case in collect() if case.group == OFFICIAL)
    found = {c.fault: c for c in caught([named("roi_align:Opset10As16")], official, everything=True)}
    refusals = tuple(case for case in collect() if case.id == INTEGERS_TAKEN)
    found |= {c.fault: c for c in caught([named("dml_resample:IntegersTaken")], refusals)}
    for fault in reversed(MUTANTS):
        yield found.get(fault, Catch(fault, (), None, False if fault.operators == "roi_align" else None))


def test_the_command_tells_and_writes_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "measure", lambda _jobs, everything: few_catches() if not everything else iter(()))
    files = tmp_path / "c.json", tmp_path / "c.md"
    result = CliRunner().invoke(main, ["coverage", "--json", str(files[0]), "--markdown", str(files[1])])
    assert result.exit_code == 1, "faults are not caught"
    assert f"2 of {len(MUTANTS)} caught; ONNX's own vectors catch 1 of" in result.stdout.splitlines()[-1]
    data = json.loads(files[0].read_text("utf-8"))
    assert [fault["name"] for fault in data["faults"]] == [fault.name for fault in MUTANTS]
    found = {fault["name"]: fault["caught_by"] for fault in data["faults"] if fault["caught_by"]}
    assert set(found) == {"roi_align:Opset10As16", "dml_resample:IntegersTaken"}
    assert all("/v10/" in case_id for case_id in found["roi_align:Opset10As16"])
    assert data["needed"]["dml_resample/refusal/input_of_integers"] == ["dml_resample:IntegersTaken"]
    assert "| roi_align:Opset10As16 | Opset 10 uses half_pixel" in files[1].read_text("utf-8")


@pytest.mark.parametrize("everything", [False, True])
def test_other_processes_find_what_catches_a_fault(everything: bool) -> None:
    (found,) = measure(1, [named("dml_resample:IntegersTaken")], everything=everything)
    assert found.fault is named("dml_resample:IntegersTaken")
    assert found.first == INTEGERS_TAKEN
    assert found.by_onnx is None
    all_ids = (INTEGERS_TAKEN, "dml_resample_grad/refusal/gradient_of_integers/float")
    assert found.ids == (all_ids if everything else all_ids[:1])


def ids_of(catches: Sequence[Catch]) -> list[tuple[str | None, bool | None]]:
    return [(catch.first, catch.by_onnx) for catch in catches]


def test_what_is_asked_no_further_is_found_all_the_same() -> None:
    faults = [named("roi_align:Opset10As16"), named("roi_align:ScaleIgnored"), named("roi_align:DroisAre0")]
    cases = tuple(c for c in collect() if c.definition.family == "roi_align")[:200]
    assert ids_of(caught(faults, cases)) == ids_of(caught(faults, cases, everything=True))


def test_a_sound_suite_is_one_that_catches_every_fault() -> None:
    first = collect()[0].id
    assert Summary(collect(), [Catch(fault, (), first, None) for fault in MUTANTS]).is_sound
    assert not Summary(
        collect(), [Catch(fault, (), None if fault is MUTANTS[0] else first, None) for fault in MUTANTS]
    ).is_sound


def test_the_command_refuses_a_file_in_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["coverage", "--json", str(tmp_path / "no" / "c.json")])
    assert result.exit_code == 2
