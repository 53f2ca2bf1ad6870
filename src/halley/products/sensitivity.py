"""`halley.sensitivity`: what more of each parameter of the hardware buys, by searching again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.cost.own import capacity_faults
from halley.errors import BadInput, Fault, Infeasible, SearchStopped
from halley.io.cache import user_store
from halley.ir.hardware import Chip, Level, Link, Memory, Network
from halley.ir.system import System
from halley.kernels.machine import machine
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem, objective_value
from halley.mapping.result import Result
from halley.products.arguments import checked
from halley.rewrite import legality
from halley.sharding.decisions import decisions_of
from halley.training.plan import TrainingProblem, TrainingResult
from halley.training.search.decided import decided_cost
from halley.training.search.joint import best_joint_plan
from halley.training.search.search import best_training_plan
from halley.training.uncertainty.changed import scaled, scaled_axis, with_system
from halley.workloads import variants

Progress = Callable[[str, float], None]
AnyProblem = Problem | TrainingProblem

RELATIVE_ROUNDING = 1e-9
"""Relative difference of two values that is put down to rounding."""

SEARCH_GAP = 1e-3
"""Relative gap of the searches: effects are reported to a tenth of a per cent."""


ASSUMED = "assumed: "
"""Begins the source of a number that a chip file does not cite."""

FARTHEST = 4.0
"""Factor by which a parameter moves at most where the end of a plan's range is sought."""

CLOSE = 1.05
"""Ratio of two factors between which that end is known well enough."""


@dataclass(frozen=True, slots=True)
class HardwareNumber:
    """A number of the hardware: its ``name``, ``value`` [``unit``], whether ``more`` of it is better, and the problem with the
    number times a factor."""

    name: str
    value: float
    unit: str
    more: bool
    changed: Callable[[float], AnyProblem]


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """What follows from another value of a parameter. ``kept``: the objective of the given plan, infinite where it does not fit,
    None where only a search tells; ``best``: that of the best plan, None where it was not searched, infinite where nothing fits;
    ``bound``: no plan is better; ``proven``: without a search, by the bound of the given answer."""

    factor: float
    kept: float | None
    best: float | None = None
    bound: float = 0.0
    proven: bool = False

    @property
    def same_plan(self) -> bool | None:
        """Whether the given plan is still among the best; None where that is not known."""
        if self.best is None or self.kept is None:
            return None
        return self.kept <= self.best * (1 + SEARCH_GAP)


@dataclass(frozen=True, slots=True)
class PlanRange:
    """How far a parameter may move, alone, before the given plan is no longer among the best. ``least``, ``most``: the factors
    farthest from 1 at which it was found to be; ``below``, ``above``: the next ones tried, at which it is not, None where it
    still is at a fourth, or at four times, the value. Between factors that were tried nothing is proven."""

    least: float
    below: float | None
    most: float
    above: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """A parameter that is better, and worse, by one factor; ``range``: where the given plan holds, None where that was not
    sought, or the search for it was stopped."""

    parameter: HardwareNumber
    better: ChangedValue
    worse: ChangedValue
    range: PlanRange | None = None


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """By parameter, those that matter most first. ``value`` and ``bound`` are those of the given answer, for its ``objective``
    [``unit``]; ``change``: by how much parameters are better or worse (0.1: ten per cent). ``title``: what was asked.
    ``stopped``: the limit or a signal came before all searches; ``assumed``: by parameter, why the chip's file assumes its value,
    of those that it does not cite."""

    title: str
    objective: str
    unit: str
    value: float
    bound: float
    change: float
    effects: tuple[Effect, ...]
    stopped: bool = False
    assumed: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        first = ", ".join(effect.parameter.name for effect in self.effects[:3])
        return f"Sensitivity({self.title}: {self.objective}; {len(self.effects)} parameters, first {first})"


