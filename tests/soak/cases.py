"""The cases of a soak: random ones of the campaigns, each with a few changes, and some of the size of a small detector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.fuzz.corrupt import corrupt
from conformance.fuzz.generate import BY_REFERENCE, generate
from ortops.operators import OPERATORS
from ortops.spec import ELEMENT_DTYPES, AttributeValue, Operator

CHANGES = 2
"""Cases with one thing changed, most of them wrong, for each random one. Most go to a session of the unchanged one."""


def small(seed: int, count: int) -> Iterator[Case]:
    """`count` random cases and their changes, the operators in turn."""
    for number in range(count):
        case = generate(seed, number, (OPERATORS[number % len(OPERATORS)].name,))
        rng = np.random.default_rng([seed, number])
        yield case
        for change in range(CHANGES):
            yield replace(corrupt(case, rng), id=f"{case.id}/{change}")


def middling(seed: int) -> Iterator[Case]:
    """One case of each operator in each type, large enough that threads share the work."""
    rng = np.random.default_rng(seed)
    for operator in OPERATORS:
        for element_type in operator.element_types(operator.inputs[0]):
            yield _middling(operator, element_type, rng)


def _middling(operator: Operator, element_type: str, rng: np.random.Generator) -> Case:
    dtype = ELEMENT_DTYPES[element_type]
    images, channels, height, width, count, bins = 2, 64, 25, 38, 10, 5
    x = rng.standard_normal((images, channels, height, width)).astype(dtype)
    # Each covers most of a map.
    near, far = rng.uniform(0, 4, (count, 2)), np.array([width, height]) - rng.uniform(0, 4, (count, 2))
    rois = np.concatenate([near, far], axis=1).astype(dtype)
    turned = np.concatenate([(near + far) / 2, far - near, rng.uniform(-3, 3, (count, 1))], axis=1).astype(dtype)
    indices, shape = rng.integers(0, images, count), np.array(x.shape)
    of_images = np.column_stack([indices.astype(dtype), rois])
    dy = rng.standard_normal((count, channels, bins, bins)).astype(dtype)
    attributes: dict[str, AttributeValue] = {
        a.name: str(rng.choice(a.choices)) for a in operator.attributes if a.choices
    }
    # Few samples: the reference takes its time for each.
    sizes: dict[str, AttributeValue] = {"output_height": bins, "output_width": bins, "pooled_shape": (bins, bins)}
    sizes |= {"sampling_ratio": 2, "maximum_samples_per_output": 2}
    attributes |= {a.name: sizes[a.name] for a in operator.attributes if a.name in sizes}
    inputs = {
        "roi_align": (x, rois, indices),
        "roi_align_grad": (dy, rois, indices, shape, x),
        "dml_roi_align": (x, rois, indices),
        "dml_roi_align_grad": (dy, rois, indices, shape, x),
        "roi_align_rotated": (x, turned, indices),
        "roi_align_rotated_grad": (dy, turned, indices, shape, x),
        "max_roi_pool": (x, of_images),
        "max_roi_pool_grad": (dy, x, of_images),
        "dml_resample": (x,),
        "dml_resample_grad": (x, shape // np.array([1, 1, 2, 1])),
    }[operator.function]
    if operator.at_least_one_of:
        attributes["scales"] = (1.0, 1.0, 2.0, 1.7)
    return Case(
        id=f"{operator.function}/middling/{operator.name}/{element_type}",
        source=BY_REFERENCE,
        operator=operator.name,
        attributes=attributes,
        inputs={tensor.name: array for tensor, array in zip(operator.inputs, inputs, strict=True)},
        outputs=tuple(tensor.name for tensor in operator.outputs),
        note="work for several threads",
    )
