"""Which ranks of a network take part in a collective, from text: numbers, or slices of its axes."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.network.graph.fabric import Fabric
from halley.network.graph.groups import Group, induced
from halley.network.graph.groups import group as members_of
from halley.network.time.collective import team_of

_ITEM = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_SIDE = re.compile(r"([0-9]{1,9})?(:)?([0-9]{1,9})?(?::([0-9]{1,9}))?")


def ranks(text: str, fabric: Fabric, where: str = "--ranks") -> tuple[int, ...]:
    """The ranks of a list such as ``0-7``, ``0,1,5`` or ``0-63:8`` (every eighth).

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.graph.topologies import build
    >>> axis = Axis("x", 8, Topology.RING, Link(1.0))
    >>> ranks("0,4-7:2", Fabric("ring", build(axis), (axis,)))
    (0, 4, 6)

    Raises BadInput: no such list, a rank that the network lacks, a rank twice.
    """
    found: list[int] = []
    for word in text.replace(" ", "").split(","):
        match = _ITEM.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or first > last or match[3] == "0":
            raise BadInput(Fault(where, "ranks such as 0-7, 0,1,5 or 0-63:8", repr(text[:60])))
        _check_rank(last, fabric, where)
        found += range(first, last + 1, int(match[3] or 1))
    twice = sorted({rank for rank in found if found.count(rank) > 1})
    if twice:
        raise BadInput(Fault(where, "each rank once", f"rank {', '.join(map(str, twice[:8]))} again"))
    return tuple(found)


def _check_rank(rank: int, fabric: Fabric, where: str) -> None:
    if rank >= fabric.graph.ranks:
        raise BadInput(Fault(where, f"ranks from 0 to {fabric.graph.ranks - 1} of {fabric.name}", str(rank)))


@dataclass(frozen=True, slots=True)
class Box:
    """Coordinates taken on each axis, and the axes that were named."""

    sides: tuple[tuple[int, ...], ...]
    named: tuple[bool, ...]


def box(text: str, fabric: Fabric, where: str = "--group") -> Box:
    """A part of each axis: ``gpu`` is all of it, ``gpu=0:4`` the first four, ``gpu=0:8:2`` every second, ``gpu=3`` one; axes that
    are not named are taken at 0.

    Raises BadInput: a network without axes, no such axis, one twice, a part that is not on the axis.
    """
    if not fabric.axes:
        remedy = "list the ranks with --ranks"
        raise BadInput(Fault(where, f"no axes, as the links of {fabric.name} are listed one by one", repr(text[:60]), remedy))
    names = [axis.name for axis in fabric.axes]
    sides: list[tuple[int, ...] | None] = [None] * len(names)
    faults = []
    for word in text.split(","):
        name, _, part = (item.strip() for item in word.partition("="))
        if name not in names:
            faults.append(Fault(where, f"an axis of {fabric.name}", repr(name[:40]), did_you_mean(name, names)))
            continue
        place = names.index(name)
        side = _side(part if "=" in word else ":", fabric.axes[place].size)
        if sides[place] is not None:
            faults.append(Fault(where, "each axis once", f"{name!r} again"))
        elif not side:
            expected = f"a part of axis {name}, 0 <= START < STOP <= {fabric.axes[place].size}, such as {name}=0:2"
            faults.append(Fault(where, expected, repr(part[:40])))
        sides[place] = side
    if faults:
        raise BadInput(faults)
    return Box(tuple((0,) if side is None else side for side in sides), tuple(side is not None for side in sides))


def _side(part: str, size: int) -> tuple[int, ...]:
    """The coordinates; none where the part is not on the axis."""
    match = _SIDE.fullmatch(part)
    if match is None or not part:
        return ()
    start, colon, stop, step = match.groups()
    if colon is None:
        return (int(start),) if start and int(start) < size else ()
    begin, end, stride = int(start or 0), int(stop) if stop else size, int(step or 1)
    return tuple(range(begin, end, stride)) if stride and begin < end <= size else ()


def in_box(chosen: Box, fabric: Fabric) -> tuple[int, ...]:
    """The ranks of the box, row-major."""
    strides = [math.prod(axis.size for axis in fabric.axes[place + 1 :]) for place in range(len(fabric.axes))]
    points = itertools.product(*chosen.sides)
    return tuple(sum(index * stride for index, stride in zip(point, strides, strict=True)) for point in points)


def copies(chosen: Box, fabric: Fabric) -> tuple[tuple[int, ...], ...]:
    """The group and all its copies: at every coordinate of the axes that were not named."""
    others = [range(axis.size) if not named else (None,) for axis, named in zip(fabric.axes, chosen.named, strict=True)]
    found = []
    for point in itertools.product(*others):
        sides = tuple(side if at is None else (at,) for side, at in zip(chosen.sides, point, strict=True))
        found.append(in_box(Box(sides, chosen.named), fabric))
    return tuple(found)


def team(fabric: Fabric, members: tuple[int, ...] | None) -> Group:
    """The group of these ranks (all for None), with the topology that they have among themselves.

    Raises BadInput: ranks without a way between them.
    """
    if members is None or members == tuple(range(fabric.graph.ranks)):
        return team_of(fabric.axes or fabric.graph)
    if fabric.axes:
        return members_of(fabric.axes, members)
    return Group(members, None, induced(fabric.graph, members))
