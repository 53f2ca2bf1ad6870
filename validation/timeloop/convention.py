"""Halley's counts in Timeloop's words, and Timeloop's cycles and energy from them (docs/validation.md says why, term by term).

Timeloop reports one instance of each level. Halley's events carry the total over all instances and the share of instance 0
(``critical``). The mappings are made of whole factors, so that all instances that work do the same: Timeloop's instance is
instance 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from validation.timeloop.convert import WORD
from validation.timeloop.files import Architecture, Block, Case, Problem

from halley.cost.estimate import Estimate
from halley.cost.events import Access, Work
from halley.errors import Fault, InternalError

READS = ("fill", "operand", "accumulate")
"""Causes of the reads that Timeloop counts. Not `drain`: Timeloop moves a finished tile out of a level without a read there."""

UPDATES = ("result", "drain")
"""Causes of the writes that Timeloop calls updates: results from the MACs, and results from the level inside."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Accesses [words] of one tensor at one instance of a level. ``temporal_reductions`` are additions to old values."""

    reads: int = 0
    fills: int = 0
    updates: int = 0
    temporal_reductions: int = 0


def counts(estimate: Estimate, output: str) -> dict[tuple[str, str], Counts]:
    """By (memory, tensor), for one instance.

    - reads: what the memory sends inwards (fills of levels inside, operands) and the old values of results that are added to.
    - fills: what it receives from the level outside.
    - updates: results that it receives from inside.
    - temporal reductions: updates that add to an old value, one for each old value of the output that was read.
    """
    reads = _one_instance(estimate, True)
    writes = _one_instance(estimate, False)
    found: dict[tuple[str, str], Counts] = {}
    for memory, tensor in dict.fromkeys((key[0], key[1]) for key in (*reads, *writes)):
        read = sum(reads.get((memory, tensor, cause), 0) for cause in READS)
        found[memory, tensor] = Counts(
            reads=read,
            fills=writes.get((memory, tensor, "fill"), 0),
            updates=sum(writes.get((memory, tensor, cause), 0) for cause in UPDATES),
            temporal_reductions=read if tensor == output else 0,
        )
    return found


def sliding(
    found: Mapping[tuple[str, str], Counts], architecture: Architecture, blocks: tuple[Block, ...], problem: Problem
) -> dict[tuple[str, str], Counts]:
    """The counts with Timeloop's rule for sliding windows: of a tile that overlaps the one before, only what is new is moved.

    Timeloop subtracts from each tile (a box) the one that its level held before. What is left is a box if the two differ along
    one coordinate; else, and where the tile moves in another direction than before, it counts the whole tile
    (``AxisAlignedHyperRectangle::Subtract`` and ``operator-`` in src/loop-analysis/point-set-aahr.cpp of NVlabs/timeloop). So
    only the innermost loop that moves a tile saves anything, on each of its iterations but the first:

    .. math:: s = (1 + (n - 1) \\min(1, c / e)) / n

    Symbols: s share of the words that Halley moves; n iterations of that loop; c points by which each of them moves the tile
    along its coordinate; e points of the tile along it. Halley moves every tile whole.
    """
    counted = dict(found)
    for tensor in problem.windows:
        keepers = [index for index, block in enumerate(blocks) if tensor in block.keeps]
        for outer, inner in itertools.pairwise(keepers):
            share = _share_moved(inner, tensor, blocks, problem)
            there, here = (architecture.storages[index].name for index in (outer, inner))
            counted[there, tensor] = replace(counted[there, tensor], reads=_part(counted[there, tensor].reads, share))
            counted[here, tensor] = replace(counted[here, tensor], fills=_part(counted[here, tensor].fills, share))
    return counted


