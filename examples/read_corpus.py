"""Run the cases that `python -m conformance export DIR --whole` wrote, without this project: `python read_corpus.py DIR`."""

import collections
import hashlib
import json
import pathlib
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(4)


def tensors(data: pathlib.Path, role: str) -> list[Any]:
    """The inputs or outputs of a call."""
    files = (data / f"{role}_{i}.pb" for i in range(len(list(data.glob(f"{role}_*.pb")))))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]


def outcome(folder: pathlib.Path, atol: float, rtol: float) -> str:
    """The outcome of a case in ONNX Runtime: answered, wrong or refused."""
    try:
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        names = [value.name for value in session.get_inputs()]
        for data in sorted(folder.glob("test_data_set_*")):
            answers = session.run(None, dict(zip(names, tensors(data, "input"), strict=True)))
            for answer, due in zip(answers, tensors(data, "output"), strict=False):
                np.testing.assert_allclose(answer, due, rtol, atol, strict=True)
    except AssertionError:
        return "wrong"
    except Exception:  # noqa: BLE001  # whatever a runtime raises is its refusal
        return "refused"
    return "answered"


def main(root: pathlib.Path) -> collections.Counter[str]:
    """Count the cases by outcome, after a check that the files of each have the digest in the index."""
    counts: collections.Counter[str] = collections.Counter()
    for case in json.loads((root / "index.json").read_text("utf-8"))["cases"]:
        folder, twin, bounds = root / case["folder"], case["twin"], (case["atol"], case["rtol"])
        names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        sums = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
        if hashlib.sha256(sums.encode()).hexdigest() != case["sha256"]:
            raise ValueError(f"{folder} is not what was exported")
        if case["dialect"] != "standard" or case["folder"].startswith("huge/"):
            counts["not run"] += 1
        elif twin and outcome(root / twin, *bounds) != "answered":
            counts["must fail, but its twin is not answered"] += 1
        else:
            counts["must fail, " * case["must_fail"] + outcome(folder, *bounds)] += 1
    return counts


if __name__ == "__main__":
    print(*(f"{count} {what}" for what, count in main(pathlib.Path(sys.argv[1])).most_common()), sep="\n")
