"""Baselines against exhaustive enumeration of their restricted spaces, and laws of their order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tests.certificates.composing import mappings
from tests.certificates.exhaustive import (
    Cut,
    Front,
    TooLarge,
    cuts,
    draw_chip,
    draw_divisible,
    draw_graph,
    fitting,
    pareto,
)

from halley.answer import Status
from halley.errors import BadInput, Infeasible, SearchStopped
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, CollectiveKind, Hold, Node, Overlap, Spatial, walk
from halley.ir.workload import Workload
from halley.mapping.baselines import BASELINES
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Result
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.canonical import canonical
from halley.verify import verify
from halley.workloads import attention, gated_mlp, gemm, gemm_layernorm, gemm_rmsnorm, gemm_softmax, variants

BOTH_WAYS = ("unfused", "unfused-local", "op-by-op", "op-by-op-local")
NAMES = {word: restriction.name for word, restriction in BASELINES.items()}


def collectives(tree: Node) -> list[Collective]:
    return [node for _, node in walk(tree) if isinstance(node, Collective)]


def keys_split(tree: Node, key: str) -> bool:
    return any(isinstance(node, Spatial) and node.dim == key for _, node in walk(tree))


def belongs(baseline: str, workload: Workload, groups: Cut, trees: list[Node]) -> bool:
    """Whether a mapping is one of the baseline's, judged by what its trees do, not by how they were made."""
    parts = [set(kernel) for kernel in workload.kernels or [(op.name,) for op in workload.ops]]
    inside = [{name for kernel in group for name in kernel} for group in groups]
    fused = [not any(ops <= part for part in parts) for ops in inside]
    match baseline:
        case "op-by-op":
            return len(workload.ops) > 1
        case "unfused":
            return len(parts) > 1 and not any(fused)
        case "unfused-local" | "op-by-op-local":
            wider = baseline.removesuffix("-local")
            return belongs(wider, workload, groups, trees) and not any(map(collectives, trees))
        case "partially-fused":
            return len(groups) > 1 and any(fused)
        case "fused-local":
            return len(groups) == 1 and not collectives(trees[0])
        case "flash-attention-2" | "flash-decoding":
            if workload.name != "attention" or workload.variant != "online" or len(groups) > 1:
                return False
            if any(isinstance(node, Overlap) for _, node in walk(trees[0])):
                return False
            return keys_split(trees[0], "n") is (baseline == "flash-decoding")
    raise AssertionError(baseline)


def mappings_of(workload: Workload, chip: Chip, group: list[tuple[str, ...]], limit: int) -> list[tuple[Node, int]]:
    """Every mapping of a group, whether it fits or not; those that differ in one buffer or two together, with their number."""
    machine = hierarchy(chip)
    names = {name for kernel in group for name in kernel}
    ops = [op for op in workload.ops if op.name in names]
    made = {name for op in ops for name in op.outputs}
    kept = [
        name
        for name in dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
        if name not in made or name in workload.outputs or any(op.name not in names for op in workload.consumers(name))
    ]
    found = []
    for mapping, several in mappings(workload, chip, ops):
        found.append((canonical(Hold(machine.outer, tuple((name,) for name in kept), mapping, 1), workload.dims), several))
        if len(found) > limit:
            raise TooLarge
    return found


def applicable(workload: Workload) -> tuple[str, ...]:
    """All baselines but those of single ops where a running maximum has no mapping: to walk the other ops takes long."""
    running = any(op.running for op in workload.ops)
    return tuple(word for word, restriction in BASELINES.items() if not (running and restriction.by_op))


