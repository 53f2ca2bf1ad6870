"""Counters of memory accesses, link and port traffic, and work of an execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from halley.execute.members import Box, Instance, Siblings

Traffic: TypeAlias = dict[tuple[str, str, str], int]


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of one execution. Bytes, totals over all instances; entries with 0 are absent.

    ``reads``, ``writes``: by (memory, tensor, cause). ``links``: by (level, axis, source, target), the directed link between
    two positions of the axis. ``ports``: by (level, "down" or "up"). ``work``: elementary functions of the
    vector engine, and "mac". ``footprint``: by memory, the peak bytes live in one instance.
    ``steps``: by op, how often member 0 of every axis ran it.
    """

    reads: Traffic = field(default_factory=dict)
    writes: Traffic = field(default_factory=dict)
    links: dict[tuple[str, str, int, int], int] = field(default_factory=dict)
    ports: dict[tuple[str, str], int] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    footprint: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedMove:
    """``elements`` of the box move to, or from, ``who`` (a member, or an instance of a memory)."""

    who: Instance
    box: Box
    elements: int


class Tally:
    """Accumulates the counters during an execution."""

    def __init__(self, siblings: Siblings) -> None:
        self.siblings = siblings
        self.reads: dict[tuple[str, str, str], int] = defaultdict(int)
        self.writes: dict[tuple[str, str, str], int] = defaultdict(int)
        self.links: dict[tuple[str, str, int, int], int] = defaultdict(int)
        self.ports: dict[tuple[str, str], int] = defaultdict(int)
        self.work: dict[str, float] = defaultdict(float)
        self.steps: dict[str, int] = defaultdict(int)
        self.live: dict[tuple[str, Instance], int] = defaultdict(int)
        self.peak: dict[tuple[str, Instance], int] = defaultdict(int)

    def read(self, key: tuple[str, str, str], word: int, depths: tuple[int, int], moves: Iterable[CountedMove]) -> None:
        """Count concurrent moves out of a memory at depth ``depths[0]`` to members or instances at depth ``depths[1]``.

        Along an axis of a multicast network, requests for the same box share one read. Each port carries every distinct box of
        its sibling once.
        """
        shared: dict[tuple[object, ...], int] = {}
        ports: dict[tuple[object, ...], int] = {}
        for move in moves:
            apart = self.siblings.apart(move.who, depths[0])
            _largest(shared, (move.who[: self.siblings.width(depths[0])], apart, move.box), move.elements)
            for level, width in self.siblings.ports(*depths):
                _largest(ports, (level, move.who[:width], move.box), move.elements)
        _add(self.reads, key, sum(shared.values()) * word)
        self._through(ports, "down", word)

    def write(self, key: tuple[str, str, str], word: int, depths: tuple[int, int], moves: Iterable[CountedMove]) -> None:
        """Count concurrent moves into a memory at depth ``depths[0]`` from members or instances at depth ``depths[1]``. Equal
        boxes for one instance are partial results that the network adds on the way: one write."""
        merged: dict[tuple[object, ...], int] = {}
        ports: dict[tuple[object, ...], int] = {}
        for move in moves:
            _largest(merged, (move.who[: self.siblings.width(depths[0])], move.box), move.elements)
            for level, width in self.siblings.ports(*depths):
                _largest(ports, (level, move.who[:width], move.box), move.elements)
        _add(self.writes, key, sum(merged.values()) * word)
        self._through(ports, "up", word)

    def _through(self, ports: Mapping[tuple[object, ...], int], way: str, word: int) -> None:
        for key, elements in ports.items():
            _add(self.ports, (str(key[0]), way), elements * word)

    def do(self, work: Mapping[str, float], points: int) -> None:
        for name, count in work.items():
            if count * points:
                self.work[name] += count * points

    def allocate(self, memory: str, instance: Instance, size: int) -> None:
        """Allocate ``size`` bytes (negative: free them)."""
        key = (memory, instance)
        self.live[key] += size
        self.peak[key] = max(self.peak[key], self.live[key])

    def counters(self) -> Counters:
        footprint: dict[str, int] = {}
        for (memory, _), size in self.peak.items():
            footprint[memory] = max(footprint.get(memory, 0), size)
        return Counters(
            dict(self.reads), dict(self.writes), dict(self.links), dict(self.ports), dict(self.work), footprint, dict(self.steps)
        )


def _largest(table: dict[tuple[object, ...], int], key: tuple[object, ...], elements: int) -> None:
    # members that share a box may read it a different number of times; the largest number counts
    table[key] = max(table.get(key, 0), elements)


def _add(table: dict[Any, int], key: Any, amount: int) -> None:
    if amount:
        table[key] += amount
