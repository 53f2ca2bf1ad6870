"""What an overlay has to beat: simple models of a measured collective; and a number of ranks that a fit has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from halley.network.fit.calibrate import Key, Measurement, fit_rows, halves, series
from halley.network.fit.overlay import Fit, demand
from halley.network.fit.regression import Array, robust_fit


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured time [s] of ``size`` bytes, and what a fit that has not seen it says."""

    size: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative, without sign."""
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Judgement:
    """One series on the sizes between those that were fitted: what the overlay says, and the mean relative errors of simple
    models fitted to the same rows (``peak``: None where it is not known)."""

    key: Key
    rows: tuple[Prediction, ...]
    start_and_bandwidth: float
    constant_bandwidth: float
    peak: float | None

    @property
    def overlay(self) -> float:
        """Mean relative error of the overlay."""
        return sum(row.error for row in self.rows) / len(self.rows)


def judge(rows: Iterable[Measurement], peak: float | None = None) -> tuple[Judgement, ...]:
    """The overlay and three simple models, all fitted to every second size of each series: a start-up and a bandwidth of its own;
    the bandwidth of its largest size; and, where the ``peak`` [B/s] of a rank is given, that peak alone. Series of a family with
    too few rows are left out."""
    known, kept = (series(half) for half in halves(rows))
    fits = _by_key(row for group in known.values() for row in group)
    found = []
    for key, group in kept.items():
        if key in fits:
            sizes, times = _arrays(group)
            affine = _mean_error(start_and_bandwidth(known[key], sizes), times)
            constant = _mean_error(constant_bandwidth(known[key], sizes), times)
            peaked = None if peak is None else _mean_error(demand(*key, sizes).sent / peak, times)
            found.append(Judgement(key, _predictions(fits[key], key, group), affine, constant, peaked))
    return tuple(found)


def unseen_ranks(rows: Iterable[Measurement]) -> dict[Key, tuple[Prediction, ...]]:
    """The rows of each collective's largest number of ranks, from a fit to the smaller ones; nothing for one number of ranks."""
    groups = series(rows)
    most = {kind: max(ranks for other, ranks in groups if other is kind) for kind, _ in groups}
    found = {}
    for limit in sorted(set(most.values())):
        fits = _by_key(row for (_, ranks), group in groups.items() if ranks < limit for row in group)
        for kind in (kind for kind, ranks in most.items() if ranks == limit):
            fit = next((fit for (other, _), fit in fits.items() if other is kind), None)
            if fit is not None:
                found[kind, limit] = _predictions(fit, (kind, limit), groups[kind, limit])
    return found


def start_and_bandwidth(known: Sequence[Measurement], sizes: Array) -> Array:
    """[sizes] times of a start-up and a bandwidth fitted to the known rows of one series."""
    fitted, times = _arrays(known)
    startup, per_byte = robust_fit(np.stack([np.ones(len(fitted)), fitted], axis=1), times)
    predicted: Array = startup + per_byte * sizes
    return predicted


def constant_bandwidth(known: Sequence[Measurement], sizes: Array) -> Array:
    """[sizes] times at one bandwidth, that of the largest known size."""
    last = known[-1]
    predicted: Array = sizes * (last.time / last.size)
    return predicted


def _by_key(rows: Iterable[Measurement]) -> dict[Key, Fit]:
    return {(item.kind, item.ranks): fit for fit in fit_rows(rows, lenient=True) for item in fit.series}


def _predictions(fit: Fit, key: Key, rows: Sequence[Measurement]) -> tuple[Prediction, ...]:
    return tuple(Prediction(row.size, row.time, float(fit.time(*key, row.size))) for row in rows)


def _arrays(rows: Sequence[Measurement]) -> tuple[Array, Array]:
    return np.array([float(row.size) for row in rows]), np.array([row.time for row in rows])


def _mean_error(predicted: Array, times: Array) -> float:
    return float((np.abs(predicted - times) / times).mean())
