"""High-performance LINPACK: LU factorisation of a dense matrix, block column by block column, as a graph per step.

A step factors the panel (the next block of columns) and subtracts its product from the trailing matrix. The trailing matrix
shrinks by a block per step, so each step of a run is a workload of its own: `hpl_orders` lists their orders.

Dims: block k (as columns of L and rows of U: l), rows i and columns j of the trailing matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

from halley.errors import Fault
from halley.ir.workload import Workload
from halley.workloads.construction.graph import contract, elementwise, tensors
from halley.workloads.construction.parameters import Rule, WorkloadKind, check, element_type, size


def hpl(order: int, block: int, dtype: str = "fp64") -> Workload:
    """One step on a matrix ``[[A11, A12], [A21, A22]]`` of ``order`` rows, of which A11 has ``block``:
    ``L21 = A21 U11^-1``, ``U12 = L11^-1 A12``, ``A22 - L21 U12``.

    The inverses of the factors of A11 are inputs, Ui and Li: triangular solves are products with them, as on accelerators. Left
    out: the factorisation of A11 itself, a fraction 1 / (3 (order / block)^2) of the step's work, and pivoting.

    >>> work = hpl(order=12, block=4)
    >>> [op.name for op in work.ops], work.macs() == 8 * 4 * 4 * 2 + 8 * 8 * 4
    (['panel', 'solve', 'update', 'subtract'], True)

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"order": order, "block": block, "dtype": dtype}
    check(HPL, given)
    rest = order - block
    return Workload(
        HPL.name,
        {"k": block, "l": block, "i": rest, "j": rest},
        tensors(dtype, {"A21": "i k", "A12": "k j", "A22": "i j", "Ui": "k l", "Li": "l k"})
        | tensors(dtype, {"L21": "i l", "U12": "l j", "T": "i j", "Anew": "i j"}),
        (
            contract("panel", "A21 Ui", "L21", "i k l"),
            contract("solve", "Li A12", "U12", "l k j"),
            contract("update", "L21 U12", "T", "i l j"),
            elementwise("subtract", "subtract", "A22 T", "Anew", "i j"),
        ),
        ("L21", "U12", "Anew"),
        kernels=(("panel",), ("solve",), ("update", "subtract")),
        parameters=given,
    )


def hpl_orders(order: int, block: int) -> Iterator[int]:
    """The orders of the steps of a run: ``order``, ``order - block``, ..., while the trailing matrix is not empty.

    >>> list(hpl_orders(10, 4))
    [10, 6]
    """
    yield from range(order, block, -block)


def _left(order: int, block: int) -> Fault | None:
    if block < order:
        return None
    return Fault("workload hpl, parameter block", f"less than order ({order})", str(block), "the last block has nothing left")


HPL = WorkloadKind(
    "hpl",
    "one step of a dense LU factorisation",
    hpl,
    (
        size("order", "rows and columns at the start of the step"),
        size("block", "rows and columns of the block that the step factors"),
        element_type("fp64"),
    ),
    (Rule(("order", "block"), _left),),
)
