"""Stages: tree shapes of one contraction or one run of vector operations, with open tile sizes.

A `Skeleton` is a tree with slots for tile sizes. Loop orders with equal reuse are one skeleton: with three dims only the
innermost loop matters, as a tensor is held just inside the last loop that indexes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
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
from halley.mapping.space.hierarchy import OPERANDS, Hierarchy, LevelAxis
from halley.mapping.space.outer_holds import outer_holds
from halley.mapping.space.tile_sizes import Sizes, undivided

Tiles = Mapping[str, Number]
"""Tile size by slot name: whole numbers, or arrays for a batch."""

NOTHING: Tiles = MappingProxyType({})

Ranges = Mapping[str, Number]
"""Extent of each dim that one member works on, where a stage starts."""

Split = tuple[str, ...]
"""The dim that each cluster axis splits, in the order of the hierarchy's axes."""

Join = tuple[Collective, ...]
"""One collective for each axis that splits a summed dim, first axis first; none where no axis does."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An open tile size: its name, dim, the sizes to try for a range, and the range that it cuts (a function of the outer tiles
    of the same dim); ``among``: the least and the largest size, if known. ``rows``: for a loop over the visible keys of a mask,
    the dim of its rows, with whose shared sizes its own are paired."""

    name: str
    dim: str
    sizes: Sizes
    limit: Callable[[Tiles], Number]
    among: Range = (1, None)
    rows: str = ""


BUFFERS = "(buffers)"
"""Stands for the dim in slots for the number of buffers of a Hold."""


def buffers(hold: str, memory: Memory, optional: bool = False) -> Slot:
    """The number of buffers of a Hold, as many as its memory allows at most; none where it is ``optional`` and left out."""
    most = memory.buffers
    return Slot(f"buffers of {hold}", BUFFERS, _at_most if optional else _one_or_more, lambda tiles: most, (1 - optional, most))


def outer_buffers(hold: str, memory: Memory) -> Slot:
    """The number of buffers of a Hold around several stages: one in a lockstep memory. With several, a transfer would stall a
    step of any stage, so that the costs of the stages would depend on each other."""
    return buffers(hold, replace(memory, buffers=1) if memory.lockstep else memory)


def _at_most(most: int) -> tuple[int, ...]:
    return tuple(range(most + 1))


def _one_or_more(most: int) -> tuple[int, ...]:
    return tuple(range(1, most + 1))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One tree shape of a stage. ``naming`` makes its name, which only few of many shapes need. ``laid``: its contraction,
    where the shape has a choice of what lies on the array. ``revisits``: it moves as much as another one of the same sizes and
    footprint or more, and can only gain time (`gemm_skeletons`). ``kin``: the same of shapes of a stage that differ just in the
    order of their loops, if that is known. ``plain``: the ``kin`` of those that hold nothing around their inner loops and differ
    from this one in no more; None for such a shape, and if collectives or overlapping boxes depend on it. ``broadcasts``: members
    load for others. ``passed``: tensors of the group that its parts, which work on successive rounds, pass on in the group's
    buffers; if these have the buffers for rounds of stages, they cannot have those for rounds of the parts as well."""

    naming: Callable[[], str]
    slots: tuple[Slot, ...]
    build: Callable[[Tiles], Node]
    splits_reduction: bool
    laid: Compute | None = None
    revisits: bool = False
    kin: Hashable = None
    plain: Hashable = None
    broadcasts: bool = False
    passed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.naming()


@dataclass(frozen=True, slots=True)
class GroupStage:
    """A step of a group and its alternative shapes."""

    name: str
    ops: tuple[str, ...]
    skeletons: tuple[Skeleton, ...]


def of_dim(ranges: Callable[[Tiles], Ranges], dim: str) -> Callable[[Tiles], Number]:
    """The range of one dim."""
    return lambda tiles: ranges(tiles)[dim]


def one(tiles: Tiles) -> int:
    """A range that no tile size changes: one."""
    return 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor to hold inside a nest: where, with how many buffers, what runs before and after its inner loops.
    ``outside_loops``: outside all loops of the nest instead of just inside the last that indexes it."""

    tensor: str
    memory: str
    buffers: Number
    after: tuple[Node, ...] = ()
    outside_loops: bool = False
    before: tuple[Node, ...] = ()


