"""Fits of the families' parameters to measured rows, judged on rows held out.

Parameters are fitted by least squares of relative errors, with a loss that is linear for large errors and a prior on each
parameter: its start, with a spread in logarithm. Then what the formula leaves over is interpolated (`corrections`). A stratum
with few rows starts from the fit of the most similar larger one. Options of the library are chosen one after the other: another
value has to lower the loss by `OPTION_EVIDENCE`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product

import numpy as np

from halley.errors import BadInput, Fault
from halley.kernels.library.corrections import Correction, corrected, fit_correction
from halley.kernels.library.decode import DECODE
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.family import Array, Features, KernelFamily, Sizes
from halley.kernels.library.rows import MeasuredKernel, Stratum, columns, decoding, halves, strata, times
from halley.kernels.machine import Machine

EXPECTED_ERROR = 0.05
"""Relative error at which the loss turns from squared to linear, and the unit in which priors are compared with rows."""
OPTION_EVIDENCE = 3.0
"""By how much the loss (half the sum of squared errors in units of `EXPECTED_ERROR`, and of prior) has to fall for an option."""
CENTRED_SPREAD = 0.8
"""Spread of a prior around the fit of a similar stratum, relative to that around a family's start."""
FEWEST_FOR_OPTIONS = 12
"""Rows from which options are chosen; fewer take those of the similar stratum."""
FEWEST_FOR_FREE = 12
"""Rows from which launch and host are free; of fewer they stay near those of the similar stratum."""
LEAST_ROWS = 2
"""Rows of a stratum that can be fitted."""
AT_BOUND = 1e-3
"""Distance of a logarithm from its bound below which the parameter is on the bound."""
LARGEST_RATIO = 3.0
"""Logarithm of the ratio of times above which a longer time is no worse."""
LEAST_STEP, MOST_EVALUATIONS = 1e-6, 60
INTERVAL = 0.8
"""Share of rows that an interval is to cover."""
ENOUGH_FOR_INTERVAL = 20
"""Held-out rows from which a stratum has an interval of its own; fewer are joined by those of its framework, then family."""


@dataclass(frozen=True, slots=True)
class StratumFit:
    """Parameters and options of one stratum; ``loss`` of its rows and prior; ``on_bound``: parameters on a bound; what they
    leave over, interpolated."""

    parameters: Mapping[str, float]
    options: Mapping[str, float]
    loss: float
    on_bound: tuple[str, ...]
    correction: Correction | None = None


@dataclass(frozen=True, slots=True)
class SimpleRoofline:
    """The simple model that a fit has to beat: a launch [s], and shares of the matrix rate and of the memory bandwidth."""

    launch: float
    matrix: float
    memory: float

    def time(self, sides: tuple[Array, Array]) -> Array:
        """Time [s] from the times at the data sheet's rates (`KernelFamily.demand`)."""
        return np.asarray(self.launch + np.maximum(sides[0] / self.matrix, sides[1] / self.memory))


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows held out of a stratum's fit: measured times, times by the fit and by the roofline fitted to the same rows, and the
    interval of the fit's times that was derived without these rows. All [s], of shape [rows]."""

    stratum: Stratum
    fitted: int
    measured: Array
    predicted: Array
    baseline: Array
    low: Array
    high: Array

    @property
    def error(self) -> float:
        """Mean absolute relative error."""
        return relative_error(self.predicted, self.measured)

    @property
    def baseline_error(self) -> float:
        """That of the roofline."""
        return relative_error(self.baseline, self.measured)


def relative_error(predicted: Array, measured: Array) -> float:
    """Mean absolute relative error.

    >>> relative_error(np.array([1.1, 0.8]), np.array([1.0, 1.0])).__round__(6)
    0.15
    """
    return float(np.mean(np.abs(predicted / measured - 1)))


def evaluate(stratum: Stratum, rows: Sequence[MeasuredKernel], chip: Machine, found: StratumFit) -> Array:
    """Times [s] of the rows by the fit."""
    return _evaluated(stratum, columns(rows, FAMILIES[stratum.family]), chip, found)


