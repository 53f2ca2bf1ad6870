"""The best mapping of a kernel, and the time of a given one."""

from __future__ import annotations

import math

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.errors import Fault, SearchStopped
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Hold, Node, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.kernels.searched import KernelCost, KernelShape, Product
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.rewrite.legality import check
from halley.workloads import variants


def searched_kernel(chip: Chip, shape: KernelShape, limit: float | None = None) -> KernelCost:
    """The best mapping of a kernel in any of its variants, with proof.

    Raises SearchStopped: ``limit`` [s], or a signal, ended the search before; Infeasible: no mapping fits.
    """
    single = isinstance(shape, Product)
    best = optimise(Problem(shape.workload, chip, baselines=False, fixed_variant=single, time_limit=limit)).best
    if best.status is Status.LIMIT:
        raise SearchStopped(Fault(f"{shape} on {chip.name}", "the best mapping, with proof", "none in time"))
    return KernelCost(best.certificate.value, to_text(best.plan))


def timed_kernel(chip: Chip, shape: KernelShape, mapping: str) -> KernelCost:
    """The cost of a kernel under a mapping. Raises BadInput: the text is no mapping, or an illegal one."""
    tree = parse(mapping)
    work = mapped_workload(shape, tree)
    check(tree, work, chip)
    return KernelCost(float(evaluate(work, chip, tree).time), mapping)


def dynamic_energy(chip: Chip, shape: KernelShape, mapping: str) -> float:
    """Energy [J] of a kernel under a mapping that is legal, without static power: of engines, memories, ports and links."""
    tree = parse(mapping)
    found = evaluate(mapped_workload(shape, tree), chip, tree).energy_by
    return math.fsum(float(energy) for name, energy in found.items() if name != "static")


def mapped_workload(shape: KernelShape, tree: Node) -> Workload:
    """The variant of a kernel that a mapping computes; the first if it computes none of them."""
    nodes = [node for _, node in walk(tree)]
    ops = {node.op for node in nodes if isinstance(node, Compute)}
    held = {name for node in nodes if isinstance(node, Hold) for name in node.names}
    for work in variants(shape.workload):
        if {op.name for op in work.ops} == ops and held <= work.tensors.keys():
            return work
    return shape.workload
