"""A chip as the search sees it: an outer memory, tiers of memories below it, and the spatial axes of each tier.

A tier is a level below the outermost one that has memories. Each tier has temporal loops outside what it holds. An axis belongs
to the tier of its level, or to the next inner one that has memories, and splits dims outside the loops of that tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault
from halley.ir.axis_groups import divided
from halley.ir.hardware import Axis, Chip, Level, MatrixEngine, Memory, Topology, axis_group
from halley.ir.workload import Op

OPERANDS = ("input", "weight", "output")
"""Roles of a contraction's tensors, as `halley.ir.hardware.MatrixEngine.reads` names them: first operand, second, result."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Memories of a level. ``operands``: by role, those that may hold such a tensor; a role that the engine reads further out has
    none here."""

    level: str
    memories: tuple[str, ...]
    operands: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LevelAxis:
    """An axis of a level's network, and the number of the tier around whose loops it splits dims."""

    level: str
    tier: int
    axis: Axis

    @property
    def alike(self) -> LevelAxis:
        """The same without the axis' name: equal for axes that differ in nothing else."""
        return replace(self, axis=replace(self.axis, name=""))


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """``tiers``: outermost first, at least one. ``axes``: of all levels, outermost first. ``vector``: the memory in which vector
    operations work. ``engine``: of contractions, None where the chip has none."""

    chip: Chip
    outer: str
    tiers: tuple[Tier, ...]
    axes: tuple[LevelAxis, ...]
    vector: str
    engine: MatrixEngine | None

    def memory(self, name: str) -> Memory:
        """A memory by its name."""
        return self.chip.memory(name)

    def read_at(self, role: str) -> int:
        """The number of the tier from which the matrix engine takes a role: the innermost that may hold it."""
        return max(at for at, tier in enumerate(self.tiers) if tier.operands[role])

    def beside_engine(self, role: str) -> tuple[str, ...]:
        """The memories from which the matrix engine takes a role."""
        return self.tiers[self.read_at(role)].operands[role]

    @property
    def input(self) -> str:
        """The memory of a contraction's first operand, beside the engine."""
        return self.beside_engine("input")[0]

    @property
    def output(self) -> str:
        """The memory of a contraction's results, beside the engine."""
        return self.beside_engine("output")[0]

    @property
    def level_of_results(self) -> str:
        """The level among whose members partial results can be combined: that of their memory."""
        return self.tiers[self.read_at("output")].level

    def joins(self, own: LevelAxis) -> bool:
        """Whether members of an axis can combine partial results."""
        return own.level == self.level_of_results and own.axis.topology is not Topology.NONE

    @property
    def sums(self) -> Memory:
        """The memory in which partial results are combined."""
        return self.memory(self.output)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the array."""
        return tuple(sorted({self.engine.rows, self.engine.cols})) if self.engine else ()

    def takes_results(self) -> bool:
        """Whether operations may take an intermediate from the memory of a contraction's results: vector operations work in it,
        and no memory from which contractions take their operands is further out."""
        return self.vector == self.output and self.read_at("output") <= min(self.read_at("input"), self.read_at("weight"))

    def hands_over(self) -> range:
        """The tiers, further out than the results' own, from whose memories all operations may take an intermediate."""
        vector = next(at for at, tier in enumerate(self.tiers) if self.vector in tier.memories)
        innermost = min(self.read_at("input"), self.read_at("weight"), vector)
        return range(min(self.read_at("output"), innermost + 1))

    def inside(self, role: str, tier: int) -> int:
        """From which tier on a stage may hold a tensor that is held in a memory of a ``tier`` around it: the next one further in,
        at most the one beside the engine, into one of whose memories for this role it is copied."""
        return min(tier + 1, self.read_at(role))

    def beside(self, op: Op) -> dict[str, int]:
        """By operand of a contraction, the tier beside the engine; its result is held around it."""
        found = {name: self.read_at(role) for role, name in zip(OPERANDS[:2], op.inputs, strict=True)}
        return {**found, op.outputs[0]: len(self.tiers)}

    @property
    def grouped(self) -> bool:
        """Whether axes are in two parts, groups and members of a group (`divisions`)."""
        return any(axis_group(own.axis.name)[1] for own in self.axes)

    @property
    def copies(self) -> bool:
        """Whether a network copies: its axes may be in groups, and one member may load for others."""
        return any(own.axis.multicast for own in self.axes)

    def loads_for_others(self, level: str) -> bool:
        """Whether a member of a level may load for others and broadcast: the network copies, the port to the parent does not."""
        network = next(each.network for each in self.chip.levels if each.name == level)
        return network is not None and network.port is not None and not network.multicast

    def narrowed(self, level: str, name: str, members: int) -> Hierarchy:
        """The same with only some consecutive members of an axis; a part of a ring lacks the link that closes it."""
        return replace(
            self,
            axes=tuple(
                replace(own, axis=_part(own.axis, members)) if (own.level, own.axis.name) == (level, name) else own
                for own in self.axes
            ),
        )


