"""Networks and schedules of other tools: ASTRA-sim's networks in, Chakra traces and tables of nccl-tests out; ranks from text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from halley.errors import BadInput
from halley.io.networks import chakra, members
from halley.io.networks.astra import parse_astra
from halley.io.networks.jobs import read_beside
from halley.io.networks.nccl_export import nccl_text
from halley.io.networks.nccl_tests import KINDS, read_measurements
from halley.io.networks.network import load_network, parse_network
from halley.io.networks.save import network_text
from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Pattern, Transfer
from halley.network.time.collective import ScheduledCollective, team_of
from halley.network.time.schedules import Schedule, laid_out

ASTRA = """
topology: [ Ring, FullyConnected, Switch ]
npus_count: [ 2, 8, 4 ]
bandwidth: [ 200.0, 100.0, 50 ]  # GB/s
latency: [ 50.0, 500, 2000.0 ]  # ns
"""


def test_an_astra_network_has_its_axes_the_other_way_round() -> None:
    """Its NPU 47 of 2 x 8 x 4 has the address (1, 7, 2): the first dimension changes fastest."""
    fabric = parse_astra(ASTRA, "three.yml")
    assert (fabric.name, fabric.graph.ranks) == ("three", 64)
    found = [(axis.name, axis.topology, axis.size, axis.link.bandwidth, axis.link.latency) for axis in fabric.axes]
    assert found == [
        ("dim3", Topology.SWITCH, 4, 50 * 2**30, 2e-6),
        ("dim2", Topology.FULL, 8, 100 * 2**30, 5e-7),
        ("dim1", Topology.RING, 2, 200 * 2**30, 5e-8),
    ]
    neighbours = {edge.target for edge in fabric.graph.edges if edge.source == 47 and edge.dimension == 2}
    assert neighbours == {46}


def test_an_astra_network_survives_a_file() -> None:
    fabric = parse_astra(ASTRA, "three.yml")
    again = parse_network(network_text(fabric))
    assert again.axes == fabric.axes
    assert "2^30" in again.sources["axes.dim1.link.bandwidth"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1", "expected the keys topology, npus_count, bandwidth, latency; got list"),
        (ASTRA.replace("Ring", "Torus2D"), "a.yml:2: topology.0: expected one of Ring, FullyConnected, Switch; got 'Torus2D'"),
        (ASTRA.replace("Switch", "Swich"), "did you mean 'Switch'?"),
        (ASTRA.replace("8,", "0,"), "a.yml:3: npus_count.1: expected a whole number from 1 to 16384; got 0"),
        (ASTRA.replace("100.0", "0"), "a.yml:4: bandwidth.1: expected a bandwidth above zero, in GB/s without a unit; got 0"),
        (ASTRA.replace("500", "-1"), "a.yml:5: latency.1: expected a latency of at least zero"),
        (ASTRA.replace(", 4 ]", " ]"), "expected lists of one length; got 2 and 3"),
        (ASTRA.replace("latency", "lateny"), "got 'lateny'; did you mean 'latency'?"),
        (ASTRA.replace("[ 2, 8, 4 ]", "4"), "expected a list with an entry per dimension; got 4"),
        (ASTRA.replace("[ 2, 8, 4 ]", "[ 2000, 2000, 4 ]"), "expected at most 16384 NPUs"),
    ],
)
def test_faults_of_an_astra_network(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_astra(text, "a.yml")
    assert words in str(raised.value)


# Chakra


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protobuf message: what protobuf.dev/programming-guides/encoding says."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(content):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            yield key >> 3, content[at : at + size]
            at += size


def messages(content: bytes) -> list[bytes]:
    """The messages of a file, each after its length: as the fields of one message whose keys are left out."""
    found = []
    while content:
        size = shift = place = 0
        while True:
            byte = content[place]
            size |= (byte & 127) << shift
            shift, place = shift + 7, place + 1
            if byte < 128:
                break
        found.append(content[place : place + size])
        assert len(found[-1]) == size
        content = content[place + size :]
    return found


NUMBERS = {"is_cpu_op": 27, "comm_size": 9, "comm_src": 7, "comm_dst": 7, "comm_tag": 7}
"""Fields of et_def.proto's AttributeProto: bool_val, int64_val, int32_val."""


