"""Diagnosis of infeasible problems: the memory that even the smallest tiles overflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible
from halley.ir.mapping import Hold
from halley.ir.workload import Workload
from halley.mapping.problem import Problem
from halley.mapping.space.frames import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import kernels
from halley.units import format_bytes


def check_outer_memory(problem: Problem) -> None:
    """Raises Infeasible: the outermost memory, which holds all inputs and results, is too small for them."""
    workload, chip = problem.workload, problem.chip
    outer = chip.memory(hierarchy(chip).outer)
    held = [name for name in workload.tensors if workload.producer(name) is None or name in workload.outputs]
    needed = sum(workload.bytes(name) for name in held)
    if needed > outer.capacity:
        where, expected = f"{workload.name} on {chip.name}", f"at most {format_bytes(outer.capacity)} in {outer.name}"
        got = f"{format_bytes(needed)} of inputs and results"
        raise Infeasible(Fault(where, expected, got, f"enlarge {outer.name}, or divide the problem"))


def tightest(problem: Problem, chosen: Sequence[Workload], where: str) -> Fault:
    """The memory that the smallest tiles overflow, as a fault at ``where``."""
    machine = hierarchy(problem.chip)
    for workload in chosen:
        for kernel in kernels(workload):
            space = frames(workload, machine, [workload.op(name) for name in kernel])
            needs: dict[str, float] = {}
            # on parts of an axis stages keep no less; nor do members in larger parts
            for frame in (frame for frame in space.plain if not frame.idles):
                tiles = {slot.name: 1 for slot in frame.shared}
                for stage in frame.stages:
                    for skeleton in stage.skeletons:
                        ones = {**tiles, **{slot.name: 1 for slot in skeleton.slots}}
                        names = list(workload.tensors)
                        tree = Hold(
                            machine.outer,
                            tuple((n,) for n in names),
                            frame.tree(ones, [skeleton.build(ones)] * len(frame.stages)),
                            1,
                        )
                        for memory, used in evaluate(workload, problem.chip, tree).footprint.items():
                            needs[memory] = min(needs.get(memory, np.inf), float(used))
            for memory, used in needs.items():
                capacity = problem.chip.memory(memory).capacity
                if used > capacity:
                    expected = f"at most {capacity:,.0f} B in {memory}"
                    return Fault(
                        where, expected, f"{used:,.0f} B with the smallest tiles of {', '.join(kernel)}", f"enlarge {memory}"
                    )
    return Fault(
        where,
        "a mapping that fits all memories",
        "none in the declared space",
        "enlarge the buffers or write a mapping for 'halley estimate'",
    )
