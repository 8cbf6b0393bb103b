"""Registers this project's operators and users' operators with ONNX Runtime sessions."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import onnxruntime

from ortops.compute import bind
from ortops.custom_operator import CustomOperator, as_operators
from ortops.engine import extensions
from ortops.engine.c_api import CustomOp
from ortops.engine.direct import custom_ops
from ortops.engine.domains import Domains, check_options
from ortops.engine.errors import SessionErrors, calling, making
from ortops.engine.extensions import OrtError
from ortops.engine.shutdown import awaited_at_exit, register_exit_function
from ortops.jit import exceptions
from ortops.jit.forks import unforked
from ortops.jit.machine_code import keep_forever
from ortops.library import installed
from ortops.library.targets import STANDARD_OPSETS
from ortops.missing import remedy
from ortops.model_nodes import served_operators
from ortops.operators import OPERATORS
from ortops.served import OperatorsInUse, has_only_cpu
from ortops.spec import DOMAIN, Operator
from ortops.standard import standard_operators
from ortops.third_party import THIRD_PARTY_DEFINITIONS

_CONFLICT = "Conflicting with a registered kernel"
"""Part of ONNX Runtime's error message for a library that is registered twice."""

_TWO_LIBRARIES = "Domain already set in registry"
"""Part of ONNX Runtime's error message for options with two domains of the same name."""

_OURS_ALONE = (
    "The session has no operators of onnxruntime-extensions: make new options, and call ortops.register(sess_options, "
    "'direct'), which adds them where onnxruntime-extensions is installed, on Linux and macOS"
)

_ORT_FORMAT = (
    "a model in ONNX Runtime's own format does not contain its opset: must be given by ortops.register(sess_options, "
    "opset=...)"
)

_OTHER_LIBRARY = (
    "sess_options have another library with operators in a domain that ortops also has: make new options. If the library is "
    "one of ortops (python -m ortops library), do not register it, since the session has its operators, or use "
    "onnxruntime.InferenceSession; if it is of another project, pass standard=False"
)

Engine = Literal["auto", "direct", "library"]

_lock = threading.RLock()
_registered: dict[weakref.ref[onnxruntime.SessionOptions], _Registration] = {}


class _Registration:
    """What `register` gave a SessionOptions object. It is kept even if a later call is refused.

    engine: any engine except "auto".
    standard: with the library engine, the opset for which the options define ONNX's own operators.
    users: the operators of users for all sessions of the options, by domain and name.
    nodes: the definitions of nodes of ONNX and other projects for all these sessions.
    in_use: the direct engine's operators of users, and its definitions of nodes of ONNX and other projects.
    ours: its domain of this project, if onnxruntime-extensions does not hold it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.standard: int | None = None
        self.users: dict[tuple[str, str], CustomOperator] = {}
        self.nodes: tuple[Operator, ...] = ()
        self.in_use, self.ours = OperatorsInUse(), Domains()
        self.has_library = False

    def check(self, operators: Iterable[CustomOperator]) -> None:
        """Check that the engine can run operators of users.

        Raises:
            TypeError: the engine cannot run an operator.
        """
        missing = [operator for operator in operators if operator not in self.users.values()]
        if missing and self.engine == "library":
            raise TypeError(
                f"operators has {missing[0].label}: the library engine cannot run Python operators: must be given with "
                "engine='auto', in the first call for session options"
            )

    def apply(self, options: onnxruntime.SessionOptions) -> None:
        """Let all sessions that are made later have the operators of `register`."""
        if self.engine == "direct":
            self.in_use.register(options, _merged(self.users, self.nodes))

    def add_ours(self, options: onnxruntime.SessionOptions) -> None:
        """Add this project's operators.

        Raises:
            OrtError: onnxruntime is too old, or a library is missing and cannot be built.
        """
        if self.engine == "library":
            options.register_custom_ops_library(installed.library_file(None))
        elif extensions.takes_c_operators():
            _add_to_extensions()
            options.register_custom_ops_library(extensions.library_path())
        else:
            self.ours.add(options, DOMAIN, _tables())
        register_exit_function()  # again, to run before the exit functions of packages that are imported by now

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
        RuntimeError: onnxruntime-extensions is not installed or takes no operators, or onnxruntime is too old.
    """
    if not extensions.takes_c_operators():
        raise OrtError(
            "onnxruntime-extensions is not installed or takes no operators here: must be ortops.register(session_options)"
        )
    with _lock:
        exceptions.uninterrupted(_add_to_extensions)
    return str(extensions.library_path())


