"""ONNX Runtime's own kernels, those of the CPU or of another execution provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from conformance import expected_failures
from conformance.backends import session
from conformance.backends.base import OperatorMissingError, Session, UnsupportedError
from conformance.backends.standard import require_standard
from conformance.case import Case
from conformance.expected_failures import ExpectedFailure
from conformance.model import build
from ortops.spec import ELEMENT_DTYPES

NO_FALLBACK = "session.disable_cpu_ep_fallback"
"""The session option that refuses a session in which another provider would leave nodes to the CPU."""

FELL_BACK = "fallback to CPU EP has been explicitly disabled"
"""Part of ONNX Runtime's message for that refusal."""


class OnnxRuntime:
    """Runs the standard node in an `onnxruntime.InferenceSession`.

    provider: the execution provider. Cases for which another one than the CPU's has no kernel are unsupported, because
        the CPU would answer them.
    """

    def __init__(self, provider: str | None = None) -> None:
        self._provider = session.check_provider(provider)
        self._is_cpu = self._provider == session.CPU
        # The list is for the kernels of the CPU.
        self.expected_failures: Sequence[ExpectedFailure] = (
            expected_failures.load("onnxruntime")[1] if self._is_cpu else ()
        )

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        require_standard(case, element_types=("float16", "float", "double") if self._is_cpu else tuple(ELEMENT_DTYPES))
        return session.as_session(self._session(build(case, "standard").SerializeToString()), case)

    def _session(self, model: bytes) -> Any:
        options = session.options()
        if not self._is_cpu:
            options.add_session_config_entry(NO_FALLBACK, "1")
        try:
            return onnxruntime.InferenceSession(model, options, providers=[self._provider])
        except NoKernel as error:
            if self._is_cpu:
                raise OperatorMissingError(str(error)) from error
            raise UnsupportedError(self._no_kernel) from error
        except Fail as error:
            if FELL_BACK in str(error):
                raise UnsupportedError(self._no_kernel) from error
            raise

    @property
    def _no_kernel(self) -> str:
        return f"{self._provider} has no kernel for it"


def load(provider: str | None = None) -> OnnxRuntime:
    """The backend."""
    return OnnxRuntime(provider)
