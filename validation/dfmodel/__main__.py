"""``python -m validation.dfmodel``: Table VI of DFModel and Halley's figures beside it, for both sets of assumptions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from validation.dfmodel.case import GB, graph, mapping, problem, published
from validation.dfmodel.compare import costed
from validation.table import markdown

from halley.mapping.space.partitions import Kernels
from halley.spatial.chip import DFMODEL, HALLEY, Assumptions
from halley.spatial.solve import SpatialPlan, best_plan, plan

HEAD = ("mapping", "paper", "ours", "time per layer", "utilisation", "sequence tile", "partitions", "proven")

DESCRIBED = (("Add_Prev", "V"), ("MHA1", "MHA2"), ("PROJ", "FFN0"), ("GeLU", "Add2"))
"""First and last kernels of the partitions that section VII-C describes for the ring: PROJ and FFN0 run side by side."""


@dataclass(frozen=True, slots=True)
class Row:
    """A mapping of the table; ``paper`` is its speed there, over kernel by kernel, if it is there."""

    name: str
    paper: float | None
    plan: SpatialPlan
    tensor: int

    @property
    def time(self) -> float:
        """Of a layer, over all chips: a pipeline's stages work on several layers at once."""
        return self.plan.layer / self.plan.problem.stages


def runs(bounds: tuple[tuple[str, str], ...]) -> tuple[tuple[Kernels, int], ...]:
    """Partitions of consecutive kernels, by the names of their ends; nothing streams."""
    names = list(published()["forward"]["kernels"])
    ends = [(names.index(first), names.index(last)) for first, last in bounds]
    return tuple((sum(1 << place for place in range(first, last + 1)), 0) for first, last in ends)


def rows(assumptions: Assumptions, bandwidth: float) -> Iterator[Row]:
    """The four mappings of the table, and those that explain them; ``bandwidth`` [B/s] of DRAM."""
    paper, vendor = published()["table"], mapping("vendor")
    ring, torus = problem(8, 1, assumptions, bandwidth), problem(4, 2, assumptions, bandwidth)
    alone = problem(8, 1, assumptions, bandwidth, fused=False)
    yield Row("kernel by kernel, ring", paper["kernel by kernel"], best_plan(alone, [vendor.tile]), 8)
    yield Row("kernel by kernel, ring, any tile", None, best_plan(alone), 8)
    yield Row("vendor, ring", paper["vendor"], costed(vendor, assumptions, bandwidth), 8)
    described = plan(ring, vendor.tile, runs(DESCRIBED))
    yield Row("as described in the paper, ring", paper["optimised on the ring"], described, 8)
    yield Row("best, ring", paper["optimised on the ring"], best_plan(ring, [vendor.tile]), 8)
    yield Row("best, ring, any tile", None, best_plan(ring), 8)
    yield Row("published, torus", None, costed(mapping("optimised"), assumptions, bandwidth), 4)
    yield Row("best, torus, any tile", paper["optimised on the torus"], best_plan(torus), 4)


MODELS = {"dfmodel": DFMODEL, "halley": HALLEY}


def table(model: str, bandwidth: float) -> list[tuple[str, ...]]:
    """The cells. Proven: no plan of the same problem and tiles takes less."""
    found = list(rows(MODELS[model], bandwidth))
    work, chips = graph(1).work * published()["layers"], published()["chips"]
    return [
        (
            row.name,
            "" if row.paper is None else f"{row.paper:.2f}",
            f"{found[0].time / row.time:.2f}",
            f"{1e3 * row.time:.3f} ms",
            f"{100 * row.plan.utilisation(work, chips):.1f} %",
            str(row.plan.tile),
            str(len(row.plan.partitions)),
            "yes" if row.plan.proven else "",
        )
        for row in found
    ]


def main() -> int:
    for model in MODELS:
        for bandwidth in (published()["chip"]["dram_GBs"] * GB, published()["paper_dram_GBs"] * GB):
            print(f"model {model}, DRAM {bandwidth / GB:g} GB/s\n")
            print(markdown(HEAD, table(model, bandwidth)), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
