"""Evaluation of a program for all combinations of choices per dim.

The grid is traversed in row-major order, the last dim contiguous. Values that depend on fewer dims are computed once, not for
each combination of the others: the code has levels, one per loop. `Grid` evaluates it with NumPy, a box of trailing dims at a
time, by broadcasting; `halley.cost.programs.accelerator` evaluates it compiled, a piece of the last dim at a time. Both do the
same operations in the same order for every combination.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, permutations, product
from typing import NamedTuple

import numpy as np

from halley.cost.programs.instructions import Array, Code, Instruction, Place, allocated, apply
from halley.formulas.terms import Operation
from halley.optim.switch import CompiledLoops

COMBINATIONS_PER_BOX = 1 << 13
"""Combinations that NumPy computes at once: enough to amortise its calls, few enough to stay in a core's cache."""

DIMS_IN_ANY_ORDER = 6
"""Largest number of dims for which all traversal orders are compared."""

NUMPY_COMBINATIONS_PER_SECOND = 5e7
"""Approximate rate [1/s] of NumPy, to estimate the time of a run."""

INSTRUCTION_START_COST = 32
"""Cost of starting a compiled instruction, in units of one result."""


SWITCH = CompiledLoops("halley.cost.programs.accelerator")
"""Whether programs run compiled in this process."""


class GridMinimum(NamedTuple):
    """The minimum of an output over the combinations that fit, and the number of the combination; inf and -1 if none fits."""

    value: float
    combination: int


