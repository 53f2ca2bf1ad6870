"""One op of a plan as one mapping, from the outermost axis of the system to the array of the chip.

The axes of the system become axes of the chip's outermost level, over which the op is split; inside is the mapping of its kernel
on one chip. What this tree says is executable: one microbatch of all data-parallel ranks, on the chips of one stage. Layers,
microbatches and collectives of other tensors are no nodes of the mapping language; they are listed beside the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.ir.hardware import CHIP_TOPOLOGIES, Axis, Chip, Level, Network, Topology
from halley.ir.mapping import Collective, CollectiveKind, Hold, Node, Sequence, Spatial
from halley.ir.placement import Partial, Shard
from halley.ir.text import parse
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.kernels.groups import GroupShape
from halley.kernels.searched import AnyKernel, AttentionShape, KernelCost, KernelShape, shape_of
from halley.pipeline.data_parallel import Sharded
from halley.sharding.axes import Assignment, Role, SubAxis, parts_of
from halley.sharding.communication import Communication, Interconnect
from halley.sharding.layouts import CollectiveStep
from halley.sharding.solution import Redistribution, Sharding
from halley.training.cost import Batch, PlanInputs, boundary_bytes
from halley.training.groups import fused_groups, product_groups, sharded_kernels
from halley.training.kernels import ScanCore, TrainingGraph
from halley.training.loads import DATA_COLLECTIVES, TRANSFER
from halley.training.op_costs import op_tasks
from halley.training.part_costs import PartCosts, part_counts, training_graphs
from halley.training.plan import TrainingResult

SYSTEM = "system"
"""Name of the level whose axes are those of the system."""
ALGORITHM = "direct"
"""Of collectives in a tree: it serves any number of ranks. Their times in a plan are those of the fastest algorithm."""


@dataclass(frozen=True, slots=True)
class OuterSplit:
    """What a part of an axis of the system does with an op. ``axis``: its name in the tree. ``split``: the dim of the op that it
    splits, "" if its ranks do the same work, and its ``extent`` on a rank; ``dim``, ``tile``: the same in the mapping of the
    kernel, "" where the mapping has no such dim."""

    part: SubAxis
    axis: str
    split: str
    extent: int = 0
    dim: str = ""
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Movement:
    """A collective, or a transfer between stages, that goes with an op: its ``role``, when it happens in words, ``bytes`` by the
    convention of its kind, ``time`` [s] of one."""

    role: Role
    kind: str
    tensor: str
    axes: tuple[str, ...]
    when: str
    bytes: float
    time: float


@dataclass(frozen=True, slots=True)
class OpMapping:
    """An op of a plan. ``ops``: those that its kernel computes. ``splits``: by parts of axes, the outermost first. ``time`` [s]:
    of the kernel on one chip. ``cost``: of the searched kernel; None for a kernel that takes its time from a formula. ``tree``:
    None without a searched kernel, else the mapping of ``workload`` on ``chip``: of the whole system if ``whole``, otherwise of
    one chip, for the ``reason`` that is given."""

    part: str
    op: str
    ops: tuple[str, ...]
    passing: str
    layers: int
    kernel: AnyKernel
    time: float
    splits: tuple[OuterSplit, ...]
    movements: tuple[Movement, ...]
    cost: KernelCost | None = None
    workload: Workload | None = None
    chip: Chip | None = None
    tree: Node | None = None
    whole: bool = False
    reason: str = ""


def ops_of_kernels(result: TrainingResult) -> dict[str, dict[str, AnyKernel]]:
    """By part of the model, the ops that have kernels, and the first kernel of each at the extents of one chip."""
    found: dict[str, dict[str, AnyKernel]] = {}
    for graph, part in zip(_graphs(result), result.cost.parts.parts, strict=True):
        own = found.setdefault(graph.workload.name, {})
        for name, kernel, _ in sharded_kernels(graph, part.sharding, result.problem.recipe.gradient):
            own.setdefault(name, kernel)
    return found


def ops_of_shapes(result: TrainingResult) -> dict[KernelShape, list[str]]:
    """The ops that compute each kernel of a plan, of those that can be searched."""
    found: dict[KernelShape, dict[str, None]] = {}
    for own, part in zip(ops_of_kernels(result).values(), result.cost.parts.parts, strict=True):
        groups = fused_groups(part.sharding)
        for name, kernel in own.items():
            if (shape := shape_of(kernel)) is not None:
                found.setdefault(shape, {}).update(dict.fromkeys(groups[name][0].ops if name in groups else (name,)))
    return {shape: list(names) for shape, names in found.items()}


def op_mapping(result: TrainingResult, name: str) -> OpMapping:
    """The op of a plan with this name, or with ``PART/OP`` where several parts of the model have it. An op that the kernel of
    another one computes stands for that one.

    Raises BadInput: there is none, or there are several.
    """
    place, op = _found(result, name)
    graph, part = _graphs(result)[place], result.cost.parts.parts[place]
    group = next((group for group, _ in fused_groups(part.sharding).values() if op in group.ops), None)
    op = group.first[0] if group else op
    own = group.ops if group else _together(graph, op)
    known = ops_of_kernels(result)[graph.workload.name]
    if op not in known:
        raise BadInput(Fault("--op", "an op with a kernel", repr(name), "another kernel makes its result"))
    kernel = known[op]
    cost, shape = None, shape_of(kernel)
    if result.problem.searched is not None and shape is not None:
        cost = result.problem.searched.known.get(shape)
    item = next(item for item in part.sharding.ops if item.op == op)
    found = OpMapping(
        graph.workload.name,
        op,
        own,
        graph.found.passes[op],
        part_counts(result.problem.shape, result.plan.microbatch, result.problem.sequence)[place],
        kernel,
        item.time if cost is None else cost.time,
        *_outer(result, place, op, part, own),
    )
    if cost is None or shape is None:
        return found
    tree = parse(cost.mapping)
    alone = replace(found, cost=cost, workload=_mapped(shape, tree), chip=result.problem.chip, tree=tree)
    return _whole(result, alone, shape, _stages(result, place, op, group.name if group else ""))


def _mapped(shape: KernelShape, tree: Node) -> Workload:
    # loaded when it is needed: plans are read and shown without the search of mappings
    found: Workload = import_module("halley.kernels.search").mapped_workload(shape, tree)
    return found


def _graphs(result: TrainingResult) -> tuple[TrainingGraph, ...]:
    plan = result.plan
    return training_graphs(result.problem.shape, plan.microbatch, result.problem.sequence, plan.recompute, plan.fused)


# --- names --------------------------------------------------------------------------------------------------------------


def _found(result: TrainingResult, name: str) -> tuple[int, str]:
    """Number of the part, and the op whose kernel computes the named op."""
    graphs = _graphs(result)
    works = [graph.workload for graph in graphs]
    known = {f"{work.name}/{op.name}": (place, op.name) for place, work in enumerate(works) for op in work.ops}
    places = [where for full, where in known.items() if name in (full, where[1])]
    if not places:
        names = list(dict.fromkeys(op for _, op in known.values()))
        remedy = did_you_mean(name.rpartition("/")[2], names) or "--details lists all"
        where = f"--op, ops of {result.problem.shape.name}"
        raise BadInput(Fault(where, "the name of an op, or PART/OP", repr(name), remedy))
    if len(places) > 1:
        options = " or ".join(repr(full) for full, where in known.items() if where in places)
        raise BadInput(Fault("--op", "an op of one part of the model", f"{name!r}, of {len(places)} parts", f"write {options}"))
    place, op = places[0]
    return place, _leader(graphs[place], op)


def _leader(graph: TrainingGraph, name: str) -> str:
    """The op that has the kernel in which an op is computed: itself, the first of merged products, or that of a fused core."""
    for other, share in graph.contributions.items():
        if name in share.merged:
            return other
    mine = graph.contributions[name]
    if not mine.part or mine.core is not None:
        return name
    behind, order = name not in graph.found.forward, [op.name for op in graph.workload.ops]
    together = {other for group in graph.same_split if name in group for other in group}
    cores = [other for other, share in graph.contributions.items() if share.core is not None and share.backward is behind]
    return min(together.intersection(cores), key=order.index, default=name)


def _together(graph: TrainingGraph, name: str) -> tuple[str, ...]:
    share = graph.contributions[name]
    if isinstance(share.core, ScanCore):
        return share.core.behind if share.backward else share.core.ops
    if share.core is not None and not share.backward:
        return share.core.ops
    return share.merged or (name,)


# --- what the axes of the system do -------------------------------------------------------------------------------------


def _outer(
    result: TrainingResult, place: int, op: str, part: PartCosts, own: tuple[str, ...]
) -> tuple[tuple[OuterSplit, ...], tuple[Movement, ...]]:
    """``own``: the ops of the kernel."""
    graph = _graphs(result)[place]
    mesh, names = part.sharding.problem.mesh, axis_names(result.plan.assignment)
    ways = dict(zip((axis.name for axis in mesh), part.sharding.strategy(op), strict=True))
    batch, now = next(iter(_scaled(result, place, op)), ""), _whole_extents(result, place, op)
    splits = []
    for item in result.plan.assignment:
        split = {Role.MODEL: ways[item.axis].split if item.axis in ways else "", Role.DATA: batch}.get(item.role, "")
        if split in now:
            now[split] = -(-now[split] // item.size)
        splits.append(OuterSplit(item, names[item], split, now.get(split, 0)))
    communication = _communication(result)
    moves = (
        *_of_ops(part.sharding, graph, own),
        *_of_batch(result, communication, graph, own, part),
        *_of_stages(result, communication),
    )
    return tuple(splits), moves


def axis_names(assignment: Assignment) -> dict[SubAxis, str]:
    """Names of the parts of axes in a tree: that of the axis, with the role where an axis has several parts."""
    axes = [part.axis for part in assignment]
    return {part: part.axis if axes.count(part.axis) == 1 else f"{part.axis}-{part.role}" for part in assignment}


def _communication(result: TrainingResult) -> Communication:
    problem = result.problem
    named = bool(problem.fixed.splits) or problem.fixed.boundary is not None
    return Communication(Interconnect(problem.system, problem.libraries, named), result.plan.assignment)


def _of_ops(sharding: Sharding, graph: TrainingGraph, own: tuple[str, ...]) -> Iterator[Movement]:
    """Redistributions of the kernel's inputs and results, and collectives inside it."""
    work = graph.workload
    made = {name for each in own for name in work.op(each).outputs}
    for move in sharding.redistributions:
        if move.reader in own:
            when = "inside" if move.inside else "before"
        elif move.tensor in made:
            when = f"after, before {move.reader}" if move.reader else "after"
        else:
            continue
        for step in move.steps:
            if step.kind is not None:
                yield Movement(Role.MODEL, str(step.kind), move.tensor, step.axes, _runs(when, move), step.bytes, step.time)
    if (later := _completed(sharding, work, own[0])) and later[0].tensor not in made:
        move, steps = later
        for step in steps:
            when = _runs("after it is added up with others", move)
            yield Movement(Role.MODEL, str(step.kind), move.tensor, step.axes, when, step.bytes, step.time)


