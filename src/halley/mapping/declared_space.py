"""The declared map space, as stated in certificates: what is searched, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping

from halley.mapping.result import Clause
from halley.mapping.space.partitions import Breadth

SPACE = (
    Clause(
        "fused groups",
        "every partition of the kernels into groups that can run one after the other; a group is any set of kernels that no path "
        "of the graph leaves and enters again. Where a workload lets its kernels be cut, of their ops",
    ),
    Clause("algorithm", "every variant of the workload"),
    Clause("intermediates", "in the clusters, in the shared buffer or in outer memory"),
    Clause(
        "stages of a group",
        "in turn, or overlapped on successive rounds, in every cut into runs (with running softmax, those inside the loop over "
        "keys)",
    ),
    Clause(
        "clusters of a stage",
        "all of them; or, where overlapped stages hand over through the shared buffer, for each run its share: consecutive "
        "members of one axis, in every way to share out all of these (of axes that are alike, the first)",
    ),
    Clause(
        "splits over clusters",
        "of any dims, also within a share; of a contraction alone or through the shared buffer also of those that it sums over, "
        "with a reduce-scatter of each inner tile that is complete, or of what all inner loops hold",
    ),
    Clause("collectives", "every fitting algorithm, for each axis its own, but those that another one outdoes for any payload"),
    Clause(
        "further dim that a group walks",
        "inside its rows, where stages hand over through the shared buffer: none, or one that all ops have and only contractions "
        "sum over whose results leave, in two parts, four, eight and so on, rounded up; what lacks it held around these there, "
        "or (inputs alone) not",
    ),
    Clause(
        "loop orders",
        "those that differ in reuse, at two levels; in a group of several stages, whose rows are walked around them all, columns "
        "inside or the sum inside (the former alone for results that stay)",
    ),
    Clause(
        "masks",
        "keys that no row of a tile sees left out with running softmax, rows dealt out to the clusters in turn, unless the "
        "clusters split the keys; all computed elsewhere",
    ),
    Clause("shared buffer", "what a contraction reads or writes staged there or past it, each for itself"),
    Clause(
        "numbers of buffers",
        "one or two for each Hold of a stage, or as many as its memory allows (what a vector stage brings in at once alike)",
    ),
    Clause("results", "held for one tile, or for all inner loops where these come back to them"),
    Clause(
        "tile sizes",
        "the range cut into every number of equal parts, rounded up, and from there up to a multiple of the array's width",
    ),
    Clause(
        "dims on the array",
        "on each side any one dim of the role that the dataflow puts there, if it is as long as the side or the longest, or all "
        "of these together that lie whole beside one that is cut, or beside the longest",
    ),
)
"""The choices of the search, with their options."""

LEFT_OUT = (
    Clause("groups side by side", "on clusters of their own"),
    Clause("shares of clusters", "of both axes at once; stages on shares that hand over from cluster to cluster"),
    Clause(
        "stages of running softmax",
        "on shares of the clusters, the closing one beside the next tile of queries; running softmax in parts of attention",
    ),
    Clause(
        "buffers of running softmax",
        "inputs past the shared buffer, keys and values with unlike numbers of buffers, accumulators with two",
    ),
    Clause("prefetch across phases", "the first tiles of a stage or kernel beside the one before it"),
    Clause("buffers under overlap", "more than rounds are under way, but for one where that fits and costs nothing; or fewer"),
    Clause("tile sizes", "those that leave a smaller last tile than they must, but for multiples of the array's width"),
    Clause("dataflow", "another operand in the array than the one that the chip's dataflow keeps there"),
    Clause(
        "dims on the array",
        "several together on one side where more than one of them is cut, or the stage's own loops cut another than the longest, "
        "or one that fills it evenly",
    ),
    Clause("operands", "held for several inner tiles"),
    Clause("order of ops", "another one than the workload's within a fused group"),
    Clause("clusters", "left idle on purpose, or repeating each other's work"),
    Clause(
        "intermediates in clusters",
        "shared out anew between stages that keep them there; a dim split that one of these contractions sums over and no other "
        "stage has; vector kernels before a GEMM",
    ),
    Clause("sums", "shared out over other dims than the longest column dims (then rows)"),
    Clause(
        "further dims that a group walks",
        "two of them; one in other numbers of parts than powers of two, with intermediates in the clusters, stages on shares, or "
        "ops before and behind that lack it; one of a group of which an intermediate leaves, too; sums that go back and forth to "
        "outer memory; what is held around its tiles with unlike numbers of buffers, or under overlap in part, or for several of "
        "the runs",
    ),
    Clause(
        "masks",
        "hidden tiles left out by kernels on their own or with softmax in several passes, or where clusters split the keys",
    ),
    Clause("cuts within a kernel", "of a workload that does not let its kernels be cut"),
)
"""Options that are not searched."""

TOO_MANY: Mapping[Breadth, Clause] = {
    Breadth.JOINED: Clause(
        "unconnected groups", "fused groups of kernels that do not hang together by tensors: this graph has too many"
    ),
    Breadth.CONSECUTIVE: Clause(
        "scattered groups",
        "fused groups of kernels that do not follow each other in the workload's order: this graph has too many",
    ),
}
"""Further options that are left out for large workloads (`halley.mapping.space.partitions.every_partition`)."""
