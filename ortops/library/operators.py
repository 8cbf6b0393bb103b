# SPDX-License-Identifier: MIT
"""What a library registers, and its interface, as constants."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

from ortops.custom.compiled import CompiledOperator
from ortops.library.drivers import KINDS, drivers_of, entry_of
from ortops.library.objects import UserFunction
from ortops.native import interface, tasks
from ortops.native.constants import Constant, FunctionOf, SharedWord
from ortops.native.definitions import definition_of
from ortops.native.node import shapes
from ortops.native.ort import callbacks, exported, inputs, registration
from ortops.native.types import NONE, Entry, Node, Shapes
from ortops.spec import DOMAIN, ELEMENT_TYPES, Operator

_INFER, _CHECK = FunctionOf(shapes.infer_shapes), FunctionOf(shapes.check_wanted)

_SHAPES = Constant(Shapes, infer=_INFER, check=_CHECK, infer_by_names=_INFER)
"""The functions that infer and check shapes, for all operators."""

_INFERS_OPTIONAL = 1024
"""ONNX Runtime 1.20 to 1.23 crash in shape inference if a node leaves an input or an output out."""


def domains_of(operators: Iterable[Operator], types: Sequence[str], domain: str = DOMAIN) -> Constant:
    """What a function of a library registers: operators, each in its domain.

    Args:
        types: the floating-point element types that nodes may have. Operators have those of them that they are defined for.
        domain: the name that this project's domain gets.
    """
    domains: dict[str, list[Constant]] = {}
    for operator in operators:
        name = domain if operator.domain == DOMAIN else operator.domain
        domains.setdefault(name, []).extend(_typed(operator, tuple(types)))
    return Constant(
        interface.Domains,
        count=len(domains),
        domains=[
            Constant(interface.Domain, name=name, count=len(typed), operators=typed) for name, typed in domains.items()
        ],
        operator_count=sum(map(len, domains.values())),
    )


def interface_of(operators: Iterable[Operator], types: Sequence[str]) -> Constant:
    """The interface, by which hosts find operators and call them."""
    listed = [
        Constant(
            interface.ListedOperator,
            domain=operator.domain,
            name=operator.name,
            version=operator.version_of_onnx,
            operator=typed,
        )
        for operator in operators
        for typed in _typed(operator, tuple(types))
    ]
    return Constant(
        interface.Interface,
        version=interface.VERSION,
        operators=Constant(interface.OperatorList, count=len(listed), operators=listed),
        python=SharedWord("python"),
        make_node=FunctionOf(exported.make_node),
        release_node=FunctionOf(exported.release_node),
        infer_shapes=FunctionOf(exported.infer_shapes),
        compute=FunctionOf(exported.compute),
        run_on_threads=FunctionOf(tasks.run_on_threads),
        infer_shapes_of_arrays=FunctionOf(exported.infer_shapes_of_arrays),
        infer_by_definition=_INFER,
        check_wanted=_CHECK,
        make_table=FunctionOf(exported.make_table),
        release_table=FunctionOf(registration.release_table),
        fill_callbacks=FunctionOf(callbacks.fill_callbacks),
        describe_inputs=FunctionOf(inputs.describe),
    )


@functools.cache
def _typed(operator: Operator, types: tuple[str, ...]) -> list[Constant]:
    """The operator for each combination of its element types."""
    kinds = [[kind for kind in allowed if kind not in KINDS or kind in types] for allowed in operator.types.values()]
    return [_with(operator, dict(zip(operator.types, chosen, strict=True))) for chosen in itertools.product(*kinds)]


def _with(operator: Operator, types: Mapping[str, str]) -> Constant:
    """The operator with an element type for each type variable."""
    deciding, drivers, entry, of_shapes = _parts(operator, types)
    is_optional = any(tensor.optional for tensor in (*operator.inputs, *operator.outputs))
    return Constant(
        interface.TypedOperator,
        deciding=deciding,
        drivers=drivers,
        infers_from=_INFERS_OPTIONAL if is_optional else 0,
        signature=_signature(operator, types),
        node=Constant(
            Node,
            definition=definition_of(operator),
            shapes=of_shapes,
            entry=entry,
            first_type=ELEMENT_TYPES[types.get(operator.inputs[0].type, operator.inputs[0].type)],
            driver=None,
            driver_of_rois=None,
            label=operator.label,
            attributes=[],
        ),
    )


def _parts(operator: Operator, types: Mapping[str, str]) -> tuple[int, Sequence[Constant], Constant, Constant]:
    """The number of the attribute that chooses drivers, or NONE; all of these; the entry; and the functions of shapes."""
    if not isinstance(operator, CompiledOperator):
        deciding, choices = drivers_of(operator)
        kind = next(KINDS[name] for name in types.values() if name in KINDS)
        drivers = [
            Constant(interface.Drivers, driver=row.driver, driver_of_rois=row.drois_driver) for row in choices[kind]
        ]
        return deciding, drivers, entry_of(operator), _SHAPES
    tensors = (*operator.inputs, *operator.outputs)
    kinds = tuple((tensor.name, types.get(tensor.type, tensor.type)) for tensor in tensors)
    function = FunctionOf(UserFunction(operator, kinds))
    entry = Constant(Entry, enter=function, short_of_memory=f"out of memory in {operator.label}")
    of_shapes = _SHAPES
    if operator.lengths is not None:
        of_user = FunctionOf(UserFunction(operator, kinds, of_shapes=True))
        of_shapes = Constant(Shapes, infer=of_user, check=_CHECK, infer_by_names=_INFER)
    return NONE, [Constant(interface.Drivers, driver=None, driver_of_rois=None)], entry, of_shapes


def _signature(operator: Operator, types: Mapping[str, str]) -> Constant:
    tensors: list[dict[str, int]] = []
    for side, definitions in (("input", operator.inputs), ("output", operator.outputs)):
        for i, tensor in enumerate(definitions):
            if i == len(tensors):
                tensors.append(dict.fromkeys(interface.TensorTypes.fields, 0))
            tensors[i][f"{side}_type"] = ELEMENT_TYPES[types.get(tensor.type, tensor.type)]
            tensors[i][f"{side}_presence"] = interface.OPTIONAL if tensor.optional else interface.REQUIRED
    return Constant(
        interface.Signature,
        name=operator.name,
        input_count=len(operator.inputs),
        output_count=len(operator.outputs),
        tensors=[Constant(interface.TensorTypes, **fields) for fields in tensors],
    )
