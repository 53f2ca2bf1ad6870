"""Co-design: the best chip or system of a study under budgets, beside the base of the study, and what the budgets cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from halley.errors import BadInput, Fault, did_you_mean
from halley.processes import WorkerPool
from halley.sweeps.answered import Answered
from halley.sweeps.bases import FileBase
from halley.sweeps.expressions import limit_of
from halley.sweeps.figures import CHIP_FIGURES, SYSTEM_UNITS, figure_text, figures_of
from halley.sweeps.load import load_study
from halley.sweeps.run import DesignOutcome, DesignSweep, Progress, SweepResult
from halley.sweeps.store import MEMORY, SweepStore
from halley.sweeps.study import Design, Study, numberless

RELAXED = (1.1, 1.25, 1.5, 2.0, math.inf)
"""Multiples of a budget for which the best design is found besides."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The best ``value`` and its ``setting`` if one budget were ``factor`` times as large, which ``designs`` keep."""

    figure: str
    factor: float
    designs: int
    value: float
    setting: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CodesignResult:
    """The outcome of a co-design.

    ``budgets``: most of each figure, in SI units. ``sweep``: the designs that keep them, with the proof; ``best``: the design
    with the least value. ``base``: figures of the study's base, which may exceed the budgets, and ``base_answers`` by workload;
    both are empty where the base has no design of its own. ``relaxed``: what larger budgets would give. ``interrupted``: Ctrl-C
    ended the searches before all of that was known.
    """

    study: Study
    budgets: Mapping[str, float]
    sweep: SweepResult
    base: Mapping[str, float]
    base_answers: Mapping[str, Answered]
    relaxed: tuple[Relaxation, ...]
    interrupted: bool = False

    def __repr__(self) -> str:
        best = ", ".join(f"{name}={value}" for name, value in self.best.design.setting.items()) if self.best else "none"
        return f"CodesignResult({self.study.name}: best {best}; {self.sweep!r})"

    @property
    def best(self) -> DesignOutcome | None:
        return self.sweep.best

    @property
    def base_setting(self) -> Mapping[str, str]:
        """The value that the base has of each axis, as its file has it; none for axes that stand in a text."""
        base = self.study.base
        if not isinstance(base, FileBase):
            return {}
        given = {axis.name: base.document.at(axis.places[0]) for axis in self.study.axes if axis.places}
        return {
            name: f"{value['value'] if isinstance(value, dict) and 'value' in value else value}" for name, value in given.items()
        }

    @property
    def base_value(self) -> float:
        """The weighted sum of the objective on the base; infinite where a workload has no mapping there."""
        parts = self.study.workloads
        if len(self.base_answers) < len(parts):
            return math.inf
        return sum(part.weight * self.base_answers[part.name].value for part in parts)


