"""Systems: what ships is sourced and as published, the short form says what a file says, faults come together, costs add up."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halley import library
from halley.errors import BadInput
from halley.formulas.price import silicon_power
from halley.io.chips.chip import origins_of
from halley.io.chips.load import load_chip
from halley.io.networks.models import links_table
from halley.io.networks.network import load_network
from halley.io.systems.grid import load_grid, parse_grid
from halley.io.systems.models import parts_table
from halley.io.systems.save import system_yaml
from halley.io.systems.system import load_system, parse_system
from halley.io.systems.words import parse_words
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.system import Cost, System, resized, tiers_of, with_memory
from halley.network.graph import measures
from halley.network.graph.bill import bill, bisection
from halley.network.graph.products import product

SYSTEMS = library.SYSTEMS.names()
LINK = "{bandwidth: 10 GB/s, latency: 1 us, energy: 8 pJ/bit, price: 40}"
OWN = f"""\
name: own
chip: edge
costs:
  chip: {{price: 100, power: 6 W}}
  node: {{price: 20}}
host: {{capacity: 64 GB, bandwidth: 50 GB/s, link: {{technology: pcie-4}}}}
axes:
  - {{name: node, size: 3, topology: ring, link: {LINK}}}
  - {{name: chip, size: 4, topology: switch, link: {LINK}}}
