"""Some designs of a study that has too many to bound all of them: drawn at random, or chosen by Optuna from what was found.

Each is searched to its own proof, but nothing is known of the designs that were not chosen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from halley.errors import BadInput, Fault
from halley.processes import WorkerPool
from halley.sweeps.run import DesignSweep, SweepResult
from halley.sweeps.store import MEMORY, SweepStore
from halley.sweeps.study import Design, Study

RANDOM, OPTUNA = "random", "optuna"
METHODS = (RANDOM, OPTUNA)
"""How designs are chosen."""

TRIES = 20
"""Choices for each design that is asked for, before a study counts as exhausted: others break constraints or are chosen."""

Choice: TypeAlias = tuple[int, ...]
"""The number of a step of each axis."""


class Sampler(Protocol):
    """Chooses designs."""

    def ask(self) -> Choice:
        """The next one."""
        ...

    def tell(self, choice: Choice, point: Sequence[float] | None) -> None:
        """What was found of a choice that it gave, the objective and the figures that are minimised; None: nothing fits, or it
        breaks a constraint."""
        ...


class RandomSampler:
    """Each combination of steps is as likely as any other.

    >>> RandomSampler((2, 3), 0).ask()
    (1, 2)
    """

    def __init__(self, steps: Sequence[int], seed: int) -> None:
        self._steps, self._draw = steps, random.Random(seed)

    def ask(self) -> Choice:
        return tuple(int(self._draw.random() * count) for count in self._steps)

    def tell(self, choice: Choice, point: Sequence[float] | None) -> None:
        pass


class OptunaSampler:
    """Optuna's tree of Parzen estimators on the numbers of the steps, for several objectives where the front has several.

    Raises BadInput: Optuna is not installed.
    """

    def __init__(self, steps: Sequence[int], seed: int, objectives: int) -> None:
        try:
            optuna = import_module("optuna")
        except ImportError:
            raise BadInput(Fault("--method optuna", "the package optuna", "none", "pip install 'halley[optuna]'")) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._steps, self._failed = steps, optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.TPESampler(seed=seed)
        self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
        self._trials: dict[Choice, list[Any]] = {}

    def ask(self) -> Choice:
        trial = self._study.ask()
        choice = tuple(int(trial.suggest_int(f"{place}", 0, count - 1)) for place, count in enumerate(self._steps))
        self._trials.setdefault(choice, []).append(trial)
        return choice

    def tell(self, choice: Choice, point: Sequence[float] | None) -> None:
        for trial in self._trials.pop(choice, ()):
            if point is None:
                self._study.tell(trial, state=self._failed)
            else:
                self._study.tell(trial, list(point))


def sample(
    study: Study,
    count: int,
    method: str = RANDOM,
    seed: int = 0,
    store: str | Path | SweepStore | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> SweepResult:
    """The front of ``count`` designs of a study, each searched; fewer where the study has fewer. Equal arguments choose the same
    designs. An interrupt ends it with what was found, which is then not ``done``.

    ``method``: ``"random"``, or ``"optuna"``, which takes more designs near the front. The other arguments are those of
    `halley.sweep`.

    >>> from halley.sweeps.load import parse_study
    >>> text = "workloads: {g: {kind: gemm, m: 4, n: 4, k: 4}}\\nchip: edge\\naxes: {glb.capacity: 'pow2(1..1024) MiB'}"
    >>> found = sample(parse_study(text), 1, workers=0)
    >>> len(found.outcomes), found.sampled, found.gap
    (1, 11, 0.0)

    Raises BadInput: another method, or the package of one is not installed; no design keeps the constraints.
    """
    if method not in METHODS:
        raise BadInput(Fault("--method", " or ".join(METHODS), repr(method)))
    steps = [len(axis.steps) for axis in study.axes]
    chooser: Sampler = RandomSampler(steps, seed)
    if method == OPTUNA:
        chooser = OptunaSampler(steps, seed, 1 + len(study.minimised))
    kept = store if isinstance(store, SweepStore) else SweepStore(store or MEMORY)
    chosen: dict[Choice, Design | None] = {}
    pool, interrupted = WorkerPool(workers) if workers and executor is None else None, False
    try:
        _search(study, chooser, chosen, min(count, study.points), kept, workers, pool.executor if pool else executor, progress)
    except KeyboardInterrupt:
        if not any(chosen.values()):
            raise
        interrupted = True
    finally:
        if not isinstance(store, SweepStore):
            kept.close()
        if pool is not None:
            pool.close()
    designs = [design for design in chosen.values() if design is not None]
    if not designs:
        where = study.document.where(("where",) if study.where else ("axes",))
        raise BadInput(Fault(where, "a design that keeps all constraints", f"none of {len(chosen):,} that were tried"))
    found = DesignSweep(study, store if store is not None else kept, 0, everything=True, designs=designs).result()
    return replace(found, sampled=study.points, done=found.done and not interrupted)


def _search(
    study: Study,
    chooser: Sampler,
    chosen: dict[Choice, Design | None],
    count: int,
    store: SweepStore,
    workers: int,
    executor: Executor | None,
    progress: Callable[[str, float], None] | None,
) -> None:
    """Choose and search, as many designs at a time as there are workers."""
    points: dict[Choice, Sequence[float] | None] = {}
    tries, best = 0, math.inf
    while (found := sum(design is not None for design in chosen.values())) < count and tries < TRIES * count:
        batch: dict[Choice, Design] = {}
        while len(batch) < min(max(1, workers), count - found) and tries < TRIES * count:
            choice, tries = chooser.ask(), tries + 1
            if choice in batch:
                continue
            if choice in chosen:
                chooser.tell(choice, points[choice])
                continue
            design = study.design(choice)
            if design is None:
                chosen[choice] = points[choice] = None
                chooser.tell(choice, None)
            else:
                batch[choice] = design
        if not batch:
            continue
        result = DesignSweep(study, store, workers, executor, everything=True, designs=list(batch.values())).run()
        for (choice, design), outcome in zip(batch.items(), result.outcomes, strict=True):
            figures = [design.figures[name] for name in study.minimised]
            chosen[choice] = design
            points[choice] = [outcome.value, *figures] if np.isfinite(outcome.value) else None
            chooser.tell(choice, points[choice])
            best = min(best, outcome.value)
        if progress is not None:
            progress(f"{found + len(batch):,} of {count:,} designs, least {study.objective.value} {best:.4g}", found / count)
