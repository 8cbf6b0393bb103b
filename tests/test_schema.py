"""ONNX's checker and shape inference know the operators once their schemas are registered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import onnx
import onnx.parser
import pytest

from onnx_models.schema import register_schemas, schema
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
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "{DOMAIN}": 1, "f": 1]>{text}{function}')


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


def roi_align(
    inputs: str = "float[2, 3, 8, 9] x, float[5, 4] r, int64[5] b", attributes: str = "", opset: int = 16
) -> onnx.ModelProto:
    return parse(f"g ({inputs}) => (y) {{ y = {DOMAIN}.RoiAlign_{opset}{attributes}(x, r, b) }}")


def test_a_schema_says_what_the_operator_says() -> None:
    for operator in OPERATORS:
        made = schema(operator)
        assert [p.name for p in made.inputs] == [t.name for t in operator.inputs]
        assert made.min_input == sum(not t.optional for t in operator.inputs)
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


@pytest.mark.parametrize("opset", [10, 16, 22])
def test_the_schema_of_roi_align_infers_what_onnx_infers(opset: int) -> None:
    standard = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g (double[2, C, 8, 9] x, double[R, 4] r, int64[R] b) => (y)'
        "{ y = RoiAlign<output_height = 2>(x, r, b) }"
    )
    ours = roi_align("double[2, C, 8, 9] x, double[R, 4] r, int64[R] b", "<output_height = 2>", opset)
    assert inferred(ours) == inferred(standard) == {"y": ("double", ["R", "C", 2, 1])}


def test_a_length_that_one_input_leaves_open_comes_from_another() -> None:
    assert inferred(roi_align("float[N, C, H, W] x, float[R, 4] r, int64[5] b"))["y"] == ("float", [5, "C", 1, 1])
    assert inferred(roi_align("float[N, ?, H, W] x, float[?, 4] r, int64[R] b"))["y"] == ("float", ["R", None, 1, 1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            "float[2, 3, 8, 9] x, float[5, 4] r, int64[6] b",
            r"batch_indices has shape \[6\]: shape\[0\] must be 5 \(num_rois of rois\)",
        ),
        ("float[2, 3, 8, 9] x, float[5, 5] r, int64[5] b", r"rois has shape \[5, 5\]: shape\[1\] must be 4$"),
        ("float[3, 8, 9] x, float[5, 4] r, int64[5] b", r"X has shape \[3, 8, 9\]: must have rank 4, \[N, C, H, W\]"),
        ("float[2, 3, 8, 9] x, double[5, 4] r, int64[5] b", r"rois has element type double: must be float as other"),
        ("float[2, 3, 8, 9] x, float[5, 4] r, int32[5] b", r"batch_indices has element type int32: must be int64"),
        ("seq(float[2]) x, float[5, 4] r, int64[5] b", r"X is a sequence_type: must be a tensor"),
    ],
)
def test_inputs_that_disagree_are_refused(inputs: str, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        onnx.shape_inference.infer_shapes(roi_align(inputs))


def test_an_error_names_the_node() -> None:
    model = roi_align(attributes="<sampling_ratio = -1>")
    model.graph.node[0].name = "head"
    with pytest.raises(InferenceError, match=r"^node RoiAlign_16\[ai.onnx.contrib\] \(head\): sampling_ratio = -1"):
        onnx.shape_inference.infer_shapes(model)


def gradient(
    body: str, x_shape: str = "int64[4] s", outputs: str = "dx, dr", dy: str = "float[R, C, 2, 2] dy"
) -> onnx.ModelProto:
    return parse(f"g ({dy}, float[R, 4] r, int64[R] b, float[2, C, H, 9] x, {x_shape}) => ({outputs}) {{ {body} }}")


def test_the_gradients_of_x_and_rois_have_their_shapes() -> None:
    model = gradient(f"dx, dr = {DOMAIN}.RoiAlignGrad(dy, r, b, s, x)")
    assert inferred(model) == {"dx": ("float", [2, "C", "H", 9]), "dr": ("float", ["R", 4])}


def test_without_x_the_shape_of_its_gradient_is_what_an_initializer_says() -> None:
    model = gradient(f"dx = {DOMAIN}.RoiAlignGrad(dy, r, b, s2)", outputs="dx")
    model.graph.initializer.append(onnx.helper.make_tensor("s2", onnx.TensorProto.INT64, [4], [2, 3, 8, 9]))
    assert inferred(model) == {"dx": ("float", [2, 3, 8, 9])}
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param.startswith("unk__") or d.dim_param for d in found] == [True, "C", True, True]


@pytest.mark.skipif((1, 20) <= VERSION < (1, 23), reason="this onnx cannot hand a shape to Python")
def test_without_x_the_shape_of_its_gradient_is_the_propagated_one() -> None:
    model = gradient(f"s = Shape(x) dx = {DOMAIN}.RoiAlignGrad(dy, r, b, s)", "float unused", "dx")
    assert inferred(model) == {"dx": ("float", [2, "C", "H", 9])}


def test_without_x_and_its_shape_its_gradient_has_the_rank_and_the_channels() -> None:
    model = gradient(f"dx = {DOMAIN}.RoiAlignGrad(dy, r, b, s)", outputs="dx")
    assert inferred(model) == {"dx": ("float", [None, "C", None, None])}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("2, 7, 8, 9", r"x_shape is \[2, 7, 8, 9\]: x_shape\[1\] must be 3 \(C of dY\)"),
        ("2, 3, -8, 9", r"x_shape is \[2, 3, -8, 9\]: x_shape\[2\] must be >= 0"),
        ("2, 3, 8", r"x_shape has shape \[3\]: shape\[0\] must be 4"),
    ],
)
def test_an_x_shape_that_cannot_be_is_refused(values: str, message: str) -> None:
    body = (
        f"s = Constant<value = int64[{values.count(',') + 1}] {{{values}}}>() dx = {DOMAIN}.RoiAlignGrad(dy, r, b, s)"
    )
    model = gradient(body, "float unused", "dx", dy="float[R, 3, 2, 2] dy")
    with pytest.raises(InferenceError, match=message):
        onnx.shape_inference.infer_shapes(model, data_prop=True)


def test_an_unwanted_output_may_be_unnamed() -> None:
    model = gradient(f"dx, dr = {DOMAIN}.RoiAlignGrad(dy, r, b, s, x)", outputs="dr")
    model.graph.node[0].output[0] = ""
    assert inferred(model) == {"dr": ("float", ["R", 4])}


@pytest.mark.skipif(VERSION < (1, 23), reason="this onnx takes an unnamed output for a wanted one")
def test_one_output_must_be_wanted() -> None:
    model = gradient(f"dx, dr = {DOMAIN}.RoiAlignGrad(dy, r, b, s, x)", outputs="")
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


def dml_roi_align(
    roi: str, indices: str = "uint32[5] b", attributes: str = "", x: str = "float16[2, 3, 8, 9] x"
) -> onnx.ModelProto:
    return parse(f"g ({x}, {roi}, {indices}) => (y) {{ y = {DOMAIN}.DmlRoiAlign{attributes}(x, r, b) }}")


@pytest.mark.parametrize(
    ("roi", "indices"),
    [("R, 4", "uint32[5] b"), ("1, R, 4", "int64[1, 1, 5] b"), ("1, ?, R, 4", "uint32[1, 1, 1, 5] b")],
)
def test_axes_of_length_one_may_lead(roi: str, indices: str) -> None:
    assert inferred(dml_roi_align(f"float16[{roi}] r", indices, "<output_width = 2>")) == {
        "y": ("float16", [5, 3, 1, 2])
    }


@pytest.mark.parametrize(
    ("roi", "indices", "message"),
    [
        ("float16[4] r", "uint32[5] b", r"ROITensor has shape \[4\]: must have rank 2 or 3 or 4, \[num_rois, 4\]"),
        ("float16[1, 1, 1, 5, 4] r", "uint32[5] b", r"ROITensor has shape \[1, 1, 1, 5, 4\]: must have rank 2 or 3"),
        ("float16[2, 5, 4] r", "uint32[5] b", r"ROITensor has shape \[2, 5, 4\]: shape\[0\] must be 1"),
        ("float16[5, 4] r", "uint32[1, 6] b", r"BatchIndicesTensor has shape \[1, 6\]: shape\[1\] must be 5"),
        ("float16[5, 4] r", "int32[5] b", "BatchIndicesTensor has element type int32: must be uint32 or int64"),
        ("float[5, 4] r", "uint32[5] b", "ROITensor has element type float: must be float16 as other inputs"),
    ],
)
def test_axes_that_may_not_lead_and_other_types_are_refused(roi: str, indices: str, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        onnx.shape_inference.infer_shapes(dml_roi_align(roi, indices))


@pytest.mark.parametrize(
    ("roi", "shape"),
    [("float[R, 4] r", ["R", 4]), ("float[1, 1, R, 4] r", [1, 1, "R", 4]), ("float[1, R, 4] r", [1, "R", 4])],
)
def test_an_output_has_the_leading_axes_of_the_input_that_it_is_like(roi: str, shape: list[int | str]) -> None:
    model = parse(
        f"g (float[R, C, 2, 2] dy, {roi}, int64[R] b, int64[4] s, float[2, C, H, 9] x) => (dx, dr)"
        f"{{ dx, dr = {DOMAIN}.DmlRoiAlignGrad(dy, r, b, s, x) }}"
    )
    assert inferred(model) == {"dx": ("float", [2, "C", "H", 9]), "dr": ("float", shape)}


def test_an_output_has_no_shape_where_the_input_that_it_is_like_has_none() -> None:
    model = parse(
        "g (float[R, C, 2, 2] dy, float[2] u, int64[R] b, int64[4] s, float[2, C, H, 9] x) => (dx, dr)"
        f"{{ r = f.Unknown(u) dx, dr = {DOMAIN}.DmlRoiAlignGrad(dy, r, b, s, x) }}"
    )
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[1].type.tensor_type
    assert (found.elem_type, found.HasField("shape")) == (onnx.TensorProto.FLOAT, False)


def resample(x: str = "float[2, C, 5, ?] x", attributes: str = "<scales = [1.0, 1.0, 1.5, 2.0]>") -> onnx.ModelProto:
    return parse(f"g ({x}) => (y) {{ y = {DOMAIN}.DmlResample{attributes}(x) }}")


@pytest.mark.parametrize(
    ("x", "attributes", "shape"),
    [
        ("float[2, C, 5, ?] x", "<scales = [1.0, 1.0, 1.5, 2.0]>", [2, None, 7, None]),
        ("float[2, C] x", "<output_sizes = [3, 4]>", [3, 4]),
        ("float[A] x", "<output_sizes = [3], scales = [9.0]>", [3]),
        ("float[3, 5, 1] x", "<scales = [0.25, 0.75, 4.0]>", [0, 3, 4]),
    ],
)
def test_lengths_follow_from_lists(x: str, attributes: str, shape: list[int | str | None]) -> None:
    assert inferred(resample(x, attributes)) == {"y": ("float", shape)}


def test_the_rank_follows_from_a_list_alone() -> None:
    for attributes, shape in (("<scales = [2.0, 2.0]>", [None, None]), ("<output_sizes = [4, 5, 6]>", [4, 5, 6])):
        model = parse(
            f"g (float[2] u) => (y) {{ a = f.Unknown(u) x = Cast<to = 1>(a) y = {DOMAIN}.DmlResample{attributes}(x) }}"
        )
        (found,) = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
        dims = found.type.tensor_type.shape.dim
        assert [d.dim_value or None for d in dims] == shape, attributes


def test_without_lists_and_shapes_the_rank_stays_unknown() -> None:
    model = parse(
        f"g (float[2] u, int64[r] s) => (y) {{ a = f.Unknown(u) x = Cast<to = 1>(a) y = {DOMAIN}.DmlResampleGrad(x, s) }}"
    )
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type
    assert (found.elem_type, found.HasField("shape")) == (onnx.TensorProto.FLOAT, False)


@pytest.mark.parametrize(
    ("x", "attributes", "message"),
    [
        ("float[2] x", "", "scales and output_sizes are empty: at least one must have values"),
        ("float[2] x", "<scales = [2]>", "scales is of type INTS: FLOATS attribute, must be finite and > 0"),
        ("float[2] x", "<scales = [2.0], output_sizes = [4, 4]>", "scales has 1, output_sizes has 2 values: must have"),
        ("float[2] x", "<scales = [2.0, 2.0]>", r"InputTensor has shape \[2\]: rank must be 2 \(rank of scales\)"),
        ("float[1,1,1,1,2] x", "<output_sizes = [2]>", r"InputTensor has shape .*: must have rank 1 or 2 or 3 or 4"),
        ("bfloat16[2] x", "<output_sizes = [2]>", "InputTensor has element type bfloat16: must be float16 or float or"),
    ],
)
def test_a_list_that_breaks_its_rule_is_refused(x: str, attributes: str, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        onnx.shape_inference.infer_shapes(resample(x, attributes))


def resample_grad(
    body: str, inputs: str = "float[A, B, 6] dy, int64[3] s", attributes: str = ""
) -> dict[str, tuple[str, list[int | str | None] | None]]:
    return inferred(parse(f"g ({inputs}) => (dx) {{ {body} dx = {DOMAIN}.DmlResampleGrad{attributes}(dy, s) }}"))


def test_the_shape_of_the_gradient_is_what_x_shape_says_or_has_the_rank_of_dy() -> None:
    assert resample_grad("") == {"dx": ("float", [None, None, None])}
    constant = "s = Constant<value_ints = [2, 3, 8]>()"
    assert resample_grad(constant, "float[A, B, 6] dy") == {"dx": ("float", [2, 3, 8])}
    assert resample_grad("", "float16[A] dy, int64[r] s") == {"dx": ("float16", [None])}


@pytest.mark.skipif((1, 20) <= VERSION < (1, 23), reason="this onnx cannot hand a shape to Python")
def test_the_shape_of_the_gradient_is_the_propagated_one() -> None:
    assert resample_grad("s = Shape(x)", "float[A, 6] dy, float[A, 3] x") == {"dx": ("float", ["A", 3])}


@pytest.mark.parametrize(
    ("body", "inputs", "attributes", "message"),
    [
        (
            "",
            "float[A, 6] dy, int64[3] s",
            "",
            r"x_shape has shape \[3\]: shape\[0\] must be 2 \(rank of InputGradientTe",
        ),
        ("", "float[A, 6] dy, int64[2] s", "<scales = [2.0]>", r"rank must be 1 \(rank of scales\)"),
        (
            "s = Constant<value_ints = [2, -3]>()",
            "float[A, 6] dy",
            "",
            r"x_shape is \[2, -3\]: x_shape\[1\] must be >= 0",
        ),
    ],
)
def test_a_gradient_that_cannot_be_is_refused(body: str, inputs: str, attributes: str, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        resample_grad(body, inputs, attributes)


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
    monkeypatch.setattr("onnx_models.schema.OpSchema", object)
    with pytest.raises(RuntimeError, match=r"onnx is .*: schemas with shape inference in Python need onnx >= 1\.19"):
        register_schemas()


def test_a_process_with_the_schemas_ends_cleanly() -> None:
    code = "import onnx_models; onnx_models.register_schemas(); onnx_models.register_schemas()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
