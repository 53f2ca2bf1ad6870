"""Tie-breaking among mappings of equal value: less time with uneven tiles, then less energy, less total busy time, more even
tiles, more buffers.

The time of a phase is that of its busiest resource, or of its waits, so many mappings take equally long by the formulas. The one
whose other resources and buffers have most to spare is the safest of them: a resource that is almost as busy as the busiest one
causes delays, which only the simulation shows. So does a small last tile: the formulas take the maximum of totals over all tiles,
but where different resources limit large and small tiles, the time is the sum of their maxima. The decision is
docs/decisions/0074-slack-among-ties.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.formulas.numbers import Number, ceil_div
from halley.formulas.timing import total
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.mapping.solve.ties import EQUAL
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.stages import BUFFERS, Slot, Tiles

LEAST_RELATIVE_GAIN = 1e-9
"""Relative difference from which on one mapping needs less than another."""

Costs = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""[time, time with uneven tiles apart over it, energy, busy times of all resources added up, unevenness; mapping]."""

Point = tuple[float, float]
"""A time [s] and a value of the objective."""

LEAST_WAIT_SHARE = 0.01
"""Share of the time: less than that between full and smaller tiles apart and together says nothing."""


def with_slack(
    workload: Workload,
    chip: Chip,
    enclose: Callable[[Node], Node],
    choice: GroupMapping,
    value: Callable[[float, float], float],
    allowed: float = EQUAL,
) -> GroupMapping:
    """The mapping with other tile sizes wherever ``value`` (of time and energy) stays equal, the time does not grow, and time,
    the time with full and smaller tiles apart, energy, the busy times added up or the unevenness shrink, in this order;
    then with as many buffers as fit, where nothing of that grows; then sizes again. One size is changed at a time, outer ones
    first, or with it all equal ones of its dim. ``enclose`` wraps the group's tree. ``allowed``: by how much (relative) value
    and time may exceed those of the given mapping and still count as equal; if more than `EQUAL`, they may also be less by any
    amount."""
    every = choice.slots
    known: Costs | None = None
    first: Point | None = None
    sizes, buffers = ([slot for slot in every if (slot.dim == BUFFERS) is own] for own in (False, True))
    for slot in (*sizes, *buffers, *sizes):  # with more buffers, other sizes are equal
        now = int(choice.tiles[slot.name])
        changes = [found for found in changed_tiles(every, slot, choice) if slot.dim != BUFFERS or found[slot.name] > now > 0]
        if not changes:
            continue
        tiles = with_columns(choice.tiles, changes)
        count = 1 + len(changes)
        tree = enclose(replace(choice, tiles=tiles).tree())
        estimate = evaluate(workload, chip, tree)
        points = _points(estimate, count)
        if first is None:
            time, energy = points[:, 0].tolist()
            first = time, value(time, energy)
        able = those_that_fit(chip, estimate, count) & _equal(points, value, first, allowed)
        able[0] = False
        if not able.any():
            continue
        apart = evaluate(workload, chip, tree, uneven=True).time
        costs = _costs(estimate, apart, unevenness(every, tiles), count)
        if allowed > EQUAL:
            costs[0] = np.where(costs[0] < first[0] * (1 - allowed), costs[0], first[0])
        known = costs[:, :1] if known is None else known
        better = _less(costs, known) if slot.dim != BUFFERS else (costs[:4] <= known[:4] * (1 + LEAST_RELATIVE_GAIN)).all(axis=0)
        found = np.flatnonzero(able & better)
        if not len(found):
            continue
        if slot.dim == BUFFERS:
            best = int(found[-1])
        else:
            scale = np.array([*known[:4, 0], 1.0])
            best = min(found.tolist(), key=lambda at: tuple(np.round(costs[:, at] / scale, 9)))
        choice = replace(choice, tiles={**choice.tiles, **changes[best - 1]})
        known = costs[:, best : best + 1]
    return choice


