# SPDX-License-Identifier: MIT
"""Registers this project's operators and users' operators with ONNX Runtime sessions."""

from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from ortops import exceptions
from ortops.custom.operator import CustomOperator, as_operators, check_domain
from ortops.engine import extensions
from ortops.engine.c_api import Domains, LibraryOp
from ortops.engine.errors import SessionErrors, calling, making
from ortops.engine.extensions import OrtError
from ortops.engine.shutdown import awaited_at_exit, register_exit_function
from ortops.foreign.cast_samples import cast_samples, lacks_grid_sample
from ortops.foreign.deformable_attention import fuse
from ortops.foreign.error_hints import hint_for
from ortops.foreign.model_nodes import ServedNodes, identity_of, parsed, served_nodes
from ortops.foreign.near_names import near_names
from ortops.foreign.onnx_equivalents import is_of_onnxruntime
from ortops.foreign.served import OperatorsInUse, has_only_cpu, ops_of
from ortops.foreign.standard import standard_operators
from ortops.foreign.third_party import THIRD_PARTY_DEFINITIONS
from ortops.forks import unforked
from ortops.operators import OPERATORS
from ortops.runtime import library
from ortops.spec import DOMAIN, Operator

_CONFLICT = "Conflicting with a registered kernel"
"""Part of ONNX Runtime's error message for a library that is registered twice."""

_TWO_LIBRARIES = "Domain already set in registry"
"""Part of ONNX Runtime's error message for options with two domains of the same name."""

_OURS_ALONE = (
    "The session has no operators of onnxruntime-extensions: make new options, and call ortops.register(sess_options), "
    "which adds them where onnxruntime-extensions is installed, on Linux and macOS; elsewhere register its library and give "
    "ours another domain, ortops.register(sess_options, domain='com.example')"
)

_OTHER_LIBRARY = (
    "sess_options have another library with operators in a domain that ortops also has: make new options. If the library is "
    "one of ortops (python -m ortops library) or, but for Windows, that of onnxruntime-extensions, do not register it: "
    "the session has its operators, or use onnxruntime.InferenceSession; on Windows give ours another domain, "
    "ortops.register(sess_options, domain='com.example'); if it is of another project, pass standard=False"
)

_FOLDER = "session.model_external_initializers_file_folder_path"
"""The key of session options for the folder with the external data of a model that a session gets as bytes."""

_lock = threading.RLock()
_registered: dict[weakref.ref[onnxruntime.SessionOptions], _Registration] = {}


class _Registration:
    """What `register` gave a SessionOptions object. It is kept even if a later call is refused.

    domain: the name of this project's domain in the options; "" before they have it.
    users: the operators of users for all sessions of the options, by domain and name.
    nodes: the definitions of nodes of ONNX and other projects for all these sessions.
    in_use: the operators of users, and the definitions of nodes of ONNX and other projects.
    folder: the folder of external data, as the options have it.
    """

    def __init__(self) -> None:
        self.domain = ""
        self.users: dict[tuple[str, str], CustomOperator] = {}
        self.nodes: tuple[Operator, ...] = ()
        self.folder = ""
        self._domains = Domains()
        self.in_use = OperatorsInUse(self._domains)

    def add_ours(self, options: onnxruntime.SessionOptions, domain: str | None) -> None:
        """Add this project's operators, unless the options have them.

        Raises:
            ValueError: the options have them in another domain.
            OrtError: onnxruntime is too old.
            RuntimeError: there is no library.
        """
        if self.domain:
            if domain not in (None, self.domain):
                raise ValueError(f"domain = {domain!r}: the session options have {self.domain!r}: must be new options")
            return
        if domain in (None, DOMAIN) and extensions.takes_c_operators():
            _add_to_extensions()
            options.register_custom_ops_library(extensions.library_path())
        else:
            self._domains.add(options, domain or DOMAIN, _ops_of_ours())
        self.domain = domain or DOMAIN
        register_exit_function()  # again, to run before the exit functions of packages that are imported by now

    def release(self) -> None:
        """Release the domains. The options must be gone."""
        self._domains.release()


