"""The time of one plan, every choice of which is fixed, under other software: a log of a run describes such plans.

Shardings and times of kernels depend on the kernel rates, relative to the chip's fit, not on the host. So the parts of the model
are costed once for a few shares of the kernel rates, without a host. Between two shares k the times of a pass are interpolated
linearly in 1 / k: at a given tiling a kernel takes a constant plus work over rate. The host of the software is added afterwards.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from halley.errors import BadInput, Fault
from halley.formulas.numbers import ceil_div
from halley.ir.placement import Replicate, Shard
from halley.kernels.software import Software
from halley.pipeline.iteration import iteration_time
from halley.sharding.axes import Role, parts_of
from halley.sharding.communication import Communication, Interconnect
from halley.training.axis_bounds import GraphVariant
from halley.training.cost import Batch, PlanInputs, plan_cost, training_of
from halley.training.part_costs import ModelCosts, PartCosts, with_host
from halley.training.plan import Plan, PlanCost, TrainingProblem
from halley.training.search.space import training_space
from halley.training.sharded_model import ShardedModel
from halley.training.tensor_parallel import tensor_parallel

LEAST_SHARE = 0.2
"""Least share of the kernel rates that is costed."""
SHARES = tuple(LEAST_SHARE ** (step / 8) for step in range(8, -1, -1))
"""Shares of the kernel rates at which parts are costed, ascending to 1."""
CANDIDATES = 256
"""Largest number of plans that may remain where choices are fixed."""
VOCABULARY_MULTIPLE = 128
"""To a multiple of this per tensor-parallel rank, Megatron-LM pads the vocabulary (``--make-vocab-size-divisible-by``)."""
PASSES = ("forward", "recompute", "backward")

Known = dict[tuple[object, ...], ModelCosts]
"""Costs of models that plans share, by what they depend on."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedPlan:
    """A ``plan`` on an assignment of the axes, and its costs. ``problem``: without software; its efficiency is that of the
    chip's fit. ``known``: costs that equal models of several plans share."""

    problem: TrainingProblem
    plan: Plan
    communication: Communication
    known: Known = field(default_factory=dict)
    _times: dict[Software, float] = field(default_factory=dict)

    def time(self, software: Software) -> float:
        """Time of an iteration [s]; kernels between the costed shares are interpolated."""
        if software not in self._times:
            costs = _with_host(self._device(software), software)
            training = training_of(under(self.problem, software), self._batch, [PlanInputs(self.communication, costs)])
            self._times[software] = float(iteration_time(training, attribute_transfers=False).time[0])
        return self._times[software]

    def cost(self, software: Software) -> PlanCost:
        """The costs of an iteration as a search for plans finds them, without interpolation."""
        costs = _with_host(self._costed(software), software)
        return plan_cost(under(self.problem, software), self.plan, PlanInputs(self.communication, costs))

    @property
    def calls(self) -> bool:
        """Whether the host launches collectives between chips that share ops."""
        return bool(parts_of(self.plan.assignment, Role.MODEL))

    @property
    def _batch(self) -> Batch:
        return Batch(self.plan.pipeline, self.plan.sharded, self.plan.offload)

    def _device(self, software: Software) -> ModelCosts:
        """The costs without a host."""
        place = bisect_left(SHARES, software.kernels)
        if place in (0, len(SHARES)) or SHARES[place] == software.kernels:
            return self._costed(software)
        low, high = (self._costed(replace(software, kernels=SHARES[at])) for at in (place - 1, place))
        slow, fast = 1 / SHARES[place - 1], 1 / SHARES[place]
        part = (1 / software.kernels - fast) / (slow - fast)
        first, *layers, last = (_between(a, b, part) for a, b in zip(high.parts, low.parts, strict=True))
        return replace(high, embedding=first, blocks=tuple(zip(layers, high.layers, strict=True)), head=last)

    def _costed(self, software: Software) -> ModelCosts:
        """The costs without a host at a share that is not interpolated."""
        problem, plan = self.problem, self.plan
        variant = GraphVariant(plan.recompute, plan.fused)
        fixed = tuple(sorted((op, *dims.items()) for op, dims in problem.fixed.splits.items())), problem.fixed.boundary
        axes = problem.system.name, problem.system.axes, parts_of(plan.assignment, Role.MODEL)
        model = problem.shape, problem.sequence, plan.microbatch, variant, problem.recipe, repr(problem.efficiency)
        key = (*model, *axes, *fixed, software.kernels, software.on(problem.system.chip.name).attention)
        if key not in self.known:
            without = replace(software, launch=0.0, block=0.0, collective=0.0, graph=None)
            costs = ShardedModel(under(problem, without)).costs(self.communication, plan.microbatch, variant)
            self.known[key] = costs
        return self.known[key].on(self.communication.mesh, self.communication.model)


