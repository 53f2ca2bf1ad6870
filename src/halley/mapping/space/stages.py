"""Stages: tree shapes of one contraction or one run of vector operations, with open tile sizes.

A `Skeleton` is a tree with slots for tile sizes. Loop orders with equal reuse are one skeleton: with three dims only the
innermost loop matters, as a tensor is held just inside the last loop that indexes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from halley.formulas.numbers import Number, ceil_div, minimum
from halley.formulas.terms import Range
from halley.ir.array import Array, side_text
from halley.ir.hardware import Memory
from halley.ir.mapping import Collective, Compute, Hold, Node, Spatial, Temporal
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, OpKind, Roles, Workload, roles
from halley.mapping.space.array_dims import arrays, uncut
from halley.mapping.space.chip import Template
from halley.mapping.space.tile_sizes import Sizes

Tiles = Mapping[str, Number]
"""Tile size by slot name: whole numbers, or arrays for a batch."""

NOTHING: Tiles = MappingProxyType({})

Ranges = Mapping[str, Number]
"""Extent of each dim that one member works on, where a stage starts."""

Split = tuple[str, ...]
"""The dim that each cluster axis splits, in the order of the template's axes."""

Join = tuple[Collective, ...]
"""One collective for each axis that splits a summed dim, first axis first; none where no axis does."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An open tile size: its name, dim, the sizes to try for a range, and the range that it cuts (a function of the outer tiles
    of the same dim); ``among``: from where to where the sizes go, if that is known. ``rows``: of a loop over the visible keys of
    a mask, the dim of its rows, whose shared sizes its own go together with."""

    name: str
    dim: str
    sizes: Sizes
    limit: Callable[[Tiles], Number]
    among: Range = (1, None)
    rows: str = ""


BUFFERS = "(buffers)"
"""In place of a dim: of slots that say how many buffers a Hold has."""


def buffers(hold: str, memory: Memory, optional: bool = False) -> Slot:
    """The number of buffers of a Hold, as many as its memory allows at most; none where it is ``optional`` and left out."""
    most = memory.buffers
    return Slot(f"buffers of {hold}", BUFFERS, _at_most if optional else _one_or_more, lambda tiles: most, (1 - optional, most))


def _at_most(most: int) -> tuple[int, ...]:
    return tuple(range(most + 1))


def _one_or_more(most: int) -> tuple[int, ...]:
    return tuple(range(1, most + 1))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One tree shape of a stage. ``laid``: its contraction, where the shape has a choice of what lies on the array. ``revisits``:
    it moves as much as another one of the same sizes and room or more, and can at most be faster (`gemm_skeletons`). ``kin``: the
    same of shapes of a stage that differ just in the order of their loops, if that is known."""

    name: str
    slots: tuple[Slot, ...]
    build: Callable[[Tiles], Node]
    splits_reduction: bool
    laid: Compute | None = None
    revisits: bool = False
    kin: Hashable = None


@dataclass(frozen=True, slots=True)
class GroupStage:
    """A step of a group and its alternative shapes."""

    name: str
    ops: tuple[str, ...]
    skeletons: tuple[Skeleton, ...]


def of_dim(ranges: Callable[[Tiles], Ranges], dim: str) -> Callable[[Tiles], Number]:
    """The range of one dim."""
    return lambda tiles: ranges(tiles)[dim]


def always(ranges: Ranges) -> Callable[[Tiles], Ranges]:
    """Ranges that no tile size changes."""
    return lambda tiles: ranges


def one(tiles: Tiles) -> int:
    """A range that no tile size changes: one."""
    return 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor to hold inside a nest: where, with how many buffers, what runs after its inner loops; ``early``: around all loops
    of the nest instead of just inside the last that indexes it."""

    tensor: str
    memory: str
    buffers: Number
    after: tuple[Node, ...] = ()
    early: bool = False


def nest(workload: Workload, loops: Sequence[tuple[str, Number]], holds: Iterable[Placed], body: Node) -> Node:
    """Loops outermost first around a body; each tensor is held just inside the last loop that indexes it, unless with no
    buffer."""
    at: dict[int, list[Placed]] = {}
    for placed in holds:
        if type(placed.buffers) is int and not placed.buffers:
            continue
        dims = workload.tensors[placed.tensor].dims
        last = max((index for index, (dim, _) in enumerate(loops) if dim in dims), default=-1)
        at.setdefault(-1 if placed.early else last, []).append(placed)
    node = body
    for index in range(len(loops) - 1, -2, -1):
        for placed in at.get(index, []):
            inner = Steps((node, *placed.after)) if placed.after else node
            node = Hold(placed.memory, ((placed.tensor,),), inner, placed.buffers)
        if index >= 0:
            node = Temporal(loops[index][0], loops[index][1], node)
    return node


