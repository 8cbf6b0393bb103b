# SPDX-License-Identifier: MIT
"""Run a corpus that `python -m conformance export DIR` wrote, with NumPy and ONNX Runtime alone: `read_corpus.py DIR`."""

import collections
import json
import pathlib
import sys
from typing import Any

import numpy as np
import onnxruntime

onnxruntime.set_default_logger_severity(4)

TYPES = {
    "float": "<f4",
    "double": "<f8",
    "float16": "<f2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
}


def tensor(folder: pathlib.Path, described: Any) -> Any:
    """The tensor of a description."""
    return np.fromfile(folder / described["file"], TYPES[described["type"]]).reshape(described["shape"])


def fits(got: Any, due: Any, bound: Any) -> bool:
    """Whether each element of an answer is within the bound."""
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - due)
    return bool(np.all((got == due) | (np.isnan(got) & np.isnan(due)) | (error <= bound)))


def outcome(folder: pathlib.Path) -> str:
    """The outcome of a case in ONNX Runtime: answered, wrong or refused."""
    try:
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        for i in range(json.loads((folder / "case.json").read_text("utf-8"))["calls"]):
            data = folder / f"test_data_set_{i}"
            call = json.loads((data / "tensors.json").read_text("utf-8"))
            answers = session.run(None, {described["name"]: tensor(data, described) for described in call["inputs"]})
            for got, output in zip(answers, call["outputs"], strict=bool(call["outputs"])):
                if (got.dtype, list(got.shape)) != (np.dtype(TYPES[output["type"]]), output["shape"]):
                    return "wrong"
                bound = tensor(data, output["bound"]) if isinstance(output["bound"], dict) else output["bound"]
                if not fits(got, tensor(data, output["due"]), bound):
                    return "wrong"
    except Exception:  # noqa: BLE001  # whatever a runtime raises is its refusal
        return "refused"
    return "answered"


def main(root: pathlib.Path) -> collections.Counter[str]:
    """Count the cases by outcome."""
    counts: collections.Counter[str] = collections.Counter()
    for case in json.loads((root / "index.json").read_text("utf-8"))["cases"]:
        kind, folder = case["folder"].split("/")[0], root / case["folder"]
        if case["dialect"] != "standard" or kind in ("huge", "large"):
            counts["not run"] += 1
        elif case["must_fail"] and (folder / "twin").exists() and outcome(folder / "twin") != "answered":
            counts["must fail, but its twin is not answered"] += 1
        else:
            answer = outcome(folder)
            counts["must fail, " * case["must_fail"] + answer] += 1
            if answer == "wrong":
                print(f"wrong: {case['id']}", file=sys.stderr)
    return counts


if __name__ == "__main__":
    print(*(f"{count} {what}" for what, count in main(pathlib.Path(sys.argv[1])).most_common()), sep="\n")