def nest(workload: Workload, loops: Sequence[tuple[str, Number]], holds: Iterable[Placed], body: Node) -> Node:
    """Loops outermost first around a body; each tensor is held just inside the last loop that indexes it, unless with no
    buffer."""
    at: dict[int, list[Placed]] = {}
    for placed in holds:
        if type(placed.buffers) is int and not placed.buffers:
            continue
        dims = workload.selectors(placed.tensor)
        last = max((index for index, (dim, _) in enumerate(loops) if dim in dims), default=-1)
        at.setdefault(-1 if placed.outside_loops else last, []).append(placed)
    node = body
    for index in range(len(loops) - 1, -2, -1):
        for placed in at.get(index, []):
            inner = Steps((*placed.before, node, *placed.after)) if placed.before or placed.after else node
            node = Hold(placed.memory, ((placed.tensor,),), inner, placed.buffers)
        if index >= 0:
            node = Temporal(loops[index][0], loops[index][1], node)
    return node


def members(level: str, axis: str) -> str:
    """Name of the open number of members of an axis, for a stage that is looked at on all shares of it together."""
    return f"members of {level}.{axis}"


def split_tile(level: str, axis: str) -> str:
    """Name of the open tile size of a split over an axis."""
    return f"part on {level}.{axis}"


Part = tuple[str, Number, LevelAxis]
"""A dim, the range of it that each member of an axis has, and that axis."""


def _parts(hierarchy: Hierarchy, split: Split, ranges: Ranges, tiles: Tiles, tier: int | None = None) -> list[Part]:
    """What each axis that splits a dim leaves of it to a member, first axis first: the tile size in ``tiles``, or equal parts for
    all members. ``tier``: of the axes of one tier alone."""
    parts, left = [], dict(ranges)
    for own, dim in zip(hierarchy.axes, split, strict=True):
        if dim and tier in (None, own.tier):
            equal = ceil_div(left[dim], tiles.get(members(own.level, own.axis.name), own.axis.size))
            left[dim] = tiles.get(split_tile(own.level, own.axis.name), equal)
            parts.append((dim, left[dim], own))
    return parts


def spread(
    hierarchy: Hierarchy, split: Split, ranges: Ranges, body: Node, tiles: Tiles = NOTHING, tier: int | None = None
) -> Node:
    """Split dims over axes, first axis outermost. ``tiles`` may say how many members an axis has. ``tier``: over the axes of one
    tier alone."""
    for dim, tile, own in reversed(_parts(hierarchy, split, ranges, tiles, tier)):
        body = Spatial(dim, tile, own.level, own.axis.name, body)
    return body


def named(split: Split) -> str:
    """The dims that the axes split, a dash for none.

    >>> named(("m", ""))
    'mx-'
    """
    return "x".join(dim or "-" for dim in split)


def member_ranges(
    hierarchy: Hierarchy, split: Split | None, ranges: Ranges, tiles: Tiles = NOTHING, tier: int | None = None
) -> dict[str, Number]:
    """Ranges of one member after the split, if there is one. ``tiles`` may say how many members an axis has. ``tier``: after the
    axes of one tier alone."""
    if split is None:
        return dict(ranges)
    return {**ranges, **{dim: left for dim, left, _ in _parts(hierarchy, split, ranges, tiles, tier)}}


def splits(
    hierarchy: Hierarchy,
    workload: Workload,
    dims: Iterable[str],
    tiers: Collection[int] | None = None,
    summed: Collection[str] = (),
) -> tuple[Split, ...]:
    """Every way to give each axis one of the dims; of splits that differ in axes that are alike, one. Where no dim can be split
    the members repeat each other's work (the empty name); an axis of one member splits nothing. ``tiers``: only axes of these.
    ``summed``: dims that only axes split whose members can combine partial results."""
    dims = tuple(dims)
    found: list[Split] = [()]
    for own in hierarchy.axes:
        able = [dim for dim in dims if dim not in summed or hierarchy.joins(own)]
        useful = [dim for dim in able if workload.dims[dim] > 1] or able[:1] or [""]
        splits_any = own.axis.size > 1 and (tiers is None or own.tier in tiers)
        found = [(*split, dim) for split in found for dim in (useful if splits_any else ("",))]
    return _distinct(hierarchy, found)


