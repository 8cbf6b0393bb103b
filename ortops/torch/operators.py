# SPDX-License-Identifier: MIT
"""The PyTorch operators ``torch.ops.ortops.*``: their kernels, fake kernels and gradients.

roi_align has these operators. Those of roi_align_rotated have one more option, and those of ps_roi_align lack `aligned`:

    roi_align(input, rois, scale, output_height, output_width, sampling_ratio, aligned) -> output
    roi_align_dx(grad, rois, input_shape, scale, sampling_ratio, aligned) -> gradient with respect to input
    roi_align_drois(grad, rois, input, scale, sampling_ratio, aligned) -> gradient with respect to rois

roi_align is linear in the input, so the gradients of roi_align_dx are roi_align and roi_align_drois. A maximum is linear
only while the same pixels are the maxima:

    roi_pool(input, rois, scale, output_height, output_width) -> output
    roi_pool_dx(grad, rois, input, scale) -> gradient with respect to input
    roi_pool_at_maxima(values, rois, input, scale, output_height, output_width) -> the values at input's maxima
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ortops.compute import Bound, runner_on
from ortops.memory import for_kernels
from ortops.operators.max_roi_pool import MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD
from ortops.operators.ps_roi_align import PS_ROI_ALIGN, PS_ROI_ALIGN_GRAD
from ortops.operators.roi_align import ROI_ALIGN_22, ROI_ALIGN_GRAD
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD
from ortops.shapes import Shape
from ortops.spec import Operator
from ortops.torch.autograd import Jvp, differentiate

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Family:
    """An operator and its gradient.

    name: the operator's name in PyTorch.
    rois: the name of its RoIs in errors.
    columns: the number of columns of a RoI, including the image index.
    options: the arguments after scale and sizes, in PyTorch's schema language.
    attributes: takes the scale and the options; returns the ONNX operators' attributes.
    """

    name: str
    rois: str
    columns: int
    forward: Operator
    gradient: Operator
    options: str
    attributes: Callable[..., dict[str, Any]]


def attributes_of_roi_align(scale: float, sampling_ratio: int, aligned: bool) -> dict[str, Any]:
    """The attributes of ONNX's RoiAlign, except the size, from torchvision's arguments."""
    mode = "half_pixel" if aligned else "output_half_pixel"
    return {"spatial_scale": scale, "sampling_ratio": max(sampling_ratio, 0), "coordinate_transformation_mode": mode}


def attributes_of_rotated(scale: float, sampling_ratio: int, aligned: bool, clockwise: bool) -> dict[str, Any]:
    """The attributes of RoIAlignRotated, except the size, from mmcv's arguments."""
    flags = {"aligned": int(aligned), "clockwise": int(clockwise)}
    return {"spatial_scale": scale, "sampling_ratio": max(sampling_ratio, 0), **flags}


def attributes_of_ps_roi_align(scale: float, sampling_ratio: int) -> dict[str, Any]:
    """The attributes of position-sensitive RoIAlign, except the size, from torchvision's arguments."""
    return {"spatial_scale": scale, "sampling_ratio": max(sampling_ratio, 0)}


ROI_ALIGN = Family(
    *("roi_align", "boxes", 5, ROI_ALIGN_22, ROI_ALIGN_GRAD),
    ", int sampling_ratio, bool aligned",
    attributes_of_roi_align,
)
ROTATED = Family(
    *("roi_align_rotated", "rois", 6, ROI_ALIGN_ROTATED, ROI_ALIGN_ROTATED_GRAD),
    ", int sampling_ratio, bool aligned, bool clockwise",
    attributes_of_rotated,
)
POSITION_SENSITIVE = Family(
    *("ps_roi_align", "boxes", 5, PS_ROI_ALIGN, PS_ROI_ALIGN_GRAD), ", int sampling_ratio", attributes_of_ps_roi_align
)
ROI_POOL = Family(
    *("roi_pool", "boxes", 5, MAX_ROI_POOL_22, MAX_ROI_POOL_GRAD), "", lambda scale: {"spatial_scale": scale}
)


