# SPDX-License-Identifier: MIT
"""The C tables between operators and ONNX Runtime: OrtApi, whose functions we call, and OrtCustomOp, which it calls.

Session options have OrtCustomOps in domains, so that the sessions of each have operators of their own.

Later releases only append to both, so a function keeps its position. Source: onnxruntime_c_api.h, API version 20.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple, TypeAlias

from ortops.engine.extensions import OrtError
from ortops.exceptions import run_shielded
from ortops.native.interface import REQUIRED, TensorTypes
from ortops.native.ort.types import API_FUNCTIONS, API_VERSION, Table
from ortops.native.structs import offset_of
from ortops.runtime import PROCESS, library

ANY_TYPE = 0
"""The type of an input that may have any element type (ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED)."""

_LATER_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "KernelInfoGetAttributeArray_string": ((1, 27), 417, c_void_p, c_char_p, c_void_p, c_void_p, c_void_p)
}
"""Functions of later releases, each with the oldest release known to have it."""


class Api:
    """An OrtApi table's functions as ctypes functions, with their C names."""

    def __init__(self, address: int) -> None:
        self.address, self._table = address, ctypes.cast(address, POINTER(c_void_p))
        self.addresses: dict[str, int] = {name: self._table[place] for name, (place, *_) in API_FUNCTIONS.items()}

    def __getattr__(self, name: str) -> Any:
        """A function, declared when it is first needed, since that of all takes a millisecond."""
        if name in API_FUNCTIONS:
            _, *arguments = API_FUNCTIONS[name]
            address = self.addresses[name]
        elif name in _LATER_FUNCTIONS and onnxruntime_version() >= _LATER_FUNCTIONS[name][0]:
            _, slot, *arguments = _LATER_FUNCTIONS[name]
            address = self._table[slot]
        else:
            raise AttributeError(f"{name} is not among the functions of OrtApi that are declared here")
        result = None if name.startswith("Release") else c_char_p if name == "GetErrorMessage" else c_void_p
        function = ctypes.CFUNCTYPE(result, *arguments)(address)
        setattr(self, name, function)
        return function

    def check(self, status: int | None) -> None:
        """Raise OrtError with a status's message, and release the status. A null status means success."""
        if status:
            message = self.GetErrorMessage(status).decode(errors="replace")
            self.ReleaseStatus(status)
            raise OrtError(message)

    def succeeds(self, status: int | None) -> bool:
        """Release a status, and return whether it means success."""
        if status:
            self.ReleaseStatus(status)
        return not status


api_at = functools.cache(Api)
"""The OrtApi at an address."""


Callback: TypeAlias = Callable[[int], Any]


class TensorType(NamedTuple):
    """An operator's input or output: a value of `ELEMENT_TYPES` or ANY_TYPE; required, optional or variadic."""

    element_type: int
    presence: int = REQUIRED


class Op:
    """An OrtCustomOp.

    Args:
        table: the OrtCustomOp.

    Attributes:
        address: its address.
    """

    def __init__(self, table: Table) -> None:
        self.address, self._table = ctypes.addressof(table), table
        self._names: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def rename(self, name: str) -> None:
        """Give the operator another name, for sessions made from now on."""
        self._table.signature.name = self._text(name)

    def rename_for(self, maker: Any, name: str) -> None:
        """Give the operator another name, for sessions that one thread makes.

        Args:
            maker: an int64 of ctypes that outlives the operator, with the thread's number, or with 0 for no thread.
            name: the name.
        """
        self._table.maker_name = self._text(name)
        self._table.maker = maker

    def _text(self, name: str) -> int:
        # Earlier names stay in memory, since a thread that makes a session may be reading them.
        return ctypes.addressof(self._names.setdefault(name, ctypes.create_string_buffer(name.encode())))


class CustomOp(Op):
    """An OrtCustomOp of version 1, for one combination of the outputs' element types.

    ONNX Runtime may use it while this object lives.

    ONNX Runtime calls `create` with an OrtKernelInfo's address, the function that `create` returns with an
    OrtKernelContext's address, and `infer` with an OrtShapeInferContext's address. They return 0 for success, else an
    OrtStatus. If they raise, the exception is stored for the thread (`exceptions.take`) and ONNX Runtime gets a status with
    the text "interrupted".

    Args:
        name: the operator's name.
        label: the operator's name in messages.
        inputs: the operator's inputs.
        outputs: the operator's outputs.
        create: returns the function that computes a node, or a status. Without it, sessions can be made but not run.
        infer: sets the outputs' shapes.

    """

    def __init__(
        self,
        name: str,
        label: str,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        create: Callback | None = None,
        infer: Callback | None = None,
    ) -> None:
        # Short, since the callbacks write it into a buffer, and `errors.calling` looks for its end.
        prefix = ctypes.create_string_buffer(f"{label:.50}: interrupted by ".encode())
        # `Table` may have too little room for the tensors, which come last.
        first, size = offset_of(Table, "signature", "tensors"), ctypes.sizeof(TensorTypes)
        memory = ctypes.create_string_buffer(ctypes.sizeof(Table) + size * max(len(inputs), len(outputs)))
        table = Table.from_buffer(memory)
        super().__init__(table)
        self.rename(name)
        table.prefix = ctypes.addressof(prefix)
        table.signature.input_count, table.signature.output_count = len(inputs), len(outputs)
        table.create, table.infer = (id(function) if function else 0 for function in (create, infer))
        table.api = ort_api().address
        for i, (element_type, presence) in enumerate(inputs):
            types = TensorTypes.from_buffer(memory, first + i * size)
            types.input_type, types.input_presence = element_type, presence
        for i, (element_type, presence) in enumerate(outputs):
            types = TensorTypes.from_buffer(memory, first + i * size)
            types.output_type, types.output_presence = element_type, presence
        library().function("fill_callbacks", c_uint64, c_uint64)(self.address, API_VERSION)
        self._used = prefix, create, infer


