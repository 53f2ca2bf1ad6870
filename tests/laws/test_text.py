"""Printing and parsing undo each other, on random trees of all kinds of node; faults are all reported, each at its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.text import DEPTH_LIMIT, LINE_LIMIT, SIZE_LIMIT, parse, to_text
from halley.ir.words import NUMBER_LIMIT

KEYWORDS = (
    "for", "by", "over", "to", "with", "shares", "hold", "x2", "sequence", "all-reduce", "compute", "array", "x", "-", "a.b", ""
)  # fmt: skip
names = st.one_of(st.sampled_from(["A", "mx", "S2", "layer0.q", "α", "x-y"]), st.sampled_from(KEYWORDS), st.text(max_size=4))
words = names.filter(bool)
tiles = st.integers(1, 4096) | st.just(NUMBER_LIMIT)
shares = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def some(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


sides = st.lists(names, max_size=3).map(tuple)
leaves = st.one_of(
    st.builds(Compute, names, st.just(()) | st.tuples(sides, sides)),
    st.builds(Collective, st.sampled_from(CollectiveKind), some(names), names, names, names, st.just("") | words),
)


def grow(node: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(Temporal, names, tiles, node),
        st.builds(Spatial, names, tiles, names, names, node),
        st.builds(Hold, names, some(some(names)), node, st.integers(1, 3)),
        st.builds(Sequence, some(node)),
        st.builds(Overlap, some(node)),
        st.builds(Parallel, names, names, shares, some(node)),
        st.builds(Pipeline, names, tiles, names, names, shares, some(node)),
    )


trees = st.recursive(leaves, grow, max_leaves=12)


@given(trees)
@settings(deadline=None)
def test_parsing_undoes_printing(tree: Node) -> None:
    text = to_text(tree)
    assert parse(text) == tree
    assert to_text(parse(text)) == text
    assert text.count("\n") == sum(1 for _ in walk(tree)) - 1


ENDS = ("\n", "\r\n", "\n\n", "  # a note\n", "\n  # a note\n")


@given(trees, st.sampled_from(["    ", "\t", " ", " \t"]), st.sampled_from(ENDS))
@settings(deadline=None)
def test_layout_does_not_matter(tree: Node, unit: str, end: str) -> None:
    lines = to_text(tree).split("\n")
    depths = [(len(line) - len(line.lstrip(" "))) // 2 for line in lines]
    assert parse(end.join("\t" + unit * depth + line.lstrip(" ") for depth, line in zip(depths, lines, strict=True))) == tree


EXAMPLE = """\
# GEMM-softmax on one cluster row
hold dram: A B P
  for m by 128
    hold glb x2: A B
      spread n by 256 over cluster.x
        hold obuf: S|E|P mx z
          sequence
            compute S array k|h x n
            all-reduce mx z over cluster.x with ring
            reduce-scatter S over cluster.x to m with ring
            overlap
              compute E
              parallel over cluster.y shares 1 3
                compute z
                pipeline m by 8 over cluster.z shares 2 2
                  compute P
                  compute "two words"
