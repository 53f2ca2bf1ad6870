"""How fast all demands can be met over any routes at once: all-to-all, or any matrix, exactly or within a proven gap.

The transfer time of the best routing is a maximum concurrent flow. The answer is a routing, a lower bound that proves how
good it is, and what it takes to check both without trusting the solver (`Flow.check`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from halley.answer import Status, relative_gap
from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.network.bounds.concurrent import FlowProblem, Watch
from halley.network.bounds.demands import Demands, check_demands, length_bound
from halley.network.bounds.multiplicative import MultiplicativeWeights
from halley.network.bounds.shortest import Floats
from halley.network.bounds.symmetry import find_symmetry
from halley.network.graph.graph import Graph

METHODS = ("auto", "exact", "approximate")

LARGEST_PROGRAM = 20_000
"""Flow variables up to which ``auto`` solves the linear program: seconds."""

OPTIMAL_GAP = 1e-6
"""Relative gap below which time and bound count as equal: what a solver in floating point gets to."""


@dataclass(frozen=True, eq=False)
class Flow:
    """A routing of demands, and how good it is.

    ``demands`` [ranks, ranks] B; ``flows`` [ranks, links] B: what each source has on each link, for all its targets together;
    ``time`` [s] on the busiest link; ``bound`` [s]: none is faster, proven by ``lengths`` [links] (`length_bound`).
    """

    graph: Graph
    demands: Demands
    flows: Floats
    lengths: Floats
    time: float
    bound: float
    status: Status

    @property
    def gap(self) -> float:
        """By how much the routing may be slower than the best, relative to the bound."""
        return relative_gap(self.time, self.bound)

    @property
    def loads(self) -> Floats:
        """[links] B."""
        return np.asarray(self.flows.sum(axis=0))

    @property
    def limiting(self) -> int:
        """Index of the link that takes longest."""
        return int(np.argmax(self.loads / self.graph.bandwidths))

    def check(self, tolerance: float = 1e-7) -> None:
        """InternalError unless the flows bring every demand to its place, the time is the busiest link's, and the lengths give
        the bound; ``tolerance`` is relative to all that a source sends."""
        where = f"routing on network {self.graph.name}"
        source, target = (np.array([getattr(edge, end) for edge in self.graph.edges]) for end in ("source", "target"))
        faults = []
        if self.flows.min(initial=0.0) < 0:
            faults.append(Fault(where, "flows not below zero", f"{self.flows.min():g} B"))
        for rank, flow in enumerate(self.flows):
            surplus = np.bincount(target, flow, self.graph.vertices) - np.bincount(source, flow, self.graph.vertices)
            surplus[: self.graph.ranks] -= self.demands[rank]
            sent = float(self.demands[rank].sum())
            surplus[rank] += sent
            if np.abs(surplus).max() > tolerance * sent:
                faults.append(Fault(f"{where}, source {rank}", "all demands met", f"{np.abs(surplus).max():g} B off"))
        for name, found, claimed in (
            ("time", float(np.max(self.loads / self.graph.bandwidths)), self.time),
            ("bound", length_bound(self.graph, self.demands, self.lengths), self.bound),
        ):
            if abs(found - claimed) > tolerance * claimed:
                faults.append(Fault(where, f"the {name} of {claimed:g} s", f"{found:g} s"))
        if faults:
            raise InternalError(faults)


def concurrent_flow(
    graph: Graph,
    demands: Demands,
    *,
    method: str = "auto",
    tolerance: float = 0.03,
    time_limit: float = 60.0,
    progress: Watch | None = None,
) -> Flow:
    """The routing that meets all ``demands`` [ranks, ranks] (bytes from the row's rank to the column's) in the least time.

    ``method``: ``exact`` solves a linear program (needs SciPy), ``approximate`` stops at the relative gap ``tolerance`` and needs
    NumPy alone, ``auto`` takes the first where it is installed and the program small. After ``time_limit`` [s], or on Ctrl-C,
    the approximation returns the best routing so far; a linear program that runs out of time is replaced by it. ``progress`` is
    called in each round of the approximation.

    Raises BadInput for demands that are negative, endless, or of a rank to itself, for ranks that cannot reach each other, for
    an unknown method and where SciPy is asked for and missing.

    >>> from halley.ir.hardware import Link
    >>> from halley.network.bounds.demands import all_to_all
    >>> from halley.network.graph.graph import Edge
    >>> ring = Graph("ring", 4, tuple(Edge(i, (i + d) % 4, Link(10.0)) for i in range(4) for d in (1, -1)))
    >>> flow = concurrent_flow(ring, all_to_all(ring, 80), method="approximate")
    >>> round(flow.time, 6), round(flow.bound, 6)   # n S / (8 b)
    (4.0, 4.0)
    """
    _check_options(method, tolerance, time_limit)
    demands = np.asarray(demands, dtype=np.float64)
    check_demands(graph, demands)
    problem = FlowProblem(graph, demands, find_symmetry(graph, demands))
    solver = _solver(method, problem)
    solved = solver.solve(problem, time_limit) if solver else None
    if solved is not None:
        flows, lengths = solved
        return _answer(problem, flows, lengths, Status.OPTIMAL)
    return _approximate(problem, tolerance, time_limit, progress)


def _check_options(method: str, tolerance: float, time_limit: float) -> None:
    faults = []
    if method not in METHODS:
        faults.append(Fault("concurrent flow", "a known method", repr(method), did_you_mean(method, METHODS)))
    for name, value in (("tolerance", tolerance), ("time limit", time_limit)):
        if not value > 0:
            faults.append(Fault(f"concurrent flow, {name}", "a number above zero", f"{value:g}"))
    if faults:
        raise BadInput(faults)


def _solver(method: str, problem: FlowProblem) -> Any:
    """The module of the linear program if it is to be used."""
    variables = len(problem.sources) * len(problem.graph.edges)
    if method == "approximate" or (method == "auto" and variables > LARGEST_PROGRAM):
        return None
    try:
        return importlib.import_module("halley.network.bounds.transport")
    except ImportError as error:
        if method == "exact":
            remedy = "run: pip install 'halley[solve]', or take the method 'approximate'"
            raise BadInput(Fault("exact concurrent flow", "SciPy for its linear program", str(error), remedy)) from error
        return None


def _approximate(problem: FlowProblem, tolerance: float, time_limit: float, progress: Watch | None) -> Flow:
    routing, status = MultiplicativeWeights(problem), Status.INTERRUPTED
    try:
        for state in routing.rounds():
            if progress is not None:
                progress(state)
            if state.gap <= tolerance:
                status = Status.WITHIN
                break
            if state.spent > time_limit:
                status = Status.LIMIT
                break
    except KeyboardInterrupt:
        pass
    return _answer(problem, routing.flows, routing.lengths, status)


def _answer(problem: FlowProblem, flows: Floats, lengths: Floats, status: Status) -> Flow:
    """For all ranks, with time and bound computed anew from flows and lengths."""
    graph, demands = problem.graph, problem.demands
    whole = problem.symmetry.expanded(flows)
    time = float(np.max(whole.sum(axis=0) / graph.bandwidths))
    bound = min(time, length_bound(graph, demands, lengths))
    flow = Flow(graph, demands, whole, lengths, time, bound, status)
    if status in (Status.OPTIMAL, Status.WITHIN) and flow.gap <= OPTIMAL_GAP:
        return Flow(graph, demands, whole, lengths, time, bound, Status.OPTIMAL)
    return flow