def changed_tiles(slots: Sequence[Slot], slot: Slot, choice: GroupMapping) -> Iterator[dict[str, int]]:
    """The changes to try of a slot: another size of it alone, or of all slots of its dim that have the same size: of two loops
    of 32 points, the inner one runs once, and still does if both have 64."""
    yield from _changes(slots, slot, choice, (slot.name,))
    alike = [own.name for own in slots if own.dim == slot.dim != BUFFERS and choice.tiles[own.name] == choice.tiles[slot.name]]
    if len(alike) > 1:
        yield from _changes(slots, slot, choice, alike)


def other_sizes(slots: Sequence[Slot], slot: Slot, choice: GroupMapping) -> Iterator[int]:
    """The sizes to try of a slot alone."""
    return (changed[slot.name] for changed in _changes(slots, slot, choice, (slot.name,)))


def _changes(slots: Sequence[Slot], slot: Slot, choice: GroupMapping, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Each other size of a slot, for all slots of these names: those that leave all sizes within the declared ones."""
    own = [other for other in slots if other.dim == slot.dim != BUFFERS]
    for size in slot.sizes(int(slot.limit(choice.tiles))):
        changed = dict.fromkeys(names, size)
        tiles = {**choice.tiles, **changed}
        if size != choice.tiles[slot.name] and all(tiles[each.name] in each.sizes(int(each.limit(tiles))) for each in own):
            yield changed


def with_columns(tiles: Tiles, changes: Sequence[Mapping[str, int]]) -> dict[str, Number]:
    """Tiles with an array for each that some change names: the given size first, then that of each change."""
    found = dict(tiles)
    for name in {name for changed in changes for name in changed}:
        found[name] = np.array([tiles[name], *(changed.get(name, tiles[name]) for changed in changes)], dtype=np.float64)
    return found


def unevenness(slots: Iterable[Slot], tiles: Tiles) -> Number:
    """By how much the full tile of each dim is larger than the mean one, added up: 0.5 means that half as much again would fit.

    >>> slot = Slot("m1", "m", lambda extent: (), lambda tiles: 37)
    >>> unevenness([slot], {"m1": 32}), unevenness([slot], {"m1": 37})
    (0.7297297297297298, 0.0)
    """
    result: Number = 0
    for slot in slots:
        if slot.dim != BUFFERS:
            limit, tile = slot.limit(tiles), tiles[slot.name]
            result = result + ceil_div(limit, tile) * tile / limit - 1
    return result


def _points(estimate: Estimate, count: int) -> Costs:
    """Time and energy of each mapping."""
    return np.stack([np.broadcast_to(np.asarray(own, dtype=np.float64), count) for own in (estimate.time, estimate.energy)])


def _costs(estimate: Estimate, apart: Number, uneven: Number, count: int) -> Costs:
    longer = np.maximum(np.asarray(apart, dtype=np.float64) / estimate.time, 1 + LEAST_WAIT_SHARE)
    time, energy = _points(estimate, count)
    every = (longer, total(estimate.busy.values()), uneven)
    longer, busy, uneven = (np.broadcast_to(np.asarray(own, dtype=np.float64), count) for own in every)
    return np.stack([time, longer, energy, busy, uneven])


def those_that_fit(chip: Chip, estimate: Estimate, count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which mappings every memory holds."""
    able = np.ones(count, dtype=bool)
    for memory, used in estimate.footprint.items():
        able &= np.broadcast_to(np.asarray(used <= chip.memory(memory).capacity), count)
    return able


def _equal(
    points: Costs, value: Callable[[float, float], float], first: Point, allowed: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which mappings, by time and energy, have the first one's value and no more time; or, where a share is allowed, no more of
    both by that."""
    values = np.array([value(time, energy) for time, energy in points.T.tolist()])
    equal = (values if allowed > EQUAL else np.abs(values - first[1]) + first[1]) <= first[1] * (1 + allowed)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = equal & (points[0] <= first[0] * (1 + allowed))
    return found


def _less(costs: Costs, known: Costs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which mappings need less of the first cost that differs."""
    less, alike = np.zeros(costs.shape[1], dtype=bool), np.ones(costs.shape[1], dtype=bool)
    for own, before in zip(costs, known[:, 0], strict=True):
        less |= alike & (own < before * (1 - LEAST_RELATIVE_GAIN))
        alike &= np.abs(own - before) <= LEAST_RELATIVE_GAIN * before
    return less
