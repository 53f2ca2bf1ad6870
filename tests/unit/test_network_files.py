"""Network files: what ships is sourced and as published, what is written reads back, and every fault comes with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.test_schema import fits

from halley import library
from halley.errors import BadInput
from halley.io.files.text import read_yaml
from halley.io.networks.models import links_table
from halley.io.networks.network import load_network, parse_network
from halley.io.networks.save import network_text
from halley.io.schema import schema
from halley.ir.hardware import Axis, Link, Topology
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Edge, Graph
from halley.network.graph.measures import bisection, diameter, injection, power, price
from halley.network.graph.products import product
from halley.network.graph.routes import EveryShortest, paths
from halley.network.graph.topologies import build

NETWORKS = library.NETWORKS.names()
LINK = "{bandwidth: 10 GB/s, latency: 1 us, energy: 8 pJ/bit}"
SQUARE = """\
name: square
currency: EUR
ranks: 3
switches:
  - {name: hub, multicast: true}
links:
  - name: fast
    bandwidth: 20 GB/s
    latency: 100 ns
    energy: 8 pJ/bit
    price: 40
    between: [[0, hub], [1, hub]]
  - name: slow
    bandwidth: 5 GB/s
    latency: 1 us
    energy: 16 pJ/bit
    price: 6
    between: [[2, hub]]
    from_to: [[0, 2]]
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_shipped_network_states_where_its_numbers_come_from(name: str) -> None:
    fabric = load_network(name)
    assert fabric.name == name
    assert fabric.description
    for axis in fabric.axes:
        at = f"axes.{axis.name}"
        numbers = [f"{at}.link.{key}" for key in ("bandwidth", "latency", "energy")]
        numbers += [f"{at}.link.price"] if axis.link.price else []
        assert {f"{at}.size", f"{at}.topology", *numbers} <= set(fabric.sources)
    bare = re.sub(r"(?m)^(source|assumed): .*\n|, (source|assumed): (\"[^\"]*\"|[^}]*)", "", library.NETWORKS.text(name))
    with pytest.raises(BadInput, match="expected a source, or assumed: and why; got neither"):
        parse_network(bare, sourced=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_written_reads_back(name: str) -> None:
    fabric = load_network(name)
    again = parse_network(network_text(fabric))
    assert (again.name, again.description, again.currency, again.axes) == (
        fabric.name,
        fabric.description,
        fabric.currency,
        fabric.axes,
    )
    assert again.graph.edges == fabric.graph.edges
    assert again.sources.items() <= fabric.sources.items()
    assert parse_network(network_text(again)).sources == again.sources


PUBLISHED = [
    # bandwidth of a rank in one direction [GB/s], ranks, longest way
    ("dgx-1", 150, 8, 2),  # 300 GB/s in both directions
    ("dgx-2", 150, 16, 2),
    ("dgx-a100", 300, 8, 2),  # 600 GB/s
    ("dgx-h100", 450, 8, 2),  # 900 GB/s
    ("dgx-h200", 450, 8, 2),
    ("gb200-nvl72", 900, 72, 2),  # 1.8 TB/s
    ("hgx-pod", 500, 256, 4),  # NVLink and 400 Gb/s of InfiniBand
    ("tpu-v4-cube", 300, 64, 6),  # six links of 50 GB/s
    ("sn10-ring", 50, 8, 4),
    ("sn10-torus", 75, 8, 3),
]


@pytest.mark.parametrize(("name", "bandwidth", "ranks", "hops"), PUBLISHED)
def test_the_figures_of_shipped_networks(name: str, bandwidth: float, ranks: int, hops: int) -> None:
    graph = load_network(name).graph
    assert injection(graph) == pytest.approx(bandwidth * 1e9)
    assert (graph.ranks, diameter(graph)[0]) == (ranks, hops)


BISECTIONS = [
    (Axis("x", 8, Topology.RING, Link(3.0)), 6),
    (Axis("x", 16, Topology.RING, Link(3.0)), 6),
    (Axis("x", 9, Topology.LINE, Link(3.0)), 3),
    (Axis("x", 14, Topology.FULL, Link(1.0)), 49),
    (Axis("x", 14, Topology.SWITCH, Link(2.0)), 14),
    (Axis("x", 64, Topology.MESH, Link(1.0), (8, 8)), 8),
    (Axis("x", 64, Topology.TORUS, Link(1.0), (4, 4, 4)), 32),
    (Axis("x", 32, Topology.TORUS, Link(1.0), (4, 8)), 8),
    (Axis("x", 32, Topology.HYPERCUBE, Link(1.0)), 16),
    (Axis("x", 32, Topology.FAT_TREE, Link(1.0), (8, 4)), 8),
    (Axis("x", 64, Topology.FAT_TREE, Link(1.0), (4, 4, 4, 16)), 32),
    (Axis("x", 8, Topology.DGX_1, Link(1.0)), 6),
    (Axis("x", 8 * 4 * 33, Topology.DRAGONFLY, Link(1.0), (8, 4, 4)), 33 * 33 // 4),
]


@pytest.mark.parametrize(("axis", "expected"), BISECTIONS, ids=lambda item: getattr(item, "topology", ""))
def test_bisections(axis: Axis, expected: float) -> None:
    """One way, as the table of networks has them: n b / (2 o) of a fat-tree, g^2 / 4 of a dragonfly."""
    assert bisection(build(axis)) == expected


def test_a_pod_of_tpu_v4_has_the_published_bisection() -> None:
    """Google Cloud's TPU v4 page: 24 TB/s for 4096 chips; 2 x 256 links of 50 GB/s close a torus of 16 x 16 x 16: 25.6."""
    link = load_network("tpu-v4-cube").axes[0].link
    assert bisection(build(Axis("chip", 4096, Topology.TORUS, link, (16, 16, 16)))) == pytest.approx(24e12, rel=0.07)


def test_shipped_files_fit_the_schema() -> None:
    rules = schema("network")
    assert [name for name in NETWORKS if not fits(read_yaml(library.NETWORKS.text(name), name).data, rules, rules)] == []
    assert not fits({"name": "x", "axes": [{"name": "a"}]}, rules, rules)


def test_a_pod_is_cut_through_its_rails() -> None:
    """Eight rails with 16 of 32 nodes on either side, or 32 nodes with four of eight GPUs: the rails are narrower."""
    pod = product((Axis("node", 32, Topology.SWITCH, Link(50.0)), Axis("gpu", 8, Topology.SWITCH, Link(450.0))))
    assert bisection(pod) == 8 * 16 * 50


def test_listed_links() -> None:
    fabric = parse_network(SQUARE)
    graph = fabric.graph
    assert graph.ranks == 3
    assert [(item.name, item.multicast, item.reduction) for item in graph.switches] == [("hub", True, False)]
    fast, slow = Link(20e9, 1e-7, 64e-12, 40.0), Link(5e9, 1e-6, 128e-12, 6.0)
    ends = {(0, 3): fast, (3, 0): fast, (1, 3): fast, (3, 1): fast, (2, 3): slow, (3, 2): slow, (0, 2): slow}
    assert {(edge.source, edge.target): edge.link for edge in graph.edges} == {
        pair: Link(link.bandwidth, link.latency, pytest.approx(link.energy), link.price) for pair, link in ends.items()
    }
    assert price(graph) == 40 + 40 + 6 + 6
    assert power(graph) == pytest.approx(4 * 20e9 * 64e-12 + 3 * 5e9 * 128e-12)
    assert len(paths(graph, 2, 0)[0]) == 2
    assert set(parse_network(network_text(fabric)).graph.edges) == set(graph.edges)


def test_overheads_and_sums_on_request_are_kept() -> None:
    text = """
name: made
axes:
  - name: gpu
    size: 4
    topology: switch
    link: {bandwidth: 5 GB/s, latency: 1 us, energy: 1 pJ/bit, overhead: 300 ns}
    multicast: true
    reduction: true
    on_request: true
"""
    made = parse_network(text)
    assert made.graph.overheads.tolist() == [3e-7] * 8
    assert made.graph.switches[0].on_request
    assert parse_network(network_text(made)).axes == made.axes
    with pytest.raises(BadInput, match="on_request: expected switches that add"):
        parse_network(text.replace("reduction: true", "reduction: false"))


def test_shared_paths_of_listed_links_are_kept() -> None:
    ring = Graph("ring", 4, build(Axis("x", 4, Topology.RING, Link(1.0))).edges, router=EveryShortest())
    again = parse_network(network_text(Fabric("ring", ring)))
    assert len(paths(again.graph, 0, 2)) == 2


def test_a_router_of_its_own_cannot_be_written_without_axes() -> None:
    mesh = build(Axis("x", 4, Topology.MESH, Link(1.0), (2, 2)))
    with pytest.raises(BadInput, match="expected shortest routes; got DimensionOrder"):
        network_text(Fabric("mesh", mesh))


def test_a_technology_brings_its_numbers() -> None:
    row = links_table().rows["infiniband-ndr"]
    text = axis("size: 4, topology: fat-tree, shape: [2, 2]", "{technology: infiniband-ndr, count: 2}")
    fabric = parse_network(text)
    (made,) = fabric.axes
    assert made.upper is not None
    assert made.link.bandwidth == 2 * row.bandwidth.value == 100e9
    assert (made.link.latency, made.link.energy) == (row.latency.value, row.energy.value)
    assert made.link.price == pytest.approx(100 * (7.8 + 31.6 + 18))
    assert made.upper.price == pytest.approx(100 * (7.8 + 2 * 18))
    assert price(fabric.graph) == pytest.approx(4 * 5740 + 4 * 4380)
    assert fabric.sources["axes.a.link.latency"].startswith(f"link table of {links_table().dated}, row infiniband-ndr: assumed: ")
    assert parse_network(text.replace("count: 2", "latency: 2 us")).axes[0].link.latency == pytest.approx(2e-6)


def test_adapters_stand_at_ranks_and_ports_at_switches() -> None:
    text = "name: x\nranks: 2\nswitches: [{name: a}, {name: b}]\nlinks:\n"
    text += "  - {technology: infiniband-ndr, between: [[0, a], [a, b], [b, 1], [0, 1]]}\n"
    at_switch, between, direct = 50 * (7.8 + 31.6 + 18), 50 * (7.8 + 2 * 18), 50 * (7.8 + 2 * 31.6)
    assert price(parse_network(text).graph) == pytest.approx(2 * at_switch + between + direct)


def test_a_dgx_1_has_24_cables() -> None:
    fabric = load_network("dgx-1")
    assert price(fabric.graph) == pytest.approx(8 * 6 / 2 * fabric.axes[0].link.price)


def test_every_technology_states_its_sources() -> None:
    """Numbers of a row stand under its source unless they name their own."""
    for name, row in links_table().rows.items():
        for key in ("bandwidth", "latency", "energy", "price", "switch", "adapter"):
            entry = getattr(row, key)
            assert entry is None or entry.origin or row.source or row.assumed, f"{name}.{key}"


def axis(inner: str, link: str = LINK) -> str:
    return f"name: x\naxes:\n  - {{name: a, {inner}, link: {link}}}\n"


def changed(old: str, new: str) -> str:
    assert old in SQUARE
    return SQUARE.replace(old, new)


WRONG = [
    ("name: x\n", ["f:1: axes: expected axes, or ranks and links; got neither"]),
    ("name: x\nranks: 3\n", ["f:1: links: expected axes, or ranks and links; got no links"]),
    (axis("size: 4, topology: ring") * 2, ["each key once"]),
    (axis("size: 4, topology: ring") + axis("size: 2, topology: ring")[14:], ["f:4: axes.a.name: expected axes with names of"]),
    (changed("links:", "  - {name: hub}\nlinks:"), ["f:6: switches.hub.name: expected a name of its own; got 'hub' twice"]),
    (axis("size: 0, topology: rign"), ["f:3: axes.a.size", "did you mean 'ring'?"]),
    (axis("size: 4, topology: ring", "{}"), ["bandwidth: expected this key, or a technology", "latency", "energy"]),
    (axis("size: 6, topology: mesh, shape: [2, 2]"), ["f:3: axes.a.shape: expected extents whose product is the size 6"]),
    (axis("size: 6, topology: mesh"), ["f:3: axes.a.shape: expected the extents, such as (4, 4)"]),
    (axis("size: 6, topology: hypercube"), ["f:3: axes.a.size: expected a power of two"]),
    (axis("size: 4, topology: ring", "{technology: nvlink-9}"), ["expected a row of the table of link", "did you mean 'nvlink-"]),
    (axis("size: 4, topology: ring") + "ranks: 3\n", ["f:4: ranks: expected axes, or ranks and links; got both"]),
    (axis("size: 100000, topology: ring"), ["f:2: axes: expected at most 16384 ranks"]),
    (axis("size: 2000, topology: full"), ["expected at most 16384 ranks and 262144 links; got 2000 ranks and 3998000 links"]),
    (axis("size: 16, topology: fat-tree, shape: [1, 1000000]"), ["got 16 ranks and 32000032 links"]),
    (axis("size: 16384, topology: dragonfly, shape: [1, 1, 16383]"), ["got 16384 ranks and 268451840 links"]),
    (axis(f"size: 1, topology: mesh, shape: [{', '.join(['1'] * 99)}]"), ["f:2: axes: expected at most 24 coordinates"]),
    (axis("size: 4, topology: ring", "{bandwidth: 0 GB/s, latency: 0 s, energy: 1 J}"), ["expected a bandwidth above zero"]),
    (axis("size: 4, topology: ring", "{bandwidth: 1 GB/s, latency: 0 s, energy: 1 J}"), ["expected an energy per byte"]),
    (axis("size: 4, topology: ring", LINK.replace("}", ", count: 2}")), ["expected a count beside a technology"]),
    ("name: x\nranks: 2\nlinks:\n  - {name: l, technology: nvlink-4}\n", ["f:4: links.l: expected pairs in between or from_to"]),
    (changed("[1, hub]", "[1, hubb]"), ["f:12: links.fast.between.1: expected a rank from 0 to 2", "did you mean 'hub'?"]),
    (changed("[1, hub]", "[1, 3]"), ["expected a rank from 0 to 2 or the name of a switch; got 3"]),
    (changed("[1, hub]", "[1, 1]"), ["f:12: links.fast.between.1: expected two different ends; got 1 twice"]),
    (changed("[1, hub]", "[1]"), ["expected two ends, each the number of a rank or the name of a switch; got [1]"]),
    (changed("[[0, 2]]", "[[2, hub]]"), ["f:19: links.slow.from_to.0: expected one link", "first at links.1.between.0"]),
    (changed(", [1, hub]", ""), ["f:6: links: expected a way from rank 0 to every rank; got none for rank 1; add links"]),
    (changed("between: [[2, hub]]", "between: []"), ["expected a way from every rank to rank 0; got none for rank 2"]),
    (changed("latency: 1 us", "latencies: 1 us"), ["f:15: links.slow.latencies", "got 'latencies'; did you mean 'latency'?"]),
    (changed("price: 40", "price: -4"), ["f:11: links.fast.price: expected a price"]),
]


@pytest.mark.parametrize(("text", "messages"), WRONG)
def test_faults_name_their_lines(text: str, messages: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        parse_network(text, "f")
    for message in messages:
        assert message in str(caught.value)


def test_faults_of_one_file_come_together() -> None:
    text = SQUARE.replace("[1, hub]", "[1, hubb], [0, 0]").replace("[[0, 2]]", "[[9, 2]]")
    with pytest.raises(BadInput) as caught:
        parse_network(text, "f")
    assert [fault.where for fault in caught.value.faults] == [
        "f:12: links.fast.between.1",
        "f:12: links.fast.between.2",
        "f:19: links.slow.from_to.0",
    ]


def test_names_and_paths(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(SQUARE)
    assert load_network(file).name == "square"
    with pytest.raises(BadInput, match=r"got 'dgx-h10'; did you mean 'dgx-h100'\?"):
        load_network("dgx-h10")
    with pytest.raises(BadInput, match="no such file"):
        load_network(tmp_path / "none.yaml")


def test_a_price_is_stated_or_not() -> None:
    free = Graph("free", 2, (Edge(0, 1, Link(1.0)), Edge(1, 0, Link(1.0))))
    assert price(free) is None
    cheap = Graph("cheap", 2, (Edge(0, 1, Link(1.0, price=3.0)), Edge(1, 0, Link(1.0, price=3.0))))
    assert price(cheap) == 3