@checked
def sensitivity(
    answer: Result | TrainingResult,
    change: float = 0.1,
    *,
    only: Sequence[str] = (),
    search: bool = True,
    time_limit: float | None = None,
    ranges: bool = False,
    progress: Progress | None = None,
) -> Sensitivity:
    """What ``change`` more and less of each parameter of the hardware does to the best mapping, or the best plan of a training.

    ``only``: parameters whose name has one of these words; ``search``: find the best plan for each change, else only cost the
    given one; ``time_limit`` [s] of all searches together: what comes later is not searched; ``ranges``: find by bisection how
    far each parameter may move before the plan changes, from a fourth to four times its value: some ten searches more each.

    >>> import halley
    >>> work = halley.build("gemm", {"m": 64, "n": 64, "k": 64})
    >>> found = sensitivity(halley.optimise(halley.Problem(work, halley.load_chip("edge"), baselines=False)), only=["dram"])
    >>> [effect.parameter.name for effect in found.effects][:1]
    ['dram bandwidth']

    Raises BadInput: another kind of answer; no such parameter; a change that is not positive.
    """
    if not 0 < change <= 10:
        raise BadInput(Fault("change", "above 0, at most 10 (1,000 %)", f"{change:g}"))
    view = _MappingView(answer) if isinstance(answer, Result) else _TrainingView(answer)
    known = list(view.parameters())
    chosen = [item for item in known if not only or any(word.lower() in item.name.lower() for word in only)]
    if not chosen:
        names = ", ".join(item.name for item in known)
        raise BadInput(Fault("parameters", f"words of: {names}", ", ".join(map(repr, only))))
    run = _Run(view, search, math.inf if time_limit is None else time.monotonic() + time_limit)
    found: dict[tuple[str, bool], ChangedValue] = {}
    steps = [(item, better) for item in chosen for better in (True, False)]
    begun, count = time.monotonic(), len(steps) + (len(chosen) if ranges else 0)

    def report(words: str, done: int) -> None:
        if progress:
            left = (time.monotonic() - begun) / done * (count - done) if done else 0.0
            progress(words + (f", some {left:.0f} s left" if left else ""), done / count)

    for number, (item, better) in enumerate(steps):
        report(f"{item.name}, {'better' if better else 'worse'}", number)
        factor = 1 + change if better is item.more else 1 / (1 + change)
        found[item.name, better] = run.changed(item, factor)
    held: dict[str, PlanRange | None] = {}
    for number, item in enumerate(chosen if ranges else ()):
        report(f"range of {item.name}", len(steps) + number)
        held[item.name] = run.range(item)
    effects = [Effect(item, found[item.name, True], found[item.name, False], held.get(item.name)) for item in chosen]
    effects.sort(key=lambda effect: (_ratio(effect.better, view.value), -_ratio(effect.worse, view.value)))
    head = view.title, view.objective, view.unit, view.value, view.bound
    return Sensitivity(*head, change, tuple(effects), run.stopped, assumed_numbers(view.chip))


def _ratio(change: ChangedValue, value: float) -> float:
    """The best objective that is known after the change, over the one before."""
    known = [item for item in (change.kept, change.best) if item is not None]
    return min(known, default=value) / value


@dataclass(slots=True)
class _Run:
    """The searches, until the time ``end`` or a signal."""

    view: _View
    search: bool
    end: float
    stopped: bool = False

    def range(self, item: HardwareNumber) -> PlanRange | None:
        """Where the given plan holds; None: that is not known."""
        low, high = self._end(item, 1 / FARTHEST), self._end(item, FARTHEST)
        return None if low is None or high is None else PlanRange(*low, *high)

    def _end(self, item: HardwareNumber, farthest: float) -> tuple[float, float | None] | None:
        """The factor farthest from 1 on this side at which the plan holds, and the next one at which it does not."""
        holds = self.changed(item, farthest).same_plan
        if holds:
            return farthest, None
        held, lost = 1.0, farthest
        while holds is not None and max(held / lost, lost / held) > CLOSE:
            middle = math.sqrt(held * lost)
            holds = self.changed(item, middle).same_plan
            held, lost = (middle, lost) if holds else (held, middle)
        return None if holds is None else (held, lost)

    def changed(self, item: HardwareNumber, factor: float) -> ChangedValue:
        """What follows from the parameter times a factor."""
        better, problem = (factor > 1) is item.more, item.changed(factor)
        kept = self.view.kept(problem)
        if not better and kept is not None and kept <= self.view.value * (1 + RELATIVE_ROUNDING):
            # worse hardware has no better plan than the bound of the given answer
            return ChangedValue(factor, kept, kept, self.view.bound, proven=True)
        left = self.end - time.monotonic()
        if not self.search or self.stopped or left <= 0:
            self.stopped = self.search
            return ChangedValue(factor, kept)
        try:
            best, bound, status = self.view.best(problem, None if math.isinf(left) else left)
        except Infeasible:
            return ChangedValue(factor, kept, math.inf, math.inf)
        except (SearchStopped, KeyboardInterrupt):
            self.stopped = True
            return ChangedValue(factor, kept)
        self.stopped = status is Status.LIMIT
        return ChangedValue(factor, kept, best if kept is None else min(best, kept), bound)