@dataclass(frozen=True)
class Grid:
    """``values``: the program's instructions, one per value. ``kinds``: the dim of each factor. ``columns``: the value of each
    factor for each choice of its dim. ``counts``: by dim, in traversal order, the number of choices."""

    values: Sequence[Instruction]
    outputs: Sequence[Place]
    kinds: Sequence[str]
    columns: Sequence[Array]
    counts: Mapping[str, int]

    def __post_init__(self) -> None:
        for kind, column in zip(self.kinds, self.columns, strict=True):
            if len(column) != self.counts[kind]:
                raise ValueError(f"grid: expected {self.counts[kind]} values of a factor of {kind}; got {len(column)}")

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.counts.values())

    @cached_property
    def depends(self) -> list[frozenset[str]]:
        """The dims that each value depends on."""
        return dependences(self.values, self.kinds)

    def costs(self) -> Array:
        """Values of the outputs (outputs x combinations)."""
        result = np.empty((len(self.outputs), self.size))
        kernels = SWITCH.loops(self.size / NUMPY_COMBINATIONS_PER_SECOND)
        if kernels is not None and self.counts:
            kernels.grid_costs(self, result)
            return result
        done = 0
        for shape, found in self.boxes():
            rows = math.prod(shape)
            for row, value in enumerate(found):
                result[row, done : done + rows].reshape(shape)[...] = value
            done += rows
        return result

    def least(self, capacities: Sequence[float]) -> list[GridMinimum]:
        """Minimum of each of the first outputs over the combinations for which the last outputs are within the ``capacities``. Of
        equal values the first combination counts; NaN never counts. The compiled version cannot be interrupted with Ctrl-C:
        divide runs of minutes into several grids."""
        width = len(self.outputs) - len(capacities)
        kernels = SWITCH.loops(self.size / NUMPY_COMBINATIONS_PER_SECOND)
        if kernels is not None and self.counts:
            return [GridMinimum(value, place) for value, place in kernels.grid_least(self, capacities)]
        best = [GridMinimum(math.inf, -1)] * width
        done = 0
        for shape, found in self.boxes():
            over = np.zeros((), dtype=bool)
            for used, capacity in zip(found[width:], capacities, strict=True):
                over = over | np.greater(used, capacity)
            for row, value in enumerate(found[:width]):
                better = np.less(value, best[row].value) & ~over
                if better.any():
                    inside = np.where(better, value, np.inf)
                    flat = np.broadcast_to(inside, shape).ravel()
                    place = int(flat.argmin())
                    best[row] = GridMinimum(float(flat[place]), done + place)
            done += math.prod(shape)
        return best

    def boxes(self) -> Iterator[tuple[tuple[int, ...], list[Array | float]]]:
        """Boxes of the grid in order: (shape, outputs in shapes that broadcast to it)."""
        dims, counts = tuple(self.counts), tuple(self.counts.values())
        if not dims:
            counts, dims = (1,), ("",)
        cut, block = _cut(counts)
        loops = dims[: cut + 1]
        code = self.code(loops)
        lie = ([-1 if dim == kind else 1 for dim in dims] for kind in self.kinds)
        spread = [column.reshape(shape) for column, shape in zip(self.columns, lie, strict=True)]
        registers: list[Array | float] = [0.0] * code.registers
        walks = [*(range(count) for count in counts[:cut]), range(0, counts[cut], block)]
        before: tuple[int, ...] | None = None
        for starts in product(*walks):
            sizes = (*(1 for _ in range(cut)), min(block, counts[cut] - starts[-1]))
            parts = (slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
            box = {dim: (*(slice(None),) * at, part) for at, (dim, part) in enumerate(zip(loops, parts, strict=True))}
            changed = 0 if before is None else 1 + next(at for at in range(len(loops)) if before[at] != starts[at])
            before = starts
            for operation, target, a, b in chain.from_iterable(code.levels[changed:]):
                if operation is Operation.OPEN:
                    registers[target] = spread[int(a)][box.get(self.kinds[int(a)], ())]
                else:
                    x, y = (registers[place] if isinstance(place, int) else np.float64(place) for place in (a, b))
                    registers[target] = apply(operation, x, y)
            SWITCH.spent += math.prod(sizes) * math.prod(counts[cut + 1 :]) / NUMPY_COMBINATIONS_PER_SECOND
            yield (*sizes, *counts[cut + 1 :]), [registers[place] if isinstance(place, int) else place for place in code.outputs]

    def code(self, loops: Sequence[str]) -> Code:
        """The code in levels: values that depend on no dim of the loops, then values that change with each loop, outermost
        first."""
        inside = {dim: 1 + at for at, dim in enumerate(loops)}
        levels = [max((inside.get(dim, 0) for dim in dims), default=0) for dims in self.depends]
        return allocated(self.values, self.outputs, levels)


def _cut(counts: Sequence[int]) -> tuple[int, int]:
    """The dim that boxes divide, and the number of its choices per box; a box has all choices of later dims."""
    inner = 1
    for at in range(len(counts) - 1, 0, -1):
        if inner * counts[at] > COMBINATIONS_PER_BOX:
            return at, max(1, COMBINATIONS_PER_BOX // inner)
        inner *= counts[at]
    return 0, max(1, COMBINATIONS_PER_BOX // inner)


def dependences(values: Sequence[Instruction], kinds: Sequence[str]) -> list[frozenset[str]]:
    """The dims that each value depends on."""
    found: list[frozenset[str]] = []
    for step in values:
        own = (kinds[int(step.a)],) if step.operation is Operation.OPEN else ()
        found.append(frozenset(own).union(*(found[used] for used in step.used)))
    return found


def cheapest_order(values: Sequence[Instruction], kinds: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    """The traversal order of the dims with the least work, in which few instructions depend on the innermost loops. With more
    than `DIMS_IN_ANY_ORDER` dims: by number of choices, ascending."""
    if len(counts) > DIMS_IN_ANY_ORDER:
        return tuple(sorted(counts, key=counts.__getitem__))
    steps = Counter(dependences(values, kinds))

    def work(order: tuple[str, ...]) -> float:
        total = 0.0
        for dims, number in steps.items():
            deepest = max((at for at, dim in enumerate(order[:-1]) if dim in dims), default=-1)
            times = math.prod(counts[dim] for dim in order[: deepest + 1])
            total += number * times * (INSTRUCTION_START_COST + (counts[order[-1]] if order[-1] in dims else 0))
        return total

    return min(permutations(counts), key=work)
