"""One case of a study: a workload on a chip, mapped in five ways that are each searched to their optimum.

Two of the five need more than the baselines of `halley.optimise`:

- *op by op*: every elementary op is a kernel of its own. It is a sum over workloads of one op each, as
  the costs of what follows each other add up.
- *no collectives*: the same chip with links of 1 B/s, on which no collective pays. Links carry nothing else.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from itertools import groupby

from halley import Chip, Infeasible, Op, Problem, Solution, Workload, optimise
from halley.ir.mapping import Collective, Node, Temporal, children

USELESS = 1.0
"""Bandwidth [B/s] of a link that nobody would send anything over."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one mapping: time [s], energy [J], bytes read and written at the outermost memory."""

    time: float
    energy: float
    traffic: float

    def __add__(self, other: Figures) -> Figures:
        return Figures(self.time + other.time, self.energy + other.energy, self.traffic + other.traffic)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of a plan: over which axes, inside how many loops in time, how often in all."""

    kind: str
    tensors: tuple[str, ...]
    axes: tuple[str, ...]
    algorithm: str
    loops: int
    times: int

    def __str__(self) -> str:
        often = "once" if self.times == 1 else f"{self.times:,} times"
        return f"{self.kind} of {', '.join(self.tensors)} over {' and '.join(self.axes)} ({self.algorithm}; {often})"


@dataclass(frozen=True, slots=True)
class Case:
    """What is searched. ``group`` and ``name`` are its place in the tables; ``series`` names the chip there, or its variant."""

    group: str
    name: str
    series: str
    workload: Workload
    chip: Chip

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.group, self.name, self.series)


@dataclass(frozen=True, slots=True)
class Row:
    """What was found. None where no mapping of that kind fits; without ``best`` nothing fits, and ``reason`` says why.

    ``busiest`` is the resource that works for the largest ``share`` of the best plan's time. ``gap`` is the largest of all
    certificates; ``seconds`` those of all searches; ``source`` the fingerprint of what they used.
    """

    group: str
    name: str
    series: str
    extents: str
    op_by_op: Figures | None
    unfused: Figures | None
    local: Figures | None
    silent: Figures | None
    best: Figures | None
    fused: tuple[tuple[str, ...], ...]
    exchanges: tuple[Exchange, ...]
    gap: float
    seconds: float
    source: str
    busiest: str = ""
    share: float = 0.0
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.group, self.name, self.series)

    def ratio(self, kind: str) -> float | None:
        """Time of a way to map (the name of a field) over the best time."""
        other = getattr(self, kind)
        return other.time / self.best.time if other and self.best else None

    @property
    def partition(self) -> str:
        """The fused groups in words."""
        ops = sum(map(len, self.fused))
        if len(self.fused) == 1:
            return "all fused"
        return " / ".join(_short(group) for group in self.fused) if ops < 12 else f"{len(self.fused)} groups of {ops} ops"


def _short(group: tuple[str, ...]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]} .. {group[-1]}"


@dataclass(slots=True)
class _Search:
    """Searches of one case, which share a time limit each and add up their certificates."""

    limit: float
    gap: float = 0.0
    seconds: float = 0.0

    def run(self, problem: Problem) -> tuple[Solution, ...]:
        """The best and the baselines."""
        gc.collect()  # what the search before was made of: terms know each other
        result = optimise(replace(problem, time_limit=self.limit))
        found = (result.best, *result.baselines)
        self.gap = max(self.gap, *(solution.certificate.gap for solution in found))
        self.seconds += max(solution.certificate.seconds for solution in found)
        return found

    def alone(self, workload: Workload, op: Op, chip: Chip) -> Figures | None:
        """One op as a kernel; None where it does not fit."""
        try:
            return figures(self.run(Problem(single(workload, op), chip, baselines=False, fixed_variant=True))[0], chip)
        except Infeasible:
            return None


def solve(case: Case, limit: float, source: str) -> Row:
    """Search all five ways of a case, each for at most ``limit`` seconds."""
    search = _Search(limit)
    extents = ", ".join(f"{dim} {extent}" for dim, extent in case.workload.dims.items() if extent > 1)
    try:
        best, *rest = search.run(Problem(case.workload, case.chip, baselines=("unfused", "fused-local")))
    except Infeasible as fault:
        nothing = (None,) * 5
        return Row(*case.key, extents, *nothing, (), (), 0.0, search.seconds, source, reason=str(fault))
    baselines = {solution.name: figures(solution, case.chip) for solution in rest}
    parts = [search.alone(case.workload, op, case.chip) for op in case.workload.ops]
    known = [part for part in parts if part is not None]
    busiest = max(best.estimate.busy, key=lambda resource: float(best.estimate.busy[resource]))
    return Row(
        *case.key,
        extents,
        op_by_op=sum(known[1:], known[0]) if len(known) == len(parts) else None,
        unfused=baselines.get("unfused"),
        local=baselines.get("fused, no split reductions"),
        silent=_silent(search, case) if exchanges(best) else figures(best, case.chip),
        best=figures(best, case.chip),
        fused=best.groups,
        exchanges=exchanges(best),
        gap=search.gap,
        seconds=search.seconds,
        source=source,
        busiest=" ".join(busiest),
        share=float(best.estimate.busy[busiest] / best.estimate.time),
    )


def _silent(search: _Search, case: Case) -> Figures | None:
    """The best mapping without a collective."""
    chip = without_links(case.chip)
    try:
        best = search.run(Problem(case.workload, chip, baselines=False))[0]
    except Infeasible:
        return None
    return None if exchanges(best) else figures(best, chip)


def figures(solution: Solution, chip: Chip) -> Figures:
    """What a solution costs."""
    estimate = solution.estimate
    traffic = sum(float(estimate.traffic(memory.name)) for memory in chip.levels[0].memories)
    return Figures(float(estimate.time), float(estimate.energy), traffic)


def single(workload: Workload, op: Op) -> Workload:
    """The workload of one op: what others make for it is an input.

    >>> from halley import build
    >>> softmax = build("gemm-softmax", {"m": 4, "n": 5, "k": 6})
    >>> alone = single(softmax, softmax.op("max"))
    >>> alone.outputs, dict(alone.dims)
    (('mx',), {'m': 4, 'n': 5})
    """
    names = dict.fromkeys((*op.inputs, *op.outputs))
    used = {*op.dims, *op.sequence, *(dim for name in names for dim in workload.tensors[name].dims)}
    return Workload(
        f"{workload.name}, {op.name}",
        {dim: extent for dim, extent in workload.dims.items() if dim in used},
        {name: workload.tensors[name] for name in names},
        (op,),
        op.outputs,
        kernels=((op.name,),),
    )


def without_links(chip: Chip) -> Chip:
    """The chip with links between siblings that are too slow for any use; ports, memories and engines stay."""
    levels = []
    for level in chip.levels:
        network = level.network
        if network is not None:
            axes = tuple(replace(axis, link=replace(axis.link, bandwidth=USELESS)) for axis in network.axes)
            level = replace(level, network=replace(network, axes=axes))
        levels.append(level)
    return replace(chip, levels=tuple(levels))


def exchanges(solution: Solution) -> tuple[Exchange, ...]:
    """The collectives of a plan from outer to inner; the axes that one goes over after another are one exchange."""
    found = []
    for path, node, loops in _collectives(solution.plan, (), 0):
        times = round(float(solution.estimate.nodes[path].entries))
        found.append(((str(node.kind), node.algorithm, loops, times, node.tensors), node.axis))
    merged = []
    for (kind, algorithm, loops, times, tensors), same in groupby(found, key=lambda item: item[0]):
        axes = tuple(dict.fromkeys(axis for _, axis in same))
        merged.append(Exchange(kind, tensors, axes, algorithm, loops, times))
    return tuple(merged)


def _collectives(node: Node, path: tuple[int, ...], loops: int) -> list[tuple[tuple[int, ...], Collective, int]]:
    """(path, node, loops in time around it) of every collective."""
    if isinstance(node, Collective):
        return [(path, node, loops)]
    inner = loops + isinstance(node, Temporal)
    return [found for index, child in enumerate(children(node)) for found in _collectives(child, (*path, index), inner)]
