"""The joint bound of shapes that differ in the order of their loops: below the cost of each, and it changes no answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse, to_text
from halley.mapping.bounds.chain_sets import starts
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.bounds.shapes import Compiled
from halley.mapping.groups import FusedGroups
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.solve import group_search as solve
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.partitions import every_partition
from halley.mapping.space.stages import Skeleton
from halley.workloads import build, gemm

DRAWS = 3
ROUNDING = 1e-12

KERNELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemm", {"m": 70, "n": 33, "k": 129, "b": 2}),
    ("conv-chain", {"height": 9, "width": 9, "channels": 3, "filters": 6}),
)


def searches(kind: str, parameters: dict[str, Any], chip: Chip, objective: str) -> list[GroupSearch]:
    """The searches of the kernels, one by one."""
    work = build(kind, parameters)
    groups = FusedGroups(Problem(work, chip, Objective(objective)), (objective,), (objective,), 0.0, SearchCounter())
    partitions, _ = every_partition(work)
    return [groups.of(work, kernels).search for kernels in partitions.groups if kernels.bit_count() == 1]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", "energy"])
@pytest.mark.parametrize("chip", ["edge", "a100"])
@pytest.mark.parametrize(("kind", "parameters"), KERNELS)
def test_no_order_costs_less_than_the_bound_of_all(kind: str, parameters: dict[str, Any], chip: str, objective: str) -> None:
    """The bound is made from one shape; every other one costs as much at least, on any sizes and numbers of buffers."""
    assert compared(kind, parameters, chip, objective) > 100


def test_no_order_of_a_small_gemm_costs_less_than_the_bound_of_all() -> None:
    assert compared("gemm", {"m": 24, "n": 40, "k": 12}, "edge", "time", most=2) > 30


def compared(kind: str, parameters: dict[str, Any], chip: str, objective: str, most: int = 100) -> int:
    """How many mappings were compared with the bound of their kin, in ``most`` of the frames, the last ones."""
    machine, random, count = load_chip(chip), np.random.default_rng(7), 0
    for search in searches(kind, parameters, machine, objective):
        for frame in search.frames[-most:]:
            if frame.joint or len(frame.stages) > 1:
                continue
            costs, bounds = search.costs, dict[Hashable, Compiled]()
            shared = costs.searched_slots(frame.shared)
            for shape in frame.stages[0].skeletons:
                if shape.kin is None:
                    continue
                if shape.kin not in bounds:
                    bounds[shape.kin] = costs.in_any_order(frame, shape)
                trees = costs.trees.of(shared, costs.searched_slots(shape.slots))
                rows = starts(trees, shared, costs.combinations(frame))
                row = int(random.integers(costs.combinations(frame)))
                picked = {dim: random.choice(tree.singles(rows[dim][[row]])[0], DRAWS) for dim, tree in trees.items()}
                least = bounds[shape.kin](picked, DRAWS)[:, 0]
                for at in range(DRAWS):
                    sizes = costs.fixed_sizes((*frame.shared, *shape.slots))
                    for dim, tree in trees.items():
                        sizes |= tree.sizes(int(picked[dim][at]))
                    found = evaluate(
                        search.costs.workload, machine, search.costs.enclose(GroupMapping(frame, (shape,), sizes).tree())
                    )
                    cost, case = getattr(found, objective) * (1 + ROUNDING), (frame.name, shape.name, sizes)
                    assert least[at] <= cost, case
                    if shape.plain is not None:
                        assert getattr(plain_bound(search, frame, shape, sizes), objective) <= cost, case
                    count += 1
    return count


def plain_bound(search: GroupSearch, frame: Frame, shape: Skeleton, sizes: Mapping[str, int]) -> Estimate:
    """The bound of all orders of the shape that holds no tensor around its inner loops, at the same sizes: loops that the other
    shape lacks have one iteration."""
    plain = next(own for own in frame.stages[0].skeletons if own.kin == shape.plain)
    own = dict(sizes)
    for slot in plain.slots:
        own.setdefault(slot.name, int(slot.limit(own)))
    tree = search.costs.enclose(GroupMapping(frame, (plain,), own).tree())
    return evaluate(search.costs.workload, search.costs.chip, tree, once=True)


@pytest.mark.parametrize(
    ("m", "n", "k", "chip"),
    [
        (16, 16, 16, "edge"),
        pytest.param(16, 16, 16, "cloud", marks=pytest.mark.slow),
        pytest.param(64, 8, 40, "edge", marks=pytest.mark.slow),
        pytest.param(64, 8, 40, "cloud", marks=pytest.mark.slow),
    ],
)
def test_joint_bounds_change_no_answer(monkeypatch: pytest.MonkeyPatch, m: int, n: int, k: int, chip: str) -> None:
    """Plan, cost and proof are those of a search that looks at every shape by itself; the work is less."""
    problem = Problem(build("gemm", {"m": m, "n": n, "k": k}), load_chip(chip))
    quick = optimise(problem)
    monkeypatch.setattr(solve, "ruled_out", lambda search, frame, skeleton: False)
    slow = optimise(problem)
    for one, other in zip((quick.best, *quick.baselines), (slow.best, *slow.baselines), strict=True):
        assert to_text(one.plan) == to_text(other.plan)
        assert (one.certificate.value, one.certificate.bound) == (other.certificate.value, other.certificate.bound)
        assert (one.status, one.certificate.size) == (other.status, other.certificate.size)
    if (m, chip) == (16, "edge"):
        assert quick.best.certificate.bounds < slow.best.certificate.bounds / 2.5


ORDERS = tuple(
    f"""
hold dram: A B C
  spread n by 4 over cluster.x
    spread n by 2 over cluster.y
      for m by 4
        for n by 2
          for k by 6
            hold glb x2: B
              hold glb x2: A
                hold obuf x2: C
                  {inner}
"""
    for inner in (
        """for m by 4
                    hold ibuf: A
                      for n by 2
                        hold wbuf x2: B
                          compute gemm""",
        """for n by 2
                    hold wbuf x2: B
                      for m by 4
                        hold ibuf: A
                          compute gemm""",
    )
)


@pytest.mark.parametrize(("one", "other"), list(permutations(ORDERS)))
def test_the_bound_of_all_orders_holds_with_a_single_buffer_around_another(one: str, other: str) -> None:
    """What moves inside a Hold with one buffer in one order moves around it in another."""
    workload, chip = gemm(12, 8, 6), load_chip("edge")
    bound, cost = evaluate(workload, chip, parse(one), once=True), evaluate(workload, chip, parse(other))
    assert bound.time <= cost.time
    assert bound.energy <= cost.energy
