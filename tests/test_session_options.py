"""What `ortops.register` and sessions take for session options: nothing else is read, written or handed to ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from sessions import ONE, stock_session


@ortops.operator(domain="t")
def f(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x


class Wrapper:
    """Passes attributes on, and says that it is what it wraps."""

    def __init__(self) -> None:
        self.wrapped = options()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return onnxruntime.SessionOptions


WRONG = [
    (Wrapper, "Wrapper: must be an onnxruntime.SessionOptions"),
    (onnxruntime.RunOptions, "RunOptions: must be an onnxruntime.SessionOptions"),
    (lambda: onnxruntime.SessionOptions, "pybind11_type: must be an onnxruntime.SessionOptions"),
    (lambda: None, "NoneType: must be an onnxruntime.SessionOptions"),
]


@pytest.mark.parametrize(("make", "says"), WRONG)
@pytest.mark.parametrize("operators", [(), (f,)])
def test_register_and_session_refuse_other_options(make: Any, says: str, operators: Any) -> None:
    wrong = make()
    with pytest.raises(TypeError, match=f"^session_options is a {says}"):
        ortops.register(wrong, operators=operators)
    if wrong is not None:
        with pytest.raises(TypeError, match=f"^sess_options is a {says}"):
            ortops.InferenceSession(b"", wrong, [CPU], operators=operators)


class Both(onnxruntime.SessionOptions, onnxruntime.RunOptions):  # type: ignore[misc]
    __slots__ = ("name",)

    def __init__(self) -> None:
        onnxruntime.SessionOptions.__init__(self)
        onnxruntime.RunOptions.__init__(self)


class Deep(Both):
    pass


@pytest.mark.parametrize("kind", [Both, Deep])
def test_register_takes_subclass_of_session_options(kind: Any) -> None:
    runner = stock_session(ONE, f, chosen=kind())
    assert runner.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [1, 1]
