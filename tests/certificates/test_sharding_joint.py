"""Kernels that may run as one, chosen together with the sharding: against all assignments and all sets of pairs."""

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
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.sharding.strategies import AxisStrategy


@dataclass(frozen=True)
class Drawn:
    """Two ops whose time as one is drawn for each extents; some cannot be one."""

    seed: int
    first: tuple[str, ...]
    second: tuple[str, ...]

    def time(self, local: Mapping[str, int]) -> float:
        random = Random(f"{self.seed} {sorted(local.items())}")
        return math.inf if random.random() < 0.2 else random.uniform(0.0, 4.0)

    def many(self, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        rows = zip(*(counts.tolist() for counts in local.values()), strict=True)
        return np.array([self.time(dict(zip(local, row, strict=True))) for row in rows])


class Joining(Enumeration):
    """Every set of pairs is tried for every assignment."""

    def work_time(self, strategy: dict[str, tuple[AxisStrategy, ...]]) -> float:
        best = math.inf
        for chosen in itertools.product((False, True), repeat=len(self.problem.pairs)):
            taken = [pair for pair, one in zip(self.problem.pairs, chosen, strict=True) if one]
            if all(self.lies_as_made(pair, strategy) for pair in taken):
                inside = {name for pair in taken for name in (*pair.first, *pair.second)}
                apart = [self.op_time(self.work.op(name), ways) for name, ways in strategy.items() if name not in inside]
                best = min(best, math.fsum([*apart, *(pair.time(self.local(pair, strategy)) for pair in taken)]))
        return best

    def lies_as_made(self, pair, strategy: dict[str, tuple[AxisStrategy, ...]]) -> bool:
        ahead, after = self.work.op(pair.first[0]), self.work.op(pair.second[0])
        for place, name in enumerate(after.inputs):
            if name in ahead.outputs:
                made = [way.writes[ahead.outputs.index(name)] for way in strategy[ahead.name]]
                if made != [way.reads[place] for way in strategy[after.name]]:
                    return False
        return not any(way.collective for name in (ahead.name, after.name) for way in strategy[name])

    def local(self, pair, strategy: dict[str, tuple[AxisStrategy, ...]]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in (*pair.first, *pair.second):
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
            found.append(Drawn(random.randrange(1 << 30), (first,), (second,)))
    return tuple(found)


def compare(random: Random, given: ShardingProblem) -> bool:
    """Equal optima; whether pairs made a difference."""
    joint = replace(given, pairs=pairs_of(random, given.workload))
    found = shard(joint)
    wanted = Joining(joint).front()
    assert found.time == pytest.approx(wanted[0][0], rel=1e-8)
    assert found.certificate.bound <= found.time
    assert found.time <= shard(given).time * (1 + 1e-9), "apart is a choice, too"
    for each in found.fused_pairs:
        assert each.time < each.apart
        times = {item.op: item.time for item in found.ops}
        assert [times[name] for name in (*each.pair.first, *each.pair.second)] == [each.time, 0.0]
    return bool(found.fused_pairs)


def test_one_axis() -> None:
    assert sum(compare(random := Random(seed), problem(random, 1, random.randint(2, 3))) for seed in range(60)) > 15


def test_two_axes() -> None:
    assert sum(compare(random := Random(5000 + seed), problem(random, 2, 2)) for seed in range(6)) > 0


def test_no_pairs_change_nothing() -> None:
    random = Random(7)
    given = problem(random, 1, 3)
    impossible = tuple(replace(pair, seed=0) for pair in pairs_of(random, given.workload))

    class Never(Drawn):
        def time(self, local: Mapping[str, int]) -> float:
            return math.inf

    never = tuple(Never(0, pair.first, pair.second) for pair in impossible)
    apart, joint = shard(given), shard(replace(given, pairs=never))
    assert (joint.time, joint.ops, joint.redistributions, joint.fused_pairs) == (apart.time, apart.ops, apart.redistributions, ())
