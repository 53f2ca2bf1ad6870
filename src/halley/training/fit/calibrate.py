"""Software fitted to measured iterations of training: a time of the host, and a derating of all kernels.

The fit minimises the root mean square of log(predicted / measured) over the rows, within physical bounds. It fits as few numbers
as the rows determine: a second number has to lower the error noticeably, and must not change the predictions like the first.
Rows are judged by fits to the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from halley.errors import BadInput, Fault
from halley.kernels.software import Software
from halley.optim.least_squares import least_squares
from halley.sharding.axes import Role
from halley.training.cost import HOST_WAITS
from halley.training.fit.fixed_plan import LEAST_SHARE, FixedPlan
from halley.training.plan import PlanCost
from halley.training.uncertainty.plans import interval_reach
from halley.units import counted

KERNELS = "kernels"
BOUNDS: Mapping[str, tuple[float, float]] = {
    "launch": (1e-6, 1e-4),
    "block": (1e-6, 2e-2),
    "collective": (1e-6, 1e-3),
    "graph": (1e-6, 2e-2),
    KERNELS: (LEAST_SHARE, 1.0),
    "attention": (LEAST_SHARE, 1.0),
}
"""Plausible numbers: times of a host [s], of which the least stands for none, and shares of rates."""
STARTS: Mapping[str, tuple[float, ...]] = {
    "block": (0.0, 3e-4, 1e-3, 3e-3),
    "graph": (2e-5, 3e-4, 1e-3, 3e-3),
    KERNELS: (1.0, 0.8, 0.6, 0.4),
}
"""Numbers of which the best combination is where the fit starts: host and chip hide each other's changes where the other one is
slower, so that a search by small steps would stay where it is."""
LEAST_GAIN, LEAST_RELATIVE_GAIN = 0.01, 0.2
"""By how much a further number must lower the error: absolutely, and relative to the error without it."""
INDISTINCT_COSINE = 0.995
"""Cosine between the changes of all predictions with two numbers, from which the rows do not distinguish them."""
PROBE = 0.05
"""Relative change of a number with which such changes are computed."""
MAX_FOLDS = 8
"""Largest number of fits by which rows are judged."""
AT_BOUND = 1.01
"""Ratio of a number to its bound up to which it is on it."""
LEAST_EXPLAINED_SHARE = 1e-3
"""Share of an iteration below which no change of a part is given that would explain the rest."""
LEAST_RATE_SHARE = 0.5
"""Share of the kernel rates below which a time of the host is the likelier cause."""
PARTS = ("compute", "collectives", "bubble", "host", "optimizer")
"""Into which the time of an iteration is divided."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """A plan and the time of its iteration that was measured [s]. ``name`` for tables; ``where`` it was read."""

    name: str
    plan: FixedPlan
    seconds: float
    where: str = ""


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A number of software: where it started, its fitted ``value``, and the ``least`` and ``most`` of the fits by which rows are
    judged (equal to the value if there are none). ``bound``: the bound on which it is, "" for none."""

    name: str
    start: float
    value: float
    least: float
    most: float
    bound: str = ""


@dataclass(frozen=True, slots=True)
class RowFit:
    """A row: times of an iteration [s] ``measured``, predicted ``before`` and ``after`` the fit, and by a fit to other rows
    (``held_out``; None: there was none). ``parts`` [s]: of the time after the fit, by `PARTS`. ``waiting``: share of the passes
    that wait for the host, before the fit."""

    name: str
    where: str
    measured: float
    before: float
    after: float
    held_out: float | None
    parts: Mapping[str, float]
    waiting: float

    @property
    def error(self) -> float:
        """Relative error after the fit: what remains unexplained."""
        return self.after / self.measured - 1

    def needed(self, part: str) -> float | None:
        """By which factor this part alone would have to change for the row to be met; None: no factor does.

        >>> row = RowFit("a", "", 1.1, 2.0, 1.0, None, {"compute": 0.8, "bubble": 0.2, "host": 0.0}, 0.0)
        >>> round(row.needed("bubble"), 3), row.needed("host")
        (1.5, None)
        """
        time = self.parts.get(part, 0.0)
        left = time + self.measured - self.after
        return left / time if time > LEAST_EXPLAINED_SHARE * self.after and left > 0 else None