def _evaluated(stratum: Stratum, sizes: Sizes, chip: Machine, found: StratumFit) -> Array:
    known = FAMILIES[stratum.family]
    modelled = known.time(found.parameters, known.features(sizes, stratum.formats, chip, found.options))
    return corrected(modelled, sizes, found.correction)


def predict(fits: Mapping[Stratum, StratumFit], stratum: Stratum, rows: Sequence[MeasuredKernel], chip: Machine) -> Array:
    """Times [s] of the rows by the fit of their stratum; those that the library decodes by the fit of that kernel, if there is
    one."""
    known, found = FAMILIES[stratum.family], evaluate(stratum, rows, chip, fits[stratum])
    sizes = columns(rows, known)
    for other, at in decoding(known, sizes, stratum):
        if other in fits:
            found[at] = _evaluated(other, {name: sizes[name][at] for name in DECODE.sizes}, chip, fits[other])
    return found


def fit_strata(groups: Mapping[Stratum, Sequence[MeasuredKernel]], chip: Machine) -> dict[Stratum, StratumFit]:
    """A fit of each stratum with enough rows, the largest first. Raises BadInput: a format that the chip lacks."""
    found: dict[Stratum, StratumFit] = {}
    for stratum in sorted(groups, key=lambda key: (key.family, -len(groups[key]), key)):
        if len(groups[stratum]) >= LEAST_ROWS:
            others = (other for other in found if other.family == stratum.family)
            similar = max(others, key=lambda other, at=stratum: _likeness(at, other), default=None)  # type: ignore[misc]
            found[stratum] = fit_stratum(stratum, groups[stratum], chip, found[similar] if similar else None)
    return {stratum: _corrected(stratum, groups[stratum], chip, made) for stratum, made in found.items()}


def _corrected(stratum: Stratum, rows: Sequence[MeasuredKernel], chip: Machine, made: StratumFit) -> StratumFit:
    """With what the formula leaves over."""
    correction = fit_correction(columns(rows, FAMILIES[stratum.family]), evaluate(stratum, rows, chip, made), times(rows))
    return replace(made, correction=correction)


def _likeness(one: Stratum, other: Stratum) -> tuple[bool, ...]:
    """Of GEMMs the format tells most, of other kernels the variant and the kernel."""
    alike = {name: getattr(one, name) == getattr(other, name) for name in ("variant", "kernel", "framework", "dtype", "cache")}
    order = ("dtype", "framework") if one.family == "gemm" else ("variant", "kernel", "framework", "dtype", "cache")
    return tuple(alike[name] for name in order)


def fit_stratum(stratum: Stratum, rows: Sequence[MeasuredKernel], chip: Machine, similar: StratumFit | None = None) -> StratumFit:
    """Parameters and options of one stratum; ``similar``: the fit to start from. Raises BadInput: a format that the chip
    lacks."""
    known, measured = FAMILIES[stratum.family], times(rows)
    sizes = columns(rows, known)

    def fitted(options: Mapping[str, float], start: StratumFit | None = None) -> StratumFit:
        return _parameters(known, known.features(sizes, stratum.formats, chip, options), measured, options, similar, start)

    best = fitted(dict(similar.options) if similar else {name: values[0] for name, values in known.options.items()})
    if len(rows) < FEWEST_FOR_OPTIONS:
        return best
    moved, rounds = True, 0
    while moved and rounds < 2:
        moved, rounds = False, rounds + 1
        for name, values in known.options.items():
            for value in values:
                if value != best.options[name]:
                    other = fitted({**best.options, name: value}, best)
                    if other.loss < best.loss - OPTION_EVIDENCE:
                        best, moved = other, True
    again = fitted(best.options)
    return again if again.loss < best.loss else best


