"""Plans and chip mappings chosen together or in two stages, with compound kernels and without: the rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from halley.importers.training import training_problem
from halley.io.cache import user_store
from halley.io.systems.system import load_system
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.kernels.groups import GroupShape
from halley.kernels.searched import AttentionShape
from halley.sharding.axes import Assignment, Role, assignment_text
from halley.training.plan import Fixed, Plan, TrainingProblem, TrainingResult
from halley.training.search.joint import KERNELS, best_joint_plan, searched_in_plan
from halley.training.search.search import best_training_plan
from studies.kept import Rows

NODE = 8
"""Chips of a node."""
NVLINK = 450e9
"""Bytes per second of a chip within a node: 18 links of NVLink 4."""
ROOMY, ROOM = ("tpu-v4i-like",), 80.0 * 2**30
"""Chips for inference, whose outermost memory gets so many bytes here: that of `cloud`."""
BATCH_PER_CHIP = 1
"""Sequences of an iteration for each chip."""


class Cell(NamedTuple):
    """A model on so many chips of one kind."""

    model: str
    chip: str
    chips: int

    @property
    def key(self) -> str:
        return f"{self.model} on {self.chips} x {self.chip}"


@cache
def system(cell: Cell) -> System:
    """Nodes of 8 chips at a switch, and a switch between nodes: the same network for all chips."""
    found = load_system(f"{cell.chips} x {cell.chip}, nvlink-4 {NODE}, infiniband-ndr")
    outer, inner = found.axes
    chip = _roomy(found.chip) if found.chip.name in ROOMY else found.chip
    return replace(found, chip=chip, axes=(outer, replace(inner, link=replace(inner.link, bandwidth=NVLINK))))


def _roomy(chip: Chip) -> Chip:
    """The chip with more memory."""
    first, *inner = chip.levels
    return replace(chip, levels=(replace(first, memories=(replace(first.memories[0], capacity=ROOM),)), *inner))


def problem(cell: Cell, fused: bool, fixed: Fixed | None = None) -> TrainingProblem:
    """The iteration of training. ``fused``: whether the chip may run compound kernels."""
    found = system(cell)
    if not fused and found.chip.streams:
        found = replace(found, chip=_one_by_one(found.chip))
    given = replace(fixed or Fixed(), fused=None if fused else False)
    batch = BATCH_PER_CHIP * cell.chips
    return training_problem(cell.model, found, batch, fix=given, whole=True, software="none", searched=True)


def _one_by_one(chip: Chip) -> Chip:
    """A spatial chip that runs one kernel at a time."""
    return replace(chip, streams=())


def spatial(cell: Cell) -> bool:
    """Whether the chip runs kernels side by side."""
    return bool(system(cell).chip.streams)


def best(cell: Cell, given: TrainingProblem) -> TrainingResult:
    """The best plan with the mappings of the chip: searched for each kernel, or partitions of a spatial chip."""
    return best_training_plan(given, others=0) if spatial(cell) else best_joint_plan(given, store=user_store())


def decided(plan: Plan) -> Fixed:
    """What the first of two stages decides: the role of each axis, the microbatch, and the pipeline. The second stage is free in
    all other decisions."""
    axes: dict[str, dict[Role, int]] = {}
    for part in plan.assignment:
        axes.setdefault(part.axis, {})[part.role] = part.size
    return Fixed(microbatch=plan.microbatch, schedule=plan.pipeline.schedule, chunks=plan.pipeline.chunks, axes=axes)


def _key(plan: Plan) -> tuple[Assignment, int, object, int]:
    return plan.assignment, plan.microbatch, plan.pipeline.schedule, plan.pipeline.chunks


def solve(cell: Cell) -> Rows:
    """The four plans of a cell, and those of two stages whose first one has exact times of kernels that are not fused."""
    formulas = best_training_plan(problem(cell, fused=False), others=0)
    apart, together = (best(cell, problem(cell, fused)) for fused in (False, True))
    firsts = {"formulas": formulas, "exact": apart}
    rows: Rows = []
    for fused, whole in ((False, apart), (True, together)):
        known = {_key(whole.plan): whole}
        for name, first in firsts.items():
            if _key(first.plan) not in known:
                known[_key(first.plan)] = best(cell, problem(cell, fused, decided(first.plan)))
            staged = known[_key(first.plan)]
            rows.append({**cell._asdict(), "fused": fused, "way": "two stages", "first": name, **_row(staged)})
        rows.append({**cell._asdict(), "fused": fused, "way": "joint", "first": "", **_row(whole)})
    return rows


def _row(result: TrainingResult) -> dict[str, Any]:
    """What is kept of a plan."""
    plan, certificate = result.plan, result.certificate
    searched = searched_in_plan(result)
    return {
        "time": result.cost.time,
        "bound": certificate.bound,
        "utilisation": result.cost.utilisation,
        "axes": assignment_text(plan.assignment),
        "data": plan.data,
        "stages": plan.pipeline.stages,
        "model_ranks": plan.model,
        "microbatch": plan.microbatch,
        "chunks": plan.pipeline.chunks,
        "recompute": str(plan.recompute),
        "attention": plan.fused,
        "zero": int(plan.sharded),
        "compound": sum(isinstance(shape, AttentionShape | GroupShape) for shape in searched),
        "in_plan": len(searched),
        "searched": certificate.effort.get(KERNELS, 0),
    }
