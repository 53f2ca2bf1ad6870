"""Collectives over several dimensions of a product network: phases along one dimension each, with algorithms of their own.

Rank r has one coordinate per dimension, row-major (the first changes slowest). A reduce-scatter goes through the dimensions in
order, every phase working on what the phases before left: after dimension d a rank has the chunks whose owner has its coordinate
there. An all-gather is that backwards. An all-reduce is reduce-scatters, an all-reduce on the last dimension, and all-gathers
back (BlueConnect: Cho et al., IBM J. Res. Dev. 63, 2019). An all-to-all moves blocks to the right coordinate of one dimension
after the other; broadcast and scatter fill one dimension after the other.

Parts of the payload may take the dimensions in orders of their own (Themis: Rashidi et al., ISCA 2022), and pieces may follow
each other phase by phase, so that several dimensions work at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import NamedTuple, TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.collectives import dimension_time
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.algorithm import Setting, table_of
from halley.network.algorithms.tables import Kind, Steps, Transfer

_K = CollectiveKind

MOST_CHUNKS = 1 << 14
"""Most chunks of a table."""

Order: TypeAlias = tuple[int, ...]
"""Dimensions, the first to be used first."""

SERVED = (_K.ALL_REDUCE, _K.REDUCE_SCATTER, _K.ALL_GATHER, _K.ALL_TO_ALL, _K.BROADCAST, _K.REDUCE, _K.SCATTER, _K.GATHER)
_UNSHARED = (_K.ALL_REDUCE, _K.BROADCAST, _K.REDUCE)
"""Kinds of phases after which every rank that takes part holds as much as before."""


class Phase(NamedTuple):
    """A collective along one dimension, on all lines along it at once. ``before``: the dimensions whose coordinates select the
    share of the payload that a line works on; ``idle``: those in which only lines of coordinate 0 take part."""

    kind: CollectiveKind
    dimension: int
    before: Order
    idle: Order = ()

    def divisor(self, shape: Sequence[int]) -> int:
        """By what the payload of the whole is divided in this phase."""
        return 1 if self.kind is _K.ALL_TO_ALL else math.prod(shape[d] for d in self.before)


def phases(kind: CollectiveKind, order: Order) -> tuple[Phase, ...]:
    """The phases of a collective that takes the dimensions in this order.

    >>> [(phase.kind.value, phase.dimension, phase.before) for phase in phases(CollectiveKind.ALL_REDUCE, (1, 0))]
    [('reduce-scatter', 1, ()), ('all-reduce', 0, (1,)), ('all-gather', 1, ())]
    """
    places = range(len(order))
    match kind:
        case _K.ALL_REDUCE:
            return _there_and_back(order, _K.REDUCE_SCATTER, _K.ALL_REDUCE, _K.ALL_GATHER)
        case _K.REDUCE_SCATTER | _K.ALL_TO_ALL:
            return tuple(Phase(kind, order[place], order[:place]) for place in places)
        case _K.ALL_GATHER:
            return tuple(Phase(kind, order[place], order[:place]) for place in reversed(places))
        case _K.SCATTER:
            return tuple(Phase(kind, order[place], order[:place], order[place + 1 :]) for place in places)
        case _K.GATHER:
            return tuple(Phase(kind, order[place], order[:place], order[place + 1 :]) for place in reversed(places))
        case _K.BROADCAST:
            return tuple(Phase(kind, order[place], (), order[place + 1 :]) for place in places)
        case _K.REDUCE:
            return tuple(Phase(kind, order[place], (), order[place + 1 :]) for place in reversed(places))
        case _:
            raise BadInput(Fault("collective over several axes", f"one of {', '.join(SERVED)}", str(kind), "keep it to one axis"))


def other_phases(kind: CollectiveKind, order: Order) -> tuple[tuple[Phase, ...], ...]:
    """Further ways through the dimensions: an all-reduce of reduce-scatters and all-gathers alone, or of the whole payload on
    each dimension; a broadcast that scatters on the way out and gathers on the way back; and a reduce likewise."""
    match kind:
        case _K.ALL_REDUCE:
            halves = phases(_K.REDUCE_SCATTER, order) + phases(_K.ALL_GATHER, order)
            return halves, tuple(Phase(kind, dimension, ()) for dimension in order)
        case _K.BROADCAST:
            spread = phases(_K.SCATTER, order) + phases(_K.ALL_GATHER, order)
            return spread, _there_and_back(order, _K.SCATTER, kind, _K.ALL_GATHER)
        case _K.REDUCE:
            collected = phases(_K.REDUCE_SCATTER, order) + phases(_K.GATHER, order)
            return collected, _there_and_back(order, _K.REDUCE_SCATTER, kind, _K.GATHER)
        case _:
            return ()


def _there_and_back(order: Order, there: CollectiveKind, last: CollectiveKind, back: CollectiveKind) -> tuple[Phase, ...]:
    """All phases but the last dimension's two, which one of the whole collective replaces."""
    first, second = phases(there, order), phases(back, order)
    return (*first[:-1], Phase(last, order[-1], order[:-1]), *second[1:])


