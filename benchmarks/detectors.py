"""Measure exported models in sessions: as they are, converted, and lowered: ``python -m benchmarks.detectors``.

Needs PyTorch and torchvision.
"""

from __future__ import annotations

import io
import pkgutil
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime
import torch

import onnx_models
import ortops
from benchmarks.measure import Call, Cell, interleave
from benchmarks.report import Grid, digits, replaced, show
from conformance.backends.session import CPU, options

HEADINGS = ("model", "exporter, opset", "as it is", "ONNX Runtime", "converted", "lowered", "difference")
SIZES = ((160, 192), (152, 176))
"""Heights and widths of images, unless the model's name has them. Models are exported with the first, and timed with it."""

_OF_ANCHORS = {"min_size": 160, "max_size": 192, "score_thresh": 0, "topk_candidates": 100, "detections_per_img": 20}
_OF_ROIS = {"min_size": 160, "max_size": 192, "rpn_post_nms_top_n_test": 50, "box_detections_per_img": 20}
DETECTORS: dict[str, tuple[str, dict[str, int]]] = {
    "Faster R-CNN, 800x1333": ("fasterrcnn_resnet50_fpn", {}),
    "Faster R-CNN, 320x480": ("fasterrcnn_mobilenet_v3_large_320_fpn", {}),
    "Faster R-CNN": ("fasterrcnn_resnet50_fpn", _OF_ROIS),
    "Mask R-CNN": ("maskrcnn_resnet50_fpn", _OF_ROIS),
    "Keypoint R-CNN": ("keypointrcnn_resnet50_fpn", {**_OF_ROIS, "num_keypoints": 5}),
    "RetinaNet": ("retinanet_resnet50_fpn", _OF_ANCHORS),
    "FCOS": ("fcos_resnet50_fpn", _OF_ANCHORS),
    "SSD": ("ssd300_vgg16", {name: _OF_ANCHORS[name] for name in ("score_thresh", "detections_per_img")}),
}
_LENGTHS = "output_height = 7, output_width = 7, sampling_ratio = 2, spatial_scale = 0.125"
_ROI_ALIGN = f"RoiAlign <{_LENGTHS}> (maps, boxes, of)"
_OF_MMDEPLOY = f"""
    axis = Constant <value = int64[1] {{1}}> ()  index = Cast <to = 1> (of)  column = Unsqueeze (index, axis)
    rois = Concat <axis = 1> (column, boxes)
    y = mmdeploy.MMCVRoiAlign <{_LENGTHS}, aligned = 1, mode = "avg"> (maps, rois)"""
_IN_IF = f"""
    has = Constant <value = bool[1] {{1}}> ()
    y = If (has) <then_branch = a () => (t) {{ t = {_ROI_ALIGN} }}, else_branch = b () => (e) {{ e = Identity (maps) }}>"""
_FUNCTION = f'<domain: "own", opset_import: ["" : 22]> Pool (maps, boxes, of) => (y) {{ y = {_ROI_ALIGN} }}'
WRITTEN = {
    "RoiAlign of opset 10": ('"" : 10', f"y = {_ROI_ALIGN}", ""),
    "MMCVRoiAlign of mmdeploy": ('"" : 13, "mmdeploy" : 1', _OF_MMDEPLOY, ""),
    "RoiAlign in a function": ('"" : 22, "own" : 1', "y = own.Pool (maps, boxes, of)", _FUNCTION),
    "RoiAlign in If": ('"" : 22', _IN_IF, ""),
}
"""Opset imports, nodes after a convolution, and functions of models."""