def under(problem: TrainingProblem, software: Software) -> TrainingProblem:
    """A problem without software, with this one on the problem's chip."""
    software = software.on(problem.system.chip.name)
    return replace(problem, software=software, efficiency=software.of(problem.efficiency))


def _with_host(costs: ModelCosts, software: Software) -> ModelCosts:
    first, *layers, last = (with_host(part, software) for part in costs.parts)
    return replace(costs, embedding=first, blocks=tuple(zip(layers, costs.layers, strict=True)), head=last)


def _between(high: PartCosts, low: PartCosts, part: float) -> PartCosts:
    """Costs of which the passes take ``part`` of the way from the first to the second."""
    return replace(high, **{name: (1 - part) * getattr(high, name) + part * getattr(low, name) for name in PASSES})


def fixed_plan(problem: TrainingProblem, software: Software, splits: bool | None = None, known: Known | None = None) -> FixedPlan:
    """The plan that the fixed choices of a problem without software leave; the fastest under ``software`` where assignments of
    axes, or other choices, remain. ``splits``: ops are split as in Megatron-LM (which pads the vocabulary), with
    tokens scattered between split weights or not; None: the sharding of least time. Memory is not checked: a plan that was
    measured did fit.

    Raises BadInput: no such plan, too many of them, or a model that Megatron-LM's splits do not describe.
    """
    found = min(_plans(problem, splits, {} if known is None else known), key=lambda each: each.time(software), default=None)
    if found is None:
        raise BadInput(Fault("fixed choices", "a plan", "none", "fix fewer choices"))
    return found


def _plans(problem: TrainingProblem, splits: bool | None, known: Known) -> Iterator[FixedPlan]:
    space = training_space(problem)
    pairs = np.argwhere(space.allowed).tolist()
    if len(pairs) > CANDIDATES:
        expected = f"at most {CANDIDATES} plans"
        raise BadInput(Fault("fixed choices", expected, f"{len(pairs)}", "fix more choices, or the parts of the axes"))
    interconnect = Interconnect(problem.system, problem.libraries, splits is not None)
    for layout, option in pairs:
        plan = space.plan(layout, option)
        communication = Communication(interconnect, plan.assignment)
        yield FixedPlan(_split(problem, communication, splits), plan, communication, known)


def _split(problem: TrainingProblem, communication: Communication, scattered: bool | None) -> TrainingProblem:
    """The problem with Megatron-LM's splits over the axes of the model's ranks."""
    mesh = communication.mesh
    if scattered is None or not mesh:
        return problem
    shape = problem.shape
    others = {"experts": shape.experts, "latent attention": shape.latent, "a state space": shape.state_space}
    if got := ", ".join(name for name, part in others.items() if part is not None):
        expected = "a model of dense layers for Megatron-LM's splits"
        raise BadInput(Fault("splits", expected, f"{shape.name}, with {got}", "leave the splits to the search"))
    words = VOCABULARY_MULTIPLE * math.prod(axis.ranks for axis in mesh)
    shape = replace(shape, vocabulary=ceil_div(shape.vocabulary, words) * words)
    ops = tensor_parallel(shape, problem.sequence, scattered)
    boundary = tuple(Shard("m") if scattered else Replicate() for _ in mesh)
    fixed = {op: {axis.name: dim for axis in mesh} for op, dim in ops.items()}
    return replace(problem, shape=shape, fixed=replace(problem.fixed, splits=fixed, boundary=boundary))
