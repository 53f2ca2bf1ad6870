"""Concurrent transfers, and the busy time of the critical instance of each port (docs/model.md, "Bytes")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from halley.ir.hardware import Chip
from halley.simulate.members import Box, Member, Team, points
from halley.simulate.tasks import Requests, Server


class PortMove(NamedTuple):
    """``elements`` of a box go to, or come from, a member or an instance of a memory."""

    who: Member
    box: Box
    elements: int


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one chip."""

    chip: Chip

    def read(
        self, team: Team, memory: str, inner: int, moves: Sequence[PortMove], word: int, stored: Sequence[int] | None = None
    ) -> Requests:
        """Requests of moves out of a memory to members or instances at depth ``inner``. Moves of the same box share one read if
        the network in between has multicast. Each level's port on the path carries each box of its sibling once. ``stored``: the
        extents of the tensor as the memory holds it, if whole boxes of it move; a memory with bursts then moves whole ones."""
        outer, lead = self.chip.depth(memory), leading(team, inner, moves)
        unicast = [i for i in range(team.axes.width(outer), team.axes.width(inner)) if i in team.axes.unicast]
        asked: dict[tuple[Member, Box], int] = {}
        for who, box, elements in moves:
            if team.axes.alike(who, lead, outer):
                key = (tuple(who[i] for i in unicast), box)
                asked[key] = max(asked.get(key, 0), elements)
        asked_bytes = sum(self._moved(memory, box, elements, word, stored) for (_, box), elements in asked.items())
        port = (self._port(team, lead, memory, "read"), asked_bytes / self.chip.memory(memory).read_bandwidth)
        return (port, *self._levels(team, lead, outer, inner, "down", moves, word))

    def write(
        self, team: Team, memory: str, inner: int, moves: Sequence[PortMove], word: int, stored: Sequence[int] | None = None
    ) -> Requests:
        """Requests of moves into a memory from members or instances at depth ``inner``. Equal boxes are copies, or partial
        results that the network adds: one write. ``stored``: as for `read`."""
        outer, lead = self.chip.depth(memory), leading(team, inner, moves)
        sent: dict[Box, int] = {}
        for who, box, elements in moves:
            if team.axes.alike(who, lead, outer):
                sent[box] = max(sent.get(box, 0), elements)
        sent_bytes = sum(self._moved(memory, box, elements, word, stored) for box, elements in sent.items())
        port = (self._port(team, lead, memory, "write"), sent_bytes / self.chip.memory(memory).write_bandwidth)
        return (port, *self._levels(team, lead, outer, inner, "up", moves, word))

    def _moved(self, memory: str, box: Box, elements: int, word: int, stored: Sequence[int] | None) -> int:
        """Bytes that a memory moves for a box."""
        burst = self.chip.memory(memory).burst
        return elements * word if stored is None or not burst else burst * bursts_of(box, stored, word, burst)

    def _port(self, team: Team, lead: Member, memory: str, way: str) -> Server:
        resource = ("bus" if self.chip.memory(memory).shared_bus else way, memory)
        return team.axes.server(lead, self.chip.depth(memory), *resource)

    def _levels(
        self, team: Team, lead: Member, outer: int, inner: int, way: str, moves: Sequence[PortMove], word: int
    ) -> Requests:
        found = []
        for depth in range(outer + 1, inner + 1):
            level = self.chip.levels[depth]
            if level.network is None or level.network.port is None:
                continue
            passing: dict[Box, int] = {}
            for who, box, elements in moves:
                if team.axes.alike(who, lead, depth):
                    passing[box] = max(passing.get(box, 0), elements)
            seconds = sum(passing.values()) * word / level.network.port.bandwidth
            found.append((team.axes.server(lead, depth, "port", level.name, way), seconds))
        return tuple(found)


def bursts_of(box: Box, stored: Sequence[int], word: int, burst: int) -> int:
    """Bursts of the contiguous runs of a box of a row-major tensor with the extents ``stored``, each run by itself.

    >>> bursts_of(((0, 2), (0, 3), (0, 4)), (5, 6, 4), 2, 16)   # 2 runs of 3 x 4 elements, 24 bytes each
    4
    """
    run, at = 1, len(box)
    while at:
        at -= 1
        start, stop = box[at]
        run *= max(stop - start, 0)
        if stop - start < stored[at]:
            break
    runs = points(box[:at])
    return runs * -(-run * word // burst)


def leading(team: Team, inner: int, moves: Sequence[PortMove]) -> Member:
    """The member or instance whose resources are counted: that of the critical member, or the first mover if it moves nothing."""
    critical = team.critical[: team.axes.width(inner)]
    return critical if not moves or any(move.who[: len(critical)] == critical for move in moves) else moves[0].who


def together(*parts: Requests) -> Requests:
    """Requests merged to those of one task: service times at the same server add up."""
    merged: dict[Server, float] = {}
    for part in parts:
        for server, seconds in part:
            merged[server] = merged.get(server, 0.0) + seconds
    return tuple(merged.items())
