"""The declared map space, as stated in certificates: what is searched, and what is left out."""

from __future__ import annotations

from collections.abc import Container, Mapping

from halley.ir.hardware import Chip
from halley.mapping.result import Clause
from halley.mapping.space.partitions import Breadth
from halley.mapping.space.tile_sizes import LONG_RANGE, PARTS_PER_OCTAVE

SPACE = (
    Clause(
        "fused groups",
        "every partition of the kernels into groups that can run one after the other. A group is any convex set of "
        "kernels; of ops, where the workload lets its kernels be cut",
    ),
    Clause("algorithm", "every variant of the workload"),
    Clause(
        "intermediates",
        "held in the memory of results, in any memory between that and the outermost one, or in the outermost one",
    ),
    Clause(
        "stages of a group",
        "sequential, or overlapped on successive rounds, in every cut into consecutive runs (with running softmax: of the "
        "stages inside the loop over keys)",
    ),
    Clause(
        "collectives of vector stages",
        "sequential, or overlapped with the vector operations: each run of operations and each run of collectives works on "
        "another tile of rows. Not where rows are streamed in passes",
    ),
    Clause(
        "batch dims",
        "of a group of contractions: one item at a time; where intermediates stay in the memory of results, also all items of "
        "a member at once",
    ),
    Clause(
        "members of a stage",
        "all of them. Where overlapped stages hand over outside the memory of results, also a part of one axis for each "
        "run: consecutive members, in every way to distribute all of them (of equal axes, the first)",
    ),
    Clause(
        "spatial splits",
        "of any dim over each axis, also over part of an axis. For a contraction that is alone or hands over outside the "
        "memory of results also a reduced dim, over axes at the level of that memory, with a reduce-scatter of each "
        "complete inner tile, or of what all inner loops hold",
    ),
    Clause(
        "groups along an axis",
        "axes whose network copies: all of them whole, or all in groups of 2, 4, 8, ... members that divide them (x/8 and x%8 "
        "in the place of x), the same throughout a plan",
    ),
    Clause(
        "loads shared by members",
        "each operand of a contraction that is alone or hands over in the memory of results: loaded by each member, or by one "
        "member of an axis that broadcasts it, where the network copies, memory serves members one by one, and all have equal "
        "parts of the dims that the operand lacks",
    ),
    Clause(
        "tile sizes of splits",
        "equal parts for all members of the axis, rounded up. In a group of one stage (a contraction, or vector operations) also "
        "larger ones, on one axis or two, which leave members idle: equal parts for 1, 2, 4, 8, ... members; and all of these "
        "rounded up to the array's width",
    ),
    Clause(
        "collectives",
        "every fitting algorithm, on each axis its own, except those that another one dominates for any payload",
    ),
    Clause(
        "further loop of a group",
        "inside its rows, where stages hand over outside the memory of results: none, or one over a dim that all ops have "
        "and that only contractions reduce whose results leave; in 2, 4, 8, ... parts, rounded up. Tensors without the "
        "dim are held around the loop (inputs: or not)",
    ),
    Clause(
        "loop orders",
        "those that differ in reuse, at each level that has memories. In a group of several stages, whose rows are the "
        "outermost loop: columns innermost or the reduction innermost (columns for results that stay)",
    ),
    Clause(
        "masks",
        "with running softmax, keys that are masked for all rows of a tile are skipped and rows are distributed to the "
        "members cyclically, unless members split the keys. Elsewhere all points are computed",
    ),
    Clause("bypass", "each operand and result of a contraction is held at each level on its way, or bypasses it"),
    Clause(
        "numbers of buffers",
        "for each Hold of a stage one or two, or as many as its memory allows (one number for all that a vector stage "
        "reads at once)",
    ),
    Clause(
        "results and operands",
        "results: held for one tile, or for all inner loops where these return to them. Operands of a contraction alone whose "
        "reduced dims no axis splits, on all members: likewise, while the other tensors are held for smaller tiles (uneven "
        "mapping); not the tensor that the innermost loop leaves in place",
    ),
    Clause(
        "tile sizes",
        "the range divided into every number of equal parts, rounded up, and these rounded up to the array's width. A range "
        f"longer than {LONG_RANGE:,}: into {PARTS_PER_OCTAVE} numbers of parts between one power of two and the next",
    ),
    Clause(
        "dims on the array",
        "on each side one dim of the role that the dataflow puts there, if it is as long as the side or the longest one; "
        "or all of these dims that are untiled, together with a tiled one or with the longest one",
    ),
)
"""The choices of the search, with their options."""

OP_BY_OP = Clause(
    "op by op",
    "for a baseline that was asked for: also every op on its own, its result in the outermost memory, of a workload that does "
    "not let its kernels be cut",
)
"""A choice that a baseline of single ops adds."""