"""


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_shipped_system_states_where_its_numbers_come_from(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert system.description
    numbers = [f"axes.{axis.name}.{key}" for axis in system.axes for key in ("size", "topology")]
    numbers += [f"axes.{axis.name}.link.{key}" for axis in system.axes for key in ("bandwidth", "latency", "energy", "price")]
    for part in ("chip", "memory", "node"):
        cost: Cost = getattr(system, f"{part}_cost")
        numbers += [f"costs.{part}.{key}" for key in ("price", "power") if getattr(cost, key) is not None]
    if system.host:
        numbers += [f"host.{key}" for key in ("capacity", "bandwidth", "link.bandwidth", "link.latency", "link.energy")]
    assert [number for number in numbers if not system.sources.get(number, "").strip()] == []
    bare = re.sub(r"(?m)^ *(source|assumed): .*\n|, (source|assumed): (\"[^\"]*\"|[^}]*)", "", library.SYSTEMS.text(name))
    with pytest.raises(BadInput, match="expected a source, or assumed: and why; got neither"):
        parse_system(bare, sourced=True)


WORDS = ("1024 x h100, nvlink 8, ib", "64 x tpu-v4, ici 4x4x4", "dfmodel:sn30/dgx-1/ddr4/pcie-4")


@pytest.mark.parametrize("name", [*SYSTEMS, *WORDS])
def test_what_is_written_reads_back(name: str) -> None:
    system = load_system(name)
    again = parse_system(system_yaml(system))
    kept = replace(again, sources=system.sources)
    if system.chip.sources != again.chip.sources:  # a chip with other DRAM
        kept = replace(kept, chip=replace(again.chip, sources=system.chip.sources))
    assert kept == (system if system.host is None else replace(system, host=again.host))
    assert again.host == system.host


def test_the_table_of_parts_is_sourced_and_of_shipped_chips() -> None:
    table = parts_table()
    assert set(table.chips) <= set(library.CHIPS.names())
    assert table.currency == links_table().currency == "USD"
    for name, row in table.chips.items():
        told = {path: text for path, text in origins_of(row, (), "") if path[-1] not in ("technology", "count")}
        assert [(name, path) for path, text in told.items() if not text] == []


NOT_JOINED = {
    "cloud", "edge", "eyeriss-like", "simba", "simba-like", "tile-mesh", "tile-mesh-16", "tile-mesh-8", "tpu-v4i-like",
    "h100-clusters",  # stands for the h100 in searches of mappings
    "mi250",  # links of its two dies to other cards are not equal
}  # fmt: skip
"""Shipped chips for which the table of parts has no ports."""


def test_chips_of_machines_have_ports() -> None:
    joined = {name for name, row in parts_table().chips.items() if row.ports}
    assert joined == set(library.CHIPS.names()) - NOT_JOINED


def test_names_of_systems_and_chips_differ() -> None:
    assert not set(SYSTEMS) & set(library.CHIPS.names())


PUBLISHED = [
    # chips, bandwidth that leaves a chip [GB/s], nearest memory [GB], bandwidth of that [GB/s]
    # of a network between nodes, the share that libraries reach
    ("dgx-a100-pod", 160, 300 + 0.85 * 25, 80, 2039),
    ("dgx-h100-pod", 256, 450 + 0.85 * 50, 80, 3350),
    ("dgx-h200-pod", 256, 450 + 0.85 * 50, 141, 4800),
    ("gb200-nvl72-pod", 576, 900 + 0.85 * 50, 186, 8000),
    ("tpu-v4-cube", 64, 300, 32 * 1.024**3, 1200),
    ("tpu-v4-pod", 4096, 300, 32 * 1.024**3, 1200),
    ("sn10-ring", 8, 50, 1500, 200),
    ("sn10-torus", 8, 75, 1500, 200),
    ("sn40l-torus", 16, 100, 64 * 1.024**3, 2000),
]


@pytest.mark.parametrize(("name", "chips", "injection", "capacity", "bandwidth"), PUBLISHED)
def test_the_figures_of_shipped_systems(name: str, chips: int, injection: float, capacity: float, bandwidth: float) -> None:
    system = load_system(name)
    assert system.chips == product(system.axes).ranks == chips
    assert product(system.axes).injection(0) == pytest.approx(injection * 1e9)
    assert system.tiers[0].capacity == pytest.approx(capacity * 1e9)
    assert system.tiers[0].read_bandwidth == pytest.approx(bandwidth * 1e9)


def test_a_system_is_joined_as_the_network_of_its_kind() -> None:
    assert product(load_system("sn10-ring").axes).edges == load_network("sn10-ring").graph.edges
    system, network = product(load_system("dgx-h100-pod").axes), load_network("hgx-pod").graph
    pairs = (
        [(one.source, one.target, one.link.price) for one in system.edges],
        [(e.source, e.target, e.link.price) for e in network.edges],
    )
    assert pairs[0] == pairs[1]


def test_between_nodes_a_library_reaches_a_share_of_the_line_rate_and_pays_for_all_of_it() -> None:
    short, bare = load_system("256 x h100, nvlink 8, ib"), load_system("256 x h100, nvlink 8, infiniband-ndr")
    network, line = short.axes[0].link, bare.axes[0].link
    assert (network.bandwidth, network.latency) == (pytest.approx(0.85 * line.bandwidth), 2.5e-6)
    assert network.price == line.price
    assert not short.axes[0].reduction
    assert load_system("256 x h100, nvlink 8, ib").axes[1].reduction


@pytest.mark.parametrize("network", ["tpu-v4-cube", "sn10-torus"])
def test_a_torus_of_rings_has_the_measures_of_a_torus(network: str) -> None:
    rings, torus = product(load_system(network).axes), load_network(network).graph
    assert measures.bisection(rings) == measures.bisection(torus)
    assert measures.diameter(rings) == pytest.approx(measures.diameter(torus))
    assert measures.price(rings) == measures.price(torus)


def test_tiers_are_the_large_memories_that_a_chip_has_once() -> None:
    expected = {
        "h100": ["dram"],
        "sn40l": ["hbm", "ddr"],
        "edge": ["dram"],
        "wse-2": ["pool", "memoryx"],
        "eyeriss-like": ["dram"],
    }
    assert {name: [memory.name for memory in tiers_of(load_chip(name))] for name in expected} == expected


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_bill_by_hand() -> None:
    """12 chips; three nodes in four rings of three links, and three switches with four links; 64 pJ/B both ways."""
    system = parse_system(OWN)
    found = {item.part: (item.count, item.price, item.power) for item in bill(system).items}
    ring = switch = (12, 480.0, pytest.approx(24 * 10e9 * 64e-12))
    assert found == {
        "chips": (12, 1200.0, 72.0),
        "memories": (12, None, None),
        "nodes": (12, 240.0, None),
        "links node": ring,
        "links chip": switch,
    }
    assert bill(system).price == 1200 + 240 + 960
    assert bill(system).power == pytest.approx(72 + 2 * 15.36)
    assert (bill(system).unpriced, bill(system).unpowered) == (("memories",), ("memories", "nodes"))


@pytest.mark.parametrize("name", [*SYSTEMS, "dfmodel:h100/dragonfly/hbm3/pcie-4"])
def test_the_axes_of_a_bill_are_the_whole_network(name: str) -> None:
    """The graph of all axes together, which the bill never builds, has the same price and power."""
    system = load_system(name)
    items = [item for item in bill(system).items if item.part.startswith("links")]
    graph = product(system.axes)
    assert sum(item.price or 0.0 for item in items) == pytest.approx(measures.price(graph))
    assert sum(item.power or 0.0 for item in items) == pytest.approx(measures.power(graph))
    if system.chips <= 1024:
        assert min(bisection(system, axis) for axis in system.axes) == pytest.approx(measures.bisection(graph))


SN30 = """\
name: published
chips: {sn30: {chip: sn30, price: 16522.25023, power: 444.7061955 W}}
topologies: {torus: [{name: x, size: 128, topology: ring}, {name: y, size: 8, topology: ring}]}
memories: {ddr: {capacity: 1 TB, bandwidth: 300 GB/s, energy: 162.48 pJ/B, price: 1}}
links: {pcie: {bandwidth: 50 GB/s, latency: 0 s, energy: 52 pJ/B, price: 2, port_energy: 52 pJ/B, port_price: 24}}
"""


def test_the_published_example_of_dfmodel_to_the_digit() -> None:
    """The README of its repository (github.com/kosho2013/DFModel): 1024 SN30 on a torus of 8 x 128 at 50 GB/s, DRAM 300 GB/s;
    it prints System Cost 17757184.0 and System Power 511325.01135492325. Its inputs are kept in single precision."""
    single = [float(np.float32(value)) for value in (16522.25023, 444.7061955, 0.16248, 0.052)]
    text = SN30
    for given_as, value in zip(("16522.25023", "444.7061955 W", "162.48 pJ/B", "52 pJ/B"), single, strict=True):
        unit = given_as.partition(" ")[2].replace("pJ/B", "nJ/B")
        text = text.replace(given_as, f"{value!r} {unit}".strip())
    (system,) = parse_grid(text).values()
    assert bill(system).price == pytest.approx(17757184.0, rel=1e-12)
    assert bill(system).power == pytest.approx(511325.01135492325, rel=1e-12)


def test_the_grid_of_dfmodel() -> None:
    systems = load_grid("dfmodel")
    assert len(systems) == 80
    assert {system.chips for system in systems.values()} == {1024}
    assert {system.tiers[0].read_bandwidth for system in systems.values()} == {200e9, 3000e9}
    assert {axis.link.bandwidth for system in systems.values() for axis in system.axes} == {25e9, 900e9}
    one = load_system("dfmodel:tpu-v4/torus-3d/ddr4/pcie-4")
    assert one == systems["tpu-v4/torus-3d/ddr4/pcie-4"]
    assert [axis.size for axis in one.axes] == [16, 8, 8]
    for name, peak in (("h100", 989.4), ("tpu-v4", 275.0), ("wse-2", 7480.0)):
        cost = systems[f"{name}/torus-2d/ddr4/pcie-4"].chip_cost
        assert cost.power == pytest.approx(1e3 * silicon_power(peak), rel=1e-3)
        assert cost.price == pytest.approx(16522.25 / 444.706 * (cost.power or 0.0), rel=0.005)


@pytest.mark.parametrize(("tera", "watts"), [(275, 192), (614.4, 444.7), (989.4, 700), (7480, 20_000)])
def test_the_fit_of_silicon_power_is_near_what_vendors_state(tera: float, watts: float) -> None:
    """ISCA 2023 (TPU v4), DFModel's example (SN30), data sheets (H100; CS-2 takes 20 to 23 kW)."""
    assert 1e3 * silicon_power(tera) == pytest.approx(watts, rel=0.1)


