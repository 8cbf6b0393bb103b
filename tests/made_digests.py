# SPDX-License-Identifier: MIT
"""Print a digest of each model, corpus and document that the project makes, for `test_same_bytes`."""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from conformance.cases import collect
from conformance.export import write_corpus
from docs.generate import generated
from gradient_samples import SAMPLES
from onnx_models import lower, vjp
from onnx_models.collection import collection
from onnx_models.portable import attach


def made(pattern: str) -> Iterator[tuple[str, bytes]]:
    """All that is made whose name matches a pattern, by name."""
    for sample in SAMPLES:
        for shapes in dict.fromkeys(["lengths", sample.opened]):
            name = f"the gradient of {sample.lines}, {shapes}"
            if re.search(pattern, name):
                yield name, vjp(sample.model(shapes), ["y"], sample.wrt).SerializeToString(deterministic=True)
    for name, kind, model in collection():
        for way in (attach, lower):
            if re.search(pattern, name):
                yield f"{way.__name__} {name} {kind}", way(model).SerializeToString(deterministic=True)
    if re.search(pattern, "documents"):
        yield from ((name, text.encode()) for name, text in generated().items())
    if re.search(pattern, "corpus"):
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(collect()[::400], Path(folder), "part")
            yield "corpus", Path(folder, "SHA256SUMS").read_bytes()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for label, data in made(*sys.argv[1:]):
        print(hashlib.sha256(data).hexdigest(), label)