class _View:
    """What the two kinds of answers have in common here."""

    title: str
    chip: Chip
    objective: str
    unit: str
    value: float
    bound: float

    def parameters(self) -> Iterator[HardwareNumber]:
        raise NotImplementedError

    def kept(self, problem: AnyProblem) -> float | None:
        raise NotImplementedError

    def best(self, problem: AnyProblem, limit: float | None) -> tuple[float, float, Status]:
        """Value, bound and end of a search."""
        raise NotImplementedError


class _MappingView(_View):
    def __init__(self, result: Result) -> None:
        self.result, problem = result, result.problem
        certificate = result.best.certificate
        self.title, self.chip = f"{problem.workload.name} on {problem.chip.label}", problem.chip
        self.objective, self.unit = problem.objective.value, {"time": "s", "energy": "J", "edp": "J s"}[problem.objective.value]
        self.value, self.bound = certificate.value, certificate.bound
        plan = result.best.plan
        family = [work for work in variants(problem.workload) if work.variant == result.best.variant]
        self.workload = next((w for w in family if not legality.faults(plan, w, problem.chip)), problem.workload)

    def parameters(self) -> Iterator[HardwareNumber]:
        problem = self.result.problem
        for name, value, unit, more, changed in chip_parameters(problem.chip, self.objective != "time"):
            yield HardwareNumber(name, value, unit, more, partial(_with_chip, problem, changed))

    def kept(self, problem: AnyProblem) -> float | None:
        assert isinstance(problem, Problem)
        estimate = evaluate(self.workload, problem.chip, self.result.best.plan)
        if capacity_faults(problem.chip, estimate, "plan"):
            return math.inf
        return objective_value(problem.objective, float(estimate.time), float(estimate.energy))

    def best(self, problem: AnyProblem, limit: float | None) -> tuple[float, float, Status]:
        assert isinstance(problem, Problem)
        gap = max(problem.gap, SEARCH_GAP) if problem.objective is not Objective.EDP else 0.0
        asked = replace(problem, baselines=False, front=False, time_limit=limit, gap=gap)
        found = optimise(asked).best.certificate
        return found.value, found.bound, found.status


