"""Fits an `Overlay` to measured collectives.

Three things are unknown: the protocols of a family, which rows ran with which of them, and where the library changes over.
They are found one after the other until none changes, from several starts: given the rows of each protocol, its four numbers
are a robust regression; given the protocols, the best run of them along the sizes of a series is a dynamic programme. Nothing is
random: equal rows give equal fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.ir.mapping import CollectiveKind
from halley.network.fit.overlay import FAMILIES, Choice, Family, Fit, Overlay, Protocol, RankDemand, Series, demand
from halley.network.fit.regression import Array, robust_fit
from halley.units import UNLIMITED

PROTOCOLS = 3
"""Most protocols of a family; NCCL has as many. More fit the measured machines no better on rows that were held out."""
ROWS_PER_PROTOCOL = 3
"""Rows that a protocol has to have on average, one more than the numbers of it that a single series can tell."""
LEAST_ROWS = 4
"""Least sizes of a series from which a fit is made."""
STARTS = 7
"""Sizes, evenly spaced in logarithm, among which a start draws the first borders between protocols."""
ROUNDS = 12
"""Most alternations of fitting protocols and assigning rows."""
SWITCH_COST = 0.1
"""Relative error, summed over rows, that one more change of protocol has to save."""
STEP_SHARE, COPY_SHARE, PRIOR_WEIGHT = 0.15, 0.7, 0.01
"""Where rows cannot tell start-up from steps, or sending from copying (one collective on one number of ranks), a step takes 0.15
of the start-up and the copy of a byte 0.7 of its sending: medians of the shipped fits to several numbers of ranks. The weight is
in relative error, small enough to give way to rows that say something else."""
DIGITS = 6
"""Significant digits of a stored coefficient."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: a collective of ``size`` bytes on ``ranks`` ranks took ``time`` seconds."""

    kind: CollectiveKind
    ranks: int
    size: int
    time: float


Key = tuple[CollectiveKind, int]
"""A collective on a number of ranks."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one series by size, cleaned, with what each asks of a protocol."""

    key: Key
    sizes: Array
    times: Array
    columns: Array


def calibrate(rows: Iterable[Measurement], machine: str, software: str, source: str, dated: str) -> Overlay:
    """The overlay of all rows; each series also says how well a fit to every second size predicts the sizes between.

    Raises BadInput: rows that cannot be, or too few of them.
    """
    found = checked(rows)
    known, kept = halves(found)
    half = {fit.family: fit for fit in fit_rows(known, lenient=True)}
    fits = tuple(_judged(fit, half.get(fit.family), kept) for fit in fit_rows(found))
    return Overlay(machine, software, source, dated, fits)


