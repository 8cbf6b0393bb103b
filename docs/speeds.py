# SPDX-License-Identifier: MIT
"""The sentences that say how many times as long another runtime takes: their numbers are those of tables in docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator

_RANGE = r"[\d.]+ to(\s)[\d.]+"

_ALONE = "one"
"""The workload of a single RoI, which the sentences leave out."""

SENTENCES = {
    "ONNX Runtime's kernel takes": ("roi-align", "average", "onnxruntime"),
    "OpenVINO's kernel takes": ("roi-align", "average", "openvino"),
    "ONNX Runtime's node takes": ("in-model", "RoiAlign", "onnxruntime"),
    "OpenVINO's node takes": ("in-model", "RoiAlign", "openvino"),
    "With conversions, ONNX Runtime takes": ("in-model", "with conversions", "onnxruntime"),
    "OpenVINO takes": ("in-model", "with conversions", "openvino"),
    "Deformable DETR](docs/performance.md#detectors-with-attention) takes": (
        "attention",
        "Deformable DETR",
        "onnxruntime",
    ),
    "Faster R-CNN takes": ("detectors", "Faster R-CNN, .*", "ONNX Runtime"),
}
"""By the words before a range: the comment above a table, a pattern of its first column, and the column of the numbers."""


def ranged(text: str, tables: str) -> str:
    """A document with the ranges of its sentences as they are in the tables, documents of docs/."""
    for words, measured in SENTENCES.items():
        ratios = sorted(_ratios(tables, *measured))
        digits = 0 if ratios[-1] >= 10 else 1
        low, high = (f"{ratio:.{digits}f}" for ratio in (ratios[0], ratios[-1]))
        sentence = r"\s".join(map(re.escape, words.split()))
        text = re.sub(rf"({sentence}\s){_RANGE}", rf"\g<1>{low} to\g<2>{high}", text)
    return text


def _ratios(tables: str, comparison: str, operation: str, runtime: str) -> Iterator[float]:
    """The numbers in brackets, or those before a slash; a cell that is empty repeats the one above."""
    lines = tables.partition(f"<!-- {comparison} -->\n\n")[2].partition("\n\n")[0].splitlines()
    columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    place, name, workload = columns.index(runtime), "", ""
    for row in rows:
        name, workload = row[0] or name, row[1] or workload
        ratio = re.search(r"\(([\d.]+)\)|^([\d.]+) /", row[place])
        if re.fullmatch(operation, name) and workload != _ALONE and ratio:
            yield float(ratio[1] or ratio[2])