def _merged(users: Mapping[tuple[str, str], CustomOperator], nodes: Iterable[Operator]) -> list[Operator]:
    """Operators of users, and the definitions of nodes of ONNX and other projects that users have not defined themselves."""
    return [*users.values(), *(node for node in nodes if (node.domain, node.name) not in users)]


def library_path() -> str:
    """The path of the library that sessions register, with this project's operators.

    It is the library of onnxruntime-extensions, to which they have been added, if that is installed and takes operators, and
    otherwise the library of this package. Pass it to `SessionOptions.register_custom_ops_library`; `register` and
    `ortops.InferenceSession` do that themselves.

    Raises:
        RuntimeError: onnxruntime is too old, or there is no library.
    """
    if not extensions.takes_c_operators():
        return library().path
    with _lock:
        exceptions.run_shielded(_add_to_extensions)
    return str(extensions.library_path())


def register(
    session_options: onnxruntime.SessionOptions,
    engine: str | None = None,
    *,
    operators: CustomOperator | Iterable[CustomOperator] = (),
    opset: int | None = None,
    domain: str | None = None,
) -> None:
    """Register this project's operators and `operators` with session options, for all sessions made with them.

    Operators that the options already have are not added again.

    On Linux and macOS, the function registers onnxruntime-extensions' library, if it is installed, which adds its operators,
    too. Do not pass options that already have this library: ONNX Runtime refuses to make a session from options that have
    it twice ("Conflicting with a registered kernel").

    Args:
        session_options: options for `onnxruntime.InferenceSession`.
        engine: has no effect. Values of earlier releases count as None, with a DeprecationWarning.
        operators: your own operators, from `ortops.operator`. They live as long as the options and the sessions.
        opset: the version of ONNX's domain that the models of these sessions import. This project then runs their nodes
            RoiAlign and MaxRoiPool, and the nodes of mmcv, mmdeploy and detectron2 that `onnx_models.convert` knows, instead
            of ONNX Runtime's kernels. A model with another opset may get wrong results, since a session has one definition
            of each operator: RoiAlign changed at 16, and 22 added element types. A later call may give another opset, for
            sessions made after it. `ortops.InferenceSession` needs no opset.
        domain: the domain of this project's operators; "ai.onnx.contrib" for None. With another one, for models that
            `onnx_models.convert` wrote with the same domain, onnxruntime-extensions' library is left to the caller.

    Raises:
        ValueError: two operators have the same domain and name, opset is below 1 or has a newer version of an operator than
            this project, or the domain is no name, or another one than the options have.
        TypeError: session_options is not an onnxruntime.SessionOptions, or an element of `operators` was not made by
            `ortops.operator`.
        RuntimeError: onnxruntime is too old, or there is no library.
    """
    _check_options(session_options, "session_options")
    if engine is not None:
        if engine not in _OLD_ENGINES:
            raise ValueError(f"engine = {engine!r}: must be None")
        warnings.warn(f"engine = {engine!r} has no effect any more", DeprecationWarning, stacklevel=2)
    if domain is not None:
        check_domain(domain)
    users = _by_name(operators)
    registration: _Registration = exceptions.run_shielded(lambda: _register(session_options, domain))
    nodes = registration.nodes
    if opset is not None:
        if not isinstance(opset, int) or opset < 1:
            raise ValueError(f"opset = {opset!r}: must be an integer >= 1")
        nodes = (*standard_operators(opset), *THIRD_PARTY_DEFINITIONS.values())
    if users.items() - registration.users.items() or nodes != registration.nodes:
        registration.users, registration.nodes = registration.users | users, nodes
        registration.in_use.register(session_options, _merged(registration.users, nodes))


_OLD_ENGINES = ("auto", "direct", "library", "pyop")


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


def _check_options(options: object, name: str) -> None:
    """Check that an argument of this name is session options.

    Raises:
        TypeError: it is not an onnxruntime.SessionOptions.
    """
    if onnxruntime.SessionOptions not in type.mro(type(options)):  # what the object and its class say may not be true
        raise TypeError(f"{name} is a {type(options).__name__}: must be an onnxruntime.SessionOptions")