def _share_moved(level: int, tensor: str, blocks: tuple[Block, ...], problem: Problem) -> Fraction:
    """See `sliding`: of a tile of the level."""
    inside = dict.fromkeys(problem.extents, 1)  # per dim, the points that the loops inside take
    for index in range(len(blocks) - 1, -1, -1):
        if index == level - 1:
            tile = dict(inside)
        for loops, moves in ((blocks[index].spatial, False), (tuple(reversed(blocks[index].temporal)), True)):
            for dim, count in loops:
                if moves and index < level and dim in problem.tensors[tensor]:
                    (terms,) = (dict(terms) for terms in problem.windows[tensor] if dim in dict(terms))
                    points = 1 + sum(coefficient * (tile[other] - 1) for other, coefficient in terms.items())
                    step = min(terms[dim] * inside[dim], points)
                    return (1 + (count - 1) * Fraction(step, points)) / count
                inside[dim] *= count
    return Fraction(1)


def _part(words: int, share: Fraction) -> int:
    if (words * share).denominator != 1:
        raise InternalError(Fault("sliding windows", "whole words", str(words * share)))
    return int(words * share)


def _one_instance(estimate: Estimate, is_read: bool) -> dict[tuple[str, str, str], int]:
    """Words by (memory, tensor, cause) at instance 0."""
    found: dict[tuple[str, str, str], int] = {}
    for event in estimate.events:
        if isinstance(event, Access) and event.is_read is is_read:
            words, rest = divmod(int(event.critical), WORD)
            key = (event.memory, event.tensor, event.cause)
            if rest:
                raise InternalError(Fault(", ".join(key), "whole words", f"{event.critical} bytes"))
            found[key] = found.get(key, 0) + words
    return found


def instances(case: Case) -> dict[str, int]:
    """Instances that work, by storage level."""
    found, product = {}, 1
    for storage, block in zip(case.architecture.storages, case.blocks, strict=True):
        found[storage.name] = product
        product *= math.prod(count for _, count in block.spatial)
    return found


def compute_cycles(estimate: Estimate, clock: float) -> int:
    """Multiply-accumulates of one MAC unit: one a cycle. Member 0's engine time is that, over the clock."""
    return round(sum(float(event.time) for event in estimate.events if isinstance(event, Work)) * clock)


def cycles(per_instance: Mapping[tuple[str, str], Counts], architecture: Architecture, compute: int) -> dict[str, int]:
    """Cycles by level: as many as computing takes, or as a port of the level needs for its accesses, whichever is more.

    .. math:: c = \\lceil C / s \\rceil, s = \\min(1, b_r / (r / C), b_w / ((f + u) / C))

    Symbols: C [cycles] of computing; r, f, u [words] reads, fills, updates of all tensors; b_r, b_w [words/cycle] of the ports.
    Written as Timeloop does, in floating point too. Levels overlap fully: the mapping takes as long as the slowest.
    """
    found: dict[str, int] = {}
    for storage in architecture.storages:
        here = [count for (memory, _), count in per_instance.items() if memory == storage.name]
        accesses = (sum(count.reads for count in here), sum(count.fills + count.updates for count in here))
        slowdown = 1.0
        for bandwidth, amount in zip(storage.bandwidth, accesses, strict=True):
            if amount:
                slowdown = min(slowdown, bandwidth / (amount / compute))
        found[storage.name] = math.ceil(compute / slowdown)
    return found


def energies(per_instance: Mapping[tuple[str, str], Counts], case: Case) -> dict[tuple[str, str], float]:
    """Energy [pJ] of all instances, by (memory, tensor): each count times the table's energy of an access, over the words of one.

    A temporal reduction costs nothing of its own in the table; its read and its update are counted.
    """
    working = instances(case)
    found: dict[tuple[str, str], float] = {}
    for storage in case.architecture.storages:
        table = case.energy[storage.name]
        for (memory, tensor), count in per_instance.items():
            if memory == storage.name:
                accesses = count.reads * table["read"] + count.fills * table["write"] + count.updates * table["update"]
                found[memory, tensor] = accesses / storage.block * working[memory]
    return found


__all__ = ["Counts", "compute_cycles", "counts", "cycles", "energies", "instances", "sliding"]
