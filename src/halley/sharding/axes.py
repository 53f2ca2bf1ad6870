"""Axes of a system split into sub-axes, and the role of each: data, pipeline or model parallelism.

A sub-axis has a size and a stride: a group consists of ranks ``stride`` apart along the axis. An axis of 8 chips split into 2 x
4 has an outer sub-axis of size 2 and stride 4, and an inner one of size 4 and stride 1. Each role has at most one sub-axis of
an axis, so role and axis identify a sub-axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import permutations, product
from typing import TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.hardware import Axis, Topology
from halley.ir.system import System
from halley.optim.divisors import divisors

MAX_ASSIGNMENTS = 1 << 20
"""Largest number of assignments that are listed."""
DEGREES_OFFERED = 3
"""Degrees that an error message offers."""


class Role(StrEnum):
    """What the ranks of a sub-axis divide: DATA the batch (each rank has the weights, or a part of them by ZeRO), PIPELINE the
    layers, MODEL the ops of a layer, along any of their dims."""

    DATA = "data"
    PIPELINE = "pipeline"
    MODEL = "model"


ROLES = tuple(Role)

_SYMMETRIC = (Topology.SWITCH, Topology.FULL)
"""Topologies in which all ranks are equivalent: any permutation of the ranks maps links to links, and the groups of one order
of sub-axes to those of another. So every collective and transfer takes the same time in all orders, and only the order of
`Role` is listed."""


@dataclass(frozen=True, slots=True)
class SubAxis:
    """A part of an axis of the system: at least 2 ranks, ``stride`` apart along it."""

    axis: str
    role: Role
    size: int
    stride: int


Assignment: TypeAlias = tuple[SubAxis, ...]
"""All sub-axes, the system's outermost axis first, and within an axis the outermost sub-axis first. Sub-axes of one rank are
omitted."""

Degrees: TypeAlias = tuple[int, ...]
"""Ranks by role, in the order of `Role`."""

_Count: TypeAlias = Counter[Degrees]


def degree(assignment: Assignment, role: Role) -> int:
    """Number of ranks of a role.

    >>> degree((SubAxis("node", Role.DATA, 16, 1), SubAxis("gpu", Role.DATA, 2, 4), SubAxis("gpu", Role.MODEL, 4, 1)), Role.DATA)
    32
    """
    return math.prod(part.size for part in assignment if part.role is role)


def parts_of(assignment: Assignment, role: Role) -> Assignment:
    """The sub-axes of a role, outermost first."""
    return tuple(part for part in assignment if part.role is role)


def assignment_text(assignment: Assignment) -> str:
    """The sub-axes of each role, with the stride where it is not 1.

    >>> assignment_text((SubAxis("node", Role.DATA, 16, 1), SubAxis("gpu", Role.DATA, 2, 4), SubAxis("gpu", Role.MODEL, 4, 1)))
    'data 16 node x 2 gpu/4, model 4 gpu'
    """
    found = []
    for role in ROLES:
        parts = " x ".join(_part_text(part) for part in parts_of(assignment, role))
        found += [f"{role} {parts}"] if parts else []
    return ", ".join(found) or "one chip"


def _part_text(part: SubAxis) -> str:
    return f"{part.size} {part.axis}" + (f"/{part.stride}" if part.stride > 1 else "")


def assignments(system: System, degrees: Mapping[Role, int] | None = None, whole: bool = False) -> tuple[Assignment, ...]:
    """Every assignment: each axis split in every way, in every order of the sub-axes that may differ in cost.

    ``degrees``: required ranks by role. ``whole``: axes are not split.

    >>> from halley.ir.hardware import Chip, Link
    >>> system = System("pair", Chip("c", ()), (Axis("x", 4, Topology.RING, Link(1e9)),))
    >>> [assignment_text(item) for item in assignments(system, {Role.MODEL: 2, Role.DATA: 2})]
    ['data 2 x/2, model 2 x', 'data 2 x, model 2 x/2']

    Raises BadInput: degrees below 1, of an unknown role, whose product is not the number of chips, or that no split of the
    axes gives, with the nearest ones that exist; more than `MAX_ASSIGNMENTS` assignments.
    """
    wanted = _checked(system, degrees or {}, whole)
    count = sum(number for key, number in counts(system, whole).items() if _meets(key, wanted))
    if count > MAX_ASSIGNMENTS:
        remedy = "give degrees, or join axes of the system"
        raise BadInput(Fault(f"system {system.name}, assignments of its axes", f"at most {MAX_ASSIGNMENTS}", str(count), remedy))
    found: list[tuple[Assignment, Degrees]] = [((), (1,) * len(ROLES))]
    for place, axis in enumerate(system.axes):
        open_ = _reachable(system.axes[place + 1 :], whole)
        options = [(cut, _degrees(cut)) for cut in cuts(axis, whole)]
        found = [
            ((*before, *cut), degrees_now)
            for before, so_far in found
            for cut, more in options
            for degrees_now in [_times(so_far, more)]
            if _open(degrees_now, wanted, open_)
        ]
    return tuple(assignment for assignment, _ in found)


def counts(system: System, whole: bool = False) -> Counter[Degrees]:
    """Number of assignments by their degrees, without listing them."""
    return _counted(system.axes, whole)


@lru_cache(maxsize=4096)
def cuts(axis: Axis, whole: bool = False) -> tuple[Assignment, ...]:
    """Every split of one axis into sub-axes.

    >>> from halley.ir.hardware import Link
    >>> [assignment_text(cut) for cut in cuts(Axis("gpu", 2, Topology.SWITCH, Link(1e9)))]
    ['data 2 gpu', 'pipeline 2 gpu', 'model 2 gpu']
    """
    return tuple(_cuts(axis, whole))


def _cuts(axis: Axis, whole: bool) -> Iterator[Assignment]:
    if axis.size == 1:
        yield ()
        return
    for sizes in sorted(_factors(axis.size, len(ROLES)), reverse=True):
        roles = [(role, size) for role, size in zip(ROLES, sizes, strict=True) if size > 1]
        if whole and len(roles) > 1:
            continue
        for order in [tuple(roles)] if axis.topology in _SYMMETRIC else permutations(roles):
            strides = [math.prod(size for _, size in order[place + 1 :]) for place in range(len(order))]
            yield tuple(SubAxis(axis.name, role, size, stride) for (role, size), stride in zip(order, strides, strict=True))


def _factors(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every ordered factorisation of a number into ``parts`` factors."""
    if parts == 1:
        yield (number,)
        return
    for first in divisors(number):
        yield from ((first, *rest) for rest in _factors(number // first, parts - 1))


def _degrees(parts: Assignment) -> Degrees:
    return tuple(degree(parts, role) for role in ROLES)


def _times(first: Degrees, second: Degrees) -> Degrees:
    return tuple(a * b for a, b in zip(first, second, strict=True))


def _counted(axes: tuple[Axis, ...], whole: bool) -> _Count:
    """Counts axis by axis, by degrees."""
    found: _Count = Counter({(1,) * len(ROLES): 1})
    for axis in axes:
        more = Counter(_degrees(cut) for cut in cuts(axis, whole))
        grown: _Count = Counter()
        for (first, count), (second, times) in product(found.items(), more.items()):
            grown[_times(first, second)] += count * times
        found = grown
    return found


def _reachable(axes: tuple[Axis, ...], whole: bool) -> frozenset[Degrees]:
    return frozenset(_counted(axes, whole))


def _meets(got: Degrees, wanted: tuple[int | None, ...]) -> bool:
    return all(want is None or have == want for have, want in zip(got, wanted, strict=True))


def _open(got: Degrees, wanted: tuple[int | None, ...], rest: frozenset[Degrees]) -> bool:
    """Whether the remaining axes can still give the wanted degrees."""
    if all(want is None for want in wanted):
        return True
    return any(_meets(_times(got, more), wanted) for more in rest)


def _checked(system: System, degrees: Mapping[Role, int], whole: bool) -> tuple[int | None, ...]:
    """The wanted degrees in the order of `Role`, None where any is allowed."""
    where, faults = f"system {system.name}, degrees", []
    for role, size in degrees.items():
        if role not in ROLES:
            faults.append(Fault(where, f"one of {', '.join(ROLES)}", repr(role), did_you_mean(str(role), ROLES)))
        elif not isinstance(size, int) or isinstance(size, bool) or size < 1:
            faults.append(Fault(f"{where}, {role}", "a whole number of ranks, at least 1", repr(size)))
    if faults:
        raise BadInput(faults)
    wanted = tuple(degrees.get(role) for role in ROLES)
    known = counts(system, whole)
    if any(_meets(got, wanted) for got in known):
        return wanted
    given = [size for size in wanted if size is not None]
    got = f"{_text(wanted)} = {math.prod(given)}" if len(given) > 1 else _text(wanted)
    if system.chips % math.prod(given) or (len(given) == len(ROLES) and math.prod(given) != system.chips):
        expected = f"degrees whose product {'is' if len(given) == len(ROLES) else 'divides'} the {system.chips} chips"
    else:
        axes = " x ".join(f"{axis.size} {axis.name}" for axis in system.axes)
        expected = f"degrees that {'whole axes give' if whole else 'some cut of the axes gives'} ({axes})"
    raise BadInput(Fault(where, expected, got, f"nearest that work: {'; '.join(_nearest(known, wanted))}"))


def _nearest(known: Mapping[Degrees, int], wanted: tuple[int | None, ...]) -> list[str]:
    """The degrees nearest to those wanted, by the ratio between them; only of the roles asked for."""
    asked = {tuple(None if want is None else have for have, want in zip(got, wanted, strict=True)) for got in known}

    def apart(got: tuple[int | None, ...]) -> tuple[float, tuple[int, ...]]:
        steps = [abs(math.log(have / want)) for have, want in zip(got, wanted, strict=True) if have and want]
        return math.fsum(steps), tuple(-(have or 0) for have in got)

    return [_text(got) for got in sorted(asked, key=apart)[:DEGREES_OFFERED]]


def _text(degrees: tuple[int | None, ...]) -> str:
    return " x ".join(f"{role} {size}" for role, size in zip(ROLES, degrees, strict=True) if size is not None)