def _distinct(hierarchy: Hierarchy, found: Iterable[Split]) -> tuple[Split, ...]:
    """Splits without those that only give alike axes the same dims in another order."""
    alike: dict[LevelAxis, list[int]] = {}
    for place, own in enumerate(hierarchy.axes):
        alike.setdefault(own.alike, []).append(place)
    kept: dict[Split, Split] = {}
    for split in found:
        kept.setdefault(tuple("\0".join(sorted(split[at] for at in places)) for places in alike.values()), split)
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
    """Loop orders of a contraction that differ in reuse, with a name for what is innermost: role by role, as the dims of a
    role index the same tensors. An order with other dims between those of one role reuses no more."""
    groups = [group for group in (role.rows, role.columns, role.reduced) if group]
    return tuple(((*(d for group in groups if group != last for d in group), *last), " ".join(last)) for last in reversed(groups))


def outer_orders(role: Roles, leaves: bool) -> tuple[LoopOrder, ...]:
    """Orders of the outer loops of a fused contraction, with the loop over rows outermost: columns inside, so that the operand
    without them stays; and the sum inside, so that a result that ``leaves`` is whole before the next. One that stays comes and
    goes in neither."""
    last = (*role.reduced, *role.columns), " ".join(role.columns)
    first = (*role.columns, *role.reduced), " ".join(role.reduced)
    return (last, first) if leaves and role.columns and role.reduced else (last,)


@dataclass(frozen=True, slots=True, eq=False)
class _Contraction:
    """A contraction inside given outer loops: what all of its shapes have in common (`gemm_skeletons`). ``outside``: by tier but
    the innermost, the dims of its loops; ``beside``: of each tensor, the tier beside the engine."""

    workload: Workload
    hierarchy: Hierarchy
    op: Op
    prefix: str
    ranges: Callable[[Tiles], Ranges]
    resident: bool
    inner_split: Split | None
    outside: tuple[tuple[str, ...], ...]
    beside: Mapping[str, int]

    def slot(self, dim: str, tier: int) -> str:
        """The name of the tile size of a dim in the loops of a tier."""
        return f"{self.prefix}{dim}{tier + 1}"

    def outer_ranges(self, tiles: Tiles) -> Ranges:
        """What the stage has of each dim, but for its own loops."""
        return member_ranges(self.hierarchy, self.inner_split, self.ranges(tiles), tiles)

    def before(self, tier: int, tiles: Tiles) -> dict[str, Number]:
        """What the axes of a tier split of each dim: a tile of the loops further out, of a member's part of it."""
        found = dict(self.ranges(tiles))
        for at, dims in enumerate(self.outside[:tier]):
            found = member_ranges(self.hierarchy, self.inner_split, found, tiles, at)
            for dim in dims:  # one that lies whole on the array beside another has no loops
                found[dim] = minimum(found[dim], tiles.get(self.slot(dim, at), found[dim]))
        return found

    def within(self, tier: int) -> Callable[[Tiles], Ranges]:
        """What the loops of a tier have of each dim."""
        return lambda tiles: member_ranges(self.hierarchy, self.inner_split, self.before(tier, tiles), tiles, tier)


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """One shape of a contraction: ``orders`` of its loops, by tier; the last role's innermost in the inner ones (``last``), and
    where there is a choice a name for those outside (``outside``); the tensors that are held outside the inner loops (``outer``);
    what is mapped to the ``array``; by tier, the memory of each tensor ``held`` there, with the slots of their numbers of
    ``buffers``; the ``join`` after it; by tensor that one member loads for others, the broadcast that ``sends`` it."""

    of: _Contraction
    orders: tuple[tuple[str, ...], ...]
    last: str
    outside: str
    outer: tuple[str, ...]
    array: Array
    held: tuple[Mapping[str, str], ...]
    buffers: Mapping[tuple[str, str], Slot]
    after: Join
    sends: Mapping[str, Collective]

    def build(self, tiles: Tiles) -> Node:
        of, node = self.of, None
        for tier in reversed(range(len(self.orders))):
            loops = [(dim, tiles[of.slot(dim, tier)]) for dim in self.orders[tier]]
            holds = [self._placed(tensor, memory, tier, tiles) for tensor, memory in self.held[tier].items()]
            node = nest(of.workload, loops, holds, node or Compute(of.op.name, self.array))
            if tier == len(self.orders) - 1:
                for dim in reversed(roles(of.workload, of.op).batch):
                    node = Temporal(dim, 1, node)
            if of.inner_split is not None:
                node = spread(of.hierarchy, of.inner_split, of.before(tier, tiles), node, tiles, tier)
        assert node is not None
        return Steps((node, *self.after)) if of.resident and self.after else node

    def _placed(self, tensor: str, memory: str, tier: int, tiles: Tiles) -> Placed:
        beside = tier == self.of.beside[tensor]
        after = self.after if beside and tensor == self.of.op.outputs[0] else ()
        before = (self.sends[tensor],) if beside and tensor in self.sends else ()
        return Placed(tensor, memory, tiles[self.buffers[memory, tensor].name], after, beside and tensor in self.outer, before)

    def naming(self) -> str:
        op, split = self.of.op, self.of.inner_split
        name = f"{op.name}: {self.last} innermost" + (f", {' '.join(self.outer)} around" if self.outer else "")
        name += "".join(
            f", {tensor} in {memory}"
            for at, held in enumerate(self.held)
            for role, tensor in _by_role(op)
            if len(_choices(self.of.hierarchy, at, role)) > 1 and (memory := held.get(tensor, ""))
        )
        name += "".join(f", {tensor} {own.kind} over {own.axis} {own.algorithm}" for tensor, own in self.sends.items())
        name += join_text(self.after) + (f", {' x '.join(map(side_text, self.array))} on the array" if self.array else "")
        return self.outside + name + (f", clusters split {named(split)}" if split is not None else "")


