"""Registers this project's operators and users' operators with ONNX Runtime sessions."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

import onnxruntime

from ortops.compute import bind
from ortops.custom_operator import CustomOperator, as_operators
from ortops.engine import extensions
from ortops.engine.domains import check_options
from ortops.engine.errors import RaiseOperatorErrors, SessionErrors, keep_causes
from ortops.engine.extensions import OrtError
from ortops.engine.shutdown import inside_session, register_exit_function
from ortops.jit import exceptions
from ortops.jit.forks import unforked
from ortops.library import installed
from ortops.library.targets import STANDARD_OPSETS
from ortops.missing import remedy
from ortops.model_nodes import served_operators
from ortops.operators import OPERATORS
from ortops.served import OperatorsInUse, has_only_cpu
from ortops.spec import Operator
from ortops.standard import standard_operators
from ortops.third_party import THIRD_PARTY_DEFINITIONS

_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"
"""The session option that names the folder of the external data, for a model given as bytes."""

_CONFLICT = "Conflicting with a registered kernel"
"""Part of ONNX Runtime's error message for a library that is registered twice."""

_TWO_LIBRARIES = "Domain already set in registry"
"""Part of ONNX Runtime's error message for options with two domains of the same name."""

_NOT_SERVED = (
    "the pyop engine (Windows) cannot run nodes of ONNX: must be None; onnx_models.convert replaces them by this "
    "project's nodes"
)

_ORT_FORMAT = (
    "a model in ONNX Runtime's own format does not contain its opset: must be given by ortops.register(sess_options, "
    "opset=...)"
)

_LIBRARY_ALONE = (
    "The library engine has no operators of onnxruntime-extensions: make new options, and call "
    "ortops.register(sess_options, 'direct'), or 'pyop' on Windows, which adds these too"
)

_OTHER_LIBRARY = (
    "sess_options have another library with operators in a domain that ortops also has: make new options. If the library is "
    "one of ortops (python -m ortops library), do not register it, since the session has its operators, or use "
    "onnxruntime.InferenceSession; if it is of another project, pass standard=False"
)

Engine = Literal["auto", "direct", "pyop", "library"]

_lock = threading.RLock()
_engine_in_use: Engine | None = None
_run_errors: Any = None
_registered: dict[weakref.ref[onnxruntime.SessionOptions], _Registration] = {}


