"""Event simulation: queues by hand; busy times equal to the formulas'; time equal where overlap is ideal, bounded elsewhere."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from tests.reference.agreement import dealt_again, grown_trees, without_prefetch_as_simulated
from tests.reference.trees import chip, collect, gemm, nest, op
from tests.reference.trees import workload as problem
from validation.simulation.draw import drawn

from halley.cost.estimate import Resource
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Memory
from halley.ir.mapping import (
    Compute,
    Hold,
    Node,
    Parallel,
    Pipeline,
    Sequence,
    children,
)
from halley.ir.text import parse
from halley.ir.workload import OpKind, Workload
from halley.simulate.simulation import Simulation, first_iterations, simulate
from halley.simulate.tasks import Path, Server, Tasks, run
from halley.workloads import build, graph

A, B = Server(("engine", "a")), Server(("engine", "b"))


# ---- the clock, by hand ----------------------------------------------------------------------------


def test_first_come_first_served() -> None:
    tasks = Tasks("test", 10)
    first = tasks.add("first", (), (), ((A, 3.0),))
    tasks.add("late", (), (first,), ((A, 1.0),))  # arrives at 3
    tasks.add("early", (), (), ((A, 2.0),), latency=1.0)  # arrives at 1, before it
    done = run(tasks)
    assert [(i.name, i.start, i.stop) for i in done.intervals] == [("first", 0, 3), ("early", 3, 5), ("late", 5, 6)]
    assert done.time == 6
    assert done.busy == {A: 6.0}


def test_a_port_serves_in_bursts_what_is_needed_first() -> None:
    """What is needed now waits for a burst of what is fetched ahead, a 256th of it; that one waits until it is done."""
    port = Server(("read", "dram"))
    tasks = Tasks("test", 10)
    begin = tasks.add("begin", (), (), latency=2.53125)
    now = tasks.add("now", (0,), (begin,), ((port, 4.0),))
    tasks.add("after", (1,), (now,), ((A, 1.0),))
    tasks.add("ahead", (2,), (), ((port, 16.0),))
    done = run(tasks)
    found = sorted((i.start, i.stop, i.name) for i in done.intervals)
    assert found == [(0, 2.5625, "ahead"), (2.5625, 6.5625, "now"), (6.5625, 7.5625, "after"), (6.5625, 20, "ahead")]
    assert done.busy[port] == 20


def test_a_port_stores_when_nothing_is_to_be_fetched() -> None:
    """Of two requests the one goes first that an engine waits for, in program order: the store is needed by the last task, the
    fetch by the one before. Of two that the same task needs, the one with more to come until then."""
    port, other = Server(("bus", "dram")), Server(("read", "glb"))
    tasks = Tasks("test", 10)
    store = tasks.add("store", (), (), ((port, 16.0),))
    near = tasks.add("near", (), (), ((port, 2.0),))
    far = tasks.add("far", (), (), ((port, 2.0),))
    further = tasks.add("further", (), (far,), ((other, 3.0),))
    tasks.add("use", (), (near, further), ((A, 1.0),))
    tasks.add("again", (), (store,), ((A, 1.0),))
    order = [i.name for i in run(tasks).intervals if i.server == port]
    assert order == ["far", "near", "store"]


def test_parts_of_an_overlap_take_turns_at_a_port() -> None:
    """Stores that one part waits for do not all go before the fetches of the other, though they come first in program order."""
    port = Server(("bus", "dram"))
    tasks, moved = Tasks("test", 20), []
    for server in (A, B):
        for index in range(3):
            moved.append(tasks.add(f"{server.resource[1]}{index}", (), (), ((port, 1.0),)))
            tasks.add("work", (), (moved[-1],), ((server, 0.5),))
    in_a_row = [i.name for i in run(tasks).intervals if i.server == port]
    tasks.interleave(range(6), range(12))
    tasks.interleave(range(6, 12), range(12))
    in_turn = [i.name for i in run(tasks).intervals if i.server == port]
    assert in_a_row == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert in_turn == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_task_is_done_with_its_last_request() -> None:
    tasks = Tasks("test", 10)
    both = tasks.add("both", (), (), ((A, 1.0), (B, 4.0)))
    tasks.add("behind", (), (), ((A, 1.0),))  # the other server is free at 1
    tasks.add("after", (), (both,), ((A, 1.0),))
    assert [(i.name, i.start) for i in run(tasks).intervals] == [("both", 0), ("both", 0), ("behind", 1), ("after", 4)]


# ---- what waits for what, by hand ------------------------------------------------------------------


def one_gemm(buffers: int) -> tuple[Workload, Node]:
    """Four tiles of n: B comes tile by tile, C goes tile by tile."""
    inner = Hold("obuf", (("C",),), Hold("wbuf", (("B",),), Compute("C"), buffers), buffers)
    return gemm(8, 16, 4), nest(("dram", "A B C"), ("ibuf", "A"), ("n", 4), inner)


def test_single_buffers_take_turns() -> None:
    """A's 64 bytes, then 4 times: 32 bytes of B; a tile, whose 64 bytes of results take longer than its cycles; 64 bytes of C."""
    workload, tree = one_gemm(1)
    assert simulate(workload, chip(1, 1), tree).time == pytest.approx((64 + 4 * (32 + 64 + 64)) * 1e-9, rel=1e-12)