def walked(workload: Workload, chip: Chip, limit: int) -> dict[str, tuple[Front, int]]:
    """For each baseline the time-energy front of its mappings of one variant, and their number."""
    known: dict[tuple[tuple[str, ...], ...], list[tuple[Node, int]]] = {}
    fronts: dict[str, tuple[Front, int]] = {name: ([], 0) for name in applicable(workload)}

    @cache
    def costs(group: tuple[tuple[str, ...], ...], at: int) -> Front:
        """Of one mapping of a group, which may belong to several baselines, and the group to several partitions."""
        return pareto(fitting(workload, chip, *known[group][at]))

    whole, singly = cuts(workload), [[[(op.name,)] for op in workload.ops]]
    for baseline in fronts:
        for groups in singly if BASELINES[baseline].by_op else whole:
            for group in map(tuple, groups):
                if group not in known:
                    known[group] = mappings_of(workload, chip, list(group), limit)
            before, size = fronts[baseline]
            sums, count = [(0.0, 0.0)], 1
            for group in map(tuple, groups):
                # of a partition with several groups all mappings belong to a baseline or none, but for collectives
                chosen = [at for at, (tree, _) in enumerate(known[group]) if belongs(baseline, workload, groups, [tree])]
                points = pareto([point for at in chosen for point in costs(group, at)])
                sums = pareto([(a + c, b + d) for a, b in sums for c, d in points])
                count *= sum(known[group][at][1] for at in chosen)
            fronts[baseline] = (pareto([*before, *sums]), size + count)
    return fronts


def draw_workload(draw: random.Random) -> Workload:
    """A compound operation with extents of 1 to 3; attention often."""
    m, n = draw.randint(1, 2), draw.randint(1, 3)
    match draw.choice(["attention", "heads", "plain", "softmax", "rmsnorm", "mlp"]):
        case "attention":
            return attention(1, 1, 1, m, n, 1, value_dim=1, variant="online")
        case "heads":
            return attention(1, 2, 2, 1, n, 1, value_dim=1, variant="online")
        case "plain":
            return attention(1, 1, 1, 1, n, 1, value_dim=1, variant=draw.choice(["plain", "deferred"]))
        case "softmax":
            return gemm_softmax(m, n, 1, variant=draw.choice(["plain", "online"]))
        case "rmsnorm":
            return gemm_rmsnorm(m, n, 1)
        case _:
            return gated_mlp(m, 1, n)


def compare(seed: int, limit: int, drawn: Callable[[random.Random], Workload] = draw_workload) -> set[str]:
    """Search and walk of one drawn problem for each objective; the baselines compared, none where the walk is too long."""
    draw = random.Random(seed)
    workload, chip = drawn(draw), draw_chip(draw)
    try:
        expected = walked(workload, chip, limit)
    except TooLarge:
        return set()
    measures: dict[Objective, Callable[[tuple[float, float]], float]] = {
        Objective.TIME: lambda point: point[0],
        Objective.ENERGY: lambda point: point[1],
        Objective.EDP: lambda point: point[0] * point[1],
    }
    compared: set[str] = set()
    for objective, measure in measures.items():
        front = objective is Objective.TIME and draw.random() < 0.3  # groups are then searched for two objectives
        try:
            words = applicable(workload)
            result = optimise(Problem(workload, chip, objective, fixed_variant=True, front=front, baselines=words))
        except Infeasible:
            return set()
        found = {solution.name: solution for solution in result.baselines}
        for word, (points, size) in expected.items():
            name = NAMES[word]
            assert (name in found) is bool(points), (objective, name)
            assert (name in result.absent) is (bool(size) and not points), (objective, name)
            if points:
                certificate = found[name].certificate
                assert certificate.value == pytest.approx(min(map(measure, points)), rel=1e-9), (objective, name)
                assert certificate.bound == certificate.value, (objective, name)
                assert certificate.size == size, (objective, name)
                assert found[name].status is Status.OPTIMAL
                assert certificate.value >= result.best.certificate.value
                compared.add(word)
    return compared


def one_point(draw: random.Random) -> Workload:
    """Attention of three kernels, each of whose ops has a single point: what is left to walk are shapes and buffers."""
    return attention(1, 1, 1, 1, 1, 1, value_dim=1, variant="plain")


@pytest.mark.parametrize(
    ("seed", "limit", "drawn", "expected"),
    [
        (0, 6000, draw_workload, {"flash-attention-2", "flash-decoding", "fused-local"}),
        pytest.param(24, 3000, draw_workload, {"flash-attention-2", "flash-decoding", "fused-local"}, marks=pytest.mark.slow),
        (12, 1500, draw_graph, {*BOTH_WAYS, "partially-fused", "fused-local"}),
        pytest.param(2, 30_000, one_point, {*BOTH_WAYS, "partially-fused", "fused-local"}, marks=pytest.mark.slow),
        (7, 4000, draw_workload, {*BOTH_WAYS, "fused-local"}),
    ],
)
def test_each_baseline_equals_exhaustive_enumeration_of_its_space(
    seed: int, limit: int, drawn: Callable[[random.Random], Workload], expected: set[str]
) -> None:
    assert compare(seed, limit, drawn) == expected


