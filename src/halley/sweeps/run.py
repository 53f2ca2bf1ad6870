"""A sweep: designs, their bounds, searches in the order of the bounds, and what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from halley.answer import relative_gap
from halley.errors import BadInput, Fault, SearchStopped
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.processes import InProcess, WorkerPool
from halley.sweeps.answered import Answered, LowerBound
from halley.sweeps.explore import RELATIVE_ROUNDING, Cover, Exploration, Standing
from halley.sweeps.load import load_study
from halley.sweeps.order import Order
from halley.sweeps.store import MEMORY, SweepStore
from halley.sweeps.study import Design, Study, problem_key
from halley.sweeps.work import lower_bounds, search, transferred

BATCH = 8
"""Designs whose bounds are computed in one task."""

TRANSFERS = 16
"""Most mappings of other designs that are costed on one before it is searched."""

T = TypeVar("T")
Task = TypeVar("Task")

Progress = Callable[[str, float], None]
"""Called with a line of text and the fraction of the work that is done, as far as it can be estimated."""


def numbered(designs: Iterable[Design], number: int) -> Design:
    """The design of a number. Raises BadInput: there is none.

    >>> numbered([], 2)
    Traceback (most recent call last):
    halley.errors.BadInput: --design: expected the number of a design that keeps the constraints; got 2; see the column # or --csv
    """
    found = next((design for design in designs if design.number == number), None)
    if found is None:
        expected = "the number of a design that keeps the constraints"
        raise BadInput(Fault("--design", expected, f"{number:,}", "see the column # or --csv"))
    return found


@dataclass(frozen=True, slots=True)
class Searched:
    """A search that ended, or was found in the store: of a workload on a design."""

    design: Design
    workload: str
    answer: Answered
    stored: bool


@dataclass(frozen=True, slots=True)
class DesignOutcome:
    """What a sweep says of a design.

    ``value``: of the best known mappings, the weighted sum of the objective, infinite if there is none; ``bound``: none is less.
    ``answers``: by workload, of its own searches; ``mappings_of``: by workload, the place among the outcomes of the design whose
    mapping reaches the value (-1: none is known). ``cover``: why nothing further was searched. ``reason``: why no mapping fits.
    """

    design: Design
    standing: Standing
    value: float
    bound: float
    on_front: bool
    answers: Mapping[str, Answered]
    mappings_of: Mapping[str, int]
    cover: Cover | None = None
    reason: str = ""

    @property
    def gap(self) -> float:
        """How far the value may be from the least one of the design; infinite where nothing is known."""
        found = relative_gap(self.value, self.bound)
        return found if found > RELATIVE_ROUNDING else 0.0

    @property
    def seconds(self) -> float:
        """Processor time of its searches [s]."""
        return sum(answer.seconds for answer in self.answers.values())


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The outcome of a sweep: every design, and the ``front``, places among the outcomes of non-dominated designs by value.

    ``sampled``: combinations of the study of which the designs are a sample; 0: the designs are all that keep the constraints.
    ``gap``: no design that exists in the study is better than some design of the front, in everything that is minimised, by more
    than this factor of value less 1 (infinite while designs are open). ``done``: nothing is left to be searched. ``searches``:
    answers that were used, new and stored; ``seconds``: their processor time.
    """

    study: Study
    outcomes: tuple[DesignOutcome, ...]
    front: tuple[int, ...]
    gap: float
    done: bool
    searches: int
    seconds: float
    sampled: int = 0

    def __repr__(self) -> str:
        counts = f"{len(self.outcomes):,} designs, {len(self.front):,} on the front, gap {self.gap:.2g}"
        return f"SweepResult({self.study.name}: {counts}{'' if self.done else ', not done'})"

    def count(self, *standings: Standing) -> int:
        """Number of designs of which this became."""
        return sum(outcome.standing in standings for outcome in self.outcomes)

    @property
    def limited(self) -> bool:
        """Whether a limit ended some of the searches."""
        return any(answer.ended in ("limit", "stopped") for outcome in self.outcomes for answer in outcome.answers.values())

    @property
    def best(self) -> DesignOutcome | None:
        """The design with the least value."""
        return self.outcomes[self.front[0]] if self.front else None

    def chip(self, number: int | None = None) -> Chip:
        """The chip of a design, or of the best, named after the study and the number. Raises BadInput: there is none."""
        design = self._design(number)
        if not isinstance(design.subject, Chip):
            raise BadInput(Fault(f"sweep {self.study.name}", "a study of chips", "one of systems", "ask for the system"))
        return replace(design.subject, name=self._named(design), description=self._described(design), version=1)

    def system(self, number: int | None = None) -> System:
        """As `chip`, of a study of systems."""
        design = self._design(number)
        if not isinstance(design.subject, System):
            raise BadInput(Fault(f"sweep {self.study.name}", "a study of systems", "one of chips", "ask for the chip"))
        return replace(design.subject, name=self._named(design), description=self._described(design))

    def _design(self, number: int | None) -> Design:
        if number is not None:
            return numbered((outcome.design for outcome in self.outcomes), number)
        if self.best is None:
            raise BadInput(
                Fault(f"sweep {self.study.name}", "a best design", "none yet", "search first, or choose by --design N")
            )
        return self.best.design

    def _named(self, design: Design) -> str:
        return f"{self.study.name}-{design.number}"

    def _described(self, design: Design) -> str:
        setting = ", ".join(f"{axis} {value}" for axis, value in design.setting.items())
        return f"design {design.number} of the study {self.study.name}, {setting}; from {design.label}"