def _check(family: Family, rois: Any, x_shape: Sequence[Any], **tensors: Any) -> None:
    """Check types, devices and shapes, without values: all tensors must have the first one's type and device."""
    (name, x), *_ = tensors.items()
    if x.dtype not in TYPES:
        raise TypeError(f"{name}.dtype = {x.dtype}: must be one of {', '.join(map(str, TYPES))}")
    for other, tensor in (*tensors.items(), (family.rois, rois)):
        if tensor.device.type not in ("cpu", "meta"):
            raise ValueError(f"{other}.device = {tensor.device}: must be cpu")
        if tensor.device.type != x.device.type:
            raise ValueError(f"{other}.device = {tensor.device}: must be {x.device}, the device of {name}")
        if tensor.dtype != x.dtype:
            raise TypeError(f"{other}.dtype = {tensor.dtype}: must be {x.dtype}, the type of {name}")
    if len(x_shape) != 4:
        raise ValueError(f"input.shape = {list(x_shape)}: must be [N, C, H, W]")
    if rois.dim() != 2 or rois.shape[1] != family.columns:
        raise ValueError(f"{family.rois}.shape = {list(rois.shape)}: must be [K, {family.columns}]")


def _output_shape(family: Family, rois: Any, x_shape: Sequence[Any], height: Any, width: Any) -> tuple[Any, ...]:
    """The output's shape. Position-sensitive bins read their own channels, whose number they must divide."""
    channels, bins = x_shape[1], height * width if family is POSITION_SENSITIVE else 1
    if channels % bins:
        raise ValueError(f"input.shape = {list(x_shape)}: C must be a multiple of {bins}, the number of bins")
    return rois.shape[0], channels // bins, height, width


def array(tensor: Any) -> Any:
    """A tensor's elements as an array for kernels, in the tensor's memory if that is contiguous and aligned."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return for_kernels(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return for_kernels(tensor.numpy())


def _copy(family: Family, rois: Any, x_shape: Sequence[int]) -> tuple[Any, Any]:
    """A copy of RoIs [K, columns] that no other thread can change, and their image indices [K]; both are checked."""
    images, _, height, width = x_shape
    if len(rois) and not (height and width):
        raise ValueError(f"input.shape = {list(x_shape)}: must have pixels where there are {family.rois}")
    rows = array(rois).copy()
    with np.errstate(invalid="ignore"):
        index = rows[:, 0].astype(np.int64)
    # Measured: count_nonzero takes a quarter of the time of all, for one RoI.
    valid, finite = (index == rows[:, 0]) & (index.view(np.uint64) < images), np.isfinite(rows)
    if np.count_nonzero(valid) < len(rows) or np.count_nonzero(finite) < rows.size:
        i = int((valid & finite.all(1)).argmin())
        rule = f"must be finite, and begin with an image index, a whole number >= 0 and < {images}"
        raise ValueError(f"{family.rois}[{i}] = {rows[i].tolist()}: {rule}")
    return rows, index


def _split(family: Family, rois: Any, x_shape: Sequence[int]) -> tuple[Any, Any]:
    """The coordinates [K, columns - 1] and the image indices [K] from `_copy`."""
    rows, images = _copy(family, rois, x_shape)
    return np.ascontiguousarray(rows[:, 1:]), images


# Measured: checking attributes would take a quarter of a call with one RoI.
@functools.lru_cache(maxsize=256)
def _bound(family: Family, operator: Operator, dtype: Any, options: tuple[Any, ...], **sizes: Any) -> Bound:
    """One of the operators with its attributes. For float64 tensors the spatial scale is not rounded to float32."""
    given = family.attributes(*options)
    checked = operator.check_attributes({**given, **sizes})
    if dtype == torch.float64:
        checked["spatial_scale"] = float(given["spatial_scale"])
    return Bound(operator, checked)


def _call(bound: Bound, dtype: Any, inputs: Sequence[Any], wanted: int = 0) -> Any:
    """An operator's wanted output."""
    output, memory = None, None

    def allocate(i: int, shape: Shape) -> Any:
        nonlocal output, memory
        if i == wanted and output is None:
            output = torch.empty(shape, dtype=dtype, device="cpu")
            memory = array(output)
        return memory if i == wanted else None

    bound(inputs, allocate, runner_on(torch.get_num_threads()))
    return output


