"""The static check: legal trees pass, each broken rule is named with what to do, and the interpreter gives the same verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.mapping_cases import ILLEGAL, LEGAL
from tests.unit.mappings import (
    ABC,
    ABP,
    GEMM,
    LINK,
    ONLINE,
    PAIR,
    PIECES,
    QKVO,
    REST,
    RING,
    SCAN,
    SOFT,
    SOFTMAX,
    SPLIT_K,
    X,
    chip,
    nest,
    node,
    seq,
)

from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Axis, Chip, MatrixEngine, Network, Topology, VectorEngine
from halley.ir.mapping import CollectiveKind, Node, Sequence, Temporal
from halley.ir.text import located, parse
from halley.ir.workload import Workload
from halley.rewrite.legality import check, faults, findings
from halley.workloads import build


def dynamic(tree: Node, item: Workload, on: Chip) -> str:
    """The interpreter's complaint, or nothing."""
    try:
        run(item, on, tree, random_inputs(item, seed=1))
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", LEGAL)
def test_legal_trees_pass_and_run(name: str) -> None:
    item, text = LEGAL[name]
    tree = parse(text)
    assert faults(tree, item, chip()) == []
    check(tree, item, chip())
    assert dynamic(tree, item, chip()) == ""


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_broken_rule_is_named_and_breaks_at_run_time_too(name: str) -> None:
    item, text, message = ILLEGAL[name]
    tree = parse(text)
    found = [str(fault) for fault in faults(tree, item, chip())]
    assert any(message in fault for fault in found), found
    with pytest.raises(IllegalMapping):
        check(tree, item, chip())
    with pytest.raises(BadInput):
        run(item, chip(), tree, random_inputs(item, seed=1))


def test_what_only_the_static_check_looks_at() -> None:
    no_buffer = replace(parse(nest(ABC, "compute C")), buffers=0)
    assert "expected a whole number of buffers of at least 1; got 0" in str(faults(no_buffer, GEMM, chip())[0])
    assert "at least one child" in str(faults(Sequence(()), GEMM, chip())[0])
    batch = Temporal("m", [2, 4], parse("compute C"))
    assert "a whole number of at least 1; got [2, 4]" in str(faults(batch, GEMM, chip())[0])
    overlapped = nest(*SPLIT_K, node("overlap", f"all-reduce C {RING}", "compute C"))
    assert "child 1 changes what was computed before" in str(faults(parse(overlapped), GEMM, chip())[0])


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("rong", "expected a known algorithm; got 'rong'; did you mean 'ring'?"),
        ("one-shot", "expected a topology among full; got line"),
        ("pipelined", "expected one of broadcast, reduce; got all-reduce"),
    ],
)
def test_the_algorithm_serves_the_collective(algorithm: str, message: str) -> None:
    tree = parse(nest(*SPLIT_K, seq("compute C", f"all-reduce C {X} with {algorithm}")))
    assert message in str(faults(tree, GEMM, chip())[0])


# ---- engines and networks --------------------------------------------------------------------------


def test_operands_stand_where_the_engine_can_read_them() -> None:
    roles = {"input": ("ibuf",), "weight": ("wbuf",), "output": ("obuf",)}
    wired = replace(chip(), matrix=replace(MatrixEngine("mxu", 4, 4, 1e9), reads=roles))
    right = parse(nest(ABC, "hold ibuf: A", "hold wbuf: B", "hold obuf: C", "compute C"))
    swapped = parse(nest(ABC, "hold wbuf: A", "hold ibuf: B", "hold obuf: C", "compute C"))
    assert faults(right, GEMM, wired) == []
    assert [str(fault) for fault in faults(swapped, GEMM, wired)] == [
        "compute C: expected input A in ibuf; got wbuf; hold A in ibuf around it",
        "compute C: expected weight B in wbuf; got ibuf; hold B in wbuf around it",
    ]
    assert "expected a matrix engine; got none on small" in str(faults(right, GEMM, replace(chip(), matrix=None))[0])
    lanes = replace(VectorEngine("simd", 4, 1e9, {"add": 1.0}), reads=("obuf",))
    tree = parse(nest("hold dram: a x h", "hold ibuf: a", "hold obuf: x h", "compute h"))
    assert "expected input a in obuf; got ibuf" in str(faults(tree, SCAN, replace(chip(), vector=lanes))[0])


def test_a_network_that_adds_needs_no_collective() -> None:
    for tree in (nest(*SPLIT_K, "compute C"), nest(ABC, f"spread k by 4 {X}", "compute C")):
        assert faults(parse(tree), GEMM, chip(reduction=True)) == []
        assert dynamic(parse(tree), GEMM, chip(reduction=True)) == ""
    # it adds, but it does not compare
    largest = nest(ABP, "hold glb: mx", f"spread n by 3 {X}", "hold obuf: S E P z", seq("compute S", *REST))
    assert "got Partial(max) over cluster.x" in str(faults(parse(largest), SOFTMAX, chip(reduction=True))[0])


def test_an_axis_with_one_member_splits_nothing() -> None:
    tree = parse(nest(ABP, f"spread n by 6 {X}", SOFT, seq("compute S", *REST)))
    assert faults(tree, SOFTMAX, chip(x=1)) == []
    assert faults(tree, SOFTMAX, chip(x=2)) != []


