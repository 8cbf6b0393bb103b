# SPDX-License-Identifier: MIT
"""The operators of one session: those of users, and those of ONNX and other projects that it runs without conversion.

A custom operator in ONNX's domain replaces ONNX Runtime's operator of the same name at all opsets, since ONNX Runtime does
not distinguish versions of custom operators. So a session has the definitions of one opset, its model's. Session options
never lose a definition. So they hold every definition that one of their sessions has needed, under a name that no model
has. While a session is made, the definitions that it needs have their real names.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterable, Sequence

import onnx
import onnxruntime

from ortops import exceptions
from ortops.custom.kernel import custom_ops
from ortops.custom.operator import CustomOperator
from ortops.engine.c_api import CustomOp, Domains, LibraryOp
from ortops.engine.extensions import OrtError
from ortops.foreign.onnx_equivalents import THREADS
from ortops.foreign.standard import STANDARD_NAMES, standard_operators
from ortops.foreign.third_party import THIRD_PARTY
from ortops.forks import unforked
from ortops.memory import keep_forever
from ortops.runtime import library
from ortops.spec import Operator

_WITHOUT_KERNELS = {"CPUExecutionProvider", "AzureExecutionProvider"}
"""The execution providers whose kernels may be displaced: the CPU's provider, and a provider without kernels."""


def has_only_cpu(options: onnxruntime.SessionOptions, providers: Sequence[object] | None) -> bool:
    """Whether a session runs only on the CPU, so that no other execution provider's kernel is displaced.

    Args:
        options: the session's options, which may also name providers.
        providers: as for the session: names, or pairs of names and options.
    """
    names = [provider[0] if isinstance(provider, tuple) else provider for provider in providers or ()]
    if not names and getattr(options, "has_providers", bool)():
        return False
    available = set(onnxruntime.get_available_providers())  # ONNX Runtime skips the others with a warning
    return available.intersection(names or available) <= _WITHOUT_KERNELS


class OperatorsInUse:
    """A SessionOptions object's definitions, and which of them sessions have.

    While a thread makes a session in `during`, it alone has other definitions than the registered ones, and other threads
    wait with `during` for the same options.
    """

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._ops: dict[Operator, Sequence[CustomOp | LibraryOp]] = {}
        self._registered: Sequence[Operator] = ()
        self._maker = ctypes.c_int64()
        keep_forever(self._maker)  # operators have its address
        self._lock = threading.RLock()

    def register(self, options: onnxruntime.SessionOptions, operators: Sequence[Operator]) -> None:
        """Use these definitions for all sessions made later, except in `during`."""
        with unforked(), self._lock:
            self._registered = operators
            self._add(options, operators)
            for number, (operator, ops) in enumerate(self._ops.items()):
                for op in ops:
                    op.rename(_name(operator, number, operators))

    def during(
        self, options: onnxruntime.SessionOptions, operators: Sequence[Operator], make: Callable[[], None]
    ) -> None:
        """Make a session with these definitions alone."""
        if not operators and not self._ops:
            make()
            return
        with self._lock:
            maker, threads = self._maker.value, THREADS.set(options.intra_op_num_threads)
            try:
                self._add(options, operators)
                for number, (operator, ops) in enumerate(self._ops.items()):
                    for op in ops:
                        op.rename_for(self._maker, _name(operator, number, operators))
                self._maker.value = threading.get_ident()
                make()
            finally:
                self._maker.value = maker
                THREADS.reset(threads)

    def _add(self, options: onnxruntime.SessionOptions, operators: Iterable[Operator]) -> None:
        missing = [operator for operator in operators if operator not in self._ops]
        if missing:
            exceptions.run_shielded(lambda: self._add_missing(options, missing))

    def _add_missing(self, options: onnxruntime.SessionOptions, operators: Iterable[Operator]) -> None:
        for operator in operators:
            if (operator.domain, operator.name) in _OF_ONNX:
                check_override()
            ops: Sequence[CustomOp | LibraryOp]
            if isinstance(operator, CustomOperator):
                ops = list(custom_ops(operator, operator.bind))
            elif third_party := THIRD_PARTY.get((operator.domain, operator.name)):
                ops = list(custom_ops(operator, third_party.bind))
            else:
                ops = ops_of(operator)
            for op in ops:
                op.rename(_name(operator, len(self._ops), self._registered))
            self._domains.add(options, operator.domain, ops)
            self._ops[operator] = ops


def _name(operator: Operator, number: int, operators: Sequence[Operator]) -> str:
    """The operator's name for sessions that have these definitions: if it is not one of them, one that no model has."""
    return operator.name if operator in operators else f"{operator.name} {number} is not in use"


_OF_ONNX = {("", name) for name in STANDARD_NAMES}


def ops_of(operator: Operator) -> list[LibraryOp]:
    """New OrtCustomOps of one of the library's operators, for each combination of its element types.

    Raises:
        OrtError: onnxruntime is too old.
        RuntimeError: there is no library.
    """
    key = operator.domain, operator.name, operator.version_of_onnx
    return [LibraryOp(address) for address in library().operators[key]]


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
    options, domains = onnxruntime.SessionOptions(), Domains()
    options.intra_op_num_threads = 1
    roi_align = next(operator for operator in standard_operators(16) if operator.name == "RoiAlign")
    ops, kernels, cause = ops_of(roi_align), 0, None
    try:
        domains.add(options, "", ops)
        model = onnx.parser.parse_model(_PROBE).SerializeToString()
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
        kernels = sum(op.kernels for op in ops)
        del session
    except Exception as error:  # noqa: BLE001  # whatever ONNX Runtime says
        cause = error
    finally:
        del options
        domains.release()
    if not kernels:
        raise OrtError(
            f"onnxruntime {onnxruntime.__version__} does not let other operators replace its own RoiAlign: convert the "
            "model (onnx_models.convert), or leave ONNX Runtime's own kernels alone (standard=False)"
            + (f" ({cause})" if cause else "")
        ) from cause
