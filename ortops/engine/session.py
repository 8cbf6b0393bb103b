"""Registers the operators with ONNX Runtime sessions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import onnxruntime

from ortops.engine import extensions
from ortops.engine.extensions import OrtError
from ortops.engine.shutdown import inside_session, register_exit_function
from ortops.jit import exceptions
from ortops.operators import OPERATORS

_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""The entry of session options with the folder of the external data of a model that is given as bytes."""

_CONFLICT = "Conflicting with a registered kernel"
"""Part of ONNX Runtime's error message for a library that is registered twice."""

Engine = Literal["auto", "direct", "pyop"]

_lock = threading.RLock()
_engine_in_use: Engine | None = None
_registered: set[weakref.ref[onnxruntime.SessionOptions]] = set()


def library_path() -> str:
    """The path of the onnxruntime-extensions library, after our operators have been added to it.

    Pass it to `SessionOptions.register_custom_ops_library`; `register` and `ortops.InferenceSession` do that themselves.

    Raises:
        RuntimeError: onnxruntime-extensions cannot be imported or lacks a part, or onnxruntime is too old.
    """
    exceptions.uninterrupted(lambda: _select_engine("auto"))
    return extensions.library_path()


def register(session_options: onnxruntime.SessionOptions, engine: Engine = "auto") -> None:
    """Register the operators with session options, for all sessions that are made with them. A second call does nothing.

    The function registers the library of onnxruntime-extensions, which adds the operators of onnxruntime-extensions too.
    Do not pass options that have this library already: ONNX Runtime refuses to make a session from options with the library
    twice ("Conflicting with a registered kernel").

    Args:
        session_options: options for `onnxruntime.InferenceSession`.
        engine: how ONNX Runtime calls the operators. "direct" uses C functions, has all element types and reports errors as
            ONNX Runtime does. "pyop" uses Python operators of onnxruntime-extensions, for float and double only. "auto" is
            direct if the library supports it (Linux, macOS), else pyop. A process can use only one of the two.

    Raises:
        ValueError: engine is not one of these.
        RuntimeError: the process uses the other engine already, onnxruntime-extensions lacks a part that the engine needs,
            or onnxruntime is too old.
    """
    if engine != "auto" or weakref.ref(session_options) not in _registered:
        exceptions.uninterrupted(lambda: _register(session_options, engine))


def _register(session_options: onnxruntime.SessionOptions, engine: Engine) -> None:
    _select_engine(engine)
    with _lock:
        # Not a WeakSet: its callbacks are Python code, and an exception that a signal handler raises in them is lost.
        _registered.difference_update([reference for reference in _registered if reference() is None])
        if weakref.ref(session_options) not in _registered:
            session_options.register_custom_ops_library(extensions.library_path())
            _registered.add(weakref.ref(session_options))


def _select_engine(engine: Engine) -> Engine:
    """Add the operators to the library once in a process. With one name in both engines, the library would loop forever."""
    global _engine_in_use  # noqa: PLW0603 - a process has one library
    if engine not in ("auto", "direct", "pyop"):
        raise ValueError(f"engine = {engine!r}: must be one of 'auto', 'direct', 'pyop'")
    with _lock:
        if _engine_in_use is None:
            _engine_in_use = _add_all(engine)
            register_exit_function()  # again, to run before the exit functions of onnxruntime-extensions, imported by now
        if engine not in ("auto", _engine_in_use):
            raise RuntimeError(
                f"engine = {engine!r}: this process already uses {_engine_in_use!r}, and a process can use only one engine"
            )
        return _engine_in_use


def _add_all(engine: Engine) -> Engine:
    """Add the operators to the library of onnxruntime-extensions, and return the engine.

    Raises:
        RuntimeError: the library cannot be imported or lacks what the engine needs, or onnxruntime is too old.
    """
    if engine != "pyop" and extensions.takes_c_operators():
        from ortops.engine.direct import add_operator

        for operator in OPERATORS:
            add_operator(operator)
        return "direct"
    if engine == "direct":
        raise RuntimeError(
            "onnxruntime-extensions does not export AddExternalCustomOp here: engine must be 'pyop' or 'auto'"
        )
    from ortops.engine.pyop import add_operators

    add_operators(OPERATORS)
    return "pyop"


class _RaiseOperatorErrors:
    """A context for calls of ONNX Runtime that raises the exception of an operator of ours at its end.

    ONNX Runtime gets only a status with the text "interrupted" for it, or no error at all with the pyop engine.
    """

    def __enter__(self) -> None:
        """Drop an exception that an earlier session of onnxruntime's own class has left on this thread."""
        exceptions.take()
        self._errors = None
        if _engine_in_use == "pyop":
            from ortops.engine.pyop import RunErrors

            self._errors = RunErrors()

    def __exit__(self, *_: object) -> None:
        """Raise the first exception, in place of ONNX Runtime's error."""
        error = exceptions.take()
        if self._errors is not None:
            error = error or self._errors.end()
        if error is not None:
            raise error from None


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime.InferenceSession with the operators registered; it takes the same arguments.

    It calls `register` for the given options too. If Python raises an exception while an operator of ours runs, such as
    KeyboardInterrupt for Ctrl-C, the session raises the same exception; a session of onnxruntime's own class raises an
    error with the text "interrupted". With the pyop engine, nodes may omit attributes and have lists, and the session raises
    the errors of our operators, which ONNX Runtime itself does not see there.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | Any,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a session as onnxruntime.InferenceSession does.

        Raises:
            OrtError: sess_options had the library of onnxruntime-extensions before.
            BaseException: the exception that Python raised in an operator of ours.
        """
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        register(options)
        if _engine_in_use == "pyop":
            from ortops.engine.pyop_attributes import with_readable_attributes

            model = with_readable_attributes(path_or_bytes)
            if model is not path_or_bytes and not isinstance(path_or_bytes, bytes):
                options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path_or_bytes).resolve().parent))
            path_or_bytes = model
        try:
            with inside_session(), _RaiseOperatorErrors():
                super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        except Exception as error:
            if _CONFLICT not in str(error):
                raise
            raise OrtError(
                "sess_options have the library of onnxruntime-extensions twice, from ortops and from another call of "
                "register_custom_ops_library: remove the other call, since ortops registers all operators of the library "
                f"({error})"
            ) from error

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession.run does.

        Raises:
            BaseException: the exception that Python raised in an operator of ours, in place of onnxruntime's error.
            ValueError: with the pyop engine, an operator of ours refused its input.
        """
        with inside_session(), _RaiseOperatorErrors():
            outputs: list[Any] = super().run(output_names, input_feed, run_options)
        return outputs

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: dict[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), _RaiseOperatorErrors():
            outputs: list[Any] = super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        return outputs

    def run_with_ortvaluevector(self, *args: Any, **kwargs: Any) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), _RaiseOperatorErrors():
            super().run_with_ortvaluevector(*args, **kwargs)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), _RaiseOperatorErrors():
            super().run_with_iobinding(iobinding, run_options)
