"""Which dims of a contraction lie on the two sides of the matrix engine's array."""

from __future__ import annotations

from collections.abc import Iterable

from halley.ir.hardware import Dataflow
from halley.ir.workload import Roles

Side = tuple[str, ...]
"""The dims of one side. The first may be cut to any tile; the others lie there with it, whole."""

Array = tuple[Side, ...]
"""The dims on the rows and on the columns of the array; nothing where they are the usual ones (`on_sides`)."""


NO_DIM = "-"
"""What stands for a side on which no dim lies."""


def sides(role: Roles, dataflow: Dataflow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The dims that may lie on the rows of the array, and those that may on its columns; none where every MAC reads its operands.

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
    """The dims that do lie there: those that a mapping names, or else the last that may.

    >>> on_sides((), Roles(rows=("m",), columns=("n",), reduced=("c", "r"), batch=()), Dataflow.WEIGHT)
    (('r',), ('n',))
    """
    rows, columns = array or (side[-1:] for side in sides(role, dataflow))
    return rows, columns


def side_text(dims: Iterable[str]) -> str:
    """The dims of a side in words, a dash for none.

    >>> side_text(("c", "r"))
    'c|r'
    """
    return "|".join(dims) or NO_DIM
