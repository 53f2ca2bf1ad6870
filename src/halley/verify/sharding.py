"""Verification of shardings: at a reduced size, on a mesh of two ranks per axis, ranks that see only their own shares compute
what the graph does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from halley.errors import HalleyError, SearchStopped
from halley.execute.interpreter import random_inputs
from halley.graphs.plan import GraphPlan, plan_graph
from halley.graphs.searched import plan_searched_graph
from halley.ir.masks import with_extents
from halley.ir.workload import Workload
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding
from halley.units import format_bytes, format_time
from halley.verify.findings import TOLERANCE, Finding, Progress, certificate_finding, out_of_time, stop_after
from halley.verify.meshes import MeshRun, WrongShare, whole_graph

EXTENT = 4
"""Extents are halved until they are no larger."""

POINTS = 1 << 18
"""Most points of an op that is executed."""

OPTIMAL_GAP = 1e-6
"""Relative gap at which a search says optimal."""


def sharding_finding(name: str, sharding: Sharding) -> Finding:
    """The sharding executed: every output, put together from the ranks' shares, is that of the graph on one rank."""
    what, problem = "execution", sharding.problem
    if not problem.mesh:
        return Finding(name, what, True, "one rank: nothing is split")
    mesh = tuple(MeshAxis(axis.name, 2) for axis in problem.mesh)
    try:
        small = small_graph(problem.workload)
        if any(math.prod(small.dims[dim] for dim in op.dims) > POINTS for op in small.ops):
            return Finding(name, what, None, "too large to execute, even at a reduced size")
        given = random_inputs(small, seed=0)
    except HalleyError as error:
        return Finding(name, what, None, f"not a legal graph at reduced extents: {error.faults[0]}")
    reduced = replace(sharding, problem=replace(problem, workload=small, mesh=mesh, splits={}))
    size = f"{' '.join(f'{dim}={extent}' for dim, extent in small.dims.items())} on {' x '.join('2' for _ in mesh)} ranks"
    with np.errstate(all="ignore"):
        wanted = whole_graph(small, given)
        try:
            found = MeshRun(reduced, given).run()
        except WrongShare as error:
            return Finding(name, what, False, f"at {size}: {error}")
    wrong = [
        tensor for tensor, array in found.items() if not np.allclose(array, wanted[tensor], rtol=1e-6, atol=1e-9, equal_nan=True)
    ]
    detail = f"{', '.join(wrong)} differs from the graph on one rank at {size}" if wrong else f"outputs equal at {size}"
    return Finding(name, what, not wrong, detail)


def bytes_finding(name: str, sharding: Sharding, weights: float | None = None) -> Finding:
    """The bytes of every collective between ops on every axis, and the ``weights`` [elements] of a rank, against counts of the
    elements that ranks have, at full size; the execution shows that these collectives are the right ones. Over several axes, only
    tensors of equal parts are compared."""
    what, mesh = "bytes", MeshRun(sharding, {})
    wrong, sums = list[str](), dict.fromkeys((axis.name for axis in sharding.problem.mesh), 0)
    moves = [move for move in sharding.redistributions if not move.inside]
    steps = [(move.tensor, step) for move in moves for step in move.steps if step.kind is not None]
    compared = [
        (tensor, step) for tensor, step in steps if len(mesh.mesh) == 1 or (mesh.equal(step.before) and mesh.equal(step.after))
    ]
    for tensor, step in compared:
        carried = mesh.carried(tensor, step)
        if carried != step.bytes:
            wrong.append(f"{step.kind} of {tensor} carries {carried:,} B, not {step.bytes:,}")
        for axis in step.axes:
            sums[axis] += carried
    ends = {weight: sharding.ends[weight] for weight in sharding.problem.weights}
    if weights is not None and (len(mesh.mesh) == 1 or all(map(mesh.equal, ends.values()))):
        held = sum(mesh.elements(weight, layout) for weight, layout in ends.items())
        if held != weights:
            wrong.append(f"a rank has {held:,} weights, not {weights:,.0f}")
    over = "".join(f", {format_bytes(total)} over {axis}" for axis, total in sums.items())
    found = f"{len(compared)} of {len(steps)} collectives carry what ranks have{over}"
    return Finding(name, what, not wrong, "; ".join(wrong) or found)


def small_graph(work: Workload) -> Workload:
    """The graph with every extent divided by the same power of two, rounded up, until it is small."""
    dims = {}
    for dim, size in work.dims.items():
        factor = 1
        while -(-size // factor) > EXTENT:
            factor *= 2
        dims[dim] = -(-size // factor)
    return with_extents(work, dims)


def graph_plan_findings(
    plan: GraphPlan, limit: float = 60.0, search: bool = True, progress: Progress | None = None
) -> Iterator[Finding]:
    """A graph on a system: what a chip holds fits, the certificate is in order, ranks compute the right thing, and a search of at
    most ``limit`` [s] finds nothing better."""
    name, capacity = plan.problem.workload.name, plan.problem.capacity
    fits = plan.memory.total <= capacity
    yield Finding(name, "plan fits", fits, f"{format_bytes(plan.memory.total)} of {format_bytes(capacity)} on a chip")
    account = math.fsum(plan.account.values())
    yield Finding(name, "account", abs(account - plan.time) <= TOLERANCE * plan.time, f"parts add up to {format_time(account)}")
    yield certificate_finding(name, plan.certificate, plan.time, OPTIMAL_GAP)
    yield sharding_finding(name, plan.sharding)
    yield bytes_finding(name, plan.sharding)
    if search:
        try:
            if plan.problem.searched is None:
                again = plan_graph(plan.problem, stop_after(limit, progress))
            else:
                again = plan_searched_graph(plan.problem, progress, limit)
        except SearchStopped:
            yield out_of_time(name, "search again", limit)
            return
        by_formula = plan.problem.searched is not None and plan.problem.searched.by_formula  # it may be below every mapping
        above = again.certificate.bound > plan.time * (1 + OPTIMAL_GAP) and not by_formula
        worse = plan.certificate.bound > again.time * (1 + OPTIMAL_GAP) or above
        detail = f"{format_time(again.time)} found anew, bound {format_time(again.certificate.bound)}"
        proven = again.certificate.gap <= OPTIMAL_GAP or plan.time <= again.time * (1 + OPTIMAL_GAP)
        slower = plan.certificate.gap <= OPTIMAL_GAP and plan.time > again.time * (1 + OPTIMAL_GAP)
        yield Finding(name, "search again", False if worse or slower else True if proven else None, detail)