def _runs(when: str, move: Redistribution) -> str:
    return f"{when}, once in {move.runs} microbatches" if move.runs > 1 else when


def _completed(sharding: Sharding, work: Workload, op: str) -> tuple[Redistribution, tuple[CollectiveStep, ...]] | None:
    """The redistribution that completes the partial sums of an op, perhaps after they were added to those of other ops."""
    names, seen = [work.op(op).outputs[0]], set[str]()
    while names:
        name = names.pop()
        for move in sharding.redistributions:
            steps = tuple(step for step in move.steps if step.kind is not None and any(_partial(step)))
            if move.tensor == name and steps:
                return move, steps
        seen.add(name)
        adders = [each for each in work.consumers(name) if each.kind is OpKind.MAP and each.function == "add"]
        names += [made for each in adders for made in each.outputs if made not in seen]
    return None


def _partial(step: CollectiveStep) -> Iterator[bool]:
    return (isinstance(place, Partial) for place in step.before)


def _of_batch(
    result: TrainingResult, communication: Communication, graph: TrainingGraph, ops: tuple[str, ...], part: PartCosts
) -> Iterator[Movement]:
    """Collectives of the part's parameters and gradients, if the op reads the ones or makes the others."""
    plan, recipe = result.plan, result.problem.recipe
    if plan.data == 1:
        return
    axes = tuple(item.axis for item in parts_of(plan.assignment, Role.DATA))
    own = [graph.workload.op(name) for name in ops]
    reads = any(name in graph.weights for each in own for name in each.inputs)
    makes = any(graph.contributions[each.name].summed for each in own)
    for kind, each_time, _ in DATA_COLLECTIVES[plan.sharded]:
        gathers = kind is CollectiveKind.ALL_GATHER
        if not (reads if gathers else makes):
            continue
        size = (recipe.weight if gathers else recipe.gradient) * part.parameters
        when = "in each microbatch" if each_time else "in each iteration"
        tensor = f"all {'parameters' if gathers else 'gradients'} of the part"
        yield Movement(Role.DATA, str(kind), tensor, axes, when, size, float(communication.data(kind, size)))


