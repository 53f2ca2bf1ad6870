"""Static check of a mapping: every rule of docs/model.md (except capacities), decided without executing the tree.

`check` raises all faults at once. The tree is traversed once, in execution order. For every open Hold, the state of each tensor
is tracked: which part the members along each axis have (`TensorState`). Every reader is checked against it. If a collective is
missing, the fault names it, and `findings` returns it as a value.

The rules are those of the interpreter, which checks them on elements; this module checks them on layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halley.errors import BadInput, Fault, IllegalMapping
from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Compute, Hold, Node, children, filling_broadcast, walk
from halley.ir.placement import Replicate, Shard
from halley.ir.workload import Op, Workload
from halley.rewrite.collective import collective
from halley.rewrite.compute import compute
from halley.rewrite.held_regions import held_region, touches
from halley.rewrite.hold_state import HoldState, TensorState, Violation, network_adds, reduced_dims, repeating
from halley.rewrite.layout import AxisKey, comes_again, restrict
from halley.rewrite.masking import mask_faults
from halley.rewrite.names import name_faults
from halley.rewrite.prefetch import prefetch_faults
from halley.rewrite.rounds import round_faults
from halley.rewrite.scopes import Path, scopes
from halley.rewrite.walk_state import Reader, WalkState, dot


def check(tree: Node, workload: Workload, chip: Chip, places: Mapping[Path, str] | None = None) -> None:
    """Raise IllegalMapping with every fault of the tree, if there is one. ``places``: file and line of each node by path, which
    the faults then include."""
    found = [_placed(finding, places or {}) for finding in findings(tree, workload, chip)]
    if found:
        raise IllegalMapping(dict.fromkeys(found))


def _placed(finding: Violation, places: Mapping[Path, str]) -> Fault:
    fault = finding.fault
    return replace(fault, where=f"{places[finding.path]}: {fault.where}") if places else fault


def faults(tree: Node, workload: Workload, chip: Chip) -> list[Fault]:
    """Every broken rule, in execution order. Capacities are not checked."""
    return list(dict.fromkeys(finding.fault for finding in findings(tree, workload, chip)))


def findings(tree: Node, workload: Workload, chip: Chip) -> list[Violation]:
    """The faults, each with the missing collective, if one is missing.

    Later checks need valid names and fitting splits, so they run only if the earlier checks find no fault.
    """
    try:
        chip = with_axis_groups(chip, (node for _, node in walk(tree)))
    except BadInput as error:
        return [Violation(fault) for fault in error.faults]
    names = list(name_faults(tree, workload, chip))
    names = names or [*round_faults(tree, workload), *mask_faults(tree, workload), *prefetch_faults(tree, workload, chip)]
    if names:
        return [Violation(fault, path=path) for path, fault in names]
    misfits: list[tuple[Path, Fault]] = []
    found = scopes(tree, chip, workload.dims, misfits)
    if misfits:
        return [Violation(fault, path=path) for path, fault in misfits]
    state = WalkState(tree, workload, chip, found)
    _node(state, tree, ())
    return state.findings


def _node(state: WalkState, node: Node, path: Path) -> None:
    state.at = path
    match node:
        case Hold():
            _hold(state, node, path)
        case Collective():
            collective(state, node, path)
        case Compute():
            compute(state, state.workload.op(node.op), node.array, path)
        case _:
            for index, child in enumerate(children(node)):
                _node(state, child, (*path, index))


def _hold(state: WalkState, node: Hold, path: Path) -> None:
    depth = state.chip.depth(node.memory)
    levels = {level.name for level in state.chip.levels[: depth + 1]}
    axes = frozenset((level, axis.name) for level, axis in state.chip.axes if level in levels)
    home = HoldState(node, path, state.scopes[path], depth, axes)
    made = {name: op for op, _ in state.ops_in(node, path) for name in op.outputs}
    for name in node.names:
        _position(state, home, name)
        if name in made:
            _fill_again(state, home, name, made[name])
        elif any(True for _ in touches(state.workload, home, name)):
            _fill(state, home, name)
    outer = dict(state.open)
    state.open = {**outer, **{name: (*outer.get(name, ()), home) for name in node.names}}
    _node(state, node.body, (*path, 0))
    state.open, state.at = outer, path
    for name in made:
        if name in node.names:
            _drain(state, home, name)


def _position(state: WalkState, home: HoldState, name: str) -> None:
    parent, where = state.innermost(name), f"hold {home.node.memory}: {name}"
    if parent and parent.depth > home.depth:
        state.fault(where, "a memory as deep as the hold around it or deeper", f"{parent.node.memory} around it")
    ends = parent is None and (name in state.workload.outputs or name not in state.producers)
    if ends and home.depth != 0:
        expected = f"an outermost hold of {name} in a memory of {state.chip.levels[0].name}"
        state.fault(where, expected, f"none around {home.node.memory}", f"hold {name} further out first")


def _fill(state: WalkState, home: HoldState, name: str) -> None:
    """Fill of a Hold from the next outer Hold with what its body reads."""
    parent, where = state.innermost(name), f"hold {home.node.memory}: {name}"
    keeps = held_region(state.workload, home, name, state.scopes)
    filled = {dim: restrict(chain, home.axes) for dim, chain in keeps.chains.items()}
    start = TensorState(home.path, repeating(home.scope), filled=filled)
    if parent is None and name in state.producers:
        remedy = f"hold {name} outside both its writer and its readers"
        state.fault(where, f"a hold of {name} further out that has it", "none", remedy)
    held = state.present(where, parent, name) if parent else None
    if parent and held:
        chains = {dim: restrict(chain, parent.axes) for dim, chain in keeps.chains.items()}
        state.covered(Reader(where, parent, name, home.path, keeps.scope, chains, keeps.active, keeps.idles), held)
        start = replace(held.seen_from(parent.axes, home.path, home.scope), filled=filled)
    home.put(name, _rooted(state, home, name, start))


def _rooted(state: WalkState, home: HoldState, name: str, filled: TensorState) -> TensorState:
    """The state after a fill: if the body broadcasts the tensor before anything reads it, only the first member has it."""
    found = filling_broadcast(home.node, name, {op.name for op in state.workload.ops if name in (*op.inputs, op.scaled_by)})
    key = (found.level, found.axis) if found else ("", "")
    names = [level.name for level in state.chip.levels]
    if found is None or names.index(found.level) != home.depth or home.scope.size(key) == 1:
        return filled
    first, _ = home.scope.share(key)
    return replace(filled, single=filled.single | {key}, active={**filled.active, key: (first, first + 1)})


def _fill_again(state: WalkState, home: HoldState, name: str, op: Op) -> None:
    """Refill of an accumulator inside a loop over a reduced dim, with the partial sums that its last visit drained."""
    reduced = reduced_dims(state.workload, op)
    loops = [loop for loop in home.scope.loops if loop.repeats and loop.dim in reduced]
    parent, where = state.innermost(name), f"hold {home.node.memory}: {name}"
    if loops and parent is None:
        remedy = f"hold {name} outside that loop"
        state.fault(where, f"a hold of {name} around the loop over {loops[0].dim}", "none", remedy)
    if parent is None:
        return
    between = [loop.dim for loop in loops if loop not in parent.scope.loops]
    for key, split in home.scope.split.items():
        # only the first member is refilled, so partial sums of the others must have been combined in the parent
        if key in parent.axes and split.dim in reduced and _others_again(state, home, parent, key, between):
            expected = f"no loop over {between[0]} between it and hold {parent.node.memory}, which has a part per {dot(key)}"
            state.fault(where, expected, "one", f"move the loop inside, or do not hold {name} here")


def _others_again(state: WalkState, home: HoldState, parent: HoldState, key: AxisKey, between: list[str]) -> bool:
    """Whether a member other than the first, on an axis that splits a reduced dim, visits a Hold again in the loops between it
    and its parent."""
    split = home.scope.split[key]
    if not between or split.most == 1:
        return False
    if any(dim != split.dim for dim in between):
        return True
    chain, outside = home.scope.chain(split.dim), len(parent.scope.chain(split.dim))
    return comes_again(chain, outside, key, state.workload.dims[split.dim], home.scope.size(key))


def _drain(state: WalkState, home: HoldState, name: str) -> None:
    """Drain of a Hold into the next outer Hold, or as an output of the workload."""
    parent = state.innermost(name)
    if parent is None and name not in state.workload.outputs:
        return
    where, op = f"drain of {name} from {home.node.memory}", state.producers[name]
    remedy = f"take {name} out of the group, or do not hold it further out"
    if name in home.overwritten:
        state.fault(where, f"{name} to be there still", f"{home.overwritten[name]}, which overwrote it in place", remedy)
    elif name in home.partly_replaced:
        state.fault(where, f"{name} in the place of all that it was made from", f"parts of {home.partly_replaced[name]}", remedy)
    if name not in home.held:
        return
    held, reader = home.held[name], state.reader(where, home, name, home.path, at_end=True)
    outer = parent.axes if parent else frozenset()
    for key in sorted(home.axes - outer):
        if key in held.partial and not network_adds(home.scope, key, op):
            state.wrong_placement(reader, held, key, Replicate())
    if parent:
        _parts_again(state, home, parent, name, op)
        state.put(parent, name, held.seen_from(parent.axes, home.path, home.scope))
    else:
        _delivered(state, home, name, op)


def _parts_again(state: WalkState, home: HoldState, parent: HoldState, name: str, op: Op) -> None:
    """Parts of a result that a collective leaves on members which a further visit does not refill, for it refills the first only:
    the part is lost, or the first drains what it had before."""
    reduced = reduced_dims(state.workload, op)
    enclosing = [loop.dim for loop in home.scope.loops if loop.repeats and loop.dim in reduced]
    for key, split in home.scope.split.items():
        left = home.held[name].placement(key)
        if not enclosing or key not in parent.axes or split.dim not in reduced or not isinstance(left, Shard):
            continue
        leaves = ((path, node) for path, node in walk(home.node) if isinstance(node, Collective) and name in node.tensors)
        if any(max(state.scopes[(*home.path, *path)].extents[left.dim]) > 1 for path, node in leaves):
            where = f"drain of {name} from {home.node.memory}"
            expected = f"no loop over {enclosing[0]} around it, as hold {parent.node.memory} has a part per {dot(key)}"
            got = f"{left} over {dot(key)} after each iteration"
            state.fault(where, expected, got, f"all-reduce {name}, or move the loop inside")


def _delivered(state: WalkState, home: HoldState, name: str, op: Op) -> None:
    for loop in home.scope.loops:
        if loop.repeats and loop.dim in reduced_dims(state.workload, op):
            remedy = "complete the reduction before the outermost hold ends"
            state.fault(f"output {name}", f"every element reduced over all {loop.dim}", "a part of it", remedy)
