# SPDX-License-Identifier: MIT OR Apache-2.0
"""ONNX Runtime without our kernels: its own ones for ONNX's nodes, or bodies of standard operators for ours."""

from __future__ import annotations

from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from conformance import expected_failures
from conformance.backends import session
from conformance.backends.base import (
    Backend,
    OperatorMissingError,
    Session,
    UnsupportedError,
    require_kernel,
    require_standard,
)
from conformance.case import DTYPES, Case
from conformance.model import build

NO_FALLBACK = "session.disable_cpu_ep_fallback"
"""The session option that refuses a session if a provider would leave nodes to the CPU."""

FELL_BACK = "fallback to CPU EP has been explicitly disabled"
"""Part of ONNX Runtime's message for that refusal."""


class OnnxRuntime(Backend):
    """Runs the standard node in an `onnxruntime.InferenceSession`.

    provider: the execution provider. If a provider other than the CPU's has no kernel for a case, the case is
        unsupported, because the CPU would run it.
    """

    def __init__(self, provider: str | None = None) -> None:
        self._provider = session.check_provider(provider)
        self._is_cpu = self._provider == session.CPU
        # The list is for the CPU's kernels.
        if self._is_cpu:
            _, self.expected_failures = expected_failures.load("onnxruntime")

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        require_standard(case, element_types=("float16", "float", "double") if self._is_cpu else DTYPES)
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


class Portable(Backend):
    """Runs standard operators in place of this project's, in a session without its kernels.

    change: the function of `onnx_models.portable` that changes the model.
    failures: the name of the list of expected failures.
    provider: the execution provider; the CPU runs the standard operators that it lacks, as in any session.
    """

    change, failures = "attach", "portable"

    def __init__(self, provider: str | None = None) -> None:
        _, self.expected_failures = expected_failures.load(self.failures)
        self._provider = session.check_provider(provider)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        require_kernel(case)
        from onnx_models import portable  # takes half a second, which the other backend saves

        model = getattr(portable, self.change)(build(case, "ortops")).SerializeToString()
        inference_session = onnxruntime.InferenceSession(model, session.options(), providers=[self._provider])
        return session.as_session(inference_session, case)


class Lowered(Portable):
    """Like `Portable`, but with standard nodes in place of the node instead of a function's body."""

    change, failures = "lower", "lowered"
