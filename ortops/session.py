"""Registers operators with ONNX Runtime sessions: those of this project and those of users."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

import onnxruntime

from ortops.compute import bind
from ortops.custom import CustomOperator
from ortops.engine import extensions
from ortops.engine.domains import Domains, check_options
from ortops.engine.errors import RaiseOperatorErrors, SessionErrors, keep_causes
from ortops.engine.extensions import OrtError
from ortops.engine.shutdown import inside_session, register_exit_function
from ortops.jit import exceptions
from ortops.library import installed
from ortops.library.targets import STANDARD_OPSETS
from ortops.missing import remedy
from ortops.model_nodes import served_operators
from ortops.operators import OPERATORS
from ortops.served import ServedNodes, has_only_cpu
from ortops.spec import Operator
from ortops.standard import standard_operators
from ortops.third_party import THIRD_PARTY_DEFINITIONS

_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""The entry of session options with the folder of the external data of a model that is given as bytes."""

_CONFLICT = "Conflicting with a registered kernel"
"""Part of ONNX Runtime's error message for a library that is registered twice."""

_TWO_LIBRARIES = "Domain already set in registry"
"""Likewise, for options with two domains of one name."""

_NOT_SERVED = (
    "the pyop engine (Windows) cannot run nodes of ONNX: must be None; onnx_models.convert makes nodes of this "
    "project of them"
)

_LIBRARY_ALONE = (
    "The library engine has no operators of onnxruntime-extensions: make new options, for which "
    "ortops.register(sess_options, 'direct'), or 'pyop' on Windows, adds these too"
)

Engine = Literal["auto", "direct", "pyop", "library"]

_lock = threading.RLock()
_engine_in_use: Engine | None = None
_run_errors: Any = None
_registered: dict[weakref.ref[onnxruntime.SessionOptions], _Registration] = {}


