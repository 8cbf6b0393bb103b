# SPDX-License-Identifier: MIT
"""Tensors as plain files: their bytes, and what a reader refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import tensor_files
from conformance.case import Array

GOOD = {"name": "X", "type": "float", "shape": [2, 3], "file": "x.bin"}


@pytest.mark.parametrize("kind", tensor_files.TYPES)
def test_an_array_of_each_type_and_layout_comes_back(kind: str, tmp_path: Path) -> None:
    values = np.arange(12).astype(tensor_files.TYPES[kind])
    arrays: list[Array] = [values.reshape(3, 4).T, values[::2], values[:0].reshape(0, 4), values[5].reshape(())]
    for array in arrays:
        description = tensor_files.write(array, tmp_path, "x.bin", "X")
        again = tensor_files.read(description, tmp_path)
        assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_file_has_the_elements_in_c_order_little_endian_and_nothing_else(tmp_path: Path) -> None:
    array = np.array([[1, 2], [3, 258]], ">i4").astype("i4").T
    description = tensor_files.write(array, tmp_path, "x.bin", "X")
    assert description == {"name": "X", "type": "int32", "shape": [2, 2], "file": "x.bin"}
    assert (tmp_path / "x.bin").read_bytes() == bytes([1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0])


def test_strings_have_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="X has type object: must be one of float16"):
        tensor_files.write(np.array(["a"], object), tmp_path, "x.bin", "X")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ([], r"tensor \[\]: must be an object with the fields name, type, shape, file"),
        ({**GOOD, "order": "C"}, "must be an object with the fields"),
        ({**GOOD, "name": None}, "name None: must be a string"),
        ({**GOOD, "type": "float32"}, "type 'float32': must be one of float16, bfloat16, float, double"),
        ({**GOOD, "type": ["float"]}, r"type \['float'\]: must be one of"),
        ({**GOOD, "shape": [2, -3]}, r"shape \[2, -3\]: must be a list of integers, none below 0"),
        ({**GOOD, "shape": [2.0, 3]}, "must be a list of integers"),
        ({**GOOD, "shape": [True, 6]}, "must be a list of integers"),
        ({**GOOD, "shape": [1] * 33}, "must have at most 32 axes"),
        ({**GOOD, "shape": [0, 2**62]}, "and 4611686018427387904 bytes"),
        ({**GOOD, "shape": [2, 2]}, r"has 24 bytes, but float of shape \[2, 2\] needs exactly 16"),
        ({**GOOD, "shape": [2**40]}, "needs exactly 4398046511104"),
        ({**GOOD, "file": "../x.bin"}, "must be the name of a file in the folder, without a path"),
        ({**GOOD, "file": ""}, "file '': must be the name"),
        ({**GOOD, "file": "pipe"}, "file pipe: must be a regular file"),
    ],
)
def test_a_wrong_description_is_refused_by_field_value_and_rule(description: Any, message: str, tmp_path: Path) -> None:
    tensor_files.write(np.zeros((2, 3), np.float32), tmp_path, "x.bin", "X")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=message):
        tensor_files.read(description, tmp_path)


def test_a_link_a_folder_and_a_missing_file_are_not_read(tmp_path: Path) -> None:
    tensor_files.write(np.zeros((2, 3), np.float32), tmp_path, "x.bin", "X")
    (tmp_path / "link").symlink_to("x.bin")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "missing"):
        with pytest.raises(OSError, match=name):
            tensor_files.read({**GOOD, "file": name}, tmp_path)


def test_a_larger_file_than_the_caller_allows_takes_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "x.bin").open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(ValueError, match="needs 1099511627776 bytes, must need at most 1024"):
        tensor_files.read({**GOOD, "shape": [2**38]}, tmp_path, 1024)