LEFT_OUT = (
    Clause("groups in parallel", "on members of their own"),
    Clause(
        "affine indices",
        "tiles of several terms of a sum with strides, dilation or padding; members that split another term than the longest",
    ),
    Clause(
        "groups along an axis",
        "of different sizes on two axes, or along one of them only; of other sizes than powers of two; of axes whose network "
        "does not copy; within them idle members, stages that hand over outside the memory of results, and sums joined over more "
        "than two axes",
    ),
    Clause(
        "broadcasts",
        "of what one member loaded over two axes, by other algorithms than the network's multicast, among members with unequal "
        "parts; of inputs of vector operations, of what is held around several stages, and where masked keys are skipped",
    ),
    Clause("parts of axes", "of two axes at once; stages on parts of an axis that hand over from member to member"),
    Clause(
        "stages of running softmax",
        "on parts of an axis; the last stage beside the next tile of queries; running softmax for a part of attention; on "
        "chips whose engines read their operands further out than they write results",
    ),
    Clause(
        "buffers of running softmax",
        "inputs that bypass the outermost buffer, or are held between it and the memories beside the engines; keys and "
        "values with different numbers of buffers; accumulators with two; queries held around the keys where one level of "
        "memories is below the outermost one",
    ),
    Clause("prefetch across phases", "loading the first tiles of a stage or kernel during the one before it"),
    Clause("buffers under overlap", "more than the rounds in flight (but for one, where it fits at no cost), or fewer"),
    Clause("tile sizes", "those with a last tile smaller than necessary, except multiples of the array's width"),
    Clause(
        "batch dims",
        "several at once, but not all, of a dim that all tensors of a contraction have; several where stages hand over outside "
        "the memory of results, or walk keys",
    ),
    Clause("dataflow", "another stationary operand than the chip's"),
    Clause(
        "dims on the array",
        "several on one side of which more than one is tiled, or of which the stage's own loops tile another than the "
        "longest, or one of which fills the side evenly",
    ),
    Clause(
        "operand-stationary inner loops",
        "of a contraction in a group of several ops, with a reduce-scatter or with idle members; around some of the inner "
        "loops that index the operand; at other levels than the innermost",
    ),
    Clause(
        "overlapped vector stages",
        "other cuts than before and after each run of collectives; operations without collectives; more buffers than rounds in "
        "flight; where stages that hand over in the memory of results overlap, too",
    ),
    Clause("order of ops", "another one than the workload's within a fused group"),
    Clause("idle members", "in groups of several stages, on more than two axes, or through other tile sizes of a split"),
    Clause("replicated work", "members that repeat the work of others"),
    Clause(
        "recomputation",
        "of intermediates, or of the rows that neighbouring tiles of a convolution share; convolutions fused over rows",
    ),
    Clause("intermediates of a group", "in different memories"),
    Clause(
        "splits",
        "of reduced dims over axes at other levels than that of the results' memory; of other dims than rows and batch, at "
        "levels above a memory through which stages pass intermediates",
    ),
    Clause("vector operations", "inputs held between the outermost memory and the one in which vector operations work"),
    Clause(
        "intermediates in the memory of results",
        "redistributed between stages; split over a dim that a contraction reduces and no other stage has; vector kernels "
        "before a GEMM",
    ),
    Clause("results of reduce-scatters", "sharded over other dims than the longest columns (then rows)"),
    Clause(
        "further loops of a group",
        "more than one; in other numbers of parts than powers of two; together with intermediates in the memory of results, "
        "with stages on parts of an axis, with ops without the dim, or with an intermediate that is also an output; with "
        "partial sums in the outermost memory; with different numbers of buffers of the tiles outside the loop; of only some "
        "stages under overlap",
    ),
    Clause("masks", "skipped tiles in single kernels, with softmax in several passes, or where members split the keys"),
    Clause("cuts within a kernel", "of a workload that does not let its kernels be cut"),
)
"""Choices that the search does not make."""

IN_LOCKSTEP = Clause(
    "lockstep memories",
    "two or more buffers in Holds around several stages, and stages that work at the same time and hand over through them",
)
"""A choice that is left out on chips with such memories."""

TOO_MANY: Mapping[Breadth, Clause] = {
    Breadth.JOINED: Clause(
        "unconnected groups", "fused groups of kernels that are not connected by tensors: this graph has too many"
    ),
    Breadth.CONSECUTIVE: Clause(
        "scattered groups",
        "fused groups of kernels that do not follow each other in the workload's order: this graph has too many",
    ),
}
"""Further options that are left out for large workloads (`halley.mapping.space.partitions.every_partition`)."""


def left_out(chip: Chip, breadths: Container[Breadth]) -> tuple[Clause, ...]:
    """The choices that a search on a chip does not make; ``breadths``: the limits of the groups of its workload's variants."""
    further = [IN_LOCKSTEP] if any(memory.lockstep for memory in chip.memories) else []
    return (*LEFT_OUT, *further, *(clause for breadth, clause in TOO_MANY.items() if breadth in breadths))
