"""The best partitions of a spatial chip, proven: sequence tile, partitions, compute tiles and streamed weights together.

A dynamic programme over downsets (`halley.optim.downsets`) finds the best chain of partitions for each size of the sequence
tile; the best value so far is the limit for other sizes. With one sample at a time, each partition has a size of its own. The
resulting plan is costed again from scratch (`halley.spatial.costs`), and both costs must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np

from halley.errors import BadInput, Fault, Infeasible, InternalError
from halley.formulas.spatial import stage_time, utilisation
from halley.formulas.timing import longest, total
from halley.mapping.space.partitions import Kernels
from halley.optim.downsets import MOST_DOWNSETS, Costs, Lattice, TooManyDownsets, best_chain, chain_lattice, lattice
from halley.optim.switch import CompiledLoops
from halley.spatial.chip import SpatialProblem
from halley.spatial.costs import Partition, held_bytes, on_chip, partition
from halley.spatial.growth import (
    GrowingPartition,
    GrowthTables,
    grow,
    growth_tables,
    partition_costs,
    remaining_bounds,
    remaining_with_block,
    unfused_kernel_costs,
    unfused_partition,
)

PartitionGroup = tuple[Kernels, Kernels]
"""The kernels of a partition, and those of them with streamed weights."""

TiledGroup = tuple[Kernels, Kernels, int]
"""A `PartitionGroup` with the points of its sequence tile."""

RELATIVE_ROUNDING = 1e-9
"""Relative difference of two sums of the same terms in another order."""

SWITCH = CompiledLoops("halley.spatial.growth_compiled")
"""Whether the search runs compiled."""

SECONDS_PER_BLOCK = 8e-5
"""Approximate time of the uncompiled search per partition costed [s]."""

FIRST_LIMIT_STEP, LAST_LIMIT_STEP = 0.04, 4.0
"""First limit of the search, relative to the lower bound; and the excess from which on it has no limit."""

SECONDS_PER_DOWNSET, SECONDS_PER_DOWNSET_STREAMING = 2e-3, 2e-2
"""Approximate time of the uncompiled search for the partitions that follow a downset [s]; with streamed weights."""


@dataclass(frozen=True)
class SpatialPlan:
    """Partitions in the order in which they run.

    Each partition processes ``samples`` in a row. ``layer`` [s]: time of a layer per sample; ``bound`` [s]: a lower bound of it
    over all plans. Where both are equal the plan is proven optimal. ``downsets`` of the graph; ``costed``: partitions that the
    search costed, once per limit that it tried.
    """

    problem: SpatialProblem
    groups: tuple[PartitionGroup, ...]
    partitions: tuple[Partition, ...]
    samples: float
    layer: float
    bound: float = 0.0
    downsets: int = 0
    costed: int = 0

    @property
    def proven(self) -> bool:
        return self.bound >= self.layer

    @property
    def tile(self) -> int:
        """Points of a sequence tile; the largest, where partitions differ."""
        return max(part.tile for part in self.partitions)

    @property
    def iteration(self) -> float:
        """Time per sample of a full pipeline [s]."""
        return float(stage_time(self.layer, self.problem.layers, self.problem.stages))

    @property
    def traffic(self) -> float:
        """Bytes between DRAM and chip, per layer and sample, without resident weights."""
        return float(total(part.traffic for part in self.partitions))

    @property
    def loaded(self) -> float:
        """Bytes of resident weights, read once for all samples in a row."""
        return float(total(part.loaded for part in self.partitions))

    def utilisation(self, work: float, chips: int) -> float:
        """Share of the peak of all ``chips`` that ``work`` operations of all layers use per sample."""
        return float(utilisation(work, self.iteration, chips * self.problem.chip.peak))


class PartitionSearch:
    """The search through given downsets, compiled where that pays (`SWITCH`). ``made``: tables by sequence tile, one of them
    unless only the sum of times counts (`SpatialProblem.one_sample`), where each partition may have any of them.

    ``costed``: number of partitions costed.
    """

    def __init__(self, made: Sequence[GrowthTables], downsets: Lattice) -> None:
        self.made, self.costed = tuple(made), 0
        self.problem = made[0].problem
        self._downsets = downsets
        rests = (np.array(remaining_bounds(each, downsets)) for each in made)
        self._rest = [(float(a), float(b), float(c)) for a, b, c in reduce(np.minimum, rests)]
        self._compiled = None
        seconds = SECONDS_PER_DOWNSET_STREAMING if self.problem.assumptions.streaming else SECONDS_PER_DOWNSET
        compiled = SWITCH.loops(math.inf if SWITCH.loaded else len(self.made) * len(downsets.downsets) * seconds)
        if compiled is not None and len(self.problem.graph.kernels) <= compiled.MAX_KERNELS:
            self._compiled = compiled.CompiledSearch(self.made, downsets, self._rest)

    @property
    def root(self) -> float:
        """A lower bound of all chains."""
        return self.problem.value(*self._rest[0])

    def __call__(self, limit: float = math.inf) -> tuple[tuple[TiledGroup, ...], float]:
        """The best chain below ``limit`` and its value; an empty chain and ``limit`` if there is none."""
        if self._compiled is not None:
            chain, value, costed = self._compiled(limit)
            self.costed += costed
            return tuple((group, streamed, self.made[number].tile) for group, streamed, number in chain), value
        found = best_chain(
            self._downsets,
            [GrowingPartition(number=number) for number in range(len(self.made))],
            lambda block, kernel: grow(self.made[block.number], block, kernel),
            lambda block: partition_costs(self.made[block.number], block),
            lambda costs: self.problem.value(*costs),
            self._rest,
            limit,
            self._least,
            self._alone,
        )
        SWITCH.spent += found.costed * SECONDS_PER_BLOCK
        self.costed += found.costed
        return tuple((block.group, block.streamed, self.made[block.number].tile) for block in found.chain), found.value

    def _least(self, done: Kernels, block: GrowingPartition) -> Costs:
        """Kernels that the partition leaves to others may have any of the sequence tiles there."""
        return remaining_with_block(self.made[block.number], done, block, self.made)

    def _alone(self, kernel: int) -> tuple[GrowingPartition, Costs] | None:
        costs = unfused_kernel_costs(self.made[0], kernel)
        return None if costs is None else (unfused_partition(self.made[0], kernel), costs)


def sequence_choices(sequence: int) -> tuple[int, ...]:
    """Sequence tiles that are tried: powers of two up to the sequence, and the whole sequence.

    >>> sequence_choices(12)
    (1, 2, 4, 8, 12)
    """
    return (*(1 << power for power in range((sequence - 1).bit_length())), sequence)


def plan(problem: SpatialProblem, tile: int, groups: Sequence[PartitionGroup]) -> SpatialPlan:
    """The cost of given partitions, all with the same sequence tile; otherwise as `tiled_plan`."""
    return tiled_plan(problem, [(group, streamed, tile) for group, streamed in groups])


def tiled_plan(problem: SpatialProblem, chain: Sequence[TiledGroup]) -> SpatialPlan:
    """The cost of given partitions, each with its sequence tile.

    Raises BadInput: partitions that omit a kernel, contain one twice, or run before what they need; Infeasible: one that does
    not fit the chip, or tensors between them that do not fit into memory.
    """
    groups, tiles = [(group, streamed) for group, streamed, _ in chain], sorted({tile for _, _, tile in chain})
    faults = _order_faults(problem, groups)
    if tiles and tiles[0] < 1:
        faults.append(Fault("sequence tile", "at least 1", f"{tiles[0]}"))
    if len(tiles) > 1 and not problem.one_sample:
        faults.append(Fault("sequence tiles", "one for all partitions, which process samples in a row", f"{tiles}"))
    if faults:
        raise BadInput(faults)
    found = []
    for number, (group, streamed, tile) in enumerate(chain, start=1):
        part = partition(problem, tile, group, streamed)
        if part is None:
            raise Infeasible(_misfit(problem, tile, group, streamed, f"partition {number}"))
        found.append(part)
    steady, once, kept = (float(total(getattr(part, name) for part in found)) for name in ("steady", "once", "kept"))
    if problem.samples(kept) < problem.fewest:
        raise Infeasible(_over_memory(problem, kept))
    layer = float(longest((problem.value(steady, once, kept), problem.transfer)))
    return SpatialPlan(problem, tuple(groups), tuple(found), problem.samples(kept), layer)


def best_plan(
    problem: SpatialProblem,
    tiles: Sequence[int] | None = None,
    most_downsets: int = MOST_DOWNSETS,
    tick: Callable[[], None] = lambda: None,
) -> SpatialPlan:
    """The fastest partitions over the given sequence tiles (default: `sequence_choices`), proven.

    A graph with more than ``most_downsets`` gets the best partitions into consecutive kernels, and a lower bound of all plans.
    ``tick`` is called between searches, and may raise.
    Raises BadInput: no sequence tiles, or sizes below 1; Infeasible: kernels that fit with none of them, or a memory that
    cannot hold a sample.
    """
    tried = sequence_choices(problem.graph.sequence) if tiles is None else tuple(dict.fromkeys(tiles))
    if not tried or min(tried) < 1:
        raise BadInput(Fault("sequence tiles", "sizes of at least 1", str(list(tried)), "leave them out to try powers of two"))
    # where partitions have sequence tiles of their own, a kernel only has to fit with some of them
    usable = [made for made in (growth_tables(problem, tile, every=not problem.one_sample) for tile in tried) if made is not None]
    if not usable:
        raise Infeasible(_widest(problem, min(tried)))
    together = [usable] if problem.one_sample else [[made] for made in usable]
    line = chain_lattice(len(problem.graph.kernels))
    lines = sorted((PartitionSearch(made, line) for made in together), key=lambda search: search.root)
    found, limit = list[tuple[tuple[TiledGroup, ...], float, PartitionSearch]](), math.inf
    for search in lines:
        tick()
        found.append((*search(limit), search))
        limit = min(limit, found[-1][1])
    groups, value, _ = min(found, key=lambda each: each[1])
    count, bound = len(line.downsets), min(search.root for search in lines)
    costed = sum(search.costed for search in lines)
    try:
        downsets = lattice(problem.graph.needs, most_downsets)
    except TooManyDownsets:
        pass
    else:
        searches = [PartitionSearch(search.made, downsets) for _, _, search in sorted(found, key=lambda each: each[1])]
        better = search_rising_limits(searches, value, tick)
        if better is not None:
            groups, value, _ = better
        count, bound = len(downsets.downsets), value
        costed += sum(search.costed for search in searches)
    if not groups:
        raise Infeasible(_widest(problem, min(tried)) if problem.one_sample else _over_memory(problem, 0.0))
    chosen = tiled_plan(problem, groups)
    value = max(value, problem.transfer)
    if not math.isclose(chosen.layer, value, rel_tol=RELATIVE_ROUNDING):
        raise InternalError(Fault("spatial plan", f"{chosen.layer!r} s, costed from scratch", f"{value!r} s from the search"))
    bound = chosen.layer if bound >= value else max(bound, problem.transfer)
    return replace(chosen, bound=bound, downsets=count, costed=costed)


class LimitedSearch(Protocol):
    """A search below a limit: its lower bound, and a call as of `PartitionSearch`."""

    @property
    def root(self) -> float: ...

    def __call__(self, limit: float = math.inf) -> tuple[tuple[TiledGroup, ...], float]: ...


Searching = TypeVar("Searching", bound=LimitedSearch)


def search_rising_limits(
    searches: Sequence[Searching], limit: float, tick: Callable[[], None] = lambda: None
) -> tuple[tuple[TiledGroup, ...], float, Searching] | None:
    """The best chain of all searches below ``limit``, its value, and the search that found it.

    A search below a low limit is fast, because little is below it, and any chain that it finds is the best. So limits rise from
    the lower bound in growing steps until there is a chain. ``tick`` is called before each search, and may raise.
    """
    root = min(search.root for search in searches)
    step = FIRST_LIMIT_STEP
    while True:
        last = step > LAST_LIMIT_STEP or root * (1 + step) >= limit
        lowest, best = limit if last else root * (1 + step), None
        for search in searches:
            tick()
            if search.root < lowest:
                groups, value = search(lowest)
                if groups:
                    lowest, best = value, (groups, value, search)
        if best is not None or last:
            return best
        step *= 1.5


def _order_faults(problem: SpatialProblem, groups: Sequence[PartitionGroup]) -> list[Fault]:
    kernels, done, found = problem.graph.kernels, 0, []
    for number, (group, streamed) in enumerate(groups, start=1):
        if streamed & ~group or (streamed and not problem.assumptions.streaming):
            expected = "kernels of it, if weights may stream at all"
            found.append(Fault(f"partition {number}, streamed", expected, f"{streamed:#b} of {group:#b}"))
        if not group or group & done or group >> len(kernels):
            found.append(Fault(f"partition {number}", "kernels of the graph that no other has", f"{group:#b} after {done:#b}"))
        done |= group
        for place, (kernel, needed) in enumerate(zip(kernels, problem.graph.needs, strict=True)):
            if group >> place & 1 and needed & ~done:
                late = ", ".join(other.name for other_place, other in enumerate(kernels) if (needed & ~done) >> other_place & 1)
                found.append(Fault(f"partition {number}", f"the sources of {kernel.name} in it or before", f"{late} later"))
    missing = [kernel.name for place, kernel in enumerate(kernels) if not done >> place & 1]
    if missing:
        found.append(Fault("partitions", "all kernels", f"none with {', '.join(missing)}"))
    return found


def _sram(problem: SpatialProblem, tile: int, group: Kernels, streamed: Kernels) -> float:
    inside = [place for place in range(len(problem.graph.kernels)) if group >> place & 1]
    weights = total(held_bytes(problem, place, bool(streamed >> place & 1)) for place in inside)
    return float(weights + total(on_chip(problem, tensor, group, tile) for tensor in problem.tensors))


def _misfit(problem: SpatialProblem, tile: int, group: Kernels, streamed: Kernels, where: str) -> Fault:
    chip = problem.chip
    used, kernels = _sram(problem, tile, group, streamed), group.bit_count()
    if used > chip.sram:
        return Fault(where, f"at most {chip.sram:.4g} B of SRAM", f"{used:.4g} B", "split it, or shard it over more chips")
    if kernels > chip.tiles:
        return Fault(where, f"at most {chip.tiles} kernels, one compute tile each", f"{kernels}", "split it")
    return Fault(where, "one kernel, as kernels are not fused", f"{kernels}", "split it, or allow fusion")


def _widest(problem: SpatialProblem, tile: int) -> Fault:
    """The kernel that needs most, at the smallest sequence tile."""
    streams = problem.assumptions.streaming

    def used(place: int) -> float:
        return min(_sram(problem, tile, 1 << place, streamed) for streamed in ((0, 1 << place) if streams else (0,)))

    place = max(range(len(problem.graph.kernels)), key=used)
    chips = math.ceil(used(place) / problem.chip.sram)
    return replace(
        _misfit(problem, tile, 1 << place, 1 << place if streams else 0, f"kernel {problem.graph.kernels[place].name}"),
        remedy=f"shard it over at least {chips} chips, or take smaller sequence tiles",
    )


def _over_memory(problem: SpatialProblem, kept: float) -> Fault:
    chip, layers = problem.chip, problem.layers
    got = f"weights of {problem.graph.weights:.4g} B and {kept:.4g} B per sample in each of {layers} layers"
    samples = "one sample" if problem.fewest == 1 else f"{problem.fewest:g} samples"
    expected = f"{samples} in {chip.dram * problem.stages:.4g} B of {problem.stages} chips"
    return Fault("dram", expected, got, "use more pipeline stages or shard over more chips")
