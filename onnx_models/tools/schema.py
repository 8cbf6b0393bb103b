# SPDX-License-Identifier: MIT
"""Register schemas of the operators with ONNX, so that its checker and its shape inference know them.

Schemas are made from `ortops.spec.Operator` alone.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx.defs import OpSchema

from onnx_models.tools.attributes import CUSTOM, attribute_proto, checked_value
from ortops.custom.operator import CustomOperator, OperatorError, as_operators
from ortops.operators import OPERATORS
from ortops.shapes import Axes
from ortops.spec import DOMAIN_VERSION, Attribute, AttributeValue, Length, Operator, Tensor

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext


_GIVEN = threading.RLock()
"""Held while the operators of one call are registered (`schemas_of`)."""


def register_schemas(operators: Operator | Iterable[Operator] = OPERATORS) -> None:
    """Register the operators' schemas with ``onnx`` in this process, also those of operators of `ortops.operator`.

    ``onnx.checker.check_model(model, full_check=True, check_custom_domain=True)`` and
    ``onnx.shape_inference.infer_shapes`` then check their types, shapes and attributes. A mistake raises
    ``onnx.shape_inference.InferenceError`` even without ``strict_mode``: ONNX catches only errors of schemas in C++.
    A second call does nothing. ONNX Runtime's own schemas do not change. `onnx_models.gradient` then uses the gradient of a
    user's operator, and `onnx_models.portable.attach` its body; their argument `operators` does the same for one call.

    Raises:
        TypeError: an element of `operators` is not an operator.
        RuntimeError: onnx is older than 1.19, the first version with shape inference in Python; or another schema has
            the name of one of the operators. Nothing is registered then.
    """
    with _GIVEN:
        _register(operators)


@contextmanager
def schemas_of(operators: Operator | Iterable[Operator]) -> Iterator[None]:
    """Register operators as `register_schemas` does, until the block ends; those that were registered before stay.

    A second thread that passes operators waits until the block ends.
    """
    operators = as_operators(operators)
    if not operators:
        yield
        return
    with _GIVEN:
        before = dict(CUSTOM)
        added = _register(operators)
        try:
            yield
        finally:
            for registered in added:
                _deregister(registered.name, registered.domain)
            for identity in CUSTOM.keys() - before.keys():
                del CUSTOM[identity]


def _register(operators: Operator | Iterable[Operator]) -> list[OpSchema]:
    """Register what is not registered yet, and return it."""
    if not hasattr(OpSchema, "set_type_and_shape_inference_function"):
        raise RuntimeError(f"onnx is {onnx.__version__}: schemas with shape inference in Python need onnx >= 1.19")
    operators = as_operators(operators)
    for given in operators:
        if not isinstance(given, Operator):
            raise TypeError(f"operators has {given!r}: must be an operator made by ortops.operator")
    custom = {
        (operator.domain, operator.name): operator for operator in operators if isinstance(operator, CustomOperator)
    }
    for identity, operator in custom.items():
        if CUSTOM.get(identity, operator) is not operator:
            raise RuntimeError(f"operators has {operator.label}: another operator of this name is registered already")
    wanted = [schema(operator) for operator in dict.fromkeys(operators)]
    missing = [each for each in wanted if not _is_registered(each)]
    for each in missing:
        onnx.defs.register_schema(each)
        # ONNX destroys its schemas after the interpreter has ended: a schema with a Python function then hangs (onnx
        # 1.19) or crashes (1.20, 1.21) the process.
        atexit.register(_deregister, each.name, each.domain)
    CUSTOM.update(custom)
    return missing


def schema(operator: Operator) -> OpSchema:
    """Make the schema of `operator`, with type and shape inference, without registering it.

    Source: ONNX 1.19, ``onnx.defs.OpSchema``.
    """
    onnx_schema = OpSchema(
        operator.name,
        operator.domain,
        DOMAIN_VERSION,
        operator.doc,
        inputs=[_parameter(operator, tensor) for tensor in operator.inputs],
        outputs=[_parameter(operator, tensor) for tensor in operator.outputs],
        type_constraints=[(name, [f"tensor({kind})" for kind in kinds], "") for name, kinds in operator.types.items()],
        attributes=[_attribute(attribute) for attribute in operator.attributes],
    )
    onnx_schema.set_type_and_shape_inference_function(partial(_infer, operator))
    return onnx_schema


def _attribute(attribute: Attribute) -> OpSchema.Attribute:
    """Make the attribute with its default; without one if that is None, or an empty list, which no node has."""
    if attribute.default is None or (attribute.is_list and not attribute.default):
        kind = getattr(OpSchema.AttrType, attribute.type)
        is_required = attribute.required and attribute.default is None
        return OpSchema.Attribute(attribute.name, kind, attribute.doc, required=is_required)
    return OpSchema.Attribute(attribute.name, attribute_proto(attribute, attribute.default), attribute.doc)


def _parameter(operator: Operator, tensor: Tensor) -> OpSchema.FormalParameter:
    options = OpSchema.FormalParameterOption
    return OpSchema.FormalParameter(
        tensor.name,
        tensor.type if tensor.type in operator.types else f"tensor({tensor.type})",
        tensor.doc,
        param_option=options.Variadic if tensor.variadic else options.Optional if tensor.optional else options.Single,
    )


def _is_registered(wanted: OpSchema) -> bool:
    if not onnx.defs.has(wanted.name, DOMAIN_VERSION, wanted.domain):
        return False
    registered = onnx.defs.get_schema(wanted.name, DOMAIN_VERSION, wanted.domain)
    if repr(registered) != repr(wanted) or not registered.has_type_and_shape_inference_function:
        raise RuntimeError(
            f"onnx has another schema of {wanted.name} in {wanted.domain}: must be this project's. Deregister it first: "
            f"onnx.defs.deregister_schema({wanted.name!r}, {registered.since_version}, {wanted.domain!r})"
        )
    return True


def _deregister(name: str, domain: str) -> None:
    if onnx.defs.has(name, DOMAIN_VERSION, domain):
        onnx.defs.deregister_schema(name, DOMAIN_VERSION, domain)


def _infer(operator: Operator, context: InferenceContext) -> None:
    try:
        _set_outputs(operator, context)
    except (TypeError, ValueError, OperatorError) as error:
        raise onnx.shape_inference.InferenceError(f"{context.get_display_name().strip()}: {error}") from error


def _set_outputs(operator: Operator, context: InferenceContext) -> None:
    present = [i for i in range(context.get_num_outputs()) if context.has_output(i)]
    if not present:
        names = ", ".join(tensor.name for tensor in operator.outputs)
        raise ValueError(f"{operator.name} has no output: must have at least one of {names}")
    axes = Axes(operator, _attributes(operator, context))
    # The type of a variable with one choice is known even if the type of the input is not.
    types: dict[str, str] = {name: kinds[0] for name, kinds in operator.types.items() if len(kinds) == 1}
    # A missing input has no type; the checker reports one that is required.
    for i in range(context.get_num_inputs()):
        tensor = operator.inputs[min(i, len(operator.inputs) - 1)]
        given = context.get_input_type(i)
        if given is not None and given.WhichOneof("value") is not None:
            _bind_type(operator, tensor, given, types)
            if given.tensor_type.HasField("shape"):
                axes.bind_shape(tensor, [_length(dimension) for dimension in given.tensor_type.shape.dim])
        if tensor.element_axes:
            axes.bind_values(tensor, _values(context, i))
    for i in present:
        tensor = operator.outputs[min(i, len(operator.outputs) - 1)]
        kind = types.get(tensor.type, tensor.type)
        # It is still the type variable if no input of a known type determines it.
        if kind not in operator.types:
            element_type = onnx.TensorProto.DataType.Value(kind.upper())
            context.set_output_type(i, onnx.helper.make_tensor_type_proto(element_type, axes.shape_of(tensor)))


def _attributes(operator: Operator, context: InferenceContext) -> dict[str, AttributeValue]:
    """Return the known attributes, checked and with defaults."""
    checked = {}
    for attribute in operator.attributes:
        given = context.get_attribute(attribute.name)
        # Inside a function, an attribute can be a reference, whose value depends on the call.
        if given is None or not given.ref_attr_name:
            checked[attribute.name] = attribute.default if given is None else checked_value(attribute, given)
    if len(checked) == len(operator.attributes):
        # This also checks rules between attributes: their order, and equal lengths of lists.
        operator.check_attributes(checked)
    return checked


def _bind_type(operator: Operator, tensor: Tensor, given: onnx.TypeProto, types: dict[str, str]) -> None:
    if not given.HasField("tensor_type"):
        raise TypeError(f"{tensor.name} is a {given.WhichOneof('value')}: must be a tensor")
    if not given.tensor_type.elem_type:
        return
    kind = onnx.TensorProto.DataType.Name(given.tensor_type.elem_type).lower()
    allowed = operator.element_types(tensor)
    if kind not in allowed:
        raise TypeError(f"{tensor.name} has element type {kind}: must be {' or '.join(allowed)}")
    expected = types.setdefault(tensor.type, kind)
    if kind != expected:
        raise TypeError(f"{tensor.name} has element type {kind}: must be {expected} as other inputs ({tensor.type})")


def _values(context: InferenceContext, i: int) -> list[Length]:
    """Return the elements of the int64 input `i` if it is a constant or a propagated shape, else no elements."""
    constant = context.get_input_data(i)
    # The checker does not say in which folder external data is.
    if constant is not None and constant.data_location != onnx.TensorProto.EXTERNAL:
        # Not numpy_helper.to_array: before onnx 1.21 the tensor of a Constant with value_ints had no dims.
        return np.frombuffer(constant.raw_data, "<i8").tolist() if constant.raw_data else list(constant.int64_data)
    try:
        symbolic = context.get_symbolic_input(i)
    except RuntimeError:
        # onnx 1.20 to 1.22 cannot hand a shape to Python ("std::bad_cast").
        return []
    return [_length(dimension) for dimension in symbolic.dim] if symbolic is not None else []


def _length(dimension: onnx.TensorShapeProto.Dimension) -> Length:
    kind = dimension.WhichOneof("value")
    return getattr(dimension, kind) if kind is not None else None