def _parameters(
    known: KernelFamily,
    features: Features,
    measured: Array,
    options: Mapping[str, float],
    similar: StratumFit | None,
    near: StratumFit | None = None,
) -> StratumFit:
    """The parameters of least loss; ``near``: a fit with other options, from which the search starts instead."""
    least_squares = import_module("scipy.optimize").least_squares  # slow to import, and of an extra

    items = known.parameters
    low, high = (np.log([getattr(item, side) for item in items]) for side in ("low", "high"))
    centre = np.log([similar.parameters[item.name] if similar else item.start for item in items])
    free = _FREE if len(measured) >= FEWEST_FOR_FREE else ()
    narrowed = [item.spread if not similar or item.name in free else CENTRED_SPREAD * min(item.spread, 1.5) for item in items]
    names, logs, shortest = [item.name for item in items], np.log(measured), float(measured.min())

    def residuals(point: Array) -> Array:
        modelled = known.time(dict(zip(names, np.exp(point), strict=True)), features)
        return np.concatenate([_robust(modelled, logs), (point - centre) / narrowed])

    best, starts = None, []
    if near is not None:
        starts.append(np.log([near.parameters[name] for name in names]))
    else:  # the shortest times come from the launch or from the host, which issues a kernel too late: both starts
        times_at_start = ((0.6 * shortest, 1e-7), (0.3 * shortest, 0.98 * shortest))
        # of caches that keep more or less than all operands the loss does not change with the share that they keep
        shares = (None, 0.1, 1.0) if "resident" in names else (None,)
        for (launch, host), resident in product(times_at_start, shares):
            start = centre.copy()
            start[names.index("launch")], start[names.index("host")] = math.log(launch), math.log(host)
            if resident is not None:
                start[names.index("resident")] = math.log(resident)
            starts.append(start)
    for start in starts:
        inside = np.clip(start, low + 1e-6, high - 1e-6)
        found = least_squares(residuals, inside, bounds=(low, high), xtol=LEAST_STEP, ftol=1e-5, max_nfev=MOST_EVALUATIONS)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    values = dict(zip(names, (float(value) for value in np.exp(best.x)), strict=True))
    on_bound = tuple(
        item.name
        for item, at in zip(items, best.x, strict=True)
        for side in ("low", "high")
        if item.neutral != side and abs(at - math.log(getattr(item, side))) < AT_BOUND
    )
    return StratumFit(values, dict(options), float(best.cost), on_bound)


_FREE = ("launch", "host")
"""Times that other strata say little about."""


def _robust(modelled: Array, logs: Array) -> Array:
    """Residuals in units of `EXPECTED_ERROR`, of which half the sum of squares turns from squared to linear at one: by what share
    a modelled time is too long; the logarithm where it is too short, so that 0 is as far as infinity. ``logs``: of measured
    times."""
    ratio = np.log(modelled) - logs
    errors = np.where(ratio > 0, np.expm1(np.clip(ratio, 0, LARGEST_RATIO)), np.maximum(ratio, -8)) / EXPECTED_ERROR
    size = np.abs(errors)
    return np.asarray(np.sign(errors) * np.where(size < 1, size, np.sqrt(np.maximum(2 * size - 1, 0))))


def fit_roofline(sides: tuple[Array, Array], measured: Array) -> SimpleRoofline:
    """The roofline of three numbers with the same loss. ``sides``: see `KernelFamily.demand`."""
    least_squares = import_module("scipy.optimize").least_squares

    logs = np.log(measured)

    def residuals(point: Array) -> Array:
        return _robust(SimpleRoofline(*np.exp(point)).time(sides), logs)

    low, high = np.log([1e-8, 1e-3, 1e-3]), np.log([1e-2, 4.0, 4.0])
    tries = []
    for launch in (0.5, 0.95):
        for share in (0.2, 0.6):
            start = np.clip(np.log([launch * measured.min(), share, share]), low + 1e-6, high - 1e-6)
            tries.append(least_squares(residuals, start, bounds=(low, high), max_nfev=200))
    return SimpleRoofline(*(float(value) for value in np.exp(min(tries, key=lambda item: item.cost).x)))


