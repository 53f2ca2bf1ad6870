"""Which dims of a contraction are mapped to the rows and to the columns of the matrix engine's array."""

from __future__ import annotations

from collections.abc import Iterable

from halley.ir.hardware import Dataflow
from halley.ir.workload import Roles

Side = tuple[str, ...]
"""The dims mapped to one side of the array. The first may be tiled; the others must be untiled."""

Array = tuple[Side, ...]
"""The dims on the rows and on the columns of the array; empty where they are the default ones (`on_sides`)."""


NO_DIM = "-"
"""Text of a side without a dim."""


def sides(role: Roles, dataflow: Dataflow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dims that a dataflow allows on the rows of the array, and those on its columns; none for the dataflow ``NONE``.

    >>> sides(Roles(rows=("m",), columns=("n",), reduced=("c", "r"), batch=()), Dataflow.WEIGHT)
    (('c', 'r'), ('n',))
    """
    match dataflow:
        case Dataflow.WEIGHT:
            return role.reduced, role.columns
        case Dataflow.INPUT:
            return role.reduced, role.rows
        case Dataflow.OUTPUT:
            return role.rows, role.columns
        case Dataflow.NONE:
            return (), ()


def on_sides(array: Array, role: Roles, dataflow: Dataflow) -> tuple[Side, Side]:
    """The dims on the rows and columns: those that the mapping names, or by default the last dim that each side allows.

    >>> on_sides((), Roles(rows=("m",), columns=("n",), reduced=("c", "r"), batch=()), Dataflow.WEIGHT)
    (('r',), ('n',))
    """
    rows, columns = array or (side[-1:] for side in sides(role, dataflow))
    return rows, columns


def side_text(dims: Iterable[str]) -> str:
    """The dims of a side as text, a dash for none.

    >>> side_text(("c", "r"))
    'c|r'
    """
    return "|".join(dims) or NO_DIM
