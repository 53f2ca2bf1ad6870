"""Sections of a pass: the kernels before and after a cut, in any order of its partitions.

Where an unfused kernel or a wait is between two kernels (`separations`), no partition has both: there is a border between them.
A kernel w with a border behind it *cuts* the pass at the end of its partition: w and all kernels that it needs run before, all
kernels behind the border after. Cuts that are behind each other's borders divide the pass into *sections*, and each partition
is in one of them. A kernel that is on neither side of a cut is *loose*: it may be in several sections. If it is in a later
section than a kernel that it reads from, or in an earlier one than its readers, the tensors between them pass through memory,
which they otherwise need not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.ir.workload import OpKind, Workload
from halley.training.kernels import TrainingGraph
from halley.training.spatial.passes import PassKernel, drawn_locally, is_weight, waits

Floats = NDArray[np.float64]


class MemoryCrossing(NamedTuple):
    """Of a loose kernel in section ``at``: a ``share`` of tensor ``name``, which it shares with other loose kernels, is written
    to memory in section ``written`` and read in section ``read``."""

    at: int
    name: str
    share: float
    written: int
    read: int


@dataclass(frozen=True, slots=True)
class Sections:
    """``allowed``: of each kernel of a pass, the sections in which it may be, in the order in which they run; ``crossings``: by
    kernel, the tensors that pass through memory because of its section."""

    count: int
    allowed: tuple[tuple[int, ...], ...]
    crossings: tuple[tuple[MemoryCrossing, ...], ...]


def separations(work: Workload, groups: Sequence[PassKernel]) -> Floats:
    """[kernels, kernels] the largest number of borders on any path from the first to the second; -inf where the second does not
    depend on the first. Kernels are in an order in which they can run."""
    place = {name: number for number, group in enumerate(groups) for op in group.ops for name in work.op(op).outputs}
    found = np.full((len(groups), len(groups)), -math.inf)
    np.fill_diagonal(found, 0.0)
    for number, group in enumerate(groups):
        for op in group.ops:
            for name in work.op(op).inputs:
                maker = place.get(name, number)
                if maker != number:
                    writer = groups[maker]
                    border = writer.unfused or group.unfused or waits(work, writer, group, name, op)
                    found[:, number] = np.maximum(found[:, number], found[:, maker] + border)
    return found


def sections(groups: Sequence[PassKernel], apart_by: Floats, hands: Sequence[tuple[str, int, int]]) -> Sections:
    """The sections of a pass. ``hands``: from `handed`.

    A kernel that a cut needs runs in a partition no later than the cut's, one behind the cut's border in a later one.
    """
    chain = cuts([not group.unfused for group in groups], apart_by)
    allowed = []
    for place in range(len(groups)):
        first = max((number + 1 for number, cut in enumerate(chain) if apart_by[cut, place] >= 1), default=0)
        last = min((number for number, cut in enumerate(chain) if apart_by[place, cut] >= 0), default=len(chain))
        allowed.append(tuple(range(first, last + 1)))
    return Sections(len(chain) + 1, tuple(allowed), _crossings(groups, allowed, hands))


def cuts(streaming: Sequence[bool], apart_by: Floats) -> tuple[int, ...]:
    """The kernels that cut a pass into the most sections that certainly contain a streaming kernel; of these, those that leave
    the fewest kernels loose.

    >>> line = np.array([[0, 1, 2], [-np.inf, 0, 1], [-np.inf, -np.inf, 0]])
    >>> cuts([True, False, True], line)   # the kernel in the middle runs alone: the one before it has a border behind it
    (0,)
    """
    streams, known = np.array(streaming), dict[int, tuple[int, int, tuple[int, ...]]]()
    best: tuple[int, int, tuple[int, ...]] = (0, 0, ())
    for cut in range(len(streams)):
        before = streams & (apart_by[:, cut] >= 0)
        reached: list[tuple[int, int, tuple[int, ...]]] = [(1, int(before.sum()), (cut,))] if before.any() else []
        for other, (count, fixed, chain) in known.items():
            between = before & (apart_by[other] >= 1)
            if apart_by[other, cut] >= 1 and between.any():
                reached.append((count + 1, fixed + int(between.sum()), (*chain, cut)))
        if reached:
            known[cut] = max(reached, key=lambda each: each[:2])
            after, (count, fixed, chain) = streams & (apart_by[cut] >= 1), known[cut]
            if after.any():
                best = max(best, (count + 1, fixed + int(after.sum()), chain), key=lambda each: each[:2])
    return best[2]


def _crossings(
    groups: Sequence[PassKernel], allowed: Sequence[Sequence[int]], hands: Sequence[tuple[str, int, int]]
) -> tuple[tuple[MemoryCrossing, ...], ...]:
    """By kernel. A tensor that several loose kernels read is divided among them, because in one partition they read it once."""
    found: list[list[MemoryCrossing]] = [[] for _ in groups]
    for name in dict.fromkeys(name for name, _, _ in hands):
        ends = [(writer, reader) for other, writer, reader in hands if other == name]
        writer = ends[0][0]
        home = allowed[writer]
        loose = [reader for _, reader in ends if len(allowed[reader]) > 1 and not groups[reader].unfused]
        if len(home) == 1:
            for reader in loose:
                later = (at for at in allowed[reader] if at > home[0])
                found[reader] += (MemoryCrossing(at, name, 1.0 / len(loose), home[0], at) for at in later)
        elif not groups[writer].unfused:
            wanted = max((allowed[reader][0] for _, reader in ends if len(allowed[reader]) == 1), default=0)
            found[writer] += (MemoryCrossing(at, name, 1.0, at, wanted) for at in home if at < wanted)
    return tuple(map(tuple, found))


def handed(graph: TrainingGraph, groups: Sequence[PassKernel], crossing: frozenset[str]) -> Iterator[tuple[str, int, int]]:
    """Tensors between kernels of a pass that need not pass through memory, without those ``crossing`` anyway. Each with the
    kernel that writes it and one that reads it."""
    work = graph.workload
    makers = {name: place for place, group in enumerate(groups) for op in group.ops for name in work.op(op).outputs}
    summed = {graph.contributions[op].summed for group in groups for op in group.ops}
    for place, group in enumerate(groups):
        names = {
            name
            for op in map(work.op, group.ops)
            for name in op.inputs
            if op.kind is not OpKind.GATHER and not drawn_locally(graph, op.name, name) and not is_weight(work, name)
        }
        for name in sorted(names - crossing - summed):
            if makers.get(name, place) != place:
                yield name, makers[name], place
