"""What the suite covers: every fault is caught, and every fact catches one or has a reason to be there."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.__main__ import main
from conformance.case import Case
from conformance.commands import coverage as command
from conformance.coverage import markdown
from conformance.coverage.facts import asked, decisive, fact_of, grouped, needed
from conformance.coverage.measure import Catch, failing, measure
from conformance.coverage.reasons import REASONS, Account, Reason, account
from conformance.coverage.summary import Summary
from conformance.coverage.values import ABSENT, INTEGERS, NUMBERS, by_operator, label_of, lines
from conformance.vectors import collect
from conformance.wrong import FAULTS, Family, Fault
from ortops.operators import BY_NAME, OPERATORS


@functools.cache
def first_catches() -> dict[Fault, Case | None]:
    """Of each fault the first decisive case that it fails."""
    return {fault: next(failing(fault.backend, decisive(fault, collect())), None) for fault in FAULTS}


@functools.cache
def accounted() -> Account:
    return account(grouped(collect()), needed(first_catches()))


def named(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def test_every_wrong_implementation_is_caught() -> None:
    assert [fault.name for fault, case in first_catches().items() if case is None] == []


def test_every_fact_catches_something_new_or_has_a_reason() -> None:
    assert accounted().unexplained == []


def test_every_reason_is_one_of_a_fact_that_catches_nothing_new() -> None:
    assert [reason.words for reason in accounted().unused] == []


def test_every_pattern_of_a_reason_matches_a_fact() -> None:
    facts = grouped(collect())
    patterns = [pattern for reason in REASONS for pattern in reason.patterns]
    assert [p for p in patterns if not any(Reason((p,), "").covers(fact) for fact in facts)] == []


def test_a_fact_that_no_reason_is_given_for_is_found() -> None:
    found = account(["roi_align/new/fact", "roi_align/refusal/rule"], [])
    assert found.unexplained == ["roi_align/new/fact"]
    assert len(found.unused) == len(REASONS) - 1


def test_a_fact_is_needed_where_it_is_the_first_to_catch_a_fault() -> None:
    first, second = collect()[0], collect()[-1]
    faults = FAULTS[:3]
    found = needed({faults[0]: first, faults[1]: second, faults[2]: first})
    assert found == {fact_of(first): [faults[0], faults[2]], fact_of(second): [faults[1]]}


def test_a_fault_of_types_is_decided_by_all_cases_and_others_by_one_type() -> None:
    types = named("roi_align:DoubleInFloat")
    assert decisive(types, collect()) == asked(types, collect())
    kept = decisive(named("roi_align:NoHalfPixel"), collect())
    assert {fact_of(case) for case in kept} == {fact_of(case) for case in asked(types, collect())}
    assert {case.element_type for case in kept if case.expects_error is None} == {"float", "double"}


def test_a_fault_of_gradients_alone_passes_the_forward_cases() -> None:
    forward = [c for c in collect() if c.operator == "RoiAlign_16" and c.element_type == "float"][::7]
    alone = [fault for fault in FAULTS if fault.operators == "roi_align" and fault.is_of_gradients_alone]
    assert len(alone) > 30
    assert [fault.name for fault in alone if next(failing(fault.backend, forward), None)] == []


def test_every_fault_of_the_family_of_gradients_is_of_them_alone() -> None:
    assert [f.name for f in FAULTS if f.family is Family.GRADIENTS and not f.is_of_gradients_alone] == []


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


@functools.cache
def few() -> list[Catch]:
    """Of two faults what catches them in some cases, of the others nothing."""
    wanted = {"roi_align:Opset10As16": "official/aligned_false", "dml_resample:IntegersTaken": "refusal/input_of"}
    caught = []
    for fault in FAULTS:
        cases = [c for c in asked(fault, collect()) if fault.name in wanted and wanted[fault.name] in c.id]
        caught.append(Catch(fault, tuple(case.id for case in failing(fault.backend, cases))))
    return caught


def test_the_command_tells_and_writes_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catches = few()
    monkeypatch.setattr(command, "measure", lambda _jobs: iter(catches[::-1]))
    files = tmp_path / "c.json", tmp_path / "c.md"
    result = CliRunner().invoke(main, ["coverage", "--json", str(files[0]), "--markdown", str(files[1])])
    assert result.exit_code == 1, "faults are not caught"
    assert f"2 of {len(FAULTS)} caught; ONNX's own vectors catch 1 of" in result.output.splitlines()[-1]
    data = json.loads(files[0].read_text("utf-8"))
    assert [fault["name"] for fault in data["faults"]] == [fault.name for fault in FAULTS]
    caught = {fault["name"]: fault["caught_by"] for fault in data["faults"] if fault["caught_by"]}
    assert set(caught) == {"roi_align:Opset10As16", "dml_resample:IntegersTaken"}
    assert all("/v10/" in case_id for case_id in caught["roi_align:Opset10As16"])
    assert data["facts"]["needed"]["dml_resample/refusal/input_of_integers"] == ["dml_resample:IntegersTaken"]
    assert "| roi_align:Opset10As16 | Opset 10 has half_pixel" in files[1].read_text("utf-8")


def test_other_processes_find_what_catches_a_fault() -> None:
    (found,) = measure(1, [named("dml_resample:IntegersTaken")])
    assert found.fault is named("dml_resample:IntegersTaken")
    assert found.ids == (
        "dml_resample/refusal/input_of_integers/float",
        "dml_resample_grad/refusal/gradient_of_integers/float",
    )


def test_a_sound_suite_is_one_that_catches_every_fault() -> None:
    summary = Summary(collect(), [Catch(f, (case.id,) if case else ()) for f, case in first_catches().items()])
    assert summary.is_sound
    assert not Summary(collect(), few()).is_sound
    assert markdown.render(summary).startswith("# Coverage\n")


def test_the_command_refuses_a_file_in_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["coverage", "--json", str(tmp_path / "no" / "c.json")])
    assert result.exit_code == 2