def test_double_buffers_run_ahead_and_behind() -> None:
    """The results' port of 64 ns a tile is what takes longest; the first fill and the last drain stand alone."""
    workload, tree = one_gemm(2)
    found = simulate(workload, chip(1, 1), tree)
    assert found.time == pytest.approx((64 + 32 + 4 * 64 + 64) * 1e-9, rel=1e-12)
    starts = [i.start for i in found.intervals if i.name == "fill B" and i.server.resource == ("read", "dram")]
    assert starts == pytest.approx([64e-9, 96e-9, 160e-9, 224e-9])  # two buffers: the third waits for the first to be free


def test_a_collective_goes_step_by_step() -> None:
    """Three members of a line add up 8 results each: 4 steps. Each sends four chunks and adds to two. At the end they wait for
    what they read: 34 bytes at 1 B/ns, of which their links hide 24."""
    workload = gemm(2, 4, 6)
    series = Sequence((Compute("C"), collect("all-reduce", "C")))
    tree = nest(("dram", "A B C"), ("ibuf", "A B"), ("obuf", "C"), ("k", 2, "x"), series)
    found = [i for i in simulate(workload, chip(3, 1), tree).intervals if i.server.resource == ("axis", "cluster", "x")]
    assert [i.name for i in found] == [f"all-reduce C, step {step}" for step in (1, 2, 3, 4)]
    assert [i.stop - i.start for i in found] == pytest.approx([6e-9, 6e-9, 6e-9, 16e-9])


def test_stages_of_a_pipeline_hand_tiles_on() -> None:
    """A tile enters the second stage, on members of its own, when the first is done with it and goes on."""
    stages = (nest(("ibuf", "A B C"), Compute("C")), nest(("ibuf", "C D E"), Compute("E")))
    pipeline = Pipeline("m", 2, "cluster", "x", (1, 1), stages)
    found = simulate(two_gemms(), chip(2, 1), nest(("dram", "A B D E"), ("glb", "A B C D E"), pipeline))
    made = [i for i in found.intervals if i.name == "drain C" and i.server.resource == ("read", "ibuf")]
    used = [i for i in found.intervals if i.name == "fill C" and i.server.resource == ("write", "ibuf")]
    fills = [i for i in found.intervals if i.name == "fill A" and i.server.resource == ("read", "glb")]
    first = sum(i.stop - i.start for i in fills) / 4  # they take turns with other fills, in bursts
    begun = [i.start for number, i in enumerate(fills) if sum(j.stop - j.start for j in fills[:number]) > first * (1 - 1e-9)]
    assert {i.server.place for i in made} == {""}
    assert {i.server.place for i in used} == {"cluster.x 1"}
    assert len(made) == len(used) == 4
    assert all(done.stop <= start.start for done, start in zip(made, used, strict=True))
    assert begun[0] < min(i.start for i in found.intervals if i.name == "drain E")