@given(size=st.integers(1, 9), topology=st.sampled_from([Topology.RING, Topology.SWITCH, Topology.FULL, Topology.LINE]))
def test_more_of_the_same_costs_in_proportion(size: int, topology: Topology) -> None:
    """Copies of an axis: prices and powers of all parts double where the chips do."""
    edge = load_chip("edge")
    axis = Axis("x", size, topology, Link(10e9, 0.0, 1e-11, 7.0))
    one = System("one", edge, (Axis("copy", 1, Topology.LINE, axis.link), axis), chip_cost=Cost(3.0, 5.0))
    two = resized(one, 2 * one.chips)
    pairs = zip(bill(one).items, bill(two).items, strict=True)
    for single, double in ((a, b) for a, b in pairs if a.part in ("chips", "links x")):
        assert (double.count, double.price, double.power) == (2 * single.count, 2 * (single.price or 0), 2 * (single.power or 0))


# --- the short form ---------------------------------------------------------------------------------------------------


def test_the_short_form_says_what_a_file_says() -> None:
    for chip in ("h100", "h200"):
        short, long = load_system(f"256 x {chip}, nvlink 8, ib"), load_system(f"dgx-{chip}-pod")
        assert [replace(axis, name="") for axis in short.axes] == [replace(axis, name="") for axis in long.axes]
        assert (short.chip, short.host, short.chip_cost, short.node_cost) == (
            long.chip,
            long.host,
            long.chip_cost,
            long.node_cost,
        )
    cube = load_system("64 x tpu-v4, ici 4x4x4")
    assert product(cube.axes).edges == product(load_system("tpu-v4-cube").axes).edges
    assert bill(load_system("8 x sn10, pcie")).items[3:] != ()


