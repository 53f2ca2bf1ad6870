"""A Timeloop case as a Halley chip, workload and tree.

Timeloop's loop nest says in which order tiles come by, and analysis finds how long each stays. Halley says where each tensor
is held. `from_timeloop` makes the one from the other:

- A level's temporal loops are `Temporal`, in Timeloop's order.
- A tensor stays in a level while the loops that turn above it do not index the tensor. Its `Hold` therefore stands above the
  run of such loops next to the level, which may reach through the blocks of several outer levels.
- A `Hold` in the memory of a sibling stands inside the `Spatial` of its siblings. Where the Hold moved up, the Spatial moves
  up with it, past temporal loops. Past a loop over another dim the order is free. Past a loop over the same dim, siblings
  get blocks of the dim in place of every n-th tile: which indices a tile has changes, how many and how often does not, as
  the tiles of a tensor are boxes without overlap. With a sliding window this does not hold, and the mapping is refused.
- A direction of the mesh that no loop uses has `spread dim by extent`: all the work is on its first member, as in Timeloop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from validation.timeloop.files import Architecture, Block, Problem

from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Axis, Chip, Level
from halley.ir.mapping import Compute, Hold, Node, Spatial, Temporal
from halley.ir.workload import Op, OpKind, Tensor, Workload

HERE = Path(__file__).parent
CHIPS = {"RegFile": "eyeriss-like.yaml", "WeightReg": "tpu-like.yaml"}
"""Chip file by the innermost storage level of the architecture."""

DTYPE, WORD = "bf16", 2
"""Element type of every tensor, and its bytes."""

OP = "gemm"


def workload(problem: Problem) -> Workload:
    """The one contraction of the problem; dims in lower case. A coordinate that is a sum becomes a dim of its tensor, named
    after the dims that add up."""
    dims = {dim.lower(): extent for dim, extent in problem.extents.items()}
    over = tuple(dims)
    tensors = {name: Tensor(name, _lower(index), DTYPE) for name, index in problem.tensors.items() if name not in problem.windows}
    indices: dict[str, AffineIndex] = {}
    for name, coordinates in problem.windows.items():
        places = []
        for coordinate in coordinates:
            terms = tuple((dim.lower(), coefficient) for dim, coefficient in coordinate)
            place = "_".join(dim for dim, _ in terms)
            if len(terms) > 1 or terms[0][1] != 1:
                place = place if len(terms) > 1 else f"{place}_{terms[0][1]}"
                indices[place] = AffineIndex(place, terms)
                dims[place] = indices[place].span(dims)
            places.append(place)
        tensors[name] = Tensor(name, tuple(places), DTYPE)
    named = {name: tensors[name] for name in problem.tensors}
    inputs = tuple(name for name in named if name != problem.output)
    op = Op(OP, OpKind.CONTRACT, inputs, (problem.output,), over, indices=tuple(indices.values()))
    return Workload(OP, dims, named, (op,), (problem.output,))


def machine(architecture: Architecture, blocks: tuple[Block, ...]) -> Chip:
    """The architecture as a chip, with its own bandwidths. Halley splits an axis once; a mesh direction on which the mapping
    lays several loops is cut into an axis for each.

    Raises BadInput: no chip file for the architecture, or one with other words, siblings or capacities.
    """
    innermost = architecture.storages[-1].name
    if innermost not in CHIPS:
        raise BadInput(Fault("arch", "an architecture with a chip file", f"{innermost} innermost"))
    chip = load_chip(HERE / CHIPS[innermost])
    _check_same(architecture, chip)
    levels = []
    for index, level in enumerate(chip.levels):
        storage = architecture.storages[index]
        (memory,) = level.memories
        read, write = (bandwidth * WORD * clock(chip) for bandwidth in storage.bandwidth)
        memory = replace(
            memory,
            read_bandwidth=memory.read_bandwidth if math.isinf(read) else read,
            write_bandwidth=memory.write_bandwidth if math.isinf(write) else write,
        )
        network = level.network and replace(level.network, axes=_cut(level, index, blocks))
        levels.append(replace(level, memories=(memory,), network=network))
    return replace(chip, levels=tuple(levels))


def _check_same(architecture: Architecture, chip: Chip) -> None:
    found = [
        (storage.name, storage.level, storage.word_bits, architecture.fanout(index), storage.capacity * WORD)
        for index, storage in enumerate(architecture.storages)
    ]
    sizes = [{axis.name: axis.size for axis in level.network.axes} if level.network else {} for level in chip.levels]
    known = [
        (memory.name, level.name, 8 * WORD, (size.get("x", 1), size.get("y", 1)), memory.capacity if storage.capacity else 0)
        for level, size, storage in zip(chip.levels, sizes, architecture.storages, strict=False)
        for memory in level.memories
    ]
    if found != known:
        raise BadInput(Fault("arch", f"the levels of {chip.name}: {known}", str(found)))


def clock(chip: Chip) -> float:
    """Cycles per second of the MACs."""
    if chip.matrix is None:
        raise BadInput(Fault(f"chip {chip.name}", "a matrix engine", "none"))
    return chip.matrix.clock


def _cut(level: Level, index: int, blocks: tuple[Block, ...]) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for axis in level.network.axes if level.network else ():
        loops = _along(blocks, index, axis.name)
        if len(loops) > 1:
            axes += (replace(axis, name=f"{axis.name}_{dim.lower()}", size=count) for dim, count in loops)
        else:
            axes.append(axis)
    return tuple(axes)


def _along(blocks: tuple[Block, ...], index: int, direction: str) -> tuple[tuple[str, int], ...]:
    """Spatial loops over the siblings of storage level ``index`` along a mesh direction."""
    if index == 0:
        return ()
    return {"x": blocks[index - 1].along_x, "y": blocks[index - 1].along_y}[direction]


@dataclass(frozen=True, slots=True)
class _For:
    dim: str
    count: int


@dataclass(frozen=True, slots=True)
class _Spread:
    """``count`` parts of the dim over the axis; None: the whole extent on member 0."""

    dim: str
    count: int
    level: str
    axis: str


@dataclass(frozen=True, slots=True)
class _Keep:
    memory: str
    tensors: tuple[str, ...]


_Step: TypeAlias = _For | _Spread | _Keep


def from_timeloop(blocks: tuple[Block, ...], architecture: Architecture, problem: Problem) -> Node:
    """The mapping as a tree on `machine(architecture, blocks)`; see the top of this file.

    ``blocks`` is the mapping, one block per storage level, as `files.read_mapping` returns it.
    """
    tree: Node = Compute(OP)
    for step, extent in reversed(list(_with_extents(_steps(blocks, architecture, problem), problem))):
        match step:
            case _For(dim, count):
                tree = Temporal(dim.lower(), extent // count, tree)
            case _Spread(dim, count, level, axis):
                tree = Spatial(dim.lower(), extent // count, level, axis, tree)
            case _Keep(memory, tensors):
                tree = Hold(memory, tuple((name,) for name in tensors), tree)
    return tree


def _with_extents(steps: Iterator[_Step], problem: Problem) -> Iterator[tuple[_Step, int]]:
    """Each step with the extent of its dim that is left where it stands."""
    left = dict(problem.extents)
    for step in steps:
        if isinstance(step, _Keep):
            yield step, 0
        else:
            yield step, left[step.dim]
            left[step.dim] //= step.count


def _steps(blocks: tuple[Block, ...], architecture: Architecture, problem: Problem) -> Iterator[_Step]:
    """The tree from the outside in."""
    loops = [loop for block in blocks for loop in block.temporal]
    held = [_held(blocks, index, loops, problem) for index in range(len(blocks))]
    spread_at = _spread_positions(blocks, held)
    _check_windows(blocks, spread_at, held, loops, problem)
    for position in range(len(loops) + 1):
        for index, storage in enumerate(architecture.storages):
            if spread_at[index] == position:
                yield from _spreads(blocks, architecture, problem, index)
            kept = tuple(name for name in problem.tensors if held[index].get(name) == position)
            if kept:
                yield _Keep(storage.name, kept)
        if position < len(loops):
            yield _For(*loops[position])


def _held(blocks: tuple[Block, ...], index: int, loops: list[tuple[str, int]], problem: Problem) -> dict[str, int]:
    """By tensor that the storage level keeps: how many temporal loops stand above its Hold."""
    found: dict[str, int] = {}
    for name in blocks[index].keeps:
        position = _above(blocks, index)
        while position > 0 and loops[position - 1][0] not in problem.tensors[name]:
            position -= 1
        found[name] = position if index else 0
    return found


def _above(blocks: tuple[Block, ...], index: int) -> int:
    """Temporal loops of the storage levels outside this one."""
    return sum(len(block.temporal) for block in blocks[:index])


def _spread_positions(blocks: tuple[Block, ...], held: list[dict[str, int]]) -> list[int]:
    """By storage level: how many temporal loops stand above the Spatial of its siblings. It stands outside every Hold of that
    level and of the levels further in."""
    positions: list[int] = []
    innermost = sum(len(block.temporal) for block in blocks)
    for index in range(len(blocks) - 1, -1, -1):
        innermost = min(innermost, _above(blocks, index), *held[index].values())
        positions.insert(0, innermost)
    return positions


def _check_windows(
    blocks: tuple[Block, ...],
    spread_at: list[int],
    held: list[dict[str, int]],
    loops: list[tuple[str, int]],
    problem: Problem,
) -> None:
    """No Spatial over a dim of a window moves past a loop over the same dim, nor past where an outer level holds the tensor: its
    siblings' parts would be held one by one there, and what they have in common several times."""
    faults = []
    for tensor, coordinates in problem.windows.items():
        windows = {dim for terms in coordinates if len(terms) > 1 for dim, _ in terms}
        for index in range(1, len(blocks)):
            passed = {dim for dim, _ in loops[spread_at[index] : _above(blocks, index)]}
            is_inside_out = any(held[outer].get(tensor, 0) > spread_at[index] for outer in range(index))
            for dim, _ in blocks[index - 1].spatial:
                if dim in windows and (dim in passed or is_inside_out):
                    what = (
                        f"siblings that split {dim}, whose windows overlap, inside the loops over {dim} and the tiles around them"
                    )
                    faults.append(Fault(f"map, {tensor}", what, "tiles of the result that stay for longer"))
    if faults:
        raise BadInput(faults)


def _spreads(blocks: tuple[Block, ...], architecture: Architecture, problem: Problem, index: int) -> Iterator[_Spread]:
    level = architecture.storages[index].level
    for direction, size in zip("xy", architecture.fanout(index), strict=True):
        loops = _along(blocks, index, direction)
        if len(loops) > 1:
            yield from (_Spread(dim, count, level, f"{direction}_{dim.lower()}") for dim, count in loops)
        elif loops:
            yield _Spread(*loops[0], level, direction)
        elif size > 1:
            yield _Spread(problem.tensors[problem.output][0], 1, level, direction)


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


__all__ = ["CHIPS", "DTYPE", "HERE", "OP", "WORD", "clock", "from_timeloop", "machine", "workload"]
