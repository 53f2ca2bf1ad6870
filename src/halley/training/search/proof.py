"""A lower bound of one plan over all of its shardings, from its own critical path.

An iteration's time is computed from passes, transfers, collectives and the optimizer by sums and maxima, so it is that of its
longest path. The longest path for one sharding is a path for all others, whose time is at least that of the path:

    T(any sharding) >= sum over parts k (forwards_k forward_k + backwards_k backward_k) + rest

How often the path contains each pass is found by timing the plan again with each quantity raised slightly. The contributions of
the quantities must add up to the whole time; otherwise several paths are longest, and nothing is proven. A path has nearly as
many forward as backward passes of each part, and the least of their sum is known for each layout of the boundary. Convex
combinations of two paths are valid bounds as well.
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
from halley.training.cost import ACTIVATION_WORD_BYTES, PlanInputs, chunks_of_parts, norm_reductions, optimizer_of
from halley.training.part_costs import ModelCosts
from halley.training.plan import Plan, TrainingProblem
from halley.training.search.floors import LeastPasses

Floats = NDArray[np.float64]

PERTURBATION = 1e-6
"""Relative increase of a quantity."""

SUM_ERROR = 1e-7
"""Relative difference between the time and the sum of contributions that counts as rounding."""

MIXTURES = np.linspace(0.0, 1.0, 65)
"""Weights of the first of two paths that are tried."""

MAX_PATHS = 3
"""Largest number of paths for each layout of the boundary."""


class CriticalPath(NamedTuple):
    """A path through a plan: ``forwards``, ``backwards`` [parts]: numbers of passes of one microbatch; ``rest`` [s]: time of
    the rest."""

    forwards: Floats
    backwards: Floats
    rest: float


@dataclass(frozen=True, slots=True)
class PlanProof:
    """A plan with ``costs`` of its parts under the fastest shardings found; ``floors`` of its parts; ``bound`` [s]: lower bound
    over the shardings that fit, for all layers in a microbatch."""

    problem: TrainingProblem
    plan: Plan
    communication: Communication
    costs: ModelCosts
    floors: LeastPasses
    bound: float

    def least(self, target: float) -> float:
        """Lower bound of the plan under any sharding [s], improved until it reaches ``target`` [s].

        For each layout of the boundary, the parts take at least ``costs.by_boundary``, and all layers together ``bound``. The
        excess of the latter is assigned to the part that the paths contain least often; the longest path with it is then added
        to the paths.
        """
        paths, found = list[CriticalPath](), math.inf if self.costs.by_boundary else 0.0
        works = np.array(self.costs.by_boundary)
        # the fastest layouts come first: other bounds need not exceed the least one
        for row in np.argsort(works @ self.costs.counts, kind="stable") if len(works) else ():
            found = min(found, self._least_with(works[row], paths, min(target, found)))
        return found

    def _least_with(self, work: Floats, paths: list[CriticalPath], target: float) -> float:
        """The same where the parts take at least ``work`` [s] [parts]; ``paths``: known ones, to which new ones are added."""
        counts = np.array(self.costs.counts, float)
        extra, found, given = max(0.0, self.bound - float(work @ counts)), -math.inf, work
        for _ in range(MAX_PATHS):
            if paths:
                found, place = max(self._mixed(one, other, work, counts, extra) for one in paths for other in paths)
                given = work + extra / counts[place] * (np.arange(len(counts)) == place)
            if found >= target or (path := self.longest(given)) is None:
                return found
            paths.append(path)
        return max(self._mixed(one, other, work, counts, extra) for one in paths for other in paths)[0]

    def _mixed(self, one: CriticalPath, other: CriticalPath, work: Floats, counts: Floats, extra: float) -> tuple[float, int]:
        """The best bound from convex combinations of two paths [s], and the part that it contains least often."""
        share = MIXTURES[:, None]
        ahead = share * one.forwards + (1 - share) * other.forwards
        behind = share * one.backwards + (1 - share) * other.backwards
        both = np.minimum(ahead, behind)
        times = both @ work + extra * (both / counts).min(axis=1)
        times = times + (ahead - both) @ self.floors.forward + (behind - both) @ self.floors.backward
        times = times + MIXTURES * one.rest + (1 - MIXTURES) * other.rest
        best = int(times.argmax())
        return float(times[best]), int((both[best] / counts).argmin())

    def longest(self, work: Floats) -> CriticalPath | None:
        """The longest path where the parts take ``work`` [s] [parts], with least parameters and transfers; None where several
        paths are equally long."""
        ahead = np.array([part.forward / part.time for part in self.costs.parts]) * work
        return self.path(ahead, work - ahead)

    def path(self, ahead: Floats, behind: Floats) -> CriticalPath | None:
        """The same with these times of the parts' forward and backward passes [s] [parts]."""
        parts, known = len(ahead), np.concatenate((ahead, behind, [1.0]))
        time = iteration_time(self._raised(ahead, behind), attribute_transfers=False).time
        added = (time[1:] - time[0]) / PERTURBATION
        if abs(float(added.sum()) - time[0]) > SUM_ERROR * time[0]:
            return None
        often = np.divide(added, known, out=np.zeros_like(added), where=known > 0)
        # less the rounding that the check allows
        return CriticalPath(often[:parts], often[parts:-1], float(added[-1]) - SUM_ERROR * float(time[0]))

    def _raised(self, ahead: Floats, behind: Floats) -> PipelinedTraining:
        """The plan, and the plan with each quantity raised: forward and backward pass of each part, all the rest."""
        number, problem, plan = len(ahead), self.problem, self.plan
        up = np.vstack((np.ones(2 * number + 1), 1 + PERTURBATION * np.eye(2 * number + 1)))
        rest = up[:, -1]
        blocks = [
            LayerBlock(ahead[k] * up[:, k], behind[k] * up[:, number + k], parameters=float(parameters))
            for k, parameters in enumerate(self.floors.parameters)
        ]

        def collective(kind: CollectiveKind, payload: Number) -> Number:
            return self.communication.data(kind, payload) * rest

        data = DataParallel(np.full(len(up), float(plan.data)), plan.sharded, collective, problem.recipe, problem.contention)
        norm = float(norm_reductions([PlanInputs(self.communication, self.costs)])[0])
        optimizer = optimizer_of(problem, plan.offload, norm * rest)
        optimizer = replace(
            optimizer,
            bandwidth=optimizer.bandwidth / rest,
            start=optimizer.start * rest,
            offload=None if optimizer.offload is None else optimizer.offload / rest,
        )
        onward = [time * rest for time in self._transfers()]
        chunks = chunks_of_parts(blocks, self.costs.layers, plan.pipeline)
        return PipelinedTraining(plan.pipeline, chunks, data, optimizer, onward, onward)

    def _transfers(self) -> list[float]:
        """[chunks - 1] transfers of an activation that is divided over all chips of a stage [s]."""
        problem, plan = self.problem, self.plan
        size = plan.microbatch * problem.sequence * problem.shape.model * ACTIVATION_WORD_BYTES / plan.model
        return [float(self.communication.transfer(chunk % plan.pipeline.stages, size)) for chunk in range(plan.pipeline.last)]