class _TrainingView(_View):
    objective, unit = "time of an iteration", "s"

    def __init__(self, result: TrainingResult) -> None:
        self.result = result
        self.title, self.chip = f"{result.problem.shape.name} on {result.problem.system.name}", result.problem.system.chip
        self.value, self.bound = result.certificate.value, result.certificate.bound
        self.parts = [decisions_of(item) for item in result.cost.shardings.values()]

    def parameters(self) -> Iterator[HardwareNumber]:
        problem = self.result.problem
        for name, value, unit, more, changed in system_parameters(problem.system):
            if problem.searched is not None or self._matters(changed(2.0)):
                yield HardwareNumber(name, value, unit, more, partial(_with_system, problem, changed))

    def _matters(self, system: System) -> bool:
        """Whether plans of library kernels depend on what differs: they see a chip as `halley.kernels.machine` does."""
        before, homes = self.result.problem.system, self.result.problem.homes
        memories = [[chip.memory(name) for name in homes] for chip in (before.chip, system.chip)]
        return system.axes != before.axes or machine(system.chip) != machine(before.chip) or memories[0] != memories[1]

    def kept(self, problem: AnyProblem) -> float | None:
        assert isinstance(problem, TrainingProblem)
        if problem.searched is not None:
            return None
        try:
            return float(decided_cost(problem, self.result.plan, self.parts).time)
        except Infeasible:
            return math.inf

    def best(self, problem: AnyProblem, limit: float | None) -> tuple[float, float, Status]:
        assert isinstance(problem, TrainingProblem)
        if problem.searched is not None:
            found = best_joint_plan(replace(problem, searched=None), None, limit, user_store())
        else:
            found = best_training_plan(problem, None, limit)
        return found.certificate.value, found.certificate.bound, found.certificate.status


def _with_chip(problem: Problem, changed: Callable[[float], Chip], factor: float) -> Problem:
    return replace(problem, chip=changed(factor))


def _with_system(problem: TrainingProblem, changed: Callable[[float], System], factor: float) -> TrainingProblem:
    return with_system(problem, changed(factor))


# --- parameters -------------------------------------------------------------------------------------------------------------

Named = tuple[str, float, str, bool, Callable[[float], Any]]
"""Name, value, unit, whether more is better, and what has the number times a factor."""


def chip_parameters(chip: Chip, energy: bool = False) -> Iterator[Named]:
    """The continuous numbers of a chip: of its memories, links and engines; with those of ``energy`` where it is minimised.

    >>> from halley import load_chip
    >>> [name for name, *_ in chip_parameters(load_chip("edge"))][:3]
    ['dram capacity', 'dram bandwidth', 'glb capacity']
    """
    for place, level in enumerate(chip.levels):
        for name, value, unit, more, changed in _level_parameters(level, energy):
            yield name, value, unit, more, partial(_at_level, chip, place, changed)
    for engine in ("matrix", "vector"):
        own = getattr(chip, engine)
        if own is None:
            continue
        yield f"{engine} engine rate", own.clock, "Hz", True, partial(_of_engine, chip, engine, "clock")
        if own.latency:
            yield f"{engine} engine latency", own.latency, "s", False, partial(_of_engine, chip, engine, "latency")
        if energy and any(own.energy.values()):
            yield f"{engine} engine energy", max(own.energy.values()), "J", False, partial(_of_energies, chip, engine)
    if energy and chip.static_power:
        yield "static power", chip.static_power, "W", False, lambda factor: replace(chip, static_power=chip.static_power * factor)


def assumed_numbers(chip: Chip) -> dict[str, str]:
    """By parameter, why the chip's file assumes its value: of memories and links, and static power, those that it does not cite.

    >>> from halley import load_chip
    >>> assumed_numbers(load_chip("h100"))["l2 bandwidth"]
    'as on the H200, measured: 8.9 TB/s, and a third more, as two SMs that ask for the same line at once get it by one read'
    """
    paths = {"static power": "static_power"}
    for level in chip.levels:
        at, network = f"levels.{level.name}", level.network
        for memory in level.memories:
            for name, *_, keys in _memory_parameters(memory, True):
                paths[f"{memory.name} {name}"] = f"{at}.memories.{memory.name}.{keys[0]}"
        links = (
            {f"{level.name}.{axis.name} link": (f"axes.{axis.name}.link", axis.link) for axis in network.axes} if network else {}
        )
        if network and network.port:
            links[f"{level.name} port"] = "port", network.port
        for what, (place, link) in links.items():
            for name, *_, key in _link_parameters(link, True):
                paths[f"{what} {name}"] = f"{at}.network.{place}.{key}"
    reasons = {name: chip.sources.get(path, "") for name, path in paths.items()}
    return {name: text.removeprefix(ASSUMED) for name, text in reasons.items() if text.startswith(ASSUMED)}