def codesign(
    study: Study | str | Path,
    budgets: Mapping[str, float] | None = None,
    store: str | Path | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> CodesignResult:
    """The best design of a study under budgets, for its weighted workloads.

    ``budgets``: most of a figure or an axis, in SI units (``{"die_area": 100e-6, "peak_power": 5.0}``), besides those that the
    study's constraints have in the form ``figure <= number``. The other arguments are those of `halley.sweep`.

    >>> from halley.sweeps.load import parse_study
    >>> text = "workloads: {g: {kind: gemm, m: 8, n: 8, k: 8}}\\nchip: edge\\naxes: {engines.matrix.rows: '4, 8, 16'}"
    >>> found = codesign(parse_study(text), {"macs": 1024.0}, workers=0)
    >>> found.best.design.setting["engines.matrix.rows"], found.sweep.gap
    ('8', 0.0)

    Raises BadInput: the study or the store is wrong, it minimises several figures, a budget names no figure, or no design keeps
    the budgets. `SearchStopped`: as `DesignSweep`. KeyboardInterrupt: Ctrl-C before anything was known.
    """
    given = study if isinstance(study, Study) else load_study(study)
    if given.minimised:
        where = given.document.where(("minimise",))
        remedy = "leave the figures out, or use 'halley sweep' for the front"
        raise BadInput(Fault(where, "one objective", ", ".join((given.objective.value, *given.minimised)), remedy))
    limits = _limits(given, budgets or {})
    free = replace(given, where=tuple(rule for rule in given.where if limit_of(rule) is None))
    every = free.designs()
    kept = SweepStore(store or MEMORY)
    pool = None if executor is not None or not workers else WorkerPool(workers)

    def searched(designs: Sequence[Design], everything: bool = False) -> DesignSweep:
        engine = pool.executor if pool is not None else executor
        return DesignSweep(free, kept, workers, engine, everything, progress, designs=designs)

    answers: Mapping[str, Answered] = {}
    relaxed: list[Relaxation] = []
    interrupted = False
    try:
        within = _within(every, limits)
        if not within:
            raise BadInput(_too_small(every, limits))
        main = searched(within)
        base = _base(given)
        try:
            found = main.run()
            if base is not None:
                answers = searched([base], everything=True).run().outcomes[0].answers
            for figure in limits:
                for each in _relaxed(figure, limits, every, searched, found):
                    relaxed.append(each)
        except KeyboardInterrupt:
            if not main.begun:
                raise
            found, interrupted = main.result(), True
    finally:
        kept.close()
        if pool is not None:
            pool.close()
    figures = base.figures if base is not None else {}
    return CodesignResult(given, limits, found, figures, answers, tuple(relaxed), interrupted)


def _relaxed(
    figure: str,
    limits: Mapping[str, float],
    every: Sequence[Design],
    searched: Callable[[Sequence[Design]], DesignSweep],
    found: SweepResult,
) -> Iterator[Relaxation]:
    """The best designs for larger budgets of one figure."""
    result, count = found, len(found.outcomes)
    for factor in RELAXED:
        designs = _within(every, {**limits, figure: limits[figure] * factor})
        if len(designs) > count:  # else they are the same
            result, count = searched(designs).run(), len(designs)
        best = result.best
        yield Relaxation(figure, factor, count, *((best.value, best.design.setting) if best is not None else (math.inf, {})))


def _within(designs: Sequence[Design], limits: Mapping[str, float]) -> list[Design]:
    """The designs that keep the budgets. Raises BadInput: a figure that some of them do not have."""
    for name in limits:
        if any(name not in design.figures for design in designs):
            raise BadInput(numberless("codesign, budgets", name))
    kept = [design for design in designs if all(design.figures[name] <= most for name, most in limits.items())]
    return sorted(kept, key=lambda design: tuple(design.figures[name] for name in limits))  # of equal designs the smallest


def _too_small(designs: Sequence[Design], limits: Mapping[str, float]) -> Fault:
    """No design keeps the budgets: the least that each figure takes."""
    words = ", ".join(f"{name} <= {figure_text(name, most)}" for name, most in limits.items())
    least = {name: min(design.figures[name] for design in designs) for name in limits}
    got = ", ".join(f"{name} from {figure_text(name, value)}" for name, value in least.items())
    return Fault("codesign, budgets", f"a design with {words}", f"none of {len(designs):,}, which have {got}", "raise a budget")


def _limits(study: Study, budgets: Mapping[str, float]) -> dict[str, float]:
    """All budgets, the smaller of two for one figure. Raises BadInput: unknown names, numbers that are none."""
    known = [*(CHIP_FIGURES if study.of_chips else SYSTEM_UNITS), *(axis.name for axis in study.axes), *study.own]
    found: dict[str, float] = {}
    for name, most in (*filter(None, map(limit_of, study.where)), *budgets.items()):
        if name not in known:
            raise BadInput(Fault("codesign, budgets", "a figure or an axis of the study", repr(name), did_you_mean(name, known)))
        if not 0 <= most < math.inf:
            raise BadInput(Fault(f"codesign, budget of {name}", "a finite number of at least 0", f"{most:g}"))
        found[name] = min(most, found.get(name, math.inf))
    if not found:
        remedy = "give a budget, or use 'halley sweep' for the best design of all"
        raise BadInput(Fault("codesign, budgets", "at least one, such as die_area <= 100 mm2", "none", remedy))
    return found


def _base(study: Study) -> Design | None:
    """The base of the study as a design; None where it is none by itself."""
    subject, findings = study.base.subject((), {})
    if subject is None or findings:
        return None
    design = Design(0, {}, subject, figures_of(subject))
    try:
        for part in range(len(study.workloads)):
            study.problem(design, part)
    except BadInput:  # names of axes in plans and deployments
        return None
    return design
