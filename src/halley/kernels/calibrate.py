"""Efficiencies of a chip fitted to measured operators, and the accuracy of the fit on held-out rows.

One `Efficiency` applies to all operators of a machine; each measured operator also has the time that its caller adds. The fit
is judged on rows that it was not fitted to, against three simpler models fitted to and judged on the same rows.
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
from halley.kernels.machine import Efficiency, HostTime, Machine
from halley.kernels.times import Attention, Gemm, Kernel, RowKernel, Scan, Stream, call_time, demand, kernel_time
from halley.optim.descent import descend

Array: TypeAlias = NDArray[np.float64]
Predict: TypeAlias = Callable[[str, Kernel], Array]

TYPICAL_EFFICIENCY = Efficiency(matrix=0.92, vector=0.56, memory=0.86, cache=0.8, overlap=0.1, latency=1e-6, launch=3e-6)
"""Where the fit starts, and the values of parameters that no row identifies: about those of the shipped A100. ``launch`` is
assumed instead of fitted: about what remains of the shortest GEMMs timed on a device. ``overlap`` without attention rows:
nearly sequential, the pessimistic end."""
PARAMETER_BOUNDS = {
    "matrix": (0.5, 1.0),
    "vector": (0.1, 1.0),
    "memory": (0.6, 1.0),
    "cache": (0.2, 1.0),
    "overlap": (0.05, 1.0),
    "smaller": (0.8, 1.0),
    "gradient": (0.3, 1.0),
    "latency": (3e-7, 1e-5),
}
"""Plausible values: no share above the data sheet, none so low that it would hide an error of the model; latency at least that
of a memory load."""
ROOFLINE_BOUNDS = ((0.05, 1.0), (0.05, 1.0), (1e-8, 1e-3))
"""Bounds of a fitted roofline: two shares, and a time [s]."""
START_FACTORS = ((0.9, 1.05), (1.0,), (0.4, 1.0, 2.5))
"""Factors of memory, vector and latency from which the pattern search restarts: where kernels overlap, the loss has several
local minima."""
HUBER_RELATIVE_ERROR = 0.05
"""Relative error at which the loss changes from squared to linear."""
HIDDEN_TIME_PENALTY = 0.01
"""By how much a hidden time must reduce the loss to be used, as a second parameter of an operator."""
HOST_CANDIDATE_ROWS = 24
"""Rows from which the host's times are derived."""
INSENSITIVE_LOSS_CHANGE = 1e-4
"""A parameter is identified by the rows if changing it by a tenth changes the loss by more than this."""
FITTED = tuple(PARAMETER_BOUNDS)


@dataclass(frozen=True, slots=True)
class KernelMeasurement:
    """One timed kernel; its extents are numbers. ``time`` [s]."""

    operator: str
    kernel: Kernel
    time: float

    @property
    def size(self) -> float:
        """What it computes or moves, for sorting."""
        macs, moved = demand(self.kernel)
        return float(macs + moved)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Rows of one operator and type: a kernel whose extents are arrays, and times [rows] [s]."""

    operator: str
    kernel: Kernel
    times: Array


def grouped(rows: Sequence[KernelMeasurement]) -> tuple[KernelGroup, ...]:
    """The rows as few kernels over arrays."""
    alike: dict[tuple[Any, ...], list[KernelMeasurement]] = {}
    for row in rows:
        fixed = tuple(_hashable(getattr(row.kernel, name)) for name in _fixed(row.kernel))
        alike.setdefault((row.operator, type(row.kernel), fixed), []).append(row)
    found = []
    for same in alike.values():
        kernel = same[0].kernel
        extents = {name: np.array([getattr(row.kernel, name) for row in same], dtype=np.float64) for name in extents_of(kernel)}
        stacked: Kernel = replace(kernel, **extents)  # type: ignore[arg-type]
        found.append(KernelGroup(same[0].operator, stacked, np.array([row.time for row in same])))
    return tuple(found)


def extents_of(kernel: Kernel) -> tuple[str, ...]:
    """Names of the fields that are extents."""
    match kernel:
        case Gemm():
            return ("rows", "columns", "depth", "batch")
        case Stream():
            return ("points", "read", "written")
        case RowKernel():
            return ("rows", "columns")
        case Attention():
            return ("batch", "queries", "keys", "heads", "kv_heads", "head_dim", "value_dim")
        case Scan():
            return ("heads", "chunks", "macs", "read", "written", "state", "kept")


def halves(rows: Sequence[KernelMeasurement]) -> tuple[tuple[KernelMeasurement, ...], tuple[KernelMeasurement, ...]]:
    """Every second row of each operator, in order of type and shape; and the rows between."""
    kept, held = [], []
    for operator in dict.fromkeys(row.operator for row in rows):
        ordered = sorted((row for row in rows if row.operator == operator), key=row_order)
        kept += ordered[::2]
        held += ordered[1::2]
    return tuple(kept), tuple(held)


def fit(rows: Sequence[KernelMeasurement], chip: Machine, start: Efficiency = TYPICAL_EFFICIENCY) -> Efficiency:
    """Efficiencies whose times are close to the measured ones: least mean over operators of the mean |log(time / measured)|.

    Parameters stay within `PARAMETER_BOUNDS`. ``launch`` of ``start`` is kept: a timed call does not separate it from the
    call's own time.

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
    bounds = list(PARAMETER_BOUNDS.values())
    starts = [
        [value * by.get(name, 1.0) for name, value in zip(FITTED, first, strict=True)]
        for by in ({"memory": a, "vector": b, "latency": c} for a, b, c in product(*START_FACTORS))
    ]
    shared = made(min((descend(loss, at, bounds) for at in starts), key=lambda found: found[1])[0])
    times = _kernel_times(groups, chip, shared)
    return replace(shared, hosts={operator: _host(*times[operator])[0] for operator in times})


