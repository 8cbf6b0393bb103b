"""The operators of one session: those of users, and those of ONNX and other projects that it runs without conversion.

A custom operator in ONNX's domain replaces ONNX Runtime's operator of the same name at all opsets, since ONNX Runtime does
not distinguish versions of custom operators. So a session has the definitions of one opset, its model's. Session options
never lose a definition. So they hold every definition that one of their sessions has needed, under a name that no model
has. While a session is made, the definitions that it needs have their real names.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnxruntime

from ortops import compute
from ortops.custom_operator import CustomOperator
from ortops.engine.c_api import CustomOp
from ortops.engine.direct import custom_ops
from ortops.engine.domains import Domains
from ortops.engine.extensions import OrtError
from ortops.jit import exceptions
from ortops.jit.forks import unforked
from ortops.onnx_equivalents import THREADS
from ortops.spec import AttributeValue, Bind, Compute, Operator
from ortops.standard import STANDARD_NAMES, standard_operators
from ortops.third_party import THIRD_PARTY

_WITHOUT_KERNELS = {"CPUExecutionProvider", "AzureExecutionProvider"}
"""The execution providers whose kernels may be displaced: the CPU's provider, and a provider without kernels."""


def has_only_cpu(options: onnxruntime.SessionOptions, providers: Sequence[object] | None) -> bool:
    """Whether a session runs only on the CPU, so that no other execution provider's kernel is displaced.

    Args:
        options: the session's options, which may also name providers.
        providers: as for the session: names, or pairs of names and options.
    """
    names = [one[0] if isinstance(one, tuple) else one for one in providers or ()]
    if not names and getattr(options, "has_providers", bool)():
        return False
    available = set(onnxruntime.get_available_providers())  # ONNX Runtime skips the others with a warning
    return available.intersection(names or available) <= _WITHOUT_KERNELS


class OperatorsInUse:
    """A SessionOptions object's definitions, and which of them are in use.

    While a thread makes a session in `during`, other threads wait with `during` for the same options.
    """

    def __init__(self) -> None:
        self._domains = Domains()
        self._made: dict[Operator, list[CustomOp]] = {}
        self._in_use: tuple[Operator, ...] | None = ()
        self._registered: tuple[Operator, ...] = ()
        self._lock = threading.RLock()

    def register(self, options: onnxruntime.SessionOptions, operators: Sequence[Operator]) -> None:
        """Use these definitions for all sessions made later, except where `during` uses others."""
        with unforked(), self._lock:
            self._registered = tuple(operators)
            self._use(options, operators)

    def release(self) -> None:
        """Release the domains. The options must be gone."""
        self._domains.release()

    @contextlib.contextmanager
    def during(self, options: onnxruntime.SessionOptions, operators: Sequence[Operator]) -> Iterator[None]:
        """Use only these definitions while a session is made."""
        if not operators and not self._made:
            yield
            return
        with self._lock:
            before = self._registered if self._in_use is None else self._in_use
            threads = THREADS.set(options.intra_op_num_threads)
            try:
                self._use(options, operators)
                yield
            finally:
                THREADS.reset(threads)
                self._use(options, before)

    def _use(self, options: onnxruntime.SessionOptions, operators: Sequence[Operator]) -> None:
        if tuple(operators) == self._in_use:
            return
        missing = [operator for operator in operators if operator not in self._made]
        if missing:
            exceptions.uninterrupted(lambda: self._add(options, missing))
        self._in_use = None  # until all names are set: an exception may interrupt this
        for i, (operator, made) in enumerate(self._made.items()):
            for one in made:
                one.rename(operator.name if operator in operators else f"{operator.name} {i} is not in use")
        self._in_use = tuple(operators)

    def _add(self, options: onnxruntime.SessionOptions, operators: Iterable[Operator]) -> None:
        for operator in operators:
            if (operator.domain, operator.name) in _OF_ONNX:
                check_override()
            made = list(custom_ops(operator, _bind_of(operator)))
            self._domains.add(options, operator.domain, made)
            self._made[operator] = made


_OF_ONNX = {("", name) for name in STANDARD_NAMES}


def _bind_of(operator: Operator) -> Bind:
    if isinstance(operator, CustomOperator):
        return operator.bind
    third_party = THIRD_PARTY.get((operator.domain, operator.name))
    return third_party.bind if third_party else compute.bind


_PROBE = """
    <ir_version: 8, opset_import: ["" : 16]>
    probe (float[n, c, h, w] x, float[r, 4] rois, int64[r] of) => (float[r, c, 1, 1] y) { y = RoiAlign (x, rois, of) }
"""


@functools.cache
def check_override() -> None:
    """Check once per process that ONNX Runtime lets custom operators replace its own, which it does not document.

    Raises:
        OrtError: ONNX Runtime does not.
    """
    bound: list[Operator] = []

    def bind(operator: Operator, attributes: Mapping[str, AttributeValue], kinds: Sequence[str]) -> Compute:
        bound.append(operator)
        return compute.bind(operator, attributes, kinds)

    options, domains = onnxruntime.SessionOptions(), Domains()
    options.intra_op_num_threads = 1
    roi_align = next(one for one in standard_operators(16) if one.name == "RoiAlign")
    cause: Exception | None = None
    try:
        domains.add(options, "", custom_ops(roi_align, bind))
        model = onnx.parser.parse_model(_PROBE).SerializeToString()
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # noqa: BLE001  # whatever ONNX Runtime says
        cause = error
    finally:
        del options
        domains.release()
    if not bound:
        raise OrtError(
            f"onnxruntime {onnxruntime.__version__} does not let other operators replace its own RoiAlign: convert the "
            "model (onnx_models.convert), or leave ONNX Runtime's own kernels alone (standard=False)"
            + (f" ({cause})" if cause else "")
        ) from cause
