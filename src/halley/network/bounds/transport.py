"""Concurrent flow as a linear program, solved by HiGHS.

Needs SciPy (`pip install 'halley[solve]'`). Nothing imports this module but `halley.network.bounds.flow`, when it is asked to.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, hstack, identity, kron

from halley.network.bounds.concurrent import FlowProblem
from halley.network.bounds.shortest import Floats

SOLVED_STATUS = 0
"""linprog's status of an optimum."""


def solve(problem: FlowProblem, time_limit: float) -> tuple[Floats, Floats] | None:
    """(flows [sources, links] in bytes, lengths [links] of the best lower bound); None if the time [s] was up before.

    The lengths are the prices of the links' capacities, the dual of the program in `halley.network.bounds.concurrent`."""
    graph, sources = problem.graph, problem.sources
    links, many = len(graph.edges), len(sources)
    scale = float(problem.wanted.sum())
    rates = problem.capacities / problem.capacities.max()
    balance = _balance(problem)
    rows = np.setdiff1d(np.arange(many * graph.vertices), np.arange(many) * graph.vertices + sources)
    conserved = hstack([kron(identity(many), balance, format="csr")[rows], csr_array((len(rows), 1))], format="csr")
    sizes = problem.symmetry.class_sizes
    of_class = coo_array((1 / sizes[problem.symmetry.classes], (problem.symmetry.classes, np.arange(links))))
    carried = hstack([kron(problem.symmetry.counts[None, :], of_class), csr_array(-rates[:, None])], format="csr")
    result = linprog(
        np.append(np.zeros(many * links), 1.0),
        A_ub=carried,
        b_ub=np.zeros(len(rates)),
        A_eq=conserved,
        b_eq=problem.wanted.T.ravel()[rows] / scale,
        method="highs",
        options={"time_limit": time_limit},
    )
    if result.status != SOLVED_STATUS:
        return None
    flows = np.maximum(result.x[:-1], 0.0).reshape(many, links) * scale
    weights = np.maximum(-result.ineqlin.marginals, 0.0) * rates
    return flows, problem.lengths(weights / weights.sum())


def _balance(problem: FlowProblem) -> csr_array:
    """[vertices, links]: 1 where a link enters, -1 where it leaves."""
    edges = problem.graph.edges
    entering = coo_array((np.ones(len(edges)), ([edge.target for edge in edges], np.arange(len(edges)))), _shape(problem))
    leaving = coo_array((np.ones(len(edges)), ([edge.source for edge in edges], np.arange(len(edges)))), _shape(problem))
    return csr_array(entering - leaving)


def _shape(problem: FlowProblem) -> tuple[int, int]:
    return problem.graph.vertices, len(problem.graph.edges)
