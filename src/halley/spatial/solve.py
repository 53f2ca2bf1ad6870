"""The best partitions of a spatial chip, proven: sequence tile, partitions, compute tiles and streamed weights together.

A dynamic programme over downsets (`halley.optim.downsets`) finds the best chain of partitions: for each size of the sequence
tile, what one reaches being the limit for the others; where there is one sample at a time, each partition has a size of its own.
The plan that comes out is costed again from scratch (`halley.spatial.costs`), and both costs have to agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np

from halley.errors import BadInput, Fault, Infeasible, InternalError
from halley.formulas.spatial import stage_time, utilisation
from halley.formulas.timing import longest, total
from halley.optim.downsets import MOST_DOWNSETS, Costs, Lattice, TooManyDownsets, best_chain, in_line, lattice
from halley.optim.switch import Switch
from halley.search.partitions import Kernels
from halley.spatial.chip import Problem
from halley.spatial.costs import Partition, held_bytes, on_chip, partition
from halley.spatial.growth import Block, Tables, grow, least, price, price_alone, rest, single, tables

Group = tuple[Kernels, Kernels]
"""The kernels of a partition, and those of them whose weights stream."""

Tiled = tuple[Kernels, Kernels, int]
"""The same, and the points of a sequence tile."""

AGREE = 1e-9
"""Relative difference of two sums of the same terms in another order."""

SWITCH = Switch("halley.spatial.growth_compiled")
"""Whether the search runs compiled."""

BLOCK_TIME = 8e-5
"""About what the uncompiled search takes for a block that it costs [s]."""

FIRST_STEP, LAST_STEP = 0.04, 4.0
"""How far above the lower bound the search begins to look, and from where on it looks without a limit."""

SECONDS_PER_DOWNSET, WHERE_WEIGHTS_STREAM = 2e-3, 2e-2
"""About what the uncompiled search takes for the blocks that follow a downset."""


@dataclass(frozen=True)
class SpatialPlan:
    """Partitions in the order in which they run.

    ``samples`` are processed in a row by each partition; ``layer`` [s] is the time of a layer per sample, ``bound`` [s] a lower
    bound of it over all plans: where both are equal the plan is proven best. ``downsets``: of the graph; ``costed``: blocks that
    the search costed, once per limit that it tried."""

    problem: Problem
    groups: tuple[Group, ...]
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
        """Points of a sequence tile, where all partitions have the same; the most that one has."""
        return max(part.tile for part in self.partitions)

    @property
    def iteration(self) -> float:
        """Time per sample of a pipeline that is full [s]."""
        return float(stage_time(self.layer, self.problem.layers, self.problem.stages))

    @property
    def traffic(self) -> float:
        """Bytes between DRAM and chip, per layer and sample, without resident weights."""
        return float(total(part.traffic for part in self.partitions))

    @property
    def loaded(self) -> float:
        """Bytes of weights that stay on the chip, read once for all samples in a row."""
        return float(total(part.loaded for part in self.partitions))

    def utilisation(self, work: float, chips: int) -> float:
        """Share of the peak of all ``chips`` that ``work`` operations of all layers use per sample."""
        return float(utilisation(work, self.iteration, chips * self.problem.chip.peak))


class Search:
    """The search through given downsets, compiled where that pays (`SWITCH`). ``made``: by sequence tile, one of them unless only
    the sum of times counts (`Problem.one_sample`), where each partition has any of them.

    ``costed``: blocks that it has costed."""

    def __init__(self, made: Sequence[Tables], downsets: Lattice) -> None:
        self.made, self.costed = tuple(made), 0
        self.problem = made[0].problem
        self._downsets = downsets
        rests = (np.array(rest(each, downsets)) for each in made)
        self._rest = [(float(a), float(b), float(c)) for a, b, c in reduce(np.minimum, rests)]
        self._compiled = None
        seconds = WHERE_WEIGHTS_STREAM if self.problem.assumptions.streaming else SECONDS_PER_DOWNSET
        compiled = SWITCH.kernels(math.inf if SWITCH.loaded else len(self.made) * len(downsets.downsets) * seconds)
        if compiled is not None and len(self.problem.graph.kernels) <= compiled.MOST_KERNELS:
            self._compiled = compiled.Search(self.made, downsets, self._rest)

    @property
    def root(self) -> float:
        """A lower bound of all chains."""
        return self.problem.value(*self._rest[0])

    def __call__(self, limit: float = math.inf) -> tuple[tuple[Tiled, ...], float]:
        """The best chain below ``limit`` and its value; an empty one and ``limit`` if there is none."""
        if self._compiled is not None:
            chain, value, costed = self._compiled(limit)
            self.costed += costed
            return tuple((group, streamed, self.made[number].tile) for group, streamed, number in chain), value
        found = best_chain(
            self._downsets,
            [Block(number=number) for number in range(len(self.made))],
            lambda block, kernel: grow(self.made[block.number], block, kernel),
            lambda block: price(self.made[block.number], block),
            lambda costs: self.problem.value(*costs),
            self._rest,
            limit,
            self._least,
            self._alone,
        )
        SWITCH.spent += found.costed * BLOCK_TIME
        self.costed += found.costed
        return tuple((block.group, block.streamed, self.made[block.number].tile) for block in found.chain), found.value

    def _least(self, done: Kernels, block: Block) -> Costs:
        """Kernels that the block leaves to others may have any of the sequence tiles there."""
        return least(self.made[block.number], done, block, self.made)

    def _alone(self, kernel: int) -> tuple[Block, Costs] | None:
        costs = price_alone(self.made[0], kernel)
        return None if costs is None else (single(self.made[0], kernel), costs)


def sequence_choices(sequence: int) -> tuple[int, ...]:
    """Sequence tiles that are tried: powers of two up to the sequence, and the whole.

    >>> sequence_choices(12)
    (1, 2, 4, 8, 12)
    """
    return (*(1 << power for power in range((sequence - 1).bit_length())), sequence)


def plan(problem: Problem, tile: int, groups: Sequence[Group]) -> SpatialPlan:
    """The cost of given partitions, all with the same sequence tile; otherwise as `tiled_plan`."""
    return tiled_plan(problem, [(group, streamed, tile) for group, streamed in groups])


def tiled_plan(problem: Problem, chain: Sequence[Tiled]) -> SpatialPlan:
    """The cost of given partitions, each with its sequence tile.

    Raises BadInput: partitions that leave a kernel out, have one twice, or run before what they need; Infeasible: one that does
    not fit the chip, or memory that does not hold what passes between them.
    """
    groups, tiles = [(group, streamed) for group, streamed, _ in chain], sorted({tile for _, _, tile in chain})
    faults = _order_faults(problem, groups)
    if tiles and tiles[0] < 1:
        faults.append(Fault("sequence tile", "at least 1", f"{tiles[0]}"))
    if len(tiles) > 1 and not problem.one_sample:
        faults.append(Fault("sequence tiles", "one for all partitions, which process samples one after the other", f"{tiles}"))
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
        raise Infeasible(_overfull(problem, kept))
    layer = float(longest((problem.value(steady, once, kept), problem.transfer)))
    return SpatialPlan(problem, tuple(groups), tuple(found), problem.samples(kept), layer)


def best_plan(problem: Problem, tiles: Sequence[int] | None = None, most_downsets: int = MOST_DOWNSETS) -> SpatialPlan:
    """The fastest partitions over the given sequence tiles (default: `sequence_choices`), proven.

    A graph with more than ``most_downsets`` gets the best runs of consecutive kernels, and a lower bound of all plans.
    Raises BadInput: no sequence tiles, or sizes below 1; Infeasible: kernels that fit with none of them, or memory that does not
    hold a sample.
    """
    tried = sequence_choices(problem.graph.sequence) if tiles is None else tuple(dict.fromkeys(tiles))
    if not tried or min(tried) < 1:
        raise BadInput(Fault("sequence tiles", "sizes of at least 1", str(list(tried)), "leave them out to try powers of two"))
    # where partitions have sequence tiles of their own, a kernel may fit with some of them
    usable = [made for made in (tables(problem, tile, every=not problem.one_sample) for tile in tried) if made is not None]
    if not usable:
        raise Infeasible(_widest(problem, min(tried)))
    together = [usable] if problem.one_sample else [[made] for made in usable]
    line = in_line(len(problem.graph.kernels))
    lines = sorted((Search(made, line) for made in together), key=lambda search: search.root)
    found, limit = list[tuple[tuple[Tiled, ...], float, Search]](), math.inf
    for search in lines:
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
        searches = [Search(search.made, downsets) for _, _, search in sorted(found, key=lambda each: each[1])]
        better = climb(searches, value)
        if better is not None:
            groups, value, _ = better
        count, bound = len(downsets.downsets), value
        costed += sum(search.costed for search in searches)
    if not groups:
        raise Infeasible(_widest(problem, min(tried)) if problem.one_sample else _overfull(problem, 0.0))
    chosen = tiled_plan(problem, groups)
    value = max(value, problem.transfer)
    if not math.isclose(chosen.layer, value, rel_tol=AGREE):
        raise InternalError(Fault("spatial plan", f"{chosen.layer!r} s, costed from scratch", f"{value!r} s from the search"))
    bound = chosen.layer if bound >= value else max(bound, problem.transfer)
    return replace(chosen, bound=bound, downsets=count, costed=costed)


class Limited(Protocol):
    """A search below a limit: its lower bound, and a call as that of `Search`."""

    @property
    def root(self) -> float: ...

    def __call__(self, limit: float = math.inf) -> tuple[tuple[Tiled, ...], float]: ...


Searching = TypeVar("Searching", bound=Limited)


def climb(searches: Sequence[Searching], limit: float) -> tuple[tuple[Tiled, ...], float, Searching] | None:
    """The best chain of all searches below ``limit``, its value, and the search that has it.

    A search below a low limit is quick, as little can come below it, and what it finds is the best. So limits rise from the lower
    bound in growing steps until there is something.
    """
    root = min(search.root for search in searches)
    step = FIRST_STEP
    while True:
        last = step > LAST_STEP or root * (1 + step) >= limit
        lowest, best = limit if last else root * (1 + step), None
        for search in searches:
            if search.root < lowest:
                groups, value = search(lowest)
                if groups:
                    lowest, best = value, (groups, value, search)
        if best is not None or last:
            return best
        step *= 1.5


def _order_faults(problem: Problem, groups: Sequence[Group]) -> list[Fault]:
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


def _sram(problem: Problem, tile: int, group: Kernels, streamed: Kernels) -> float:
    inside = [place for place in range(len(problem.graph.kernels)) if group >> place & 1]
    weights = total(held_bytes(problem, place, bool(streamed >> place & 1)) for place in inside)
    return float(weights + total(on_chip(problem, tensor, group, tile) for tensor in problem.tensors))


def _misfit(problem: Problem, tile: int, group: Kernels, streamed: Kernels, where: str) -> Fault:
    chip = problem.chip
    used, kernels = _sram(problem, tile, group, streamed), group.bit_count()
    if used > chip.sram:
        return Fault(where, f"at most {chip.sram:.4g} B of SRAM", f"{used:.4g} B", "part it, or shard it over more chips")
    if kernels > chip.tiles:
        return Fault(where, f"at most {chip.tiles} kernels, one compute tile each", f"{kernels}", "part it")
    return Fault(where, "one kernel, as kernels are not fused", f"{kernels}", "part it, or allow fusion")


def _widest(problem: Problem, tile: int) -> Fault:
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


def _overfull(problem: Problem, kept: float) -> Fault:
    chip, layers = problem.chip, problem.layers
    got = f"weights of {problem.graph.weights:.4g} B and {kept:.4g} B per sample in each of {layers} layers"
    samples = "one sample" if problem.fewest == 1 else f"{problem.fewest:g} samples"
    expected = f"{samples} in {chip.dram * problem.stages:.4g} B of {problem.stages} chips"
    return Fault("dram", expected, got, "use more pipeline stages or shard over more chips")
