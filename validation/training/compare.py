"""Measured iterations of training against plans with the same choices.

Everything that the run's framework decided is fixed, the splits of its ops among it; kernels, collectives, schedule and optimizer
are those of every plan. Software (`halley.kernels.software`) is fitted to every second row and judged on those between. Beside it
stand the same plans without a host, and one constant utilisation that is fitted on the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from validation.outcome import Case, Line, Outcome, covered
from validation.training.runs import FOUNDRY, TABLE, VTRAIN, Run, runs

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.software import load_software
from halley.io.networks.fits import load_libraries
from halley.io.systems.parts import usable_memory
from halley.io.systems.system import load_system
from halley.ir.placement import Replicate
from halley.ir.system import System
from halley.kernels.machine import Efficiency, machine
from halley.kernels.software import Software
from halley.kernels.sustained import under_load
from halley.memory.peak import training_memory
from halley.network.fit.overlay import Overlay
from halley.pipeline.iteration import iteration_time
from halley.pipeline.schedule import PipelineSchedule
from halley.sharding.communication import Communication, Interconnect
from halley.training.axis_bounds import GraphVariant
from halley.training.cost import Batch, PlanInputs, model_macs, training_of
from halley.training.part_costs import ModelCosts, PartCosts
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.space import training_space
from halley.training.sharded_model import ShardedModel
from halley.training.tensor_parallel import tensor_parallel
from halley.workloads.transformer import Transformer

SOFTWARE = {VTRAIN: "megatron-deepspeed", FOUNDRY: "llm-foundry"}
"""By source, the shipped software that was fitted to half of its rows."""

MEANS = {VTRAIN: 0.10, FOUNDRY: 0.10}
WORST = {VTRAIN: 0.45, FOUNDRY: 0.35}
"""Allowed of the rows held out."""

USABLE = usable_memory("a100", 80e9)
"""Bytes of an A100 that plans may fill."""

NO_HOST = Software("no host")
"""Launches in no time. Costs with it count what a host has to launch."""

FREE = math.inf
"""Allowed of lines that stand beside for comparison: anything."""


def problem(run: Run, software: Software | None) -> TrainingProblem:
    """The run with all that its framework decided."""
    system, libraries, efficiency = _machine(run.chips)
    fixed = Fixed(
        data=run.data,
        stages=run.stages,
        model=run.tensor,
        microbatch=run.microbatch,
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        chunks=1,
        recompute=run.recompute,
        sharded=run.sharded,
        offload=False,
        fused=run.fused,
    )
    if run.tensor > 1:
        splits = _splits(replace(run.shape, name="gpt", layers=1))
        axis = system.axes[0].name
        fixed = replace(fixed, splits={op: {axis: dim} for op, dim in splits.items()}, boundary=(Replicate(),))
    fitted = efficiency if software is None else software.of(efficiency)
    return TrainingProblem(
        run.shape, system, run.batch, run.shape.sequence, fitted, libraries, fixed=fixed, software=software, usable=USABLE
    )


@cache
def _machine(chips: int) -> tuple[System, Mapping[str, Overlay], Efficiency]:
    """So many A100 of one node, as measured."""
    system = load_system(f"{chips} x a100, nvlink {chips}" if chips > 1 else "1 x a100")
    return system, load_libraries(system), under_load(load_chip_fit("a100"), machine(system.chip))


@cache
def _splits(shape: Transformer) -> dict[str, str]:
    return tensor_parallel(shape, shape.sequence, False)


def iteration(run: Run, software: Software | None) -> float:
    """Time of an iteration [s] by the costs of the search for plans, whether or not it fits in memory."""
    return batched(run, software, lambda part: part, _costs(_alike(run), software))


def batched(
    run: Run,
    software: Software | None,
    changed: Callable[[PartCosts], PartCosts],
    known: list[ModelCosts] | None = None,
) -> float:
    """The same with ``changed`` costs of each part; ``known``: costs of runs that are alike, those without a host unless
    given."""
    asked = problem(run, software)
    space, costs = training_space(asked), _costs(_alike(run), NO_HOST) if known is None else known
    named = bool(asked.fixed.splits) or asked.fixed.boundary is not None
    times = list[float]()
    for layout in range(space.layouts):
        assignment = space.assignments[space.assignment[layout]]
        communication = Communication(Interconnect(asked.system, asked.libraries, named), assignment)
        if not costs:
            model = ShardedModel(problem(run, NO_HOST if known is None else software))
            costs.append(model.costs(communication, run.microbatch, GraphVariant(run.recompute, run.fused)))
        found = costs[0]
        first, layer, last = map(changed, found.parts)
        case = PlanInputs(communication, replace(found, embedding=first, blocks=((layer, run.shape.layers),), head=last))
        batch = Batch(space.pipeline(layout), run.sharded, False)
        times += iteration_time(training_of(asked, batch, [case]), attribute_transfers=False).time.tolist()
    return float(min(times))


def fits(run: Run) -> bool:
    """Whether the run fits in a chip's memory by the model of it: that it was measured says that it does."""
    asked = problem(run, None)
    space = training_space(asked)
    communication = Communication(Interconnect(asked.system, asked.libraries, False), space.assignments[0])
    batched(run, None, lambda part: part)
    known = _costs(_alike(run), NO_HOST)[0]
    found = replace(known, blocks=((known.blocks[0][0], run.shape.layers),))
    held = training_memory(training_of(asked, Batch(space.pipeline(0), run.sharded, False), [PlanInputs(communication, found)]))
    return bool((held.peak <= asked.capacity).all())