class DesignSweep:
    """A sweep over the designs of a study. Iterating runs it, and gives each answer as soon as it is there; `run` runs it to its
    end; `result` says what is known at any time.

    ``store``: path of the SQLite file that keeps the answers; left out, they are kept in memory. ``workers``: processes; with 0,
    the searches run in this one. ``executor``: of the protocol of `concurrent.futures`, in place of own processes, ``workers``
    tasks at a time. ``everything``: search every design instead of those that the front needs. ``read_only``: nothing is
    searched. ``designs``: some of the study's, in place of all.

    >>> from halley.sweeps.load import parse_study
    >>> text = "workloads: {g: {kind: gemm, m: 4, n: 4, k: 4}}\\nchip: edge\\naxes: {glb.capacity: '1, 2 MiB'}"
    >>> result = DesignSweep(parse_study(text), workers=0).run()
    >>> result.front, result.gap, result.done
    ((0,), 0.0, True)

    Raises BadInput: the study or the store is wrong. `SearchStopped`: a worker process was ended from outside; what was found
    before is kept.
    """

    def __init__(
        self,
        study: Study | str | Path,
        store: str | Path | SweepStore | None = None,
        workers: int = 1,
        executor: Executor | None = None,
        everything: bool = False,
        progress: Progress | None = None,
        read_only: bool = False,
        designs: Sequence[Design] | None = None,
    ) -> None:
        if not (isinstance(workers, int) and 0 <= workers <= 1024):
            raise BadInput(Fault("sweep, workers", "a whole number from 0 to 1024", repr(workers)))
        self.study = study if isinstance(study, Study) else load_study(study)
        self._owns_store = not isinstance(store, SweepStore)
        self.store = store if isinstance(store, SweepStore) else SweepStore(store or MEMORY, write=not read_only)
        self.workers, self.progress, self.read_only = workers, progress, read_only
        self._executor, self._everything, self._pool = executor, everything, None
        self.designs: Sequence[Design] = self.study.designs() if designs is None else designs
        parts = range(len(self.study.workloads))
        self._keys = [[problem_key(self.study.problem(design, part)) for part in parts] for design in self.designs]
        self._order = Order((design.subject for design in self.designs), self.study.objective)
        self._bounds: dict[str, LowerBound] = {}
        self._answers: dict[str, Answered] = {}
        self._state: Exploration | None = None
        self._begun, self._made = 0.0, 0
        self._tried: set[tuple[int, int, int]] = set()

    _pool: WorkerPool | None

    def run(self) -> SweepResult:
        """Runs the sweep to its end. Raises as the class says."""
        for _ in self:
            pass
        return self.result()

    def __iter__(self) -> Iterator[Searched]:
        try:
            yield from self._run()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the worker processes and closes the store, unless it was given open; all that is known stays, and both start again
        when they are needed."""
        if self._owns_store:
            self.store.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = self._executor = None

    @property
    def bounded(self) -> tuple[int, int]:
        """How many lower bounds are known, of how many that the search begins with."""
        every = {key for keys in self._keys for key in keys}
        return sum(self._bounds[key].value > 0 for key in every & self._bounds.keys()), len(every)

    @property
    def begun(self) -> bool:
        """Whether all lower bounds are known, so that there is something to show."""
        return self._state is not None

    def _run(self) -> Iterator[Searched]:
        self._find_bounds()
        state = self._state = self._exploration()
        for (design, part), answer in self._stored(state).items():
            yield Searched(self.designs[design], self.study.workloads[part].name, answer, True)
        running: dict[Future[Answered], tuple[int, int]] = {}
        self._begun = time.monotonic()
        while True:
            self._report_progress(state, len(running))
            while (self.read_only or len(running) < max(1, self.workers)) and (task := state.next()) is not None:
                key = self._keys[task[0]][task[1]]
                if (known := self._answers.get(key) or self._usable([key]).get(key)) is not None:
                    yield self._learn(state, task, known, True)
                elif state.lower[task] > 0 and self._transferred(state, task):
                    state.cancel(*task)
                elif not self.read_only:
                    problem = self.study.problem(self.designs[task[0]], task[1])
                    running[self._submit(search, problem)] = task
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED, timeout=1.0)
            for future in done:
                task = running.pop(future)
                answer = self._result_of(future)
                self._keep(task, answer)
                self._made += 1
                yield self._learn(state, task, answer, False)
        self._report_progress(state, 0)

    def _learn(self, state: Exploration, task: tuple[int, int], answer: Answered, stored: bool) -> Searched:
        design, part = task
        self._answers[self._keys[design][part]] = answer
        state.learn(design, part, answer.value, answer.bound)
        return Searched(self.designs[design], self.study.workloads[part].name, answer, stored)

    def _transferred(self, state: Exploration, task: tuple[int, int]) -> bool:
        """Whether mappings of other designs, costed on this one, make its search needless."""
        design, part = task
        problem = self.study.problem(self.designs[design], part)
        for other in state.sources(design, part)[:TRANSFERS] if not self._everything else ():
            answer = self._answers[self._keys[other][part]]
            if (other, *task) in self._tried or not answer.mapping:
                continue
            self._tried.add((other, *task))
            if (value := transferred(problem, answer.mapping, answer.variant)) < state.upper[design, part]:
                state.reach(design, part, value, other)
            if not state.needed(design, part):
                return True
        return False

    def _keep(self, task: tuple[int, int], answer: Answered) -> None:
        design, part = self.designs[task[0]], self.study.workloads[task[1]]
        inputs = {
            "workload": dict(part.given),
            "design": design.label,
            "setting": dict(design.setting),
            "objective": self.study.objective.value,
            "gap": self.study.gap,
        }
        self.store.add(self._keys[task[0]][task[1]], inputs, self.study.time_limit, answer)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _find_bounds(self) -> None:
        """The first lower bounds of all problems, from the store or computed; faults of a design come before any search. Where
        nothing is to be computed, 0 stands for those that the store lacks."""
        self._bounds = self.store.bounds(key for keys in self._keys for key in keys)
        if self.read_only:
            self._bounds |= {key: LowerBound(0.0) for keys in self._keys for key in keys if key not in self._bounds}
        left = {
            key: (index, part)
            for index, keys in enumerate(self._keys)
            for part, key in enumerate(keys)
            if key not in self._bounds
        }
        missing = list(left)
        running: dict[Future[list[LowerBound]], list[str]] = {}
        finished, begun = 0, time.monotonic()
        while missing or running:
            while missing and len(running) < max(1, self.workers):
                keys, missing = missing[:BATCH], missing[BATCH:]
                problems = [self.study.problem(self.designs[left[key][0]], left[key][1]) for key in keys]
                running[self._submit(lower_bounds, problems)] = keys
            done, _ = wait(running, return_when=FIRST_COMPLETED, timeout=1.0)
            for future in done:
                keys = running.pop(future)
                computed: list[LowerBound] = self._result_of(future)
                found = dict(zip(keys, computed, strict=True))
                self._bounds |= found
                self.store.add_bounds(found)
                finished += len(keys)
            if self.progress is not None:
                rest = len(left) - finished
                estimate = f", {_duration(rest * (time.monotonic() - begun) / finished)} left" if finished and rest else ""
                self.progress(f"lower bounds: {finished:,} of {len(left):,}{estimate}", finished / len(left))

    def _exploration(self) -> Exploration:
        minimised = self.study.minimised
        figures = np.array([[design.figures[name] for name in minimised] for design in self.designs], np.float64)
        bounds = np.array([[self._bounds[key].value for key in keys] for keys in self._keys])
        shaped = figures.reshape(len(self.designs), len(minimised))
        return Exploration(shaped, bounds, self.study.weights, self._order, self.study.gap, self._everything)

    def _usable(self, keys: Sequence[str]) -> dict[str, Answered]:
        """Answers of the store that serve this study. Searches of plans and deployments take no gap."""
        found = self.store.answers(keys)
        gap, limit = self.study.gap if self.study.of_chips else None, self.study.time_limit
        return {key: kept.answer for key, kept in found.items() if kept.serves(gap, limit)}

    def _stored(self, state: Exploration) -> dict[tuple[int, int], Answered]:
        """What the store has of this study, learned at once."""
        usable = self._usable([key for keys in self._keys for key in keys])
        found = {}
        for index, keys in enumerate(self._keys):
            for part, key in enumerate(keys):
                if key in usable:
                    found[index, part] = self._answers[key] = usable[key]
                    state.learn(index, part, usable[key].value, usable[key].bound)
        return found

    # --- processes ----------------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[Task], T], task: Task) -> Future[T]:
        if self._executor is None:
            if self.workers:
                self._pool = WorkerPool(self.workers)
                self._executor = self._pool.executor
            else:
                self._executor = InProcess()
        try:
            return self._executor.submit(work, task)
        except BrokenExecutor as error:
            raise self._broken(error) from None

    def _result_of(self, future: Future[T]) -> T:
        try:
            return future.result()
        except BrokenExecutor as error:
            raise self._broken(error) from None

    def _broken(self, error: BrokenExecutor) -> SearchStopped:
        got = "one that was ended from outside, perhaps for want of memory"
        return SearchStopped(Fault(f"sweep {self.study.name}", "worker processes", got, "run it again: it goes on where it was"))

    # --- progress and outcome -----------------------------------------------------------------------------------------

    def _report_progress(self, state: Exploration, running: int) -> None:
        if self.progress is None:
            return
        left, made = state.left(), int(state.searched.sum())
        pace = (time.monotonic() - self._begun) / self._made if self._made else 0.0
        estimate = f", at most {_duration(left * pace)} at this pace" if pace and left else ""
        self.progress(f"{made:,} searches made, at most {left:,} left{estimate}", made / max(1, made + left))

    def result(self) -> SweepResult:
        """What is known by now."""
        if self._state is None:
            for _ in self if self.read_only else ():
                pass
        state = self._state
        if state is None:
            try:
                self._find_bounds()
                state = self._state = self._exploration()
                self._stored(state)
            finally:
                self.close()
        front = state.front()
        on_front = set(front)
        names = [part.name for part in self.study.workloads]
        outcomes = []
        for index, (design, keys) in enumerate(zip(self.designs, self._keys, strict=True)):
            own = {
                name: self._answers[key]
                for place, (name, key) in enumerate(zip(names, keys, strict=True))
                if key in self._answers and state.searched[index, place]
            }
            reasons = [answer.reason for answer in own.values() if answer.reason] + [self._bounds[key].reason for key in keys]
            standing = state.standing(index)
            outcomes.append(
                DesignOutcome(
                    design,
                    standing,
                    state.total_upper(index),
                    state.total_lower(index),
                    index in on_front,
                    own,
                    {name: int(state.reached_on[index, place]) for place, name in enumerate(names)},
                    state.cover(index),
                    next(filter(None, reasons), ""),
                )
            )
        used = {key: self._answers[key] for key in self._answers}
        done = not state.left() and (self.read_only or not state.running.any())
        return SweepResult(
            self.study,
            tuple(outcomes),
            tuple(front),
            state.reached_gap(),
            done,
            len(used),
            sum(answer.seconds for answer in used.values()),
        )


def _duration(seconds: float) -> str:
    """A time for people.

    >>> _duration(59), _duration(3700)
    ('59 s', '1 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def sweep(
    study: Study | str | Path,
    store: str | Path | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    everything: bool = False,
    progress: Progress | None = None,
) -> DesignSweep:
    """A sweep over the designs of a study, or of a study file: iterate over it for answers as they come, or call ``run``.

    >>> sweep("no such file.yaml")
    Traceback (most recent call last):
    halley.errors.BadInput: no such file.yaml: expected a file; got no such file; check the path

    Arguments and errors are those of `DesignSweep`.
    """
    return DesignSweep(study, store, workers, executor, everything, progress)