SHORT = [
    ("1 x h100", []),
    ("8 x h100, nvlink", [("nvlink", "switch", 8)]),
    ("8 x h100, nvlink 8, ib", [("nvlink", "switch", 8)]),
    ("16 x h100, nvlink ring 4, ib full", [("ib", "full", 4), ("nvlink", "ring", 4)]),
    ("8 x sn10, pcie torus 4x2", [("pcie-x", "ring", 4), ("pcie-y", "ring", 2)]),
    ("12 x sn10, pcie mesh 4x3", [("pcie-x", "line", 4), ("pcie-y", "line", 3)]),
    ("32 x h100, nvlink 8, ib 2, ib", [("ib-2", "switch", 2), ("ib-1", "switch", 2), ("nvlink", "switch", 8)]),
    ("6 x edge, ethernet-400g-dsp", [("ethernet-400g-dsp", "switch", 6)]),
    ("  1024   x h100 ,nvlink   8,ib ", [("ib", "switch", 128), ("nvlink", "switch", 8)]),
]


@pytest.mark.parametrize(("text", "axes"), SHORT)
def test_short_forms(text: str, axes: list[tuple[str, str, int]]) -> None:
    system = load_system(text)
    assert [(axis.name, axis.topology.value, axis.size) for axis in system.axes] == axes


