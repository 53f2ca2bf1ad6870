"""The fastest plan of training with fused groups, and the table that it needs: only shapes that good plans use are searched.

Shapes that the table lacks are taken to be as fast as any kernel. So what the plan search proves is a bound, and if its best plan
uses shapes of the table alone, it is the best: no other plan gains from a shape that is known, as entries only make plans slower.
Otherwise the shapes that plans used are searched, and the plan search is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from halley.errors import BadInput, Fault
from halley.planning.fusion import Fusion
from halley.planning.fusion_costs import FusedPair
from halley.planning.fusion_search import LIMIT, searched
from halley.planning.fusion_shapes import fusion_pattern
from halley.planning.fusion_table import FusionTable, empty_table, fingerprint
from halley.planning.plan import PlanCost, TrainingProblem, TrainingResult
from halley.planning.training_search import ALTERNATIVES, best_training_plan

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
    of a group's mappings; ``limit`` [s]: of one round of the plan search, which then gives the best so far. Others as
    `best_training_plan`.

    Raises BadInput: a chip that runs kernels side by side, a table of another chip; as `best_training_plan`.
    """
    chip = problem.system.chip
    found = empty_table(chip) if table is None else table
    _check(problem, found)
    rounds = 0
    while True:
        result = best_training_plan(replace(problem, fusions=found), progress, limit, others=others)
        rounds += 1
        missing = found.missing(_used(result))
        if not missing:
            return FusedResult(result, found, rounds)
        for number, (key, fusion) in enumerate(missing.items()):
            if progress is not None:
                progress(f"fused group {fusion.name}, {number + 1} of {len(missing)}", number / len(missing))
            found = found.with_entries({key: searched(fusion_pattern(fusion).workload(key.extents), chip, each)})
            if known is not None:
                known(found)


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
        yield from ((each.fusion, each.local) for each in joined_groups(cost))


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
