"""The least cost whose use of a resource stays within a capacity: exact, by Lagrangian relaxation and branch and bound.

For any multiplier >= 0 of the resource, the least of cost + multiplier x (use - capacity) is a lower bound of the cost of all
feasible choices. The bound is highest where a feasible and an infeasible choice attain the same least (Handler and Zang,
Networks 10, 1980). Branching on the variables of the resource closes the remaining gap, lowest bound first.

The effort limit counts entries of tables instead of seconds, so that answers do not depend on the machine or its load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.answer import relative_gap
from halley.errors import BadInput, Fault, Infeasible
from halley.optim.branch_and_bound import LowestFirst, branch_and_bound
from halley.optim.elimination import CostTable, PartlyEliminated, cost, eliminate_partly, elimination_order, weighted
from halley.optim.least_sum import DIRECT_ELIMINATION_ENTRIES, least_below, least_sum

RELATIVE_TOLERANCE = 1e-9
"""Costs that differ by less, relative, count as equal. Among equal costs the choice of least use is taken."""

EFFORT_LIMIT_ENTRIES = 1 << 35
"""Entries of joined and swept tables after which the search stops with the incumbent and its gap: about a minute."""

PRE_ELIMINATION_ENTRIES = 1 << 14
"""Largest joined table when variables without the resource are eliminated in advance. Larger ones would make tables larger than
the best order of all variables does."""


Describe: TypeAlias = Callable[[float, Mapping[str, int] | None], str]
"""Formats a use of the resource for an error message, with the choice that has it, if any."""


def _plain(use: float, values: Mapping[str, int] | None) -> str:
    return f"{use:.6g}"


class OverCapacity(Infeasible):
    """No choice is feasible; ``use``: the least use of any choice."""

    def __init__(self, fault: Fault, use: float) -> None:
        super().__init__(fault)
        self.use = use


@dataclass(frozen=True, slots=True)
class ConstrainedMinimum:
    """The best choice found, with its ``cost`` and ``use``. ``bound``: lower bound of the cost of all feasible choices.
    ``nodes`` of the search tree; ``entries`` of joined tables."""

    values: Mapping[str, int]
    cost: float
    use: float
    bound: float
    nodes: int
    entries: int

    @property
    def gap(self) -> float:
        """cost / bound - 1; 0 where the difference is rounding."""
        gap = relative_gap(self.cost, self.bound)
        return gap if gap > 2 * RELATIVE_TOLERANCE else 0.0


@dataclass(frozen=True, slots=True)
class _Point:
    """A choice; ``value``: its cost + multiplier x use, the least at the multiplier for which it was found."""

    values: Mapping[str, int]
    cost: float
    use: float
    value: float


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """Result of the relaxation of a node: ``best``, the cheapest feasible choice met; ``bound``, a lower bound of all feasible
    ones. If the two differ: the ``multiplier`` of the bound, and a cheaper ``infeasible`` choice."""

    best: _Point
    bound: float
    multiplier: float = 0.0
    infeasible: _Point | None = None


_Allowed: TypeAlias = Mapping[str, NDArray[np.intp]]
"""Values that a node allows, by variable; variables that are missing may take all values."""


class _Node(NamedTuple):
    """The choices of ``allowed`` values. Of equal bounds the node of lowest ``number`` comes first."""

    bound: float
    number: int
    relaxed: _Relaxed
    allowed: _Allowed


def constrained_minimum(
    costs: Sequence[CostTable],
    uses: Sequence[CostTable],
    capacity: float = math.inf,
    where: str = "choice",
    describe: Describe = _plain,
    seconds: float = math.inf,
    effort: float = EFFORT_LIMIT_ENTRIES,
    tick: Callable[[], None] = lambda: None,
) -> ConstrainedMinimum:
    """The choice of least cost among those whose use is at most ``capacity``.

    ``where`` and ``describe`` word the error. ``effort`` [entries of tables]: when it is spent, the incumbent is returned with
    its bound; equal tables give equal answers. ``seconds`` [s]: a time limit as well, for interactive use. ``tick`` is called
    often, and may raise to stop the search without an answer.

    >>> costs = [CostTable(("x",), np.array([1.0, 4.0])), CostTable(("y",), np.array([2.0, 3.0]))]
    >>> uses = [CostTable(("x",), np.array([8.0, 1.0])), CostTable(("y",), np.array([4.0, 2.0]))]
    >>> both = constrained_minimum(costs, uses), constrained_minimum(costs, uses, 6.0)
    >>> [(found.cost, found.use, found.values["x"]) for found in both]
    [(3.0, 12.0, 0), (6.0, 5.0, 1)]

    Raises BadInput: no choice is allowed; OverCapacity: none is feasible.
    """
    end = time.monotonic() + seconds
    reduced = _pre_eliminated(costs, uses)
    search = _Search(reduced.tables, uses, capacity, tie_break_multiplier(costs, uses), tick, reduced.entries)
    # feasibility takes less time to decide than the least cost
    least_use_point = search.least_use_point({}) if capacity < math.inf else None
    root = search.relaxed({}, search.tie_break, math.inf) if least_use_point is None or least_use_point.use <= capacity else None
    if root is None and least_use_point is None:
        raise BadInput(Fault(where, "a choice that is allowed", "none", "fix fewer layouts or splits"))
    if root is None:
        assert least_use_point is not None  # as above
        raise _over_capacity(least_use_point.use, least_use_point.values, capacity, where, describe)
    best, nodes = root.best, 1

    def branch(node: _Node) -> Iterator[_Node]:
        nonlocal best, nodes
        for allowed in search.branches(node.relaxed, node.allowed):
            nodes += 1
            found = search.relaxed(allowed, node.relaxed.multiplier, best.cost, node.relaxed)
            if found is not None:
                best = min(best, found.best, key=lambda point: point.cost)
                yield _Node(max(found.bound, node.bound), nodes, found, allowed)

    open_nodes = LowestFirst([_Node(root.bound, nodes, root, {})], lambda bound: bound >= best.cost * (1 - RELATIVE_TOLERANCE))
    branch_and_bound(open_nodes, branch, lambda: search.entries >= effort or time.monotonic() >= end)
    return ConstrainedMinimum(
        reduced.complete(best.values),
        best.cost,
        best.use,
        # pruned branches may be better by the tolerance
        min(open_nodes.bound, best.cost * (1 - RELATIVE_TOLERANCE)),
        nodes,
        search.entries,
    )


def _pre_eliminated(costs: Sequence[CostTable], uses: Sequence[CostTable]) -> PartlyEliminated:
    """The cost tables with variables that no use depends on eliminated once, for all multipliers. Not where that leaves tables
    of more than two variables, which bounds by value cannot take, and too many entries to eliminate directly. Variables with one
    value are no choice: tables of many of them would have more axes than arrays can."""
    names = {name for item in uses for name, size in zip(item.variables, item.values.shape, strict=True) if size > 1}
    found = eliminate_partly(costs, names, PRE_ELIMINATION_ENTRIES)
    if all(len(item.variables) <= 2 for item in found.tables):
        return found
    order = elimination_order(tuple((item.variables, item.values.shape) for item in (*found.tables, *uses)), ())
    return found if order.entries <= DIRECT_ELIMINATION_ENTRIES else eliminate_partly(costs, names, 0)


def check_fits(uses: Sequence[CostTable], capacity: float, where: str = "choice", describe: Describe = _plain) -> None:
    """Raises OverCapacity where no choice is feasible even if all costs were finite. Reads the uses alone, which takes far less
    time than `constrained_minimum`. Does not check uses in tables of more than two variables."""
    if any(len(item.variables) > 2 for item in uses):
        return
    floor = least_sum(uses, any_of_equals=True)
    if floor is not None and floor.total * (1 - RELATIVE_TOLERANCE) > capacity:
        raise _over_capacity(floor.total, floor.values, capacity, where, describe)


def _over_capacity(use: float, values: Mapping[str, int], capacity: float, where: str, describe: Describe) -> OverCapacity:
    expected, got = f"a choice of at most {describe(capacity, None)}", f"at least {describe(use, values)}"
    return OverCapacity(Fault(where, expected, got, "use more ranks, or store less"), use)


@dataclass(slots=True)
class _Search:
    """Tables of costs and uses, the multiplier that breaks ties, what is called before each minimum, entries joined so far, and
    the choice of least use at the root once it is known."""

    costs: Sequence[CostTable]
    uses: Sequence[CostTable]
    capacity: float
    tie_break: float
    tick: Callable[[], None]
    entries: int = 0
    root_least_use: _Point | None = None

    def relaxed(self, allowed: _Allowed, multiplier: float, limit: float, parent: _Relaxed | None = None) -> _Relaxed | None:
        """Solves the Lagrangian dual of a node, from the ``multiplier`` and the choices of its ``parent`` where they are
        allowed. None if no feasible choice costs less than ``limit``."""
        point = self.at_multiplier(
            allowed, multiplier, limit + multiplier * self.capacity if multiplier > self.tie_break else math.inf
        )
        if point is None or self._bound(point, multiplier) >= limit * (1 - RELATIVE_TOLERANCE):
            return None
        feasible: _Point | None = point
        infeasible: _Point | None = point
        if point.use > self.capacity:
            feasible = parent.best if parent and _is_allowed(parent.best, allowed) else self.least_use_point(allowed)
        elif multiplier > self.tie_break:
            infeasible = (
                parent.infeasible
                if parent and parent.infeasible and _is_allowed(parent.infeasible, allowed)
                else self.at_multiplier(allowed, self.tie_break)
            )
        if feasible is None or infeasible is None or feasible.use > self.capacity:
            return None
        if infeasible.use <= self.capacity:
            return _Relaxed(infeasible, infeasible.cost * (1 - RELATIVE_TOLERANCE))
        return self._bracketed(allowed, feasible, infeasible, self._bound(point, multiplier))

    def _bracketed(self, allowed: _Allowed, feasible: _Point, infeasible: _Point, bound: float) -> _Relaxed:
        """Moves the multiplier between a feasible and an infeasible choice until no choice lies below the line through both."""
        best = feasible
        while True:
            multiplier = max((feasible.cost - infeasible.cost) / (infeasible.use - feasible.use), self.tie_break)
            line = (infeasible.cost + multiplier * infeasible.use) * (1 - RELATIVE_TOLERANCE)
            point = self.at_multiplier(allowed, multiplier, line)
            # a feasible choice costs at least the line less multiplier x capacity
            bound = max(bound, line - multiplier * self.capacity if point is None else self._bound(point, multiplier))
            if point is None or point.values in (feasible.values, infeasible.values):
                return _Relaxed(best, bound, multiplier, infeasible)
            if point.use <= self.capacity:
                feasible, best = point, min(best, point, key=lambda each: each.cost)
            else:
                infeasible = point

    def _bound(self, point: _Point, multiplier: float) -> float:
        # the multiplier that breaks ties may raise a choice's value by as much as the tolerance
        return point.value - multiplier * self.capacity if multiplier > self.tie_break else point.cost * (1 - RELATIVE_TOLERANCE)

    def at_multiplier(self, allowed: _Allowed, multiplier: float, limit: float = math.inf) -> _Point | None:
        """The choice of least cost + multiplier x use; None if none is allowed, or none below ``limit``."""
        return self._solve(weighted(self.costs, self.uses, multiplier), allowed, limit=limit)

    def least_use_point(self, allowed: _Allowed) -> _Point | None:
        """The choice of least use; of equal ones, a cheap one. That of the root is computed once."""
        if not allowed and self.root_least_use is not None:
            return self.root_least_use
        found = self._unrestricted_least_use(allowed) or self._exact_least_use(allowed)
        if not allowed:
            self.root_least_use = found
        return found

    def _unrestricted_least_use(self, allowed: _Allowed) -> _Point | None:
        """The least use over all choices, and the cheapest choice with it; None where the costs forbid that use."""
        uses = list(self.uses)
        if any(len(item.variables) > 2 for item in uses):
            return None
        floor = least_sum((_restricted(item, allowed) for item in uses), any_of_equals=True)
        if floor is None:
            return None
        self.entries += floor.entries
        fixed = {name: allowed[name][at : at + 1] if name in allowed else np.array([at]) for name, at in floor.values.items()}
        return self._solve(weighted(self.costs, self.uses, self.tie_break or 1.0), {**allowed, **fixed}, True)

    def _exact_least_use(self, allowed: _Allowed) -> _Point | None:
        """The least use of the allowed choices: uses and costs in one weighted sum."""
        scale = RELATIVE_TOLERANCE / 4 * (_largest_sum(self.uses) or 1.0) / (_largest_sum(self.costs) or 1.0)
        return self._solve(weighted(self.uses, self.costs, scale), allowed, any_of_equals=True)

    def branches(self, node: _Relaxed, allowed: _Allowed) -> Iterator[_Allowed]:
        """Branches on a variable of the resource whose value differs between the best and the infeasible choice: with the
        infeasible choice's value only, and without it."""
        if node.infeasible is None:
            return
        infeasible = node.infeasible.values
        item, name = next(
            (item, name) for item in self.uses for name in item.variables if infeasible[name] != node.best.values[name]
        )
        values = allowed.get(name, np.arange(item.values.shape[item.variables.index(name)]))
        for left in (values[values == infeasible[name]], values[values != infeasible[name]]):
            yield {**allowed, name: left}

    def _solve(
        self, tables: Iterable[CostTable], allowed: _Allowed, any_of_equals: bool = False, limit: float = math.inf
    ) -> _Point | None:
        self.tick()
        found, entries = least_below((_restricted(item, allowed) for item in tables), limit, any_of_equals)
        self.entries += entries
        if found is None:
            return None
        values = {name: int(allowed[name][at]) if name in allowed else at for name, at in found.values.items()}
        return _Point(values, cost(self.costs, values), cost(self.uses, values), found.total)


def _is_allowed(point: _Point, allowed: _Allowed) -> bool:
    return all(point.values[name] in values for name, values in allowed.items())


def _restricted(item: CostTable, allowed: _Allowed) -> CostTable:
    values = item.values
    for axis, name in enumerate(item.variables):
        if name in allowed:
            values = values.take(allowed[name], axis)
    return CostTable(item.variables, values)


def tie_break_multiplier(costs: Sequence[CostTable], uses: Sequence[CostTable]) -> float:
    """A multiplier so small that it only decides between choices of equal cost."""
    most, finite = _largest_sum(uses), [item.values[np.isfinite(item.values)] for item in costs]
    scale = math.fsum(float(values.min()) for values in finite if values.size) or _largest_sum(costs) or 1.0
    return RELATIVE_TOLERANCE / 4 * scale / most if most else 0.0


def _largest_sum(tables: Sequence[CostTable]) -> float:
    """An upper bound of the sum of finite entries."""
    return math.fsum(float(np.max(item.values, where=np.isfinite(item.values), initial=0.0)) for item in tables)
