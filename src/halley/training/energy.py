"""Energy of an iteration of a plan: its kernels, what it sends over links, and static power for its time.

Kernels with a mapping have the energy of that mapping. Others have the energy of their work on the engines and of their bytes in
the outermost memory: what they move through memories inside the chip is left out. So are hosts, switches, cooling, and the loss
of power supplies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from halley.formulas.energy import action_energy, static_energy
from halley.ir.hardware import Chip
from halley.kernels.groups import GroupKernel
from halley.kernels.machine import MAC_ON_LANES, machine
from halley.kernels.searched import KernelShape, shape_of
from halley.kernels.times import Attention, Gemm, Kernel, Scan, demand, lane_work
from halley.training.groups import sharded_kernels
from halley.training.part_costs import part_counts, training_graphs
from halley.training.plan import TrainingProblem, TrainingResult

MAPPED, FORMULA, OPTIMIZER, LINKS, STATIC = (
    "kernels with a mapping",
    "other kernels: engines and outermost memory",
    "optimizer: outermost memory",
    "links of the system",
    "static power of the chips",
)


@dataclass(frozen=True, slots=True)
class PlanEnergy:
    """Energy [J] of an iteration of the whole system, by what takes it. ``unstated``: what counts as zero because its energy is
    not stated."""

    parts: Mapping[str, float]
    unstated: tuple[str, ...]

    @property
    def total(self) -> float:
        """All that is counted [J]."""
        return math.fsum(self.parts.values())


def plan_energy(result: TrainingResult) -> PlanEnergy:
    """The energy of an iteration.

    Links are counted as if the chips of all stages sent what those of the busiest one do, each byte over one link of its axis.
    """
    problem, plan, cost = result.problem, result.plan, result.cost
    system, chip = problem.system, problem.chip
    graphs = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)
    counts = part_counts(problem.shape, plan.microbatch, problem.sequence)
    ranks = plan.model * plan.data * plan.pipeline.microbatches
    known = {} if problem.searched is None else problem.searched.known
    found = {name: list[float]() for name in (MAPPED, FORMULA)}
    dynamic: dict[KernelShape, float] = {}
    for graph, part, count in zip(graphs, cost.parts.parts, counts, strict=True):
        for _, kernel, times in sharded_kernels(graph, part.sharding, problem.recipe.gradient):
            shape, runs = shape_of(kernel), count * ranks * times
            if shape is not None and shape in known:
                if shape not in dynamic:
                    dynamic[shape] = _mapped_energy(chip, shape, known[shape].mapping)
                found[MAPPED].append(runs * dynamic[shape])
            elif not isinstance(kernel, GroupKernel):  # a group only runs as one if it was searched
                found[FORMULA].append(runs * _formula_energy(chip, kernel))
    parts = {name: math.fsum(each) for name, each in found.items()}
    memory = next(load for load in cost.loads if load.resource == "memory")
    parts[OPTIMIZER] = system.chips * float(action_energy(memory.parts.get("optimizer", 0.0), _outer_energy(chip)))
    sent = [(item.count * size, system.axis(axis).link.energy) for item in cost.traffic for axis, size in item.sent.items()]
    parts[LINKS] = system.chips * math.fsum(float(action_energy(size, energy)) for size, energy in sent)
    parts[STATIC] = system.chips * float(static_energy(chip.static_power, cost.time))
    return PlanEnergy({name: energy for name, energy in parts.items() if energy}, tuple(_unstated(problem)))


def _formula_energy(chip: Chip, kernel: Kernel) -> float:
    """Work on the engines and bytes in the outermost memory [J]; what the chip's file does not state counts as zero."""
    macs, moved = demand(kernel)
    spent = [float(action_energy(float(moved), _outer_energy(chip)))]
    if isinstance(kernel, (Gemm, Attention, Scan)):
        spent.append(float(action_energy(float(macs), _mac_energy(chip, kernel.dtype))))
    if chip.vector is not None:
        energy = chip.vector.energy
        spent += [float(action_energy(float(count), energy.get(name, 0.0))) for name, count in lane_work(kernel).items()]
    return math.fsum(spent)


def _mac_energy(chip: Chip, dtype: str) -> float:
    """Of a multiply-accumulate on the engine that runs products of a type [J]; 0 where it is not stated."""
    if chip.vector is not None and machine(chip).on_lanes(dtype):
        return math.fsum(count * chip.vector.energy.get(name, 0.0) for name, count in MAC_ON_LANES.items())
    return chip.matrix.energy.get(dtype, 0.0) if chip.matrix is not None else 0.0


def _unstated(problem: TrainingProblem) -> Iterator[str]:
    """What counts as zero."""
    chip = problem.chip
    engines = [engine for engine in (chip.matrix, chip.vector) if engine is not None]
    if any(engine.energy.keys() < engine.rate.keys() for engine in engines):
        yield "engines"
    if not _outer_energy(chip):
        yield chip.levels[0].memories[0].name
    if not chip.static_power:
        yield "static power"
    yield from (f"links {axis.name}" for axis in problem.system.axes if not axis.link.energy)


def _outer_energy(chip: Chip) -> float:
    """Of a byte in the outermost memory [J/B]: reads and writes count alike, by the dearer one."""
    memory = chip.levels[0].memories[0]
    return max(memory.read_energy, memory.write_energy)


def _mapped_energy(chip: Chip, shape: KernelShape, mapping: str) -> float:
    # loaded when it is needed: plans with a library's times do not load the cost model of mappings
    found: Callable[[Chip, KernelShape, str], float] = import_module("halley.kernels.search").dynamic_energy
    return found(chip, shape, mapping)