def members(axis: str) -> str:
    """Name of the open number of members of an axis, for a stage that is looked at on all shares of it together."""
    return f"members of {axis}"


def _parts(template: Template, split: Split, ranges: Ranges, tiles: Tiles) -> list[tuple[str, Number, str]]:
    """What each axis that splits a dim leaves of it to a member, first axis first: (dim, range, axis)."""
    parts, left = [], dict(ranges)
    for axis, dim in zip(template.axes, split, strict=True):
        if dim:
            left[dim] = ceil_div(left[dim], tiles.get(members(axis.name), axis.size))
            parts.append((dim, left[dim], axis.name))
    return parts


def spread(template: Template, split: Split, ranges: Ranges, body: Node, tiles: Tiles = NOTHING) -> Node:
    """Split dims over the cluster axes, first axis outermost. ``tiles`` may say how many members an axis has."""
    for dim, tile, name in reversed(_parts(template, split, ranges, tiles)):
        body = Spatial(dim, tile, template.level, name, body)
    return body


def named(split: Split) -> str:
    """The dims that the axes split, a dash for none.

    >>> named(("m", ""))
    'mx-'
    """
    return "x".join(dim or "-" for dim in split)


def member_ranges(template: Template, split: Split | None, ranges: Ranges, tiles: Tiles = NOTHING) -> dict[str, Number]:
    """Ranges of one member after the split, if there is one. ``tiles`` may say how many members an axis has."""
    if split is None:
        return dict(ranges)
    return {**ranges, **{dim: left for dim, left, _ in _parts(template, split, ranges, tiles)}}


def splits(template: Template, workload: Workload, dims: Iterable[str]) -> tuple[Split, ...]:
    """Every way to give each cluster axis one of the dims; axes that are alike are not told apart. Where no dim can be split the
    clusters repeat each other's work (the empty name); an axis of one member splits nothing."""
    dims = tuple(dims)
    useful = [dim for dim in dims if workload.dims[dim] > 1] or list(dims[:1]) or [""]
    found: list[Split] = [()]
    for axis in template.axes:
        found = [(*split, dim) for split in found for dim in (useful if axis.size > 1 else ("",))]
    return _distinct(template, found)


def _distinct(template: Template, found: Iterable[Split]) -> tuple[Split, ...]:
    """Splits without those that only give alike axes the same dims in another order."""
    first = template.axes[0]
    alike = all(replace(axis, name=first.name) == first for axis in template.axes)
    kept: dict[Split, Split] = {}
    for split in found:
        kept.setdefault(tuple(sorted(split)) if alike else split, split)
    return tuple(kept.values())


def join_text(join: Join) -> str:
    """A join in words, to tell shapes apart by.

    >>> from halley.ir.mapping import CollectiveKind
    >>> join_text((Collective(CollectiveKind.REDUCE_SCATTER, ("C",), "core", "x", "ring", "n"),))
    ', reduce-scatter ring to n'
    """
    if not join:
        return ""
    names, to = dict.fromkeys(part.algorithm for part in join), " ".join(part.dim for part in join)
    return f", {join[0].kind} {' then '.join(names)}" + (f" to {to}" if to.strip() else "")


LoopOrder = tuple[tuple[str, ...], str]
"""Dims, outermost first, with a name for what is innermost."""

NO_LOOPS: LoopOrder = ((), "")


def loop_orders(role: Roles) -> tuple[LoopOrder, ...]:
    """Loop orders of a contraction that differ in reuse, with a name for what is innermost: the dims of each role in turn, for
    they index the same tensors. An order with other dims between those of one role reuses no more."""
    groups = [group for group in (role.rows, role.columns, role.reduced) if group]
    return tuple(((*(d for group in groups if group != last for d in group), *last), " ".join(last)) for last in reversed(groups))


def outer_orders(role: Roles, leaves: bool) -> tuple[LoopOrder, ...]:
    """Orders of a fused contraction's loops around its inner ones, the rows' around them all: columns inside, so that the operand
    without them stays; and the sum inside, so that a result that ``leaves`` is whole before the next. One that stays comes and
    goes in neither."""
    last = (*role.reduced, *role.columns), " ".join(role.columns)
    first = (*role.columns, *role.reduced), " ".join(role.reduced)
    return (last, first) if leaves and role.columns and role.reduced else (last,)