class Run(NamedTuple):
    """A phase and the algorithm that runs it. ``pieces``: where the algorithm leaves open into how many a payload is cut."""

    phase: Phase
    algorithm: str
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the payload that takes the dimensions in an order of its own."""

    share: Fraction
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Phased:
    """How a collective goes through the dimensions: ``parts`` of the payload, each cut into ``pieces`` that follow each other. In
    slot u, piece p of every part goes through its phase u - p; a slot ends when all of its phases have ended.

    ``shape``: ranks per dimension. ``axes``: what the dimensions are called. ``lines``: dimensions without a link that closes the
    ring. Raises BadInput: unknown algorithms, shares that do not add up to 1, parts of different numbers of phases.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    pieces: int = 1
    axes: tuple[str, ...] = ()
    lines: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        where, faults = f"collective over dimensions of {self.shape}", []
        if len(self.axes) not in (0, len(self.shape)):
            faults.append(Fault(where, f"a name for each of {len(self.shape)} dimensions, or none", str(len(self.axes))))
        if sum(part.share for part in self.parts) != 1:
            faults.append(Fault(where, "parts whose shares add up to 1", str([str(part.share) for part in self.parts])))
        if len({len(part.runs) for part in self.parts}) > 1:
            faults.append(Fault(where, "as many phases in every part", str([len(part.runs) for part in self.parts])))
        if self.pieces < 1:
            faults.append(Fault(where, "at least 1 piece", str(self.pieces)))
        for run in (run for part in self.parts for run in part.runs):
            if run.algorithm not in ALGORITHMS:
                faults.append(Fault(where, "a known algorithm", repr(run.algorithm), did_you_mean(run.algorithm, ALGORITHMS)))
            elif misfit := ALGORITHMS[run.algorithm].unfit(run.phase.kind, self.shape[run.phase.dimension]):
                faults.append(Fault(where, *misfit))
        if faults:
            raise BadInput(faults)

    @property
    def ranks(self) -> int:
        return math.prod(self.shape)

    @property
    def name(self) -> str:
        """The phases of the first part, and how many pieces and parts there are.

        >>> ring = [Run(phase, "ring") for phase in phases(CollectiveKind.ALL_GATHER, (0, 1))]
        >>> Phased((2, 3), (Part(Fraction(1), tuple(ring)),), 4, ("node", "gpu")).name
        'ring on gpu, ring on node, 4 pieces'
        """
        names = self.axes or tuple(f"dimension {d}" for d in range(len(self.shape)))
        first = ", ".join(_named(run, names) for run in self.parts[0].runs)
        pieces = f", {self.pieces} pieces" if self.pieces > 1 else ""
        shares = " + ".join(str(part.share) for part in self.parts)
        return first + pieces + (f", orders {shares}" if len(self.parts) > 1 else "")

    @property
    def slots(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """By slot, the (piece, phase) that are at work in it, of every part."""
        count = len(self.parts[0].runs)
        for slot in range(count + self.pieces - 1):
            yield tuple((piece, slot - piece) for piece in range(self.pieces) if 0 <= slot - piece < count)

    def refined(self) -> int:
        """Into how many chunks a share has to be cut so that all algorithms cut at its edges."""
        found = 1
        for run in (run for part in self.parts for run in part.runs):
            owners = self._owners // math.prod(self.shape[d] for d in run.phase.before)
            if run.phase.kind is not _K.ALL_TO_ALL:
                found = math.lcm(found, self._chunks(run) // math.gcd(self._chunks(run), owners))
        return found

    @property
    def _owners(self) -> int:
        """Shares of the payload: one for each rank, or one if all phases move it whole."""
        whole = all(run.phase.kind in _UNSHARED and not run.phase.before for part in self.parts for run in part.runs)
        return 1 if whole else self.ranks

    def _chunks(self, run: Run) -> int:
        return ALGORITHMS[run.algorithm].chunks(run.phase.kind, self.shape[run.phase.dimension], run.pieces)

    def chunks(self, kind: Kind) -> int:
        """Chunks of the table; those of parts with different shares have different sizes (`sizes`)."""
        return len(self.parts) * self.pieces * self.refined() * self._owners * (self.ranks if kind is _K.ALL_TO_ALL else 1)

    def sizes(self, kind: Kind, size: float) -> list[float]:
        """[chunks] bytes of every chunk of a payload."""
        groups, refined = len(self.parts) * self.pieces, self.refined()
        each = [size * float(part.share) / (self.pieces * refined * self._owners) for part in self.parts]
        group = [each[number // self.pieces] for number in range(groups) for _ in range(refined)]
        return group * (self.chunks(kind) // len(group))

    def steps(self, kind: Kind) -> Steps:
        """The table. Phases of one slot run side by side, step by step: a lockstep that may take longer than the slot. Raises
        BadInput: a table of more than `MOST_CHUNKS` chunks."""
        if self.chunks(kind) > MOST_CHUNKS:
            remedy = "choose a schedule of fewer pieces and orders, with --algorithm"
            raise BadInput(
                Fault(f"table of {kind} by {self.name}", f"at most {MOST_CHUNKS} chunks", str(self.chunks(kind)), remedy)
            )
        found: list[tuple[Transfer, ...]] = []
        for slot in self.slots:
            tables = [self.table(kind, number, piece, phase) for piece, phase in slot for number in range(len(self.parts))]
            for number in range(max(map(len, tables))):
                found.append(tuple(t for table in tables if number < len(table) for t in table[number]))
        return table_of(found)

    def table(self, kind: Kind, part: int, piece: int, phase: int) -> Steps:
        """What one piece of a part does in one phase, on all lines."""
        run = self.parts[part].runs[phase]
        own, refined = run.phase, self.refined()
        extent, stride = self.shape[own.dimension], math.prod(self.shape[own.dimension + 1 :])
        count, groups = self._chunks(run), len(self.parts) * self.pieces
        offset = (part * self.pieces + piece) * refined
        table = ALGORITHMS[run.algorithm].make[own.kind](Setting(extent, count, own.dimension in self.lines))
        found: list[list[Transfer]] = [[] for _ in table]
        for line in product(*(range(1 if d == own.dimension or d in own.idle else size) for d, size in enumerate(self.shape))):
            first = self._number(line)
            travelling = [
                [unit * groups * refined + offset + fine for unit, fine in units]
                for units in self._units(own, line, count, refined)
            ]
            for step, grown in zip(table, found, strict=True):
                for t in step:
                    source, target = first + t.source * stride, first + t.target * stride
                    grown += [Transfer(source, target, chunk, t.combine, t.shared) for chunk in travelling[t.chunk]]
        return table_of(found)

    def _units(self, phase: Phase, line: Sequence[int], count: int, refined: int) -> list[list[tuple[int, int]]]:
        """For each chunk of the phase's own table on a line, the (share or block, piece of it) that travel in it."""
        fixed = {d: line[d] for d in phase.before}
        if phase.kind is _K.ALL_TO_ALL:
            later = {d: line[d] for d in range(len(line)) if d not in phase.before and d != phase.dimension}
            extent, blocks = self.shape[phase.dimension], []
            for pair in range(count):
                a, b = divmod(pair, extent)
                sources = list(self._matching(later | {phase.dimension: a}))
                targets = list(self._matching(fixed | {phase.dimension: b}))
                blocks.append([(i * self.ranks + j, fine) for i in sources for j in targets for fine in range(refined)])
            return blocks
        if phase.kind in _UNSHARED:
            owners = [0] if self._owners == 1 else list(self._matching(fixed))
        else:  # those of one share after the other
            own = range(self.shape[phase.dimension])
            owners = [owner for index in own for owner in self._matching(fixed | {phase.dimension: index})]
        every = [(owner, fine) for owner in owners for fine in range(refined)]
        width = len(every) // count
        return [every[place * width : (place + 1) * width] for place in range(count)]

    def _number(self, coordinates: Sequence[int]) -> int:
        result = 0
        for extent, coordinate in zip(self.shape, coordinates, strict=True):
            result = result * extent + coordinate
        return result

    def _matching(self, fixed: dict[int, int]) -> Iterator[int]:
        """Ranks with these coordinates."""
        choices = ([fixed[d]] if d in fixed else range(extent) for d, extent in enumerate(self.shape))
        return (self._number(coordinates) for coordinates in product(*choices))


def _named(run: Run, names: Sequence[str]) -> str:
    pieces = f" in {run.pieces} pieces" if run.pieces > 1 else ""
    return f"{run.algorithm} on {names[run.phase.dimension]}{pieces}"


def balanced_orders(shape: Sequence[int], bandwidths: Sequence[float], pieces: int) -> tuple[Order, ...]:
    """An order for each piece, such that the dimensions work about equally long: piece by piece, takes the order after
    which the busiest dimension is least busy. ``bandwidths``: B/s with which a rank sends into each dimension.

    >>> balanced_orders((4, 4), (1.0, 1.0), 2)
    ((0, 1), (1, 0))

    Source: the greedy schedule of Themis (Rashidi et al., ISCA 2022), here over all orders.
    """
    busy = [0.0] * len(shape)
    found = []
    for _ in range(pieces):
        options = [(_busier(busy, shape, bandwidths, order), order) for order in permutations(range(len(shape)))]
        busy, order = min(options, key=lambda option: (max(option[0]), sum(option[0]), option[1]))
        found.append(order)
    return tuple(found)


def _busier(busy: Sequence[float], shape: Sequence[int], bandwidths: Sequence[float], order: Order) -> list[float]:
    """Time that every dimension works, with one more piece of one byte that takes the dimensions in this order."""
    result, before = list(busy), 1
    for d in order:
        result[d] += float(dimension_time(shape[d], before, 1.0, bandwidths[d]))
        before *= shape[d]
    return result