def _alike(run: Run) -> tuple[object, ...]:
    """Runs whose layers cost the same: collectives of one node's ranks depend on their number alone."""
    return replace(run.shape, name="", layers=1), run.tensor, run.microbatch, run.recompute, run.fused


@cache
def _costs(alike: tuple[object, ...], software: Software | None) -> list[ModelCosts]:
    """Costs of the parts of runs that are alike, once they are known."""
    return []


def constant(found: Sequence[Run], judged: Sequence[Run]) -> list[float]:
    """Times [s] at one share of the peak, which is that of least mean error on ``found``."""
    shares = np.array([_work(run) / run.seconds for run in found])
    best = min(shares.tolist(), key=lambda share: float(np.abs(shares / share - 1).mean()))
    return [_work(run) / best for run in judged]


def _work(run: Run) -> float:
    """Time at the peak [s], of the model's own work."""
    asked = problem(run, None)
    return 2 * run.batch * model_macs(asked) / (2 * run.chips * machine(asked.chip).mac_rate("bf16"))


def kendall(cases: Sequence[Case]) -> float:
    """Rank correlation of predicted and measured times: 1 where every pair has the same order, -1 where none has.

    >>> kendall([Case("a", 1.0, 2.0), Case("b", 2.0, 3.0), Case("c", 4.0, 1.0)])
    -0.3333333333333333
    """
    halley, figure = (np.array([getattr(case, name) for case in cases]) for name in ("halley", "figure"))
    pairs = np.triu_indices(len(cases), 1)
    signs = [np.sign(each[pairs[0]] - each[pairs[1]]) for each in (halley, figure)]
    return float((signs[0] * signs[1]).mean())


def cases(found: Sequence[Run], software: Software | None) -> tuple[Case, ...]:
    """Runs, predicted and measured."""
    return tuple(Case(run.name, iteration(run, software), run.seconds) for run in found)


def compare(folder: Path | None) -> Outcome:
    """Both sources: rows held out, the same without a host, a constant utilisation."""
    if folder is None or not (folder / TABLE).is_file():
        return Outcome("training", skipped="no data")
    lines, notes = [], []
    for source in (VTRAIN, FOUNDRY):
        every = runs(folder, source)
        fitted, judged = ([run for run in every if run.fitted is half] for half in (True, False))
        predicted = cases(judged, load_software(SOFTWARE[source]))
        lines.append(Line(f"{source}, held out", predicted, MEANS[source], WORST[source]))
        lines.append(Line(f"{source}, no software", cases(judged, None), FREE, FREE))
        plain = tuple(Case(run.name, time, run.seconds) for run, time in zip(judged, constant(fitted, judged), strict=True))
        lines.append(Line(f"{source}, one utilisation", plain, FREE, FREE))
        notes.append(
            f"{source}: rank correlation {kendall(predicted):.3f} (one utilisation {kendall(plain):.3f}); "
            f"{sum(not fits(run) for run in judged)} of {len(judged)} runs would be refused for memory; "
            f"{100 * covered(predicted):.0f} % lie in the interval of 80 %"
        )
    return Outcome("training", tuple(lines), tuple(notes))