def _kernel_times(groups: Sequence[KernelGroup], chip: Machine, efficiency: Efficiency) -> dict[str, tuple[Array, Array]]:
    """By operator: times of the kernels, and of the measured calls."""
    found: dict[str, list[tuple[Array, Array]]] = {}
    for group in groups:
        found.setdefault(group.operator, []).append((kernel_time(group.kernel, chip, efficiency), group.times))
    return {name: (np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])) for name, pairs in found.items()}


def _host(kernels: Array, calls: Array) -> tuple[HostTime, float]:
    """The host's two times that fit the calls best, and the remaining mean |log|.

    The sum of absolute values in two unknowns is least where two rows are fitted exactly: a short kernel, which gives the least
    time of a call, and a long one, which gives the part that does not overlap with the kernel. All such pairs are tried; of
    many rows, those at quantiles.
    """
    ordered, pick = np.argsort(kernels), np.unique(np.linspace(0, len(kernels) - 1, HOST_CANDIDATE_ROWS).round().astype(int))
    rows = ordered[pick]
    call = np.append(np.maximum(calls[rows] - kernels[rows], 0.0), 0.0)[:, None]
    hidden = np.maximum(np.append(calls[rows], 0.0)[None, :] - call, 0.0)
    left = _robust(np.log((call + np.maximum(hidden, kernels[:, None, None])) / calls[:, None, None])).mean(axis=0)
    left = left + HIDDEN_TIME_PENALTY * (hidden > 0)
    at = np.unravel_index(int(np.argmin(left)), left.shape)
    return HostTime(float(call[at[0], 0]), float(hidden[at])), float(left[at])


def identified_parameters(rows: Sequence[KernelMeasurement], chip: Machine, fitted: Efficiency) -> frozenset[str]:
    """The shared parameters that these rows identify; the others keep their start values."""
    groups = grouped(rows)
    best = _loss(groups, partial(_called, chip, fitted))
    found = set()
    for name in FITTED:
        for factor in (0.9, 1.1):
            value = getattr(fitted, name) * factor
            moved = replace(fitted, **{name: value if name == "latency" else min(value, 1.0)})
            if abs(_loss(groups, partial(_called, chip, moved)) - best) > INSENSITIVE_LOSS_CHANGE:
                found.add(name)
    return frozenset(found)