def decoded(content: bytes) -> tuple[str, list[dict[str, Any]]]:
    """Version and nodes of a trace file."""
    head, *nodes = messages(content)
    version = dict(fields(head))[1]
    assert isinstance(version, bytes)
    found = []
    for node in nodes:
        parts = list(fields(node))
        made: dict[str, Any] = {"id": dict(parts)[1], "type": dict(parts)[3], "waits": []}
        for number, value in parts:
            if number == 5:
                assert isinstance(value, bytes)
                made["waits"] = [item for _, item in fields(b"".join(b"\x08" + bytes([byte]) for byte in value))]
            if number == 10:
                assert isinstance(value, bytes)
                (one, name), (number, inner) = fields(value)
                assert isinstance(name, bytes)
                assert (one, number) == (1, NUMBERS[name.decode()])
                made[name.decode()] = inner
        found.append(made)
    return version.decode(), found


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        (CollectiveKind.ALL_REDUCE, "ring"),
        (CollectiveKind.ALL_TO_ALL, "direct"),
        (CollectiveKind.BROADCAST, "binomial"),
        (CollectiveKind.ALL_GATHER, "bruck"),
    ],
)
def test_a_trace_runs_to_its_end_and_moves_the_bytes_of_the_schedule(kind: CollectiveKind, algorithm: str) -> None:
    team, size = team_of(load_network("sn10-ring").axes), 1001
    schedule = Schedule(algorithm)
    sizes = laid_out(team, kind, schedule).sizes(size).tolist()
    made = chakra.trace(schedule.steps(kind, 8, False), sizes, 8)
    read = [decoded(content) for _, content in chakra.trace_files(made, "x")]
    assert {version for version, _ in read} == {chakra.VERSION}
    todo = {(rank, node["id"]): node for rank, (_, nodes) in enumerate(read) for node in nodes}
    sent, done, hops = set(), set(), Counter[tuple[object, object]]()
    while todo:
        free = [key for key, node in todo.items() if all((key[0], number) in done for number in node["waits"])]
        ready = [key for key in free if todo[key]["type"] == 5 or todo[key]["comm_tag"] in sent]
        assert ready, "a trace that waits for itself"
        for key in ready:
            node = todo.pop(key)
            done.add(key)
            assert node["is_cpu_op"] == 0
            assert key[0] == node["comm_src" if node["type"] == 5 else "comm_dst"]
            if node["type"] == 5:
                sent.add(node["comm_tag"])
                hops[node["comm_src"], node["comm_dst"]] += node["comm_size"]
    cost = ScheduledCollective(kind, schedule, team, size).cost()
    routed = sum(count * min((a - b) % 8, (b - a) % 8) for (a, b), count in hops.items())
    assert routed == cost.byte_hops


def test_a_send_waits_for_what_it_passes_on() -> None:
    table = Schedule("ring").steps(CollectiveKind.ALL_GATHER, 4, False)
    made = chakra.trace(table, [8] * 4, 4)
    for nodes in made:
        sends = [node for node in nodes if node.type == chakra.SEND]
        assert sends[0].waits == ()
        for node in sends[1:]:
            assert len(node.waits) == 1
            arrival = nodes[node.waits[0]]
            assert arrival.type == chakra.RECEIVE
            assert arrival.name.split(" chunk ")[1] == node.name.split(" chunk ")[1]


def test_a_sum_waits_for_all_that_was_added() -> None:
    """Rank 0 adds what three others send in two steps, then sends the sum on; rank 1 passes on what replaced its own."""
    table = ((Transfer(1, 0, 0, True), Transfer(3, 0, 0, True)), (Transfer(2, 0, 0, True),), (Transfer(0, 1, 0, False),))
    first, second, _, _ = chakra.trace((*table, (Transfer(1, 2, 0, False),)), [8], 4)
    assert [node.waits for node in first] == [(), (), (), (0, 1, 2)]
    assert [node.waits for node in second] == [(), (), (1,)]


def test_what_switches_carry_is_no_trace() -> None:
    table = Schedule("in-network").steps(CollectiveKind.ALL_REDUCE, 8, False)
    with pytest.raises(BadInput, match="messages between ranks; got a collective inside switches"):
        chakra.trace(table, [8], 8)


# nccl-tests


