"""Loops of compiled operators that assign to each element of an output, so that it need not start as zeros."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ortops
from ortops.custom.output_writes import fills_all

T = Annotated[NDArray[np.float64], ("n", "m")]
U = Annotated[NDArray[np.float64], ("m", "n")]
W = Annotated[NDArray[np.float64], ("m", 2)]
C = Annotated[NDArray[np.float64], ("n", "m", 2)]


def loop_of(lines: str, folder: Path, **outer: Any) -> Any:
    """A compiled operator whose statements, with | between lines, are as in the tables below."""
    rank = 3 if "c[" in lines else 2
    signature = f"x: T, u: U, w: W, {'c: C' if rank == 3 else 'y: T'}"
    text = "\n    ".join(line.rstrip() for line in lines.split("|"))
    source = f"def f({signature}) -> None:\n    {text}\n"
    file = folder / "function.py"
    file.write_text(source)
    scope: dict[str, Any] = {"T": T, "U": U, "W": W, "C": C, "np": np, "ndindex": np.ndindex, **outer}
    exec(compile(source, str(file), "exec", dont_inherit=True), scope)  # noqa: S102 - rows of the tables below
    return ortops.operator(domain="t", compiled=True, outputs=["c" if rank == 3 else "y"])(scope["f"])


def is_filled(operator: Any) -> bool:
    """Whether the operator's output needs no zeros."""
    axes = {tensor.name: tensor.shape for tensor in (*operator.inputs, *operator.outputs)}
    return fills_all(operator.call, operator.outputs[0].name, axes)


def given() -> list[Any]:
    """Inputs of 3 by 4, of which one number is negative."""
    x = np.arange(1.0, 13).reshape(3, 4)
    x[1, 1] *= -1
    return [x, x.T.copy(), np.ones((4, 2))]


IJ = "for i in range(x.shape[0]):| for j in range(x.shape[1]):|  "

LOOPS = [
    "for i, j in np.ndindex(x.shape):| v = x[i, j]| y[i, j] = v if v > 0 else -v",
    "for i, j in np.ndindex(*y.shape):| y[i, j] = 1",
    "for i, j in ndindex(len(y), w.shape[0]):| y[i, j] = 1",
    "for i, j in np.ndindex((u.shape[-1], u.shape[-2])):| y[i, j] = 1",
    "for index in np.ndindex(x.shape):| y[index] = x[index]| y[index] += y[index]",
    f"{IJ}y[i, j] = x[i, j]|  y[i, j] *= y[i, j]|y[0, 0] = y[1, 1]",
    f"{IJ}if x[i, j] > 0:|   y[i, j] = 1|  elif i:|   y[i, j] = 2|  else:|   y[i, j] = 3",
    "n, m = x.shape|for i in range(n):| for j in range(m):|  y[i, j] = 1",
    "n, m = len(y), u.shape[0]|s = y.shape|for i in range(n):| k = s[1]| for j in range(k):|  y[i, j] = m",
    "for i in range(len(x)):| y[i] = x[i]",
    "for i in range(len(x)):| y[i, :] = x[i]| y[i, 0] = y[i, 1]",
    "for i in range(len(x)):| for j in range(len(w)):|  y[i, j] = i| for j in range(len(w)):|  y[i, j] /= 2",
    "if x[0, 0] > 0:| y[:] = 1| return|else:| for i, j in np.ndindex(x.shape):|  y[i, j] = 2",
    "if x.size < 2:| raise ValueError|for i in range(len(x)):| k = 0| y[i], k = x[i], 1",
    "for i, j in np.ndindex(x.shape):| for k in range(2):|  c[i, j, k] = 1",
    "for i in range(len(x)):| for rest in np.ndindex(w.shape):|  j, k = rest|  t = j| c[i] = t",
]
"""Loops that assign to each element before another use of the output."""


@pytest.mark.parametrize("lines", LOOPS)
def test_zeros_are_left_out_where_a_loop_assigns_to_each_element(lines: str, tmp_path: Path) -> None:
    operator = loop_of(lines, tmp_path)
    assert is_filled(operator)
    output = np.full((3, 4, 2)[: len(operator.outputs[0].shape)], np.nan)
    operator.call(*given(), output)
    assert not np.isnan(output).any()


@pytest.mark.slow
@pytest.mark.parametrize("lines", LOOPS)
def test_compiled_loops_fill_memory_as_python_does(lines: str, tmp_path: Path) -> None:
    operator = loop_of(lines, tmp_path)
    output = np.empty((3, 4, 2)[: len(operator.outputs[0].shape)])
    operator.call(*given(), output)
    computed = operator(*given())
    computed[:] = np.nan  # which the next call may find in its memory
    del computed
    np.testing.assert_array_equal(operator(*given()), output)


def few(_length: object) -> list[int]:
    """A range of a single number."""
    return [0]


def first(*_shape: object) -> list[tuple[int, int]]:
    """Indices of a single element."""
    return [(0, 0)]


