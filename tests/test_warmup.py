"""ortops.warmup: the operators that it runs, and that nothing is left to compile after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ortops
from ortops import precompile
from ortops.operators import BY_NAME, OPERATORS
from ortops.spec import Operator
from processes import python

LOADED = '''
"""The machine code that the process has: kernels and kinds of their arguments."""
from ortops.jit import kernel

def loaded():
    return sorted((source.name, source.arg_types) for source in kernel.loaded)
'''

USE = """
import numpy as np, onnxruntime
import ortops
from ortops.operators import OPERATORS
from samples import edges, open_ranks, samples

def use(operators=OPERATORS, **fixed):
    for operator in operators:
        defaults = {a.name: a.default for a in operator.attributes}
        for sample in (*samples(operator), *edges(operator)):
            if (defaults | dict(sample.attributes) | fixed) == (defaults | dict(sample.attributes)):
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = 2
                model = open_ranks(sample.model()).SerializeToString()
                ortops.InferenceSession(model, options).run(None, dict(sample.inputs))
"""
"""Calls of every operator with every choice of its attributes, of all or of those with some attributes."""


def lines(code: str) -> list[str]:
    """The lines that a new interpreter prints."""
    return python(LOADED + USE + code, cwd=Path(__file__).parent).splitlines()


def test_after_it_nothing_is_compiled_and_all_of_it_is_found_without_a_compiler() -> None:
    code = """
ortops.warmup()
before = loaded()
use()
x, rois, of = np.ones((1, 256, 60, 60), np.float32), np.array([[3.0, 2, 50, 55]] * 30, np.float32), np.zeros(30, int)
y = ortops.roi_align(x, rois, of, output_height=2, output_width=2)
ortops.roi_align_grad(y, rois, of, x.shape, x=x)
print(loaded() == before)
ortops.warmup(["RoiAlign_22", "RoiAlignGrad"], ["bfloat16"])
from ortops.parallel_warmup import needed
found = {*needed(ortops.operators.BY_NAME, ["float"]), *needed(["RoiAlign_22", "RoiAlignGrad"], ["bfloat16"])}
print(sorted((source.name, source.arg_types) for source in found) == loaded())
"""
    assert lines(code) == ["True", "True"]


def test_threads_may_call_it_at_once_for_a_part_and_a_forked_child_computes() -> None:
    code = """
import os, sys, warnings
from concurrent.futures import ThreadPoolExecutor
warnings.simplefilter("ignore")
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: ortops.warmup(["RoiAlign_16"], mode="avg"), range(8)))
before, sample = loaded(), samples(ortops.operators.BY_NAME["RoiAlign_16"])[0]
child = os.fork() if sys.platform == "linux" else 1  # it is safe there only
if child == 0:
    use([sample.operator], mode="avg")
    os._exit(0 if loaded() == before else 1)
print(child == 1 or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)
use([sample.operator], mode="avg")
print(loaded() == before)
use([sample.operator])
print(loaded() == before)
"""
    assert lines(code) == ["True", "True", "False"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Operator, str, Mapping[str, Any]]]:
    """What is loaded: operator, element type, attributes. Nothing is compiled."""
    made: list[tuple[Operator, str, Mapping[str, Any]]] = []

    monkeypatch.setattr(precompile.Kernels, "load", lambda kernels: made.append(tuple(kernels)))
    monkeypatch.setattr(precompile, "compile_entry_points", lambda: None)
    return made


def test_by_default_it_takes_all_operators_in_float_with_all_choices(calls: Any) -> None:
    ortops.warmup()
    assert {operator for operator, _, _ in calls} == set(OPERATORS)
    assert {kind for _, kind, _ in calls} == {"float"}
    for operator in OPERATORS:
        for attribute in operator.attributes:
            seen = {attributes[attribute.name] for own, _, attributes in calls if own is operator}
            assert seen >= set(attribute.choices), (operator.name, attribute.name)


def test_it_takes_the_types_that_each_operator_has(calls: Any) -> None:
    ortops.warmup(["RoiAlign_16", "RoiAlign_22"], ["bfloat16", "double"])
    assert {(operator.name, kind) for operator, kind, _ in calls} == {
        ("RoiAlign_16", "double"),
        ("RoiAlign_22", "double"),
        ("RoiAlign_22", "bfloat16"),
    }
    calls.clear()
    ortops.warmup(["RoiAlign_16"], None)
    assert {kind for _, kind, _ in calls} == {"float16", "float", "double"}


def test_an_attribute_restricts_the_operators_that_have_it(calls: Any) -> None:
    ortops.warmup(["RoiAlign_16", "DmlRoiAlign"], mode="max")
    modes = {attributes["mode"] for operator, _, attributes in calls if operator is BY_NAME["RoiAlign_16"]}
    reductions = {attributes.get("reduction_function") for _, _, attributes in calls}
    assert modes == {"max"}
    assert reductions == {None, "average", "max"}


@pytest.mark.parametrize(
    ("arguments", "attributes", "error", "says"),
    [
        ((["RoiPool"],), {}, ValueError, "operators has 'RoiPool': must be among DmlResample, "),
        (("RoiAlign_16",), {}, TypeError, "operators = 'RoiAlign_16': must be a list of names"),
        ((["RoiAlign_16"], ["bfloat16"]), {}, ValueError, "types has 'bfloat16': must be among double, float, float16"),
        ((None, "float"), {}, TypeError, "types = 'float': must be a list of names"),
        ((), {"mode": "mean"}, ValueError, "mode = 'mean': must be one of 'avg', 'max', 'max_interpolated'"),
        (
            (["DmlResample"],),
            {"mode": "avg"},
            TypeError,
            "mode = 'avg': must be one of the attributes interpolation_mode",
        ),
        ((), {"output_height": 10**12}, TypeError, "must be one of the attributes coordinate_transformation_mode, "),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_computed(
    calls: Any, arguments: Any, attributes: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        ortops.warmup(*arguments, **attributes)
    assert says in str(caught.value)
    assert calls == []