Kernel = tuple[Callable[..., Any], Callable[..., Any]]
"""A function that checks the arguments and returns the output's shape, and one that computes the output.

The output has the type of the first argument."""


def _forward(family: Family) -> Kernel:
    def shape(x: Any, rois: Any, scale: float, height: Any, width: Any, *options: Any) -> Any:  # noqa: ARG001
        _check(family, rois, x.shape, input=x)
        return _output_shape(family, rois, x.shape, height, width)

    def compute(x: Any, rois: Any, scale: float, height: int, width: int, *options: Any) -> Any:
        sizes: dict[str, Any]
        if family is ROI_POOL:
            inputs, sizes = [array(x), _copy(family, rois, x.shape)[0]], {"pooled_shape": (height, width)}
        else:
            inputs = [array(x), *_split(family, rois, x.shape)]
            sizes = {"output_height": height, "output_width": width}
        return _call(_bound(family, family.forward, x.dtype, (scale, *options), **sizes), x.dtype, inputs)

    return shape, compute


def _dx(family: Family) -> Kernel:
    def shape(dy: Any, rois: Any, x_shape: Sequence[Any], *options: Any) -> Any:  # noqa: ARG001
        _check(family, rois, x_shape, grad=dy)
        return x_shape

    def compute(dy: Any, rois: Any, x_shape: Sequence[int], *options: Any) -> Any:
        inputs = [array(dy), *_split(family, rois, x_shape), np.array(x_shape, np.int64), None]
        return _call(_bound(family, family.gradient, dy.dtype, options), dy.dtype, inputs)

    return shape, compute


def _drois(family: Family) -> Kernel:
    def shape(dy: Any, rois: Any, x: Any, *options: Any) -> Any:  # noqa: ARG001
        _check(family, rois, x.shape, input=x, grad=dy)
        return rois.shape

    def compute(dy: Any, rois: Any, x: Any, *options: Any) -> Any:
        inputs = [array(dy), *_split(family, rois, x.shape), np.array(x.shape, np.int64), array(x)]
        drois = _call(_bound(family, family.gradient, dy.dtype, options), dy.dtype, inputs, wanted=1)
        return torch.nn.functional.pad(drois, (1, 0))  # the image index

    return shape, compute


def _shape_of_pool_dx(dy: Any, rois: Any, x: Any, *options: Any) -> Any:  # noqa: ARG001
    _check(ROI_POOL, rois, x.shape, input=x, grad=dy)
    return x.shape


def _pool_dx(dy: Any, rois: Any, x: Any, *options: Any) -> Any:
    rows, _ = _copy(ROI_POOL, rois, x.shape)
    return _call(_bound(ROI_POOL, ROI_POOL.gradient, dy.dtype, options), dy.dtype, [array(dy), array(x), rows])


def _shape_at_maxima(values: Any, rois: Any, x: Any, scale: float, height: Any, width: Any) -> Any:  # noqa: ARG001
    _check(ROI_POOL, rois, x.shape, input=x, values=values)
    return rois.shape[0], x.shape[1], height, width


