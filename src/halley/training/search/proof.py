"""A bound of one plan for all of its shardings, from its own critical path.

Passes, transfers, collectives and the optimizer are added up, and maxima are taken: the time of an iteration is that of its
longest path. The path that is longest for one sharding is a path for all others, whose time is no shorter:

    T(any sharding) >= sum over parts k (forwards_k forward_k + backwards_k backward_k) + rest

How often the path has each pass follows from the plan timed again with each quantity raised a little. What the quantities add
must make up the whole time; otherwise several paths are longest, and nothing is proven. A path has nearly as many forward as
backward passes of each part, and of their sum the least is known for each layout in which parts meet. Shares of two paths are a
bound as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.ir.mapping import CollectiveKind
from halley.pipeline.data_parallel import DataParallel, LayerBlock
from halley.pipeline.iteration import PipelinedTraining, iteration_time
from halley.sharding.communication import Communication
from halley.training.cost import WORD, Case, dealt_parts, norm_reductions, optimizer_of
from halley.training.part_costs import ModelCosts
from halley.training.plan import Plan, TrainingProblem
from halley.training.search.floors import LeastPasses

Floats = NDArray[np.float64]

RAISED = 1e-6
"""By which share quantities are raised."""

SUM_ERROR = 1e-7
"""Relative difference between the time and the sum of what adds to it that is put down to rounding."""

MIXES = np.linspace(0.0, 1.0, 65)
"""Shares of two paths that are tried as one bound."""

ROUNDS = 3
"""Paths that are looked for at most, for each layout in which parts meet."""


class Path(NamedTuple):
    """A path through a plan: ``forwards``, ``backwards`` [parts] of one microbatch, and the time of the ``rest`` [s]."""

    forwards: Floats
    backwards: Floats
    rest: float


@dataclass(frozen=True, slots=True)
class PlanProof:
    """A plan whose parts have the fastest shardings that were found, with ``costs``; ``floors`` of its parts; ``bound`` [s]:
    no shardings that fit take less for all layers in a microbatch."""

    problem: TrainingProblem
    plan: Plan
    communication: Communication
    costs: ModelCosts
    floors: LeastPasses
    bound: float

    def least(self, target: float) -> float:
        """No sharding of the plan takes less [s]; looked for until it reaches ``target`` [s].

        For each layout in which parts meet, the parts take at least ``costs.by_boundary``, and all layers together ``bound``:
        what that is more is given to the part that the paths have least often, and the path that is longest then joins them.
        """
        paths, found = list[Path](), math.inf if self.costs.by_boundary else 0.0
        works = np.array(self.costs.by_boundary)
        # those that take least come first: no other needs more than the least of them
        for row in np.argsort(works @ self.costs.counts, kind="stable") if len(works) else ():
            found = min(found, self._least_with(works[row], paths, min(target, found)))
        return found

    def _least_with(self, work: Floats, paths: list[Path], target: float) -> float:
        """The same where the parts take at least ``work`` [s] [parts]; ``paths``: known ones, which new ones join."""
        counts = np.array(self.costs.counts, float)
        extra, found, given = max(0.0, self.bound - float(work @ counts)), -math.inf, work
        for _ in range(ROUNDS):
            if paths:
                found, place = max(self._mixed(one, other, work, counts, extra) for one in paths for other in paths)
                given = work + extra / counts[place] * (np.arange(len(counts)) == place)
            if found >= target or (path := self.longest(given)) is None:
                return found
            paths.append(path)
        return max(self._mixed(one, other, work, counts, extra) for one in paths for other in paths)[0]

    def _mixed(self, one: Path, other: Path, work: Floats, counts: Floats, extra: float) -> tuple[float, int]:
        """The best bound that two paths give together [s], and the part that they have least often."""
        share = MIXES[:, None]
        ahead = share * one.forwards + (1 - share) * other.forwards
        behind = share * one.backwards + (1 - share) * other.backwards
        both = np.minimum(ahead, behind)
        times = both @ work + extra * (both / counts).min(axis=1)
        times = times + (ahead - both) @ self.floors.forward + (behind - both) @ self.floors.backward
        times = times + MIXES * one.rest + (1 - MIXES) * other.rest
        best = int(times.argmax())
        return float(times[best]), int((both[best] / counts).argmin())

    def longest(self, work: Floats) -> Path | None:
        """The longest path where the parts take ``work`` [s] [parts], with parameters and transfers that no sharding has less of;
        None where it cannot be told from others that are as long."""
        ahead = np.array([part.forward / part.time for part in self.costs.parts]) * work
        return self.path(ahead, work - ahead)

    def path(self, ahead: Floats, behind: Floats) -> Path | None:
        """The same where the passes of the parts, forward and backward, take as long [s] [parts]."""
        parts, known = len(ahead), np.concatenate((ahead, behind, [1.0]))
        time = iteration_time(self._raised(ahead, behind), attribute_transfers=False).time
        added = (time[1:] - time[0]) / RAISED
        if abs(float(added.sum()) - time[0]) > SUM_ERROR * time[0]:
            return None
        often = np.divide(added, known, out=np.zeros_like(added), where=known > 0)
        # what rounding and the check leave open is taken off
        return Path(often[:parts], often[parts:-1], float(added[-1]) - SUM_ERROR * float(time[0]))

    def _raised(self, ahead: Floats, behind: Floats) -> PipelinedTraining:
        """The plan, and beside it the plan with each quantity raised: forward and backward pass of each part, all the rest."""
        number, problem, plan = len(ahead), self.problem, self.plan
        up = np.vstack((np.ones(2 * number + 1), 1 + RAISED * np.eye(2 * number + 1)))
        rest = up[:, -1]
        blocks = [
            LayerBlock(ahead[k] * up[:, k], behind[k] * up[:, number + k], parameters=float(parameters))
            for k, parameters in enumerate(self.floors.parameters)
        ]

        def collective(kind: CollectiveKind, payload: Number) -> Number:
            return self.communication.data(kind, payload) * rest

        data = DataParallel(np.full(len(up), float(plan.data)), plan.sharded, collective, problem.recipe)
        norm = float(norm_reductions([Case(self.communication, self.costs)])[0])
        optimizer = optimizer_of(problem, plan.offload, norm * rest)
        optimizer = replace(
            optimizer,
            bandwidth=optimizer.bandwidth / rest,
            start=optimizer.start * rest,
            offload=None if optimizer.offload is None else optimizer.offload / rest,
        )
        onward = [time * rest for time in self._transfers()]
        chunks = dealt_parts(blocks, self.costs.layers, plan.pipeline)
        return PipelinedTraining(plan.pipeline, chunks, data, optimizer, onward, onward)

    def _transfers(self) -> list[float]:
        """[chunks - 1] of an activation that all chips of a stage share out [s]."""
        problem, plan = self.problem, self.plan
        size = plan.microbatch * problem.sequence * problem.shape.model * WORD / plan.model
        return [float(self.communication.transfer(chunk % plan.pipeline.stages, size)) for chunk in range(plan.pipeline.last)]