def _level_parameters(level: Level, energy: bool) -> Iterator[Named]:
    for place, memory in enumerate(level.memories):
        for name, value, unit, more, keys in _memory_parameters(memory, energy):
            yield f"{memory.name} {name}", value, unit, more, partial(_of_memory, level, place, keys)
    network = level.network
    if network is None:
        return
    for number, axis in enumerate(network.axes):
        for name, value, unit, more, key in _link_parameters(axis.link, energy):
            yield f"{level.name}.{axis.name} link {name}", value, unit, more, partial(_of_axis, level, network, number, key)
    if network.port:
        for name, value, unit, more, key in _link_parameters(network.port, energy):
            yield f"{level.name} port {name}", value, unit, more, partial(_of_port, level, network, key)


def _memory_parameters(memory: Memory, energy: bool) -> Iterator[tuple[str, float, str, bool, tuple[str, ...]]]:
    if math.isfinite(memory.capacity):
        yield "capacity", memory.capacity, "B", True, ("capacity",)
    if math.isfinite(memory.read_bandwidth):
        yield "bandwidth", memory.read_bandwidth, "B/s", True, ("read_bandwidth", "write_bandwidth")
    if memory.latency:
        yield "latency", memory.latency, "s", False, ("latency",)
    if energy and (memory.read_energy or memory.write_energy):
        yield "energy", memory.read_energy or memory.write_energy, "J/B", False, ("read_energy", "write_energy")


def _link_parameters(link: Link, energy: bool) -> Iterator[tuple[str, float, str, bool, str]]:
    if math.isfinite(link.bandwidth):
        yield "bandwidth", link.bandwidth, "B/s", True, "bandwidth"
    if link.latency:
        yield "latency", link.latency, "s", False, "latency"
    if energy and link.energy:
        yield "energy", link.energy, "J/B", False, "energy"


def _at_level(chip: Chip, place: int, changed: Callable[[float], Level], factor: float) -> Chip:
    return replace(chip, levels=(*chip.levels[:place], changed(factor), *chip.levels[place + 1 :]))


def _of_memory(level: Level, place: int, keys: Sequence[str], factor: float) -> Level:
    memories = (*level.memories[:place], scaled(level.memories[place], keys, factor), *level.memories[place + 1 :])
    return replace(level, memories=memories)


def _of_axis(level: Level, network: Network, number: int, key: str, factor: float) -> Level:
    axes = (*network.axes[:number], scaled_axis(network.axes[number], key, factor), *network.axes[number + 1 :])
    return replace(level, network=replace(network, axes=axes))


def _of_port(level: Level, network: Network, key: str, factor: float) -> Level:
    assert network.port is not None
    return replace(level, network=replace(network, port=scaled(network.port, (key,), factor)))


def _of_engine(chip: Chip, engine: str, key: str, factor: float) -> Chip:
    return replace(chip, **{engine: scaled(getattr(chip, engine), (key,), factor)})


def _of_energies(chip: Chip, engine: str, factor: float) -> Chip:
    own = getattr(chip, engine)
    energies: Mapping[str, float] = {name: value * factor for name, value in own.energy.items()}
    return replace(chip, **{engine: replace(own, energy=energies)})


def system_parameters(system: System) -> Iterator[Named]:
    """The numbers of a system that plans of training depend on: engines and memories of the chip, and the links of the axes."""
    for name, value, unit, more, changed in chip_parameters(system.chip):
        yield name, value, unit, more, partial(_of_chip, system, changed)
    for number, axis in enumerate(system.axes):
        if axis.size > 1:
            for name, value, unit, more, key in _link_parameters(axis.link, False):
                yield f"{axis.name} link {name}", value, unit, more, partial(_of_system_axis, system, number, key)


def _of_chip(system: System, changed: Callable[[float], Chip], factor: float) -> System:
    return replace(system, chip=changed(factor))


def _of_system_axis(system: System, number: int, key: str, factor: float) -> System:
    axes = (*system.axes[:number], scaled_axis(system.axes[number], key, factor), *system.axes[number + 1 :])
    return replace(system, axes=axes)