PARTLY_LOOPING: list[Any] = [
    (f"{IJ}y[i, j] = 1|  if x[i, j] > 5:|   break", {}),
    (f"{IJ}if x[i, j] < 0:|   continue|  y[i, j] = 1", {}),
    (f"{IJ}if x[i, j] < 0:|   return|  y[i, j] = 1", {}),
    (f"{IJ}if x[i, j] > 0:|   y[i, j] = 1", {}),
    (f"{IJ}if x[i, j] > 0:|   y[i, j] = 1|  else:|   y[i, 0] = 1", {}),
    (f"{IJ}y[i, (j + 1) % 2] = 1", {}),
    (f"{IJ}y[i - 1, j] = y[i - 1, j]", {}),
    (f"{IJ}y[j % 3, i] = 1", {}),
    (f"{IJ}y[i, j] += 1", {}),
    (f"{IJ}y[i, j] = y[i, j - 1] + 1", {}),
    (f"{IJ}y[i, j] = 1|  y[i, j] = y[i, -1]", {}),
    (f"{IJ}t = y[i, 0]|  y[i, j] = t", {}),
    (f"{IJ}i = 0|  y[i, j] = 1", {}),
    ("for i in range(len(x)):| x = x[:, :2]| for j in range(x.shape[1]):|  y[i, j] = 1", {}),
    ("n = len(y)|y[0] = 1|for i in range(n):| y[i] = y[0, 0] + y[1, 1]", {}),
    (f"{IJ}y[i, i] = 1", {}),
    (f"{IJ}pass| y[i, j] = 1", {}),
    (f"{IJ}for y[i, j] in x[:0, 0]:|   pass", {}),
    (f"{IJ}v = [0 for y[i, j] in x[:0, 0]]", {}),
    (f"{IJ}while x[i, j] > 99:|   y[i, j] = 1", {}),
    (f"{IJ}try:|   y[i, j] = 1 / (x[i, j] > 0)|  except Exception:|   pass", {}),
    ("try:| for i in range(len(x)):|  y[i] = x[i + 1]|except Exception:| pass", {}),
    ("i = 0|while i < 2:| y[i] = 1| i += 1", {}),
    ("for i, j in np.ndindex(w.shape):| y[i - 1, j] = 1", {}),
    ("for i, j in np.ndindex(u.shape):| y[i - 1, j] = 1", {}),
    ("for j, i in np.ndindex(u.shape):| y[i, i] = 1", {}),
    ("for i, j in np.ndindex(x[1:].shape):| y[i, j] = 1", {}),
    ("for i, j in np.ndindex(x.shape[0], 2):| y[i, j] = 1", {}),
    ("for i, j in np.ndindex(x.shape[0], len(x)):| y[i, j] = 1", {}),
    ("for index in np.ndindex(x.shape):| index = (0, 0)| y[index] = 1", {}),
    ("for index in np.ndindex(x.shape[0]):| y[0] = 1", {}),
    ("for i in range(0, len(x), 2):| y[i] = 1", {}),
    ("for i in range(1, len(x)):| y[i] = 1", {}),
    ("for i in range(len(x) - 1):| y[i] = 1", {}),
    ("for i in range(len(x)):| for j in range(2):|  y[i, j] = 1", {}),
    ("for i in range(len(x)):| for k in range(int(x[1, 1])):|  y[i] = 1", {}),
    ("for i in range(len(x)):| y[i, 1:] = 1", {}),
    ("for i in range(len(x)):| if i > 0:|  for j in range(len(w)):|   y[i, j] = 1", {}),
    ("n, m = x.shape|n -= 1|for i in range(n):| y[i] = 1", {}),
    ("n = len(x)|for n in range(2):| pass|for i in range(n):| y[i] = 1", {}),
    ("n = 1|if x[1, 1] > 0:| n = len(x)|for i in range(n):| y[i] = 1", {}),
    ("*m, n = c.shape|for i in range(n):| c[i] = 1", {}),
    ("x = x[1:]|for i in range(len(x)):| y[i] = 1", {}),
    ("for i in range(len(x)):| y[i] = 1", {"range": few}),
    ("for i in range(len(x)):| y[i] = 1", {"len": lambda _: 1}),
    ("for i, j in np.ndindex(x.shape):| y[i, j] = 1", {"np": SimpleNamespace(ndindex=first)}),
    ("for i, j in ndindex(x.shape):| y[i, j] = 1", {"ndindex": first}),
    ("range = few|for i in range(len(x)):| y[i] = 1", {"few": few}),
    ("for i in range(len(x)):| f = lambda: y[i, 0]| y[i] = 1", {}),
    ("f = lambda: y[0, 0]|for i in range(len(x)):| y[i] = f()", {}),
    ("v = y[1]|for i in range(len(x)):| y[i] = v", {}),
    ("for i, v in enumerate(y):| y[i] = v", {}),
]
"""Statements that do not, with what the module has for names."""


@pytest.mark.parametrize(("lines", "outer"), PARTLY_LOOPING)
def test_zeros_stay_where_a_loop_may_leave_an_element(lines: str, outer: Any, tmp_path: Path) -> None:
    operator = loop_of(lines, tmp_path, **outer)
    assert not is_filled(operator)
    if "lambda: y[i" not in lines:
        output = np.full((3, 4, 2)[: len(operator.outputs[0].shape)], np.nan)
        operator.call(*given(), output)
        assert np.isnan(output).any()  # so the table has no loop that does assign to each element


def test_zeros_stay_where_a_file_has_other_code_than_the_function(tmp_path: Path) -> None:
    operator = loop_of("for i in range(few(x)):| y[i] = 1", tmp_path, few=lambda _: 1)
    file = tmp_path / "function.py"
    file.write_text(file.read_text().replace("few", "len"))
    assert not is_filled(operator)
