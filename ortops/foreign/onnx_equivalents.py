# SPDX-License-Identifier: MIT
"""Operators of mmcv and mmdeploy that ONNX has under other names, with other attributes and another input order.

`onnx_models.convert` replaces them by ONNX's nodes. A session runs them without conversion, at any opset, with ONNX
Runtime's own kernel: each node has an inner session with a single ONNX node, and `THREADS` gives its number of threads.

Results differ from mmdeploy's kernel for ONNX Runtime if a convolution has several groups and several offset groups: here,
as in mmcv, the offset groups divide all channels; in mmdeploy, they divide each group's channels.

Source: mmcv 1.3.1 to 2.2 (mmcv/ops/deform_conv.py and modulated_deform_conv.py, mmcv/onnx/symbolic.py and the kernels in
mmcv/ops/csrc/onnxruntime of 1.7); mmdeploy 1.3 (mmdeploy/mmcv/ops, mmdeploy/pytorch/symbolics/grid_sampler.py,
csrc/mmdeploy/backend_ops/onnxruntime); ONNX operator specification, GridSample-16 and -20, DeformConv-19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import onnx

from ortops.spec import ELEMENT_DTYPES, Allocate, Attribute, AttributeValue, Compute, Operator, Rule, Tensor

if TYPE_CHECKING:
    import onnxruntime


OPSET = 20
"""The opset to which older models are converted. It has all ONNX operators used here, and ONNX Runtime 1.20 supports it."""


@dataclass(frozen=True, slots=True)
class OnnxEquivalent:
    """Another project's operator that is equivalent to an ONNX operator.

    standard: the name of ONNX's operator.
    since: the first opset with ONNX's operator.
    release: the first release of ONNX Runtime, from 1.20 on, that has it on the CPU.
    inputs: the inputs in this operator's order.
    order: the inputs' names in the order of ONNX's operator.
    lengths: the output's axes.
    attributes: the attributes with their rules; `rules` holds rules between attributes.
    convert: turns checked attributes into ONNX's attributes at an opset.
    prepare: changes inputs that ONNX Runtime's kernel cannot take; its arguments are the inputs and the attributes by name.
    """

    name: str
    standard: str
    since: int
    release: str
    inputs: tuple[Tensor, ...]
    order: tuple[str, ...]
    lengths: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    convert: Callable[[Mapping[str, Any], int], dict[str, Any]]
    prepare: Callable[[dict[str, Any], Mapping[str, Any]], None]
    rules: tuple[Rule, ...] = ()
    domain: str = ""

    @property
    def definition(self) -> Operator:
        """The operator's definition."""
        return Operator(
            self.name,
            "",
            "",
            f"ONNX's {self.standard}.",
            self.attributes,
            self.inputs,
            (Tensor("Y", "T", self.lengths),),
            {"T": ("float", "double", "float16")},
            rules=self.rules,
            domain=self.domain,
        )

    def bind(self, _: Operator, attributes: Mapping[str, AttributeValue], kinds: Sequence[str]) -> Compute:
        """Make the function that computes a node with an inner session for ONNX's operator.

        Args:
            attributes: the node's checked attributes.
            kinds: the output's element type.

        Raises:
            RuntimeError: this release of ONNX Runtime lacks ONNX's operator.
        """
        session, names = self._session(attributes, kinds[0]), [tensor.name for tensor in self.inputs]

        def run(inputs: Sequence[Any], allocate: Allocate, _: tuple[int, int] | None) -> None:
            feeds = dict(zip(names, inputs, strict=True))
            if 0 in feeds["X"].shape[2:]:  # onnxruntime 1.20 aborts
                raise ValueError(f"X has shape {list(feeds['X'].shape)}: must have pixels")
            self.prepare(feeds, attributes)
            try:
                (y,) = session.run(None, feeds)
            except Exception as error:
                if not is_of_onnxruntime(error):
                    raise
                raise ValueError(f"as {self.standard} of ONNX: {error}") from error
            allocate(0, y.shape)[...] = y

        return run

    def _session(self, attributes: Mapping[str, AttributeValue], kind: str) -> onnxruntime.InferenceSession:
        import onnxruntime

        model, threads = self._model(attributes, kind), THREADS.get()
        known = _sessions.get((model, threads))
        session = None if known is None else known()
        if session is not None:
            return session
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.enable_cpu_mem_arena = False
        # The threads of the session around this one need the processors.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"], enable_fallback=0)
        except Exception as error:
            if not is_of_onnxruntime(error):
                raise
            raise RuntimeError(
                f"onnxruntime {onnxruntime.__version__} cannot run it as ONNX's {self.standard}: must be {self.release} "
                f"or a later release ({error})"
            ) from error
        for key in [key for key, reference in list(_sessions.items()) if reference() is None]:
            _sessions.pop(key, None)
        _sessions[model, threads] = ref(session)
        return session

    def _model(self, attributes: Mapping[str, AttributeValue], kind: str) -> bytes:
        """A model with a single ONNX node."""
        number = onnx.helper.np_dtype_to_tensor_dtype(ELEMENT_DTYPES[kind])
        node = onnx.helper.make_node(self.standard, self.order, ["Y"], **self.convert(attributes, OPSET))
        inputs = [onnx.helper.make_tensor_value_info(tensor.name, number, tensor.shape) for tensor in self.inputs]
        output = onnx.helper.make_tensor_value_info("Y", number, self.lengths)
        model = onnx.helper.make_model(
            onnx.helper.make_graph([node], self.standard, inputs, [output]),
            opset_imports=[onnx.helper.make_opsetid("", OPSET)],
            ir_version=9,
        )
        return bytes(model.SerializeToString())