def _pool_at_maxima(values: Any, rois: Any, x: Any, scale: float, height: int, width: int) -> Any:
    """The values at the pixels that are maxima of x's bins; 0 for a bin without pixels.

    Maxima are found from the pixels' ranks, which are all different. The first of equal pixels has the highest rank, since
    the gradient goes to it.
    """
    rows, images = _copy(ROI_POOL, rois, x.shape)
    flat = x.detach().flatten(2)
    order = flat.shape[2] - 1 - flat.flip(2).argsort(stable=True)  # pixels by ascending rank; NaN has the highest
    ranks = torch.empty(flat.shape, dtype=torch.float64)
    ranks.scatter_(2, order, torch.arange(1.0, flat.shape[2] + 1, dtype=torch.float64).expand(flat.shape))
    bound = _bound(ROI_POOL, ROI_POOL.forward, x.dtype, (scale,), pooled_shape=(height, width))
    inputs = [array(ranks.reshape(x.shape)), rows.astype(np.float64)]
    maxima = _call(bound, torch.float64, inputs).flatten(2).long()
    sorted_values = values.detach().flatten(2).gather(2, order)[images]
    picked = sorted_values.gather(2, (maxima - 1).clamp(min=0)) if len(rows) else maxima.to(x.dtype)
    return torch.where(maxima > 0, picked, 0).reshape(*maxima.shape[:2], height, width)


library = torch.library.Library("ortops", "FRAGMENT")
"""Kept alive, since PyTorch removes a library's operators when the library is garbage-collected."""


