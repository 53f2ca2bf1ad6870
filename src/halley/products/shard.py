"""`halley.shard`: any graph on a whole system, every op sharded over its axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from halley.graphs.plan import GraphPlan, GraphProblem, plan_graph
from halley.graphs.searched import plan_searched_graph
from halley.importers.training import LIBRARY, is_searched, refuse_unless_searched, sustained
from halley.io.cache import user_store
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.ir.workload import Workload
from halley.kernels.machine import PEAK
from halley.kernels.searched import SearchedKernels
from halley.products.arguments import at_least, checked, limit_of

Progress = Callable[[str, float], None]

FREE: Mapping[str, Mapping[str, str]] = MappingProxyType({})
"""No op has a fixed split."""


@checked
def shard(
    workload: Workload,
    system: System | str | Path,
    layers: int = 1,
    microbatches: int = 1,
    splits: Mapping[str, Mapping[str, str]] = FREE,
    chain: Iterable[tuple[str, str]] = (),
    overlap: bool = False,
    fused: bool = False,
    efficiency: str | None = None,
    kernels: str = LIBRARY,
    time_limit: float | str | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> GraphPlan:
    """The fastest sharding of a graph over all chips of a system, with a lower bound: any dim of each op along each axis.

    ``system``: as for `halley.plan`; ``layers``: the graph is one of so many equal layers; ``microbatches``: inputs in a row;
    ``splits``: by op and axis, the dim that is split, "" for none, where it is fixed; ``chain``: outputs, each with the input of
    the next layer that is laid out alike; ``overlap``: DFModel's view, in which compute, memory and network overlap; ``fused``:
    there, chips run fused kernels concurrently; ``efficiency``: fit of a chip's kernels; ``kernels``: ``"library"`` or
    ``"searched"``, and then ``time_limit`` in seconds, or as text, and ``workers``: processes that search kernels (a script needs
    ``if __name__ == "__main__"`` for more than one).

    >>> from halley import build
    >>> plan = shard(build("gemm", {"m": 65536, "n": 8192, "k": 8192}), "16 x h100, nvlink 8, ib")
    >>> plan.time < 10e-3
    True

    Raises BadInput: an unknown name, axis or dim, or numbers that make no sense; Infeasible: no sharding fits the memory;
    SearchStopped: the limit came before any sharding.
    """
    at_least("shard", 1, workers=workers)
    searched, limit = is_searched(kernels, efficiency), limit_of("shard", time_limit)
    refuse_unless_searched(searched, "time_limit", limit)
    found = system if isinstance(system, System) else load_system(system)
    problem = GraphProblem(
        workload,
        found,
        layers,
        microbatches,
        same_layout=tuple(tuple(pair) for pair in chain),
        overlap=overlap,
        fused=fused,
        efficiency=PEAK if overlap or searched else sustained(found, efficiency)[0],
        splits=splits,
        searched=SearchedKernels(found.chip) if searched else None,
    )
    return plan_searched_graph(problem, progress, limit, user_store(), workers) if searched else plan_graph(problem)
