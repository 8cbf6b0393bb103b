"""Putting the operators into ONNX Runtime sessions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import onnxruntime

from ortops.engine import extensions
from ortops.engine.c_api import OrtError
from ortops.engine.shutdown import close_first, inside
from ortops.kernels.jit import exceptions
from ortops.operators import OPERATORS

_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""The entry of session options that says where a model given as bytes has its external data."""

_CONFLICT = "Conflicting with a registered kernel"
"""What ONNX Runtime says of a library that is registered twice."""

Engine = Literal["auto", "direct", "pyop"]

_lock = threading.RLock()
_chosen: Engine | None = None
_registered: set[weakref.ref[onnxruntime.SessionOptions]] = set()


def library_path() -> str:
    """The path of the onnxruntime-extensions library, with our operators in it, for a session to register.

    For those who call `SessionOptions.register_custom_ops_library` themselves; all others use `register`.
    """
    exceptions.uninterrupted(lambda: _choose("auto"))
    return extensions.library_path()


def register(session_options: onnxruntime.SessionOptions, engine: Engine = "auto") -> None:
    """Make the operators known to the sessions made with these options. A second call does nothing.

    It registers the library of onnxruntime-extensions, whose own operators come along. Options that have it already must
    not be given here: ONNX Runtime refuses a library that is registered twice ("Conflicting with a registered kernel").

    Args:
        session_options: as for `onnxruntime.InferenceSession`.
        engine: how ONNX Runtime reaches the operators. "direct": through C tables, with all types and ONNX Runtime's own
            errors. "pyop": through the Python operators of onnxruntime-extensions; float and double only. "auto": direct
            where the library allows it (Linux, macOS), else pyop. One choice holds for the whole process.

    Raises:
        ValueError: engine is none of these.
        RuntimeError: another engine is in use in this process, or onnxruntime-extensions lacks what the engine needs.
    """
    if engine != "auto" or weakref.ref(session_options) not in _registered:
        exceptions.uninterrupted(lambda: _register(session_options, engine))


def _register(session_options: onnxruntime.SessionOptions, engine: Engine) -> None:
    _choose(engine)
    with _lock:
        # Not a WeakSet, whose callbacks are Python code: what a signal handler raises there is lost.
        _registered.difference_update([reference for reference in _registered if reference() is None])
        if weakref.ref(session_options) not in _registered:
            session_options.register_custom_ops_library(extensions.library_path())
            _registered.add(weakref.ref(session_options))


def _choose(engine: Engine) -> Engine:
    """Add the operators to the library, once in a process: given both ways, a name would make the library loop forever."""
    global _chosen  # noqa: PLW0603 - the library itself is one for each process
    if engine not in ("auto", "direct", "pyop"):
        raise ValueError(f"engine = {engine!r}: must be one of 'auto', 'direct', 'pyop'")
    with _lock:
        if _chosen is None:
            _chosen = _add_all(engine)
            close_first()  # before the end of onnxruntime-extensions, which has been imported by now
        if engine not in ("auto", _chosen):
            raise RuntimeError(
                f"engine = {engine!r}: this process uses {_chosen!r} already, and one choice holds for all"
            )
        return _chosen


def _add_all(engine: Engine) -> Engine:
    """Add the operators to the library of onnxruntime-extensions; the engine that took them.

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


class _Raising:
    """A context for what ONNX Runtime does: at its end, an exception of our operators is raised as itself.

    ONNX Runtime itself sees a status "interrupted" in its place, or with the pyop engine nothing at all.
    """

    def __enter__(self) -> None:
        """Begin, without what a session of onnxruntime's own has left on this thread."""
        exceptions.take()
        self._errors = None
        if _chosen == "pyop":
            from ortops.engine.pyop import Errors

            self._errors = Errors()

    def __exit__(self, *_: object) -> None:
        """Raise the first exception, in place of ONNX Runtime's error."""
        error = exceptions.take()
        if self._errors is not None:
            error = error or self._errors.end()
        if error is not None:
            raise error from None


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime.InferenceSession with the operators registered; same arguments.

    Options that are given are registered too, as by `register`. An exception that Python raises while an operator of ours
    runs, such as Ctrl-C's KeyboardInterrupt or that of a signal handler, is raised as itself, where a session of
    onnxruntime's own raises an error that says "interrupted". With the pyop engine, nodes may leave attributes out and have
    lists, and errors of our operators are raised, which ONNX Runtime itself does not see there.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | Any,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """As onnxruntime's.

        Raises:
            OrtError: sess_options have had the library of onnxruntime-extensions before.
            BaseException: what Python raised while ONNX Runtime asked an operator of ours.
        """
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        register(options)
        if _chosen == "pyop":
            from ortops.engine.pyop_attributes import with_plain_attributes

            mended = with_plain_attributes(path_or_bytes)
            if mended is not path_or_bytes and not isinstance(path_or_bytes, bytes):
                options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path_or_bytes).resolve().parent))
            path_or_bytes = mended
        try:
            with inside(), _Raising():
                super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        except Exception as error:
            if _CONFLICT not in str(error):
                raise
            raise OrtError(
                "sess_options have the library of onnxruntime-extensions twice, from ortops and from another call of "
                f"register_custom_ops_library: leave the other out, for ortops brings all operators of it ({error})"
            ) from error

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """As onnxruntime's.

        Raises:
            BaseException: what Python raised while an operator of ours ran, in place of onnxruntime's error.
            ValueError: with the pyop engine, an operator of ours refused its input.
        """
        with inside(), _Raising():
            outputs: list[Any] = super().run(output_names, input_feed, run_options)
        return outputs

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: dict[str, Any], run_options: Any = None
    ) -> list[Any]:
        """As onnxruntime's, with the exceptions of `run`."""
        with inside(), _Raising():
            outputs: list[Any] = super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        return outputs

    def run_with_ortvaluevector(self, *args: Any, **kwargs: Any) -> None:
        """As onnxruntime's, with the exceptions of `run`."""
        with inside(), _Raising():
            super().run_with_ortvaluevector(*args, **kwargs)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As onnxruntime's, with the exceptions of `run`."""
        with inside(), _Raising():
            super().run_with_iobinding(iobinding, run_options)
