"""The fastest plan of training with fused groups, and the table that it needs: only shapes that good plans use are searched.

Shapes that the table lacks are taken to be as fast as any kernel. So what the plan search proves is a bound, and if its best plan
uses shapes of the table alone, it is the best: no other plan gains from a shape that is known, as entries only make plans slower.
Otherwise the shapes that plans used are searched, and the plan search is asked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from halley.errors import BadInput, Fault, Infeasible
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.training.fusion.costs import FusedPair
from halley.training.fusion.groups import Fusion
from halley.training.fusion.search import LIMIT, UNPROVEN, searched
from halley.training.fusion.shapes import fusion_pattern
from halley.training.fusion.table import FusionEntry, FusionTable, empty_table, fingerprint
from halley.training.plan import Fixed, Outcome, Plan, PlanCost, TrainingProblem, TrainingResult
from halley.training.search.answer import alternative
from halley.training.search.search import ALTERNATIVES, CLOSED, CLOSED_WORDS, STOPPED_WORDS, best_training_plan

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class FusedResult:
    """``result``: the best plan; ``table``: with all shapes that it and those beside it use; ``rounds`` of the plan search."""

    result: TrainingResult
    table: FusionTable
    rounds: int


def best_fused_plan(
    problem: TrainingProblem,
    table: FusionTable | None = None,
    progress: Progress | None = None,
    limit: float | None = None,
    others: int = ALTERNATIVES,
    each: float = LIMIT,
    known: Callable[[FusionTable], None] | None = None,
) -> FusedResult:
    """The fastest plan where groups of kernels may run as one.

    ``table``: what is known from before, none unless given; ``known`` is told each that knows more. ``each`` [s]: of one search
    of a group's mappings; ``limit`` [s]: when to stop, as an interrupt does. Then the best plan so far is given as it is when
    groups of unknown shapes run apart. Others as `best_training_plan`.

    Raises BadInput: a chip that runs kernels side by side, a table of another chip; as `best_training_plan`.
    """
    chip = problem.system.chip
    found = empty_table(chip) if table is None else table
    _check(problem, found)
    end = math.inf if limit is None else time.monotonic() + limit
    rounds, before = 0, None
    while True:
        left = None if limit is None else end - time.monotonic()
        try:
            result = best_training_plan(replace(problem, fusions=found), progress, left, others=others)
        except Infeasible:
            # there was a plan in the round before: no other is known in time
            if before is None:
                raise
            return FusedResult(_settled(before, found), found, rounds)
        rounds, before = rounds + 1, result
        missing = found.missing(_used(result))
        if not missing:
            return FusedResult(result, found, rounds)
        stopped = result.outcome is Outcome.LIMIT
        for number, (key, fusion) in enumerate(missing.items()):
            if stopped:
                break
            if progress is not None:
                try:
                    progress(f"fused group {fusion.name}, {number + 1} of {len(missing)}", number / len(missing))
                except KeyboardInterrupt:
                    stopped = True
                    break
            entry, stopped = _searched(fusion_pattern(fusion).workload(key.extents), chip, each, end)
            if entry is not None:
                found = found.with_entries({key: entry})
                if known is not None:
                    known(found)
        if stopped:
            return FusedResult(_settled(result, found), found, rounds)


def _searched(group: Workload, chip: Chip, limit: float, end: float) -> tuple[FusionEntry | None, bool]:
    """What is known of a group after ``limit`` [s], and whether it is time to stop: because of an interrupt, or at ``end``."""
    began = time.monotonic()
    if began >= end:
        return None, True
    try:
        entry = searched(group, chip, min(limit, end - began))
    except KeyboardInterrupt:
        return None, True
    passed = time.monotonic() - began
    # a search that is interrupted gives the best so far, as one whose time is up
    if entry.found in UNPROVEN and passed < limit:
        return None, True
    return entry, began + passed >= end


def _settled(result: TrainingResult, table: FusionTable) -> TrainingResult:
    """The best of the plans as they are when groups that the table does not know run apart; the bound is that of plans where they
    may run as one."""
    pinned = _as_planned(result.problem.fixed, result.plan)
    own = best_training_plan(replace(result.problem, fixed=pinned, fusions=replace(table, settled=True)), others=0)
    known = [(each.plan, each.cost) for each in result.alternatives if not table.missing(_groups(each.cost))]
    best, *others = sorted([(own.plan, own.cost), *known], key=lambda found: found[1].time)
    rest = tuple(alternative(*best, *other) for other in others)
    proof = replace(result.certificate, value=best[1].time)
    # a plan that is as fast as the bound is proven even so
    closed = proof.gap <= CLOSED
    proof = replace(proof, closed=CLOSED_WORDS if closed else STOPPED_WORDS)
    outcome = Outcome.OPTIMAL if closed else Outcome.LIMIT
    return replace(result, plan=best[0], cost=best[1], alternatives=rest, certificate=proof, outcome=outcome)


def _as_planned(fixed: Fixed, plan: Plan) -> Fixed:
    """All that a plan says, beside what was fixed before."""
    pipeline = plan.pipeline
    return replace(
        fixed,
        data=plan.data,
        stages=pipeline.stages,
        model=plan.model,
        microbatch=plan.microbatch,
        schedule=pipeline.schedule,
        chunks=pipeline.chunks,
        recompute=plan.recompute,
        sharded=plan.sharded,
        offload=plan.offload,
        fused=plan.fused,
    )


class JoinedGroup(NamedTuple):
    """A group of a plan that runs as one in a ``part`` of the model: at a rank's ``local`` extents, in ``time`` [s]; ``apart``
    [s]: what its kernels take one by one."""

    part: str
    fusion: Fusion
    local: Mapping[str, int]
    time: float
    apart: float


def joined_groups(cost: PlanCost) -> Iterator[JoinedGroup]:
    """The groups of a plan that run as one."""
    for name, sharding in cost.shardings.items():
        for each in sharding.joined:
            if isinstance(each.pair, FusedPair):
                yield JoinedGroup(name, each.pair.fusion, each.local, each.time, each.apart)


def _used(result: TrainingResult) -> Iterator[tuple[Fusion, Mapping[str, int]]]:
    """Groups that run as one in the best plan and the plans beside it."""
    for cost in (result.cost, *(other.cost for other in result.alternatives)):
        yield from _groups(cost)


def _groups(cost: PlanCost) -> Iterator[tuple[Fusion, Mapping[str, int]]]:
    return ((each.fusion, each.local) for each in joined_groups(cost))


def _check(problem: TrainingProblem, table: FusionTable) -> None:
    """Raises BadInput: fused groups are not for this chip, or from another."""
    chip, faults = problem.system.chip, []
    if chip.streams:
        expected, got = "a chip that runs kernel by kernel", "one that runs kernels side by side"
        faults.append(Fault(f"fused groups on {chip.name}", expected, got, "leave them out: its plans fuse kernels anyhow"))
    if table.fingerprint != fingerprint(chip):
        got = f"one of {table.chip}" if table.chip != chip.name else f"one of another {table.chip}"
        faults.append(Fault("table of fused groups", f"one of {chip.name} as its file says", got, "name a new file"))
    if faults:
        raise BadInput(faults)