def test_each_tile_waits_for_the_pipeline() -> None:
    """Four tiles, each done 100 ns after its cycles; operations and bytes are the same."""
    workload, tree = one_gemm(1)
    machine = chip(1, 1)
    assert machine.matrix is not None
    slow = replace(machine, matrix=replace(machine.matrix, latency=100e-9))
    cycles = evaluate(workload, machine, tree).busy["engine", machine.matrix.name]
    assert evaluate(workload, slow, tree).busy["engine", machine.matrix.name] == pytest.approx(cycles + 4 * 100e-9)
    assert float(evaluate(workload, slow, tree).time) == pytest.approx(simulate(workload, slow, tree).time, rel=1e-12)
    assert simulate(workload, slow, tree).time > simulate(workload, machine, tree).time
    assert evaluate(workload, slow, tree).work() == evaluate(workload, machine, tree).work()


def two_gemms() -> Workload:
    ops = (op("C", OpKind.CONTRACT, "A B", "C", "mnk"), op("E", OpKind.CONTRACT, "C D", "E", "mpn"))
    return problem({"m": 8, "n": 4, "k": 4, "p": 4}, "A:mk B:kn C:mn D:np E:mp", ops, "E")


def test_the_limit_says_where_and_what_to_do() -> None:
    workload, tree = one_gemm(2)
    with pytest.raises(BadInput, match=r"test on test: expected at most 9 tasks; got more, at .* of node .*; raise"):
        simulate(workload, chip(1, 1), tree, limit=9)


def test_first_iterations_keep_the_tiles() -> None:
    workload, tree = one_gemm(2)
    small = first_iterations(workload, tree, 2)
    assert dict(small.dims) == {"m": 8, "n": 8, "k": 4}
    assert simulate(small, chip(1, 1), tree).time == pytest.approx((64 + 32 + 2 * 64 + 64) * 1e-9, rel=1e-12)


# ---- against the formulas --------------------------------------------------------------------------


def folded(machine: Chip, tree: Node, found: Simulation) -> dict[Resource, float]:
    """Busy time by resource as docs/model.md adds it up: of members with shares of their own, the most; else the sum."""
    own: dict[Path, dict[Resource, float]] = {}
    for interval in found.intervals:
        table = own.setdefault(interval.path, {})
        resource = interval.server.resource
        table[resource] = table.get(resource, 0.0) + interval.stop - interval.start
    names = [level.name for level in machine.levels]

    def depth(resource: Resource) -> int:
        if resource[0] in ("read", "write", "bus"):
            return machine.depth(resource[1])
        return len(names) - 1 if resource[0] == "engine" else names.index(resource[1])

    def visit(node: Node, path: Path) -> dict[Resource, float]:
        below: dict[Resource, float] = {}
        for index, child in enumerate(children(node)):
            for resource, busy in visit(child, (*path, index)).items():
                apart = isinstance(node, Parallel | Pipeline) and depth(resource) >= names.index(node.level)
                before = below.get(resource, 0.0)
                below[resource] = max(before, busy) if apart else before + busy
        for resource, busy in own.get(path, {}).items():
            below[resource] = below.get(resource, 0.0) + busy
        return below

    return visit(tree, ())


def assert_busy(workload: Workload, machine: Chip, tree: Node, found: Simulation) -> None:
    formula = evaluate(workload, machine, tree).busy
    counted = folded(machine, tree, found)
    wrong = {
        resource: (float(formula.get(resource, 0.0)), counted.get(resource, 0.0))
        for resource in {*formula, *counted}
        if counted.get(resource, 0.0) != pytest.approx(float(formula.get(resource, 0.0)), rel=1e-9, abs=1e-18)
    }
    assert not wrong, f"busy (formula, simulation): {wrong}"


def test_busy_times_of_grown_trees() -> None:
    """Exact, but for what `dealt_again` names."""
    judged = 0
    for workload, machine, tree in grown_trees(250):
        if not dealt_again(workload, tree):
            assert_busy(workload, machine, tree, simulate(workload, machine, tree))
            judged += 1
    assert judged > 200