WRONG = [
    ("1024 x h10, nvlink 8, ib", "did you mean 'h100'?"),
    ("1024 x dgx-h100-po", "did you mean 'dgx-h100-pod'?"),
    ("1024 x dgx-h100-pod, ib", "expected a chip before axes; got 'dgx-h100-pod'"),
    ("1024 x h100, nvlnk 8, ib", "a port of h100 (nvlink, ib, pcie) or a link technology; got 'nvlnk'; did you mean 'nvlink'?"),
    ("1000 x h100, nvlink 16, ib", "sizes whose product divides 1000 chips; got 16; try 992 or 1008 chips"),
    ("1024 x h100, nvlink 8, ib 100", "sizes whose product is 1024 chips; got 8 x 100 = 800; leave out the size of one axis"),
    ("1024 x h100, nvlink, ib", "one axis at most without a size; got 'nvlink' and 'ib'"),
    ("1024 x h100", "axes that join the 1024 chips; got none; add for example ', nvlink'"),
    ("1024 x h100, nvlink 8,, ib", "expected an axis after each comma; got nothing"),
    ("8 x sn10, pcie rng 8", "got 'rng'; did you mean 'ring'?"),
    ("8 x sn10, pcie 0x8", "expected a size such as 8 or 4x4x4; got '0x8'"),
    ("8 x sn10, pcie 8 ring", "expected a port, a topology, a size; got 'ring'"),
    ("0 x h100, ib", "a whole number of chips from 1 to 1,048,576; got '0'"),
    ("9999999 x h100, ib", "a whole number of chips from 1 to 1,048,576; got '9999999'"),
    ("many x h100, ib", "a whole number of chips from 1 to 1,048,576; got 'many'"),
    ("h100, nvlink 8", "expected a count of chips and a chip; got 'h100'"),
    ("16384 x mi300x, xgmi", "at most 1048576 ranks and 16777216 links"),
    ("dgx-h100-po", "did you mean 'dgx-h100-pod'?"),
    ("100 x dgx-h100-pod", "a multiple of 8 chips, the other axes' product; got 100; try 96"),
    ("99999 x sn10-ring", "at most 16384 chips and 262144 links"),
    ("dfmodel:h100/torus-2d/ddr4/pcie-5", "did you mean 'h100/torus-2d/ddr4/pcie-4'?"),
    ("./none.yaml", "expected a file; got no such file"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_wrong_with_a_short_form_is_said(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_system(text)
    assert words in str(caught.value)


def test_all_faults_of_a_short_form_come_together() -> None:
    with pytest.raises(BadInput) as caught:
        parse_words("none x h100, nvlnk 8, ib rng, pcie 0")
    assert len(caught.value.faults) == 4
    with pytest.raises(BadInput) as caught:
        parse_words("none x q100, nvlnk 8")
    assert [fault.where for fault in caught.value.faults] == ["system, count", "system, chip"]


@given(st.text(alphabet="0123456789x ,abhnvlikgrdu-", max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(BadInput):
        assert load_system(text).chips >= 1


# --- files ------------------------------------------------------------------------------------------------------------


def test_all_faults_of_a_file_come_together_with_their_lines() -> None:
    text = OWN.replace("chip: edge", "chip: egde").replace("price: 20", "price: -20").replace("size: 3", "sise: 3")
    with pytest.raises(BadInput) as caught:
        parse_system(text, "own.yaml")
    said = "\n".join(map(str, caught.value.faults))
    assert "own.yaml:5: costs.node.price: expected a price" in said
    assert "axes.node.sise: expected a known key; got 'sise'; did you mean 'size'?" in said
    assert "own.yaml:2: chip" in said
    assert "did you mean 'edge'?" in said
    assert len(caught.value.faults) >= 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("latency: 1 us, ", "", "own.yaml:8: axes.node.link.latency: expected this key, or a technology; got neither"),
        ("chip: edge\n", "", "own.yaml:1: chip: expected this key"),
        ("chip: edge\n", "chip: [edge]\n", "expected the name of a chip, a path to its file, or a map; got a list"),
        ("chip: edge\n", "chip: edge\nmemories: [hbm]\n", "own.yaml:3: memories.0: expected a memory of chip edge: "),
        ("name: chip", "name: node", "expected axes with names of their own; got 'node' twice"),
        ("capacity: 64 GB", "capacity: 64", "host.capacity: expected a size; got 64, without a unit"),
        ("technology: pcie-4", "technology: pcie4", "did you mean 'pcie-4'?"),
        ("size: 4", "size: 40000", "at most 16384 ranks"),
        ("topology: switch", "topology: swich", "did you mean 'switch'?"),
    ],
)
def test_faults_of_files(old: str, new: str, words: str) -> None:
    assert old in OWN
    with pytest.raises(BadInput) as caught:
        parse_system(OWN.replace(old, new), "own.yaml")
    assert words in str(caught.value)


def test_a_file_of_ones_own_counts_first() -> None:
    """What the file says of costs and host stands before the table of parts; the table has the rest."""
    text = "name: own\nchip: h100\ncosts: {chip: {price: 1}}\ndram: {capacity: 96 GB, bandwidth: 4 TB/s, energy: 30 pJ/B}\n"
    system = parse_system(text)
    assert (system.chip_cost, system.memory_cost) == (Cost(1.0, 700.0), Cost(None, 120.0))
    assert system.tiers[0].capacity == 96e9
    assert system.chip == with_memory(load_chip("h100"), 96e9, 4e12, 30e-12)
    assert "levels.dram.memories.dram.capacity" not in system.chip.sources
    assert system.sources["costs.memory.power"] == "bandwidth times energy of the DRAM, always busy"
    assert system.host == load_system("dgx-h100-pod").host
    assert (system.chips, system.axes) == (1, ())


GRID_FAULTS = [
    ("chip: sn30", "chip: sn33", "did you mean 'sn30'?"),
    ("name: y", "name: x", "expected axes with names of their own; got x, x"),
    ("size: 128", "size: 12800", "at most 16384 chips"),
    ("port_price: 24", "port_prise: 24", "did you mean 'port_price'?"),
]


@pytest.mark.parametrize(("old", "new", "words"), GRID_FAULTS)
def test_faults_of_grids(old: str, new: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_grid(SN30.replace(old, new))
    assert words in str(caught.value)


def test_a_system_is_resized_along_its_outermost_axis() -> None:
    pod = load_system("dgx-h100-pod")
    assert [axis.size for axis in resized(pod, 1024).axes] == [128, 8]
    assert resized(pod, 256) is pod
    for system, chips in ((pod, 0), (load_system("1 x h100"), 2), (replace(pod, axes=(load_network("tpu-v4-cube").axes)), 128)):
        with pytest.raises(BadInput):
            resized(system, chips)


def test_a_system_knows_its_axes() -> None:
    pod = load_system("dgx-h100-pod")
    assert pod.axis("gpu").size == 8
    with pytest.raises(BadInput, match="did you mean 'gpu'"):
        pod.axis("gpus")
    with pytest.raises(BadInput, match="'node' twice"):
        replace(pod, axes=(pod.axes[0], pod.axes[0]))
    with pytest.raises(BadInput, match="a memory of chip h100"):
        replace(pod, memories=("hbm",))
