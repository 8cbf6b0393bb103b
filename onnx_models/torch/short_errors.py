"""Short errors of an export that name the operator and the line of the module, instead of PyTorch's pages."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

_FOLDER = Path(torch.__file__).parent
_LAYERS = tuple(str(_FOLDER / name) for name in ("nn/functional.py", "nn/modules/", "distributions/"))
_CALL = str(_FOLDER / "nn/modules/module.py")
_OURS = str(Path(__file__).parent)


@contextlib.contextmanager
def short_errors() -> Iterator[None]:
    """Raise a short ValueError for what PyTorch cannot trace or translate.

    Raises:
        ValueError: begins with the line, or the operator, that cannot be exported.
    """
    try:
        yield
    except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
        raise ValueError(
            f"{_place(error)} depends on the values of tensors, which an export does not know: must not; use torch.where, "
            "pass validate_args=False to a distribution, or keep the line out of the exported part"
        ) from error
    except DynamicOutputShapeException as error:
        raise ValueError(_without_translation(str(error.func), _place(error))) from error
    except torch.onnx.errors.OnnxExporterError as error:
        found = re.findall(r"OpOverload\(op='([\w.]+)', overload='(\w+)'\)", str(error))
        if not found:
            first = _first_cause(error)
            line = (str(first).strip().splitlines() or [""])[0]
            raise ValueError(f"PyTorch's exporter fails with {type(first).__name__}: {line}") from error
        lines = re.findall(r'File "([^"]+)", line (\d+), in \w+', str(error))
        raise ValueError(_without_translation(".".join(found[-1]), ":".join(lines[-1]) if lines else "")) from error


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _without_translation(operator: str, place: str) -> str:
    where = f" ({place})" if place else ""
    remedy = "replace it by operators that have one, or give one in custom_translation_table"
    return f"{operator}{where} has no translation to ONNX in PyTorch's exporter: {remedy}"


def _place(error: BaseException) -> str:
    """The innermost line of the module or of PyTorch's layers that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(_LAYERS) and f.filename != _CALL]
    own = own or [f for f in frames if not f.filename.startswith((str(_FOLDER), _OURS))]
    frame = own[-1]
    return f"{frame.name}: `{frame.line}` ({frame.filename}:{frame.lineno})"
