# SPDX-License-Identifier: MIT
"""ONNX's checker and shape inference know the operators once their schemas are registered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import onnx
import onnx.parser
import pytest

from onnx_models.tools.schema import register_schemas, schema
from ortops.operators import OPERATORS
from ortops.spec import DOMAIN, Attribute, Operator, Tensor

VERSION = tuple(map(int, onnx.__version__.split(".")[:2]))

InferenceError = onnx.shape_inference.InferenceError

# Nothing here is like RoiAlign: other attributes, ranks and types, and a first input that is optional.
OTHER = Operator(
    name="SomethingElse",
    family="",
    function="",
    doc="",
    attributes=(Attribute("length", "INT", 2, minimum=0), Attribute("way", "STRING", "up", choices=("up", "down"))),
    inputs=(
        Tensor("bias", "T", ("L",), optional=True),
        Tensor("data", "U", ("L", 3, "A", "A", "L")),
        Tensor("sizes", "int64", (2,), element_axes=("L", "B"), optional=True),
    ),
    outputs=(Tensor("sum", "U", ("B", "length"), optional=True), Tensor("count", "int64", (), optional=True)),
    types={"T": ("float16", "float"), "U": ("float16", "float")},
)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_schemas()
    register_schemas([OTHER])
    yield
    onnx.defs.deregister_schema(OTHER.name, 1, DOMAIN)


def parse(text: str, *, function: str = "") -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["": 21, "{DOMAIN}": 1, "f": 1]> {text} {function}'
    return onnx.parser.parse_model(text.replace("our.", f"{DOMAIN}."))


def inferred(
    model: onnx.ModelProto, *, check_custom_domain: bool = True
) -> dict[str, tuple[str, list[int | str | None] | None]]:
    """Element type and shape of every output; the model with them has passed the full check."""
    found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    onnx.checker.check_model(found, full_check=True, check_custom_domain=check_custom_domain)
    types = {}
    for value in found.graph.output:
        tensor = value.type.tensor_type
        # ONNX invents unk__0 and so on for lengths that nothing names.
        named = [getattr(d, str(d.WhichOneof("value")), None) for d in tensor.shape.dim]
        shape = [None if str(name).startswith("unk__") else name for name in named]
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        types[value.name] = (kind, shape if tensor.HasField("shape") else None)
    return types


def test_a_schema_says_what_the_operator_says() -> None:
    for operator in OPERATORS:
        made = schema(operator)
        assert [p.name for p in made.inputs] == [t.name for t in operator.inputs]
        assert made.min_input == max(i for i, t in enumerate(operator.inputs, 1) if not t.optional)
        assert {c.type_param_str: len(c.allowed_type_strs) for c in made.type_constraints} == {
            name: len(kinds) for name, kinds in operator.types.items()
        }
        defaults = {a.name: onnx.helper.get_attribute_value(a.default_value) for a in made.attributes.values()}
        # No node has an empty list, so it is no default either: the attribute may be left out.
        for a in operator.attributes:
            if a.is_list and not a.default:
                assert (defaults.pop(a.name), made.attributes[a.name].required, a.default) == (None, False, ())
                assert made.attributes[a.name].type == getattr(onnx.defs.OpSchema.AttrType, a.type)
        assert defaults == {
            a.name: a.default.encode() if isinstance(a.default, str) else list(a.default) if a.is_list else a.default
            for a in operator.attributes
            if a.default or not a.is_list
        }


X, ROIS, OF = "float[2, 3, 8, 9] x", "float[5, 4] r", "int64[5] b"
GRADIENT = "float[R, C, 2, 2] dy, float[R, 4] r, int64[R] b, float[2, C, H, 9] x, "
DML = "float16[2, 3, 8, 9] x, "
can_propagate = pytest.mark.skipif((1, 20) <= VERSION < (1, 23), reason="this onnx cannot hand a shape to Python")


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        # A length that one input leaves open comes from another.
        ("float[N, C, H, W] x, float[R, 4] r, int64[5] b", "y = our.RoiAlign_16(x, r, b)", [5, "C", 1, 1]),
        ("float[N, ?, H, W] x, float[?, 4] r, int64[R] b", "y = our.RoiAlign_16(x, r, b)", ["R", None, 1, 1]),
        # The shape of dX is that of X, or what x_shape says, or has the rank and the channels of dY.
        (f"{GRADIENT} int64[4] s", "y = our.RoiAlignGrad(dy, r, b, s, x)", [2, "C", "H", 9]),
        (GRADIENT + "int64[4] s", "y = our.RoiAlignGrad(dy, r, b, s)", [None, "C", None, None]),
        pytest.param(
            GRADIENT + "float u",
            "s = Shape(x) y = our.RoiAlignGrad(dy, r, b, s)",
            [2, "C", "H", 9],
            marks=can_propagate,
        ),
        # Axes of length 1 may lead, and an output has those of the input that it is like.
        (DML + "float16[1, ?, R, 4] r, int64[1, 1, 5] b", "y = our.DmlRoiAlign(x, r, b)", [5, 3, 1, 1]),
        (
            GRADIENT.replace("[R, 4]", "[1, 1, R, 4]") + "int64[4] s",
            "dx, y = our.DmlRoiAlignGrad(dy, r, b, s, x)",
            [1, 1, "R", 4],
        ),
        # Lengths follow from lists.
        ("float[2, C, 5, ?] x", "y = our.DmlResample<scales = [1.0, 1.0, 1.5, 2.0]>(x)", [2, None, 7, None]),
        ("float[A] x", "y = our.DmlResample<output_sizes = [3], scales = [9.0]>(x)", [3]),
        ("float[3, 5, 1] x", "y = our.DmlResample<scales = [0.25, 0.75, 4.0]>(x)", [0, 3, 4]),
        ("float[A, B, 6] dy, int64[3] s", "y = our.DmlResampleGrad(dy, s)", [None] * 3),
        ("float[A, B, 6] dy", "s = Constant<value_ints = [2, 3, 8]>() y = our.DmlResampleGrad(dy, s)", [2, 3, 8]),
        pytest.param(
            "float[A, 6] dy, float[A, 3] x",
            "s = Shape(x) y = our.DmlResampleGrad(dy, s)",
            ["A", 3],
            marks=can_propagate,
        ),
    ],
)
def test_types_and_shapes_are_inferred(inputs: str, body: str, expected: list[int | str | None]) -> None:
    kind = inputs.partition("[")[0]
    assert inferred(parse(f"g ({inputs}) => (y) {{ {body} }}"))["y"] == (kind, expected)


def test_what_an_initializer_says_counts_unless_it_is_external() -> None:
    model = parse(f"g ({GRADIENT} float u) => (y) {{ y = our.RoiAlignGrad(dy, r, b, s) }}")
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.INT64, [4], [2, 3, 8, 9]))
    assert inferred(model) == {"y": ("float", [2, 3, 8, 9])}
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param.startswith("unk__") or d.dim_param for d in found] == [True, "C", True, True]


ALIGN, DML_ALIGN = "y = our.RoiAlign_16(x, r, b)", "y = our.DmlRoiAlign(x, r, b)"
OF_X_SHAPE = "s = Constant<value_ints = [{}]>() y = our.RoiAlignGrad(dy, r, b, s)"


@pytest.mark.parametrize(
    ("inputs", "body", "message"),
    [
        (f"{X}, float[5, 5] r, {OF}", ALIGN, r"rois has shape \[5, 5\]: shape\[1\] must be 4$"),
        (f"{X}, double[5, 4] r, {OF}", ALIGN, "rois has element type double: must be float as other"),
        (f"{X}, {ROIS}, int32[5] b", ALIGN, "batch_indices has element type int32: must be int64"),
        (f"bfloat16[2, 3, 8, 9] x, {ROIS}, {OF}", ALIGN, "X has element type bfloat16: must be float16 or float or"),
        (f"seq(float[2]) x, {ROIS}, {OF}", ALIGN, "X is a sequence_type: must be a tensor"),
        (GRADIENT.replace("R, C", "R, 3"), OF_X_SHAPE.format("2, 7, 8, 9"), r"x_shape\[1\] must be 3 \(C of dY\)"),
        (GRADIENT, OF_X_SHAPE.format("2, 3, -8, 9"), r"x_shape is \[2, 3, -8, 9\]: x_shape\[2\] must be >= 0"),
        (f"{DML} float16[4] r, {OF}", DML_ALIGN, r"ROITensor has shape \[4\]: must have rank 2 or 3 or 4"),
        (f"{DML} float16[2, 5, 4] r, {OF}", DML_ALIGN, r"ROITensor has shape \[2, 5, 4\]: shape\[0\] must be 1"),
        ("float[2] x", "y = our.DmlResample(x)", "scales and output_sizes are empty: at least one must have values"),
        ("float[2] x", "y = our.DmlResample<scales = [2]>(x)", "scales is of type INTS: FLOATS attribute, must be fin"),
        ("float[1,1,1,1,2] x", "y = our.DmlResample<output_sizes = [2]>(x)", "must have rank 1 or 2 or 3 or 4"),
    ],
)
def test_inputs_that_disagree_are_refused(inputs: str, body: str, message: str) -> None:
    model = parse(f"g ({inputs.rstrip(', ')}) => (y) {{ {body} }}")
    with pytest.raises(InferenceError, match=message):
        onnx.shape_inference.infer_shapes(model, data_prop=True)


def test_an_error_names_the_node() -> None:
    model = parse(f"g ({X}, {ROIS}, {OF}) => (y) {{ y = our.RoiAlign_16<sampling_ratio = -1>(x, r, b) }}")
    model.graph.node[0].name = "head"
    with pytest.raises(InferenceError, match=r"^node RoiAlign_16\[ai.onnx.contrib\] \(head\): sampling_ratio = -1"):
        onnx.shape_inference.infer_shapes(model)


@pytest.mark.skipif(VERSION < (1, 23), reason="this onnx takes an unnamed output for a wanted one")
def test_one_output_must_be_wanted() -> None:
    model = parse(f"g ({GRADIENT} int64[4] s) => () {{ dx, dr = our.RoiAlignGrad(dy, r, b, s, x) }}")
    model.graph.node[0].output[:] = ["", ""]
    with pytest.raises(InferenceError, match="RoiAlignGrad has no output: must have at least one of dX, drois"):
        onnx.shape_inference.infer_shapes(model)


def test_a_reference_to_an_attribute_of_the_function_counts_with_the_value_of_the_call() -> None:
    function = f"""
        <domain: "f", opset_import: ["": 21, "{DOMAIN}": 1]>
        Pool<height, mode: string = "max">(x, r, b) => (y)
        {{ y = {DOMAIN}.RoiAlign_16<output_height: int = @height, mode: string = @mode>(x, r, b) }}
    """
    inputs = "float[2, 3, 8, 9] x, float[5, 4] r, int64[5] b"
    model = parse(f"g ({inputs}) => (y) {{ y = f.Pool<height = 7>(x, r, b) }}", function=function)
    # The checker takes the call of a function for an operator without a schema when it checks custom domains.
    assert inferred(model, check_custom_domain=False) == {"y": ("float", [5, 3, 7, 1])}
    wrong = parse(f"g ({inputs}) => (y) {{ y = f.Pool<height = -7>(x, r, b) }}", function=function)
    with pytest.raises(InferenceError, match="output_height = -7: must be >= 1"):
        onnx.shape_inference.infer_shapes(wrong)


def test_the_type_of_an_input_from_an_unknown_operator_is_left_open() -> None:
    model = parse(
        f"g (float[2] x) => (float[R, ?, ?, ?] y) {{ a, r, b = f.Unknown(x) y = {DOMAIN}.RoiAlign_16(a, r, b)}}"
    )
    (found,) = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
    assert found == model.graph.output[0]


def test_an_operator_of_any_other_form_is_inferred_from_its_definition() -> None:
    model = parse(f"g (float16[?, 3, A, 4, ?] d) => (y, n) {{ y, n = {DOMAIN}.SomethingElse( , d, s) }}")
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.INT64, [2], [6, 11]))
    assert inferred(model) == {"y": ("float16", [11, 2]), "n": ("int64", [])}
    wrong = parse(f"g (float[6] c, float16[5, 3, 4, 4, 5] d) => (y) {{ y = {DOMAIN}.SomethingElse(c, d) }}")
    with pytest.raises(InferenceError, match=r"data has shape \[5, 3, 4, 4, 5\]: shape\[0\] must be 6 \(L of bias\)"):
        inferred(wrong)


def test_another_schema_of_the_name_is_an_error_and_stays() -> None:
    onnx.defs.deregister_schema("RoiAlign_16", 1, DOMAIN)
    try:
        onnx.defs.register_schema(onnx.defs.OpSchema("RoiAlign_16", DOMAIN, 1, "not ours"))
        with pytest.raises(
            RuntimeError, match=r"another schema of RoiAlign_16 in ai\.onnx\.contrib.*deregister_schema"
        ):
            register_schemas()
        assert onnx.defs.get_schema("RoiAlign_16", 1, DOMAIN).doc == "not ours"
    finally:
        onnx.defs.deregister_schema("RoiAlign_16", 1, DOMAIN)
        register_schemas()


def test_an_onnx_without_inference_in_python_is_an_explained_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx_models.tools.schema.OpSchema", object)
    with pytest.raises(RuntimeError, match=r"onnx is .*: schemas with shape inference in Python need onnx >= 1\.19"):
        register_schemas()


def test_a_process_with_the_schemas_ends_cleanly() -> None:
    code = "import onnx_models; onnx_models.register_schemas(); onnx_models.register_schemas()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