def _part(axis: Axis, members: int) -> Axis:
    topology = Topology.LINE if axis.topology is Topology.RING and members < axis.size else axis.topology
    return replace(axis, size=members, topology=topology)


def hierarchy(chip: Chip) -> Hierarchy:
    """The chip's tiers.

    Raises BadInput: not one memory at the outermost level; no memory below it; an engine that reads none of those.
    """
    outer, *below = chip.levels
    held = [level for level in below if level.memories]
    if len(outer.memories) != 1:
        got = f"{len(outer.memories)} at level {outer.name}"
        raise BadInput(
            Fault(f"chip {chip.name}", "one memory at the outermost level", got, "give each memory a level of its own")
        )
    if not held:
        remedy = "add the memory beside the engines (their registers, if there is no other)"
        raise BadInput(Fault(f"chip {chip.name}", "a memory inside the outermost level", "none", remedy))
    reads = {role: _read_at(chip, held, role) for role in OPERANDS}
    tiers = tuple(_tier(level, at, reads) for at, level in enumerate(held))
    inside = [sum(other in held for other in below[:place]) for place in range(len(below))]
    axes = [
        LevelAxis(level.name, min(at, len(held) - 1), axis)
        for level, at in zip(below, inside, strict=True)
        if level.network
        for axis in level.network.axes
    ]
    return Hierarchy(
        chip=chip,
        outer=outer.memories[0].name,
        tiers=tiers,
        axes=tuple(axes),
        vector=_vector(chip, reads["output"][1][0]),
        engine=chip.matrix,
    )


def divisions(chip: Chip) -> tuple[Chip, ...]:
    """The chip, and the same in groups of each size: every axis whose network copies, and which a size divides, is in two parts
    then. The sizes are powers of two, from two members to half an axis.

    >>> from halley import load_chip
    >>> [[axis.name for _, axis in each.axes] for each in divisions(load_chip("tile-mesh-8"))]
    [['x', 'y'], ['x/2', 'x%2', 'y/2', 'y%2'], ['x/4', 'x%4', 'y/4', 'y%4']]
    """
    able = [(level.name, axis) for level in chip.levels if level.network for axis in level.network.axes if axis.multicast]
    longest = max((axis.size for _, axis in able), default=0)
    found = [chip]
    for group in (1 << power for power in range(1, longest.bit_length())):
        sizes = {(level, axis.name): group for level, axis in able if group < axis.size and axis.size % group == 0}
        if sizes:
            found.append(divided(chip, sizes))
    return tuple(found)


def _read_at(chip: Chip, held: Sequence[Level], role: str) -> tuple[int, tuple[str, ...]]:
    """The innermost tier from which the matrix engine takes a role, and the memories there that it may take it from."""
    # without a matrix engine contractions run on the vector engine
    named = chip.matrix.reads.get(role, ()) if chip.matrix else chip.vector.reads if chip.vector else ()
    allowed = named or (held[-1].memories[0].name,)
    for at in reversed(range(len(held))):
        found = tuple(memory.name for memory in held[at].memories if memory.name in allowed)
        if found:
            return at, found
    got = ", ".join(allowed)
    raise BadInput(Fault(f"chip {chip.name}, engine, reads of {role}", "a memory inside the outermost level", got))


def _tier(level: Level, at: int, reads: Mapping[str, tuple[int, tuple[str, ...]]]) -> Tier:
    every = tuple(memory.name for memory in level.memories)
    operands = {role: every if at < own else names if at == own else () for role, (own, names) in reads.items()}
    return Tier(level.name, every, operands)


def _vector(chip: Chip, output: str) -> str:
    """The memory in which vector operations work: that of the matrix engine's results, if they can, for what it made is there."""
    reads = chip.vector.reads if chip.vector else ()
    return output if not reads or output in reads else max(reversed(reads), key=chip.depth)
