"""Efficiencies of a chip from measured operators, and how far the fit is to be trusted.

One `Efficiency` serves all operators of a machine; each operator that was timed adds what its caller costs. The fit is judged on
rows that it has not seen, beside three simpler models that were fitted and judged on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.timing import busy_time, longest
from halley.kernels.machine import Efficiency, Host, Machine
from halley.kernels.times import Attention, Gemm, Kernel, Rows, Stream, call_time, demand, kernel_time
from halley.optim.descent import descend

Array: TypeAlias = NDArray[np.float64]
Predict: TypeAlias = Callable[[str, Kernel], Array]

TYPICAL = Efficiency(matrix=0.92, vector=0.56, memory=0.86, cache=0.8, overlap=0.1, latency=1e-6, launch=3e-6)
"""Where the fit starts, and what it leaves where no row tells: about the shipped A100's. ``launch`` is assumed, not fitted: about
what is left of the shortest GEMMs that were timed on a device. ``overlap`` without attention: nearly in turn, the cautious
end."""
BOUNDS = {
    "matrix": (0.5, 1.0),
    "vector": (0.1, 1.0),
    "memory": (0.6, 1.0),
    "cache": (0.2, 1.0),
    "overlap": (0.05, 1.0),
    "smaller": (0.8, 1.0),
    "latency": (3e-7, 1e-5),
}
"""What is plausible: no share above the data sheet, none so low that it would hide a fault of the model; latency from a load of
memory on."""
ROOFLINE_BOUNDS = ((0.05, 1.0), (0.05, 1.0), (1e-8, 1e-3))
"""Of the fitted roofline: two shares, and a time [s]."""
STARTS = ((0.9, 1.05), (1.0,), (0.4, 1.0, 2.5))
"""Factors of memory, vector and latency from which the descent starts anew: errors of kernels that hide behind each other have
several valleys."""
NOISE = 0.05
"""Relative error up to which a row is as good as another."""
WORTH = 0.01
"""What a hidden time has to improve: a second number for an operator has to earn its place."""
CANDIDATES = 24
"""Rows that the host's times are read from."""
UNSEEN = 1e-4
"""A parameter is seen by the rows if a tenth more or less of it changes the loss by as much."""
FITTED = tuple(BOUNDS)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One timed kernel; its extents are numbers. ``time`` [s]."""

    operator: str
    kernel: Kernel
    time: float

    @property
    def size(self) -> float:
        """What it computes or moves, for order."""
        macs, moved = demand(self.kernel)
        return float(macs + moved)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one operator and type: a kernel whose extents are arrays, and times [rows]."""

    operator: str
    kernel: Kernel
    times: Array


def grouped(rows: Sequence[Measurement]) -> tuple[Group, ...]:
    """The rows as few kernels over arrays."""
    alike: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in rows:
        fixed = tuple(_hashable(getattr(row.kernel, name)) for name in _fixed(row.kernel))
        alike.setdefault((row.operator, type(row.kernel), fixed), []).append(row)
    found = []
    for same in alike.values():
        kernel = same[0].kernel
        extents = {name: np.array([getattr(row.kernel, name) for row in same], dtype=np.float64) for name in extents_of(kernel)}
        stacked: Kernel = replace(kernel, **extents)  # type: ignore[arg-type]
        found.append(Group(same[0].operator, stacked, np.array([row.time for row in same])))
    return tuple(found)