class _Registration:
    """What one SessionOptions object has: the operators of users, nodes of others, and their domains with the direct engine.

    It is kept as soon as the options have a first operator, even if a later one is refused.

    engine: any but "auto".
    standard: with the library engine, the opset whose definitions of ONNX's own operators the options have.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.standard: int | None = None
        self.operators: dict[tuple[str, str], CustomOperator] = {}
        self.domains: Domains | None = None
        self.has_library = False
        self._served: ServedNodes | None = None

    def add(self, options: onnxruntime.SessionOptions, operators: Sequence[CustomOperator]) -> None:
        """Add operators that the options do not have yet.

        Raises:
            TypeError: one is no operator, or the engine cannot run it.
            ValueError: two have the same domain and name, or it is too late for the pyop engine.
        """
        known = dict(self.operators)
        for operator in operators:
            if not isinstance(operator, CustomOperator):
                raise TypeError(f"operators has {operator!r}: must be made by ortops.operator")
            if known.setdefault((operator.domain, operator.name), operator) is not operator:
                raise ValueError(f"operators has two of the name {operator.label}: must have one of each name")
        missing = [one for identity, one in known.items() if identity not in self.operators]
        if not missing:
            return
        if self.engine == "library":
            raise TypeError(
                f"operators has {missing[0].label}: the library engine has no operators in Python: must be given with "
                "engine='auto', in the first call for session options"
            )
        if self.engine == "pyop":
            from ortops.engine import pyop

            if self.has_library:
                raise ValueError(
                    f"operators has {missing[0].label}: the pyop engine (Windows) takes operators only in the first "
                    "call for session options"
                )
            for operator in missing:
                pyop.add_operator(operator, operator.bind)
        else:
            from ortops.engine.direct import custom_ops

            keep_causes()
            self.domains = self.domains or Domains()
            for operator in missing:
                self.domains.add(options, operator.domain, custom_ops(operator, operator.bind))
        self.operators = known

    def add_standard(self, options: onnxruntime.SessionOptions, definitions: Sequence[Operator]) -> None:
        """Let the library engine run ONNX's own nodes of these definitions, in all sessions that are made later.

        Raises:
            ValueError: a definition is not ONNX's, or the options have those of another opset.
        """
        for one in definitions:
            if one.domain:
                raise ValueError(
                    f"{one.label}: the library engine runs no such nodes: must be converted (onnx_models.convert), or left "
                    "to another library (standard=False)"
                )
        fitting = [opset for opset in STANDARD_OPSETS if set(definitions) <= set(standard_operators(opset))]
        if not definitions or self.standard in fitting:
            return
        if self.standard is not None:
            raise ValueError(
                f"the session options have ONNX's operators of opset {self.standard} for good, with the library engine: "
                f"must be new options for those of opset {fitting[-1]}"
            )
        options.register_custom_ops_library(installed.library_file(fitting[-1]))
        self.standard = fitting[-1]

    @property
    def served(self) -> ServedNodes:
        """The nodes of others."""
        if self._served is None:
            self.domains = self.domains or Domains()
            self._served = ServedNodes(self.domains)
        return self._served

    @property
    def is_serving(self) -> bool:
        """Whether the options were given an opset."""
        return self.standard is not None or (self._served is not None and self._served.is_registered)

    def without_users(self, operators: Iterable[Operator]) -> list[Operator]:
        """Operators without those that users have defined themselves."""
        return [one for one in operators if (one.domain, one.name) not in self.operators]


def library_path() -> str:
    """The path of the onnxruntime-extensions library, after our operators have been added to it.

    Pass it to `SessionOptions.register_custom_ops_library`; `register` and `ortops.InferenceSession` do that themselves.

    Raises:
        RuntimeError: onnxruntime-extensions cannot be imported or lacks a part, or onnxruntime is too old.
    """
    exceptions.uninterrupted(lambda: _select_engine("auto"))
    return extensions.library_path()


def register(
    session_options: onnxruntime.SessionOptions,
    engine: Engine = "auto",
    *,
    operators: Iterable[CustomOperator] = (),
    opset: int | None = None,
) -> None:
    """Register operators with session options, for all sessions that are made with them.

    These are the operators of this project and those in `operators`. What the options have already is not added again.

    The function registers the library of onnxruntime-extensions, which adds the operators of onnxruntime-extensions too,
    except with the library engine.
    Do not pass options that have this library already: ONNX Runtime refuses to make a session from options with the library
    twice ("Conflicting with a registered kernel").

    Args:
        session_options: options for `onnxruntime.InferenceSession`.
        engine: how ONNX Runtime calls the operators. "direct" uses C functions, has all element types and reports errors as
            ONNX Runtime does. "library" does so too, with shared libraries (`build_library`) that the wheel for Windows
            brings; elsewhere they are built into the cache once, by the extra `library`. It has no operators of your own
            or of onnxruntime-extensions, whose library it does not register. "pyop" uses Python operators of
            onnxruntime-extensions, for float and double only. "auto" is direct where it works (Linux, macOS); on Windows
            library, but pyop where `operators` are given or the wheel has no libraries. Options have one engine for good,
            and a process cannot use both direct and pyop.
        operators: operators of your own, from `ortops.operator`. They live as long as the options and the sessions.
        opset: the version of ONNX's domain that the models of these sessions import. Their nodes RoiAlign and MaxRoiPool,
            and those of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows, are then run by this project as
            they are, in place of ONNX Runtime's own kernels. A model of another opset may get wrong results, since a
            session has one definition of each operator: RoiAlign changed at 16, element types were added at 22. A later
            call may give another opset, for sessions that are made after it. `ortops.InferenceSession` needs no opset.
            With the library engine, only ONNX's own nodes are run, and options have one definition of them for good.

    Raises:
        ValueError: engine is not one of these, two operators have the same domain and name, or opset is below 1, has
            an operator in a later version than this project, or is given for the pyop engine; with the library engine, if
            the options have another opset.
        TypeError: session_options is no onnxruntime.SessionOptions, its class derives from another class of onnxruntime too,
            or its ``__init__`` has not run; one of `operators` is none, or the library or the pyop engine cannot run it.
        RuntimeError: the options or the process use another engine already, onnxruntime-extensions lacks a part that the
            engine needs, onnxruntime is too old, or there is no library and none can be built.
    """
    check_options(session_options, "session_options")
    own = tuple(operators)
    found = _registered.get(weakref.ref(session_options))
    if own or engine != "auto" or found is None or not found.has_library:
        exceptions.uninterrupted(lambda: _register(session_options, engine, own))
    if opset is not None:
        if not isinstance(opset, int) or opset < 1:
            raise ValueError(f"opset = {opset!r}: must be an integer >= 1")
        registration = _registered[weakref.ref(session_options)]
        if registration.engine == "pyop":
            raise ValueError(f"opset = {opset}: {_NOT_SERVED}")
        standard = standard_operators(opset)
        if registration.engine == "library":
            exceptions.uninterrupted(lambda: registration.add_standard(session_options, standard))
        else:
            served = registration.without_users((*standard, *THIRD_PARTY_DEFINITIONS.values()))
            registration.served.register(session_options, served)


def _register(session_options: onnxruntime.SessionOptions, engine: Engine, operators: Sequence[CustomOperator]) -> None:
    with _lock:
        # Not a WeakKeyDictionary: its callbacks are Python code, and an exception that a signal handler raises in them is
        # lost.
        for dead in [reference for reference in _registered if reference() is None]:
            domains = _registered.pop(dead).domains
            if domains is not None:
                domains.release()
        known = _registered.get(weakref.ref(session_options))
        chosen = _engine_for(known.engine if known and known.has_library else None, engine, operators)
        registration = _registered.setdefault(weakref.ref(session_options), _Registration(chosen))
        registration.engine = chosen
        registration.add(session_options, operators)
        if not registration.has_library:
            session_options.register_custom_ops_library(
                installed.library_file(None) if chosen == "library" else extensions.library_path()
            )
            registration.has_library = True


def _engine_for(known: Engine | None, engine: Engine, operators: Sequence[CustomOperator]) -> Engine:
    """The engine of session options that have one already, or none.

    Raises:
        ValueError, RuntimeError: as `register`.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine = {engine!r}: must be one of {', '.join(map(repr, get_args(Engine)))}")
    if known is not None and engine not in ("auto", known) and "library" in (engine, known):
        raise RuntimeError(f"engine = {engine!r}: the session options have {known!r} already: must be new options")
    if engine == "auto" and known is None and not operators and installed.is_preferred():
        return "library"
    return "library" if "library" in (engine, known) else _select_engine(engine)


