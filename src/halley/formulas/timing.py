"""Times of transfers, phases and pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from halley.formulas.numbers import Number, ceil_div, floor_div, maximum, minimum


def busy_time(traffic: Number, bandwidth: Number) -> Number:
    """Busy time of a port.

    .. math:: t = D / B

    Symbols: D [B] traffic, B [B/s] bandwidth. Source: definition.

    >>> busy_time(256, 64)
    4.0
    """
    return traffic / bandwidth


def transfer_time(latency: Number, *port_times: Number) -> Number:
    """Time of one tile's transfer with cut-through: latency, then the slowest port.

    .. math:: t = \\lambda + \\max_p t_p

    Symbols: lambda [s] latency, t_p [s] time at port p. Source: docs/model.md.

    >>> transfer_time(2, 5, 7, 3)
    9
    """
    return latency + longest(port_times)


def phase_time(entries: Number, ramp_up: Number, ramp_down: Number, work: Number, busy: Iterable[Number]) -> Number:
    """Total time of a phase: its ramps (first fill, last drain), and the maximum of its work and every resource's busy time.

    .. math:: T = n (U + V) + \\max(W, \\max_r b_r)

    Symbols: n [1] entries, U, V [s] first fill and last drain of one entry, W [s] time of the work inside, b_r [s] busy time of
    resource r. Holds for: double-buffered tiles of equal size; with ragged tiles the maximum is taken over totals, a lower value
    than the sum of maxima by at most one tile's imbalance. Source: docs/model.md.

    >>> phase_time(2, 3, 4, 50, [60, 10])
    74
    """
    return entries * (ramp_up + ramp_down) + maximum(work, longest(tuple(busy)))


def least_phase_time(entries: Number, ramp_up: Number, ramp_down: Number, work: Number, busy: Iterable[Number]) -> Number:
    """Least total time of a phase, whatever numbers of buffers the Holds inside have.

    .. math:: T = \\max(n (U + V) + W, \\max_r b_r)

    Symbols: n [1] entries, U, V [s] first fill and last drain of one entry, of Holds with two buffers, W [s] time of the work
    inside and of all fills and drains of Holds with one, b_r [s] busy time of resource r. Holds for: a lower bound, whatever
    number of buffers each Hold has; `phase_time` and `buffered_time` give no less. Source:
    docs/decisions/0027-bounds-in-steps.md.

    >>> least_phase_time(2, 3, 4, 50, [60, 10]), least_phase_time(2, 3, 4, 50, [70, 10])
    (64, 70)
    """
    return maximum(entries * (ramp_up + ramp_down) + work, longest(tuple(busy)))


def port_phase_time(entries: Number, waits: Number, busy: Number) -> Number:
    """Least total time of a phase from one resource: its busy time, and its waits at both ends of the phase.

    .. math:: T = n R + b

    Symbols: n [1] entries, R [s] time before the first and after the last request to the resource in one entry, b [s] busy time
    of the resource. Source: docs/model.md.

    >>> port_phase_time(2, 3, 50)
    56
    """
    return entries * waits + busy


def buffered_time(single: Number, inside: Number, work: Number, transfers: Number) -> Number:
    """Total time of the work in a Hold: transfers overlap the work, or with a single buffer come before and after it.

    .. math:: T = \\max(W, s P) + s X

    Symbols: s [1] 1 for a single buffer, else 0; P [s] time of the body as a phase of its own, W [s] work of the body, X [s] all
    fills and drains of the Hold. With a single buffer, the body is a phase of its own. Source: docs/model.md.

    >>> buffered_time(1, 66, 50, 7), buffered_time(0, 66, 50, 7)
    (73, 50)
    """
    return maximum(work, single * inside) + single * transfers


def in_flight_time(series: Number, buffers: Number) -> Number:
    """Least total time of the visits of a Hold, with at most as many visits in flight as there are buffers (Little's law).

    .. math:: T = \\frac{C}{B}

    Symbols: C [s] sum of all visits, each with its latency, transfers and work; B [1] buffers. Source: J. D. C. Little, "A Proof
    for the Queuing Formula L = lambda W", Operations Research 9 (1961).

    >>> in_flight_time(90, 3)
    30.0
    """
    return series / buffers


def visits_time(visits: Number, buffers: Number, each: Number, work: Number) -> Number:
    """Time from the start of the first to the end of the last of some visits of a Hold, limited by latency.

    .. math:: T = \\lceil N / B \\rceil c + ((N - 1) \\bmod B) w

    Symbols: N [1] visits, B [1] buffers, c [s] one visit: latency, transfers and work; w [s] its work, the offset between visits
    in different buffers. Holds for: equal visits; a buffer is free when its visit ends. Where the work is the limit, it is a
    lower bound. Source: visit i starts when visit i - B ends; docs/model.md.

    >>> visits_time(7, 3, 10, 2), visits_time(6, 3, 10, 2)
    (30, 24)
    """
    turns = ceil_div(visits, buffers)
    return turns * each + maximum(visits + buffers - 1 - buffers * turns, 0) * work


def ragged_time(visits: Number, buffers: Number, each: Number, step: Number) -> Number:
    """Least time of one run of a loop with a smaller last tile, in the steady state of repeated runs.

    .. math:: T = \\max_{k \\in \\{1, \\lfloor N / B \\rfloor\\}} k c + (N - k B) s

    Symbols: N [1] visits of a run, B [1] buffers, c [s] one visit to a full tile: latency, transfers and work; s [s] interval
    between full tiles: the longest of fill, drain and work. Holds for: N at least B, else 0. Source: a cycle in the graph of
    waits that avoids the small tile: k times a visit waits for the buffer of the visit B before it, otherwise for the visit just
    before; docs/model.md.

    >>> ragged_time(3, 2, 10, 4), ragged_time(6, 2, 10, 4), ragged_time(1, 2, 10, 4)
    (14, 30, 0)
    """
    times = floor_div(visits, buffers)
    once, often = each + (visits - buffers) * step, times * each + (visits - times * buffers) * step
    return minimum(times, 1) * maximum(once, often)


def revisit_time(turns: Number, again: Number, each: Number) -> Number:
    """Time of repeated visits to the same partial sums: each starts when the visit before has drained them.

    .. math:: T = c + \\min\\left(K \\left(1 - \\frac{1}{R}\\right), \\max(K - 1, 0)\\right) c

    Symbols: K [1] visits to one tile in a phase, R [1] visits to one tile in all, c [s] one visit: latency, transfers and work.
    Holds for: equal visits. Source: the first visit of each of the K / R sums waits for nothing; docs/model.md.

    >>> revisit_time(8, 4, 10), revisit_time(2, 4, 10)
    (70.0, 20)
    """
    return each + waiting_revisits(turns, again) * each


def waiting_revisits(turns: Number, again: Number) -> Number:
    """Number of visits in a phase that wait for the drain of an earlier visit to the same partial sums.

    .. math:: n = \\min\\left(K \\left(1 - \\frac{1}{R}\\right), \\max(K - 1, 0)\\right)

    Symbols: K [1] visits to one tile in a phase, R [1] visits to one tile in all. Source: the first visit of each of the K / R
    sums waits for nothing; docs/model.md.

    >>> waiting_revisits(8, 4), waiting_revisits(2, 4)
    (6.0, 1)
    """
    return minimum(turns * (1 - 1 / again), maximum(turns - 1, 0))


def stall_time(transfer: Number, work: Number, steps: Number) -> Number:
    """Stall of a step whose transfer takes longer than its work, where double buffers swap at a barrier.

    .. math:: t = \\max(0, x - W / s)

    Symbols: x [s] time of one transfer, W [s] time of all steps, s [1] steps. Holds for: tiles of equal size. Does not model:
    ragged tiles, whose steps differ from the mean. Source: a synchronous pipeline advances at its slowest stage; docs/model.md.

    >>> stall_time(30, 100, 5)   # 20 a step
    10.0
    """
    return maximum(0, transfer - work / steps)


def pipeline_time(stages: Sequence[Number], tiles: Number) -> Number:
    """Total time of a pipeline, from each stage's total over all tiles.

    .. math:: T = \\max_i T_i + \\frac{\\sum_i T_i - \\max_i T_i}{N}

    Symbols: T_i [s] total of stage i over N [1] tiles. Source: fill + (N - 1) x slowest + drain, for equal tiles.

    >>> pipeline_time([40, 20, 30], 10)   # 2 + 3 fill and drain + 40
    45.0
    """
    slowest = longest(stages)
    return slowest + waiting_time(total(stages), slowest, tiles)


def contended_time(times: Sequence[Number], busy: Number) -> Number:
    """Total time of concurrent children that share an engine and start each round together.

    .. math:: T = T_m + \\min\\left(b, \\sum_i T_i\\right) \\left(1 - \\frac{T_m}{\\sum_i T_i}\\right)

    Symbols: T_i [s] total of child i, T_m the longest, b [s] busy time of the engine for all of them. Holds for: children that
    each use the engine in proportion to their time, served first come, first served: the longest waits for the others.
    No more than the sum of the children. Rises with each of its symbols. Source: docs/model.md; against the simulation in
    docs/referee.md.

    >>> contended_time([40, 30], 35), contended_time([40, 10], 0)
    (55.0, 40.0)
    """
    slowest, sequential = longest(times), total(times)
    return slowest + minimum(busy, sequential) * (1 - slowest / sequential)


def delayed_time(work: Number, met: Number) -> Number:
    """Total time of a child that waits for resources while they serve other concurrent children.

    .. math:: T = T_i + \\min\\left(T_i, \\frac{X_i}{T_i}\\right)

    Symbols: T_i [s] total of the child; X_i [s^2] the sum of f_ij max_r(b_ir b_jr) over the other children j: b_ir [s] busy time
    of resource r for child i, f_ij [1] share of the rounds in which both work at the same time. Holds for: requests at random
    times, so the child finds r busy for j in b_ir / T_i of the time b_jr. Where both use several resources, the waits for one
    hide the others. A child waits no longer than it works. Rises with each of its symbols. Source: docs/model.md; against the
    simulation in docs/referee.md.

    >>> delayed_time(40, 600), delayed_time(10, 300)
    (55.0, 20)
    """
    return work + minimum(work, met / work)


def share_of_rounds(rounds: Number, behind: Number) -> Number:
    """Share of the rounds between the first and the last one in which two children work at the same time.

    .. math:: f = \\max\\left(0, 1 - \\frac{\\max(d - 1, 0)}{\\max(n - 1, 1)}\\right)

    Symbols: n [1] rounds of a phase, d [1] rounds by which the second child is behind the first. Source: the children work at
    the same time in n - d rounds; n - 1 rounds follow the first one, which `waiting_time` has apart; docs/model.md.

    >>> share_of_rounds(4, 1), share_of_rounds(4, 2), share_of_rounds(2, 3)
    (1.0, 0.6666666666666667, 0)
    """
    return maximum(0, 1 - maximum(behind - 1, 0) / maximum(rounds - 1, 1))


def waiting_time(work: Number, busiest: Number, tiles: Number) -> Number:
    """Fill and drain time of a pipeline, in which its busiest stage or resource is idle.

    .. math:: T = \\frac{\\max(W, b) - b}{N}

    Symbols: W [s] total of all stages over N [1] tiles, b [s] total of the busiest stage, or of a resource that they and the
    transfers around them share. Source: fill + drain around N x busiest, for equal tiles; with one tile, stages take W, or b if
    that is longer.

    >>> waiting_time(90, 40, 10), waiting_time(90, 95, 10)
    (5.0, 0.0)
    """
    return (maximum(work, busiest) - busiest) / tiles


@overload
def longest(times: Iterable[float]) -> float: ...
@overload
def longest(times: Iterable[Number]) -> Number: ...
def longest(times: Iterable[Number]) -> Number:
    """The maximum of the times, 0 for none.

    .. math:: t = \\max_i t_i

    Symbols: t_i [s] times of concurrent activities. Source: definition.

    >>> longest([3, 5, 4])
    5
    """
    result: Number = 0
    for time in times:
        result = maximum(result, time)
    return result


@overload
def total(times: Iterable[float]) -> float: ...
@overload
def total(times: Iterable[Number]) -> Number: ...
def total(times: Iterable[Number]) -> Number:
    """The sum, on numbers and arrays.

    .. math:: t = \\sum_i t_i

    Symbols: t_i [s] times of sequential activities, or [J] energies. Source: definition.

    >>> total([3, 5])
    8
    """
    result: Number = 0
    for time in times:
        result = result + time
    return result
