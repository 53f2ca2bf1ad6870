"""Shardings against the enumeration of all assignments: ways of every op, layouts of ends, and layouts that are kept for each
reader.

The enumeration shares the ways of an op and nothing else: it has its own prices, its own changes of layout (Bellman-Ford over
single collectives), its own readers, and no tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from random import Random

import numpy as np
import pytest
from tests.reference.drawn_graphs import Costs, drawn_graph, drawn_mesh, power_set

from halley.errors import BadInput, Infeasible
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Replicate, Shard
from halley.ir.workload import Op, Workload
from halley.optim import least_sum as sums
from halley.optim import value_bounds
from halley.optim.constrained import OverCapacity, check_fits, constrained_minimum
from halley.optim.elimination import CostTable, cost, eliminate, eliminate_partly
from halley.optim.least_sum import MinMarginals, least_sum
from halley.sharding.layouts import Layout
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.sharding.strategies import AxisStrategy, axis_strategies, partial_monoid

Front = list[tuple[float, float]]
"""(time, bytes) of choices of which none is better in both."""


class Enumeration:
    """All assignments of a small problem."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.problem, self.work, self.mesh = problem, problem.workload, problem.mesh
        self.partials = dict.fromkeys(self.work.tensors, "")
        self.ways: dict[str, list[tuple[AxisStrategy, ...]]] = {}
        for op in self.work.ops:
            found = axis_strategies(self.work, op, self.partials)
            self.partials |= dict.fromkeys(op.outputs, partial_monoid(found))
            self.ways[op.name] = list(itertools.product(found, repeat=len(self.mesh)))
        self.change = cache(self._change)
        self.known: dict[object, Front] = {}

    def parts(self, dim: str, layout: Layout) -> int:
        ranks = math.prod(axis.ranks for axis, place in zip(self.mesh, layout, strict=True) if place == Shard(dim))
        return -(-self.work.dims[dim] // ranks)

    def size(self, tensor: str, layout: Layout) -> int:
        item = self.work.tensors[tensor]
        return math.prod(self.parts(dim, layout) for dim in item.dims) * item.word

    def layouts(self, tensor: str, complete: bool) -> list[Layout]:
        each: list = [Replicate(), *(Shard(dim) for dim in self.work.tensors[tensor].dims if self.work.dims[dim] > 1)]
        if self.partials[tensor] and not complete:
            each.append(Partial(self.partials[tensor]))
        return list(itertools.product(each, repeat=len(self.mesh)))

    def single(self, tensor: str, source: Layout) -> Iterator[tuple[Layout, float]]:
        """Where one collective, or a slice, leads."""
        names = tuple(axis.name for axis in self.mesh)
        shards = [Shard(dim) for dim in self.work.tensors[tensor].dims if self.work.dims[dim] > 1]
        for axes in power_set(names):
            at = [names.index(name) for name in axes]
            here = {type(source[place]) for place in at}
            if here == {Partial}:
                whole = self.put(source, at, [Replicate()] * len(at))
                yield whole, self.price(CollectiveKind.ALL_REDUCE, axes, self.size(tensor, source))
                kind, targets = CollectiveKind.REDUCE_SCATTER, shards
            elif here == {Shard}:
                whole = self.put(source, at, [Replicate()] * len(at))
                yield whole, self.price(CollectiveKind.ALL_GATHER, axes, self.size(tensor, whole))
                kind, targets = CollectiveKind.ALL_TO_ALL, shards
            elif here == {Replicate}:
                kind, targets = None, shards
            else:
                continue
            for chosen in itertools.product(targets, repeat=len(at)):
                if any(source[place] == target for place, target in zip(at, chosen, strict=True)):
                    continue
                yield self.put(source, at, chosen), self.price(kind, axes, self.size(tensor, source)) if kind else 0.0

    def put(self, layout: Layout, at: list[int], chosen) -> Layout:
        found = list(layout)
        for place, target in zip(at, chosen, strict=True):
            found[place] = target
        return tuple(found)

    def price(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return self.problem.collective_time(kind, axes, size)

    def _change(self, tensor: str, source: Layout) -> dict[Layout, float]:
        best = {source: 0.0}
        while True:
            found = dict(best)
            for layout, spent in best.items():
                for target, price in self.single(tensor, layout):
                    if spent + price < found.get(target, math.inf):
                        found[target] = spent + price
            if found == best:
                return best
            best = found

    def op_time(self, op: Op, strategy: tuple[AxisStrategy, ...]) -> float:
        local = {}
        for dim in (*op.dims, *op.sequence):
            ranks = math.prod(axis.ranks for axis, way in zip(self.mesh, strategy, strict=True) if way.split == dim)
            local[dim] = -(-self.work.dims[dim] // ranks)
        time = self.problem.kernel_time(op, local)
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
            axes = tuple(axis.name for axis, way in zip(self.mesh, strategy, strict=True) if way.collective is kind)
            if axes:
                carried = op.outputs if kind is CollectiveKind.ALL_REDUCE else (next(w.moved for w in strategy if w.moved),)
                size = 0
                for name in carried:
                    made = name in op.outputs
                    place = (op.outputs if made else op.inputs).index(name)
                    places = [(way.writes if made else way.reads)[place] for way in strategy]
                    size += self.size(name, tuple(places))
                time += self.price(kind, axes, size)
        return time

    def work_time(self, strategy: dict[str, tuple[AxisStrategy, ...]]) -> float:
        return math.fsum(self.op_time(self.work.op(name), axis_strategies) for name, axis_strategies in strategy.items())

    def readers(self, tensor: str) -> list[tuple[str, int]]:
        """(op, place), ("end", 0), ("kept", 0), as the reader of the module's first lines would write them down."""
        names = [op.name for op in self.work.ops]
        border = names.index(self.problem.backward) if self.problem.backward else len(names)
        made = next((n for n, op in enumerate(self.work.ops) if tensor in op.outputs), -1)
        ops = enumerate(self.work.ops)
        read = [(n, op.name, place) for n, op in ops for place, name in enumerate(op.inputs) if name == tensor]
        early, late = [r[1:] for r in read if r[0] < border], [r[1:] for r in read if r[0] >= border]
        if tensor in self.work.outputs:
            (early if made < border else late).append(("end", 0))
        if late and made < border and (early or made >= 0):
            early.append(("kept", 0))
        return early + late

    def tensor_front(self, tensor: str, made: Layout, wants: list[Layout | None]) -> Front:
        """All sequences of kept layouts; None in ``wants`` is the time between the passes."""
        known = self.layouts(tensor, complete=False)
        weight = self.problem.weights.get(tensor)
        base = 0.0 if weight is None else self.size(tensor, made) / self.work.tensors[tensor].word * weight
        if tensor in self.problem.runs_per_change:
            (wanted,) = wants
            runs = self.problem.runs_per_change[tensor] if self.size(tensor, wanted) >= self.size(tensor, made) else 1
            return [(self.change(tensor, made)[wanted] / runs, base)] if wanted in self.change(tensor, made) else []
        states = {made: [(0.0, base)]}
        for number, wanted in enumerate(wants):
            following: dict[Layout, Front] = {}
            for before, front in states.items():
                for layout in known:
                    moved = self.change(tensor, before).get(layout, math.inf)
                    if wanted is None:
                        own, used = 0.0, float(self.size(tensor, layout)) * self.problem.in_flight
                        if weight is not None:
                            used = 0.0 if layout == made else float(self.size(tensor, layout))
                    else:
                        own, used = self.change(tensor, layout).get(wanted, math.inf), 0.0
                    if math.isfinite(moved + own):
                        following.setdefault(layout, []).extend((t + moved + own, b + used) for t, b in front)
            states = {layout: pareto(front) for layout, front in following.items()}
            assert number < len(wants)
        return pareto([point for front in states.values() for point in front])

    def front(self) -> Front:
        """The whole problem's."""
        ops = [op.name for op in self.work.ops]
        every: Front = []
        for chosen in itertools.product(*(self.ways[name] for name in ops)):
            strategy = dict(zip(ops, chosen, strict=True))
            whole: Front = [(self.work_time(strategy), 0.0)]
            for tensor in self.work.tensors:
                whole = pareto([(a + c, b + d) for a, b in whole for c, d in self.tensor_choices(tensor, strategy)])
            every = pareto(every + whole)
        return every

    def tensor_choices(self, tensor: str, strategy: dict[str, tuple[AxisStrategy, ...]]) -> Front:
        made = self.work.producer(tensor)
        readers = self.readers(tensor)
        if not readers:
            return [(0.0, 0.0)]
        starts = self.layouts(tensor, complete=True)
        if made is not None:
            starts = [tuple(way.writes[made.outputs.index(tensor)] for way in strategy[made.name])]
        ends = self.layouts(tensor, complete=True) if ("end", 0) in readers else [()]
        wants = [
            [
                None if op == "kept" else end if op == "end" else tuple(way.reads[place] for way in strategy[op])
                for op, place in readers
            ]
            for end in ends
        ]
        key = (tensor, tuple(starts), tuple(map(tuple, wants)))
        if key not in self.known:
            self.known[key] = pareto([p for start in starts for each in wants for p in self.tensor_front(tensor, start, each)])
        return self.known[key]


def pareto(points: Front) -> Front:
    found: Front = []
    for time, used in sorted(points):
        if not found or used < found[-1][1]:
            found.append((time, used))
    return found


def problem(random: Random, axes: int, ops: int) -> ShardingProblem:
    mesh = drawn_mesh(random, axes)
    work: Workload = drawn_graph(random, ops, (1, 2, 3, 5, 8))
    costs = Costs(random, mesh)
    backward = random.choice(("", random.choice(work.ops).name))
    weights = {name: 16.0 for name in work.inputs if work.consumers(name) and random.random() < 0.6}
    flying = random.choice((1.0, 3.0))
    once = {name: random.choice((2, 16)) for name in work.outputs if not work.consumers(name) and random.random() < 0.5}
    given = {"backward": backward, "weights": weights, "in_flight": flying, "runs_per_change": once}
    return ShardingProblem(work, mesh, costs.kernel, costs.wire, **given)


def compare(given: ShardingProblem) -> None:
    exhaustive = Enumeration(given)
    front = exhaustive.front()
    found = shard(given)
    assert found.time == pytest.approx(front[0][0], rel=1e-8)
    assert found.memory == pytest.approx(front[0][1], rel=1e-8), "of equal times, the least memory"
    for time, used in front[1:]:
        tight = shard(given, capacity=used * (1 + 1e-12))
        assert tight.time == pytest.approx(time, rel=1e-8)
        assert tight.memory <= used * (1 + 1e-9)
        assert tight.certificate.gap == 0.0
        assert tight.certificate.bound <= tight.time
    if front[-1][1] > 0:
        with pytest.raises(Infeasible, match="per rank; got at least"):
            shard(given, capacity=front[-1][1] * 0.99)


@pytest.mark.parametrize("seed", range(200))
def test_one_axis(seed: int) -> None:
    random = Random(seed)
    compare(problem(random, 1, random.randint(1, 3)))


@pytest.mark.parametrize("seed", range(12))
def test_two_axes(seed: int) -> None:
    random = Random(5000 + seed)
    compare(problem(random, 2, random.randint(1, 2)))


@pytest.fixture(params=["plain", "compiled", "looking"])
def bounds_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is small enough to eliminate at once: bounds by value, and branches, decide; or, with few values, what is left."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(value_bounds.SWITCH, "mode", "on" if request.param == "compiled" else "off")
    direct = "DIRECT_ELIMINATION_ENTRIES"
    for name in (direct,) if request.param == "looking" else (direct, "RESIDUAL_ENTRIES"):
        monkeypatch.setattr(sums, name, 0)
    if request.param == "looking":
        monkeypatch.setattr(sums, "PROBED_VALUES", 2)


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("seed", range(40))
def test_one_axis_by_bounds(seed: int) -> None:
    random = Random(2000 + seed)
    compare(problem(random, 1, random.randint(1, 3)))


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("seed", range(4))
def test_two_axes_by_bounds(seed: int) -> None:
    compare(problem(Random(6000 + seed), 2, 1))


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_three_axes(seed: int) -> None:
    compare(problem(Random(8000 + seed), 3, 1))


@pytest.mark.parametrize("seed", range(20))
def test_the_least_memory(seed: int) -> None:
    random = Random(3000 + seed)
    given = problem(random, 1, random.randint(1, 3))
    wanted = Enumeration(given).front()[-1][1]
    assert shard(given, wanted * (1 + 1e-6) + 1e-6).memory == pytest.approx(wanted)
    with pytest.raises(OverCapacity) as caught:
        shard(given, wanted * (1 - 1e-6) - 1e-6)
    assert caught.value.use == pytest.approx(wanted)


def drawn_tables(random: Random) -> list[CostTable]:
    """Tables over few variables; some combinations are not allowed."""
    sizes = {name: random.randint(1, 4) for name in "uvwxyz"[: random.randint(1, 6)]}
    numbers = np.random.default_rng(random.randrange(1 << 30))
    found = [CostTable((name,), numbers.integers(0, 9, size).astype(float)) for name, size in sizes.items()]
    for _ in range(random.randint(0, 7)):
        names = tuple(random.sample(list(sizes), min(len(sizes), random.randint(1, 3))))
        values = numbers.integers(0, 9, [sizes[name] for name in names]).astype(float)
        found.append(CostTable(names, np.where(numbers.random(values.shape) < 0.1, np.inf, values)))
    return found


def assignments(tables: list[CostTable]) -> Iterator[dict[str, int]]:
    sizes = {name: size for item in tables for name, size in zip(item.variables, item.values.shape, strict=True)}
    for values in itertools.product(*(range(size) for size in sizes.values())):
        yield dict(zip(sizes, values, strict=True))


@pytest.mark.parametrize("seed", range(150))
def test_elimination_finds_the_least_sum(seed: int) -> None:
    random = Random(seed)
    tables = drawn_tables(random)
    keep = tuple(random.sample(sorted({name for item in tables for name in item.variables}), random.randint(0, 1)))
    done = eliminate(tables, keep)
    for values in itertools.product(*(range(size) for size in done.rest.values.shape)):
        kept = dict(zip(keep, values, strict=True))
        wanted = min(cost(tables, each) for each in assignments(tables) if kept.items() <= each.items())
        assert done.rest.values[values] == wanted
        if math.isfinite(wanted):
            assert cost(tables, done.complete(kept)) == wanted


def test_more_variables_with_one_value_than_arrays_have_axes() -> None:
    """A star whose centre costs nothing to keep, with 80 leaves that are no choice."""
    leaves = [f"leaf {number}" for number in range(80)]
    costs = [CostTable(("centre", leaf), np.array([[2.0], [1.0]])) for leaf in leaves] + [
        CostTable(("centre",), np.array([0.0, 9.0]))
    ]
    uses = [CostTable((leaf,), np.array([3.0])) for leaf in leaves]
    found = constrained_minimum(costs, uses, 240.0)
    assert (found.cost, found.use, found.values["centre"]) == (89.0, 240.0, 1)
    assert found.values.keys() == {"centre", *leaves}
    with pytest.raises(OverCapacity):
        constrained_minimum(costs, uses, 239.0)


@pytest.mark.parametrize("seed", range(150))
def test_the_least_cost_within_a_capacity(seed: int) -> None:
    random = Random(9000 + seed)
    costs, uses = drawn_tables(random), drawn_tables(random)
    uses = [CostTable(item.variables, np.where(np.isinf(item.values), 20.0, item.values)) for item in uses]
    sizes = {n: s for item in costs for n, s in zip(item.variables, item.values.shape, strict=True)}
    uses = [item for item in uses if all(sizes.get(n) == s for n, s in zip(item.variables, item.values.shape, strict=True))]
    points = [(cost(costs, each), cost(uses, each)) for each in assignments(costs)]
    points = [point for point in points if math.isfinite(point[0])]
    if not points:
        with pytest.raises(BadInput, match="allowed"):
            constrained_minimum(costs, uses, 1.0)
        return
    for capacity in sorted({used for _, used in points})[:4]:
        found = constrained_minimum(costs, uses, capacity)
        assert found.cost == pytest.approx(min(time for time, used in points if used <= capacity))
        assert found.gap <= 1e-8
        assert found.use <= capacity


@pytest.mark.parametrize("seed", range(60))
def test_thinned_tables_have_the_same_least_sums(seed: int) -> None:
    random = Random(70000 + seed)
    tables = drawn_tables(random)
    names = sorted({name for item in tables for name in item.variables})
    keep = random.sample(names, random.randrange(len(names)))
    found = eliminate_partly(tables, keep, random.choice((1, 10, 100, 10000)))
    least_of: dict[tuple[int, ...], float] = {}
    for each in assignments(tables):
        key = tuple(each[name] for name in keep)
        least_of[key] = min(cost(tables, each), least_of.get(key, math.inf))
    done = eliminate(found.tables, keep)
    shape = done.rest.values.shape
    assert done.rest.values.ravel() == pytest.approx(np.array([least_of[key] for key in np.ndindex(shape)]))
    key = tuple(random.randrange(size) for size in shape)
    values = found.complete(done.complete(dict(zip(keep, key, strict=True))))
    assert sorted(values) == names
    assert cost(tables, values) == pytest.approx(least_of[key])


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_nowhere_is_refused_by_its_uses_alone(seed: int) -> None:
    uses = drawn_pairs(Random(80000 + seed))
    wanted = min(cost(uses, each) for each in assignments(uses))
    if math.isinf(wanted):
        return
    check_fits(uses, wanted)
    with pytest.raises(OverCapacity) as caught:
        check_fits(uses, wanted - 1e-6 * max(1.0, abs(wanted)))
    assert caught.value.use == pytest.approx(wanted)


@pytest.mark.parametrize("seed", range(40))
def test_a_search_cut_short_has_a_bound_that_holds(seed: int) -> None:
    """And the same one every time: effort is counted in entries of tables."""
    random = Random(60000 + seed)
    costs, uses = drawn_pairs(random), drawn_pairs(random)
    sizes = {n: s for item in costs for n, s in zip(item.variables, item.values.shape, strict=True)}
    uses = [CostTable(item.variables, np.where(np.isinf(item.values), 20.0, item.values)) for item in uses]
    uses = [item for item in uses if all(sizes.get(n) == s for n, s in zip(item.variables, item.values.shape, strict=True))]
    points = [(cost(costs, each), cost(uses, each)) for each in assignments(costs)]
    points = [point for point in points if math.isfinite(point[0])]
    if not points:
        pytest.skip("nothing is allowed")
    capacity = sorted({used for _, used in points})[len(points) // 3 % len({used for _, used in points})]
    wanted = min(time for time, used in points if used <= capacity)
    for effort in (0, 100, 1000):
        found, again = (
            constrained_minimum(costs, uses, capacity, effort=effort),
            constrained_minimum(costs, uses, capacity, effort=effort),
        )
        assert found.bound <= wanted * (1 + 1e-9) + 1e-9
        assert found.cost >= wanted - 1e-9
        assert found.use <= capacity
        assert (found.cost, found.bound, found.nodes, found.entries) == (again.cost, again.bound, again.nodes, again.entries)


def drawn_pairs(random: Random) -> list[CostTable]:
    return [item for item in drawn_tables(random) if len(item.variables) <= 2]


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("seed", range(100))
def test_the_least_sum_by_bounds(seed: int) -> None:
    random = Random(20000 + seed)
    tables = drawn_pairs(random)
    best = min(cost(tables, each) for each in assignments(tables))
    found = least_sum(tables)
    if math.isinf(best):
        assert found is None
        return
    assert found is not None
    assert found.total == pytest.approx(best)
    assert cost(tables, found.values) == pytest.approx(best)


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("seed", range(60))
def test_bounds_of_values_hold(seed: int) -> None:
    """After any number of passes, and when values that cannot be best are gone."""
    random = Random(30000 + seed)
    tables = drawn_pairs(random)
    name = random.choice(sorted({name for item in tables for name in item.variables}))
    found = value_bounds.value_bounds(tables)
    size = {n: s for item in tables for n, s in zip(item.variables, item.values.shape, strict=True)}[name]
    wanted = [min(cost(tables, each) for each in assignments(tables) if each[name] == value) for value in range(size)]
    for _ in range(5):
        found.sweep(random.randint(1, 3))
        assert (found.bounds(name, size) <= np.array(wanted) + 1e-9).all()
        assert found.lowest <= min(wanted) + 1e-9
        if found.chosen is not None:
            assert cost(tables, found.chosen) == pytest.approx(found.best)
            assert found.best >= min(wanted) - 1e-9
        if found.needed().all() or math.isinf(min(wanted)):
            continue
        found = found.restricted(found.needed())


@pytest.mark.usefixtures("bounds_alone")
@pytest.mark.parametrize("seed", range(60))
def test_the_least_sum_by_value(seed: int) -> None:
    random = Random(40000 + seed)
    tables = drawn_pairs(random)
    name = random.choice(sorted({name for item in tables for name in item.variables}))
    by = MinMarginals(tables, name)
    if seed % 2:
        # looked for roughly first, bounds go on from there
        assert by.floor <= min(cost(tables, each) for each in assignments(tables)) + 1e-9
    for value, bound in enumerate(by.bounds):
        wanted = min(cost(tables, each) for each in assignments(tables) if each[name] == value)
        assert bound <= wanted + 1e-9
        below = by.solved(value, limit=wanted + random.choice((-1.0, 1.0)))
        found = by.solved(value)
        assert below is None or below.total == pytest.approx(wanted)
        assert (found is None) == math.isinf(wanted)
        if found is not None:
            assert found.values[name] == value
            assert cost(tables, found.values) == pytest.approx(wanted)
            assert by.solved(value, limit=wanted * (1 + 1e-6) + 1e-6) == found
            assert by.solved(value, limit=wanted) is None


@pytest.mark.parametrize("seed", range(30))
def test_the_least_use(seed: int) -> None:
    random = Random(50000 + seed)
    costs, uses = drawn_pairs(random), drawn_pairs(random)
    sizes = {n: s for item in costs for n, s in zip(item.variables, item.values.shape, strict=True)}
    uses = [item for item in uses if all(sizes.get(n) == s for n, s in zip(item.variables, item.values.shape, strict=True))]
    allowed = [cost(uses, each) for each in assignments(costs) if math.isfinite(cost(costs, each))]
    wanted = min(allowed, default=math.inf)
    with pytest.raises(BadInput if math.isinf(wanted) else OverCapacity) as caught:
        constrained_minimum(costs, uses, wanted - 1 if math.isfinite(wanted) else 0.0)
    if isinstance(caught.value, OverCapacity):
        assert caught.value.use == pytest.approx(wanted)