def define(name: str, schema: str, kernel: Kernel) -> Callable[..., Any]:
    """Define an operator, and return it for calls."""
    shape, compute = kernel

    def checked(*arguments: Any) -> Any:
        shape(*arguments)
        return compute(*arguments)

    def fake(first: Any, *others: Any) -> Any:
        shapes = shape(first, *others)
        return tuple(map(first.new_empty, shapes)) if schema.endswith(")") else first.new_empty(shapes)

    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    # For all devices, so that the kernel, and not PyTorch, refuses devices other than the CPU.
    library.impl(name, checked, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ortops::{name}", fake, lib=library)
    operator: Callable[..., Any] = getattr(torch.ops.ortops, name)

    def one_by_one(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        # PyTorch would do the same but warn.
        pairs = list(zip(arguments, in_dims, strict=True))
        results = [
            operator(*(x.select(dim, i) if isinstance(dim, int) else x for x, dim in pairs))
            for i in range(info.batch_size)
        ]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results), 0
        return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * len(results[0])

    torch.library.register_vmap(f"ortops::{name}", one_by_one, lib=library)
    return operator


def _define_forward(family: Family) -> Callable[..., Any]:
    sizes = "SymInt output_height, SymInt output_width"
    schema = f"(Tensor input, Tensor rois, float scale, {sizes}{family.options}) -> Tensor"
    operator = define(family.name, schema, _forward(family))
    # As in torchvision, autocast computes in float32. The functions give the result the input's type.
    torch.library.register_autocast(f"ortops::{family.name}", "cpu", torch.float32, lib=library)
    return operator


def _define_average(family: Family) -> Callable[..., Any]:
    """Define an operator that is linear in its input, and its gradients; that with respect to RoIs has no derivatives."""
    name, options = family.name, f"float scale{family.options}"
    forward = _define_forward(family)
    schema = f"(Tensor grad, Tensor rois, SymInt[] input_shape, {options}) -> Tensor"
    dx_of = define(f"{name}_dx", schema, _dx(family))
    schema = f"(Tensor grad, Tensor rois, Tensor input, {options}) -> Tensor"
    drois_of = define(f"{name}_drois", schema, _drois(family))

    def backward(ctx: Any, dy: Any) -> tuple[Any, Any]:
        x, rois = ctx.saved_tensors
        scale, _, _, *rest = ctx.options
        dx = dx_of(dy, rois, ctx.shapes[0], scale, *rest) if ctx.needs_input_grad[0] else None
        return dx, drois_of(dy, rois, x, scale, *rest) if ctx.needs_input_grad[1] else None

    def backward_of_dx(ctx: Any, by_dx: Any) -> tuple[Any, ...]:
        dy, rois = ctx.saved_tensors
        _, scale, *rest = ctx.options
        by_dy = forward(by_dx, rois, scale, *ctx.shapes[0][2:], *rest) if ctx.needs_input_grad[0] else None
        return by_dy, drois_of(dy, rois, by_dx, scale, *rest) if ctx.needs_input_grad[1] else None

    def jvp_of(operator: Callable[..., Any]) -> Jvp:
        def jvp(tensors: Sequence[Any], options: Sequence[Any], tangents: Sequence[Any]) -> Any:
            if tangents[1] is not None:
                raise NotImplementedError(f"{name} has no derivatives with respect to {family.rois} in forward mode")
            return operator(tangents[0], tensors[1], *options)

        return jvp

    def refuse(*_: Any) -> Any:
        raise NotImplementedError(f"{name} has no second derivatives with respect to {family.rois}")

    differentiate(library, name, backward, jvp_of(forward), lambda i, needed: i == 1 or needed[1])
    differentiate(library, f"{name}_dx", backward_of_dx, jvp_of(dx_of), lambda i, needed: i == 1 or needed[1])
    differentiate(library, f"{name}_drois", refuse, refuse, lambda *_: False)
    return forward


def _define_maximum() -> Callable[..., Any]:
    """Define roi_pool and its derivatives, which treat the maxima's positions as constant; none with respect to RoIs."""
    forward = _define_forward(ROI_POOL)
    schema = "(Tensor grad, Tensor rois, Tensor input, float scale) -> Tensor"
    dx_of = define("roi_pool_dx", schema, (_shape_of_pool_dx, _pool_dx))
    sizes = "SymInt output_height, SymInt output_width"
    schema = f"(Tensor values, Tensor rois, Tensor input, float scale, {sizes}) -> Tensor"
    at_maxima = define("roi_pool_at_maxima", schema, (_shape_at_maxima, _pool_at_maxima))

    def backward(ctx: Any, dy: Any) -> tuple[Any, Any]:
        x, rois = ctx.saved_tensors
        return dx_of(dy, rois, x, ctx.options[0]), None

    def backward_of_dx(ctx: Any, by_dx: Any) -> tuple[Any, ...]:
        _, rois, x = ctx.saved_tensors
        return at_maxima(by_dx, rois, x, *ctx.options, *ctx.shapes[0][2:]), None, None

    def backward_of_maxima(ctx: Any, dy: Any) -> tuple[Any, ...]:
        _, rois, x = ctx.saved_tensors
        return dx_of(dy, rois, x, ctx.options[0]), None, None

    def jvp(tensors: Sequence[Any], options: Sequence[Any], tangents: Sequence[Any]) -> Any:
        x, rois = tensors
        return at_maxima(_or_zeros(tangents[0], x), rois, x, *options)

    def jvp_of(operator: Callable[..., Any]) -> Jvp:
        return lambda tensors, options, tangents: operator(_or_zeros(tangents[0], tensors[0]), *tensors[1:], *options)

    differentiate(library, "roi_pool", backward, jvp, lambda *_: True)
    differentiate(library, "roi_pool_dx", backward_of_dx, jvp_of(dx_of), lambda i, _: i > 0)
    differentiate(library, "roi_pool_at_maxima", backward_of_maxima, jvp_of(at_maxima), lambda i, _: i > 0)
    return forward


def _or_zeros(tangent: Any, x: Any) -> Any:
    """The tangent of x; zeros if x has no tangent."""
    return torch.zeros_like(x) if tangent is None else tangent


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "roi_align": _define_average(ROI_ALIGN),
    "roi_align_rotated": _define_average(ROTATED),
    "ps_roi_align": _define_average(POSITION_SENSITIVE),
    "roi_pool": _define_maximum(),
}
"""The forward operators by name."""
