"""Schedules: an algorithm with all that has to be chosen for it, and the schedules that a network offers for a collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.busiest import squared_chunk_count
from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, ChunkRule, Setting
from halley.network.algorithms.circuits import Circuits, both_ways
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import WHOLE, Kind, Pattern, Steps, Transfer, chunk_sizes
from halley.network.graph.groups import Group
from halley.network.graph.topologies import DGX_1_CIRCUITS
from halley.network.time.evaluate import Layout, evaluate, layout

_K = CollectiveKind

MOST_PIECES = 256
"""Most pieces into which a payload is cut when the number is chosen."""
FINE_STEP_BELOW_PIECES = 8
"""Pieces below which one more is tried too."""
COUNTED_PIECES = tuple(2**power for power in range(9))
"""Numbers of pieces for which tables are counted where the time of all payloads is asked for."""
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER, _K.ALL_REDUCE)


@dataclass(frozen=True, slots=True)
class Schedule:
    """``algorithm``: its name, or how it goes through several dimensions, or round which circuits. ``pieces``: where
    the algorithm leaves open into how many the payload is cut. ``order``: the rank that plays each part of the table; as numbered
    if empty."""

    algorithm: str | Phased | Circuits
    pieces: int = 1
    order: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        if not isinstance(self.algorithm, str):
            return self.algorithm.name
        along = " along a snake" if self.order else ""
        return self.algorithm + along + (f", {self.pieces} pieces" if self.pieces > 1 else "")

    @property
    def source(self) -> str:
        """What the algorithm does, and where it comes from."""
        if isinstance(self.algorithm, Phased):
            return "One dimension after the other (BlueConnect: Cho et al., IBM J. Res. Dev. 63, 2019)."
        if isinstance(self.algorithm, Circuits):
            return "Rings side by side, over links that none of them shares (NCCL on a DGX-1; Wang et al., Blink, MLSys 2020)."
        return ALGORITHMS[self.algorithm].description

    def chunks(self, kind: Kind, ranks: int) -> int:
        if not isinstance(self.algorithm, str):
            return self.algorithm.chunks(kind)
        return ALGORITHMS[self.algorithm].chunks(kind, ranks, self.pieces)

    def cut(self, kind: Kind, ranks: int) -> int:
        """Chunks that one payload is cut into: of an all-to-all, what one rank sends."""
        return self.chunks(kind, ranks) // (ranks if kind is _K.ALL_TO_ALL else 1)

    def sizes(self, kind: Kind, ranks: int, size: int) -> list[int]:
        """[chunks] whole bytes of every chunk, for execution: ceil(size / chunks) each, the last ones shorter or empty; where a
        schedule has chunks of several sizes, rounded so that they add up to the size."""
        if isinstance(self.algorithm, Phased):
            edges = np.rint(np.cumsum(self.algorithm.sizes(kind, size))).astype(np.int64)
            return [int(each) for each in np.diff(edges, prepend=0)]
        chunks, cut = self.chunks(kind, ranks), self.cut(kind, ranks)
        return [0] if kind is Pattern.BARRIER else [int(each) for each in chunk_sizes(size, cut)] * (chunks // cut)

    def check(self, kind: Kind, ranks: int) -> None:
        """Raises BadInput where the algorithm is unknown, or serves neither the kind nor so many ranks."""
        if isinstance(self.algorithm, str):
            _check(kind, self, self.algorithm, ranks)
        elif self.algorithm.ranks != ranks:
            raise BadInput(Fault(f"{kind} by {self.name}", f"{ranks} ranks", f"a table for {self.algorithm.ranks}"))

    def steps(self, kind: Kind, ranks: int, line: bool) -> Steps:
        """The table. Raises BadInput where the algorithm is unknown, or serves neither the kind nor so many ranks."""
        if not isinstance(self.algorithm, str):
            self.check(kind, ranks)
            return self.algorithm.steps(kind)
        self.check(kind, ranks)
        if ranks == 1:
            return ()
        table = ALGORITHMS[self.algorithm].make[kind](Setting(ranks, self.chunks(kind, ranks), line))
        return placed(table, kind, self.order) if self.order else table


def _check(kind: Kind, schedule: Schedule, name: str, ranks: int) -> None:
    where = f"{kind} among {ranks} ranks"
    if schedule.pieces < 1:
        raise BadInput(Fault(where, "at least 1 piece", str(schedule.pieces)))
    if schedule.order and sorted(schedule.order) != list(range(ranks)):
        raise BadInput(Fault(where, f"each of the ranks 0 to {ranks - 1} once in the order", str(schedule.order)))
    fitting = [item.name for item in ALGORITHMS.values() if item.unfit(kind, ranks) is None]
    if name not in ALGORITHMS:
        raise BadInput(Fault(where, "a known algorithm", repr(name), did_you_mean(name, fitting)))
    misfit = ALGORITHMS[name].unfit(kind, ranks)
    if misfit:
        raise BadInput(Fault(f"{where} with {name}", *misfit, f"use one of: {', '.join(fitting)}"))


def placed(table: Steps, kind: Kind, order: tuple[int, ...]) -> Steps:
    """The table with its parts played by other ranks; shares and blocks go with their owners.

    >>> placed(((Transfer(0, 1, 0, False),),), _K.ALL_GATHER, (1, 0))[0][0].source
    1
    """
    ranks = len(order)

    def chunk(number: int) -> int:
        if kind in WHOLE:
            return number
        if kind is _K.ALL_TO_ALL:
            return order[number // ranks] * ranks + order[number % ranks]
        return order[number]

    return tuple(
        tuple(Transfer(order[t.source], order[t.target], chunk(t.chunk), t.combine, t.shared) for t in step) for step in table
    )


def side_by_side(table: Steps, groups: Sequence[Sequence[int]], chunks: int) -> Steps:
    """A table that several groups of ranks run in step, each with chunks of its own."""
    return tuple(
        tuple(
            Transfer(ranks[t.source], ranks[t.target], t.chunk + place * chunks, t.combine, t.shared)
            for place, ranks in enumerate(groups)
            for t in step
        )
        for step in table
    )


def snake(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks of a grid so that each is a neighbour of the next: every row runs against the one before.

    >>> snake((3, 2))
    (0, 1, 3, 2, 4, 5)
    """
    if len(shape) == 1:
        return tuple(range(shape[0]))
    inner = snake(shape[1:])
    return tuple(row * len(inner) + cell for row in range(shape[0]) for cell in (inner if row % 2 == 0 else inner[::-1]))


