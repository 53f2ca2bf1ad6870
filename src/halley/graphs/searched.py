"""A sharded graph with products that are searched on the chip: one proof over shardings and mappings.

Times of products start as lower bounds, so the time of the best sharding bounds all shardings with any mappings from below. Its
products are searched, and the shardings again with their exact times, until the best one has none that was not
(`halley.training.search.joint` does the same with plans of training).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from halley.answer import Status
from halley.errors import Fault, SearchStopped
from halley.graphs.kernels import inner_tensors, op_extents
from halley.graphs.plan import GraphPlan, GraphProblem, decided_graph_plan, graph_kernel, plan_graph
from halley.kernels.ahead import SearchesAhead
from halley.kernels.searched import KernelCost, KernelShape, KernelStore, SearchedKernels
from halley.kernels.times import Kernel
from halley.optim.deadline import Deadline, TimeIsUp
from halley.sharding.decisions import decisions_of
from halley.units import counted

Progress = Callable[[str, float], None]

LEFT_OUT_KERNELS = "mappings of kernels without products, and of groups of kernels: their times are from formulas, one by one"
UNSEARCHED_PRODUCTS = "mappings of {count} of this sharding, which the search did not reach: their times are from formulas"
"""What the mappings do not contain."""


def plan_searched_graph(
    problem: GraphProblem,
    progress: Progress | None = None,
    limit: float | None = None,
    store: KernelStore | None = None,
    workers: int = 1,
) -> GraphPlan:
    """The fastest sharding over all mappings of its products; other kernels take formulas at the rates of the data sheet.

    ``progress`` is called with the state of the search, and the share of the gap that is closed. ``limit`` [s]: time after which
    the search stops with the best sharding so far; an interrupt does the same. Products that were not searched then take their
    times from formulas. ``store``: products that were searched before, and where those of this search go; ``workers``:
    processes that search them, this one alone if fewer than two, on which the answer does not depend.

    Raises Infeasible: nothing fits into memory; BadInput: as `GraphProblem`; SearchStopped: no sharding was found in time.
    """
    kernels = SearchedKernels(problem.system.chip, store=store)
    problem = replace(problem, searched=kernels)
    deadline = Deadline() if limit is None else Deadline(time.perf_counter() + limit)
    best: GraphPlan | None = None

    try:
        with SearchesAhead(problem.system.chip, workers) as searches:
            while True:
                best = plan_graph(problem, deadline.check)
                missing = kernels.missing(graph_kernels(best))
                if not missing:
                    return _with_left_out(best, LEFT_OUT_KERNELS)
                for number, shape in enumerate(missing):
                    if progress is not None:
                        progress(f"searches {shape}, {number + 1} of {len(missing)} of a sharding", number / len(missing))
                    searches.expect(missing[number:], deadline.left())
                    kernels.add(shape, searches.search(shape, deadline.left()))
    except (KeyboardInterrupt, SearchStopped, TimeIsUp) as stop:
        if best is not None:
            return _by_formula(best)
        if isinstance(stop, TimeIsUp):
            where = f"{problem.workload.name} on {problem.system.name}"
            raise SearchStopped(Fault(where, "a sharding, in time", "none yet", "raise the time limit")) from None
        raise


def graph_kernels(plan: GraphPlan) -> Iterator[Kernel]:
    """The kernels of a sharding at the extents of one chip."""
    work, inner = plan.problem.workload, inner_tensors(plan.problem.workload)
    for op in work.ops:
        yield graph_kernel(work, op, op_extents(plan.sharding, op), inner)


def searched_products(plan: GraphPlan) -> dict[KernelShape, KernelCost]:
    """The searched products of a sharding, with their mappings; none if the times are a library's."""
    searched = plan.problem.searched
    return {} if searched is None else searched.found(graph_kernels(plan))


def _by_formula(found: GraphPlan) -> GraphPlan:
    """A sharding that is best by bounds, with times from formulas for products that were not searched; its bound holds."""
    searched = found.problem.searched
    assert searched is not None
    problem = replace(found.problem, searched=SearchedKernels(searched.chip, dict(searched.known), by_formula=True))
    plan = decided_graph_plan(problem, found.assignment, decisions_of(found.sharding))
    left = len(searched.missing(graph_kernels(plan)))
    bound = min(found.certificate.bound, plan.time)
    plan = replace(plan, certificate=replace(plan.certificate, bound=bound, status=Status.LIMIT))
    return _with_left_out(plan, LEFT_OUT_KERNELS, UNSEARCHED_PRODUCTS.format(count=counted(left, "product")))


def _with_left_out(plan: GraphPlan, *words: str) -> GraphPlan:
    return replace(plan, certificate=replace(plan.certificate, left_out=(*words, *plan.certificate.left_out)))