def test_busy_times_of_realistic_mappings() -> None:
    for one in drawn(40, seed=11):
        assert_busy(one.workload, one.chip, one.tree, one.simulation)


def test_time_of_realistic_mappings_is_bounded() -> None:
    """docs/simulation.md has a thousand of them."""
    deviations = [one.deviation for one in drawn(100, seed=7)]
    assert min(deviations) > -0.6
    assert max(deviations) < 0.35
    assert abs(fmean(deviations)) < 0.1
    assert sum(abs(each) <= 0.25 for each in deviations) >= 0.9 * len(deviations)


def test_time_is_exact_without_prefetch() -> None:
    assert without_prefetch_as_simulated(grown_trees(250)) > 40


@pytest.mark.parametrize("faster", [1, 3, 1000])
@pytest.mark.parametrize("tile", [1, 2, 4, 8, 16])
def test_time_is_exact_in_a_steady_state(faster: float, tile: int) -> None:
    """Double buffers: first fill, last drain, and between them the port of the results (at 1 and 3 GB/s) or the engine."""
    workload, _ = one_gemm(2)
    inner = Hold("obuf", (("C",),), Hold("wbuf", (("B",),), Compute("C"), 2), 2)
    tree = nest(("dram", "A B C"), ("ibuf", "A"), ("n", tile), inner)
    machine = chip(1, 1)
    memories = ((level, tuple(quick(memory, faster) for memory in level.memories)) for level in machine.levels)
    machine = replace(machine, levels=tuple(replace(level, memories=made, network=None) for level, made in memories))
    assert float(evaluate(workload, machine, tree).time) == pytest.approx(simulate(workload, machine, tree).time, rel=1e-9)


def quick(memory: Memory, times: float) -> Memory:
    return replace(memory, read_bandwidth=memory.read_bandwidth * times, write_bandwidth=memory.write_bandwidth * times)


# ---- where the formulas are wrong ------------------------------------------------------------------


def shares_in_a_loop() -> tuple[Workload, Chip, Node]:
    """Each n is distributed anew, so that member 0 has every one of them; the formula gives it the first alone."""
    series = Sequence((nest(("n", 2, "x"), Compute("C")), collect("all-to-all", "C", algorithm="direct", dim="n")))
    return gemm(4, 2, 4), chip(2, 1), nest(("dram", "A B C"), ("ibuf", "A"), ("wbuf", "B"), ("obuf", "C"), ("n", 1), series)


def sums_outside_a_split() -> tuple[Workload, Chip, Node]:
    """Partial sums in the shared buffer that come back on each visit: the port of cluster 0 carries its own half alone."""
    tree = nest(("dram", "A B C"), ("k", 2), ("glb", "C"), ("n", 4, "x"), ("ibuf", "A"), ("wbuf", "B"), Compute("C"))
    return gemm(4, 8, 6), chip(2, 1), tree


def test_busy_time_of_shares_that_are_dealt_out_in_a_loop() -> None:
    workload, machine, tree = shares_in_a_loop()
    assert_busy(workload, machine, tree, simulate(workload, machine, tree))


def test_busy_time_of_sums_that_come_back_outside_a_split() -> None:
    workload, machine, tree = sums_outside_a_split()
    assert_busy(workload, machine, tree, simulate(workload, machine, tree))


def test_the_last_drain_is_the_whole_tile_of_its_hold() -> None:
    workload = gemm(8, 16, 4)
    inner = nest(("n", 4), ("wbuf", "B"), Compute("C"))
    tree = nest(("dram", "A B C"), ("ibuf", "A"), Hold("obuf", (("C",),), inner, 2))
    time = float(evaluate(workload, chip(1, 1), tree).time)
    assert time == pytest.approx(simulate(workload, chip(1, 1), tree).time, rel=1e-9)


