"""Entries of a table of fused groups, by the exact search of a chip's mappings."""

from __future__ import annotations

import math

from halley.errors import Infeasible
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.search.optimise import optimise
from halley.search.problem import Problem
from halley.search.result import Status
from halley.training.fusion.table import FusionEntry

LIMIT = 30.0
"""Time after which the search of a group ends with the best mapping so far and a true bound [s]."""

NO_MAPPING = "no mapping of the declared space keeps what is between on the chip"
NONE_IN_TIME = "no mapping found in time"
UNPROVEN = (Status.LIMIT.value, NONE_IN_TIME)
"""How searches that did not come to their end are told."""


def searched(group: Workload, chip: Chip, limit: float = LIMIT) -> FusionEntry:
    """What is known of a group, a workload of one kernel, after ``limit`` [s].

    >>> from halley.io.chips.load import load_chip
    >>> from halley.workloads.mlp import gemm_gelu_gemm
    >>> work = gemm_gelu_gemm(8, 4, 8)
    >>> one = Workload("one", work.dims, work.tensors, work.ops[:2], ("H",), kernels=(("expand", "activate"),))
    >>> searched(one, load_chip("edge")).found
    'optimal: no mapping of the declared space is better'
    """
    try:
        best = optimise(Problem(group, chip, baselines=False, time_limit=limit, fixed_variant=True)).best
    except Infeasible as none:
        late = any("time" in fault.expected for fault in none.faults)
        return FusionEntry(math.inf, math.inf, 0.0, NONE_IN_TIME if late else NO_MAPPING)
    proof = best.certificate
    outermost = chip.levels[0].memories[0].name
    return FusionEntry(proof.value, proof.bound, float(best.estimate.traffic(outermost)), best.status.value)