def is_line(group: Group) -> bool:
    return group.axes is not None and len(group.axes) == 1 and group.axes[0].topology is Topology.LINE


@lru_cache(maxsize=2048)
def laid_out(group: Group, kind: Kind, schedule: Schedule) -> Layout:
    """`counted`, remembered."""
    return counted(group, kind, schedule)


def counted(group: Group, kind: Kind, schedule: Schedule) -> Layout:
    """The schedule's table on the group's graph. Raises BadInput where it does not fit, or switches cannot do it."""
    ranks = group.graph.ranks
    table = schedule.steps(kind, ranks, is_line(group))
    return layout(group.graph, kind, table, schedule.chunks(kind, ranks))


def schedules(kind: Kind, group: Group, size: int, startup: float = 0.0) -> Iterator[Schedule]:
    """Every schedule with a table of all ranks that serves the collective, with pieces chosen for this size."""
    for schedule in flat_schedules(kind, group):
        if isinstance(schedule.algorithm, str) and is_pieced(kind, schedule.algorithm):
            if schedule.pieces == 1:
                yield Schedule(schedule.algorithm, best_pieces(kind, schedule.algorithm, group, size, startup))
        else:
            yield schedule


def flat_schedules(kind: Kind, group: Group) -> Iterator[Schedule]:
    """Every schedule with a table of all ranks, in all the numbers of pieces for which tables are counted."""
    ranks = group.graph.ranks
    for name, item in ALGORITHMS.items():
        if item.unfit(kind, ranks) is None and not (item.network and _lacking(group, kind, name)):
            yield from (Schedule(name, pieces) for pieces in (COUNTED_PIECES if is_pieced(kind, name) else (1,)))
    if group.axes is None:
        return
    if group.axes[0].topology is Topology.DGX_1 and len(group.axes) == 1 and kind in _GATHERS:
        yield DGX_1_SCHEDULE
    if len(group.axes) > 1 and kind in _GATHERS:
        order = snake(tuple(axis.size for axis in group.axes))
        yield from (Schedule(name, order=order) for name in ("ring", "bidirectional"))


DGX_1_SCHEDULE = Schedule(Circuits(both_ways(*DGX_1_CIRCUITS)))
"""Rings over all links of a DGX-1."""


def unable(kind: Kind, group: Group) -> dict[str, str]:
    """Algorithms that serve the collective, but not so many ranks or not with the network's switches, and what they need.

    >>> from halley.ir.hardware import Axis, Link
    >>> from halley.network.graph.groups import group
    >>> unable(_K.ALL_TO_ALL, group((Axis("x", 72, Topology.FULL, Link(1.0)),), range(72)))
    {'store-and-forward': 'at most 64 members (n^3 / 2 transfers)'}
    """
    ranks, found = group.graph.ranks, {}
    for name, item in ALGORITHMS.items():
        misfit = item.unfit(kind, ranks)
        if misfit and kind in item.kinds:
            found[name] = misfit[0]
        elif item.network and not misfit and (lacking := _lacking(group, kind, name)):
            found[name] = lacking
    return found


def is_pieced(kind: Kind, name: str) -> bool:
    """Whether the algorithm leaves open into how many pieces it cuts a payload."""
    return kind in WHOLE and ALGORITHMS[name].cut(kind) in (ChunkRule.PIECES, ChunkRule.SHARED_PIECES)


def _lacking(group: Group, kind: Kind, name: str) -> str:
    """What the algorithm asks of the network's switches and they cannot do; "" if they can."""
    if not any(switch.multicast or switch.reduction for switch in group.graph.switches):
        return "switches that multicast and add"
    if group.axes is not None and len(group.axes) > 1:
        return "one switch or tree of them, as ranks pass messages from dimension to dimension"
    try:
        laid_out(group, kind, Schedule(name))
    except BadInput as error:
        return error.faults[0].expected
    return ""


def best_pieces(kind: Kind, name: str, group: Group, size: int, startup: float = 0.0) -> int:
    """Pieces with which a pipelined algorithm takes least time, near the number that its steps and bytes suggest."""

    def seconds(pieces: int) -> float:
        laid = laid_out(group, kind, Schedule(name, pieces))
        return evaluate(laid, np.full(laid.chunks, size / laid.cut), startup).time

    few, more = (laid_out(group, kind, Schedule(name, pieces)) for pieces in (2, 4))
    rate = (more.steps - few.steps) / 2
    delay = startup + float(few.delays.mean()) if few.steps else 0.0
    most = min(size, MOST_PIECES)
    if not (rate and delay):
        return most
    suggested = isqrt(int(squared_chunk_count(few.steps - 2 * rate, rate, size, delay, float(group.graph.bandwidths.min()))))
    near = {
        max(min(k, most), 1)
        for k in (1, suggested // 2, suggested, 2 * suggested, suggested + (suggested < FINE_STEP_BELOW_PIECES))
    }
    return min(near, key=lambda k: (seconds(k), k))