@pytest.mark.parametrize("drawn", [draw_workload, draw_graph, draw_divisible])
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 6))])
def test_baselines_equal_exhaustive_enumeration(block: int, drawn: Callable[[random.Random], Workload]) -> None:
    """Each block draws problems until two were compared."""
    count, seed = 0, 1000 * (block + 1)
    while count < 2:
        count += bool(compare(seed, 400, drawn))
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [draw_workload, draw_graph, draw_divisible])
@pytest.mark.parametrize("block", range(6))
def test_baselines_equal_exhaustive_enumeration_on_many(block: int, drawn: Callable[[random.Random], Workload]) -> None:
    """Each block draws problems until eight were compared."""
    count, seed = 0, 200_000 + 1000 * block
    while count < 8:
        count += bool(compare(seed, 3000, drawn))
        seed += 1


@pytest.fixture(scope="module")
def result() -> Result:
    """Attention with the usual baselines."""
    return optimise(Problem(attention(1, 2, 2, 4, 16, 8), load_chip("edge")))


def test_attention_has_every_usual_baseline_and_each_does_what_its_name_says(result: Result) -> None:
    found = {solution.name: solution for solution in result.baselines}
    assert list(found) == [restriction.name for restriction in BASELINES.values() if restriction.usual]
    assert all(solution.certificate.value >= result.best.certificate.value for solution in found.values())
    assert all(solution.certificate.size < result.best.certificate.size for solution in found.values())
    streamed, split = found[NAMES["flash-attention-2"]], found[NAMES["flash-decoding"]]
    for solution in (streamed, split):
        assert solution.variant == "online"
        assert len(solution.groups) == 1
    assert not keys_split(streamed.plan, "n")
    assert not collectives(streamed.plan)
    assert keys_split(split.plan, "n")
    assert {node.kind for node in collectives(split.plan)} == {CollectiveKind.ALL_REDUCE}
    assert len(found["unfused"].groups) == 3  # scores, softmax, values: no variant needs fewer kernels
    partial = found[NAMES["partially-fused"]]
    (kernels,) = (work.kernels for work in variants(result.problem.workload) if work.variant == partial.variant)
    assert 1 < len(partial.groups) < len(kernels)
    local = found[NAMES["fused-local"]]
    assert len(local.groups) == 1
    assert not collectives(local.plan)


def test_the_best_is_the_same_with_and_without_baselines() -> None:
    problem = Problem(gemm_softmax(16, 24, 8), load_chip("edge"))
    alone = optimise(replace(problem, baselines=False))
    some = optimise(replace(problem, baselines=("fused-local", "flash-decoding")))
    assert alone.baselines == ()
    assert some.best.certificate.value == alone.best.certificate.value
    assert some.best.certificate.size == alone.best.certificate.size
    assert [solution.name for solution in some.baselines] == [NAMES["fused-local"]]


@pytest.mark.parametrize("workload", [gemm_softmax(2, 3, 2), gemm_layernorm(3, 4, 2)])
@pytest.mark.parametrize("chip", ["edge", "cloud"])
def test_a_restriction_more_is_never_better(workload: Workload, chip: str) -> None:
    """Unfused or op by op, with and without split reductions: each against the space that it is a part of, and the best."""
    result = optimise(Problem(workload, load_chip(chip), baselines=BOTH_WAYS))
    found = {solution.name: solution for solution in result.baselines}
    value = {word: found[NAMES[word]].certificate.value for word in BOTH_WAYS}
    assert value["unfused-local"] >= value["unfused"]
    assert value["op-by-op-local"] >= value["op-by-op"]
    assert min(value.values()) >= result.best.certificate.value
    assert all(solution.status is Status.OPTIMAL for solution in (result.best, *result.baselines))
    for word in ("op-by-op", "op-by-op-local"):
        assert all(len(group) == 1 for group in found[NAMES[word]].groups)
    for word in ("unfused-local", "op-by-op-local"):
        assert not collectives(found[NAMES[word]].plan)


