"""The search of `halley.spatial.solve` as one loop that numba compiles once and caches on disk.

The same steps as `halley.optim.downsets.best_chain` with `halley.spatial.growth`, on arrays and with an explicit stack; the
equations are those of `halley.formulas`, compiled unchanged. Only `halley.spatial.solve` loads this module, because importing
numba takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import overload

from halley.formulas.numbers import floor_div
from halley.formulas.spatial import amortised_time, buffer_bytes, ramp_time, resident_samples
from halley.formulas.timing import busy_time
from halley.optim.downsets import Costs, Lattice
from halley.optim.jit import FLOAT, INT, compiled
from halley.spatial.chip import Array
from halley.spatial.growth import GrowthTables
from halley.spatial.growth_arrays import Indices, KernelArrays, LatticeArrays, ProblemNumbers, TensorArrays, search_arrays

MAX_KERNELS = 62
"""Largest set of kernels in a signed 64-bit integer."""

INITIAL_LABELS = 1 << 12
"""Initial capacity for labels; doubled when it is exceeded."""


class CompiledSearch:
    """The loop's arrays for the sequence tiles that a partition may have, and the downsets; ``rest`` from
    `halley.spatial.growth.remaining_bounds`."""

    def __init__(self, made: Sequence[GrowthTables], downsets: Lattice, rest: Sequence[Costs]) -> None:
        self._arrays = search_arrays(made, downsets, rest)

    def __call__(self, limit: float) -> tuple[tuple[tuple[int, int, int], ...], float, int]:
        """The best chain below ``limit`` as kernels, streamed kernels and number of the sequence tile; its value; and the
        partitions costed. The chain is empty if there is none."""
        label, value, costed, before, groups = run(*self._arrays, limit)
        chain = []
        while label >= 0 and before[label] >= 0:
            chain.append((int(groups[label, 0]), int(groups[label, 1]), int(groups[label, 2])))
            label = before[label]
        return tuple(reversed(chain)), float(value), int(costed)


# --- compiled ---------------------------------------------------------------------------------------------------------

INTS, PAIRS = types.Array(INT, 1, "C"), types.Array(INT, 2, "C")
FLOATS, ROWS, BOXES = (types.Array(FLOAT, axes, "C") for axes in (1, 2, 3))
STEPS = types.NamedUniTuple(INTS, 4, LatticeArrays)
KERNELS = types.NamedTuple(
    (INTS, INTS, BOXES, FLOATS, ROWS, INTS, FLOATS, FLOATS, ROWS, *(INTS,) * 4, *(FLOATS,) * 2), KernelArrays
)
TENSORS = types.NamedTuple((*(INTS,) * 4, FLOATS, FLOATS, ROWS), TensorArrays)
MACHINE = types.NamedTuple((FLOAT,) * 10 + (INT,) * 4, ProblemNumbers)


@overload(floor_div, strict=False)  # type: ignore[untyped-decorator]
def _floor_div(a: Any, b: Any) -> Any:
    return lambda a, b: a // b


OfFloats = Callable[..., float]
held_bytes = compiled(FLOAT(FLOAT, INT))(buffer_bytes)
port_time = cast(OfFloats, compiled(FLOAT(FLOAT, FLOAT))(busy_time))
fill_time = cast(OfFloats, compiled(FLOAT(FLOAT, FLOAT, INT))(ramp_time))
shared_time = cast(OfFloats, compiled(FLOAT(FLOAT, FLOAT, FLOAT))(amortised_time))
samples_held = compiled(FLOAT(*(FLOAT,) * 5))(resident_samples)


@compiled(FLOAT(MACHINE, FLOAT, FLOAT, FLOAT))
def chain_value(m: ProblemNumbers, steady: float, once: float, kept: float) -> float:
    """`SpatialProblem.value`."""
    least = 1.0 if kept == 0 else kept
    samples = samples_held(m.dram, m.stages, m.layers, m.weights, least)
    if kept == 0:
        samples = m.most if samples >= 0 else 0.0
    samples = min(m.most, samples)
    return shared_time(steady, once, samples) if samples >= m.fewest else np.inf


@compiled(INT(BOXES, INT, INTS, INT, INT, FLOAT))
def fastest_within(needed: Array, tile: int, chosen: Indices, last: int, least: int, tiles: float) -> int:
    """`halley.spatial.growth._fastest` for the kernels at places 0 to ``last`` of ``chosen``."""
    low, high = least, needed.shape[2]
    middle = least  # most often the new kernel changes nothing
    while low < high:
        total = 0.0
        for place in range(last + 1):
            total += needed[tile, chosen[place], middle]
        if total <= tiles:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


@compiled(types.UniTuple(FLOAT, 4)(KERNELS, TENSORS, MACHINE, INT, INT, INT, FLOATS, PAIRS, PAIRS))
def add_tensors(
    k: KernelArrays,
    t: TensorArrays,
    m: ProblemNumbers,
    tile: int,
    kernel: int,
    group: int,
    sums: Array,
    passing: Indices,
    undo: Indices,
) -> Any:
    """`halley.spatial.growth._passed`: SRAM, traffic, stored bytes, and the traffic that enters, which never falls again.
    ``passing``: readers, low, high by tensor; previous values go to ``undo``."""
    sram, traffic, kept, entering = sums[0], sums[2], sums[3], sums[5]
    level = k.levels[kernel]
    for at in range(k.write_starts[kernel], k.write_starts[kernel + 1]):
        number = k.writes[at]
        passing[number, 0], passing[number, 1], passing[number, 2] = 0, level, level
        sram += held_bytes(t.slices[tile, number], m.away)
        traffic += t.moved[number]
        kept += t.moved[number]
    for at in range(k.read_starts[kernel], k.read_starts[kernel + 1]):
        number, row = k.reads[at], at - k.read_starts[kernel]
        undo[row, 0], undo[row, 1], undo[row, 2] = passing[number, 0], passing[number, 1], passing[number, 2]
        writer = t.writers[number]
        inside = writer >= 0 and (group >> max(writer, 0)) & 1 == 1
        if t.needed_whole[number]:
            passing[number, 0] += 1
            if inside:
                sram = np.inf  # it would wait for itself
            elif passing[number, 0] == 1:
                sram += t.gathered_bytes[number]
                traffic += t.moved[number]
                entering += t.moved[number]
                if m.kept_twice:
                    kept += t.moved[number]
            continue
        if not inside and passing[number, 0] == 0:
            passing[number, 0], passing[number, 1], passing[number, 2] = 1, level, level
            traffic += t.moved[number]
            entering += t.moved[number]
            if m.kept_twice:
                kept += t.moved[number]
        else:
            spread = passing[number, 2] - passing[number, 1]
            sram -= held_bytes(t.slices[tile, number], max(spread, m.away if spread == 0 else 0) if inside else spread + m.away)
            passing[number, 0] += 1
            passing[number, 1] = min(passing[number, 1], level)
            passing[number, 2] = max(passing[number, 2], level)
        if inside and passing[number, 0] == t.readers[number] and not t.leaves[number]:
            traffic -= t.moved[number]
            kept -= t.moved[number]
        spread = passing[number, 2] - passing[number, 1]
        sram += held_bytes(t.slices[tile, number], max(spread, m.away if spread == 0 else 0) if inside else spread + m.away)
    return sram, traffic, kept, entering


@compiled(types.void(KERNELS, INT, PAIRS, PAIRS))
def restore(k: KernelArrays, kernel: int, passing: Indices, undo: Indices) -> None:
    """Resets tensors to their state before a kernel was added."""
    for at in range(k.read_starts[kernel], k.read_starts[kernel + 1]):
        for column in range(3):
            passing[k.reads[at], column] = undo[at - k.read_starts[kernel], column]


@compiled(INT(INTS, ROWS, INTS, INT, INT))
def insert_label(heads: Indices, costs: Array, following: Indices, target: int, new: int) -> int:
    """Inserts label ``new`` into the list of a downset unless another dominates it, and removes those that it dominates.
    Returns 1 if inserted."""
    label = heads[target]
    while label >= 0:
        if costs[label, 0] <= costs[new, 0] and costs[label, 1] <= costs[new, 1] and costs[label, 2] <= costs[new, 2]:
            return 0
        label = following[label]
    previous, label = -1, heads[target]
    while label >= 0:
        worse = costs[new, 0] <= costs[label, 0] and costs[new, 1] <= costs[label, 1] and costs[new, 2] <= costs[label, 2]
        if not worse:
            previous = label
        elif previous < 0:
            heads[target] = following[label]
        else:
            following[previous] = following[label]
        label = following[label]
    following[new] = heads[target]
    heads[target] = new
    return 1


@compiled(INT(MACHINE, INT, INTS, ROWS, FLOATS, FLOAT, INTS))
def open_labels(m: ProblemNumbers, head: int, following: Indices, costs: Array, rest: Array, limit: float, live: Indices) -> int:
    """Number of labels of a downset that may still lead below the limit; they go to ``live``."""
    count, label = 0, head
    while label >= 0:
        if chain_value(m, costs[label, 0] + rest[0], costs[label, 1] + rest[1], costs[label, 2] + rest[2]) < limit:
            live[count] = label
            count += 1
        label = following[label]
    return count


@compiled(types.void(KERNELS, INT, ROWS))
def skipped_sums(k: KernelArrays, done: int, skipped: Array) -> None:
    """By kernel: work and network of all kernels up to it that are not done; a partition leaves those that it skips to others."""
    work, network = 0.0, 0.0
    for kernel in range(len(k.needs)):
        if not (done >> kernel) & 1:
            work += k.area[kernel]
            network += k.least_network[kernel]
        skipped[kernel + 1, 0], skipped[kernel + 1, 1] = work, network


@compiled(types.Tuple((ROWS, INTS, INTS, PAIRS, INTS))(ROWS, INTS, INTS, PAIRS, INTS))
def doubled(costs: Array, following: Indices, before: Indices, groups: Indices, live: Indices) -> Any:
    """The arrays of labels with twice the capacity."""
    more = len(before)
    return (
        np.concatenate((costs, np.zeros((more, 3)))),
        np.concatenate((following, np.full(more, -1, np.int64))),
        np.concatenate((before, np.full(more, -1, np.int64))),
        np.concatenate((groups, np.zeros((more, 3), np.int64))),
        np.concatenate((live, np.zeros(more, np.int64))),
    )


@compiled(
    types.Tuple((INT, INT, FLOAT))(
        MACHINE, INTS, ROWS, INTS, INTS, PAIRS, INTS, ROWS, INT, INT, INT, FLOAT, INT, FLOAT, FLOAT, FLOAT, INT, INT, INT
    )
)
def extend_chains(
    m: ProblemNumbers, heads: Indices, costs: Array, following: Indices, before: Indices, groups: Indices, live: Indices,
    rest: Array, lives: int, labels: int, best: int, limit: float,
    target: int, steady: float, once: float, kept: float, group: int, streamed: int, tile: int,
) -> Any:  # fmt: skip
    """Extends the open chains of a downset by a partition, to the ``target``: a label for each that may lead below the limit
    and is not dominated. Returns the number of ``labels``, the best complete chain, and the limit: its value."""
    for number in range(lives):
        label = live[number]
        a, b, c = costs[label, 0] + steady, costs[label, 1] + once, costs[label, 2] + kept
        if a + rest[target, 0] >= limit:  # most often; saves a division
            continue
        bound = chain_value(m, a + rest[target, 0], b + rest[target, 1], c + rest[target, 2])
        if bound >= limit:
            continue
        costs[labels, 0], costs[labels, 1], costs[labels, 2] = a, b, c
        before[labels], groups[labels, 0], groups[labels, 1], groups[labels, 2] = label, group, streamed, tile
        if target == len(rest) - 1:
            best, limit = labels, bound
        elif insert_label(heads, costs, following, target, labels) == 0:
            continue
        labels += 1
    return labels, best, limit


@compiled(types.Tuple((INT, FLOAT, INT, INTS, PAIRS))(STEPS, KERNELS, TENSORS, MACHINE, ROWS, FLOATS, ROWS, FLOAT))
def run(
    s: LatticeArrays, k: KernelArrays, t: TensorArrays, m: ProblemNumbers, times: Array, counts: Array, rest: Array, limit: float
) -> Any:
    """`halley.optim.downsets.best_chain` over the partitions of `halley.spatial.growth`. Returns the last label of the best
    chain (-1: none), its value, the partitions costed, and for each label the previous one and its partition. ``times`` [s]
    of kernels and ``counts`` [1] of sequence tiles per sequence, by sequence tile.

    Partitions grow in ascending order of kernels, so a partition leaves those that it skips to others: its own time so far and
    theirs bound all partitions that contain it.

    It is one long loop because a call updates the reference counts of all arrays that it passes, which takes longer than a
    step.
    """
    end, depth = len(s.starts) - 2, len(k.needs) + 1
    widest = 1
    for kernel in range(len(k.needs)):
        widest = max(widest, k.read_starts[kernel + 1] - k.read_starts[kernel])
    # by level of the stack: downset, next step and variant, kernel; and of the block of the levels before: kernels, streamed,
    # place of its time, longest path, least time, and sums: SRAM, loaded, traffic, kept, network, entering, work
    at, step, variant = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    chosen, group, streamed = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    fastest, longest, path = np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    least, sums, skipped = np.zeros(depth), np.zeros((depth, 7)), np.zeros((depth, 2))
    passing, undo = np.zeros((len(t.writers), 3), np.int64), np.zeros((depth, widest, 3), np.int64)
    heads = np.full(end + 1, -1, np.int64)
    costs, following, before = (
        np.zeros((INITIAL_LABELS, 3)),
        np.full(INITIAL_LABELS, -1, np.int64),
        np.full(INITIAL_LABELS, -1, np.int64),
    )
    groups, live = np.zeros((INITIAL_LABELS, 3), np.int64), np.zeros(INITIAL_LABELS, np.int64)
    heads[0], labels, best, costed = 0, 1, -1, 0
    for place in range(end):
        lives = open_labels(m, heads[place], following, costs, rest[place], limit, live)
        if lives == 0:
            continue
        lowest = costs[live[:lives], 0].min()  # of their times per sample
        # unfused kernels
        for at_step in range(s.starts[place], s.starts[place + 1]):
            kernel, target = s.kernels[at_step], s.targets[at_step]
            if k.unfused_time[kernel] == np.inf:
                continue
            costed += 1
            if labels + lives > len(before):
                costs, following, before, groups, live = doubled(costs, following, before, groups, live)
            labels, best, limit = extend_chains(
                m, heads, costs, following, before, groups, live, rest, lives, labels, best, limit,
                target, k.unfused_time[kernel], 0.0, 0.0, np.int64(1) << kernel, 0, 0,
            )  # fmt: skip
        skipped_sums(k, s.downsets[place], skipped)
        level, tile = -1, -1
        while True:
            if level < 0:
                # all blocks with the next sequence tile
                level, tile = 0, tile + 1
                if tile == len(counts):
                    break
                at[0], step[0], variant[0] = place, s.starts[place], -1
            # the next variant of the step, or the next step
            if variant[level] >= 0:
                kernel = s.kernels[step[level]]
                restore(k, kernel, passing, undo[level])
                if k.variant_starts[kernel] + variant[level] + 1 == k.variant_starts[kernel + 1]:
                    step[level] += 1
                    variant[level] = -1
            variant[level] += 1
            last = chosen[level - 1] if level > 0 else -1
            while step[level] < s.starts[at[level] + 1] and s.kernels[step[level]] <= last:
                step[level] += 1
            if step[level] == s.starts[at[level] + 1]:
                level -= 1
                continue
            kernel, target = s.kernels[step[level]], s.targets[step[level]]
            others = max(skipped[kernel, 0] - sums[level, 6], skipped[kernel, 1] - sums[level, 4])
            if lowest + least[level] + others >= limit:  # and more so with the steps that follow
                level -= 1
                continue
            chosen[level] = kernel
            bit = np.int64(1) << kernel
            soonest = fastest_within(k.needed, tile, chosen, level, fastest[level], m.tiles)
            sram, traffic, kept, entering = add_tensors(k, t, m, tile, kernel, group[level], sums[level], passing, undo[level])
            which = k.variant_starts[kernel] + variant[level]
            sram += k.held[which]
            if soonest == times.shape[1] or sram > m.sram or sram == np.inf:
                continue
            deeper = level + 1
            sums[deeper, 0], sums[deeper, 1] = sram, sums[level, 1] + k.loaded[which]
            sums[deeper, 2], sums[deeper, 3] = traffic + k.streamed[tile, which], kept
            sums[deeper, 4] = sums[level, 4] + k.network[tile, kernel]
            sums[deeper, 5] = entering + k.streamed[tile, which]
            sums[deeper, 6] = sums[level, 6] + k.area[kernel]
            least[deeper] = max(times[tile, soonest], port_time(sums[deeper, 5], m.bandwidth), sums[deeper, 4])
            if lowest + least[deeper] + others >= limit:
                continue
            path[kernel] = 1
            for earlier in range(level):
                if (k.needs[kernel] >> chosen[earlier]) & 1:
                    path[kernel] = max(path[kernel], path[chosen[earlier]] + 1)
            longest[deeper] = max(longest[level] if level > 0 else 0, path[kernel])
            group[deeper] = group[level] | bit
            streamed[deeper] = streamed[level] | (bit if variant[level] > 0 else np.int64(0))
            fastest[deeper] = soonest
            costed += 1
            steady = max(times[tile, soonest], port_time(sums[deeper, 2], m.bandwidth), sums[deeper, 4])
            ramp = fill_time(times[tile, soonest], counts[tile], longest[deeper]) if m.ramps else 0.0
            once, left = ramp + m.start + port_time(sums[deeper, 1], m.bandwidth), kept
            if m.one_sample:
                steady, once, left = steady + once, 0.0, 0.0
            if lowest + steady + rest[target, 0] < limit:  # most often not
                if labels + lives > len(before):
                    costs, following, before, groups, live = doubled(costs, following, before, groups, live)
                labels, best, limit = extend_chains(
                    m, heads, costs, following, before, groups, live, rest, lives, labels, best, limit,
                    target, steady, once, left, group[deeper], streamed[deeper], tile,
                )  # fmt: skip
            if m.away:
                level = deeper
                at[level], step[level], variant[level] = target, s.starts[target], -1
    return best, limit, costed, before, groups