@dataclass(frozen=True, slots=True)
class TrainingCalibration:
    """Software fitted to rows, from ``start``. ``numbers`` that were fitted. ``alternatives``: by number, its value and the root
    mean square error of the fit of this number alone. ``remarks``: what the rows do not determine, and numbers on their
    bounds."""

    software: Software
    start: Software
    numbers: tuple[FittedNumber, ...]
    rows: tuple[RowFit, ...]
    alternatives: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        numbers = ", ".join(number.name for number in self.numbers)
        return f"TrainingCalibration({self.software.name}: {numbers} fitted to {len(self.rows)} rows, error {self.after:.1%})"

    @property
    def before(self) -> float:
        """Mean relative error before the fit."""
        return _mean(abs(row.before / row.measured - 1) for row in self.rows)

    @property
    def after(self) -> float:
        """Mean relative error of the fitted rows."""
        return _mean(abs(row.error) for row in self.rows)

    @property
    def held_out(self) -> float | None:
        """Mean relative error of rows by fits to other rows; None: no row was held out."""
        found = [row.held_out / row.measured for row in self.rows if row.held_out is not None]
        return _mean(abs(each - 1) for each in found) if found else None


def _mean(found: Iterable[float]) -> float:
    return float(np.mean(list(found)))


def least_error(rows: Sequence[MeasuredIteration], start: Software, names: Sequence[str]) -> tuple[Software, float]:
    """The software with the numbers of these ``names`` that minimise the root mean square of log(predicted / measured) within
    `BOUNDS`; and that. The search starts at the best combination of `STARTS`."""

    def residuals(values: Sequence[float]) -> list[float]:
        software = with_numbers(start, names, values)
        return [math.log(row.plan.time(software) / row.seconds) for row in rows]

    own = tuple(getattr(start, name) or 0.0 for name in names)
    tried = [own, *product(*(STARTS.get(name, (value,)) for name, value in zip(names, own, strict=True)))]
    first = min(tried, key=lambda values: math.fsum(each**2 for each in residuals(values)))
    bounds = [BOUNDS[name] for name in names]
    begin = [min(max(value, low), high) for value, (low, high) in zip(first, bounds, strict=True)]
    found, least = least_squares(residuals, begin, bounds)
    return with_numbers(start, names, found), least


def with_numbers(start: Software, names: Sequence[str], values: Sequence[float]) -> Software:
    """The software with other numbers of these ``names``; a time at the lower bound is 0."""
    numbers: dict[str, Any] = {name: _value(name, value) for name, value in zip(names, values, strict=True)}
    return replace(start, **numbers)


def _value(name: str, value: float) -> float:
    """A number of the search; times at the lower bound are 0."""
    low = BOUNDS[name][0]
    return 0.0 if name not in (KERNELS, "attention") and value <= low * AT_BOUND else value


