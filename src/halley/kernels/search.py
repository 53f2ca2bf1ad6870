"""The best mapping of a kernel, and the time of a given one."""

from __future__ import annotations

import ctypes
import gc
import math
import sys

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible, SearchStopped
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.kernels.groups import GroupShape
from halley.kernels.searched import AttentionShape, KernelCost, KernelShape
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.rewrite.legality import check
from halley.workloads.registry import mapped_variant


def searched_kernel(chip: Chip, shape: KernelShape, limit: float | None = None) -> KernelCost:
    """The best mapping of a kernel in any of its variants, with proof. Of a group that no mapping fits, an infinite time.

    Raises SearchStopped: ``limit`` [s], or a signal, ended the search before; Infeasible: no mapping fits.
    """
    single = not isinstance(shape, AttentionShape)
    gc.freeze()  # what the caller holds, which collections during the search need not walk through
    try:
        best = optimise(Problem(shape.workload, chip, baselines=False, fixed_variant=single, time_limit=limit)).best
    except Infeasible:
        if isinstance(shape, GroupShape):
            return KernelCost(math.inf, "")
        raise
    finally:
        release_memory()
        gc.unfreeze()
    if best.status is Status.LIMIT:
        raise SearchStopped(Fault(f"{shape} on {chip.name}", "the best mapping, with proof", "none in time"))
    return KernelCost(best.certificate.value, to_text(best.plan))


def release_memory() -> None:
    """Returns memory of a finished search to the system: a search of attention takes some 900 MB, and the C library keeps
    what was freed, so that a few searches would take twice as much."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


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
    return mapped_variant(shape.workload, tree)