def _without_unidentified(
    rows: Sequence[KernelMeasurement], chip: Machine, fitted: Efficiency, start: Efficiency
) -> tuple[Efficiency, frozenset[str]]:
    """The fit with parameters that the rows do not identify set back to their start; and the identified parameters."""
    identified, groups = set(identified_parameters(rows, chip, fitted)), grouped(rows)
    best = _loss(groups, partial(_called, chip, fitted))
    for name in (name for name in FITTED if name not in identified):
        back = replace(fitted, **{name: getattr(start, name)})
        if _loss(groups, partial(_called, chip, back)) - best > INSENSITIVE_LOSS_CHANGE:
            identified.add(name)
        else:
            fitted = back
    return fitted, frozenset(identified)


def _called(chip: Machine, efficiency: Efficiency, operator: str, kernel: Kernel) -> Array:
    return call_time(operator, kernel, chip, efficiency)


def _loss(groups: Sequence[KernelGroup], predict: Predict) -> float:
    """Mean over operators of the mean robust logarithm of predicted over measured time."""
    errors: dict[str, list[Array]] = {}
    for group in groups:
        ratio = predict(group.operator, group.kernel) / group.times
        errors.setdefault(group.operator, []).append(_robust(np.log(np.maximum(ratio, 1e-9))))
    return float(np.mean([np.concatenate(found).mean() for found in errors.values()]))


def _robust(logarithms: Array) -> Array:
    """Huber's loss: squared near 0, so that all rows count, and linear from `HUBER_RELATIVE_ERROR`, so that no outlier
    dominates."""
    size = np.abs(logarithms)
    return np.where(size < HUBER_RELATIVE_ERROR, size**2 / (2 * HUBER_RELATIVE_ERROR), size - HUBER_RELATIVE_ERROR / 2)


# --- simpler models -----------------------------------------------------------------------------------------------------


def constant_utilisation(rows: Sequence[KernelMeasurement], chip: Machine) -> Predict:
    """Every operator at a constant share of its peak: of the matrix rate for products, of the memory bandwidth for others."""
    shares: dict[str, list[Array]] = {}
    for group in grouped(rows):
        shares.setdefault(group.operator, []).append(np.log(_peak_time(chip, group.kernel) / group.times))
    means = {operator: float(np.exp(np.concatenate(found).mean())) for operator, found in shares.items()}
    return lambda operator, kernel: _peak_time(chip, kernel) / means[operator]


def roofline(chip: Machine) -> Predict:
    """The longer of computing at peak rate and moving each byte once at peak bandwidth; nothing is fitted."""
    return lambda operator, kernel: np.asarray(longest(_sides(chip, kernel)))


@dataclass(frozen=True, slots=True)
class FittedRoofline:
    """A roofline below the data sheet's: shares of the matrix rate and of the bandwidth, and a constant time per call [s]."""

    matrix: float
    memory: float
    call: float


def fitted_rooflines(rows: Sequence[KernelMeasurement], chip: Machine) -> dict[str, FittedRoofline]:
    """A roofline for each operator, with three parameters each."""
    found = {}
    groups = grouped(rows)
    for operator in dict.fromkeys(group.operator for group in groups):
        mine = [group for group in groups if group.operator == operator]
        first = [0.7, 0.7, min(float(group.times.min()) for group in mine) / 2]
        found[operator] = FittedRoofline(*descend(_roofline_loss(mine, chip), first, ROOFLINE_BOUNDS)[0])
    return found


def roofline_predictions(shares: Mapping[str, FittedRoofline], chip: Machine) -> Predict:
    """Times by these rooflines, on the chip that they were fitted to or on another."""

    def predict(operator: str, kernel: Kernel) -> Array:
        computed, moved = _sides(chip, kernel)
        mine = shares[operator]
        return np.asarray(mine.call + longest((computed / mine.matrix, moved / mine.memory)))

    return predict


def _roofline_loss(groups: Sequence[KernelGroup], chip: Machine) -> Callable[[Sequence[float]], float]:
    operator = groups[0].operator
    return lambda values: _loss(groups, roofline_predictions({operator: FittedRoofline(*values)}, chip))


def _sides(chip: Machine, kernel: Kernel) -> tuple[Array, Array]:
    """Times at peak: of the multiply-accumulates, of the bytes."""
    macs, moved = demand(kernel)
    rate = 1.0 if isinstance(kernel, RowKernel | Stream) else chip.mac_rate(kernel.dtype)
    return np.asarray(busy_time(macs, rate)), np.asarray(busy_time(moved, chip.memory))