def interval(errors: Array, rest: Array | None = None) -> tuple[float, float]:
    """Factors on a time between which `INTERVAL` of the rows lie, from logarithms of measured over predicted time.

    ``rest``: those of similar strata, which join where there are few. The order statistics are those of n + 1, so that a new row
    is covered with that probability.

    >>> interval(np.log(np.linspace(0.5, 1.5, 101)))[0].__round__(2)
    0.59
    """
    joined = errors if rest is None or len(errors) >= ENOUGH_FOR_INTERVAL else np.concatenate([errors, rest])
    if len(joined) < 2:
        return 0.5, 2.0
    ordered, count = np.sort(joined), len(joined)
    tail = (1 - INTERVAL) / 2
    below = min(max(math.floor(tail * (count + 1)) - 1, 0), count - 1)
    above = min(max(math.ceil((1 - tail) * (count + 1)) - 1, 0), count - 1)
    return float(min(math.exp(ordered[below]), 1.0)), float(max(math.exp(ordered[above]), 1.0))


def crossed(groups: Mapping[Stratum, Sequence[MeasuredKernel]], chip: Machine) -> dict[Stratum, Array]:
    """Logarithms of measured over predicted time of every row, each by a fit to the half that it is not in."""
    parts = {stratum: halves(rows) for stratum, rows in groups.items()}
    found: dict[Stratum, list[Array]] = {stratum: [] for stratum in groups}
    for fitted, judged in ((0, 1), (1, 0)):
        fits = fit_strata({stratum: part[fitted] for stratum, part in parts.items()}, chip)
        for stratum in fits:
            rows = parts[stratum][judged]
            if rows:
                found[stratum].append(np.log(times(rows) / predict(fits, stratum, rows, chip)))
    return {stratum: np.concatenate(errors) if errors else np.zeros(0) for stratum, errors in found.items()}


def intervals(errors: Mapping[Stratum, Array]) -> dict[Stratum, tuple[float, float]]:
    """Factors of each stratum, with the errors of its framework and family where it has few of its own."""

    def others(stratum: Stratum, names: tuple[str, ...]) -> Array:
        alike = (
            found
            for key, found in errors.items()
            if key != stratum and all(getattr(key, name) == getattr(stratum, name) for name in names)
        )
        return np.concatenate([np.zeros(0), *alike])

    found = {}
    for stratum, mine in errors.items():
        rest = others(stratum, ("family", "framework"))
        if len(mine) + len(rest) < ENOUGH_FOR_INTERVAL:
            rest = others(stratum, ("family",))
        found[stratum] = interval(mine, rest)
    return found


def judge(rows: Sequence[MeasuredKernel], chip: Machine) -> tuple[Judged, ...]:
    """Half of every stratum by a fit to the other half, with intervals from that other half alone.

    Raises BadInput: no stratum has enough rows; a format that the chip lacks.
    """
    parts = {stratum: halves(found) for stratum, found in strata(rows).items()}
    kept = {stratum: part[0] for stratum, part in parts.items()}
    fits = fit_strata(kept, chip)
    if not fits:
        raise BadInput(Fault("calibration", f"at least {LEAST_ROWS} rows of one kernel", str(len(rows)), "measure more shapes"))
    spread = intervals(crossed(kept, chip))
    found = []
    for stratum in fits:
        known, held = FAMILIES[stratum.family], parts[stratum][1]
        if not held:
            continue
        simple = fit_roofline(known.demand(columns(kept[stratum], known), stratum.formats, chip), times(kept[stratum]))
        predicted = predict(fits, stratum, held, chip)
        baseline = simple.time(known.demand(columns(held, known), stratum.formats, chip))
        low, high = spread[stratum]
        found.append(Judged(stratum, len(kept[stratum]), times(held), predicted, baseline, low * predicted, high * predicted))
    return tuple(found)
