"""Kernels that may run as one, chosen together with the sharding: against all assignments and all sets of groups, which may
overlap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.certificates.test_sharding import Enumeration, problem

from halley.ir.workload import Workload
from halley.sharding.decisions import decided, decisions_of
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem, sharding_graph
from halley.sharding.strategies import AxisStrategy


@dataclass(frozen=True)
class Drawn:
    """Two or three ops whose time as one is drawn for each extents; some cannot be one."""

    seed: int
    parts: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        return " ".join(self.ops)

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(name for (name,) in self.parts)

    def time(self, local: Mapping[str, int]) -> float:
        random = Random(f"{self.seed} {sorted(local.items())}")
        return math.inf if random.random() < 0.2 else random.uniform(0.0, 2.0 * len(self.parts))

    def many(self, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        rows = zip(*(counts.tolist() for counts in local.values()), strict=True)
        return np.array([self.time(dict(zip(local, row, strict=True))) for row in rows])


class Joining(Enumeration):
    """Every set of groups that share no op is tried for every assignment."""

    def work_time(self, strategy: dict[str, tuple[AxisStrategy, ...]]) -> float:
        best = math.inf
        for chosen in itertools.product((False, True), repeat=len(self.problem.groups)):
            taken = [group for group, one in zip(self.problem.groups, chosen, strict=True) if one]
            inside = [name for group in taken for name in group.ops]
            if len(inside) == len(set(inside)) and all(self.lies_as_made(group, strategy) for group in taken):
                apart = [self.op_time(self.work.op(name), ways) for name, ways in strategy.items() if name not in inside]
                best = min(best, math.fsum([*apart, *(group.time(self.local(group, strategy)) for group in taken)]))
        return best

    def lies_as_made(self, group, strategy: dict[str, tuple[AxisStrategy, ...]]) -> bool:
        for ahead, after in itertools.combinations(map(self.work.op, group.ops), 2):
            for place, name in enumerate(after.inputs):
                if name in ahead.outputs:
                    made = [way.writes[ahead.outputs.index(name)] for way in strategy[ahead.name]]
                    if made != [way.reads[place] for way in strategy[after.name]]:
                        return False
            for dim in {*ahead.dims, *ahead.sequence} & {*after.dims, *after.sequence}:
                if [way.split == dim for way in strategy[ahead.name]] != [way.split == dim for way in strategy[after.name]]:
                    return False
        return not any(way.collective for name in group.ops for way in strategy[name])

    def local(self, group, strategy: dict[str, tuple[AxisStrategy, ...]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in group.ops:
            op = self.work.op(name)
            for dim in (*op.dims, *op.sequence):
                ranks = math.prod(axis.ranks for axis, way in zip(self.mesh, strategy[name], strict=True) if way.split == dim)
                found.setdefault(dim, -(-self.work.dims[dim] // ranks))
        return found


def pairs_of(random: Random, work: Workload) -> tuple[Drawn, ...]:
    """Makers with a reader of theirs, none in two pairs."""
    both = [(op.name, reader.name) for op in work.ops for name in op.outputs for reader in work.consumers(name)]
    random.shuffle(both)
    found, taken = [], set[str]()
    for first, second in dict.fromkeys(both):
        if taken.isdisjoint((first, second)):
            taken |= {first, second}
            found.append(Drawn(random.randrange(1 << 30), ((first,), (second,))))
    return tuple(found)


def groups_of(random: Random, work: Workload) -> tuple[Drawn, ...]:
    """Makers with a reader of theirs, and with a reader of that one; some share ops."""
    readers = {op.name: list(dict.fromkeys(each.name for out in op.outputs for each in work.consumers(out))) for op in work.ops}
    chains = [(first, second) for first, some in readers.items() for second in some]
    chains += [(first, second, third) for first, second in chains for third in readers[second]]
    chosen = random.sample(chains, min(len(chains), 4))
    return tuple(Drawn(random.randrange(1 << 30), tuple((name,) for name in chain)) for chain in chosen)


def compare(random: Random, given: ShardingProblem, draw=pairs_of) -> int:
    """Equal optima; the number of kernels in the largest group that runs as one."""
    joint = replace(given, groups=draw(random, given.workload))
    found = shard(joint)
    wanted = Joining(joint).front()
    assert found.time == pytest.approx(wanted[0][0], rel=1e-8)
    assert found.certificate.bound <= found.time
    assert found.time <= shard(given).time * (1 + 1e-9), "apart is a choice, too"
    for each in found.fused_groups:
        assert each.time < each.apart
        times = {item.op: item.time for item in found.ops}
        assert [times[name] for name in each.group.ops] == [each.time, *[0.0] * (len(each.group.ops) - 1)]
    decisions, tables = decisions_of(found), sharding_graph(joint)
    assert decided(tables, decisions).time == pytest.approx(found.time, rel=1e-12)
    return max((len(each.group.ops) for each in found.fused_groups), default=0)


def test_one_axis() -> None:
    assert sum(compare(random := Random(seed), problem(random, 1, random.randint(2, 3))) > 0 for seed in range(60)) > 15


def test_two_axes() -> None:
    assert sum(compare(random := Random(5000 + seed), problem(random, 2, 2)) > 0 for seed in range(6)) > 0


def test_groups_that_share_ops() -> None:
    """Pairs and groups of three, of which one op may be in several."""
    found = [compare(random := Random(100 + seed), problem(random, 1, 3), groups_of) for seed in range(60)]
    assert sum(size == 3 for size in found) > 5
    assert sum(size == 2 for size in found) > 5
    on_two_axes = [compare(random := Random(6000 + seed), problem(random, 2, 2), groups_of) for seed in range(6)]
    assert max(on_two_axes) > 0


def test_impossible_groups_change_nothing() -> None:
    random = Random(7)
    given = problem(random, 1, 3)
    impossible = groups_of(random, given.workload)

    class Never(Drawn):
        def time(self, local: Mapping[str, int]) -> float:
            return math.inf

    never = tuple(Never(0, group.parts) for group in impossible)
    apart, joint = shard(given), shard(replace(given, groups=never))
    assert (joint.time, joint.ops, joint.redistributions, joint.fused_groups) == (
        apart.time,
        apart.ops,
        apart.redistributions,
        (),
    )