def _peak_time(chip: Machine, kernel: Kernel) -> Array:
    return _sides(chip, kernel)[1 if isinstance(kernel, RowKernel | Stream) else 0]


# --- judgement ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row and a model's time for it [s]."""

    row: KernelMeasurement
    predicted: float

    @property
    def error(self) -> float:
        """Signed error relative to the measurement."""
        return self.predicted / self.row.time - 1


def predictions(rows: Sequence[KernelMeasurement], predict: Predict) -> tuple[Prediction, ...]:
    """A model's time for each row."""
    return tuple(Prediction(row, float(predict(row.operator, row.kernel))) for row in rows)


def errors(found: Sequence[Prediction]) -> dict[str, float]:
    """Mean absolute relative error by operator."""
    kinds = dict.fromkeys(item.row.operator for item in found)
    return {kind: float(np.mean([abs(item.error) for item in found if item.row.operator == kind])) for kind in kinds}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A fit to half of the rows. ``identified``: parameters that the rows identify. ``fitted``, ``held``: predictions of the
    fitted and of the held-out half; ``baselines``: of the held-out half, by model."""

    efficiency: Efficiency
    identified: frozenset[str]
    fitted: tuple[Prediction, ...]
    held: tuple[Prediction, ...]
    baselines: Mapping[str, tuple[Prediction, ...]]


def judge(rows: Sequence[KernelMeasurement], chip: Machine, start: Efficiency = TYPICAL_EFFICIENCY) -> Judgement:
    """Fits every second row of each operator and judges on the rows between. Raises BadInput: as `fit`."""
    kept, held = halves(rows)
    efficiency, identified = _without_unidentified(kept, chip, fit(kept, chip, start), start)
    mine = partial(_called, chip, efficiency)
    models: dict[str, Predict] = {
        "constant": constant_utilisation(kept, chip),
        "roofline": roofline(chip),
        "roofline, fitted": roofline_predictions(fitted_rooflines(kept, chip), chip),
    }
    judged = {name: predictions(held, model) for name, model in models.items()}
    return Judgement(efficiency, identified, predictions(kept, mine), predictions(held, mine), judged)


def row_order(row: KernelMeasurement) -> tuple[str, tuple[float, ...]]:
    """Sorts by type, then by extents: so of two rows that differ in type alone, the same one is not always held out."""
    types = "".join(repr(getattr(row.kernel, name)) for name in _fixed(row.kernel))
    return types, tuple(float(getattr(row.kernel, name)) for name in extents_of(row.kernel))


def _fixed(kernel: Kernel) -> tuple[str, ...]:
    """Names of the fields that are not extents."""
    extents = extents_of(kernel)
    return tuple(item.name for item in fields(kernel) if item.name not in extents)


def _hashable(value: object) -> object:
    return repr(value) if isinstance(value, tuple | Mapping) else value


# --- what a file stores -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorFit:
    """One operator of a fit: the number of fitted rows, their mean error, and that of the held-out rows, None if there were
    none."""

    operator: str
    rows: int
    error: float
    held_out: float | None


@dataclass(frozen=True, slots=True)
class LoadedMeasurement:
    """A product timed [s] under load: in a loop, with random numbers, at the clock that the power limit allows."""

    product: Gemm
    time: float
    source: str


@dataclass(frozen=True, slots=True)
class ChipFit:
    """A fitted chip. ``chip``: its name; ``assumed``: parameters that the rows do not identify; ``dated``: day of the fit;
    ``loaded``: a measurement under load, None if there is none."""

    chip: str
    source: str
    dated: str
    efficiency: Efficiency
    assumed: tuple[str, ...]
    series: tuple[OperatorFit, ...]
    loaded: LoadedMeasurement | None = None


def chip_fit(judged: Judgement, chip: Machine, source: str, dated: str) -> ChipFit:
    """The part of a judgement that a file stores."""
    fitted, held = errors(judged.fitted), errors(judged.held)
    counts = {name: sum(item.row.operator == name for item in judged.fitted) for name in fitted}
    series = tuple(OperatorFit(name, counts[name], error, held.get(name)) for name, error in fitted.items())
    assumed = (*(name for name in FITTED if name not in judged.identified), "launch")
    return ChipFit(chip.name, source, dated, judged.efficiency, assumed, series)