def small_buffers(seed: int) -> Chip:
    """A chip that was drawn, whose buffers hold little."""
    return draw_chip(random.Random(seed))


def test_op_by_op_adds_to_the_space_that_the_best_is_the_best_of() -> None:
    """Where a norm's tiles hardly fit all at once, its ops one by one are faster: the best of a space with them is no slower."""
    problem = Problem(gemm_layernorm(2, 23, 1, variant="two-pass"), small_buffers(0), baselines=False, fixed_variant=True)
    without, with_ops = optimise(problem), optimise(replace(problem, baselines=("op-by-op", "op-by-op-local")))
    (single, _) = with_ops.baselines
    assert single.certificate.value == with_ops.best.certificate.value < without.best.certificate.value
    assert without.best.certificate.size is not None
    assert with_ops.best.certificate.size == without.best.certificate.size + (single.certificate.size or 0)
    assert {clause.what for clause in with_ops.best.certificate.declaration} >= {"op by op"}
    assert all(finding.passed for finding in verify(with_ops))


def test_op_by_op_fits_where_no_kernel_does() -> None:
    problem = Problem(gemm_rmsnorm(2, 9, 1), small_buffers(5), fixed_variant=True)
    with pytest.raises(Infeasible):
        optimise(problem)
    found = optimise(replace(problem, baselines=("op-by-op",)))
    assert found.best.certificate.value == found.baselines[0].certificate.value


def test_op_by_op_adds_nothing_where_kernels_may_be_cut() -> None:
    problem = Problem(replace(gemm_rmsnorm(2, 3, 2), divisible=True), load_chip("edge"), baselines=False)
    found = optimise(replace(problem, baselines=("op-by-op",)))
    assert found.best.certificate.size == optimise(problem).best.certificate.size
    assert found.best.certificate.value <= found.baselines[0].certificate.value


def test_baselines_that_do_not_apply_are_left_out() -> None:
    chip = load_chip("edge")
    one = optimise(Problem(gemm(8, 8, 8), chip))
    assert [solution.name for solution in one.baselines] == [NAMES["fused-local"]]
    two = optimise(Problem(gemm_softmax(8, 8, 8), chip))
    assert [solution.name for solution in two.baselines] == ["unfused", NAMES["fused-local"]]
    assert one.absent == two.absent == ()


def test_baselines_that_fit_nowhere_are_named() -> None:
    """Fused rows of 4096 scores do not fit buffers that hold a tile of a GEMM."""
    chip = load_chip("edge")
    small = [
        replace(level, memories=tuple(replace(memory, capacity=min(memory.capacity, 4096)) for memory in level.memories))
        for level in chip.levels[1:]
    ]
    result = optimise(Problem(gemm_rmsnorm(4, 8192, 4), replace(chip, levels=(chip.levels[0], *small)), fixed_variant=True))
    assert result.absent == (NAMES["fused-local"],)
    assert NAMES["fused-local"] not in {solution.name for solution in result.baselines}


def test_unknown_baselines_are_refused() -> None:
    with pytest.raises(BadInput, match="did you mean 'unfused'"):
        optimise(Problem(gemm(8, 8, 8), load_chip("edge"), baselines=("unfusd",)))
    with pytest.raises(BadInput, match=r"some of unfused, unfused-local, op-by-op, op-by-op-local, .*did you mean 'op-by-op'"):
        optimise(Problem(gemm(8, 8, 8), load_chip("edge"), baselines=("opbyop",)))


def test_a_time_limit_leaves_true_bounds(result: Result) -> None:
    whole = {solution.name: solution.certificate.value for solution in result.baselines}
    try:
        stopped = optimise(replace(result.problem, time_limit=0.5))
    except SearchStopped:
        return  # a slow machine: no mapping yet
    for solution in stopped.baselines:
        assert solution.certificate.bound <= whole[solution.name] * (1 + 1e-12)
        assert solution.certificate.value >= whole[solution.name] * (1 - 1e-12)
        assert solution.certificate.value >= stopped.best.certificate.value