@pytest.mark.parametrize("kind", list(KINDS.values()))
def test_predictions_read_back_as_measurements(kind: CollectiveKind) -> None:
    rows = [(1000, 1.23456e-6), (2**20, 4.5e-5), (2**30, 12.0)]
    text = nccl_text(kind, 12, rows, "mine\n# Rank 99 (not a line)")
    for in_place in (False, True):
        found = read_measurements(text, "log", in_place=in_place)
        assert [(row.kind, row.ranks, row.size) for row in found] == [(kind, 12, size) for size, _ in rows]
        assert [row.time for row in found] == pytest.approx([time for _, time in rows], rel=1e-5)
    assert "nothing here was measured" in text


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md: algbw S / t; busbw times 2 (n - 1) / n for all-reduce."""
    row = nccl_text(CollectiveKind.ALL_REDUCE, 4, [(10**9, 1.0)], "x").splitlines()[-1].split()
    assert (row[0], row[5], row[6], row[7]) == ("1000000000", "1e+06", "1.000", "1.500")


def test_a_barrier_has_no_table() -> None:
    with pytest.raises(BadInput, match="a collective that they have; got barrier"):
        nccl_text(Pattern.BARRIER, 4, [(1, 1.0)], "x")


# ranks


def test_ranks_from_text() -> None:
    pod = load_network("hgx-pod")
    assert members.ranks("0-3, 8, 16-20:2", pod) == (0, 1, 2, 3, 8, 16, 18, 20)
    box = members.box("gpu=0:4:2", pod)
    assert members.in_box(box, pod) == (0, 2)
    assert members.copies(box, pod)[:2] == ((0, 2), (8, 10))
    assert len(members.copies(box, pod)) == 32
    assert members.in_box(members.box("node", pod), pod) == tuple(range(0, 256, 8))
    assert members.in_box(members.box("node=3,gpu", pod), pod) == tuple(range(24, 32))
    assert members.in_box(members.box("node=30:,gpu=:1", pod), pod) == (240, 248)
    assert members.copies(members.box("node,gpu", pod), pod) == (tuple(range(256)),)


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-3:0", "1,,2", "-1", "1-", "0x3", "٣", "1e3"])
def test_what_is_no_list_of_ranks(text: str) -> None:
    with pytest.raises(BadInput, match="expected ranks such as 0-7"):
        members.ranks(text, load_network("dgx-1"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus", "an axis of hgx-pod; got 'gpus'; did you mean 'gpu'?"),
        ("gpu,gpu=1", "each axis once; got 'gpu' again"),
        ("gpu=0:9", "a part of axis gpu, 0 <= START < STOP <= 8"),
        ("gpu=4:4", "a part of axis gpu"),
        ("gpu=8", "a part of axis gpu"),
        ("gpu=", "a part of axis gpu"),
        ("gpu=0:4:0", "a part of axis gpu"),
    ],
)
def test_what_is_no_part_of_an_axis(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        members.box(text, load_network("hgx-pod"))
    assert words in str(raised.value)


# sentences


def test_sentences_are_executions() -> None:
    pod = load_network("hgx-pod")
    found = read_beside(
        [
            "all-to-all 64 MiB on every gpu by direct after 10 us, 3 times",
            "1GiB from 0 to 200",
            "25% load on node",
            "all-reduce 1MB on axis gpu",
            "barrier on ranks 0-3",
        ],
        pod,
    )
    every, one, reduce, barrier = found.executions
    assert (every.start, len(every.stages)) == (1e-5, 3)
    loads = every.loads(pod.graph)
    used = {pod.graph.edges[edge].dimension for edge in loads.nonzero()[0]}
    assert used == {1}
    assert loads.sum() == 3 * 256 * 2 * 7 / 8 * 64 * 2**20
    assert one.alone(pod.graph) == pytest.approx(2**30 / 50e9 + 1e-6, rel=1e-3)
    sources = {edge.source for edge, load in zip(pod.graph.edges, reduce.loads(pod.graph), strict=True) if load}
    assert sources == {*range(8), 256 + [switch.name for switch in pod.graph.switches].index("switch of gpu 0")}
    assert not barrier.loads(pod.graph).any()
    loaded = {(edge.dimension, share) for edge, share in zip(pod.graph.edges, found.background, strict=True)}
    assert loaded == {(0, 0.25), (1, 0.0)}


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("dance", "expected a collective; got 'dance'"),
        ("all-reduce", "expected a size; got none"),
        ("all-reduce 0B", "expected a size above zero"),
        ("all-reduce 5", "a collective, a message or a load"),
        ("all-reduce 5 parsecs", "unknown unit"),
        ("all-reduce 1MB on ranks 0-900", "ranks from 0 to 255"),
        ("all-reduce 1MB on rack", "an axis of hgx-pod"),
        ("all-reduce 1MB on gpu by rign", "did you mean 'ring'?"),
        ("all-reduce 1MB on gpu 0 times", "from 1 to 1000 times"),
        ("all-reduce 1MB on node by ring 900 times", "at most 20000 steps in all; got 55800"),
        ("1MB from 0 to 0", "two different ranks"),
        ("100% load", "a load from 0 to below 100 %"),
        ("1.2.3% load", "a load from 0 to below 100 %"),
        ("5% load on rack", "an axis of hgx-pod; got 'rack'"),
        ("barrier 5B", "expected no size; got '5B'"),
        ("0.3B from 0 to 1", "a whole number of bytes"),
    ],
)
def test_sentences_that_cannot_be_read(sentence: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_beside([sentence], load_network("hgx-pod"))
    assert words in str(raised.value)
    assert str(raised.value).startswith("--beside") or "among" in str(raised.value) or "ends" in str(raised.value)