def _by_role(op: Op) -> tuple[tuple[str, str], ...]:
    """The tensors of a contraction, by role."""
    return tuple(zip(OPERANDS, (*op.inputs, op.outputs[0]), strict=True))


Held = tuple[Mapping[str, str], ...]
"""By tier, the memory of each tensor that is held there."""


def _choices(hierarchy: Hierarchy, tier: int, role: str) -> tuple[str, ...]:
    """The memories of a tier that may hold a role: of several beside the engine, only weights have a choice."""
    every = hierarchy.tiers[tier].operands[role]
    return every if tier < hierarchy.read_at(role) or role == "weight" else every[:1]


def _placements(hierarchy: Hierarchy, op: Op, first: Mapping[str, int]) -> Iterator[Held]:
    """Every choice of a memory for each tensor of a contraction at each tier, from the ``first`` tier where it may be held to the
    one that the engine reads."""
    places = [
        (at, tensor, _choices(hierarchy, at, role))
        for role, tensor in _by_role(op)
        for at in range(first.get(tensor, 0), hierarchy.read_at(role) + 1)
    ]
    for chosen in product(*(every for *_, every in places)):
        held: list[dict[str, str]] = [{} for _ in hierarchy.tiers]
        for (at, tensor, _), memory in zip(places, chosen, strict=True):
            held[at][tensor] = memory
        yield tuple(held)


Sends = Mapping[str, tuple[Collective, ...]]
"""By tensor, the broadcasts of which each may send it from the one member that loads it to others."""


def _every_sends(loaded: Iterable[str], sends: Sends) -> list[Mapping[str, Collective]]:
    """Every choice of a broadcast, or none, for each tensor that a stage loads."""
    every: list[Mapping[str, Collective]] = [{}]
    for tensor in dict.fromkeys(loaded):
        every = [{**chosen, **own} for chosen in every for own in ({}, *({tensor: way} for way in sends.get(tensor, ())))]
    return every