@dataclass(frozen=True, slots=True, eq=False)
class _Contraction:
    """A contraction inside given outer loops: what all of its shapes have in common (`gemm_skeletons`)."""

    workload: Workload
    template: Template
    op: Op
    prefix: str
    ranges: Callable[[Tiles], Ranges]
    resident: bool
    inner_split: Split | None

    def around(self, tiles: Tiles) -> Ranges:
        """What the stage has of each dim, but for its own loops."""
        return member_ranges(self.template, self.inner_split, self.ranges(tiles), tiles)

    def within(self, outer_loops: Set[str]) -> Callable[[Tiles], Ranges]:
        """What its inner loops have of each dim."""

        def inside(tiles: Tiles) -> Ranges:
            # a dim that lies whole on the array beside another has no loops
            every = self.ranges(tiles).items()
            here = {d: minimum(r, tiles.get(f"{self.prefix}{d}1", r)) if d in outer_loops else r for d, r in every}
            return member_ranges(self.template, self.inner_split, here, tiles)

        return inside


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """One shape of a contraction: its inner loops in ``order``, the last role's innermost (``last``), and those outside them,
    where there is a choice with a name for it (``outside``); the result's Hold ``early``, around the inner loops; the weights'
    memory; what lies on the ``array``; the tensors held at the ``local`` level and in the ``shared`` buffer, with the slots of
    how many ``buffers`` each has; the join ``after`` it."""

    of: _Contraction
    order: tuple[str, ...]
    outer_order: tuple[str, ...]
    last: str
    outside: str
    early: bool
    weight: str
    array: Array
    local: Mapping[str, str]
    shared: tuple[str, ...]
    buffers: Mapping[tuple[str, str], Slot]
    after: Join

    def build(self, tiles: Tiles) -> Node:
        of = self.of
        inner = [(dim, tiles[f"{of.prefix}{dim}2"]) for dim in self.order]
        holds = [self._placed(tensor, memory, tiles) for tensor, memory in self.local.items()]
        node = nest(of.workload, inner, holds, Compute(of.op.name, self.array))
        for dim in reversed(roles(of.workload, of.op).batch):
            node = Temporal(dim, 1, node)
        outer = [(dim, tiles[f"{of.prefix}{dim}1"]) for dim in self.outer_order]
        if of.inner_split is not None:
            here = dict(of.ranges(tiles))
            here.update({dim: minimum(here[dim], tile) for dim, tile in outer})
            node = spread(of.template, of.inner_split, here, node, tiles)
        node = nest(of.workload, outer, [self._placed(tensor, of.template.shared, tiles) for tensor in self.shared], node)
        return Steps((node, *self.after)) if of.resident and self.after else node

    def _placed(self, tensor: str, memory: str, tiles: Tiles) -> Placed:
        own = tensor == self.of.op.outputs[0] and memory == self.of.template.output
        return Placed(tensor, memory, tiles[self.buffers[memory, tensor].name], self.after if own else (), self.early and own)

    @property
    def name(self) -> str:
        op, split = self.of.op, self.of.inner_split
        name = f"{op.name}: {self.last} innermost" + (f", {op.outputs[0]} around" if self.early else "")
        name += f", {op.inputs[1]} in {self.weight}" if len(self.of.template.weights) > 1 else ""
        name += join_text(self.after) + (f", {' x '.join(map(side_text, self.array))} on the array" if self.array else "")
        return self.outside + name + (f", clusters split {named(split)}" if split is not None else "")