def register(
    session_options: onnxruntime.SessionOptions,
    engine: Engine | Literal["pyop"] = "auto",
    *,
    operators: CustomOperator | Iterable[CustomOperator] = (),
    opset: int | None = None,
) -> None:
    """Register this project's operators and `operators` with session options, for all sessions made with them.

    Operators that the options already have are not added again.

    With the direct engine on Linux and macOS, the function registers onnxruntime-extensions' library, if it is installed,
    which adds its operators, too. Do not pass options that already have this library: ONNX Runtime refuses to make a session
    from options that have the library twice ("Conflicting with a registered kernel").

    Args:
        session_options: options for `onnxruntime.InferenceSession`.
        engine: how ONNX Runtime calls the operators. Session options keep their first engine.

            - "direct" compiles operators in this process.
            - "library" uses shared libraries (`build_library`), which the wheel for Windows contains; elsewhere the extra
              `library` builds them into the cache once. It cannot run your own operators, and does not register
              onnxruntime-extensions' library.
            - "auto" is "direct", but "library" if a wheel brought libraries, onnxruntime-extensions takes no operators here,
              and no `operators` are given.
            - "pyop", which earlier releases had on Windows, is "auto" with a DeprecationWarning.
        operators: your own operators, from `ortops.operator`. They live as long as the options and the sessions.
        opset: the version of ONNX's domain that the models of these sessions import. This project then runs their nodes
            RoiAlign and MaxRoiPool, and the nodes of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows, instead
            of ONNX Runtime's kernels. A model with another opset may get wrong results, since a session has one definition
            of each operator: RoiAlign changed at 16, and 22 added element types. A later call may give another opset, for
            sessions made after it. `ortops.InferenceSession` needs no opset. The library engine runs only ONNX's own nodes,
            and options keep their first definition of them.

    Raises:
        ValueError: engine is unknown, two operators have the same domain and name, or opset is below 1, has a newer version
            of an operator than this project; with the library engine, if the options have another opset.
        TypeError: session_options is not an onnxruntime.SessionOptions, its class also derives from another onnxruntime
            class, or its ``__init__`` has not run; an element of `operators` was not made by `ortops.operator`, or the
            library engine cannot run it.
        RuntimeError: the options already have another engine, onnxruntime is too old, or a library is missing and cannot be
            built.
    """
    check_options(session_options, "session_options")
    if engine == "pyop":
        message = "engine = 'pyop' is no more, and counts as 'auto', which also runs your own operators"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        engine = "auto"
    users, chosen = _by_name(operators), engine
    exceptions.uninterrupted(lambda: _register(session_options, chosen, users.values()))
    registration = _registered[weakref.ref(session_options)]
    nodes = registration.nodes
    if opset is not None:
        if not isinstance(opset, int) or opset < 1:
            raise ValueError(f"opset = {opset!r}: must be an integer >= 1")
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
            registration = _registered.pop(dead)
            registration.in_use.release()
            registration.ours.release()
        known = _registered.get(weakref.ref(session_options))
        chosen = _engine_for(known.engine if known and known.has_library else None, engine, users)
        registration = _registered.setdefault(weakref.ref(session_options), _Registration(chosen))
        registration.engine = chosen
        registration.check(users)
        if not registration.has_library:
            registration.add_ours(session_options)
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
    return "library" if "library" in (engine, known) else "direct"


@functools.cache
def _tables() -> list[CustomOp]:
    """The OrtCustomOps of this project's operators, which live as long as the process."""
    tables = [made for operator in OPERATORS for made in custom_ops(operator, bind)]
    keep_forever(tables)
    return tables


@functools.cache
def _add_to_extensions() -> None:
    """Add this project's operators to onnxruntime-extensions' library. A thread needs `_lock`."""
    for made in _tables():
        made.add_to_extensions()


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession with registered operators. It also takes the arguments `operators` and `standard`.

    It runs ONNX's own nodes RoiAlign and MaxRoiPool at the model's opset, in all element types of that opset, and the nodes
    of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows. `standard` controls this.

    The session also calls `register` for its options. If Python raises an exception while an operator runs, such as Ctrl-C's
    KeyboardInterrupt, the session raises the same exception; an onnxruntime.InferenceSession raises an error with the text
    "interrupted". If the function of your own operator raises, its exception is the cause (``__cause__``) of the session's
    error.
    """

    @awaited_at_exit
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
        registration = _registered[weakref.ref(options)]
        self._users = registration.users | users
        self._operator_errors = SessionErrors() if self._users else None
        self._options, self._standard, self._model = options, standard, path_or_bytes
        operators_in_use = self._operators_in_use(providers)
        try:
            with making(self._operator_errors), unforked(), operators_in_use:
                super().__init__(path_or_bytes, options, providers, provider_options, **kwargs)
        except Exception as error:
            if _CONFLICT in str(error):
                raise OrtError(
                    "sess_options have onnxruntime-extensions' library twice, from ortops and from another call of "
                    "register_custom_ops_library: remove the other call, since ortops registers all of the library's "
                    f"operators ({error})"
                ) from error
            has_others = registration.engine == "direct" and extensions.takes_c_operators()
            alone = None if has_others else _OURS_ALONE
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
        if standard is False and registration.standard is not None:
            raise ValueError(
                f"standard = False: sess_options already have ONNX's operators of opset {registration.standard}, which the "
                "library engine cannot replace: must be new options"
            )
        serves = standard is not False
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

    @awaited_at_exit
    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew as onnxruntime.InferenceSession does; for `standard`, the rule of ``__init__`` holds."""
        with making(self._operator_errors), unforked(), self._operators_in_use(providers):
            super().set_providers(providers, provider_options)

    @awaited_at_exit
    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession.run does.

        Raises:
            BaseException: the exception that Python raised in one of our operators, instead of onnxruntime's error.
        """
        with calling(self._operator_errors):
            outputs: list[Any] = super().run(output_names, input_feed, run_options)
        return outputs

    @awaited_at_exit
    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: dict[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with calling(self._operator_errors):
            outputs: list[Any] = super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        return outputs

    @awaited_at_exit
    def run_with_ortvaluevector(self, *args: Any, **kwargs: Any) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with calling(self._operator_errors):
            super().run_with_ortvaluevector(*args, **kwargs)

    @awaited_at_exit
    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Run the model as onnxruntime.InferenceSession does, with the exceptions of `run`."""
        with calling(self._operator_errors):
            super().run_with_iobinding(iobinding, run_options)
