"""What the interpreter, the rule book, the formulas and the simulation have to agree on, for any tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from tests.reference.generate import random_chip, random_trees, random_workload
from tests.reference.test_counts import assert_agrees

from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import Execution, run
from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    children,
    walk,
)
from halley.ir.text import to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import Simulation, simulate
from halley.simulate.tasks import Path, Server


def run_if_legal(workload: Workload, chip: Chip, tree: Node, arrays: Mapping[str, np.ndarray]) -> Execution | None:
    """What a tree computes, None if it is illegal: the interpreter and the rule book must say the same, and where it is legal
    count the same."""
    told = described(workload, tree)
    found, objection, done = faults(tree, workload, chip), "", None
    try:
        done = run(workload, chip, tree, arrays)
    except BadInput as error:
        objection = str(error)
    assert bool(found) == bool(objection), f"{told}static: {[str(fault) for fault in found]}\ndynamic: {objection}"
    if done is not None:
        assert_agrees(workload, chip, tree, done)
    return done


def described(workload: Workload, tree: Node) -> str:
    """A problem and its tree, for a failure."""
    indices = [(op.name, [str(index) for index in op.indices]) for op in workload.ops]
    return f"{workload.name} {dict(workload.dims)} {indices}\n{to_text(tree)}\n"


@cache
def grown_trees(count: int, draw: Callable[[Random], Workload] = random_workload) -> list[tuple[Workload, Chip, Node]]:
    """Random legal trees of drawn problems with all node kinds, from the plainest by random edits."""
    found = []
    for seed in range(count):
        random = Random(seed)
        workload, chip = draw(random), random_chip(random)

        def legal(tree: Node, workload: Workload = workload, chip: Chip = chip) -> bool:
            return not faults(tree, workload, chip)

        *_, tree = random_trees(random, workload, chip, legal, 16)
        found.append((workload, chip, tree))
    return found


MOVING = (
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
    CollectiveKind.ALL_TO_ALL,
)


def dealt_again(workload: Workload, tree: Node) -> bool:
    """Whether a collective that gathers or scatters shares runs again on sums that it moved before: there the simulation takes
    what the last visit left for the payload (the interpreter's bytes are the formulas')."""
    nodes = dict(walk(tree))
    for path, node in nodes.items():
        if isinstance(node, Collective) and node.kind in {*MOVING, CollectiveKind.ALL_GATHER}:
            producer = workload.producer(node.tensors[0])
            around = [nodes[path[:depth]] for depth in range(len(path))]
            loops = {outer.dim for outer in around if isinstance(outer, Temporal | Pipeline)}
            if producer is not None and loops & set(workload.reduced(producer)):
                return True
    return False


def uniform(workload: Workload, tree: Node) -> bool:
    """No ragged tile anywhere: each loop's tile divides what the loop before it leaves."""
    extents = dict(workload.dims)

    def fits(node: Node, left: dict[str, int]) -> bool:
        if hasattr(node, "dim") and hasattr(node, "tile"):
            if left[node.dim] % min(node.tile, left[node.dim]):
                return False
            left = {**left, node.dim: min(node.tile, left[node.dim])}
        return all(fits(child, left) for child in children(node))

    return fits(tree, extents)


def without_prefetch(node: Node) -> Node:
    """The tree with one buffer in each Hold."""
    match node:
        case Hold():
            return replace(node, buffers=1, body=without_prefetch(node.body))
        case Temporal() | Spatial():
            return replace(node, body=without_prefetch(node.body))
        case Sequence() | Overlap() | Parallel() | Pipeline():
            return replace(node, children=tuple(map(without_prefetch, node.children)))
        case _:
            return node


def steady(found: Simulation) -> bool:
    """Whether one server holds up each task of a node every time (a sum of maxima is then the maximum of the sums)."""
    visits: dict[tuple[Path, str, float], dict[Server, float]] = {}
    for interval in found.intervals:  # the requests of a task start together, for nothing runs beside it
        visits.setdefault((interval.path, interval.name, interval.start), {})[interval.server] = interval.stop - interval.start
    always: dict[tuple[Path, str], set[Server]] = {}
    for (path, name, _), requests in visits.items():
        slowest = {server for server, time in requests.items() if time > max(requests.values()) * (1 - 1e-9)}
        always[path, name] = always.get((path, name), slowest) & slowest
    return all(always.values())


def without_prefetch_as_simulated(trees: Iterable[tuple[Workload, Chip, Node]]) -> int:
    """Number of trees whose time is exact: even tiles, one buffer in each Hold, nothing at once. Of each of them formula and
    simulation must give the same time."""
    judged = 0
    for workload, chip, drawn in trees:
        tree = without_prefetch(drawn)
        at_once = any(isinstance(node, Overlap | Parallel | Pipeline) for _, node in walk(tree))
        if at_once or not uniform(workload, tree) or dealt_again(workload, tree):
            continue
        found = simulate(workload, chip, tree)
        if steady(found):
            assert float(evaluate(workload, chip, tree).time) == pytest.approx(found.time, rel=1e-9), described(workload, tree)
            judged += 1
    return judged