def gemm_skeletons(
    workload: Workload,
    template: Template,
    op: Op,
    prefix: str,
    ranges: Callable[[Tiles], Ranges],
    sizes: Callable[[str], Sizes],
    outer_orders: Sequence[LoopOrder],
    staged: tuple[str, ...],
    resident: bool,
    joined: Sequence[Join] = ((),),
    inner_split: Split | None = None,
    via_shared: bool = False,
) -> list[Skeleton]:
    """Shapes of a contraction inside given outer loops.

    ``outer_orders``: every order of the loops that are tiled at the shared buffer, all of the same dims; ``staged`` tensors are
    held there; ``resident``: the output already lies in the clusters; ``joined``: every way to join the sums, where a split makes
    them partial; ``inner_split``: a spread of this stage's own between the two loop levels; ``via_shared``: the output may pass
    through the shared buffer.

    With columns inside the loops around, a result comes back for every tile of the sum; with the sum inside, it stays. Weights
    come in for every tile of both in either order, and so does the other operand at the clusters: only one that is staged stays
    for all columns. Where it is not, columns inside revisit.
    """
    role, output = roles(workload, op), op.outputs[0]
    of = _Contraction(workload, template, op, prefix, ranges, resident, inner_split)
    found: list[Skeleton] = []
    # all shapes have their sizes in common: what is found of a slot serves all of them
    outer_loops = dict.fromkeys(dim for loops, _ in outer_orders for dim in loops)
    within = of.within(outer_loops.keys())
    outside = {dim: Slot(f"{prefix}{dim}1", dim, sizes(dim), of_dim(ranges, dim)) for dim in outer_loops}
    inside = {dim: Slot(f"{prefix}{dim}2", dim, sizes(dim), of_dim(within, dim)) for dim in op.dims}
    held: dict[tuple[str, str], Slot] = {}
    shared = (*staged, output) if via_shared else tuple(staged)
    every_array = arrays(workload, template.engine, op, uncut(workload, of.around))
    choices = product(outer_orders, loop_orders(role), (False, True), template.weights, every_array)
    for (every_outer, outer_last), (every_loop, last), early, weight, array in choices:
        beside = {dim for side in array for dim in side[1:]}
        order, outer_order = (tuple(dim for dim in loops if dim not in beside) for loops in (every_loop, every_outer))
        reduces_last = order[-1] in role.reduced
        if early and (resident or reduces_last):
            continue  # it stays anyway, or is complete before the next is begun
        local = {op.inputs[0]: template.input, op.inputs[1]: weight, **({} if resident else {output: template.output})}
        flags: dict[tuple[str, str], Slot] = {}
        for tensor, memory in (*local.items(), *((tensor, template.shared) for tensor in shared)):
            slot = buffers(f"{prefix}{tensor} in {memory}", template.memory(memory), optional=memory == template.shared)
            flags[memory, tensor] = held.setdefault((memory, tensor), slot)
        revisits = len(outer_orders) > 1 and every_outer[-1] in role.columns and op.inputs[0] not in staged
        around = f"{outer_last} innermost outside, " if len(outer_orders) > 1 else ""
        slots = (*(outside[dim] for dim in outer_order), *(inside[dim] for dim in order), *flags.values())
        for after in joined:
            if after and not resident and not early and not reduces_last:
                continue  # a partial result would leave the cluster on every visit
            form = _Form(of, order, outer_order, last, around, early, weight, array, local, shared, flags, after)
            laid = Compute(op.name, array) if array else None
            kin = early, weight, array, after
            found.append(Skeleton(form.name, slots, form.build, bool(after), laid, revisits, kin))
    return found


def in_place(workload: Workload, ops: Sequence[Op], start: str) -> tuple[str, ...]:
    """The longest chain of tensors from ``start`` that can share one buffer: each made by a map from the one before, which nobody
    reads again."""
    chain = [start]
    for index, op in enumerate(ops):
        last = workload.tensors[chain[-1]]
        if op.kind is not OpKind.MAP or not op.inputs or op.inputs[0] != last.name:
            continue
        made = workload.tensors[op.outputs[0]]
        others = (other for other in workload.consumers(last.name) if other.name != op.name)
        before = {earlier.name for earlier in ops[:index]}
        read_later = last.name in workload.outputs or any(other.name not in before for other in others)
        if made.dims == last.dims and made.dtype == last.dtype and not read_later:
            chain.append(made.name)
    return tuple(chain)


def passes(workload: Workload, ops: Sequence[Op], dim: str) -> list[list[Op]] | None:
    """Cut ops into passes over ``dim``: an op that reads a finished reduction over it starts a new pass. None where a tensor over
    ``dim`` made in one pass is read in a later one, or where an op that does not walk the dim needs it whole."""
    if any(dim in workload.whole(op) for op in ops):
        return None
    result: list[list[Op]] = [[]]
    reducing: set[str] = set()
    for op in ops:
        if reducing & set(op.inputs) - set(op.running):
            result.append([])
            reducing = set()
        result[-1].append(op)
        if dim in workload.reduced(op) or (dim not in op.dims and reducing):
            reducing |= set(op.outputs)
    for index, part in enumerate(result):
        made = {name for op in part for name in op.outputs if dim in workload.tensors[name].dims}
        if any(made & set(op.inputs) for later in result[index + 1 :] for op in later):
            return None
    return result