class _Registration:
    """What `register` gave a SessionOptions object. It is kept even if a later call is refused.

    engine: any engine except "auto".
    standard: with the library engine, the opset for which the options define ONNX's own operators.
    users: the operators of users for all sessions of the options, by domain and name.
    nodes: the definitions of nodes of ONNX and other projects for all these sessions.
    in_use: the direct engine's operators.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.standard: int | None = None
        self.users: dict[tuple[str, str], CustomOperator] = {}
        self.nodes: tuple[Operator, ...] = ()
        self.in_use = OperatorsInUse()
        self.has_library = False

    def check(self, operators: Iterable[CustomOperator]) -> None:
        """Check that the engine can run operators of users; add them to the process if it is the pyop engine.

        Raises:
            TypeError: the engine cannot run an operator.
            ValueError: it is too late for the pyop engine.
        """
        missing = [operator for operator in operators if operator not in self.users.values()]
        if missing and self.engine == "library":
            raise TypeError(
                f"operators has {missing[0].label}: the library engine cannot run Python operators: must be given with "
                "engine='auto', in the first call for session options"
            )
        if missing and self.engine == "pyop":
            from ortops.engine import pyop

            if self.has_library:
                raise ValueError(
                    f"operators has {missing[0].label}: the pyop engine (Windows) takes operators only in the first "
                    "call for session options"
                )
            for operator in missing:
                pyop.add_operator(operator, operator.bind)
                self.users[operator.domain, operator.name] = operator  # the process has it from now on
        if missing:
            keep_causes()

    def apply(self, options: onnxruntime.SessionOptions) -> None:
        """Let all sessions that are made later have the operators of `register`."""
        if self.engine == "direct":
            self.in_use.register(options, _merged(self.users, self.nodes))

    def add_standard(self, options: onnxruntime.SessionOptions, definitions: Sequence[Operator]) -> None:
        """Let the library engine run ONNX's own nodes by these definitions, in all sessions made later.

        Raises:
            ValueError: a definition is not ONNX's, or the options have the definitions of another opset.
        """
        for one in definitions:
            if one.domain:
                raise ValueError(
                    f"{one.label}: the library engine cannot run such nodes: must be converted (onnx_models.convert), or "
                    "left to another library (standard=False)"
                )
        fitting = [opset for opset in STANDARD_OPSETS if set(definitions) <= set(standard_operators(opset))]
        if not definitions or self.standard in fitting:
            return
        if self.standard is not None:
            raise ValueError(
                f"the session options already have ONNX's operators of opset {self.standard}, which the library engine "
                f"cannot replace: must be new options for opset {fitting[-1]}"
            )
        options.register_custom_ops_library(installed.library_file(fitting[-1]))
        self.standard = fitting[-1]

    @property
    def is_serving(self) -> bool:
        """Whether `register` gave the options an opset."""
        return self.standard is not None or bool(self.nodes)


def _merged(users: Mapping[tuple[str, str], CustomOperator], nodes: Iterable[Operator]) -> list[Operator]:
    """Operators of users, and the definitions of nodes of ONNX and other projects that users have not defined themselves."""
    return [*users.values(), *(node for node in nodes if (node.domain, node.name) not in users)]


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
    operators: CustomOperator | Iterable[CustomOperator] = (),
    opset: int | None = None,
) -> None:
    """Register this project's operators and `operators` with session options, for all sessions made with them.

    Operators that the options already have are not added again.

    Except with the library engine, the function registers onnxruntime-extensions' library, which adds its operators, too.
    Do not pass options that already have this library: ONNX Runtime refuses to make a session from options that have the
    library twice ("Conflicting with a registered kernel").

    Args:
        session_options: options for `onnxruntime.InferenceSession`.
        engine: how ONNX Runtime calls the operators. Session options keep their first engine, and a process cannot use both
            "direct" and "pyop".

            - "direct" uses C functions, has all element types and reports errors as ONNX Runtime does.
            - "library" does the same through shared libraries (`build_library`), which the wheel for Windows contains;
              elsewhere the extra `library` builds them into the cache once. It cannot run your own operators, and does not
              register onnxruntime-extensions' library.
            - "pyop" uses onnxruntime-extensions' Python operators, for float and double only.
            - "auto" is "direct" on Linux and macOS. On Windows it is "library", but "pyop" if `operators` are given or the
              wheel has no libraries.
        operators: your own operators, from `ortops.operator`. They live as long as the options and the sessions.
        opset: the version of ONNX's domain that the models of these sessions import. This project then runs their nodes
            RoiAlign and MaxRoiPool, and the nodes of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows, instead
            of ONNX Runtime's kernels. A model with another opset may get wrong results, since a session has one definition
            of each operator: RoiAlign changed at 16, and 22 added element types. A later call may give another opset, for
            sessions made after it. `ortops.InferenceSession` needs no opset. The library engine runs only ONNX's own nodes,
            and options keep their first definition of them.

    Raises:
        ValueError: engine is unknown, two operators have the same domain and name, or opset is below 1, has a newer version
            of an operator than this project, or is given for the pyop engine; with the library engine, if the options have
            another opset.
        TypeError: session_options is not an onnxruntime.SessionOptions, its class also derives from another onnxruntime
            class, or its ``__init__`` has not run; an element of `operators` was not made by `ortops.operator`, or the
            library or pyop engine cannot run it.
        RuntimeError: the options or the process already use another engine, onnxruntime-extensions lacks a part that the
            engine needs, onnxruntime is too old, or the library is missing and cannot be built.
    """
    check_options(session_options, "session_options")
    users = _by_name(operators)
    exceptions.uninterrupted(lambda: _register(session_options, engine, users.values()))
    registration = _registered[weakref.ref(session_options)]
    nodes = registration.nodes
    if opset is not None:
        if not isinstance(opset, int) or opset < 1:
            raise ValueError(f"opset = {opset!r}: must be an integer >= 1")
        if registration.engine == "pyop":
            raise ValueError(f"opset = {opset}: {_NOT_SERVED}")
        standard = standard_operators(opset)
        if registration.engine == "library":
            exceptions.uninterrupted(lambda: registration.add_standard(session_options, standard))
        else:
            nodes = (*standard, *THIRD_PARTY_DEFINITIONS.values())
    if users.items() - registration.users.items() or nodes != registration.nodes:
        registration.users, registration.nodes = registration.users | users, nodes
        registration.apply(session_options)


def _by_name(operators: CustomOperator | Iterable[CustomOperator]) -> dict[tuple[str, str], CustomOperator]:
    """Operators of users by domain and name.

    Raises:
        TypeError: an element was not made by `ortops.operator`.
        ValueError: two have the same domain and name.
    """
    users: dict[tuple[str, str], CustomOperator] = {}
    for operator in as_operators(operators):
        if not isinstance(operator, CustomOperator):
            raise TypeError(f"operators has {operator!r}: must be made by ortops.operator")
        if users.setdefault((operator.domain, operator.name), operator) is not operator:
            raise ValueError(f"operators has {operator.label} twice: names must be unique")
    return users


def _register(session_options: onnxruntime.SessionOptions, engine: Engine, users: Collection[CustomOperator]) -> None:
    """Give session options an engine that can run operators of users, and its library."""
    with _lock:
        # Not a WeakKeyDictionary: its callbacks are Python code, and an exception that a signal handler raises in them is
        # lost.
        for dead in [reference for reference in _registered if reference() is None]:
            _registered.pop(dead).in_use.release()
        known = _registered.get(weakref.ref(session_options))
        chosen = _engine_for(known.engine if known and known.has_library else None, engine, users)
        registration = _registered.setdefault(weakref.ref(session_options), _Registration(chosen))
        registration.engine = chosen
        registration.check(users)
        if not registration.has_library:
            session_options.register_custom_ops_library(
                installed.library_file(None) if chosen == "library" else extensions.library_path()
            )
            registration.has_library = True


def _engine_for(known: Engine | None, engine: Engine, users: Collection[CustomOperator]) -> Engine:
    """The engine for session options, which may have an engine already.

    Raises:
        ValueError, RuntimeError: as `register`.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine = {engine!r}: must be one of {', '.join(map(repr, get_args(Engine)))}")
    if known is not None and engine not in ("auto", known) and "library" in (engine, known):
        raise RuntimeError(f"engine = {engine!r}: the session options already have {known!r}: must be new options")
    if engine == "auto" and known is None and not users and installed.is_preferred():
        return "library"
    return "library" if "library" in (engine, known) else _select_engine(engine)