def exported(name: str) -> Iterator[list[str]]:
    """Yield a detector's rows, by both exporters, compared with PyTorch.

    Raises:
        click.ClickException: torchvision cannot be imported.
    """
    torch.manual_seed(0)
    maker, settings = DETECTORS[name]
    try:
        make = pkgutil.resolve_name(f"torchvision.models.detection:{maker}")
    except (ImportError, RuntimeError) as error:
        raise click.ClickException(f"{name}: must have a torchvision that fits PyTorch ({error})") from error
    module = make(weights=None, weights_backbone=None, num_classes=2 if "Keypoint" in name else 5, **settings).eval()
    size = name.partition(", ")[2]
    sizes = [tuple(map(int, size.split("x")))] if size else SIZES
    coarse = [torch.rand(1, 3, height // 8, width // 8) for height, width in sizes]
    images = [
        torch.nn.functional.interpolate(one, both, mode="bilinear")[0] for one, both in zip(coarse, sizes, strict=True)
    ]
    with torch.no_grad():
        _balance(module, images[0])
        expected = [[tensor.numpy() for tensor in module([image])[0].values()] for image in images]
    older, export = io.BytesIO(), partial(torch.onnx.export, module, ([images[0]],))
    with warnings.catch_warnings(), onnx_models.torch.exportable_detectors():
        warnings.simplefilter("ignore")
        export(older, dynamo=False, opset_version=17, input_names=["image"], dynamic_axes={"image": [1, 2]})
        newer = export(
            dynamo=True,
            opset_version=22,
            dynamic_shapes={"images": [{1: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}]},
            custom_translation_table=onnx_models.torch.translation_table(),
            verbose=False,
        )
    for exporter, model in (("older, 17", onnx.load_from_string(older.getvalue())), ("dynamo, 22", newer.model_proto)):
        yield row(name, exporter, model, [{model.graph.input[0].name: one.numpy()} for one in images], expected)


def _balance(module: Any, image: Any) -> None:
    """Give layers random weights and outputs of variance 1, so that scores differ and rounding errors stay small."""
    scaled = set[Any]()

    def scale(wanted: float, layer: Any, _: Any, output: Any) -> Any:
        factor = 1 if layer in scaled else wanted / output.std()
        scaled.add(layer)
        layer.weight.mul_(factor)
        return output * factor

    hooks = []
    for name, layer in module.named_modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
            torch.nn.init.normal_(layer.weight)
            hooks.append(layer.register_forward_hook(partial(scale, 0.3 if "bbox" in name else 1)))
    module([image])
    for hook in hooks:
        hook.remove()


def written(name: str) -> Iterator[list[str]]:
    """Yield the row of a model of one convolution and a RoI node, compared with the lowered model."""
    imports, nodes, functions = WRITTEN[name]
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: [{imports}]>
        g (float[n, 3, h, w] image, float[k, 4] boxes, int64[k] of) => (float[k, 64, 7, 7] y) {{
            maps = Conv <strides = [8, 8], pads = [4, 4, 4, 4]> (image, weight) {nodes}
        }} {functions}""")
    rng, feeds = np.random.default_rng(0), []
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.random((64, 3, 9, 9), np.float32), "weight"))
    for height, width in SIZES:
        corners = rng.uniform(0, [width - 64, height - 64], (50, 2))
        boxes = np.hstack([corners, corners + rng.uniform(16, 64, (50, 2))]).astype(np.float32)
        image = rng.standard_normal((1, 3, height, width), np.float32)
        feeds.append({"image": image, "boxes": boxes, "of": np.zeros(50, np.int64)})
    yield row(name, f"-, {model.opset_import[0].version}", model, feeds, None)


def row(name: str, exporter: str, model: onnx.ModelProto, feeds: Sequence[Any], expected: Any) -> list[str]:
    """Measure a model, print ONNX Runtime's errors, and return the texts of its row."""
    converted, lowered = onnx_models.convert(model), onnx_models.lower(model)
    loads, runs, outputs = dict[str, Call](), dict[str, Call](), dict[str, Any]()
    kinds = ((ortops, model), (onnxruntime, model), (ortops, converted), (onnxruntime, lowered))
    for kind, (runtime, one) in zip(HEADINGS[2:], kinds, strict=False):
        load = partial(runtime.InferenceSession, one.SerializeToString(), options(), providers=[CPU])
        try:
            session = load()
        except Exception as error:  # noqa: BLE001  # whatever ONNX Runtime says
            click.echo(f"{name} ({exporter}), {kind}: {error}")
            continue
        outputs[kind] = [array for each in feeds for array in session.run(None, each)]
        loads[kind], runs[kind] = Call(load), Call(partial(session.run, None, feeds[0]))
    wanted = [array for each in expected for array in each] if expected else outputs["lowered"]
    pairs = [pair for found in outputs.values() for pair in zip(found, wanted, strict=True)]
    off = max(np.abs(np.subtract(a, b, dtype=float)).max() / max(1, np.abs(b).max()) for a, b in pairs)
    cells = [Cell("detectors", "", "", 0, interleave(*each)) for each in ((runs, 7), (loads, 3))]
    first = " / ".join(digits(cell.ms(HEADINGS[2]), 0) for cell in cells)
    more = (
        " / ".join(digits(cell.ratio(one), 1) for cell in cells) if one in runs else "refused" for one in HEADINGS[3:6]
    )
    return [name, exporter, first, *more, f"{off:.0e}"]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*DETECTORS, *WRITTEN]))
@click.option(
    "--write", type=click.Path(exists=True, path_type=Path), metavar="F.md", help="Replace the table in F.md."
)
def main(names: Sequence[str], write: Path | None) -> None:
    """Time a run and the loading of models: as they are in milliseconds, converted or lowered as multiples of that."""
    rows = [
        each for name in names or (*DETECTORS, *WRITTEN) for each in (exported if name in DETECTORS else written)(name)
    ]
    show(Grid(HEADINGS, rows))
    if write:
        write.write_text(replaced(write.read_text("utf-8"), {"detectors": Grid(HEADINGS, rows)}), "utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.detectors")
