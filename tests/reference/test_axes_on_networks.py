"""Lanes against the network itself: all groups of a cut at once on the whole axis take what one of them takes on its lane.

The step simulator runs the messages of all groups on the graph of the whole axis, on real data; the lane is one group on a graph
of its own. Activations between stages are sent by all chips of a stage at once over the whole system.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from halley.errors import BadInput
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.networks.fits import load_fit, load_libraries
from halley.io.systems.system import load_system
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.machine import machine
from halley.kernels.sustained import under_load
from halley.kernels.times import kernel_time
from halley.network.algorithms import ALGORITHMS, Setting
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Steps, Transfer
from halley.network.graph.graph import Graph
from halley.network.graph.lanes import Crossed, Lane, lanes
from halley.network.graph.products import product as network
from halley.network.graph.topologies import build
from halley.network.time.collective import ScheduledCollective, bound_of, team_of
from halley.network.time.contention import concurrent, message
from halley.network.time.evaluate import evaluate
from halley.network.time.lines import MAX_TABLED_RANKS, MeasuredLane, line_of, lines, outdone
from halley.network.time.phased import collective_time, dimensions_of, times
from halley.network.time.schedules import Schedule, laid_out, schedules
from halley.network.time.simulate import Held, initial_chunks, simulate
from halley.sharding.axes import Role, SubAxis, assignments, degree
from halley.sharding.communication import Communication, Interconnect
from halley.verify.collective import phase_executions, slot_executions

K, T = CollectiveKind, Topology
KINDS = (K.ALL_REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_TO_ALL)
LINK = Link(3.0, 7.0)
SIZE = 720
"""Elements that all chunks divide."""


def groups_of(size: int, stride: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    return Crossed(Axis("x", ranks, T.RING, LINK), size, stride).groups


def all_at_once(graph: Graph, kind: CollectiveKind, name: str, groups: Sequence[Sequence[int]], line: bool) -> float:
    """Time of the step simulator, once all groups have the right data."""
    n = len(groups[0])
    chunks = ALGORITHMS[name].chunks(kind, n)
    steps: Steps = tuple(
        tuple(
            Transfer(ranks[t.source], ranks[t.target], t.chunk + place * chunks, t.combine, t.shared)
            for place, ranks in enumerate(groups)
            for t in step
        )
        for step in ALGORITHMS[name].make[kind](Setting(n, chunks, line))
    )
    vectors = [np.arange(SIZE) + 1000 * rank for rank in range(graph.ranks)]
    held: Held = [{} for _ in range(graph.ranks)]
    for place, ranks in enumerate(groups):
        for rank, mine in zip(ranks, initial_chunks(kind, [vectors[rank] for rank in ranks], chunks), strict=True):
            held[rank] = {chunk + place * chunks: part for chunk, part in mine.items()}
    run = simulate(graph, steps, held)
    if kind is K.ALL_REDUCE:
        for place, ranks in enumerate(groups):
            whole = np.concatenate([run.held[ranks[-1]][chunk + place * chunks] for chunk in range(chunks)])
            assert whole.tolist() == sum(vectors[rank] for rank in ranks).tolist()
    return run.time


SHAPES = [(T.RING, n, size, stride) for n in (4, 6, 8, 12) for size in range(2, n + 1) for stride in range(1, n // size + 1)]
SHAPES += [(T.LINE, n, size, stride) for n in (6, 8) for size in range(2, n + 1) for stride in range(1, n // size + 1)]
SHAPES = [shape for shape in SHAPES if shape[1] % (shape[2] * shape[3]) == 0]


@pytest.mark.parametrize(("topology", "ranks", "size", "stride"), SHAPES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_groups_at_once_take_what_one_takes_on_its_lane(
    topology: Topology, ranks: int, size: int, stride: int, kind: CollectiveKind
) -> None:
    axis = Axis("x", ranks, topology, LINK)
    (lane,) = lanes(axis, size, stride)
    assert isinstance(lane, Axis)
    names = [item.name for item in ALGORITHMS.values() if item.unfit(kind, size) is None and not item.network]
    for name in random.Random(f"{topology} {ranks} {size} {stride} {kind}").sample(names, min(3, len(names))):
        together = all_at_once(build(axis), kind, name, groups_of(size, stride, ranks), lane.topology is T.LINE)
        alone = ScheduledCollective(kind, name, (lane,), SIZE).cost().time
        assert together == pytest.approx(alone, rel=1e-12), name


GRIDS = [
    (Axis("x", 16, T.TORUS, LINK, (4, 4)), 4, 4),
    (Axis("x", 16, T.TORUS, LINK, (4, 4)), 8, 1),
    (Axis("x", 16, T.TORUS, LINK, (4, 4)), 4, 2),
    (Axis("x", 24, T.MESH, LINK, (4, 6)), 6, 2),
    (Axis("x", 24, T.MESH, LINK, (4, 6)), 12, 1),
    (Axis("x", 16, T.HYPERCUBE, LINK), 4, 2),
    (Axis("x", 16, T.HYPERCUBE, LINK), 16, 1),
    (Axis("x", 16, T.FAT_TREE, LINK, (4, 2)), 4, 1),
    (Axis("x", 8, T.SWITCH, LINK), 4, 2),
    (Axis("x", 8, T.FULL, LINK), 2, 4),
    (Axis("x", 8, T.RING, LINK, multipath=True), 2, 4),
    (Axis("x", 8, T.RING, LINK, multipath=True), 4, 2),
    (Axis("x", 8, T.RING, LINK, one_way=True), 4, 2),
]


@pytest.mark.parametrize(("axis", "size", "stride"), GRIDS, ids=lambda item: str(getattr(item, "topology", item)))
@pytest.mark.parametrize("kind", [K.ALL_TO_ALL, K.ALL_GATHER], ids=str)
def test_a_direct_exchange_of_all_groups_takes_what_it_takes_on_the_lanes(
    axis: Axis, size: int, stride: int, kind: CollectiveKind
) -> None:
    """Products of lanes, against their own graph: every pair of a group exchanges a message at the same time."""
    found = lanes(axis, size, stride)
    alone = ScheduledCollective(kind, "direct", tuple(item for item in found if isinstance(item, Axis)), SIZE).cost().time
    together = all_at_once(build(axis), kind, "direct", groups_of(size, stride, axis.size), False)
    assert math.prod(lane.size for lane in found) == size
    assert together == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize(
    "lane",
    [
        Crossed(Axis("x", 12, T.RING, LINK), 4, 1),
        Crossed(Axis("x", 12, T.RING, LINK), 3, 4),
        Crossed(Axis("x", 8, T.RING, LINK, one_way=True), 4, 1),
        Crossed(Axis("x", 8, T.DGX_1, LINK), 4, 2),
        Crossed(Axis("x", 16, T.FAT_TREE, LINK, (4, 2)), 8, 2),
        Crossed(Axis("x", 18, T.DRAGONFLY, LINK, (2, 3, 1)), 6, 3),
    ],
    ids=lambda lane: f"{lane.axis.topology} {lane.size} {lane.stride}",
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_crossed_lanes_take_the_least_time_of_the_simulated_algorithms(lane: Crossed, kind: CollectiveKind) -> None:
    names = [item.name for item in ALGORITHMS.values() if item.unfit(kind, lane.size) is None and not item.network]
    single = [name for name in names if ALGORITHMS[name].chunks(kind, lane.size) in (1, lane.size, lane.size**2)]
    simulated = min(all_at_once(build(lane.axis), kind, name, lane.groups, False) for name in single)
    found = collective_time(kind, (MeasuredLane(lane),))(SIZE)
    assert found <= simulated * (1 + 1e-9)
    if single == names:
        assert found == pytest.approx(simulated, rel=1e-9)


NETWORKS: dict[str, tuple[Axis, ...]] = {
    "switch": (Axis("a", 8, T.SWITCH, LINK),),
    "adding switch": (Axis("a", 8, T.SWITCH, LINK, multicast=True, reduction=True),),
    "adding on request": (Axis("a", 8, T.SWITCH, LINK, multicast=True, reduction=True, on_request=True),),
    "ring": (Axis("a", 6, T.RING, LINK),),
    "line": (Axis("a", 5, T.LINE, LINK),),
    "full": (Axis("a", 7, T.FULL, LINK),),
    "torus": (Axis("a", 4, T.RING, LINK), Axis("b", 4, T.RING, LINK)),
    "pod": (Axis("a", 4, T.SWITCH, LINK), Axis("b", 8, T.SWITCH, Link(27.0, 3.0))),
    "adding pod": (
        Axis("a", 4, T.SWITCH, LINK, multicast=True, reduction=True),
        Axis("b", 8, T.SWITCH, Link(27.0, 3.0), multicast=True, reduction=True, on_request=True),
    ),
    "dragonfly": (Axis("a", 4, T.FULL, LINK), Axis("b", 8, T.FULL, Link(6.0, 1.0))),
    "nodes of rings": (Axis("a", 4, T.SWITCH, LINK), Axis("b", 6, T.RING, Link(20.0, 1.0))),
}
PAYLOADS = (1, 2880, 2880 * 2**10, 2880 * 2**20)
EVERY = (*KINDS, K.BROADCAST, K.REDUCE, K.SCATTER, K.GATHER)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_times_are_above_the_bound_and_no_worse_than_any_table(name: str, kind: CollectiveKind) -> None:
    """Tables of all ranks: of every algorithm, evaluated for chunks of whole bytes."""
    team = team_of(NETWORKS[name])
    time = collective_time(kind, dimensions_of(NETWORKS[name]))
    for size in PAYLOADS:
        found = time(size)
        assert found >= bound_of(kind, team, size).value * (1 - 1e-9)
        assert found == pytest.approx(time(np.array([float(size), 1.0]))[0], rel=1e-12)
        for schedule in schedules(kind, team, size):
            laid = laid_out(team, kind, schedule)
            assert found <= evaluate(laid, laid.sizes(laid.cut * size)).time * (1 + 1e-9), schedule.name


@pytest.mark.parametrize("topology", [T.LINE, T.RING, T.FULL, T.SWITCH])
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 9])
def test_every_line_is_its_table(topology: Topology, ranks: int) -> None:
    """Closed forms for payloads divided without rounding, against the step simulator on a payload that all chunks divide."""
    able = topology is T.SWITCH
    axis = Axis("x", ranks, topology, Link(3.0, 7.0, overhead=0.5), multicast=able, reduction=able)
    assert ranks <= MAX_TABLED_RANKS
    graph = build(axis)
    for kind in (*EVERY, K.SHIFT):
        for line in lines(kind, axis, 0.25).every:
            if line.schedule.pieces > 5:
                continue
            chunks = line.schedule.chunks(kind, ranks)
            size = 2 * chunks
            held = initial_chunks(kind, [np.zeros(size, dtype=np.int8)] * ranks, chunks)
            run = simulate(graph, line.schedule.steps(kind, ranks, topology is T.LINE), held, startup=0.25)
            assert line.time(size) == pytest.approx(run.time, rel=1e-12), (kind, line.schedule.name)


def test_what_is_left_out_is_never_faster() -> None:
    """Pipelined trees on a switch, in which a rank sends and receives one message at a time."""
    for ranks in range(2, 34):
        axis = Axis("x", ranks, T.SWITCH, Link(3.0, 7.0, overhead=0.5))
        team, every = team_of((axis,)), lines(K.ALL_REDUCE, axis, 0.25).every
        bruck = next(line for line in every if line.schedule == Schedule("bruck"))
        assert outdone(K.ALL_REDUCE, axis).keys() == {"tree", "double-tree", "bidirectional-halved"}
        for name, pieces in product(("tree", "double-tree"), (1, 2, 3, 8, 32)):
            schedule = Schedule(name, pieces)
            tree = line_of(laid_out(team, K.ALL_REDUCE, schedule), schedule, 0.25)
            assert bruck.fixed <= tree.fixed * (1 + 1e-12)
            assert bruck.each <= tree.each * (1 + 1e-12)


@pytest.mark.parametrize(("topology", "better"), [(T.LINE, "bidirectional"), (T.FULL, "direct"), (T.SWITCH, "direct")])
def test_halves_of_a_block_gain_on_rings_alone(topology: T, better: str) -> None:
    for kind, ranks in product((K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_REDUCE), range(4, 34, 2)):
        axis = Axis("x", ranks, topology, Link(3.0, 7.0))
        team, schedule = team_of((axis,)), Schedule("bidirectional-halved")
        other = next(line for line in lines(kind, axis, 0.25).every if line.schedule == Schedule(better))
        halved = line_of(laid_out(team, kind, schedule), schedule, 0.25)
        assert other.fixed <= halved.fixed * (1 + 1e-12)
        assert other.each <= halved.each * (1 + 1e-12)
        assert schedule not in [line.schedule for line in lines(kind, axis, 0.25).every]


CROSSING: dict[str, tuple[Axis, ...]] = {
    "switches": (Axis("a", 3, T.SWITCH, Link(2.0, 1.0, overhead=0.5)), Axis("b", 4, T.SWITCH, Link(9.0, 2.0, overhead=0.25))),
    "torus": (Axis("a", 3, T.RING, LINK), Axis("b", 4, T.RING, Link(5.0, 2.0))),
    "three": (Axis("a", 2, T.LINE, Link(9.0, 2.0)), Axis("b", 3, T.FULL, LINK), Axis("c", 3, T.RING, Link(1.0, 4.0))),
    "tree and ring": (Axis("a", 4, T.FAT_TREE, Link(2.0, 1.0), (2, 1), upper=LINK), Axis("b", 3, T.RING, LINK)),
    "hypercube": (Axis("a", 16, T.HYPERCUBE, LINK),),
}


@pytest.mark.parametrize("name", CROSSING)
@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_direct_exchanges_across_dimensions_are_their_tables(name: str, kind: CollectiveKind) -> None:
    team = team_of(CROSSING[name])
    found = {line.schedule.name: line for line in times(kind, dimensions_of(CROSSING[name]), 0.25).singles.every}  # type: ignore[union-attr]
    for algorithm in ("direct", "one-shot") if kind is K.ALL_REDUCE else ("direct",):
        schedule = Schedule(algorithm)
        chunks = schedule.chunks(kind, team.graph.ranks)
        held = initial_chunks(kind, [np.zeros(2 * chunks, dtype=np.int8)] * team.graph.ranks, chunks)
        run = simulate(team.graph, schedule.steps(kind, team.graph.ranks, False), held, startup=0.25)
        assert found[algorithm].time(2 * chunks) == pytest.approx(run.time, rel=1e-12)


MIXED = {**CROSSING, "pod": NETWORKS["pod"], "adding pod": NETWORKS["adding pod"]}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_phases_in_one_piece_take_what_the_simulator_says(name: str, kind: CollectiveKind) -> None:
    """One part of the payload in one piece is a table whose phases follow each other: the step simulator's time, on real data."""
    graph = team_of(MIXED[name]).graph
    seen = 0
    for way in times(kind, dimensions_of(MIXED[name])).ways:
        if way.pieces > 1 or len(way.parts) > 1:
            continue
        for target in (1, 5000):
            plan = way.schedule(target).algorithm
            assert isinstance(plan, Phased)
            chunks = plan.chunks(kind)
            size = chunks * max(target // chunks, 1)
            plan = way.schedule(size).algorithm
            if not isinstance(plan, Phased) or size % plan.chunks(kind) or graph.ranks * size > 1 << 20:
                continue
            run = simulate(
                graph, plan.steps(kind), initial_chunks(kind, [np.zeros(size, dtype=np.int8)] * graph.ranks, plan.chunks(kind))
            )
            assert way.time(size) == pytest.approx(run.time, rel=1e-9), plan.name
            seen += 1
    assert seen


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_pieces_are_through_with_each_slot_on_the_real_network(name: str, kind: CollectiveKind) -> None:
    """Every phase of a slot runs on all of its lines at once, beside all other phases of the slot, and ends before the next
    slot begins: a fluid simulation with max-min fair links. Phases of one step on one dimension are one step."""
    team = team_of(MIXED[name])
    graph, draw = team.graph, random.Random(f"{name} {kind}")
    ways = times(kind, dimensions_of(MIXED[name])).ways
    for way in draw.sample(ways, min(4, len(ways))):
        size = draw.choice([12, 5000, 300_000])
        plan = way.schedule(size).algorithm
        assert isinstance(plan, Phased)
        starts = [0.0, *np.cumsum(way.slots(size)).tolist()]
        assert starts[-1] == pytest.approx(way.time(size), rel=1e-12)
        for slot in draw.sample(list(enumerate(plan.slots)), min(3, len(starts) - 1)):
            running = slot_executions(plan, graph, [phase for _, phase in slot[1]], phase_executions(plan, graph, size))
            end = concurrent(running, graph).end
            assert end <= (starts[slot[0] + 1] - starts[slot[0]]) * (1 + 1e-9), plan.name


SYSTEMS = {
    "pod": (Axis("node", 4, T.SWITCH, LINK), Axis("gpu", 4, T.SWITCH, Link(30.0, 2.0))),
    "torus": (Axis("x", 4, T.RING, LINK), Axis("y", 6, T.RING, Link(5.0, 2.0))),
    "lines": (Axis("x", 6, T.LINE, LINK), Axis("y", 4, T.FULL, Link(5.0, 2.0, overhead=3.0))),
}


def of(name: str) -> System:
    return System(name, Chip("c", ()), SYSTEMS[name])


def stage_ranks(system: System, communication: Communication) -> list[list[int]]:
    """The chips of every stage, each in the place that its like has in all stages."""
    parts = communication.assignment
    where = [math.prod(axis.size for axis in system.axes[i + 1 :]) for i in range(len(system.axes))]
    steps = {axis.name: step for axis, step in zip(system.axes, where, strict=True)}
    line = [part for part in parts if part.role is Role.PIPELINE]
    others = [part for part in parts if part.role is not Role.PIPELINE]

    def offsets(chosen: Sequence[SubAxis]) -> list[int]:
        points = product(*(range(part.size) for part in chosen))
        return [sum(c * part.stride * steps[part.axis] for c, part in zip(p, chosen, strict=True)) for p in points]

    return [[first + other for other in offsets(others)] for first in offsets(line)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_activations_of_all_chips_of_a_stage_at_once(name: str) -> None:
    """Every assignment with several stages, every boundary, that from the last stage to the first among them."""
    system, size = of(name), 60
    interconnect, graph = Interconnect(system), network(system.axes)
    known: set[tuple[SubAxis, ...]] = set()
    for assignment in assignments(system):
        pipeline = tuple(part for part in assignment if part.role is Role.PIPELINE)
        if not pipeline or pipeline in known:
            continue
        known.add(pipeline)
        communication = Communication(interconnect, assignment)
        ranks = stage_ranks(system, communication)
        assert len(communication.pipeline_key) == len(ranks) == degree(assignment, Role.PIPELINE)
        for boundary, (here, there) in enumerate(pairwise([*ranks, ranks[0]])):
            sent = [message(f"{a}", graph, a, b, size) for a, b in zip(here, there, strict=True)]
            assert communication.transfer(boundary, size) == pytest.approx(concurrent(sent, graph).end, rel=1e-9)
            assert communication.transfer(boundary + len(ranks), size) == communication.transfer(boundary, size)


def test_equal_keys_have_equal_times() -> None:
    system = of("torus")
    interconnect = Interconnect(system)
    found = [Communication(interconnect, item) for item in assignments(system)]
    times: dict[object, float] = {}
    payload = np.array([0.0, 100.0, 1e6])
    for item in found:
        data = item.data(K.ALL_REDUCE, payload)
        assert data[0] == 0.0
        assert times.setdefault(("data", item.data_key), tuple(data)) == tuple(data)
        names = tuple(axis.name for axis in item.mesh)
        model = item.model(K.ALL_GATHER, names, 4096)
        assert times.setdefault(("model", item.model_key), model) == model
        assert math.prod(axis.ranks for axis in item.mesh) == item.ranks(Role.MODEL)
    fresh = Communication(Interconnect(system), found[-1].assignment)
    assert fresh.data(K.ALL_REDUCE, 1e6) == found[-1].data(K.ALL_REDUCE, 1e6)


def test_many_payloads_take_what_each_takes() -> None:
    communication = Communication(Interconnect(of("torus")), (SubAxis("x", Role.DATA, 4, 1), SubAxis("y", Role.DATA, 6, 1)))
    payloads = np.geomspace(1.0, 1e9, 9000).reshape(3, 3000)
    found = communication.data(K.ALL_REDUCE, payloads)
    assert found.shape == payloads.shape
    for place in ((0, 0), (1, 1095), (1, 1096), (2, 2999)):
        assert found[place] == communication.data(K.ALL_REDUCE, float(payloads[place]))


def test_a_measured_library_is_never_faster_than_the_links() -> None:
    system, overlay = load_system("dgx-a100-pod"), load_fit("a100-sxm-nccl-2.27.3")
    assignment = (SubAxis("node", Role.DATA, 20, 1), SubAxis("gpu", Role.MODEL, 8, 1))
    plain = Communication(Interconnect(system), assignment)
    measured = Communication(Interconnect(system, {"gpu": overlay}), assignment)
    for kind, size in product((K.ALL_REDUCE, K.ALL_GATHER), (2**12, 2**20, 2**28)):
        links, library = plain.model(kind, ("gpu",), size), measured.model(kind, ("gpu",), size)
        assert library == max(links, overlay.time(kind, 8, size))
        assert measured.data(kind, float(size)) == plain.data(kind, float(size))


def test_a_library_that_has_not_measured_a_collective_leaves_it_to_the_links() -> None:
    axis = Axis("gpu", 4, T.FULL, Link(25e9, 1e-6))
    library = load_fit("a100-fully-connected-nccl")
    plain, measured = (collective_time(K.ALL_TO_ALL, (MeasuredLane(axis, fit),)) for fit in (None, library))
    assert plain(2**20) == measured(2**20)


def test_systems_name_the_libraries_that_were_measured_on_their_axes() -> None:
    libraries = load_libraries(load_system("1024 x a100, nvlink 8, ib"))
    assert {axis: (fit.machine, fit.channels.count) for axis, fit in libraries.items()} == {"nvlink": ("a100-sxm", 24)}
    assert load_libraries(load_system("64 x tpu-v4, ici 4x4x4")) == {}


def test_a_chip_under_load_takes_what_was_measured_there() -> None:
    fit, chip = load_chip_fit("a100"), machine(load_chip("a100"))
    assert fit.loaded is not None
    slower = under_load(fit, chip)
    assert kernel_time(fit.loaded.product, chip, slower) == pytest.approx(fit.loaded.time, rel=1e-6)
    assert slower.matrix < fit.efficiency.matrix
    unknown = replace(fit, loaded=None)
    assert under_load(unknown, chip) == fit.efficiency


def test_wrong_names_are_reported() -> None:
    system = of("pod")
    with pytest.raises(BadInput, match="libraries of system pod: expected the name of an axis; got 'gpus'; did you mean 'gpu'"):
        Interconnect(system, {"gpus": load_fit("a100-sxm-nccl-2.27.3")})
    communication = Communication(Interconnect(system), (SubAxis("node", Role.DATA, 4, 1), SubAxis("gpu", Role.MODEL, 4, 1)))
    with pytest.raises(BadInput, match="mesh of the model: expected one of its axes; got 'node'"):
        communication.model(K.ALL_REDUCE, ("node",), 8)


def test_a_large_axis_without_closed_forms_says_what_to_do() -> None:
    lane: Lane = Crossed(Axis("x", 1024, T.FAT_TREE, LINK, (32, 32)), 1024, 1)
    with pytest.raises(BadInput, match="describe it as several axes"):
        collective_time(K.ALL_REDUCE, (MeasuredLane(lane),))


@pytest.mark.parametrize("name", ["gb200-nvl72-pod"])
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER])
def test_measured_times_that_fall_leave_a_way(name: str, kind: CollectiveKind) -> None:
    """A library takes less time for some larger payload: every payload still has a way, and one of the fastest at an end of its
    interval."""
    system = load_system(name)
    connected = Interconnect(system, load_libraries(system))
    parts = SubAxis("rack", Role.DATA, 8, 1), SubAxis("gpu", Role.DATA, 24, 3)
    found = times(kind, tuple(item for part in parts for item in connected.dimensions(part)))
    payloads = np.unique(np.concatenate([np.geomspace(1.0, 1e12, 20_000), [61_452_800.0]]))
    shortest = np.min([way.time(payloads) for way in found.ways], axis=0)
    mine = np.array([found.time(float(payload)) for payload in payloads])
    assert np.isfinite(mine).all()
    assert (mine >= shortest * (1 - 1e-12)).all()
    assert (mine <= shortest * 1.5).all()
