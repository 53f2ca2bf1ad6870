"""Mappings by name: legal ones, and ones that break a rule with what the fault says."""

from __future__ import annotations

from tests.unit.mappings import (
    ABC,
    ABP,
    GATHER,
    GEMM,
    LATE,
    ONLINE,
    PAIR,
    PIECES,
    QKVO,
    REST,
    RING,
    S_BY_COLUMNS,
    SCAN,
    SOFT,
    SOFTMAX,
    SPLIT_K,
    X,
    each,
    nest,
    node,
    seq,
)

from halley.ir.workload import Workload

# ---- legal trees -----------------------------------------------------------------------------------

LEGAL: dict[str, tuple[Workload, str]] = {
    "one tile": (GEMM, nest(ABC, "compute C")),
    "ragged loops": (GEMM, nest(ABC, "for m by 3", "hold glb: A B C", "for k by 5", "hold obuf: A B C", "compute C")),
    "split rows": (GEMM, nest(ABC, f"spread m by 2 {X}", "hold obuf: A B C", "compute C")),
    "staged in a shared buffer": (GEMM, nest(ABC, f"spread m by 2 {X}", "hold glb: A B C", "compute C")),
    "all on one member": (GEMM, nest(ABC, f"spread m by 9 {X}", "hold obuf: A B C", "compute C")),
    "split k": (GEMM, nest(ABC, f"spread k by 4 {X}", "hold obuf: C", seq("compute C", f"all-reduce C {RING}"))),
    "softmax in place": (SOFTMAX, nest(ABP, "for m by 3", "hold obuf: S|E|P mx z", seq(*each("S mx E z P")))),
    "overwritten where it was filled": (
        SOFTMAX,
        nest(
            ABP,
            "hold glb: E z",
            seq(
                nest("hold obuf: S mx", seq(*each("S mx E z"))),
                nest(f"spread n by 3 {X}", "for m by 2", "hold obuf: z E|P", "compute P"),
            ),
        ),
    ),
    "rounds of rows, overlapped": (
        SOFTMAX,
        nest(ABP, "for m by 1", "hold obuf x3: S|E|P", node("overlap", "compute S", nest("hold obuf: mx z", seq(*REST)))),
    ),
    "rounds of rows, on members of their own": (
        SOFTMAX,
        nest(
            ABP,
            "for m by 1",
            "hold glb x2: S",
            node(f"parallel {X} shares 1 1", "compute S", nest("hold obuf: mx z E P", seq(*REST))),
        ),
    ),
    "distributed softmax": (
        SOFTMAX,
        nest(
            ABP,
            f"spread n by 3 {X}",
            "hold obuf: S|E|P mx z",
            seq(*each("S mx"), f"all-reduce mx {RING}", *each("E z"), f"all-reduce z {RING}", "compute P"),
        ),
    ),
    "one dim over two axes": (
        SOFTMAX,
        nest(ABP, f"spread m by 2 {X}", "spread m by 1 over cluster.y", SOFT, seq("compute S", *REST)),
    ),
    "gathered rows": (SOFTMAX, nest(ABP, SOFT, seq(S_BY_COLUMNS, f"all-gather S {RING}", *REST))),
    "columns become rows": (
        SOFTMAX,
        nest(ABP, SOFT, seq(S_BY_COLUMNS, f"all-to-all S {X} to m with direct", nest(f"spread m by 2 {X}", seq(*REST)))),
    ),
    "one member reduces, works alone, and broadcasts": (
        SOFTMAX,
        nest(
            ABP,
            SOFT,
            seq(
                nest(f"spread k by 2 {X}", "compute S"),
                f"reduce S {X} with chain",
                nest(f"spread n by 6 {X}", "hold ibuf: S", "compute mx"),
                f"broadcast S {X} with direct",
                f"reduce mx {X} with chain",
                f"broadcast mx {X} with direct",
                *each("E z P"),
            ),
        ),
    ),
    "online softmax": (ONLINE, nest(QKVO, "hold obuf: mx z U", seq(nest("for n by 3", "hold ibuf: S|E", PIECES), "compute O"))),
    "split keys": (
        ONLINE,
        nest(
            QKVO,
            f"spread n by 4 {X}",
            "hold obuf: mx z U",
            seq(nest("for n by 3", "hold ibuf: S|E", PIECES), f"all-reduce mx z {RING}", f"all-reduce U {RING}", "compute O"),
        ),
    ),
    "scan": (SCAN, nest("hold dram: a x h", "for c by 3", f"spread c by 2 {X}", "hold obuf: a x h", "compute h")),
    "gather": (GATHER, nest("hold dram: j w o", f"spread i by 3 {X}", "for c by 1", "hold obuf: j w o", "compute o")),
    "a collective behind a share": (
        GEMM,
        nest(
            *(ABC, f"spread k by 4 {X}", "hold obuf: C"),
            seq(node("parallel over cluster.y shares 1", nest("for k by 2", "compute C")), f"all-reduce C {RING}"),
        ),
    ),
    "a collective in a share, filled again": (
        GEMM,
        nest(
            *(ABC, f"spread k by 4 {X}", "for k by 2", "hold obuf: C"),
            node("parallel over cluster.y shares 1", seq("compute C", f"all-reduce C {RING}")),
        ),
    ),
    "parallel": (
        PAIR,
        nest(
            "hold dram: A B F C D",
            node(
                f"parallel {X} shares 1 1",
                nest("hold obuf: A B C", "compute C"),
                nest("spread n by 3 over cluster.y", "hold obuf: A F D", "compute D"),
            ),
        ),
    ),
    "pipeline": (
        SOFTMAX,
        nest(
            ABP,
            "hold glb: A B S P",
            node(
                f"pipeline m by 2 {X} shares 1 1",
                nest("hold obuf: A B S", "compute S"),
                nest("hold obuf: S|E|P mx z", seq(*REST)),
            ),
        ),
    ),
}