"""


def test_every_kind_of_line_reads_as_documented() -> None:
    pipeline = Pipeline("m", 8, "cluster", "z", (2, 2), (Compute("P"), Compute("two words")))
    overlap = Overlap((Compute("E"), Parallel("cluster", "y", (1, 3), (Compute("z"), pipeline))))
    all_reduce = Collective(CollectiveKind.ALL_REDUCE, ("mx", "z"), "cluster", "x", "ring")
    scatter = Collective(CollectiveKind.REDUCE_SCATTER, ("S",), "cluster", "x", "ring", "m")
    series = Sequence((Compute("S", (("k", "h"), ("n",))), all_reduce, scatter, overlap))
    inner = Spatial("n", 256, "cluster", "x", Hold("obuf", (("S", "E", "P"), ("mx",), ("z",)), series))
    tree = Hold("dram", (("A",), ("B",), ("P",)), Temporal("m", 128, Hold("glb", (("A",), ("B",)), inner, 2)))
    assert parse(EXAMPLE) == tree
    assert to_text(tree) == EXAMPLE.rstrip("\n").partition("\n")[2]


def faults(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        parse(text, "plan.txt")
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fro m by 4\n  compute C", "plan.txt:1: expected a node of the mapping language; got 'fro'; did you mean 'for'?"),
        ("all-reduc C over a.b with ring", "did you mean 'all-reduce'?"),
        ("for m bye 4\n  compute C", "plan.txt:1: expected 'by'; got 'bye'; did you mean 'by'?"),
        ("for m by four\n  compute C", "a tile, a whole number from 1"),
        ("for m by 0\n  compute C", "a tile, a whole number from 1"),
        ("for m by -4\n  compute C", "a tile, a whole number from 1"),
        ("for m by 1e3\n  compute C", "a tile, a whole number from 1"),
        ("for m by 1000000000000000001\n  compute C", "a tile, a whole number from 1"),
        ("for m by " + "9" * 5000 + "\n  compute C", "a tile, a whole number from 1"),
        ("for m by ²\n  compute C", "a tile, a whole number from 1"),
        ("for m by", "plan.txt:1: expected a tile; got the end of the line"),
        ("for m by 4", "plan.txt:1: expected one child below 'for'; got none"),
        ("sequence", "plan.txt:1: expected at least one child below 'sequence'; got none"),
        ("for m by 4\n  compute C\n  compute D", "plan.txt:3: expected one child below 'for'; got 2; put the children"),
        ("compute C\n  compute D", "plan.txt:1: expected no child below 'compute'; got 1"),
        ("compute C\ncompute D", "plan.txt:2: expected one root; got a second node"),
        ("sequence\n    compute C\n  compute D", "plan.txt:3: expected the indentation of line 2"),
        ("sequence\n  overlap\n      compute C\n    compute D", "plan.txt:4: expected the indentation of line 3"),
        ("  sequence\n\t\t\tcompute C", "plan.txt:2: expected the indentation of line 1 and more; got another mix"),
        ("compute", "expected the name of an op; got the end of the line"),
        ("compute C D", "expected 'array' or the end of the line; got 'D'; write compute OP array DIM x DIM"),
        ("compute C aray k x n", "expected 'array' or the end of the line; got 'aray'; did you mean 'array'?"),
        ("compute C array k", "expected 'x'; got the end of the line"),
        ("compute C array k n", "expected 'x'; got 'n'; insert 'x' here"),
        ("compute C array k| x n", "expected 'x'; got 'n'"),
        ("compute C array k x", "expected the name of a dim on the array's columns; got the end of the line"),
        ("compute C array x n", "expected 'x'; got 'n'"),
        ("compute C array k x n m", "expected the end of the line; got 'm'"),
        ("spread m by 4 over cluster\n  compute C", "expected LEVEL.AXIS; got 'cluster'"),
        ("spread m by 4 over a.b.c\n  compute C", "expected LEVEL.AXIS; got 'a.b.c'"),
        ("hold glb A\n  compute C", "expected ':' or xBUFFERS; got 'A'"),
        ("hold glb x0: A\n  compute C", "a number of buffers after x"),
        ("hold glb:\n  compute C", "expected the name of a tensor; got the end of the line"),
        ("hold glb: A|\n  compute C", "expected the name of a tensor; got the end of the line"),
        ("hold glb: |A\n  compute C", "expected the name of a tensor; got '|'"),
        ("all-reduce over a.b with ring", "expected the name of a tensor; got 'over'"),
        ("all-reduce C with ring", "expected 'over'; got the end of the line"),
        ("all-reduce C over a.b", "expected 'with'; got the end of the line"),
        ("parallel over a.b shares\n  compute C", "expected a share; got the end of the line"),
        ('compute "C', "expected a name in quotes"),
        ('"compute" C', "expected a node of the mapping language"),
        ("", "plan.txt:1: expected a mapping tree; got no node"),
        ("# nothing\n\n", "expected a mapping tree; got no node"),
    ],
)
def test_a_fault_says_where_and_what(text: str, message: str) -> None:
    found = faults(text)
    assert len(found) == 1
    assert message in found[0]


def test_all_faults_are_reported_at_once_in_order() -> None:
    found = faults("sequence\n  for m by x\n    compute\n  hodl glb: A\n    compute A B\n  for k by 2\n")
    assert [fault.partition(": ")[0] for fault in found] == [f"plan.txt:{line}" for line in (2, 3, 4, 5, 6)]


@pytest.mark.parametrize(
    "text",
    [
        "#" * (SIZE_LIMIT + 1),
        "\n" * LINE_LIMIT,
        "\n".join(" " * depth + "sequence" for depth in range(DEPTH_LIMIT + 1)),
    ],
)
def test_size_is_bounded(text: str) -> None:
    (fault,) = faults(text)
    assert "at most" in fault


def deep(levels: int) -> Node:
    node: Node = Compute("C")
    for _ in range(levels):
        node = Sequence((node,))
    return node


def test_the_deepest_tree_still_reads() -> None:
    assert parse(to_text(deep(DEPTH_LIMIT - 1))) == deep(DEPTH_LIMIT - 1)


UNPRINTABLE: dict[str, Callable[[], Node]] = {
    "a tile of a batch": lambda: Temporal("m", [4, 8], Compute("C")),
    "a tile of zero": lambda: Temporal("m", 0, Compute("C")),
    "a flag for a tile": lambda: Temporal("m", True, Compute("C")),
    "no children": lambda: Sequence(()),
    "no tensors": lambda: Hold("glb", (), Compute("C")),
    "an empty group": lambda: Hold("glb", ((),), Compute("C")),
    "one side of an array": lambda: Compute("C", (("k",),)),
    "no payload": lambda: Collective(CollectiveKind.ALL_REDUCE, (), "a", "b", "ring"),
    "no shares": lambda: Parallel("a", "b", (), (Compute("C"),)),
    "too deep": lambda: deep(DEPTH_LIMIT),
}


@pytest.mark.parametrize("make", UNPRINTABLE.values(), ids=UNPRINTABLE.keys())
def test_what_cannot_be_read_back_is_not_printed(make: Callable[[], Node]) -> None:
    with pytest.raises(BadInput):
        to_text(make())
