"""The types of functions that compiled code calls by address, and the tuples that hold these addresses.

Type checkers check every call (`jit.parallel.call`) and every function with a loaded address against these types. In
compiled code an address is an integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ortops.jit.elements import Words
from ortops.kernels.layout import Form

if TYPE_CHECKING:
    from ortops.jit.elements import Address, Doubles, Elements
    from ortops.kernels.layout import PlacedRois, Plan, Table

    Filling: TypeAlias = Callable[[PlacedRois, Table, Form, int], None]
    Pooling: TypeAlias = Callable[[Elements, int, Table, Table, float, Elements, Elements], None]
    AddingToDrois: TypeAlias = Callable[[Elements, int, Elements, Table, Table, Elements, Doubles, Doubles], None]
    AddingToDx: TypeAlias = Callable[[Elements, Elements, Table, Table, int, int, Elements, Elements, int], None]
    AddingProducts: TypeAlias = Callable[[Elements, int, Elements, int, bool, Elements, int, Table, Doubles], None]

    Share: TypeAlias = Address[Callable[[PlacedRois, Plan, int, int, Form, "Sizes", "Functions"], int]]
    Fill: TypeAlias = Address[Filling]
    Sort: TypeAlias = Address[Callable[[PlacedRois, "SharedTables"], bool]]
    Run: TypeAlias = Address[Callable[[int, int, int, int, int, int, int, Words], int]]
    Pack: TypeAlias = Address[Callable[[Elements, int, int, int, int, int, Elements], None]]
    Unpack: TypeAlias = Address[Callable[[Elements, int, Elements, int, int], None]]
    Read: TypeAlias = Address[Callable[[Elements, int, Elements], None]]
    Pool: TypeAlias = Address[Pooling]
    AddToDrois: TypeAlias = Address[AddingToDrois]
    AddToDx: TypeAlias = Address[AddingToDx]
    AddProducts: TypeAlias = Address[AddingProducts]
    Stop: TypeAlias = Address[Callable[[], int]]
    Drive: TypeAlias = Address[Callable[[int, int, int, PlacedRois, Words, float, int, int], int]]
    PlaceRois: TypeAlias = Address[Callable[[Doubles, PlacedRois, Words], int]]
    PlaceBins: TypeAlias = Address[Callable[[PlacedRois, PlacedRois], int]]
    RoundSums: TypeAlias = Address[Callable[[Doubles, int, int, int, int, int, int], None]]
    Refuse: TypeAlias = Address[Callable[[Words, Words, int, int, Doubles, int], int]]
    Arithmetic: TypeAlias = Any  # one of the last four; a driver assigns it to a variable of the type that it calls
else:
    Arithmetic = Share = Fill = Sort = Run = Stop = Pack = Unpack = Read = Pool = AddToDrois = AddToDx = AddProducts = (
        int
    )
    Drive = PlaceRois = PlaceBins = RoundSums = Refuse = int


class Functions(NamedTuple):
    """The addresses of the functions that a driver calls.

    share: `roi_tables.share` or `rotated_tables.share`.
    fill: the function that fills the tables of a RoI.
    sort: `sliding.sort_by_first_row`.
    run: `jit.tasks.run_in_chunks`.
    stop: says whether a call must end before its next chunk or part (`jit.python_api.signal_raised`).
    pack, unpack: convert panels of an element type (`pack`).
    read, write: convert planes of an element type (`pack`).
    panel: the arithmetic for a panel of LANES channels: `Pool`, `AddToDrois` or `AddToDx`.
    plane: the same arithmetic, specialised for single planes; or `AddProducts`.
    """

    share: Share
    fill: Fill
    sort: Sort
    run: Run
    stop: Stop
    pack: Pack
    unpack: Unpack
    read: Read
    write: Read
    panel: Arithmetic
    plane: Arithmetic


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
    tables: each slot's tables along y and along x [slots, 2, TABLE_WORDS].
    is_filled: whether each RoI has a slot, already filled for the RoIs of the part to compute. Otherwise each worker has a
        slot, which it fills.
    groups: the RoIs by image.
    form: what the tables hold.
    fill: the function that fills a RoI's tables.
    """

    failed: Words
    tables: Words
    is_filled: bool
    groups: Groups
    form: Form
    fill: Fill
