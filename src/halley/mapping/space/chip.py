"""The chip template of the search: outer memory, shared buffer, a level of clusters with local buffers.

`halley estimate` costs any tree on any chip; the search builds trees for chips of this template.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis, Chip, MatrixEngine, Memory, Topology


@dataclass(frozen=True, slots=True)
class Template:
    """A chip that matches the template: memories by role (weights may be in any of several), the cluster level and its axes, the
    chip, and the matrix engine."""

    outer: str
    shared: str
    level: str
    axes: tuple[Axis, ...]
    input: str
    weights: tuple[str, ...]
    output: str
    chip: Chip
    engine: MatrixEngine

    def memory(self, name: str) -> Memory:
        """A memory by its name."""
        return self.chip.memory(name)

    @property
    def sums(self) -> Memory:
        """The memory of results, which is where sums are brought together."""
        return self.memory(self.output)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the array."""
        return tuple(sorted({self.engine.rows, self.engine.cols}))

    def narrowed(self, name: str, members: int) -> Template:
        """The same with only some consecutive members of an axis; a part of a ring lacks the link that closes it."""
        return replace(self, axes=tuple(_part(axis, members) if axis.name == name else axis for axis in self.axes))


def _part(axis: Axis, members: int) -> Axis:
    topology = Topology.LINE if axis.topology is Topology.RING and members < axis.size else axis.topology
    return replace(axis, size=members, topology=topology)


def template(chip: Chip) -> Template:
    """The chip's parts by role.

    Raises BadInput where the chip has another shape.
    """
    expected = "three levels (outer memory, shared buffer, clusters with local buffers), a matrix and a vector engine"
    remedy = "use 'halley estimate' with a mapping of your own for other shapes"
    if len(chip.levels) != 3 or chip.matrix is None or chip.vector is None:
        got = f"levels {', '.join(level.name for level in chip.levels)}"
        raise BadInput(Fault(f"chip {chip.name}", expected, got, remedy))
    outer, shared, cluster = chip.levels
    if len(outer.memories) != 1 or len(shared.memories) != 1 or not cluster.memories or cluster.network is None:
        raise BadInput(Fault(f"chip {chip.name}", expected, "other memories per level", remedy))
    local = tuple(memory.name for memory in cluster.memories)

    def choices(name: str) -> tuple[str, ...]:
        assert chip.matrix is not None
        allowed = chip.matrix.reads.get(name) or local[:1]
        return tuple(memory for memory in local if memory in allowed) or local[-1:]

    return Template(
        outer=outer.memories[0].name,
        shared=shared.memories[0].name,
        level=cluster.name,
        axes=cluster.network.axes,
        input=choices("input")[0],
        weights=choices("weight"),
        output=choices("output")[0],
        chip=chip,
        engine=chip.matrix,
    )