def extents_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the fields that are extents."""
    match kernel:
        case Gemm():
            return ("rows", "columns", "depth", "batch")
        case Stream():
            return ("points", "read", "written")
        case Rows():
            return ("rows", "columns")
        case Attention():
            return ("batch", "queries", "keys", "heads", "kv_heads", "head_dim", "value_dim")


def halves(rows: Sequence[Measurement]) -> tuple[tuple[Measurement, ...], tuple[Measurement, ...]]:
    """Every second row of each operator, in order of type and shape, and the rows between."""
    kept, held = [], []
    for operator in dict.fromkeys(row.operator for row in rows):
        ordered = sorted((row for row in rows if row.operator == operator), key=_order)
        kept += ordered[::2]
        held += ordered[1::2]
    return tuple(kept), tuple(held)


def folds(rows: Sequence[Measurement], count: int) -> tuple[tuple[tuple[Measurement, ...], tuple[Measurement, ...]], ...]:
    """(fitted, judged) so that every row is judged once: each fold holds every ``count``-th row, by shape."""
    ordered = sorted(rows, key=lambda row: (row.operator, _order(row)))
    parts = [ordered[start::count] for start in range(count)]
    return tuple((tuple(row for other in parts if other is not part for row in other), tuple(part)) for part in parts if part)


def fit(rows: Sequence[Measurement], chip: Machine, start: Efficiency = TYPICAL) -> Efficiency:
    """Efficiencies whose times are near the measured ones: least mean over operators of the mean |log(time / measured)|.

    Parameters stay within `BOUNDS`. What ``start`` says of ``launch`` stays: a timed call does not tell it from its own cost.

    Raises BadInput: no rows, or a kernel that the chip cannot run.
    """
    groups = grouped(rows)
    if not groups:
        raise BadInput(Fault("calibration", "measurements", "none"))

    def made(values: Sequence[float]) -> Efficiency:
        return replace(start, **dict(zip(FITTED, values, strict=True)), hosts={})

    def loss(values: Sequence[float]) -> float:
        times = _kernel_times(groups, chip, made(values))
        return float(np.mean([_host(*times[operator])[1] for operator in times]))

    first = [getattr(start, name) for name in FITTED]
    bounds = list(BOUNDS.values())
    starts = [
        [value * by.get(name, 1.0) for name, value in zip(FITTED, first, strict=True)]
        for by in ({"memory": a, "vector": b, "latency": c} for a, b, c in product(*STARTS))
    ]
    shared = made(min((descend(loss, at, bounds) for at in starts), key=lambda found: found[1])[0])
    times = _kernel_times(groups, chip, shared)
    return replace(shared, hosts={operator: _host(*times[operator])[0] for operator in times})


def _kernel_times(groups: Sequence[Group], chip: Machine, efficiency: Efficiency) -> dict[str, tuple[Array, Array]]:
    """By operator: times of the kernels, and of the calls as measured."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    for group in groups:
        found.setdefault(group.operator, []).append((kernel_time(group.kernel, chip, efficiency), group.times))
    return {name: (np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])) for name, pairs in found.items()}


def _host(kernels: Array, calls: Array) -> tuple[Host, float]:
    """The host's two times that meet the calls best, and the mean |log| that is left.

    A sum of absolute values of two unknowns is least where two rows are met exactly: a short kernel, which shows the least time
    of a call, and a long one, which shows what does not pass beside it. All such pairs are tried; of many rows, those at
    quantiles.
    """
    ordered, pick = np.argsort(kernels), np.unique(np.linspace(0, len(kernels) - 1, CANDIDATES).round().astype(int))
    rows = ordered[pick]
    call = np.append(np.maximum(calls[rows] - kernels[rows], 0.0), 0.0)[:, None]
    hidden = np.maximum(np.append(calls[rows], 0.0)[None, :] - call, 0.0)
    left = _robust(np.log((call + np.maximum(hidden, kernels[:, None, None])) / calls[:, None, None])).mean(axis=0)
    left = left + WORTH * (hidden > 0)
    at = np.unravel_index(int(np.argmin(left)), left.shape)
    return Host(float(call[at[0], 0]), float(hidden[at])), float(left[at])


def seen(rows: Sequence[Measurement], chip: Machine, fitted: Efficiency) -> frozenset[str]:
    """The shared parameters that these rows tell something of; the others are what the fit started from."""
    groups = grouped(rows)
    best = _loss(groups, partial(_called, chip, fitted))
    found = set()
    for name in FITTED:
        for factor in (0.9, 1.1):
            value = getattr(fitted, name) * factor
            moved = replace(fitted, **{name: value if name == "latency" else min(value, 1.0)})
            if abs(_loss(groups, partial(_called, chip, moved)) - best) > UNSEEN:
                found.add(name)
    return frozenset(found)


