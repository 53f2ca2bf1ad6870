"""The interpreter on hand-made trees: outputs against plain NumPy, counters against counts made with a pencil."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.trees import (
    OUTER,
    PIECES,
    attention_tree,
    chip,
    collect,
    each,
    execute,
    gemm,
    gemm_softmax,
    nest,
    online_attention,
    op,
    pe_chip,
    plain_attention,
    softmax,
    softmax_private,
    split_k,
    traffic,
    workload,
)

from halley.errors import IllegalMapping
from halley.execute.functions import DEFINITIONS, MONOID_DEFINITIONS, SCANS
from halley.execute.interpreter import random_inputs
from halley.ir.hardware import Dataflow
from halley.ir.mapping import (
    Collective,
    Compute,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
)
from halley.ir.workload import FUNCTIONS, MONOIDS, OpKind, Workload

# ---- GEMM ------------------------------------------------------------------------------------------


def test_gemm_with_ragged_tiles_counts_every_byte() -> None:
    # m 7 by 3 -> 3, 3, 1; n 5 by 2 over x -> 2 parts would be 3 > 2, so by 3 -> 3, 2; k 4 by 3 -> 3, 1
    inner = nest(("obuf", "C"), ("k", 3), ("ibuf", "A"), ("wbuf", "B"), Compute("C"))
    tree = nest(("dram", "A B C"), ("m", 3), ("glb", "A B C"), ("n", 3, "x"), inner)
    done, arrays = execute(gemm(7, 5, 4), tree, chip(2, 1))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    counters = done.counters
    # dram -> glb: A once (7*4*2 = 56), B once per m tile (3 * 4*5*2 = 120); C back once (7*5*2 = 70)
    # glb -> ibuf: A is wanted by both members: one read (multicast) 56, two writes 112
    # glb -> wbuf: B per m tile, each member its columns: 120 both ways
    fills_read, fills_written = traffic(counters.reads, "fill"), traffic(counters.writes, "fill")
    assert fills_read == {("dram", "A"): 56, ("dram", "B"): 120, ("glb", "A"): 56, ("glb", "B"): 120}
    assert fills_written == {("glb", "A"): 56, ("glb", "B"): 120, ("ibuf", "A"): 112, ("wbuf", "B"): 120}
    drained = {("obuf", "C"): 70, ("glb", "C"): 70}
    assert traffic(counters.reads, "drain") == drained
    assert traffic(counters.writes, "drain") == {("glb", "C"): 70, ("dram", "C"): 70}
    # the 4 x 4 array takes each tile in one fold: operands once, two k steps: C written twice, read once
    assert traffic(counters.reads, "operand") == {("ibuf", "A"): 112, ("wbuf", "B"): 120}
    assert traffic(counters.writes, "result") == {("obuf", "C"): 140}
    assert traffic(counters.reads, "accumulate") == {("obuf", "C"): 70}
    # the port of each cluster: A into both (112), B (120) down; C (70) up
    assert counters.ports == {("cluster", "down"): 232, ("cluster", "up"): 70}
    assert counters.work == {"mac": 7 * 5 * 4}
    assert counters.steps == {"C": 6}
    # glb: A 3*4, B 4*5, C 3*5 elements; ibuf 3*3, wbuf 3*3, obuf 3*3
    assert counters.footprint == {"dram": 2 * (28 + 20 + 35), "glb": 2 * 47, "ibuf": 18, "wbuf": 18, "obuf": 18}


@pytest.mark.parametrize(
    ("flow", "a", "b", "written"),
    [
        # M, N, K = 7, 5, 3 on a 2 x 3 array: ceil(N/C) = 2, ceil(K/R) = 2, ceil(M/C) = 3, ceil(M/R) = 4
        (Dataflow.WEIGHT, 21 * 2, 15, 35 * 2),
        (Dataflow.INPUT, 21, 15 * 3, 35 * 2),
        (Dataflow.OUTPUT, 21 * 2, 15 * 4, 35),
        (Dataflow.NONE, 105, 105, 105),
    ],
)
def test_dataflow_decides_how_often_operands_are_read(flow: Dataflow, a: int, b: int, written: int) -> None:
    tree = nest(("dram", "A B C"), ("ibuf", "A"), ("wbuf", "B"), ("obuf", "C"), Compute("C"))
    done, _ = execute(gemm(7, 5, 3), tree, chip(1, 1, rows=2, cols=3, flow=flow))
    assert traffic(done.counters.reads, "operand") == {("ibuf", "A"): 2 * a, ("wbuf", "B"): 2 * b}
    assert traffic(done.counters.writes, "result") == {("obuf", "C"): 2 * written}
    assert traffic(done.counters.reads, "accumulate").get(("obuf", "C"), 0) == 2 * (written - 35)


def test_outer_reduction_loop_refills_the_accumulator() -> None:
    tree = nest(("dram", "A B C"), ("k", 2), ("m", 2), ("glb", "A B C"), ("obuf", "A B C"), Compute("C"))
    done, arrays = execute(gemm(3, 4, 5), tree, chip(1, 1))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    # k 5 by 2 -> 3 visits: C (24 bytes) is drained three times and filled twice
    assert traffic(done.counters.reads, "fill")["dram", "C"] == 48
    assert traffic(done.counters.writes, "drain")["dram", "C"] == 72
    assert traffic(done.counters.reads, "accumulate")["obuf", "C"] == 48


def test_without_multicast_each_cluster_reads_for_itself() -> None:
    tree = nest(("dram", "A B C"), ("glb", "A B C"), ("n", 3, "x"), ("ibuf", "A"), ("wbuf", "B"), ("obuf", "C"), Compute("C"))
    done, _ = execute(gemm(4, 6, 3), tree, chip(2, 2, multicast=False))
    # four clusters want the whole A; B's halves are wanted by the two clusters of a column; only y = 0 drains C
    assert traffic(done.counters.reads, "fill")["glb", "A"] == 4 * 24
    assert traffic(done.counters.reads, "fill")["glb", "B"] == 2 * 36
    assert traffic(done.counters.reads, "drain")["obuf", "C"] == 48
    assert done.counters.ports["cluster", "up"] == 48


# ---- split K ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "sent", "combined", "drained", "links"),
    [
        # C: 4 x 6 elements of 2 bytes = 48; two members swap halves of 24 and add, then return them
        (collect("all-reduce", "C"), 96, 48, 48, {(0, 1): 48, (1, 0): 48}),
        (collect("reduce-scatter", "C", dim="m"), 48, 48, 48, {(0, 1): 24, (1, 0): 24}),
        (collect("reduce", "C", algorithm="chain"), 48, 48, 48, {(1, 0): 48}),
    ],
)
def test_split_k_needs_a_collective(
    collective: Collective, sent: int, combined: int, drained: int, links: dict[tuple[int, int], int]
) -> None:
    done, arrays = execute(gemm(4, 6, 5), split_k(collective), chip(2, 1))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    assert traffic(done.counters.reads, "send") == {("obuf", "C"): sent}
    assert traffic(done.counters.writes, "receive") == {("obuf", "C"): sent}
    assert traffic(done.counters.reads, "combine") == {("obuf", "C"): combined}
    assert traffic(done.counters.reads, "drain")["obuf", "C"] == drained
    assert done.counters.links == {("cluster", "x", *link): count for link, count in links.items()}
    assert done.counters.work == {"mac": 120, "add": combined / 2}


def test_split_k_without_collective_is_illegal() -> None:
    with pytest.raises(IllegalMapping, match=r"drain of C from obuf: expected .*Partial.*insert all-reduce C over cluster\.x"):
        execute(gemm(4, 6, 5), split_k(None), chip(2, 1))


def test_idle_members_take_part_in_collectives() -> None:
    # k 5 by 2 over 4 members: 2, 2, 1, none; the idle one adds nothing but passes the chunks on
    collective = collect("all-reduce", "C")
    leaf = Sequence((nest(("ibuf", "A"), ("wbuf", "B"), Compute("C")), collective))
    tree = nest(*OUTER, ("k", 2, "x"), ("obuf", "C"), leaf)
    done, arrays = execute(gemm(2, 3, 5), tree, chip(4, 1))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    # 6 elements in chunks of 2, 2, 2, 0: in 6 steps each chunk makes 6 hops of the logical ring
    assert traffic(done.counters.reads, "send") == {("obuf", "C"): 6 * 6 * 2}
    assert traffic(done.counters.reads, "fill")["glb", "A"] == 2 * 5 * 2


# ---- GEMM-softmax ----------------------------------------------------------------------------------


def test_distributed_softmax_in_place() -> None:
    tree = softmax_private(collect("all-reduce", "mx"), collect("all-reduce", "z"))
    done, arrays = execute(gemm_softmax(5, 6, 3), tree, chip(2, 1))
    np.testing.assert_allclose(done.outputs["P"], softmax(arrays["A"] @ arrays["B"]))
    # mx: 5 rows of 4 bytes in tiles of 2, 2, 1. Two rows: chunks of 1 and 1; one row: chunks of 1 and 0.
    # Every chunk crosses the one pair of links twice: (2 + 2 + 1) * 2 * 4 bytes
    assert traffic(done.counters.reads, "send") == {("obuf", "mx"): 40, ("obuf", "z"): 40}
    # one buffer for S, E and P: 2 x 3 elements of 2 bytes, mx and z 2 of 4 bytes each
    assert done.counters.footprint["obuf"] == 12 + 8 + 8
    # E: an add and an exp per point, P: a div; mx: a max per point and one per combined element; z: likewise add
    assert done.counters.work == {"mac": 90, "max": 30 + 5, "add": 30 + 30 + 5, "exp": 30, "div": 30}


def test_forgotten_collective_names_itself() -> None:
    with pytest.raises(IllegalMapping, match=r"compute E: expected mx Replicate over cluster\.x.*insert all-reduce mx over"):
        execute(gemm_softmax(5, 6, 3), softmax_private(), chip(2, 1))


def test_distributed_holds_around_differently_split_children() -> None:
    body = Sequence(
        (
            nest(("n", 3, "x"), ("ibuf", "A B"), Compute("S")),
            collect("all-to-all", "S", algorithm="direct", dim="m"),
            nest(("m", 3, "x"), Sequence((Compute("mx"), Compute("E"), Compute("z"), Compute("P")))),
        )
    )
    tree = nest(("dram", "A B P"), ("glb", "A B P"), ("obuf", "S|E|P mx z"), body)
    done, arrays = execute(gemm_softmax(5, 6, 3), tree, chip(2, 1))
    np.testing.assert_allclose(done.outputs["P"], softmax(arrays["A"] @ arrays["B"]))
    # S 5 x 6: member 0 has 5 x 3 and gives rows 3, 4 (6 elements); member 1 gives rows 0 to 2 (9 elements)
    assert done.counters.links == {("cluster", "x", 0, 1): 12, ("cluster", "x", 1, 0): 18}
    # each member touches its columns and then its rows: the box around both is all of S
    assert done.counters.footprint["obuf"] == 5 * 6 * 2 + 3 * 4 + 3 * 4


def test_all_gather_between_children() -> None:
    body = Sequence(
        (
            nest(("n", 3, "x"), ("ibuf", "A B"), Compute("S")),
            collect("all-gather", "S"),
            Sequence((Compute("mx"), Compute("E"), Compute("z"), Compute("P"))),
        )
    )
    tree = nest(("dram", "A B P"), ("glb", "A B P"), ("obuf", "S|E|P mx z"), body)
    done, arrays = execute(gemm_softmax(4, 5, 3), tree, chip(2, 1))
    np.testing.assert_allclose(done.outputs["P"], softmax(arrays["A"] @ arrays["B"]))
    assert done.counters.links == {("cluster", "x", 0, 1): 4 * 3 * 2, ("cluster", "x", 1, 0): 4 * 2 * 2}
    # afterwards both do the same: all of it twice, but only the first drains
    assert done.counters.work["div"] == 2 * 20
    assert traffic(done.counters.reads, "drain")["obuf", "P"] == 40


def test_distributed_statistics() -> None:
    # Holds outside the split: each member keeps its own part, the collective stands between the children
    body = Sequence(
        (
            nest(("n", 3, "x"), ("ibuf", "A B"), Sequence((Compute("S"), Compute("mx")))),
            collect("all-reduce", "mx", algorithm="chain"),
            nest(("n", 3, "x"), Sequence((Compute("E"), Compute("z")))),
            collect("reduce", "z", algorithm="chain"),
            collect("broadcast", "z", algorithm="chain"),
            nest(("n", 3, "x"), Compute("P")),
        )
    )
    tree = nest(("dram", "A B P"), ("glb", "A B P"), ("obuf", "S|E|P mx z"), body)
    done, arrays = execute(gemm_softmax(4, 6, 3), tree, chip(2, 1))
    np.testing.assert_allclose(done.outputs["P"], softmax(arrays["A"] @ arrays["B"]))
    assert done.counters.links == {("cluster", "x", 0, 1): 32, ("cluster", "x", 1, 0): 32}
    assert done.counters.footprint["obuf"] == 4 * 3 * 2 + 16 + 16


# ---- online softmax --------------------------------------------------------------------------------


def test_online_softmax_rescales_on_every_later_visit() -> None:
    done, arrays = execute(online_attention(4, 7, 3, 2), attention_tree(3, None), chip(1, 1))
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))
    # n 7 by 3: two later visits; m 4 by 3: 3 and 1 rows; U m x 2 of 4 bytes
    assert traffic(done.counters.reads, "rescale") == {("obuf", "U"): 2 * 8 * 4, ("obuf", "mx"): 2 * 4 * 4}
    assert traffic(done.counters.writes, "rescale") == {("obuf", "U"): 2 * 8 * 4}
    assert done.counters.work["mul"] == 16
    # exp: softmax statistics 28, E 28, rescaling 8
    assert done.counters.work["exp"] == 28 + 28 + 8


def test_nothing_is_stale_once_the_maximum_is_final() -> None:
    first = nest(("n", 3), ("ibuf", "Q K"), Sequence(each("S", "mx")))
    second = nest(("n", 3), ("ibuf", "V"), Sequence(each("E", "U")))
    body = Sequence((first, second, Compute("O")))
    tree = nest(("dram", "Q K V O"), ("glb", "Q K V O"), ("obuf", "S|E mx z U O"), body)
    done, arrays = execute(online_attention(4, 7, 3, 2), tree, chip(1, 1))
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))
    assert traffic(done.counters.reads, "rescale") == {}


def test_split_kv_combines_maximum_first() -> None:
    combine = collect("all-reduce", "mx z"), collect("all-reduce", "U")
    done, arrays = execute(online_attention(4, 8, 3, 2), attention_tree(2, 4, *combine), chip(2, 1))
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))
    # per member one later visit, and one more rescaling before U is combined: 2 members x 2 x (4 x 2) x 4 bytes
    assert traffic(done.counters.reads, "rescale")["obuf", "U"] == 2 * 2 * 8 * 4
    assert traffic(done.counters.reads, "rescale")["obuf", "mx"] == 2 * 2 * 4 * 4


def test_split_kv_in_the_wrong_order_is_illegal() -> None:
    combine = collect("all-reduce", "U"), collect("all-reduce", "mx z")
    with pytest.raises(IllegalMapping, match=r"all-reduce U.*mx Replicate.*insert all-reduce mx"):
        execute(online_attention(4, 8, 3, 2), attention_tree(2, 4, *combine), chip(2, 1))
    with pytest.raises(IllegalMapping, match=r"whole state of mx"):
        execute(online_attention(4, 8, 3, 2), attention_tree(2, 4, collect("all-reduce", "mx")), chip(2, 1))


def test_running_state_may_not_be_put_back() -> None:
    tree = nest(("dram", "Q K V O"), ("glb", "Q K V mx z U O"), ("n", 3), ("obuf", "Q K V S|E mx z U O"), Sequence(PIECES))
    with pytest.raises(IllegalMapping, match=r"compute mx: expected no loop over n outside the innermost hold of mx"):
        execute(online_attention(4, 7, 3, 2), tree, chip(1, 1))


def test_exponentials_of_an_older_maximum_are_not_mixed_in() -> None:
    first = nest(("n", 4), Sequence(each("S", "mx", "E")))
    tree = nest(("dram", "Q K V O"), ("obuf", "Q K V O S E mx z U"), Sequence((first, Compute("U"), Compute("O"))))
    with pytest.raises(IllegalMapping, match=r"compute U: expected E relative to the present mx"):
        execute(online_attention(4, 8, 3, 2), tree, chip(1, 1))


# ---- composition -----------------------------------------------------------------------------------


def test_pipeline_streams_tiles_through_shares() -> None:
    first = nest(("obuf", "A B S"), Compute("S"))
    second = nest(("obuf", "S|E|P mx z"), Sequence(each("mx", "E", "z", "P")))
    stages = Pipeline("m", 2, "cluster", "x", (1, 2), (first, second))
    tree = nest(("dram", "A B P"), ("glb", "A B S P"), stages)
    done, arrays = execute(gemm_softmax(5, 4, 3), tree, chip(3, 1))
    np.testing.assert_allclose(done.outputs["P"], softmax(arrays["A"] @ arrays["B"]))
    # S goes up once from the first stage; both members of the second fetch it, from one read
    assert traffic(done.counters.writes, "drain")["glb", "S"] == 40
    assert traffic(done.counters.reads, "fill")["glb", "S"] == 40
    assert traffic(done.counters.writes, "fill")["obuf", "S"] == 80
    assert done.counters.steps == {"S": 3}


def two_gemms() -> Workload:
    ops = op("C", OpKind.CONTRACT, "A B", "C", "mnk"), op("D", OpKind.CONTRACT, "A F", "D", "mnk")
    return workload({"m": 4, "n": 5, "k": 3}, "A:mk B:kn F:kn C:mn D:mn", ops, "C D")


def test_parallel_runs_on_disjoint_members() -> None:
    left = nest(("glb", "B C"), ("obuf", "A B C"), Compute("C"))
    right = nest(("glb", "F D"), ("n", 3, "x"), ("obuf", "A F D"), Compute("D"))
    tree = nest(("dram", "A B F C D"), ("glb", "A"), Parallel("cluster", "x", (1, 2), (left, right)))
    done, arrays = execute(two_gemms(), tree, chip(3, 1))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    np.testing.assert_allclose(done.outputs["D"], arrays["A"] @ arrays["F"])
    assert done.counters.work == {"mac": 120}
    # at once in glb: A, and both children's B, C and F, D
    assert done.counters.footprint["glb"] == 2 * (12 + 15 + 20 + 15 + 20)


def test_sequence_reuses_room_and_overlap_does_not() -> None:
    children = nest(("glb", "B C"), ("obuf", "A B C"), Compute("C")), nest(("glb", "F D"), ("obuf", "A F D"), Compute("D"))
    for node, room in ((Sequence(children), 12 + 35), (Overlap(children), 12 + 70)):
        done, arrays = execute(two_gemms(), nest(("dram", "A B F C D"), ("glb", "A"), node), chip(1, 1))
        np.testing.assert_allclose(done.outputs["D"], arrays["A"] @ arrays["F"])
        assert done.counters.footprint["glb"] == 2 * room


# ---- reduction in the network ----------------------------------------------------------------------


def test_network_adds_on_the_way_up() -> None:
    tree = nest(("dram", "A B C"), ("buf", "A B C"), ("k", 3), ("k", 1, "pe"), ("rf", "A B C"), Compute("C"))
    done, arrays = execute(gemm(2, 2, 5), tree, pe_chip())
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    # k 5: three PEs, then two. C is 8 bytes: 5 parts leave the PEs, 2 sums arrive; member 0 is filled once again
    assert traffic(done.counters.reads, "drain")["rf", "C"] == 5 * 8
    assert traffic(done.counters.writes, "drain")["buf", "C"] == 2 * 8
    assert traffic(done.counters.writes, "fill")["rf", "C"] == 8
    assert done.counters.ports == {("pe", "up"): 40, ("pe", "down"): 20 + 20 + 8}


def test_network_adds_results_written_straight_through() -> None:
    # no hold of C in the PEs: each result crosses the level and meets its siblings' on the way
    tree = nest(("dram", "A B C"), ("buf", "A B C"), ("k", 3), ("k", 1, "pe"), ("rf", "A B"), Compute("C"))
    done, arrays = execute(gemm(2, 2, 5), tree, pe_chip())
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    assert traffic(done.counters.writes, "result") == {("buf", "C"): 16}
    assert traffic(done.counters.reads, "accumulate") == {("buf", "C"): 8}
    with pytest.raises(IllegalMapping, match=r"adds on the way up"):
        execute(gemm(2, 2, 5), tree, pe_chip(reduction=False))


# ---- the other kinds of op -------------------------------------------------------------------------


def single(item: Workload, name: str, *outer: object) -> np.ndarray:
    tensors = " ".join(dict.fromkeys((*item.op(name).inputs, *item.op(name).outputs)))
    tree = nest(("dram", tensors), *outer, ("obuf", tensors), Compute(name))
    done, _ = execute(item, tree)
    return np.asarray(done.outputs[item.outputs[0]])


def test_scan_gather_scatter_fft_permute() -> None:
    dims = {"t": 5, "d": 4, "i": 6, "v": 3}
    scan = workload(dims, "a:td x:td h:td", (op("h", OpKind.SCAN, "a x", "h", "dt", monoid="linear", along="t"),), "h")
    arrays = random_inputs(scan, 3)
    expected = np.zeros((5, 4))
    for t in range(5):
        expected[t] = arrays["a"][t] * (expected[t - 1] if t else 0) + arrays["x"][t]
    np.testing.assert_allclose(single(scan, "h", ("d", 3, "x")), expected)
    with pytest.raises(IllegalMapping, match=r"compute h: expected t whole in the tile"):
        single(scan, "h", ("t", 2))

    gather = workload(dims, "j:i w:vd o:id", (op("o", OpKind.GATHER, "j w", "o", "id"),), "o")
    arrays = random_inputs(gather, 3)
    np.testing.assert_allclose(single(gather, "o", ("i", 4), ("d", 2, "x")), arrays["w"][arrays["j"]])

    scatter = workload(dims, "j:i x:id o:vd", (op("o", OpKind.SCATTER, "j x", "o", "id"),), "o")
    arrays = random_inputs(scatter, 3)
    expected = np.zeros((3, 4))
    np.add.at(expected, arrays["j"], arrays["x"])
    np.testing.assert_allclose(single(scatter, "o", ("i", 4), ("d", 2, "x")), expected)

    fft = workload(dims, "x:td y:td", (op("y", OpKind.FFT, "x", "y", "dt", along="t"),), "y")
    np.testing.assert_allclose(single(fft, "y", ("d", 3)), np.fft.fft(random_inputs(fft, 3)["x"], axis=0))

    permute = workload(dims, "x:td y:dt", (op("y", OpKind.PERMUTE, "x", "y", "dt"),), "y")
    np.testing.assert_allclose(single(permute, "y", ("t", 2), ("d", 3)), random_inputs(permute, 3)["x"].T)


def test_welford_over_split_rows_equals_two_passes() -> None:
    stats = op("mu", OpKind.REDUCE, "X", "mu v", "mn", monoid="welford")
    item = workload({"m": 3, "n": 11}, "X:mn mu:m v:m", (stats,), "mu v")
    body = Sequence((nest(("n", 2), ("ibuf", "X"), Compute("mu")), collect("all-reduce", "mu v")))
    done, arrays = execute(item, nest(("dram", "X mu v"), ("n", 4, "x"), ("obuf", "mu v"), body), chip(4, 1))
    np.testing.assert_allclose(done.outputs["mu"], arrays["X"].mean(1))
    np.testing.assert_allclose(done.outputs["v"], arrays["X"].var(1) * 11)


def test_every_function_of_the_language_is_defined() -> None:
    assert set(DEFINITIONS) == set(FUNCTIONS)
    assert set(MONOID_DEFINITIONS) | set(SCANS) == set(MONOIDS)


def test_members_that_do_the_same_are_not_added_twice() -> None:
    # k over x is added on the way up; the two rows of y both have every part, and only the first sends its own
    tree = nest(("dram", "A B C"), ("glb", "A B C"), ("k", 2, "x"), ("obuf", "A B C"), Compute("C"))
    done, arrays = execute(gemm(2, 3, 4), tree, chip(2, 2, reduction=True))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    assert traffic(done.counters.reads, "drain")["obuf", "C"] == 2 * 12
    assert traffic(done.counters.writes, "drain")["glb", "C"] == 12
    assert done.counters.ports["cluster", "up"] == 24


def squares() -> Workload:
    return workload({"m": 4, "n": 6}, "X:mn Y:mn", (op("Y", OpKind.MAP, "X", "Y", "mn", function="square"),), "Y")


@pytest.mark.parametrize(
    ("kinds", "links"),
    [
        # Y: each of 3 members computes 4 x 2 elements, 16 bytes. Rows in shards of ceil(4 / 3) = 2: 2, 2, none.
        # to member 0: 16 over the first link, 16 over both; back the whole 48 bytes to each of two, the far one by two hops
        (("gather", "broadcast"), {(1, 0): 32, (2, 1): 16, (0, 1): 96, (1, 2): 48}),
        (("gather", "scatter"), {(1, 0): 32, (2, 1): 16, (0, 1): 24}),
        (("shift",), {(0, 1): 16, (1, 2): 16}),
    ],
)
def test_moves_between_members(kinds: tuple[str, ...], links: dict[tuple[int, int], int]) -> None:
    moves = [
        collect(kind, "Y", "x", "neighbour" if kind == "shift" else "direct", "m" if kind == "scatter" else "") for kind in kinds
    ]
    tree = nest(("dram", "X Y"), ("obuf", "X Y"), Sequence((nest(("n", 2, "x"), Compute("Y")), *moves)))
    done, arrays = execute(squares(), tree, chip(3, 1))
    np.testing.assert_allclose(done.outputs["Y"], arrays["X"] ** 2)
    assert done.counters.links == {("cluster", "x", *link): count for link, count in links.items()}
    # whoever holds them, the elements are drained once
    assert traffic(done.counters.reads, "drain") == {("obuf", "Y"): 48}