# ---- broken rules ----------------------------------------------------------------------------------

TWO_STAGES = node(f"pipeline m by 2 {X} shares 1 1", "compute S", seq(*REST))

ILLEGAL: dict[str, tuple[Workload, str, str]] = {
    "unknown dim": (
        GEMM,
        nest(ABC, "for mm by 2", "compute C"),
        "for mm by 2: expected a dim that exists; got 'mm'; did you mean 'm'?",
    ),
    "unknown op": (GEMM, nest(ABC, "compute CC"), "compute CC: expected an op that exists; got 'CC'; did you mean 'C'?"),
    "unknown memory": (GEMM, nest(ABC, "hold obuff: A", "compute C"), "got 'obuff'; did you mean 'obuf'?"),
    "unknown tensor": (
        GEMM,
        nest(ABC, "hold obuf: D", "compute C"),
        "expected a tensor that exists; got 'D'; use one of: A, B, C",
    ),
    "unknown level": (GEMM, nest(ABC, "spread m by 2 over clusters.x", "compute C"), "got 'clusters'; did you mean 'cluster'?"),
    "unknown axis": (
        GEMM,
        nest(ABC, "spread m by 2 over cluster.z", "compute C"),
        "an axis of cluster; got 'z'; use one of: x, y",
    ),
    "no axes": (GEMM, nest(ABC, "spread m by 2 over glb.x", "compute C"), "an axis of glb; got 'x'; the level has no axes"),
    "held twice": (GEMM, nest("hold dram: A A B C", "compute C"), "each tensor once; got A 2 times"),
    "an op is missing": (SOFTMAX, nest(ABP, SOFT, seq(*each("S mx E z"))), "compute P: expected every op of the workload once"),
    "an op twice": (GEMM, nest(ABC, seq("compute C", "compute C")), "compute C: expected one compute per op; got 2"),
    "too many parts": (
        GEMM,
        nest(ABC, f"spread m by 1 {X}", "compute C"),
        "expected at most 2 parts; got 4; use a tile of at least 2",
    ),
    "an axis split twice": (
        GEMM,
        nest(ABC, f"spread m by 2 {X}", f"spread n by 3 {X}", "compute C"),
        "an axis that is not split yet (it splits m)",
    ),
    "shares of a split axis": (
        PAIR,
        nest("hold dram: A B F C D", f"spread m by 2 {X}", node(f"parallel {X} shares 1 1", *each("C D"))),
        "parallel over cluster.x: expected an axis that is not split yet; got a split of m",
    ),
    "shares do not fit": (
        PAIR,
        nest("hold dram: A B F C D", node(f"parallel {X} shares 2 1", *each("C D"))),
        "expected 2 shares of at least 1 that sum to at most 2; got 2 1",
    ),
    "dependent children": (
        SOFTMAX,
        nest(ABP, SOFT, node("overlap", seq(*REST), "compute S")),
        "overlap: expected S computed by the first child that touches it; got child 2 changes it, child 1 uses it before",
    ),
    "too few buffers for the rounds under way": (
        SOFTMAX,
        nest(ABP, "for m by 1", "hold obuf x2: S mx E z P", node("overlap", "compute S", "compute mx", seq(*REST[1:]))),
        "overlap: expected 3 buffers of S in obuf, for the rounds under way at once, or 1; got 2",
    ),
    "children that hand over what all rounds share": (
        SOFTMAX,
        nest(
            ABP,
            "hold obuf: mx z",
            "for n by 1",
            "hold obuf x3: S E P",
            node("overlap", "compute S", "compute mx", seq(*REST[1:])),
        ),
        "overlap: expected 3 buffers of mx in obuf, for the rounds under way at once, as it is carried from round",
    ),
    "inner before outer": (
        GEMM,
        nest(ABC, "hold obuf: A", "hold glb: A", "compute C"),
        "hold glb: A: expected a memory as deep as the hold around it or deeper; got obuf",
    ),
    "output not held outside": (
        GEMM,
        nest("hold dram: A B", "hold glb: C", "compute C"),
        "an outermost hold of C in a memory of dram",
    ),
    "input not held outside": (
        GEMM,
        nest("hold dram: A C", "hold glb: B", "compute C"),
        "an outermost hold of B in a memory of dram",
    ),
    "not held": (GEMM, nest("hold dram: A C", "compute C"), "compute C: expected a hold around it with B; got none"),
    "a foreign loop": (
        SOFTMAX,
        nest(ABP, SOFT, seq("compute S", nest("for k by 1", "compute mx"), *each("E z P"))),
        "compute mx: expected loops in time over its own dims (m, n); got a loop over k",
    ),
    "wrong order": (
        SOFTMAX,
        nest(ABP, SOFT, seq(*each("S E mx z P"))),
        "compute E: expected mx in obuf; got elements that are not there",
    ),
    "read too early": (
        SOFTMAX,
        nest(ABP, SOFT, "for n by 3", seq("compute S", *REST)),
        "compute E: expected mx reduced over all n; got both inside that loop",
    ),
    "no common hold": (
        SOFTMAX,
        nest(
            ABP, "hold obuf: E mx z P", seq(nest("hold ibuf: S", seq(*each("S mx"))), nest("hold ibuf: S", seq(*each("E z P"))))
        ),
        "hold ibuf: S: expected a hold of S further out that has it; got none",
    ),
    "nowhere to accumulate": (
        SOFTMAX,
        nest(ABP, "hold obuf: mx E z P", "for k by 1", "hold obuf: S", seq("compute S", *REST)),
        "hold obuf: S: expected a hold of S around the loop over k; got none",
    ),
    "in place, but no map": (
        SOFTMAX,
        nest(ABP, "hold obuf: S|mx E z P", seq("compute S", *REST)),
        "expected mx to be a map of S",
    ),
    "read after it was overwritten": (
        LATE,
        nest("hold dram: A B T", "hold obuf: S|E mx", seq(*each("S mx E T"))),
        "compute T: expected S in obuf; got E, which overwrote it in place; give E a buffer of its own",
    ),
    "drained after it was overwritten": (
        SOFTMAX,
        nest(ABP, "hold glb: S", "hold obuf: S|E P mx z", seq("compute S", *REST)),
        "drain of S from obuf: expected S to be there still; got E, which overwrote it in place",
    ),
    "a missing all-reduce": (
        SOFTMAX,
        nest(ABP, f"spread n by 3 {X}", SOFT, seq("compute S", *REST)),
        "compute E: expected mx Replicate over cluster.x; got Partial(max); "
        "insert 'all-reduce mx over cluster.x with ring' before it",
    ),
    "a missing all-gather": (
        SOFTMAX,
        nest(ABP, SOFT, seq(S_BY_COLUMNS, *REST)),
        "compute mx: expected S Replicate over cluster.x; got Shard(n); insert 'all-gather S over cluster.x with ring' before it",
    ),
    "a missing all-to-all": (
        SOFTMAX,
        nest(ABP, SOFT, seq(S_BY_COLUMNS, nest(f"spread m by 2 {X}", seq(*REST)))),
        "expected S Shard(m) over cluster.x; got Shard(n); insert 'all-to-all S over cluster.x to m with direct' before it",
    ),
    "a missing reduce-scatter": (
        SOFTMAX,
        nest(ABP, SOFT, seq(nest(f"spread k by 2 {X}", "compute S"), nest(f"spread m by 2 {X}", seq(*REST)))),
        "expected S Shard(m) over cluster.x; got Partial(sum); insert 'reduce-scatter S over cluster.x to m with ring' before it",
    ),
    "a missing broadcast": (
        SOFTMAX,
        nest(ABP, SOFT, seq(nest(f"spread k by 2 {X}", "compute S"), f"reduce S {X} with chain", *REST)),
        "compute mx: expected S Replicate over cluster.x; got Single; insert 'broadcast S over cluster.x with direct' before it",
    ),
    "a missing all-gather before a fill": (
        SOFTMAX,
        nest(ABP, SOFT, seq(S_BY_COLUMNS, nest("hold ibuf: S", "compute mx"), *each("E z P"))),
        "hold ibuf: S: expected S Replicate over cluster.x; got Shard(n); "
        "insert 'all-gather S over cluster.x with ring' before it",
    ),
    "other tiles": (
        SOFTMAX,
        nest(ABP, SOFT, seq(nest(f"spread m by 2 {X}", "compute S"), nest(f"spread m by 3 {X}", seq(*REST)))),
        "compute mx: expected S cut along m over cluster.x as its reader cuts it; got another cut",
    ),
    "tiles in another order": (
        SOFTMAX,
        nest(ABP, SOFT, seq(nest("for m by 2", f"spread m by 1 {X}", "compute S"), nest(f"spread m by 2 {X}", seq(*REST)))),
        "compute mx: expected S cut along m over cluster.x as its reader cuts it; got another cut",
    ),
    "idle members have nothing": (
        LATE,
        nest("hold dram: A B T", "hold obuf: S E mx T", seq(nest(f"spread k by 3 {X}", "compute S"), *each("mx E T"))),
        "insert 'all-reduce S over cluster.x with ring' before it",
    ),
    "a split of a dim that the op lacks leaves members idle": (
        SOFTMAX,
        nest(ABP, SOFT, seq("compute S", nest(f"spread k by 3 {X}", "compute mx"), *each("E z P"))),
        "compute E: expected mx Replicate over cluster.x; got members 0 to 0 only",
    ),
    "a partial result is drained": (
        GEMM,
        nest(*SPLIT_K, "compute C"),
        "drain of C from obuf: expected C Replicate, Shard or Single over cluster.x; got Partial(sum); "
        "insert 'all-reduce C over cluster.x with ring' before the hold ends",
    ),
    "a partial result goes straight through": (
        GEMM,
        nest(ABC, f"spread k by 4 {X}", "compute C"),
        "expected C held inside cluster, or a network there that adds on the way up; got Partial(sum) over cluster.x",
    ),
    "nothing to reduce": (
        GEMM,
        nest(ABC, f"spread m by 2 {X}", "hold obuf: C", seq("compute C", f"broadcast C {X} with direct")),
        "expected a place outside the split of m over that axis; got inside it",
    ),
    "reduced twice": (
        GEMM,
        nest(*SPLIT_K, seq("compute C", f"all-reduce C {RING}", f"all-reduce C {RING}")),
        "expected C Partial over cluster.x; got Replicate",
    ),
    "a reduction in a loop over k": (
        GEMM,
        nest(ABC, "hold obuf: C", "for k by 4", f"spread k by 2 {X}", seq("compute C", f"all-reduce C {RING}")),
        "expected no loop over k between it and the hold of C; got one; move it out of that loop, or the hold into it",
    ),
    "an all-gather in a loop over k": (
        GEMM,
        nest(ABC, "hold obuf: C", "for k by 4", seq(nest(f"spread n by 3 {X}", "compute C"), f"all-gather C {RING}")),
        f"all-gather C {RING}: expected no loop over k between it and the hold of C",
    ),
    "a shift between two holds": (
        SOFTMAX,
        nest(ABP, SOFT, "hold obuf: S", seq("compute S", f"shift S {X} with neighbour", *REST)),
        "expected one hold of S in cluster, for copies do not drain; got two",
    ),
    "overwritten in part": (
        SOFTMAX,
        nest(ABP, "hold obuf: S|E|P mx z", seq(*each("S mx E z"), nest(f"spread m by 2 {X}", "compute P"))),
        "drain of P from obuf: expected P in the place of all that it was made from; got parts of E",
    ),
    "a collective in a loop of its own": (
        GEMM,
        nest(*SPLIT_K, seq("compute C", nest("for m by 2", f"all-reduce C {RING}"))),
        "expected C written again before each time; got a loop over m around it alone",
    ),
    "an all-gather inside the split": (
        GEMM,
        nest(ABC, f"spread m by 2 {X}", "hold obuf: C", seq("compute C", f"all-gather C {RING}")),
        "expected a place outside the split of m over that axis; got inside it",
    ),
    "an all-gather of scattered tiles": (
        SOFTMAX,
        nest(ABP, SOFT, seq(nest("for n by 4", f"spread n by 2 {X}", "compute S"), f"all-gather S {RING}", *REST)),
        "expected S Shard(n), the i-th tile on member i; got other parts",
    ),
    "a dim that another axis shards": (
        GEMM,
        nest(
            ABC,
            "hold obuf: C",
            seq(nest(f"spread k by 4 {X}", "spread m by 2 over cluster.y", "compute C"), f"reduce-scatter C {X} to m with ring"),
        ),
        "expected a dim that no other axis shards; got m, which cluster.y shards",
    ),
    "a collective of what is not held there": (
        GEMM,
        nest(ABC, f"spread k by 4 {X}", seq("compute C", f"all-reduce C {RING}")),
        "expected C held in a memory of cluster; got no such hold around it",
    ),
    "no dim to shard": (
        GEMM,
        nest(*SPLIT_K, seq("compute C", f"reduce-scatter C {X} to k with ring")),
        "expected a dim of C to shard; got 'k'; add 'to' and one of m, n",
    ),
    "tensors of other dims in one collective": (
        SOFTMAX,
        nest(ABP, f"spread k by 2 {X}", SOFT, seq("compute S", f"all-reduce S mx {RING}", *REST)),
        "expected tensors with the same dims; got m and m n",
    ),
    "half a state": (
        ONLINE,
        nest(QKVO, f"spread n by 4 {X}", "hold obuf: mx z U S E", seq(PIECES, f"all-reduce mx {RING}", "compute O")),
        "expected the whole state of mx; got mx without z; add z to the collective",
    ),
    "an accumulator before its maximum": (
        ONLINE,
        nest(
            QKVO,
            f"spread n by 4 {X}",
            "hold obuf: mx z U S E",
            seq(PIECES, f"all-reduce U {RING}", f"all-reduce mx z {RING}", "compute O"),
        ),
        "all-reduce U over cluster.x with ring: expected mx Replicate over cluster.x, for U is relative to it; "
        "got Partial(softmax)",
    ),
    "a state is put back": (
        ONLINE,
        nest(QKVO, "hold glb: mx z", "hold obuf: U", seq(nest("for n by 4", "hold obuf: S E mx z", PIECES), "compute O")),
        "compute mx: expected no loop over n outside the innermost hold of mx",
    ),
    "an older maximum": (
        ONLINE,
        nest(QKVO, "hold obuf: S E mx z U", seq(nest("for n by 4", seq(*each("S mx E"))), *each("U O"))),
        "compute U: expected E relative to the present mx; got E relative to an earlier visit of mx",
    ),
    "a maximum combined in an inner hold, and once more outside": (
        ONLINE,  # the all-reduce of U would rescale it from the parts of mx outside, but E is relative to the whole one inside
        nest(
            QKVO,
            "hold obuf: S mx z E U",
            seq(
                "compute S",
                nest("spread n by 4 over cluster.y", "compute mx"),
                nest("hold obuf: mx z", seq("all-reduce mx z over cluster.y with ring", "compute E")),
                nest(f"spread n by 4 {X}", "compute U"),
                "all-reduce mx z over cluster.y with ring",
                f"all-reduce U {RING}",
                "compute O",
            ),
        ),
        "compute U: expected E relative to the present mx; got E relative to an earlier visit of mx",
    ),
    "no maximum in the innermost hold": (
        ONLINE,
        nest(QKVO, "hold obuf: S E mx z U", seq(PIECES, nest("hold obuf: mx", "compute O"))),
        "compute O: expected mx in obuf; got elements that are not there",
    ),
    "a gathered accumulator without its maximum": (
        ONLINE,
        nest(
            QKVO,
            "hold obuf: S E mx z U",
            seq(nest(f"spread m by 2 {X}", PIECES), f"all-gather U {RING}", f"all-gather z {RING}", "compute O"),
        ),
        f"compute O: expected mx Replicate over cluster.x; got Shard(m); insert 'all-gather mx z {RING}' before it",
    ),
    "a distributed accumulator": (
        GEMM,
        nest(ABC, "for k by 4", "hold obuf: C", f"spread m by 2 {X}", "compute C"),
        "expected no loop over k outside the distributed hold obuf: C",
    ),
    "an accumulator kept where nothing is added": (
        GEMM,
        nest(
            *(ABC, f"spread k by 4 {X}", "for k by 2", "hold obuf: C"),
            seq(node("parallel over cluster.y shares 1", "compute C"), f"all-reduce C {RING}"),
        ),
        "compute C: expected no loop over k outside hold obuf: C, kept beyond its share of cluster.y",
    ),
    "a collective without members that keep the tensor": (
        GEMM,
        nest(
            *(ABC, "hold obuf: C"),
            seq(
                nest("spread n by 3 over cluster.y", f"spread k by 4 {X}", "compute C"),
                node("parallel over cluster.y shares 1", f"all-reduce C {RING}"),
            ),
        ),
        f"all-reduce C {RING}: expected all members of cluster.y that keep C in obuf in its share; got others outside it",
    ),
    "parts that are not filled again": (
        GEMM,
        nest(*SPLIT_K, seq(nest("for k by 2", "hold ibuf: C", "compute C"), f"all-reduce C {RING}")),
        "hold ibuf: C: expected no loop over k between it and hold obuf, which has a part per cluster.x",
    ),
    "an output in parts": (
        GEMM,
        nest("hold dram: A B", "for k by 4", "hold dram: C", "compute C"),
        "output C: expected every element reduced over all k; got a part of it",
    ),
    "a scan that is cut": (SCAN, nest("hold dram: a x h", "for t by 2", "compute h"), "compute h: expected t whole in the tile"),
    "a table that is cut": (
        GATHER,
        nest("hold dram: j w o", f"spread v by 2 {X}", "compute o"),
        "compute o: expected v whole in the tile",
    ),
    "a state in two levels": (
        ONLINE,
        nest(QKVO, "hold glb: z", "hold obuf: mx U S E", seq(*each("S mx E U O"))),
        "compute mx: expected mx and z in memories of one level",
    ),
    "stages that share no memory": (
        SOFTMAX,
        nest(ABP, SOFT, TWO_STAGES),
        "compute mx: expected S Replicate over cluster.x; got members 0 to 0 only",
    ),
}