# ---- vector engines with warps ---------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "warp", "taken"), [(6, 0, 16), (6, 4, 8), (6, 2, 6), (20, 4, 20), (20, 0, 32)])
def test_a_warp_takes_neighbours_of_one_row_only(columns: int, warp: int, taken: int) -> None:
    """16 lanes: a row of 6 leaves 10 idle, unless other warps take other rows."""
    machine = chip(1, 1)
    assert machine.vector is not None
    rates = dict.fromkeys(("add", "mul", "exp", "max", "div"), 1.0)
    machine = replace(machine, vector=replace(machine.vector, lanes=16, clock=1.0, rate=rates, warp=warp))
    work = graph("Y[r,c] = exp(X[r,c])", {"r": 5, "c": columns})
    tree = nest(("dram", "X Y"), ("obuf", "X Y"), Compute(work.ops[0].name))
    time = 5 * taken / 16
    engine = ("engine", machine.vector.name)
    assert float(evaluate(work, machine, tree).busy[engine]) == pytest.approx(time)
    served = [each for each in simulate(work, machine, tree).intervals if each.server.resource == engine]
    assert sum(each.stop - each.start for each in served) == pytest.approx(time)


# ---- results that pass through a further memory -----------------------------------------------------

DRAINED = """
hold dram: A B C
  spread m by 342 over sm.x
    spread n by 373 over sm.y
      for m by 114
        for n by 187
          hold l2 x2: C
            hold l2 x2: A B
              hold smem x4: A
                for n by {columns}
                  hold rf x2: C
                    hold smem x4: B
                      compute gemm
"""


@pytest.mark.parametrize("columns", [187, 94, 64])
def test_the_outer_drain_waits_for_the_inner_one(columns: int) -> None:
    """L2 and DRAM are about as fast for writes, and neither drain of a visit overlaps the other of the same tile."""
    work, machine = build("gemm", {"m": 4096, "n": 4096, "k": 64, "dtype": "fp16"}), load_chip("h100")
    tree = parse(DRAINED.format(columns=columns).strip())
    assert float(evaluate(work, machine, tree).time) == pytest.approx(simulate(work, machine, tree).time, rel=0.15)


RETURNED = """
hold dram: A B C
  spread m by 4 over unit.x
    spread n by 4 over unit.y
      hold pool x{buffers}: C
        for k by 22
          hold pool x2: B
            hold pool x2: A
              hold pmu x2: C
                hold pmu x2: B
                  hold pmu x2: A
                    compute gemm
"""


@pytest.mark.parametrize("buffers", [1, 2])
def test_the_outer_drain_follows_the_last_visit_of_partial_sums(buffers: int) -> None:
    """Each visit to the sums waits for the one before it, and the pool is written back after the last one. A second buffer in the
    pool has no other tile."""
    work, machine = build("gemm", {"m": 128, "n": 128, "k": 128}), load_chip("sn30")
    tree = parse(RETURNED.format(buffers=buffers).strip())
    assert float(evaluate(work, machine, tree).time) == pytest.approx(simulate(work, machine, tree).time, rel=0.03)


SUMS_ON_TPU = """
hold dram: A B C
  spread n by 250 over local.x
    for k by 384
      hold glb x2: A
        for n by 128
          hold local x2: C
            for k by 128
              hold local x2: B
                hold local x2: A
                  compute gemm
"""
SUMS_ON_GPU = """
hold dram: A B C
  spread m by 342 over sm.x
    spread n by 373 over sm.y
      for m by 171
        for k by 640
          hold l2 x2: A
            for n by 187
              hold l2 x2: B
                hold rf x2: C
                  for k by 128
                    hold smem x3: B
                      hold smem x2: A
                        compute gemm
"""


@pytest.mark.parametrize(
    ("text", "chip", "size", "dtype"), [(SUMS_ON_TPU, "tpu-v4i-like", 1000, "bf16"), (SUMS_ON_GPU, "h100", 4096, "fp16")]
)
def test_iterations_that_load_partial_sums_or_not(text: str, chip: str, size: int, dtype: str) -> None:
    """The engine limits the first iteration, DRAM the others; a small last tile has as much traffic of sums as a full one."""
    work, machine = build("gemm", {"m": size, "n": size, "k": size, "dtype": dtype}), load_chip(chip)
    tree = parse(text.strip())
    assert float(evaluate(work, machine, tree).time) == pytest.approx(simulate(work, machine, tree).time, rel=0.03)
