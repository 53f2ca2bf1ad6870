"""What an algorithm is: a frozen entry with one function per kind that writes the step table, and how tables are turned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import WHOLE, Kind, Steps, Transfer, chunk_count


class Setting(NamedTuple):
    """What a table is written for. ``chunks``: pieces of a whole payload. ``line``: no link from the last rank to the first."""

    ranks: int
    chunks: int
    line: bool = False


Maker: TypeAlias = Callable[[Setting], Steps]


class Able(NamedTuple):
    """What the network of a chip's axis does by itself: send one arrival on to several, add what arrives."""

    multicast: bool
    reduction: bool


BOTH = Able(True, True)

NEEDS: Mapping[Kind, Able] = {
    CollectiveKind.BROADCAST: Able(True, False),
    CollectiveKind.ALL_GATHER: Able(True, False),
    CollectiveKind.REDUCE: Able(False, True),
    CollectiveKind.REDUCE_SCATTER: Able(False, True),
}
"""What an algorithm in the network asks of it; both for other kinds."""


class ChunkRule(Enum):
    """Into how many chunks an algorithm cuts a whole payload (all-reduce, reduce, broadcast, point-to-point)."""

    SHARES = "one per rank"
    UNCUT = "one: whatever it is cut into travels together"
    POWER = "the largest power of two that is no more than the ranks"
    PIECES = "any number, for they follow each other"
    SHARED_PIECES = "any number per rank"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How ranks carry out a collective: a table of steps for every number of them that it admits.

    ``make`` has one function per kind served. ``sizes`` says in words what ``admits`` tests. ``topologies``: the axes of a
    chip that it is offered on; on graphs it runs anywhere, for messages find their way. ``cuts``: how whole payloads are cut,
    where not into one chunk per rank. ``parts``: into how many chunks the share of a rank is cut. ``network``: it needs switches
    that send one arrival on to several and add what arrives.
    """

    name: str
    make: Mapping[Kind, Maker]
    description: str
    topologies: tuple[Topology, ...] = ()
    admits: Callable[[int], bool] = lambda size: True
    sizes: str = "any number of members"
    cuts: Mapping[Kind, ChunkRule] = field(default_factory=dict)
    parts: int = 1
    network: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self.make)

    def misfit(self, kind: Kind, topology: Topology, size: int, able: Able = BOTH) -> tuple[str, str] | None:
        """(expected, got) where the algorithm does not serve this axis of a chip, None where it does. ``able``: what its network
        can do."""
        if kind in self.make and topology not in self.topologies:
            return f"a topology among {', '.join(self.topologies) or 'none of a chip'}", str(topology)
        if kind in self.make and self.network:
            for needed, there, what in zip(NEEDS.get(kind, BOTH), able, ("copies", "adds"), strict=True):
                if needed and not there:
                    return f"a network that {what}", "one that does not"
        return self.unfit(kind, size)

    def unfit(self, kind: Kind, ranks: int) -> tuple[str, str] | None:
        """(expected, got) where the algorithm does not serve so many ranks of any network, None where it does."""
        if kind not in self.make:
            return f"one of {', '.join(self.kinds)}", str(kind)
        if not self.admits(ranks):
            return self.sizes, str(ranks)
        return None

    def cut(self, kind: Kind) -> ChunkRule:
        return self.cuts.get(kind, ChunkRule.SHARES)

    def chunks(self, kind: Kind, ranks: int, pieces: int = 1) -> int:
        """Chunks of the table; ``pieces`` counts where the algorithm leaves it open.

        >>> from halley.network.algorithms import ALGORITHMS
        >>> [ALGORITHMS[name].chunks(CollectiveKind.ALL_REDUCE, 6, 8) for name in ("ring", "one-shot", "folded-halving")]
        [6, 1, 4]
        """
        if kind not in WHOLE:
            return chunk_count(kind, ranks) * self.parts
        match self.cut(kind):
            case ChunkRule.SHARES:
                return ranks * self.parts
            case ChunkRule.UNCUT:
                return 1
            case ChunkRule.POWER:
                return power_below(ranks)
            case ChunkRule.PIECES:
                return pieces
            case ChunkRule.SHARED_PIECES:
                return ranks * pieces


def every(cut: ChunkRule) -> dict[Kind, ChunkRule]:
    """The same cut for all kinds that have a whole payload."""
    return dict.fromkeys(WHOLE, cut)


def table_of(steps: Iterable[Iterable[Transfer]]) -> Steps:
    """A table without empty steps."""
    return tuple(step for step in map(tuple, steps) if step)


def mirror(steps: Steps, combine: bool) -> Steps:
    """The table backwards in time and direction: what spread a chunk out now collects it.

    all-gather -> reduce-scatter, broadcast -> reduce (``combine``); scatter -> gather.
    """
    return tuple(tuple(Transfer(t.target, t.source, t.chunk, combine, t.shared) for t in step) for step in reversed(steps))


def backwards(make: Maker, combine: bool = True) -> Maker:
    return lambda at: mirror(make(at), combine)


def there_and_back(make: Maker) -> Maker:
    """All-reduce: collect backwards with combining, then spread."""

    def both(at: Setting) -> Steps:
        spread = make(at)
        return mirror(spread, True) + spread

    return both


def gathering(make: Maker) -> dict[Kind, Maker]:
    """The three kinds that an all-gather gives: itself, backwards, both."""
    return {
        CollectiveKind.ALL_GATHER: make,
        CollectiveKind.REDUCE_SCATTER: backwards(make),
        CollectiveKind.ALL_REDUCE: there_and_back(make),
    }


def spreading(make: Maker) -> dict[Kind, Maker]:
    """The two kinds that a broadcast gives: itself, and backwards a reduce."""
    return {CollectiveKind.BROADCAST: make, CollectiveKind.REDUCE: backwards(make)}


def overlapped(collect: Steps, spread: Steps) -> Steps:
    """Two tables at once: the second sets out as soon as every chunk that it sends has been collected by the first.

    >>> t = Transfer
    >>> both = overlapped(((t(1, 0, 0, True),), (t(1, 0, 1, True),)), ((t(0, 1, 0, False),), (t(0, 1, 1, False),)))
    >>> [[(t.source, t.chunk) for t in step] for step in both]
    [[(1, 0)], [(1, 1), (0, 0)], [(0, 1)]]
    """
    ready = {t.chunk: number for number, step in enumerate(collect) for t in step}
    first: dict[int, int] = {}
    for number, step in enumerate(spread):
        for t in step:
            first.setdefault(t.chunk, number)
    delay = max((ready[chunk] + 1 - begin for chunk, begin in first.items()), default=0)
    both: list[list[Transfer]] = [[] for _ in range(max(len(collect), len(spread) + delay))]
    for number, step in enumerate(collect):
        both[number] += step
    for number, step in enumerate(spread):
        both[number + delay] += step
    return table_of(both)


def power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


def power_below(size: int) -> int:
    """The largest power of two that is no more than a positive number.

    >>> power_below(6), power_below(8)
    (4, 8)
    """
    return 1 << (size.bit_length() - 1)