class LibraryOp(Op):
    """An OrtCustomOp of one of the library's operators, for one combination of its element types.

    Args:
        operator: the address of the operator (`TypedOperator`). The OrtCustomOp lives until `release` and until no kernel
            uses it.
    """

    def __init__(self, operator: int) -> None:
        api, (major, minor) = ort_api().address, onnxruntime_version()
        address = _make_table()(operator, api, 1000 * major + minor)
        if not address:
            raise MemoryError("out of memory for an operator")
        super().__init__(Table.from_address(address))

    @property
    def kernels(self) -> int:
        """The number of kernels that use it."""
        return self._table.references - 1

    def release(self) -> None:
        """End the use by session options."""
        library().function("release_table", c_int64)(self.address)


@functools.cache
def _make_table() -> Callable[..., int]:
    return library().function("make_table", *[c_int64] * 3)


def onnxruntime_version() -> tuple[int, ...]:
    """The major and minor version of the installed onnxruntime."""
    import onnxruntime

    return tuple(map(int, onnxruntime.__version__.split(".")[:2]))


_capture_lock = threading.RLock()
_api_address: list[int] = []


def ort_api() -> Api:
    """The OrtApi of the onnxruntime that this process imports.

    Raises:
        OrtError: onnxruntime is older than 1.20, or refuses the library.
        RuntimeError: there is no library.
    """
    if not _api_address:
        import onnxruntime

        captured_address(onnxruntime.SessionOptions())
    return api_at(_api_address[0])


def captured_address(options: Any) -> int:
    """The address of the OrtSessionOptions of Python's options, which have the library from now on.

    ONNX Runtime hands it to each library that options register, with the address of OrtApiBase. For this thread, the library
    stores both and adds no operators.

    Raises:
        OrtError, RuntimeError: as `ort_api`.
    """
    address: int = run_shielded(lambda: _capture(options))
    return address


def _capture(options: Any) -> int:
    import onnxruntime

    if onnxruntime_version() < (1, API_VERSION):
        raise OrtError(f"onnxruntime is {onnxruntime.__version__}: must be 1.{API_VERSION} or later")
    path = library().path
    with _capture_lock:
        PROCESS.options, PROCESS.capturing = 0, threading.get_ident()
        try:
            options.register_custom_ops_library(path)
        except Exception as error:
            raise OrtError(f"onnxruntime {onnxruntime.__version__} cannot load {path}: {error}") from error
        finally:
            PROCESS.capturing = 0
        address, base = PROCESS.options, PROCESS.api_base
        if not address:
            raise OrtError(f"onnxruntime {onnxruntime.__version__} did not call RegisterCustomOps of {path}")
        if not _api_address:
            get_api = c_uint64.from_address(base).value
            _api_address.append(int(ctypes.CFUNCTYPE(c_void_p, c_uint32)(get_api)(API_VERSION)))
    return address


class Domains:
    """A SessionOptions object's custom domains. This object must live as long as the options use the operators.

    ONNX Runtime's options hold addresses of domains, and domains hold addresses of operators; neither owns them. A new
    session copies what it needs, and its kernels keep their operators alive (`ortops.custom.kernel`).
    """

    def __init__(self) -> None:
        self._address = 0
        self._handles: dict[str, tuple[Any, int]] = {}
        self._operators: list[CustomOp | LibraryOp] = []

    def add(self, options: Any, domain: str, operators: Iterable[CustomOp | LibraryOp]) -> None:
        """Add operators to a domain of the options, for sessions made later with these options.

        Raises:
            OrtError: ONNX Runtime refuses the domain or an operator.
        """
        api = ort_api()
        if domain not in self._handles:
            self._address = self._address or captured_address(options)
            name, handle = ctypes.create_string_buffer(domain.encode()), c_void_p()
            api.check(api.CreateCustomOpDomain(ctypes.cast(name, c_char_p), byref(handle)))
            self._handles[domain] = name, int(handle.value or 0)
            api.check(api.AddCustomOpDomain(self._address, handle))
        for operator in operators:
            self._operators.append(operator)
            api.check(api.CustomOpDomain_Add(self._handles[domain][1], operator.address))

    def release(self) -> None:
        """Release the domains and the library's operators. The options must be gone."""
        for _, handle in self._handles.values():
            ort_api().ReleaseCustomOpDomain(handle)
        for operator in self._operators:
            if isinstance(operator, LibraryOp):
                operator.release()