def _plain(
    rows: Sequence[Measurement], chip: Machine, fitted: Efficiency, start: Efficiency
) -> tuple[Efficiency, frozenset[str]]:
    """The fit with what the rows do not tell put back to where it started, and the parameters that they tell."""
    told, groups = set(seen(rows, chip, fitted)), grouped(rows)
    best = _loss(groups, partial(_called, chip, fitted))
    for name in (name for name in FITTED if name not in told):
        back = replace(fitted, **{name: getattr(start, name)})
        if _loss(groups, partial(_called, chip, back)) - best > UNSEEN:
            told.add(name)
        else:
            fitted = back
    return fitted, frozenset(told)


def _called(chip: Machine, efficiency: Efficiency, operator: str, kernel: Kernel) -> Array:
    return call_time(operator, kernel, chip, efficiency)


def _loss(groups: Sequence[Group], predict: Predict) -> float:
    """Mean over operators of the mean absolute logarithm of predicted over measured time."""
    errors: dict[str, list[Array]] = {}
    for group in groups:
        ratio = predict(group.operator, group.kernel) / group.times
        errors.setdefault(group.operator, []).append(_robust(np.log(np.maximum(ratio, 1e-9))))
    return float(np.mean([np.concatenate(found).mean() for found in errors.values()]))


def _robust(logarithms: Array) -> Array:
    """Huber's loss: squared near 0, so that all rows count, and linear from `NOISE` on, so that none counts for all."""
    size = np.abs(logarithms)
    return np.where(size < NOISE, size**2 / (2 * NOISE), size - NOISE / 2)


# --- simpler models -----------------------------------------------------------------------------------------------------


def constant_utilisation(rows: Sequence[Measurement], chip: Machine) -> Predict:
    """Every operator at one share of its peak: of the matrix rate for products, of the memory's bandwidth for the rest."""
    shares: dict[str, list[Array]] = {}
    for group in grouped(rows):
        shares.setdefault(group.operator, []).append(np.log(_peak_time(chip, group.kernel) / group.times))
    means = {operator: float(np.exp(np.concatenate(found).mean())) for operator, found in shares.items()}
    return lambda operator, kernel: _peak_time(chip, kernel) / means[operator]


def roofline(chip: Machine) -> Predict:
    """The longer of computing at peak and moving each byte once at peak; nothing fitted."""
    return lambda operator, kernel: np.asarray(longest(_sides(chip, kernel)))


@dataclass(frozen=True, slots=True)
class Shares:
    """A roofline below the data sheet's: shares of the matrix rate and of the bandwidth, and a time that every call takes [s]."""

    matrix: float
    memory: float
    call: float


def fitted_shares(rows: Sequence[Measurement], chip: Machine) -> dict[str, Shares]:
    """The roofline of each operator: three numbers for each."""
    found = {}
    groups = grouped(rows)
    for operator in dict.fromkeys(group.operator for group in groups):
        mine = [group for group in groups if group.operator == operator]
        first = [0.7, 0.7, min(float(group.times.min()) for group in mine) / 2]
        found[operator] = Shares(*descend(_shares_loss(mine, chip), first, ROOFLINE_BOUNDS)[0])
    return found


def fitted_roofline(shares: Mapping[str, Shares], chip: Machine) -> Predict:
    """Times by these rooflines, of the chip that they were fitted to or of another."""

    def predict(operator: str, kernel: Kernel) -> Array:
        computed, moved = _sides(chip, kernel)
        mine = shares[operator]
        return np.asarray(mine.call + longest((computed / mine.matrix, moved / mine.memory)))

    return predict


def _shares_loss(groups: Sequence[Group], chip: Machine) -> Callable[[Sequence[float]], float]:
    operator = groups[0].operator
    return lambda values: _loss(groups, fitted_roofline({operator: Shares(*values)}, chip))


def _sides(chip: Machine, kernel: Kernel) -> tuple[Array, Array]:
    """Times at peak: of the multiply-accumulates, of the bytes."""
    macs, moved = demand(kernel)
    rate = 1.0 if isinstance(kernel, Rows | Stream) else chip.mac_rate(kernel.dtype)
    return np.asarray(busy_time(macs, rate)), np.asarray(busy_time(moved, chip.memory))


def _peak_time(chip: Machine, kernel: Kernel) -> Array:
    return _sides(chip, kernel)[1 if isinstance(kernel, Rows | Stream) else 0]