def _of_stages(result: TrainingResult, communication: Communication) -> Iterator[Movement]:
    """Activations between stages."""
    plan = result.plan
    batch = Batch(plan.pipeline, plan.sharded, plan.offload)
    size = boundary_bytes(result.problem, batch, PlanInputs(communication, result.cost.parts))
    for item in result.cost.traffic:
        if item.role is Role.PIPELINE and item.kind == TRANSFER and item.bytes == size:
            time = float(communication.fastest_transfer(item.bytes))
            yield Movement(Role.PIPELINE, item.kind, "activations", item.axes, "between stages", item.bytes, time)


# --- the tree -----------------------------------------------------------------------------------------------------------


def _scaled(result: TrainingResult, place: int, op: str) -> dict[str, int]:
    """The dims of an op that have more elements over all data-parallel ranks than on one, with these numbers."""
    plan = result.plan
    own = _graphs(result)[place].workload
    every = _batch_graph(result, place).workload
    dims = (*own.op(op).dims, *own.op(op).sequence)
    return {dim: every.dims[dim] for dim in dims if every.dims[dim] == own.dims[dim] * plan.data != own.dims[dim]}


def _whole_extents(result: TrainingResult, place: int, name: str) -> dict[str, int]:
    """Extents of the dims of an op over all data-parallel ranks."""
    work = _batch_graph(result, place).workload
    op = work.op(name)
    return {dim: work.dims[dim] for dim in (*op.dims, *op.sequence)}