def checked(rows: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The rows. Raises BadInput: a time or a size that is not above 0, fewer than two ranks, no rows."""
    found, faults = tuple(rows), []
    for number, row in enumerate(found, start=1):
        where = f"measurement {number}, {row.kind} on {row.ranks} ranks"
        if row.ranks < 2:
            faults.append(Fault(where, "at least 2 ranks", str(row.ranks)))
        if row.size < 1:
            faults.append(Fault(where, "a size above 0 bytes", str(row.size)))
        if not 0 < row.time < math.inf:
            faults.append(Fault(where, "a time above 0 s", f"{row.time:g} s"))
    if not found:
        faults.append(Fault("calibration", "measurements", "none"))
    if faults:
        raise BadInput(faults)
    return found


def series(rows: Iterable[Measurement]) -> dict[Key, tuple[Measurement, ...]]:
    """Rows by collective and ranks, by size; of several of one size, their median time."""
    groups: dict[Key, dict[int, list[float]]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.ranks), {}).setdefault(row.size, []).append(row.time)
    return {
        key: tuple(Measurement(*key, size, float(np.median(times))) for size, times in sorted(sizes.items()))
        for key, sizes in sorted(groups.items())
    }


def halves(rows: Iterable[Measurement]) -> tuple[tuple[Measurement, ...], tuple[Measurement, ...]]:
    """Every second size of each series, from the least: to fit; and the sizes between: to judge."""
    groups = series(rows).values()
    return tuple(row for group in groups for row in group[::2]), tuple(row for group in groups for row in group[1::2])


def relative_errors(fit: Fit, key: Key, rows: Sequence[Measurement]) -> Array:
    """[rows] |predicted - measured| / measured."""
    times = np.array([row.time for row in rows])
    errors: Array = np.abs(fit.time(*key, np.array([float(row.size) for row in rows])) - times) / times
    return errors


def _judged(fit: Fit, half: Fit | None, kept: tuple[Measurement, ...]) -> Fit:
    """The fit with what a fit to half of the rows says of the other half."""
    groups = series(kept)

    def error(item: Series) -> float | None:
        key = (item.kind, item.ranks)
        if half is None or key not in groups or half.find(*key) is None:
            return None
        return _rounded(float(relative_errors(half, key, groups[key]).mean()))

    return replace(fit, series=tuple(replace(item, held_out=error(item)) for item in fit.series))


def fit_rows(rows: Iterable[Measurement], lenient: bool = False) -> tuple[Fit, ...]:
    """A fit per family that has rows, none held out. Raises BadInput: a family has too few, unless ``lenient`` leaves it out."""
    groups, found, faults = series(rows), [], []
    for family in Family:
        mine = {key: group for key, group in groups.items() if FAMILIES[key[0]] is family}
        count = sum(len(group) for group in mine.values())
        if count >= LEAST_ROWS:
            found.append(fit_family(family, mine))
        elif mine and not lenient:
            names = ", ".join(sorted({str(kind) for kind, _ in mine}))
            faults.append(Fault(f"calibration of {names}", f"at least {LEAST_ROWS} sizes", str(count), "measure more sizes"))
    if faults:
        raise BadInput(faults)
    return tuple(found)


def fit_family(family: Family, groups: dict[Key, tuple[Measurement, ...]]) -> Fit:
    """The protocols that explain the series of a family best, and the choices between them."""
    rows = [_rows(key, group) for key, group in groups.items()]
    count = sum(len(item.sizes) for item in rows)
    protocols = min(PROTOCOLS, max(1, count // ROWS_PER_PROTOCOL))
    sizes = np.unique(np.concatenate([item.sizes for item in rows]))
    grid = np.geomspace(sizes[0], sizes[-1], STARTS + 2)[1:-1]
    best_loss, best = math.inf, (np.zeros((1, 4)), [np.zeros(len(item.sizes), int) for item in rows])
    for borders in combinations(grid, protocols - 1):
        start = [np.searchsorted(np.array(borders), item.sizes, side="right") for item in rows]
        loss, coefficients, runs = _alternate(rows, start, protocols)
        if loss < best_loss - 1e-12:
            best_loss, best = loss, (coefficients, runs)
    made, used = _protocols(*best)
    found = Fit(family, made, tuple(_series(item, made, used[run]) for item, run in zip(rows, best[1], strict=True)))
    errors = {key: float(relative_errors(found, key, group).mean()) for key, group in groups.items()}
    named = (replace(item, error=_rounded(errors[item.kind, item.ranks])) for item in found.series)
    return replace(found, series=tuple(named))


def _rows(key: Key, group: Sequence[Measurement]) -> _Rows:
    """A message can be padded to a larger size, and noise only adds: no row takes longer than the shortest of the larger
    sizes."""
    sizes = np.array([float(row.size) for row in group])
    times = np.minimum.accumulate(np.array([row.time for row in group])[::-1])[::-1]
    asked: RankDemand = demand(*key, sizes)
    ones = np.ones(len(sizes))
    return _Rows(key, sizes, times, np.stack([ones, asked.steps * ones, asked.sent, asked.own], axis=1))


Runs = list[NDArray[np.int_]]
"""Per series, the protocol of each row."""


def _alternate(rows: Sequence[_Rows], runs: Runs, protocols: int) -> tuple[float, Array, Runs]:
    """Fits protocols and assigns rows to them until neither changes: loss, [protocols, 4] coefficients, runs.

    The loss is infinite where a protocol has no rows at the start; one that loses all its rows later keeps its numbers.
    """
    coefficients, loss = np.zeros((protocols, 4)), math.inf
    for turn in range(ROUNDS):
        for number in range(protocols):
            mine = [run == number for run in runs]
            if any(chosen.any() for chosen in mine):
                coefficients[number] = _coefficients(rows, mine)
            elif turn == 0:
                return math.inf, coefficients, runs
        found = [_best_run(item, coefficients) for item in rows]
        loss, before, runs = sum(cost for cost, _ in found), runs, [run for _, run in found]
        if all(np.array_equal(old, new) for old, new in zip(before, runs, strict=True)):
            break
    return loss, coefficients, runs


def _coefficients(rows: Sequence[_Rows], mine: Sequence[NDArray[np.bool_]]) -> Array:
    """Start-up [s], step [s], sending [s/B] and copying [s/B] of the protocol that owns these rows."""
    columns = np.concatenate([item.columns[chosen] for item, chosen in zip(rows, mine, strict=True)])
    times = np.concatenate([item.times[chosen] for item, chosen in zip(rows, mine, strict=True)])
    weight = PRIOR_WEIGHT * math.sqrt(len(times))
    fixed = np.array([-STEP_SHARE, 1.0, 0.0, 0.0]) / times.min()
    flowing = np.array([0.0, 0.0, -COPY_SHARE, 1.0]) * columns[:, 2].max() / times.max()
    return robust_fit(columns, times, weight * np.stack([fixed, flowing]))


def _best_run(item: _Rows, coefficients: Array) -> tuple[float, NDArray[np.int_]]:
    """The cheapest run of protocols along the sizes, never back to an earlier one: loss, [rows] protocol."""
    predicted = np.maximum(item.columns @ coefficients.T, 1e-15)
    losses = np.abs(np.log(predicted / item.times[:, None])).tolist()
    best, origins = list(losses[0]), []
    for loss in losses[1:]:
        least, earlier, reached, origin = math.inf, 0, [], []
        for number, stayed in enumerate(best):
            changes = least + SWITCH_COST < stayed
            origin.append(earlier if changes else number)
            reached.append(loss[number] + (least + SWITCH_COST if changes else stayed))
            if stayed < least:
                least, earlier = stayed, number
        best = reached
        origins.append(origin)
    run = [best.index(min(best))]
    for origin in reversed(origins):
        run.append(origin[run[-1]])
    return min(best), np.array(run[::-1])


def _protocols(coefficients: Array, runs: Runs) -> tuple[tuple[Protocol, ...], NDArray[np.int_]]:
    """Those that own rows, and the new number of each old one."""
    owning = sorted({int(number) for run in runs for number in run})
    numbers = np.zeros(len(coefficients), int)
    numbers[owning] = np.arange(len(owning))
    made = (
        Protocol(_rounded(startup), _rounded(step), _rate(sending), _rate(copying))
        for startup, step, sending, copying in coefficients[owning].tolist()
    )
    return tuple(made), numbers


def _rate(seconds_per_byte: float) -> float:
    return UNLIMITED if seconds_per_byte * UNLIMITED <= 1 else _rounded(1 / seconds_per_byte)


def _rounded(value: float) -> float:
    """To as many digits as a file holds, so that a fit that is written and read is the same."""
    return float(f"{value:.{DIGITS}g}")


def _series(item: _Rows, protocols: Sequence[Protocol], run: NDArray[np.int_]) -> Series:
    """The choices of a series: the change from one protocol to the next lies between two measured sizes."""
    choices = [Choice(1, int(run[0]))]
    for row in range(1, len(run)):
        if run[row] != run[row - 1]:
            before, after = protocols[run[row - 1]], protocols[run[row]]
            border = _border(item.key, before, after, int(item.sizes[row - 1]), int(item.sizes[row]))
            choices.append(Choice(border, int(run[row])))
    sizes = item.sizes
    return Series(*item.key, tuple(choices), int(sizes[0]), int(sizes[-1]), len(sizes), error=0.0)


def _border(key: Key, before: Protocol, after: Protocol, last: int, first: int) -> int:
    """The size of the change, above ``last`` and at most ``first``. Between them nothing is known, and the faster one is
    taken: if it is as likely as not that the library changed already, this errs least."""

    def lead(size: float) -> float:
        asked = demand(*key, size)
        return float(after.time(asked) - before.time(asked))

    early, late = lead(last), lead(first)
    if late >= 0 and early >= 0:
        return first
    if early <= 0 and late <= 0:
        return last + 1
    if early < 0:  # the later one loses its lead: no crossing to change at
        return first if lead((last + first) / 2) >= 0 else last + 1
    return min(first, last + 1 + int((first - last) * early / (early - late)))  # times are linear in size
