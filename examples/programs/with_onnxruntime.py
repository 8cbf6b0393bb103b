# SPDX-License-Identifier: MIT
"""ONNX Runtime as a program that the suite asks (docs/protocol.md): `--backend 'exec:python with_onnxruntime.py'`."""

import functools
import json
import os
import sys
from typing import Any

import numpy as np
import onnxruntime

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int64": np.int64, "uint32": np.uint32}
onnxruntime.set_default_logger_severity(4)
session_of = functools.lru_cache(1)(onnxruntime.InferenceSession)  # the calls of a session have one model


def run(model: str, inputs: list[Any], outputs: list[str], node: dict[str, Any], **_: object) -> dict[str, Any]:
    """The answer to the request to run: outputs, unsupported or refused."""
    if node["domain"] or any(tensor["type"] not in TYPES for tensor in inputs):
        return {"unsupported": f"no {node['op_type']} of {inputs[0]['type']}"}
    try:
        feeds = {t["name"]: np.fromfile(t["file"], TYPES[t["type"]]).reshape(t["shape"]) for t in inputs}
        arrays = dict(zip(outputs, session_of(model).run(outputs, feeds), strict=True))
    except Exception as error:  # noqa: BLE001  # whatever a runtime raises is its refusal
        return {"refused": str(error)}
    answers = []
    for name, array in arrays.items():
        array.tofile(f"{name}.out")
        kind = next(kind for kind, dtype in TYPES.items() if array.dtype == dtype)
        answers.append({"name": name, "type": kind, "shape": array.shape, "file": f"{name}.out"})
    return {"outputs": answers}


for request in map(json.loads, sys.stdin):
    if request["request"] == "stop":
        break
    if request["request"] == "start":
        os.chdir(request["folder"])  # in which all files are
    start = {"version": 1, "runtime": onnxruntime.__version__}
    answer = start if request["request"] == "start" else run(**request)
    print(json.dumps({"seq": request["seq"], **answer}), flush=True)