def _batch_graph(result: TrainingResult, place: int) -> TrainingGraph:
    """The graph of a part for a microbatch of all data-parallel ranks together."""
    problem, plan = result.problem, result.plan
    return training_graphs(problem.shape, plan.microbatch * plan.data, problem.sequence, plan.recompute, plan.fused)[place]


def _stages(result: TrainingResult, place: int, name: str, fused: str) -> list[tuple[OuterSplit, AnyKernel]]:
    """The kernel of an op over all chips of a stage, and then as each part of an axis leaves it; ``fused``: the name of the group
    that runs as one with it, if there is one."""
    graph = _batch_graph(result, place)
    op, part = graph.workload.op(name), result.cost.parts.parts[place]
    splits, _ = _outer(result, place, name, part, _together(graph, name))
    now = _whole_extents(result, place, name)
    group = next((each for each in product_groups(graph) if each.name == fused), None)

    def kernel() -> AnyKernel:
        extents: Mapping[str, Number] = dict(now)
        if group is not None:
            return group.kernel(extents)
        return op_tasks(graph, op, extents, result.problem.recipe.gradient)[0].kernel

    found = [(OuterSplit(SubAxis("", Role.PIPELINE, 1, 1), "", ""), kernel())]
    for split in splits:
        if split.split in now:
            now[split.split] = split.extent
        found.append((split, kernel()))
    return found


def _whole(result: TrainingResult, alone: OpMapping, shape: KernelShape, stages: list[tuple[OuterSplit, AnyKernel]]) -> OpMapping:
    """The mapping of a kernel over all chips of a stage; ``alone``, with the reason, where the mapping language has none."""
    shapes = [each for _, kernel in stages if (each := shape_of(kernel)) is not None]
    if len(shapes) < len(stages) or shapes[-1] != shape or alone.tree is None:
        return replace(alone, reason="ranks have unequal shares")
    sizes, splits = [_extents(each) for each in shapes], []
    for (split, _), before, after in zip(stages[1:], sizes, sizes[1:], strict=False):
        changed = [dim for dim in after if after[dim] != before[dim]]
        if len(changed) > 1 or (split.split and not changed):
            return replace(alone, reason=f"the kernel has no dim for {split.split}")
        splits.append(replace(split, dim=changed[0], tile=after[changed[0]]) if changed else split)
    if not _same_mask(shapes[0], shape):
        return replace(alone, splits=tuple(splits), reason="chips that share queries have masks of their own")
    chip, work = system_chip(result, alone.splits), _mapped(shapes[0], alone.tree)
    level, tree, last = chip.levels[0].name, alone.tree, _last_product(shape)
    sums = _REDUCED if last is None else work.reduced(last)
    reduced = {split.axis for split in splits if split.dim in sums}
    if any(split.dim in _REDUCED for split in splits) and isinstance(shape, GroupShape):
        return replace(alone, splits=tuple(splits), reason="the ops behind the product read its partial sums")
    if reduced:
        columns = _COLUMNS if last is None else roles(work, last).columns[-1]
        output = work.outputs[0] if last is None else last.outputs[0]
        made = alone.op if last is None else alone.ops[-1]
        ends = list(_completions(result, alone, made, [split for split in splits if split.dim in sums], level, output, columns))
        if {end.axis for end in ends} != reduced:
            return replace(alone, splits=tuple(splits), reason="no collective adds up its partial sums")
        tree = _completed_tree(tree, output, ends)
    for split in reversed(splits):
        if split.dim:
            tree = Spatial(split.dim, split.tile, level, split.axis, tree)
    # loaded when it is needed: plans are read and shown without the rules of mappings
    if faults := import_module("halley.rewrite.legality").faults(tree, work, chip):
        return replace(
            alone, splits=tuple(splits), reason=f"{faults[0].where}: expected {faults[0].expected}; got {faults[0].got}"
        )
    return replace(alone, splits=tuple(splits), workload=work, chip=chip, tree=tree, whole=True)