def _register(session_options: onnxruntime.SessionOptions, domain: str | None) -> _Registration:
    """Give session options this project's operators."""
    with _lock:
        # Not a WeakKeyDictionary: its callbacks are Python code, and an exception that a signal handler raises in them is
        # lost.
        for dead in [reference for reference in _registered if reference() is None]:
            _registered.pop(dead).release()
        registration = _registered.setdefault(weakref.ref(session_options), _Registration())
        registration.add_ours(session_options, domain)
        return registration


def _ops_of_ours() -> list[LibraryOp]:
    """New OrtCustomOps of this project's operators."""
    return [op for operator in OPERATORS for op in ops_of(operator)]


@functools.cache
def _add_to_extensions() -> None:
    """Add this project's operators to onnxruntime-extensions' library, for good. A thread needs `_lock`."""
    for op in _ops_of_ours():
        extensions.add_c_operator(op.address)


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession with registered operators. It also takes the arguments `operators` and `standard`.

    It runs ONNX's own nodes RoiAlign and MaxRoiPool at the model's opset, in all element types of that opset, and the nodes
    of mmcv, mmdeploy, detectron2 and TensorRT that `onnx_models.convert` knows. It computes deformable attention of standard
    nodes by MSDeformAttn, as `onnx_models.fuse` writes it, and casts the inputs of GridSample nodes for whose types ONNX
    Runtime has no kernel. `standard` controls all of this.

    The session also calls `register` for its options. If Python raises an exception while an operator runs, such as Ctrl-C's
    KeyboardInterrupt, the session raises the same exception; an onnxruntime.InferenceSession raises an error with the text
    "interrupted". If the function of your own operator raises, its exception is the cause (``__cause__``) of the session's
    error.
    """

    _found: ServedNodes

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
            path_or_bytes: the model, which may have external data or be in ONNX Runtime's own format.
            sess_options: the options; they do not change for other sessions.
            providers: execution providers.
            provider_options: the providers' options.
            operators: your own operators.
            standard: True to run nodes of ONNX, mmcv, mmdeploy and detectron2 instead of ONNX Runtime's kernels; False to
                leave the nodes to ONNX Runtime. None means True if the session runs only on the CPU, or if `register` gave
                the options an opset: with another execution provider, the operators would displace its kernels.
            kwargs: other arguments of onnxruntime.InferenceSession.

        Raises:
            TypeError, ValueError: as `register`; or a node has an attribute that its operator lacks, a function in the model
                uses another version of an operator than the model, the model is a ModelProto, or the name of an argument is
                misspelt.
            OrtError: sess_options had onnxruntime-extensions' library before, or ONNX Runtime does not let other operators
                replace its own.
            BaseException: the exception that Python raised in one of our operators.
        """
        if isinstance(path_or_bytes, onnx.ModelProto):
            raise TypeError("path_or_bytes is a ModelProto: must be a path or bytes, such as model.SerializeToString()")
        for name in kwargs:
            if near := near_names(name, ("operators", "standard")):
                raise TypeError(f"InferenceSession has no argument {name!r} ({near[0]}?)")
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        _check_options(options, "sess_options")
        users = _by_name(operators)
        self._registration: _Registration = exceptions.run_shielded(lambda: _register(options, None))
        self._users = self._registration.users | users
        self._operator_errors = SessionErrors() if self._users else None
        self._options, self._standard, self._model = options, standard, path_or_bytes
        self._find_nodes(providers)
        init = super().__init__
        try:
            self._make(lambda model: init(model, options, providers, provider_options, **kwargs))
        except Exception as error:
            if _CONFLICT in str(error):
                raise OrtError(
                    "sess_options have onnxruntime-extensions' library twice, from ortops and from another call of "
                    "register_custom_ops_library: remove the other call, since ortops registers all of the library's "
                    f"operators ({error})"
                ) from error
            alone = None if self._registration.domain == DOMAIN and extensions.takes_c_operators() else _OURS_ALONE
            hint = hint_for(str(error), self._model, tuple(self._users.values()), self._found.definitions, alone)
            if _TWO_LIBRARIES in str(error):
                hint = _OTHER_LIBRARY
            if hint is not None:
                error.args = (f"{str(error).rstrip('.')}. {hint}",)
            raise

    def __reduce__(self) -> Any:
        """Refuse to be pickled, as onnxruntime.InferenceSession does."""
        raise TypeError("cannot pickle an ortops.InferenceSession: make it in each process")

    def _make(self, make: Callable[[Any], None]) -> None:
        """Have ONNX Runtime make the session from the model, or from one that ortops has changed.

        It makes it from the model itself if it cannot from one with MSDeformAttn in place of other nodes.
        """
        changed = parsed(self._model) if self._serves and "GridSample" in self._found.seen else None
        if changed is not None and fuse(changed, self._registration.domain):
            try:
                self._make_changed(changed, make)
            except Exception as error:
                if not is_of_onnxruntime(error):
                    raise
            else:
                fused = [identity_of(node) for node in changed.graph.node if node.op_type == "MSDeformAttn"]
                self._found = self._found._replace(nodes=[*dict.fromkeys([*self._found.nodes, *fused])])
                return
        try:
            self._make_from(self._model, make)
        except Exception as error:
            if changed is None or not lacks_grid_sample(error) or not cast_samples(changed):
                raise
            self._search(changed.SerializeToString())
            self._make_changed(changed, make)

    def _make_changed(self, changed: onnx.ModelProto, make: Callable[[Any], None]) -> None:
        """Have ONNX Runtime make the session from a changed model, whose external data is where it was."""
        is_external = any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in changed.graph.initializer)
        is_file = is_external and not isinstance(self._model, bytes)
        folder = str(Path(os.fsdecode(self._model)).absolute().parent) if is_file else ""
        if folder != self._registration.folder:
            self._options.add_session_config_entry(_FOLDER, folder)
            self._registration.folder = folder
        self._make_from(changed.SerializeToString(), make)
        self._remake_from(self._model)

    def _make_from(self, model: Any, make: Callable[[Any], None]) -> None:
        """Have ONNX Runtime make the session from a model, while the options have the session's operators."""
        with making(self._operator_errors), unforked():
            operators = _merged(self._users, self._found.definitions)
            self._registration.in_use.during(self._options, operators, functools.partial(make, model))

    def _remake_from(self, model: Any) -> None:
        """Have onnxruntime's class make the session from a model when providers change; it does not keep other bytes."""
        self._model_path: Any = None if isinstance(model, bytes) else os.fspath(model)
        self._model_bytes: Any = model if isinstance(model, bytes) else None

    def _find_nodes(self, providers: Sequence[Any] | None) -> None:
        """Find the nodes of the model that the session's operators compute, and their definitions.

        Raises:
            TypeError, ValueError: as ``__init__``.
        """
        options, standard, registration = self._options, self._standard, self._registration
        if standard not in (None, True, False):
            raise TypeError(f"standard = {standard!r}: must be True, False or None")
        serves = standard is not False
        self._serves = serves and bool(standard or registration.nodes or has_only_cpu(options, providers))
        self._search(self._model)

    def _search(self, model: Any) -> None:
        """Find the nodes and definitions in the model that ONNX Runtime gets."""
        domain = self._registration.domain
        self._found = served_nodes(model, self._users.values(), domain=domain, serves=self._serves)

    def ortops_nodes(self) -> list[tuple[str, str]]:
        """The nodes that ortops computes, in the model's graph, its subgraphs and its functions.

        Other nodes, also those that an optimization of ONNX Runtime adds, are ONNX Runtime's own. In a profile of ONNX
        Runtime, the events of these nodes have one of these operators as ``args["op_name"]``.

        Returns:
            The name and the operator of each node, such as ``("/head/RoiAlign", "RoiAlign")``. The name is that of the
            node's first output if the node has none. An attention that the session computes by MSDeformAttn is one node.
        """
        return list(self._found.nodes)

    @awaited_at_exit
    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew as onnxruntime.InferenceSession does; for `standard`, the rule of ``__init__`` holds."""
        self._find_nodes(providers)
        set_providers = super().set_providers

        def make(model: Any) -> None:
            self._remake_from(model)
            set_providers(providers, provider_options)

        self._make(make)

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
