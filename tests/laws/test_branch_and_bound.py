"""The branch-and-bound loop against enumeration, in all three orders of open nodes, and after interrupts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from halley.optim.branch_and_bound import Batch, Batches, LastFirst, LowestFirst, branch_and_bound, divide, explored


class Choices(NamedTuple):
    """The values of the first variables; ``bound``: their costs, and the least of the others."""

    bound: float
    values: tuple[int, ...]


class Problem:
    """The least of a sum of a cost per variable and a cost per pair of neighbours, all of them at least 0."""

    def __init__(self, seed: int, variables: int = 6, values: int = 3) -> None:
        draw = np.random.default_rng(seed)
        self.alone = draw.integers(0, 20, (variables, values)).astype(float)
        self.pairs = draw.integers(0, 20, (variables - 1, values, values)).astype(float)
        self.rest = [*np.cumsum(self.alone.min(axis=1)[::-1])[::-1].tolist(), 0.0]
        self.best, self.branched, self.root = math.inf, list[float](), Choices(0.0, ())

    def cost(self, values: tuple[int, ...]) -> float:
        alone = sum(self.alone[at, value] for at, value in enumerate(values))
        return float(alone + sum(self.pairs[at, a, b] for at, (a, b) in enumerate(itertools.pairwise(values))))

    def least(self) -> float:
        variables, values = self.alone.shape
        return min(self.cost(each) for each in itertools.product(range(values), repeat=variables))

    def bound(self, values: tuple[int, ...]) -> float:
        return self.cost(values) + self.rest[len(values)]

    def branch(self, node: Choices) -> Iterator[Choices]:
        self.branched.append(node.bound)
        if len(node.values) == len(self.alone):
            self.best = min(self.best, node.bound)
            return
        for value in range(self.alone.shape[1]):
            values = (*node.values, value)
            yield Choices(self.bound(values), values)

    def branch_batch(self, batch: Batch) -> Iterator[Batch]:
        bounds, rows = batch
        pairs = zip(bounds.ravel().tolist(), rows.tolist(), strict=True)
        nodes = [Choices(bound, tuple(value for value in row if value >= 0)) for bound, row in pairs]
        parts = [part for node in nodes for part in self.branch(node)]
        made = [part.values + (-1,) * (len(self.alone) - len(part.values)) for part in parts]
        yield np.reshape([part.bound for part in parts], (-1, 1)), np.reshape(made, (-1, len(self.alone)))

    def pruned(self, bound: float) -> bool:
        return bound >= self.best

    def pruned_rows(self, bounds: np.ndarray) -> np.ndarray:
        return np.asarray(bounds[:, 0] >= self.best)


@pytest.mark.parametrize("seed", range(20))
def test_every_order_finds_the_least_of_all_candidates(seed: int) -> None:
    least = Problem(seed).least()
    lowest, last, batches = Problem(seed), Problem(seed), Problem(seed)
    branch_and_bound(LowestFirst([lowest.root], lowest.pruned), lowest.branch)
    branch_and_bound(LastFirst([last.root], lambda node: last.pruned(node.bound)), last.branch)
    branch_and_bound(Batches((np.zeros((1, 1)), np.full((1, len(batches.alone)), -1)), batches.pruned_rows), batches.branch_batch)
    assert lowest.best == last.best == batches.best == least


@pytest.mark.parametrize("seed", range(20))
def test_lowest_first_divides_only_nodes_below_the_optimum(seed: int) -> None:
    problem = Problem(seed)
    branch_and_bound(LowestFirst([problem.root], problem.pruned), problem.branch)
    assert problem.branched == sorted(problem.branched)
    assert max(problem.branched) <= problem.least()


@pytest.mark.parametrize("steps", [0, 1, 5, 20])
def test_a_stopped_search_has_a_bound_of_all_candidates(steps: int) -> None:
    problem = Problem(3)
    open_nodes, left = LowestFirst([problem.root], problem.pruned), iter(range(steps))
    branch_and_bound(open_nodes, problem.branch, lambda: next(left, None) is None)
    assert len(problem.branched) == steps
    assert min(problem.best, open_nodes.bound) <= problem.least()
    branch_and_bound(open_nodes, problem.branch)
    assert problem.best == problem.least()
    assert open_nodes.closed


@pytest.mark.parametrize("at", range(1, 30, 4))
def test_what_an_interrupt_leaves_is_still_open(at: int) -> None:
    """Ctrl-C in the midst of a node, with some of its parts made: the search goes on later as if nothing had been."""
    problem, made = Problem(5), 0

    def interrupted(node: Choices) -> Iterator[Choices]:
        nonlocal made
        for part in problem.branch(node):
            made += 1
            if made == at:
                raise KeyboardInterrupt
            yield part

    for open_nodes in (LowestFirst([problem.root], problem.pruned), LastFirst([problem.root])):
        problem.best, made = math.inf, 0
        with pytest.raises(KeyboardInterrupt):
            branch_and_bound(open_nodes, interrupted)
        branch_and_bound(open_nodes, problem.branch)
        assert problem.best == problem.least()


def test_steps_give_each_node_after_it_was_divided() -> None:
    problem = Problem(1)
    nodes = [node.bound for node in explored(LowestFirst([problem.root], problem.pruned), problem.branch)]
    assert nodes == problem.branched


def test_a_node_may_be_divided_out_of_order() -> None:
    problem = Problem(2)
    open_nodes = LowestFirst([problem.root], problem.pruned)
    while max(len(node.values) for node in open_nodes) < len(problem.alone):
        deepest = max(open_nodes, key=lambda node: (len(node.values), -node.bound))
        open_nodes.remove(deepest)
        divide(open_nodes, deepest, problem.branch)
    branch_and_bound(open_nodes, problem.branch)
    assert problem.best == problem.least()


def test_a_beam_follows_so_many_nodes_of_lowest_bound() -> None:
    bounds = np.array([[3.0], [1.0], [2.0], [9.0]])
    batches = Batches((bounds, np.arange(4)[:, None]), lambda bounds: np.asarray(bounds[:, 0] > 8), beam=2)
    taken = batches.take()
    assert taken is not None
    assert taken[1].ravel().tolist() == [1, 2]
    assert batches.take() is None


def test_batches_keep_what_one_batch_cannot_hold() -> None:
    count = 5000
    bounds = np.random.default_rng(0).random((count, 2))
    batches = Batches((bounds, np.arange(count)[:, None]), lambda bounds: np.asarray(bounds[:, 0] < 0.1))
    found = list[int]()
    while (batch := batches.take()) is not None:
        assert batch[0][:, 0].tolist() == sorted(batch[0][:, 0].tolist())
        found += batch[1].ravel().tolist()
    assert sorted(found) == np.flatnonzero(bounds[:, 0] >= 0.1).tolist()