def _extents(shape: KernelShape) -> dict[str, int]:
    return {"b": 1, **shape.workload.dims}


def _same_mask(whole: KernelShape, shape: KernelShape) -> bool:
    """Whether rows see the same keys on one chip as in all: under a mask, chips with a part of the positions have another one."""
    if not isinstance(whole, AttentionShape) or not isinstance(shape, AttentionShape):
        return True
    both = (whole.causal, whole.queries, whole.keys), (shape.causal, shape.queries, shape.keys)
    return not (whole.causal or shape.causal) or both[0] == both[1]


def system_chip(result: TrainingResult, splits: tuple[OuterSplit, ...]) -> Chip:
    """The chip with the parts of the system's axes as axes of its outermost level. Axes with switches are full: each of their
    ranks reaches every other in one step."""
    chip = result.problem.chip
    first, *inner = chip.levels
    axes = tuple(_tree_axis(result.problem.system.axis(split.part.axis), split) for split in splits)
    own = first.network
    if own is None and SYSTEM not in (level.name for level in chip.levels):
        level = Level(SYSTEM, first.memories, Network(axes))
    else:
        level = replace(first, network=replace(own, axes=(*axes, *own.axes)) if own else Network(axes))
    return replace(chip, name=f"{chip.name} of {result.problem.system.name}", levels=(level, *inner))


def _tree_axis(axis: Axis, split: OuterSplit) -> Axis:
    topology = axis.topology if axis.topology in CHIP_TOPOLOGIES and axis.size == split.part.size else Topology.FULL
    return Axis(split.axis, split.part.size, topology, axis.link)


_REDUCED, _COLUMNS = ("k",), "n"
"""Dims of products and of groups: reduced by the first products, and their columns."""


def _last_product(shape: KernelShape) -> Op | None:
    """The product whose sums a group ends with, of an MLP."""
    if not isinstance(shape, GroupShape) or shape.group.contractions[-1] is not shape.group.ops[-1]:
        return None
    return shape.group.ops[-1]


def _completions(
    result: TrainingResult, alone: OpMapping, op: str, splits: list[OuterSplit], level: str, output: str, columns: str
) -> Iterator[Collective]:
    """The collectives that add up the partial sums of a product, the ``op``, of which ``splits`` divide the sum: over the axes of
    the model as the sharding does, over data-parallel ranks as gradients are. ``output``, ``columns``: in the mapping."""
    place = [graph.workload.name for graph in _graphs(result)].index(alone.part)
    sharding, work = result.cost.parts.parts[place].sharding, _graphs(result)[place].workload
    reduced = {(split.part.role, split.part.axis): split.axis for split in splits}
    later = _completed(sharding, work, op)
    for step in later[1] if later else ():
        for axis in step.axes:
            if name := reduced.get((Role.MODEL, axis)):
                number = [each.name for each in sharding.problem.mesh].index(axis)
                after = step.after[number]
                to = _dim_of(work.op(op), work, after.dim, columns) if isinstance(after, Shard) else ""
                kind = CollectiveKind.REDUCE_SCATTER if to else CollectiveKind.ALL_REDUCE
                yield Collective(kind, (output,), level, name, ALGORITHM, to)
    for (role, _), name in reduced.items():
        if role is Role.DATA:
            sharded = result.plan.sharded is not Sharded.NOTHING
            kind = CollectiveKind.REDUCE_SCATTER if sharded else CollectiveKind.ALL_REDUCE
            yield Collective(kind, (output,), level, name, ALGORITHM, "m" if sharded else "")


def _dim_of(op: Op, work: Workload, dim: str, columns: str) -> str:
    """The dim of a product in which a dim of the op's result is: rows or columns, as the op's first or second input has it."""
    return "m" if dim in work.tensors[op.inputs[0]].dims else columns


def _completed_tree(tree: Node, output: str, ends: list[Collective]) -> Node:
    """Collectives at the end of the outermost Hold of the output."""
    assert isinstance(tree, Hold)
    if output in tree.names:
        return replace(tree, body=Sequence((tree.body, *ends)))
    return replace(tree, body=_completed_tree(tree.body, output, ends))
