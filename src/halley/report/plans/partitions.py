"""What runs side by side on a spatial chip, pass by pass: kernels, compute tiles, times, and what limits each partition."""

from __future__ import annotations

from collections.abc import Iterator

from halley.report.table import Table
from halley.spatial.costs import Partition
from halley.spatial.solve import SpatialPlan
from halley.training.plan import PlanCost
from halley.training.spatial.passes import PASSES
from halley.units import format_bytes, format_time

ALONE = "alone"
"""For kernels that keep nothing on the chip."""

HEAD = ("kernels side by side", "time", "tokens", "tiles", "compute", "memory", "network", "limit", "holds", "moves")


def on_chip_tables(cost: PlanCost) -> Iterator[Table]:
    """A table for each pass of each part of the model; none where kernels run one by one. The tokens that a partition takes at a
    time, what it holds on the chip and what it moves to or from memory, weights too, have columns of their own; the JSON document
    has each kernel's tiles, and what is paid once."""
    for name, part in zip(cost.shardings, cost.parts.parts, strict=True):
        for passing in PASSES:
            if passing in part.on_chip:
                yield _table(f"{name}, {passing} pass", part.on_chip[passing])


def _table(title: str, plan: SpatialPlan) -> Table:
    moved = format_bytes(plan.traffic + plan.loaded)
    rows = tuple(_row(part, plan.problem.chip.tiles) for part in plan.partitions)
    whole = ("in all", format_time(plan.layer), "", "", "", "", "", "", "", moved)
    tokens = plan.problem.graph.sequence
    caption = f"On the chip: {title}" + (f" of {tokens:,} tokens" if tokens > 1 else "")
    numbers = frozenset({1, 2, 3, 4, 5, 6, 8, 9})
    return Table(caption, HEAD, (*rows, whole), numbers, frozenset({len(rows)}), spare=frozenset({2, 3, 9}))


def _row(part: Partition, tiles: int) -> tuple[str, ...]:
    return (
        ", ".join(f"{name} (weights stream)" if name in part.streamed else name for name in part.names),
        format_time(part.steady + part.once),
        "" if part.unfused else f"{part.tile:,}",
        str(tiles if part.unfused else sum(part.tiles)),
        format_time(part.compute),
        format_time(part.memory) if part.memory else "",
        format_time(part.network) if part.network else "",
        ALONE if part.unfused else part.bottleneck,
        format_bytes(part.sram) if part.sram else "",
        format_bytes(part.traffic + part.loaded),
    )