def _select_engine(engine: Engine) -> Engine:
    """Add the operators to the library once in a process. With one name in both engines, the library would loop forever."""
    global _engine_in_use  # noqa: PLW0603 - a process has one library
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
        from ortops.engine.direct import custom_ops

        for operator in OPERATORS:
            for made in custom_ops(operator, bind):
                made.add_to_extensions()
        return "direct"
    if engine == "direct":
        raise RuntimeError(
            "onnxruntime-extensions does not export AddExternalCustomOp here: engine must be 'pyop' or 'auto'"
        )
    from ortops.engine import pyop

    global _run_errors  # noqa: PLW0603 - likewise
    _run_errors = pyop.RunErrors
    pyop.start()
    for operator in OPERATORS:
        pyop.add_operator(operator, bind)
    return "pyop"


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime.InferenceSession with operators registered; it takes the same arguments, `operators` and `standard`.

    It runs the nodes RoiAlign and MaxRoiPool of ONNX itself, at the opset of the model, in all element types of that opset,
    and the nodes of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows. `standard` says when.

    It calls `register` for the given options too. If Python raises an exception while an operator runs, such as
    KeyboardInterrupt for Ctrl-C, the session raises the same exception; a session of onnxruntime's own class raises an
    error with the text "interrupted". An exception in the function of an operator of your own is the cause (``__cause__``)
    of the error that the session raises. With the pyop engine, nodes may omit attributes and have lists, and the session
    raises the errors of operators, which ONNX Runtime itself does not see there.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | Any,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        operators: Iterable[CustomOperator] = (),
        standard: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a session as onnxruntime.InferenceSession does, with operators of your own (`ortops.operator`).

        Args:
            path_or_bytes: the model, which may have external data. Nodes of others in a model of ONNX Runtime's own format
                are run as `register` says, with the opset that it was given.
            sess_options: the options; they stay as they are for other sessions. With the library engine, they keep ONNX's
                own operators of the model's opset, and a model of an opset with other ones is refused.
            providers: execution providers.
            provider_options: their options.
            operators: operators of your own.
            standard: True to run nodes of ONNX, mmcv, mmdeploy and detectron2 in place of ONNX Runtime's own kernels, False
                to leave these alone. None for True where the session runs on the CPU alone, or the options were given
                an opset (`register`): with another execution provider, its kernels of these nodes would be displaced.
            kwargs: other arguments of onnxruntime.InferenceSession.

        Raises:
            TypeError, ValueError: as `register`, a node has an attribute that its operator does not have, or a function of
                the model has another version of an operator than the model.
            OrtError: sess_options had the library of onnxruntime-extensions before, or ONNX Runtime does not let other
                operators replace its own.
            BaseException: the exception that Python raised in an operator of ours.
        """
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_options(options, "sess_options")
        register(options, operators=operators)
        self._operator_errors = SessionErrors()
        registration = _registered[weakref.ref(options)]
        own = registration.operators.values()
        if registration.engine == "pyop":
            from ortops.engine.pyop_attributes import with_readable_attributes

            model = with_readable_attributes(path_or_bytes, (*OPERATORS, *own))
            if model is not path_or_bytes and not isinstance(path_or_bytes, bytes):
                options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path_or_bytes).resolve().parent))
            path_or_bytes = model
        self._options, self._standard, self._model = options, standard, path_or_bytes
        try:
            with (
                inside_session(),
                self._serving(providers),
                RaiseOperatorErrors(_run_errors, self._operator_errors, is_making=True),
            ):
                super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        except Exception as error:
            if _CONFLICT in str(error):
                raise OrtError(
                    "sess_options have the library of onnxruntime-extensions twice, from ortops and from another call of "
                    "register_custom_ops_library: remove the other call, since ortops registers all operators of the "
                    f"library ({error})"
                ) from error
            alone = _LIBRARY_ALONE if registration.engine == "library" else None
            hint = remedy(str(error), own, OPERATORS, alone)
            if _TWO_LIBRARIES in str(error):
                hint = alone or (
                    "sess_options have another library with operators of a domain that the session runs itself: make new "
                    "options, and pass standard=False for that library"
                )
            if hint is not None:
                error.args = (f"{error}. {hint}",)
            raise

    def _serving(self, providers: Sequence[Any] | None) -> AbstractContextManager[None]:
        """Have the definitions of the nodes that the session runs itself in the options while ONNX Runtime makes it.

        Raises:
            TypeError, ValueError: as ``__init__``.
        """
        options, standard, registration = self._options, self._standard, _registered[weakref.ref(self._options)]
        if standard not in (None, True, False):
            raise TypeError(f"standard = {standard!r}: must be True, False or None")
        if registration.engine == "pyop":
            if standard:
                raise ValueError(f"standard = True: {_NOT_SERVED}")
            return contextlib.nullcontext()
        if standard is False and registration.standard is not None:
            raise ValueError(
                f"standard = False: sess_options have ONNX's operators of opset {registration.standard} for good, with the "
                "library engine: must be new options"
            )
        if standard is False or not (standard or registration.is_serving or has_only_cpu(options, providers)):
            return registration.served.during(options, []) if registration.is_serving else contextlib.nullcontext()
        found = served_operators(self._model)
        if found is None and standard and not registration.is_serving:
            raise ValueError(
                "standard = True: a model of ONNX Runtime's own format does not tell its opset: must be given by "
                "ortops.register(sess_options, opset=...)"
            )
        if registration.engine == "library":
            exceptions.uninterrupted(lambda: registration.add_standard(options, found or []))
            return contextlib.nullcontext()
        found = found and registration.without_users(found)
        return registration.served.during(options, found) if found else contextlib.nullcontext()

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew as onnxruntime.InferenceSession does, with the rule of ``__init__`` for `standard`."""
        with (
            inside_session(),
            self._serving(providers),
            RaiseOperatorErrors(_run_errors, self._operator_errors, is_making=True),
        ):
            super().set_providers(providers, provider_options)

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession.run does.

        Raises:
            BaseException: the exception that Python raised in an operator of ours, in place of onnxruntime's error.
            ValueError: with the pyop engine, an operator of ours refused its input.
        """
        with inside_session(), RaiseOperatorErrors(_run_errors, self._operator_errors):
            outputs: list[Any] = super().run(output_names, input_feed, run_options)
        return outputs

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: dict[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), RaiseOperatorErrors(_run_errors, self._operator_errors):
            outputs: list[Any] = super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        return outputs

    def run_with_ortvaluevector(self, *args: Any, **kwargs: Any) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), RaiseOperatorErrors(_run_errors, self._operator_errors):
            super().run_with_ortvaluevector(*args, **kwargs)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with inside_session(), RaiseOperatorErrors(_run_errors, self._operator_errors):
            super().run_with_iobinding(iobinding, run_options)