def _select_engine(engine: Engine) -> Engine:
    """Add the operators to the library once per process. If both engines added the same name, the library would hang."""
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
    """Add the operators to onnxruntime-extensions' library, and return the engine.

    Raises:
        RuntimeError: the library cannot be imported or lacks a part that the engine needs, or onnxruntime is too old.
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

    global _run_errors  # noqa: PLW0603 - as above
    _run_errors = pyop.RunErrors
    pyop.start()
    for operator in OPERATORS:
        pyop.add_operator(operator, bind)
    return "pyop"


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession with registered operators. It also takes the arguments `operators` and `standard`.

    It runs ONNX's own nodes RoiAlign and MaxRoiPool at the model's opset, in all element types of that opset, and the nodes
    of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows. `standard` controls this.

    The session also calls `register` for its options. If Python raises an exception while an operator runs, such as Ctrl-C's
    KeyboardInterrupt, the session raises the same exception; an onnxruntime.InferenceSession raises an error with the text
    "interrupted". If the function of your own operator raises, its exception is the cause (``__cause__``) of the session's
    error. With the pyop engine, nodes may omit attributes and have lists, and the session raises operators' errors, which
    ONNX Runtime does not see there.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | Any,
        sess_options: onnxruntime.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        operators: CustomOperator | Iterable[CustomOperator] = (),
        standard: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a session as onnxruntime.InferenceSession does, with your own operators (`ortops.operator`).

        Args:
            path_or_bytes: the model, which may have external data. For a model in ONNX Runtime's own format, the opset given
                to `register` decides how nodes of ONNX and other projects run.
            sess_options: the options; they do not change for other sessions. With the library engine, they keep ONNX's own
                operators of the model's opset, and refuse a model whose opset has other definitions.
            providers: execution providers.
            provider_options: the providers' options.
            operators: your own operators.
            standard: True to run nodes of ONNX, mmcv, mmdeploy and detectron2 instead of ONNX Runtime's kernels; False to
                leave the nodes to ONNX Runtime. None means True if the session runs only on the CPU, or if `register` gave
                the options an opset: with another execution provider, the operators would displace its kernels.
            kwargs: other arguments of onnxruntime.InferenceSession.

        Raises:
            TypeError, ValueError: as `register`; or a node has an attribute that its operator lacks, or a function in the
                model uses another version of an operator than the model.
            OrtError: sess_options had onnxruntime-extensions' library before, or ONNX Runtime does not let other operators
                replace its own.
            BaseException: the exception that Python raised in one of our operators.
        """
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_options(options, "sess_options")
        users = _by_name(operators)
        exceptions.uninterrupted(lambda: _register(options, "auto", users.values()))
        self._operator_errors = SessionErrors()
        registration = _registered[weakref.ref(options)]
        self._users = registration.users | users
        self._options, self._standard, self._model = options, standard, path_or_bytes
        operators_in_use = self._operators_in_use(providers)
        if registration.engine == "pyop":
            from ortops.engine.pyop_attributes import with_readable_attributes

            model = with_readable_attributes(path_or_bytes, (*OPERATORS, *self._users.values()))
            if model is not path_or_bytes and not isinstance(path_or_bytes, bytes):
                options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path_or_bytes).resolve().parent))
            path_or_bytes = model
        try:
            with (
                unforked(),
                inside_session(),
                operators_in_use,
                RaiseOperatorErrors(_run_errors, self._operator_errors, is_making=True),
            ):
                super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        except Exception as error:
            if _CONFLICT in str(error):
                raise OrtError(
                    "sess_options have onnxruntime-extensions' library twice, from ortops and from another call of "
                    "register_custom_ops_library: remove the other call, since ortops registers all of the library's "
                    f"operators ({error})"
                ) from error
            alone = _LIBRARY_ALONE if registration.engine == "library" else None
            hint = remedy(str(error), self._model, tuple(self._users.values()), self._nodes, alone)
            if _TWO_LIBRARIES in str(error):
                hint = alone or _OTHER_LIBRARY
            if hint is not None:
                error.args = (f"{str(error).rstrip('.')}. {hint}",)
            raise

    def _operators_in_use(self, providers: Sequence[Any] | None) -> AbstractContextManager[None]:
        """Give the options the session's operators while ONNX Runtime makes the session.

        Raises:
            TypeError, ValueError: as ``__init__``.
        """
        options, standard, registration = self._options, self._standard, _registered[weakref.ref(self._options)]
        if standard not in (None, True, False):
            raise TypeError(f"standard = {standard!r}: must be True, False or None")
        if registration.engine == "pyop" and standard:
            raise ValueError(f"standard = True: {_NOT_SERVED}")
        if standard is False and registration.standard is not None:
            raise ValueError(
                f"standard = False: sess_options already have ONNX's operators of opset {registration.standard}, which the "
                "library engine cannot replace: must be new options"
            )
        serves = registration.engine != "pyop" and standard is not False
        serves = serves and bool(standard or registration.is_serving or has_only_cpu(options, providers))
        nodes: Sequence[Operator] | None = served_operators(self._model, self._users.values(), serves=serves)
        if nodes is None and standard and not registration.is_serving:
            raise ValueError(f"standard = True: {_ORT_FORMAT}")
        if registration.engine == "library":
            exceptions.uninterrupted(lambda: registration.add_standard(options, nodes or []))
        if nodes is None:
            nodes = registration.nodes if serves else ()
        self._nodes = nodes
        if registration.engine != "direct":
            return contextlib.nullcontext()
        return registration.in_use.during(options, _merged(self._users, nodes))

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew as onnxruntime.InferenceSession does; for `standard`, the rule of ``__init__`` holds."""
        with (
            unforked(),
            inside_session(),
            self._operators_in_use(providers),
            RaiseOperatorErrors(_run_errors, self._operator_errors, is_making=True),
        ):
            super().set_providers(providers, provider_options)

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession.run does.

        Raises:
            BaseException: the exception that Python raised in one of our operators, instead of onnxruntime's error.
            ValueError: with the pyop engine, one of our operators refused its input.
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