def gemm_skeletons(
    workload: Workload,
    hierarchy: Hierarchy,
    op: Op,
    prefix: str,
    ranges: Callable[[Tiles], Ranges],
    sizes: Callable[[str], Sizes],
    outer_orders: Sequence[LoopOrder],
    first: Mapping[str, int],
    resident: bool,
    joined: Sequence[Join] = ((),),
    inner_split: Split | None = None,
    uneven: bool = False,
    sends: Sends = MappingProxyType({}),
) -> list[Skeleton]:
    """Shapes of a contraction inside given outer loops.

    ``outer_orders``: every order of the loops of the outermost tier, where there are several tiers, all of the same dims;
    ``first``: of each tensor, the number of the tier from which on it may be held, 0 where left out; a tier further in than the
    engine's says that it is held outside all loops of the stage. ``resident``: that is so of the output, in the memory beside the
    engine; ``joined``: every way to join the sums, where a split makes them partial; ``inner_split``: a spread of this stage's
    own, the axes of each tier around its loops; ``uneven``: with operands held around the inner loops, too
    (`halley.mapping.space.outer_holds`); ``sends``: broadcasts of what the stage holds beside the engine, each also left out.

    With columns innermost in the outer loops, a result is read and written again for every tile of the sum; with the sum
    innermost, it stays. Weights are read for every tile of both in either order, and so is the other operand at the clusters:
    only one that is staged stays for all columns. Where it is not, columns inside revisit.
    """
    role, inner = roles(workload, op), len(hierarchy.tiers) - 1
    middle = (NO_LOOPS,) if tuple(outer_orders) == (NO_LOOPS,) else loop_orders(role)
    outside = [tuple(outer_orders), *[middle] * (inner - 1)][:inner]
    dims_outside = tuple(tuple(dict.fromkeys(dim for loops, _ in orders for dim in loops)) for orders in outside)
    beside = {tensor: hierarchy.read_at(role) for role, tensor in _by_role(op)}
    of = _Contraction(workload, hierarchy, op, prefix, ranges, resident, inner_split, dims_outside, beside)
    found: list[Skeleton] = []
    # all shapes have their sizes in common: what is found of a slot serves all of them
    open_sizes = {
        (dim, tier): Slot(of.slot(dim, tier), dim, sizes(dim), of_dim(of.within(tier), dim))
        for tier, dims in enumerate((*dims_outside, op.dims))
        for dim in dims
    }
    flags: dict[tuple[str, str], Slot] = {}
    engine, overlapping = hierarchy.engine, bool(workload.indices)
    every_array = arrays(workload, engine, op, uncut(workload, of.outer_ranges)) if engine else ((),)
    indices = {
        tensor: {*workload.selectors(tensor)} for tensor, at in beside.items() if at == inner and first.get(tensor, 0) <= at
    }
    loaded = [tensor for tensor in op.inputs if first.get(tensor, 0) <= beside[tensor]]
    every_sent = _every_sends(loaded, sends)
    choices = product(product(*outside), loop_orders(role), _placements(hierarchy, op, first), every_array, every_sent)
    for outer, (every_loop, last), held, array, sent in choices:
        # what stays whole has no loops
        hidden = {dim for side in array for dim in side[1:]} | {dim for dim in op.dims if sizes(dim) is undivided}
        every = tuple(tuple(dim for dim in loops if dim not in hidden) for loops in (*(order for order, _ in outer), every_loop))
        reduces_last = every_loop[-1] in role.reduced
        buffered: dict[tuple[str, str], Slot] = {}
        for at in reversed(range(len(held))):
            for tensor, memory in held[at].items():
                slot = buffers(f"{prefix}{tensor} in {memory}", hierarchy.memory(memory), optional=at < beside[tensor])
                buffered[memory, tensor] = flags.setdefault((memory, tensor), slot)
        staged = first.get(op.inputs[0], 0) < beside[op.inputs[0]]
        revisits = inner == 1 and len(outer_orders) > 1 and outer[0][0][-1] in role.columns and not staged
        named_outside = "".join(
            f"{name} innermost outside, " for (_, name), orders_here in zip(outer, outside, strict=True) if len(orders_here) > 1
        )
        placements: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), every[-1])]
        if not resident and not reduces_last:  # it stays anyway, or is complete before the next is begun
            placements.append((op.outputs, every[-1]))
        if uneven:
            innermost = next(dims for dims in (role.rows, role.columns, role.reduced) if every_loop[-1] in dims)
            placements += [way for way in outer_holds(every[-1], innermost, indices) if way not in placements]
        for (held_outside, loops), after in product(placements, joined):
            if after and not resident and op.outputs[0] not in held_outside and not reduces_last:
                continue  # a partial result would leave the cluster on every visit
            orders = *every[:-1], loops
            slots = (*(open_sizes[dim, tier] for tier, dims in enumerate(orders) for dim in dims), *buffered.values())
            form = _Form(of, orders, last, named_outside, held_outside, array, held, buffered, after, sent)
            laid = Compute(op.name, array) if array else None
            rest = tuple(tuple(tensors.items()) for tensors in held), array, after, tuple(sent.values())
            plain = ((), *rest) if held_outside and not (after or sent or overlapping) else None
            kin = (held_outside, *rest)
            found.append(Skeleton(form.naming, slots, form.build, bool(after), laid, revisits, kin, plain, bool(sent)))
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