# --- judgement ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row and what a model says of it [s]."""

    row: Measurement
    predicted: float

    @property
    def error(self) -> float:
        """Signed, relative to what was measured."""
        return self.predicted / self.row.time - 1


def predictions(rows: Sequence[Measurement], predict: Predict) -> tuple[Prediction, ...]:
    """What a model says of each row."""
    return tuple(Prediction(row, float(predict(row.operator, row.kernel))) for row in rows)


def errors(found: Sequence[Prediction]) -> dict[str, float]:
    """Mean absolute relative error by operator."""
    kinds = dict.fromkeys(item.row.operator for item in found)
    return {kind: float(np.mean([abs(item.error) for item in found if item.row.operator == kind])) for kind in kinds}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A fit to half of the rows. ``told``: parameters that the rows tell of. ``fitted``, ``held``: predictions of either half;
    ``baselines``: of the held-out half, by model."""

    efficiency: Efficiency
    told: frozenset[str]
    fitted: tuple[Prediction, ...]
    held: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]


def judge(rows: Sequence[Measurement], chip: Machine, start: Efficiency = TYPICAL) -> Judgement:
    """Fit every second row of each operator, and judge on the rows between. Raises BadInput: as `fit`."""
    kept, held = halves(rows)
    efficiency, told = _plain(kept, chip, fit(kept, chip, start), start)
    mine = partial(_called, chip, efficiency)
    models: dict[str, Predict] = {
        "constant": constant_utilisation(kept, chip),
        "roofline": roofline(chip),
        "roofline, fitted": fitted_roofline(fitted_shares(kept, chip), chip),
    }
    judged = {name: predictions(held, model) for name, model in models.items()}
    return Judgement(efficiency, told, predictions(kept, mine), predictions(held, mine), judged)


def cross_validated(
    rows: Sequence[Measurement], chip: Machine, count: int = 5, start: Efficiency = TYPICAL
) -> tuple[Prediction, ...]:
    """Every row from a fit to the other folds."""
    found: list[Prediction] = []
    for kept, held in folds(rows, count):
        known = {row.operator for row in kept}
        efficiency = fit(kept, chip, start)
        found += predictions([row for row in held if row.operator in known], partial(_called, chip, efficiency))
    return tuple(found)


def _order(row: Measurement) -> tuple[str, tuple[float, ...]]:
    """By type, then by extents: of two rows that differ in type alone, not one is always kept and the other held out."""
    types = "".join(repr(getattr(row.kernel, name)) for name in _fixed(row.kernel))
    return types, tuple(float(getattr(row.kernel, name)) for name in extents_of(row.kernel))


def _fixed(kernel: Kernel) -> tuple[str, ...]:
    """Names of the fields that are no extents."""
    extents = extents_of(kernel)
    return tuple(item.name for item in fields(kernel) if item.name not in extents)


def _hashable(value: object) -> object:
    return repr(value) if isinstance(value, tuple | Mapping) else value


# --- what a file keeps --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """One operator of a fit: rows that were fitted, their mean error, and that of the rows held out, None if there were none."""

    operator: str
    rows: int
    error: float
    held_out: float | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A product that was timed [s] under load: in a loop, of random numbers, at the clock that the power limit leaves."""

    product: Gemm
    time: float
    source: str


@dataclass(frozen=True, slots=True)
class ChipFit:
    """A fitted chip. ``chip``: its name; ``assumed``: parameters that the rows do not tell; ``dated``: day of the fit;
    ``loaded``: how much slower it is under load, None where nobody states it."""

    chip: str
    source: str
    dated: str
    efficiency: Efficiency
    assumed: tuple[str, ...]
    series: tuple[Series, ...]
    loaded: Loaded | None = None


def chip_fit(judged: Judgement, chip: Machine, source: str, dated: str) -> ChipFit:
    """What is worth keeping of a judgement."""
    fitted, held = errors(judged.fitted), errors(judged.held)
    counts = {name: sum(item.row.operator == name for item in judged.fitted) for name in fitted}
    series = tuple(Series(name, counts[name], error, held.get(name)) for name, error in fitted.items())
    assumed = (*(name for name in FITTED if name not in judged.told), "launch")
    return ChipFit(chip.name, source, dated, judged.efficiency, assumed, series)
