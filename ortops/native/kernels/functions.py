# SPDX-License-Identifier: MIT
"""The types of functions that compiled code calls by address, and the tuples that hold these addresses.

Type checkers check every call (`compiler.parallel.call`) and every function with a loaded address against these types. In
compiled code an address is an integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

from ortops.native.elements import Address, Doubles, Elements, Words
from ortops.native.kernels.layout import Form, PlacedRois, Plan, Table, Tables
from ortops.native.structs import POINTER, Struct

Filling: TypeAlias = Callable[[PlacedRois, list[Table], Form, int], None]
Pooling: TypeAlias = Callable[[Elements, int, Tables, float, Elements, Elements], None]
AddingToDrois: TypeAlias = Callable[[Elements, int, Elements, Tables, Elements, Doubles, Doubles], None]
AddingToDx: TypeAlias = Callable[[Elements, Elements, Tables, int, int, Elements, Elements, int], None]
AddingProducts: TypeAlias = Callable[[Elements, int, Elements, int, bool, Elements, int, Table, Doubles], None]

Share: TypeAlias = Address[Callable[[PlacedRois, Plan, int, int, Form, "Sizes", "Functions"], int]]
Fill: TypeAlias = Address[Filling]
Sort: TypeAlias = Address[Callable[[PlacedRois, "SharedTables"], bool]]
Run: TypeAlias = Address[Callable[[int, int, int, int, int, int, int, Words], int]]
Pack: TypeAlias = Address[Callable[[Elements, int, int, int, int, int, Elements], None]]
Unpack: TypeAlias = Address[Callable[[Elements, int, Elements, int, int], None]]
Read: TypeAlias = Address[Callable[[Elements, int, Elements], None]]
Stop: TypeAlias = Address[Callable[[], int]]
Drive: TypeAlias = Address[Callable[[int, int, int, PlacedRois, "Driver", float, int, int], int]]
RoundSums: TypeAlias = Address[Callable[[Doubles, int, int, int, int, int, int], None]]
Pool: TypeAlias = Address[Pooling]
AddToDrois: TypeAlias = Address[AddingToDrois]
AddToDx: TypeAlias = Address[AddingToDx]
AddProducts: TypeAlias = Address[AddingProducts]
Attend: TypeAlias = Address[Callable[..., None]]
"""One of three functions of `attention`."""

Arithmetic: TypeAlias = Address[Any]
"""One of the four above; a driver assigns it to a variable of the type that it calls."""


class Functions(Struct):
    """The functions that a driver calls."""

    share: Share  # `roi_tables.share` or `rotated_tables.share`
    fill: Fill  # fills the tables of a RoI
    sort: Sort  # `sliding.sort_by_first_row`
    run: Run  # `native.tasks.run_in_chunks`
    stop: Stop  # says whether a call must end before its next chunk or part (`native.python_api.signal_raised`)
    pack: Pack  # panels of an element type (`pack`)
    unpack: Unpack
    read: Read  # planes of an element type
    write: Read
    panel: Arithmetic  # for a panel of LANES channels: `Pool`, `AddToDrois` or `AddToDx`
    plane: Arithmetic  # the same arithmetic, specialised for single planes; or `AddProducts`


class Driver(Struct):
    """What computes an output for a mode and an element type (`library.drivers`)."""

    drive: Drive
    in_parts: Drive  # calls `drive` for parts of the RoIs
    part_work: int  # the most work of a part: pixels to read plus bins to fill; for lists, their bytes
    part_maps: int  # the most work of a part in maps, if maps have more pixels than `part_work`
    add_up: Drive  # adds up a 16-bit type's dX in parts, or 0
    of_sums: Annotated[Driver, POINTER]  # computes these parts
    round_sums: RoundSums  # `sums.round_sums`, if the output is drois
    role: int  # TO_Y, TO_DX or TO_DROIS
    kind: int  # the element type to load and store
    form: int  # the fields of `Form`
    with_grad: int
    numbers: int
    functions: Functions


class ResampleDriver(Struct):
    """What resamples tensors of an element type."""

    copy_lines: Arithmetic  # `resample.copy_lines`
    sum_lines: Arithmetic
    run: Run
    stop: Stop
    kind: int


class AttentionDriver(Struct):
    """What computes multi-scale deformable attention on tensors of an element type (`attention`)."""

    attend: Attend  # fills Y
    attend_gradient: Attend  # fills dlocations and dweights
    scatter: Attend  # fills dvalue
    run: Run
    stop: Stop
    kind: int


class Sizes(NamedTuple):
    """The sizes of the tables of all RoIs.

    words: the words of all tables together.
    rows, columns: the entries of the largest table along y and along x.
    fits: whether `roi_tables.share` fills all tables once; otherwise each task fills the tables that it uses.
    """

    words: int
    rows: int
    columns: int
    fits: bool


class Groups(NamedTuple):
    """The RoIs grouped by image: image n has order[first[n]:first[n + 1]].

    A group is in ascending order, or ordered by first row after `sliding.sort_by_first_row`.
    """

    order: Words
    first: Words


class SharedTables(NamedTuple):
    """The memory that all tasks share.

    failed: a status, which a worker sets if it cannot allocate memory.
    tables: each slot's tables along y and along x [slots, 2].
    is_filled: whether each RoI has a slot, already filled for the RoIs of the part to compute. Otherwise each worker has a
        slot, which it fills.
    groups: the RoIs by image.
    form: what the tables hold.
    fill: the function that fills a RoI's tables.
    """

    failed: Words
    tables: list[Table]
    is_filled: bool
    groups: Groups
    form: Form
    fill: Fill