def calibrate_software(
    rows: Sequence[MeasuredIteration],
    start: Software,
    name: str = "calibrated",
    source: str = "",
    progress: Progress | None = None,
) -> TrainingCalibration:
    """Software called ``name`` for measured iterations: that of ``start`` with a host time (``block``, or ``graph`` where the
    software has graphs) and a share of the kernel rates (``kernels``), as far as the rows determine them; with ``collective``
    where rows with and without collectives between chips that share ops do.

    Raises BadInput: no rows.
    """
    if not rows:
        raise BadInput(Fault("calibration", "measured iterations", "none"))
    report = progress or (lambda text, share: None)
    fit = _Fit(rows, start, report)
    names, alternatives, remarks = _chosen(fit)
    report("fits all rows", 0.5)
    fitted, _ = fit.least(names)
    judged = _judged(fit, names)
    numbers = tuple(_number(each, start, fitted, [software for software, _ in judged]) for each in names)
    found = tuple(_row(row, place, start, fitted, judged) for place, row in enumerate(rows))
    remarks += [_bound_remark(number) for number in numbers if number.bound]
    if len(rows) > 1 and not judged:
        remarks.append(f"{len(rows)} rows determine {len(names)} numbers: no row is held out")
    said = f"fit to {counted(len(rows), 'measured iteration')}"
    origin = dict(start.origin) | dict.fromkeys(names, said)
    described = replace(fitted, name=name, source=source, origin=origin, rows=len(rows), error=None, reach=None)
    made = TrainingCalibration(described, start, numbers, found, alternatives, tuple(remarks))
    if made.held_out is not None and made.held_out >= made.before:
        said = f"rows that are held out are predicted no better than before the fit ({_percent(made.held_out)} error)"
        made = replace(made, remarks=(*made.remarks, f"{said}: the rows have causes that these numbers do not describe"))
    logarithms = [math.log(row.measured / row.held_out) for row in found if row.held_out is not None]
    reach = interval_reach(logarithms) if logarithms else None
    return replace(made, software=replace(described, error=made.held_out, reach=reach))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """Fits to rows; each set of rows and names is fitted once."""

    rows: Sequence[MeasuredIteration]
    start: Software
    report: Progress
    done: dict[tuple[tuple[int, ...], tuple[str, ...]], tuple[Software, float]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The number that is the time of the host for a pass."""
        return "block" if self.start.graph is None else "graph"

    def least(self, names: Sequence[str], places: Sequence[int] | None = None) -> tuple[Software, float]:
        """The software and its error, of all rows or of those at these places."""
        chosen = tuple(range(len(self.rows)) if places is None else places)
        key = chosen, tuple(names)
        if key not in self.done:
            self.done[key] = least_error([self.rows[place] for place in chosen], self.start, names)
        return self.done[key]


# --- which numbers the rows determine ------------------------------------------------------------------------------------


def _chosen(fit: _Fit) -> tuple[tuple[str, ...], dict[str, tuple[float, float]], list[str]]:
    """Names of the numbers to fit, the fits of single ones, and remarks."""
    rows, host = fit.rows, fit.host
    alone = {}
    for place, name in enumerate((host, KERNELS)):
        fit.report(f"fits {name} alone", 0.2 * place)
        software, error = fit.least((name,))
        alone[name] = float(getattr(software, name)), error
    if len(rows) == 1:
        single, cause = _likelier(fit, alone)
        return (single,), alone, [f"one row determines one number: {single} was fitted, because {cause}; nothing is held out"]
    best = min(alone, key=lambda name: alone[name][1])
    least = alone[best][1]
    names: tuple[str, ...] = (best,)
    alike = False
    for more in ((host, KERNELS), *_with_collective(fit)):
        if least < LEAST_GAIN:
            break
        fit.report(f"fits {', '.join(more)}", 0.4)
        software, error = fit.least(more)
        if not _gains(least, error):
            continue
        if _parallel(rows, software, more):
            alike = True
        elif "collective" not in more or _holds(fit, names, more):
            names, least = more, error
    if len(names) > 1:
        return names, alone, []
    other = KERNELS if best == host else host
    if _gains(alone[other][1], alone[best][1]) and not alike:
        return names, alone, [f"{other} keeps the value of {fit.start.name}: a fit of it too lowers the error too little"]
    single, cause = _likelier(fit, alone)
    said = "the rows do not distinguish a time of the host from a derating of the kernels"
    remedy = "add rows with smaller and larger microbatches or models, so that the host bounds some and the chip others"
    return (single,), alone, [f"{said}: {single} was fitted, because {cause}; {remedy}"]


def _likelier(fit: _Fit, alone: Mapping[str, tuple[float, float]]) -> tuple[str, str]:
    """Which of the numbers to fit where the rows determine one, and why."""
    host, (share, slow) = fit.host, alone[KERNELS]
    waiting = _mean(_waiting(row, fit.start) for row in fit.rows)
    passes = f"passes that wait for the host take {100 * waiting:.0f} % of the predicted time of passes"
    if waiting > 0.5:
        return host, passes
    if share < LEAST_RATE_SHARE and alone[host][1] <= slow + LEAST_GAIN:
        return host, f"kernels at {100 * share:.0f} % of their rates are implausible"
    return KERNELS, passes


def _with_collective(fit: _Fit) -> list[tuple[str, ...]]:
    """Sets of numbers with that of collectives, where rows have them and others do not."""
    having = sum(row.plan.calls for row in fit.rows)
    if fit.host != "block" or not 0 < having < len(fit.rows):
        return []
    return [names for names in (("block", "collective"), ("block", KERNELS, "collective")) if len(names) < len(fit.rows)]


def _holds(fit: _Fit, names: tuple[str, ...], more: tuple[str, ...]) -> bool:
    """Whether more numbers predict rows that were held out better."""
    errors = []
    for each in (names, more):
        judged = _judged(fit, each)
        held = [
            abs(math.log(fit.rows[place].plan.time(software) / fit.rows[place].seconds))
            for software, group in judged
            for place in group
        ]
        errors.append(_mean(held) if held else math.inf)
    return errors[1] < errors[0]


def _gains(before: float, after: float) -> bool:
    return before - after > max(LEAST_GAIN, LEAST_RELATIVE_GAIN * before)


def _parallel(rows: Sequence[MeasuredIteration], software: Software, names: Sequence[str]) -> bool:
    """Whether some number changes no prediction, or two of them change all predictions alike."""
    columns = []
    for name in names:
        value = getattr(software, name)
        low, high = (_moved(software, name, value * factor) for factor in (1 - PROBE, 1 + PROBE))
        columns.append([math.log(row.plan.time(high) / row.plan.time(low)) for row in rows])
    lengths = np.linalg.norm(columns, axis=1)
    if (lengths < PROBE * LEAST_GAIN).any():
        return True
    unit = np.array(columns) / lengths[:, None]
    cosines = np.abs(unit @ unit.T)[np.triu_indices(len(names), 1)]
    return bool((cosines > INDISTINCT_COSINE).any())


def _moved(software: Software, name: str, value: float) -> Software:
    low, high = BOUNDS[name]
    number: dict[str, Any] = {name: min(max(value, low), high)}
    return replace(software, **number)


def _waiting(row: MeasuredIteration, software: Software) -> float:
    """Share of the passes of a microbatch through the model that wait for the host."""
    costs = row.plan.cost(software).parts
    passes = [(getattr(part, name), part.waits.get(name, 0.0), count) for part, count in costs.counted for name in part.launches]
    every = math.fsum(time * count for time, _, count in passes)
    return math.fsum(time * count for time, wait, count in passes if wait > 0) / every if every else 0.0


# --- judgement -----------------------------------------------------------------------------------------------------------


def _judged(fit: _Fit, names: Sequence[str]) -> list[tuple[Software, tuple[int, ...]]]:
    """Fits to all rows but some, with the places of these; none where too few rows would be left."""
    count = len(fit.rows)
    folds = min(count, MAX_FOLDS)
    groups = [tuple(range(first, count, folds)) for first in range(folds)]
    if min(count - len(group) for group in groups) < max(len(names), 1):
        return []
    found = []
    for number, group in enumerate(groups):
        fit.report(f"holds out rows: {number + 1} of {folds}", 0.6 + 0.4 * number / folds)
        kept = [place for place in range(count) if place not in group]
        found.append((fit.least(names, kept)[0], group))
    return found


def _number(name: str, start: Software, fitted: Software, judged: Sequence[Software]) -> FittedNumber:
    values = [float(getattr(software, name)) for software in (fitted, *judged)]
    low, high = BOUNDS[name]
    bound = "lower" if values[0] <= low * AT_BOUND else "upper" if values[0] >= high / AT_BOUND else ""
    return FittedNumber(name, float(getattr(start, name) or 0.0), values[0], min(values), max(values), bound)


def _bound_remark(number: FittedNumber) -> str:
    """What a number on its bound means."""
    shown = f"{number.name} is on its {number.bound} bound"
    if number.name == KERNELS and number.bound == "upper":
        return f"{shown}: the kernels are at least as fast as those of the chip's fit; see 'halley calibrate chip'"
    if number.name != KERNELS and number.bound == "lower":
        return f"{shown}: the host is at least as fast as the other times of the software say; start from other software"
    return f"{shown}: the rows contain an effect that it does not describe"


def _row(
    row: MeasuredIteration, place: int, start: Software, fitted: Software, judged: Sequence[tuple[Software, tuple[int, ...]]]
) -> RowFit:
    held = next((row.plan.time(software) for software, group in judged if place in group), None)
    before, after = row.plan.cost(start), row.plan.cost(fitted)
    parts, waiting = _parts(after), _waiting(row, start)
    return RowFit(row.name, row.where, row.seconds, before.time, after.time, held, parts, waiting)


def _parts(cost: PlanCost) -> dict[str, float]:
    """The time of an iteration [s] by `PARTS`: an account of the stage that finishes last."""
    account = dict(cost.account)
    sharing = math.fsum(each.time for each in cost.exposed if each.role is Role.MODEL)
    passes = math.fsum(account[name] for name in ("forward", "recompute", "backward"))
    return {
        "compute": passes - sharing,
        "collectives": sharing + math.fsum(account[name] for name in ("sharding", "transfers", "reduction", "gather")),
        "bubble": account["bubble"] + account["waiting"],
        "host": account.get(HOST_WAITS, 0.0),
        "optimizer": account["norm"] + account["step"],
    }
