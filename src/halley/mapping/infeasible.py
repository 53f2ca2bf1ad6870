"""Diagnosis of infeasible problems: the memory that even the smallest tiles overflow, or ops that are never fused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible
from halley.ir.mapping import Hold
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.problem import Problem
from halley.mapping.space.affine import taps
from halley.mapping.space.frames.group import frames, fusible, runs_on_parts
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import OPERANDS, Hierarchy, hierarchy
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


def check_operands(problem: Problem, chosen: Sequence[Workload]) -> None:
    """Raises Infeasible: a memory beside the matrix engine is too small for the least tile of an operand, in which the taps of a
    sum with strides or padding stay whole. Nothing is searched then."""
    machine = hierarchy(problem.chip)
    faults = []
    for workload in chosen:
        where = f"{workload.name} on {problem.chip.name}"
        found = (_too_small(workload, op, machine, where) for op in workload.ops if op.kind is OpKind.CONTRACT)
        fault = next(filter(None, found), None)
        if fault is None:
            return
        faults.append(fault)
    raise Infeasible(faults[:1])


def _too_small(workload: Workload, op: Op, machine: Hierarchy, where: str) -> Fault | None:
    whole = set(taps(workload, op))
    least = {dim: 1 for dim in op.dims if dim not in whole} | {dim: workload.dims[dim] for dim in whole}
    for role, name in zip(OPERANDS[:2], op.inputs, strict=True):
        needed = workload.tensors[name].word
        for dim in workload.tensors[name].dims:
            index = next((index for index in op.indices if index.dim == dim), None)
            needed *= min(index.span(least), workload.dims[dim]) if index else least[dim]
        memory = max((machine.chip.memory(each) for each in machine.beside_engine(role)), key=lambda each: each.capacity)
        if needed > memory.capacity:
            expected = f"at most {memory.capacity:,.0f} B in {memory.name}"
            return Fault(where, expected, f"{needed:,.0f} B with the smallest tiles of {op.name}", f"enlarge {memory.name}")
    return None


def _not_fused(workload: Workload, machine: Hierarchy, kernel: Sequence[str]) -> str:
    """Why the declared space has no mapping of the ops of a kernel together; empty if it may have one."""
    group = FusedOps(workload, machine, tuple(workload.op(name) for name in kernel))
    if workload.divisible or fusible(group):
        return ""
    if runs_on_parts(group):
        return "a running softmax around other ops than attention"
    return "an op that reads nothing that another makes" if group.walks_rows() else "ops without a dim that all can walk as rows"


def tightest(problem: Problem, chosen: Sequence[Workload], where: str) -> Fault:
    """The memory that the smallest tiles overflow, or ops that are not fused, as a fault at ``where``."""
    machine = hierarchy(problem.chip)
    for workload in chosen:
        for kernel in kernels(workload):
            if why := _not_fused(workload, machine, kernel):
                expected = f"kernels that the declared space can fuse; {', '.join(kernel)} is one kernel"
                return Fault(where, expected, why, "divide the kernel, or write a mapping for 'halley estimate'")
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