# A WeakValueDictionary would lose exceptions that a signal handler raises in its callbacks.
_sessions: dict[tuple[bytes, int], ref[onnxruntime.InferenceSession]] = {}
"""The inner sessions in use, by model and threads: a network has many nodes with the same attributes."""

THREADS = ContextVar("THREADS", default=0)
"""The number of threads of the session that is being made, if known; 0 for one thread per core."""


def is_of_onnxruntime(error: Exception) -> bool:
    """Whether ONNX Runtime raised an error, and not a signal handler or Python."""
    return type(error).__module__.partition(".")[0] == "onnxruntime"


def _grid_sample(values: Mapping[str, Any], opset: int) -> dict[str, Any]:
    modes = ("linear", "nearest", "cubic") if opset >= 20 else ("bilinear", "nearest", "bicubic")
    return {
        "mode": modes[values["interpolation_mode"]],
        "padding_mode": ("zeros", "border", "reflection")[values["padding_mode"]],
        "align_corners": values["align_corners"],
    }


def _deform_conv(values: Mapping[str, Any], _: int) -> dict[str, Any]:
    padding = values["padding"]
    ends = padding if len(padding) == 2 else padding[::2]
    return {
        "strides": values["stride"],
        "pads": (*ends, *ends),
        "dilations": values["dilation"],
        "group": values["groups"],
        "offset_group": values["deform_groups"],
    }


_FAR = 2.0**30
"""A coordinate so large that float32's precision is coarser than the reflected map's period, which is 2 or 4."""


def _without_far_reflections(inputs: dict[str, Any], attributes: Mapping[str, Any]) -> None:
    """Clip reflected coordinates beyond 2**31, which make onnxruntime 1.20 to 1.25 read out of bounds."""
    if attributes["padding_mode"] == 2:
        far = min(_FAR, float(np.finfo(inputs["grid"].dtype).max))
        inputs["grid"] = inputs["grid"].clip(-far, far)


def _with_bias(inputs: dict[str, Any], _: Mapping[str, Any]) -> None:
    if inputs.get("bias", ()) is None:
        inputs["bias"] = np.zeros(inputs["weight"].shape[:1], inputs["weight"].dtype)


def _is_padding(values: Sequence[Any]) -> bool:
    (padding,) = values
    return len(padding) == 2 or (len(padding) == 4 and padding[0] == padding[1] and padding[2] == padding[3])


_PADDING = Rule(
    ("padding",),
    _is_padding,
    "padding = {padding}: must be height and width, or each of them twice",
    {"padding": (1, 2, 1, 2)},
)


def _number(name: str, minimum: int, maximum: int | None = None) -> Attribute:
    return Attribute(name, "INT", minimum=minimum, maximum=maximum, required=True)


def _pair(name: str) -> Attribute:
    return Attribute(name, "INTS", minimum=1, axes=(f"{name}_height", f"{name}_width"), required=True)


_CONVOLUTION = (
    _pair("stride"),
    Attribute("padding", "INTS", minimum=0, any_length=True, required=True),
    _pair("dilation"),
    _number("groups", 1),
    _number("deform_groups", 1),
)
_X = Tensor("X", "T", ("N", "C", "H", "W"))
_OFFSET = Tensor("offset", "T", ("N", "num_offsets", "output_height", "output_width"))
_MASK = Tensor("mask", "T", ("N", "num_samples", "output_height", "output_width"))
_WEIGHT = Tensor("weight", "T", ("M", "channels_of_group", "kernel_height", "kernel_width"))
_BIAS = Tensor("bias", "T", ("M",), optional=True)
_CONVOLVED = ("N", "M", "output_height", "output_width")

ONNX_EQUIVALENTS = (
    OnnxEquivalent(
        "grid_sampler",
        "GridSample",
        16,
        "1.20",
        (_X, Tensor("grid", "T", ("N", "output_height", "output_width", 2))),
        ("X", "grid"),
        ("N", "C", "output_height", "output_width"),
        (_number("interpolation_mode", 0, 2), _number("padding_mode", 0, 2), _number("align_corners", 0, 1)),
        _grid_sample,
        _without_far_reflections,
    ),
    OnnxEquivalent(
        "MMCVModulatedDeformConv2d",
        "DeformConv",
        19,
        "1.25",
        (_X, _OFFSET, _MASK, _WEIGHT, _BIAS),
        ("X", "weight", "offset", "bias", "mask"),
        _CONVOLVED,
        _CONVOLUTION,
        _deform_conv,
        _with_bias,
        (_PADDING,),
    ),
    OnnxEquivalent(
        "MMCVDeformConv2d",
        "DeformConv",
        19,
        "1.25",
        (_X, _OFFSET, _WEIGHT),
        ("X", "weight", "offset"),
        _CONVOLVED,
        # mmcv's exporter writes two more: bias, always 0, and the number of images that a kernel takes at once.
        (
            *_CONVOLUTION,
            Attribute("bias", "INT", 0, minimum=0, maximum=0),
            Attribute("im2col_step", "INT", 32, minimum=1),
        ),
        _deform_conv,
        _with_bias,
        (_PADDING,),
    ),
)
"""Operators in the domains mmcv and mmdeploy."""