# ---- all at once, and as values --------------------------------------------------------------------


def test_all_faults_are_reported_at_once() -> None:
    tree = parse(nest(ABP, f"spread n by 3 {X}", SOFT, seq("compute S", *REST)))
    found = faults(tree, SOFTMAX, chip())
    assert [fault.where for fault in found] == ["compute E", "compute P"]
    with pytest.raises(IllegalMapping) as caught:
        check(tree, SOFTMAX, chip())
    assert list(caught.value.faults) == found


@pytest.mark.parametrize("name", ILLEGAL)
def test_faults_name_the_line_of_their_node(name: str) -> None:
    item, text, _ = ILLEGAL[name]
    tree, places = located(text, "mine.txt")
    with pytest.raises(IllegalMapping) as caught:
        check(tree, item, chip(), places)
    for fault in caught.value.faults:
        line, _, where = fault.where.removeprefix("mine.txt:").partition(": ")
        kind, *_ = where.split()
        if fault.expected != "every op of the workload once":  # that one has no node
            node = text.splitlines()[int(line) - 1].split()
            assert node[0] == {"drain": "hold", "output": "hold"}.get(kind, kind), str(fault)
            if kind in ("hold", "compute", "for", "spread"):
                assert node[1].rstrip(":") == where.replace(":", "").replace(",", "").split()[1], str(fault)
    assert dict.fromkeys(str(fault).partition(": ")[2] for fault in caught.value.faults) == dict.fromkeys(
        str(fault) for fault in faults(tree, item, chip())
    )


def test_a_finding_carries_the_missing_collective() -> None:
    tree = parse(nest(QKVO, f"spread n by 4 {X}", "hold obuf: S E mx z U", seq(PIECES, "compute O")))
    # U is Partial too, but can only be combined once mx is
    (first, second) = findings(tree, ONLINE, chip())
    assert first.fault.expected.startswith("U Replicate")
    for finding in (first, second):
        assert finding.missing is not None
        assert finding.missing.node.kind is CollectiveKind.ALL_REDUCE
        assert finding.missing.node.tensors == ("mx", "z")
        assert finding.missing.before == (0, 0, 0, 1)


def test_large_extents_cost_no_time() -> None:
    large = replace(SOFTMAX, dims={"m": 1_000_000, "n": 999_983, "k": 12_345})
    cut = f"spread n by 499992 {X}"
    tree = nest(ABP, "for m by 3", SOFT, seq(nest(cut, "for n by 7", "compute S"), f"all-gather S {RING}", *REST))
    assert faults(parse(tree), large, chip()) == []


def test_part_of_a_ring_is_a_line() -> None:
    around = replace(chip(4).levels[2], network=Network((Axis("x", 4, Topology.RING, LINK),), LINK))
    ring = replace(chip(), levels=(*chip().levels[:2], around))
    split = "spread k by 2 over cluster.x"
    combined = [nest(split, f"hold obuf: {c}", seq(f"compute {c}", f"all-reduce {c} {X} with centre")) for c in "CD"]
    shared = parse(nest("hold dram: A B F C D", node(f"parallel {X} shares 2 2", *combined)))
    assert faults(shared, PAIR, ring) == []
    assert dynamic(shared, PAIR, ring) == ""
    whole = parse(nest("hold dram: A B F C D", seq(*combined)))
    assert "expected a topology among line; got ring" in str(faults(whole, PAIR, ring)[0])
    assert dynamic(whole, PAIR, ring) != ""


@pytest.mark.parametrize("shares", ["2 1", "1 2"])
def test_a_collective_takes_along_all_members_that_keep_its_tensor(shares: str) -> None:
    """In another child of parallel it would combine what that child's members have, which is nothing: even where it has one
    member, and so nothing to do."""
    work = build("scatter-add", {"tokens": 8, "slots": 2, "width": 5})
    apart = [nest(f"spread m by {8 // int(shares[0])} {X}", "compute scatter"), f"reduce-scatter Y {X} to v with direct"]
    tree = parse(nest("hold dram: X Y index", "hold obuf: Y", node(f"parallel {X} shares {shares}", *apart)))
    expected = "in obuf in its share; got others outside it"
    assert expected in str(faults(tree, work, chip(3))[0])
    assert expected in dynamic(tree, work, chip(3))


@pytest.mark.parametrize("loop", ["for k by 8", "for k by 2"])
def test_a_collective_of_one_member_takes_along_all_that_keep_its_tensor(loop: str) -> None:
    """It has nothing to do. But the members of its share would keep, be filled with and drain what they never add to."""
    stages = node("pipeline m by 2 over cluster.y shares 1 1", "compute C", f"reduce-scatter C {X} to m with direct")
    tree = parse(nest(ABC, loop, "hold obuf: C", stages))
    found, message = faults(tree, GEMM, chip(x=1)), dynamic(tree, GEMM, chip(x=1))
    assert "expected all members of cluster.y that keep C in obuf in its share; got others outside it" in str(found[-1])
    assert "in its share" in message or "beyond its share" in message
