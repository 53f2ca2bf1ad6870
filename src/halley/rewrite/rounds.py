"""Children of `Overlap` and `Parallel` that hand tensors over: they work on different rounds (docs/model.md, "Rounds").

If loops enclose such a node, a child works on one tile while the child that it reads from works on the next. So a tensor that
passes from child 1 to child 2 needs a buffer for each round in flight. So does a tensor that is carried from round to round (a
running maximum): a later round changes it before a later child has read the value of the earlier round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import assert_never

from halley.errors import Fault
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Temporal,
    children,
    walk,
)
from halley.ir.workload import Op, Workload
from halley.rewrite.scopes import Path

ConcurrentNode = Overlap | Parallel | Pipeline
"""Nodes whose children run concurrently."""


@dataclass(frozen=True, slots=True)
class Touches:
    """Tensors that a subtree computes (``computed``), changes (``made``: these, and those of its collectives), and accesses
    (``all``). A broadcast into a Hold of the subtree only fills that Hold, so it changes nothing for others."""

    computed: frozenset[str]
    made: frozenset[str]
    all: frozenset[str]


def touches_of(tree: Node, workload: Workload) -> Touches:
    """The tensors that the ops and collectives in a tree access."""
    computed: set[str] = set()
    moved: set[str] = set()
    used: set[str] = set()
    held: dict[Path, frozenset[str]] = {(): frozenset()}
    for path, node in walk(tree):
        inside = held[path[:-1]]
        held[path] = inside | set(node.names) if isinstance(node, Hold) else inside
        if isinstance(node, Compute):
            op = workload.op(node.op)
            computed.update(op.outputs)
            used.update(op.inputs, (op.scaled_by,) if op.scaled_by else ())
        elif isinstance(node, Collective):
            filled = inside.intersection(node.tensors) if node.kind is CollectiveKind.BROADCAST else frozenset[str]()
            used.update(filled)
            moved.update(set(node.tensors) - filled)
    return Touches(frozenset(computed), frozenset(computed | moved), frozenset(computed | moved | used))


def hands_over(node: Overlap | Parallel, workload: Workload) -> bool:
    """Whether a child changes a tensor that another child accesses."""
    return _linked([touches_of(child, workload) for child in node.children])


def _linked(found: list[Touches]) -> bool:
    return any(one.made & other.all for i, one in enumerate(found) for j, other in enumerate(found) if i != j)


def rounds_apart(users: Sequence[int], children: Sequence[Sequence[Op]]) -> int:
    """The least number of rounds between two of the children ``users``. A child is one round behind the latest child that it
    reads from. ``children``: the ops of each child."""
    behind = _rounds_behind(children)
    return min(later - earlier for earlier, later in pairwise(sorted(behind[user] for user in users)))


def starts_together(users: Sequence[int], children: Sequence[Sequence[Op]]) -> bool:
    """Whether some of the children ``users`` start their rounds at the same time: where one directly follows another, as soon as
    both have ended the round before."""
    behind = _rounds_behind(children)
    return any(later - earlier == 1 for earlier, later in pairwise(sorted({behind[user] for user in users})))


def _rounds_behind(children: Sequence[Sequence[Op]]) -> list[int]:
    """For each child, the number of rounds by which it is behind the first ones."""
    made = [{name for op in ops for name in op.outputs} for ops in children]
    used = [{name for op in ops for name in (*op.inputs, op.scaled_by)} for ops in children]
    behind: list[int] = []
    for index in range(len(children)):
        behind.append(max((behind[at] + 1 for at in range(index) if made[at] & used[index]), default=0))
    return behind


def buffers_needed(first: int, last: int, stays: bool) -> int:
    """Buffers of a tensor that children ``first`` to ``last`` access, so that no child waits: one for each round in flight, and
    one more if the oldest round's buffer ``stays`` in use: the Hold fills or drains it meanwhile, or the tensor is carried and
    the results of the last child are still relative to the round before.

    >>> buffers_needed(0, 1, False), buffers_needed(0, 2, True)
    (2, 4)
    """
    return last - first + 1 + stays


@dataclass(frozen=True, slots=True)
class InnermostHold:
    """The innermost open Hold of a tensor, and its path. ``group``: the tensors that share its buffer; ``moves``: whether there
    is an outer Hold of the tensor; ``loops``: dims of the loops in time inside the Hold."""

    path: Path
    node: Hold
    group: tuple[str, ...]
    moves: bool
    loops: tuple[str, ...] = ()

    def carries(self, dims: tuple[str, ...]) -> str:
        """A loop inside the Hold that carries a tensor of these dims from one round to the next: its dim, or an empty string."""
        return next((dim for dim in self.loops if dim not in dims), "")


def round_faults(tree: Node, workload: Workload) -> Iterator[tuple[Path, Fault]]:
    """Faults of nodes whose children cannot work on successive rounds. Names in the tree must be known."""
    for path, node, homes in concurrent_nodes(tree):
        if isinstance(node, Pipeline):
            yield from ((path, fault) for _, fault in _misplaced(node, workload))
        else:
            yield from ((path, fault) for fault in _faults(node, workload, homes))


def concurrent_nodes(tree: Node) -> Iterator[tuple[Path, ConcurrentNode, Mapping[str, InnermostHold]]]:
    """The nodes with concurrent children, with their paths and the innermost open Holds around them."""
    yield from _inside(tree, (), {})


def _inside(
    node: Node, path: Path, homes: Mapping[str, InnermostHold]
) -> Iterator[tuple[Path, ConcurrentNode, Mapping[str, InnermostHold]]]:
    if isinstance(node, ConcurrentNode):
        yield path, node, homes
    match node:
        case Hold():
            opened = {name: InnermostHold(path, node, group, name in homes) for group in node.tensors for name in group}
            homes = {**homes, **opened}
        case Temporal() | Pipeline():
            homes = {name: replace(home, loops=(*home.loops, node.dim)) for name, home in homes.items()}
        case _:
            pass
    for index, child in enumerate(children(node)):
        yield from _inside(child, (*path, index), homes)


def _faults(node: Overlap | Parallel, workload: Workload, homes: Mapping[str, InnermostHold]) -> Iterator[Fault]:
    where, found = _where(node), [touches_of(child, workload) for child in node.children]
    wrong = dict(_misplaced(node, workload))
    yield from wrong.values()
    loops = {name: home.carries(workload.tensors[name].dims) for name, home in homes.items() if is_handed_over(name, found)}
    carried = {name: loop for name, loop in loops.items() if loop and name not in wrong}
    for name, loop in carried.items():
        if sum(name in own.made for own in found) > 1:
            expected, got = f"{name} to be recomputed in each round of {loop}", "one for all, which several children change"
            yield Fault(where, expected, got, "use sequence, or put the ops that change it into one child")
    if _linked(found):
        yield from _too_few_buffers(where, found, homes, carried.keys())


def _misplaced(node: ConcurrentNode, workload: Workload) -> Iterator[tuple[str, Fault]]:
    """Faults of handed-over tensors that the first child to access them does not compute."""
    found = [touches_of(child, workload) for child in node.children]
    for name in workload.tensors:
        if not is_handed_over(name, found):
            continue
        users = [index for index, own in enumerate(found) if name in own.all]
        makers = [index for index, own in enumerate(found) if name in own.made]
        if name not in found[users[0]].computed:
            expected = f"{name} computed by the first child that touches it"
            got = f"child {makers[0] + 1} changes it, child {users[0] + 1} uses it before"
            if users[0] in makers:
                got = f"child {users[0] + 1} changes what was computed before"
            yield name, Fault(_where(node), expected, got, "order the children as they follow each other, or use sequence")


def is_handed_over(name: str, found: list[Touches]) -> bool:
    """Whether several children access a tensor and at least one of them changes it."""
    return sum(name in own.all for own in found) > 1 and any(name in own.made for own in found)


def _where(node: ConcurrentNode) -> str:
    match node:
        case Overlap():
            return "overlap"
        case Parallel():
            return f"parallel over {node.level}.{node.axis}"
        case Pipeline():
            return f"pipeline over {node.level}.{node.axis}"
        case _:
            assert_never(node)


def _too_few_buffers(where: str, found: list[Touches], homes: Mapping[str, InnermostHold], carried: Set[str]) -> Iterator[Fault]:
    """Faults of Holds with too few buffers for the rounds in flight. One buffer is allowed, as each round then waits for the one
    before; but not for carried tensors, which the next round would change."""
    for home in {id(home.node): home for home in homes.values()}.values():
        for group in home.node.tensors:
            mine = [name for name in group if homes[name].node is home.node]
            users = [index for index, own in enumerate(found) if own.all.intersection(mine)]
            stays = carried & set(mine)
            if len(users) < 2 or (home.node.buffers == 1 and not stays):
                continue
            needed = buffers_needed(users[0], users[-1], bool(stays) or any(homes[name].moves for name in mine))
            if home.node.buffers < needed:
                expected = f"{needed} buffers of {'|'.join(mine)} in {home.node.memory}, for the rounds under way at once"
                expected += ", as it is carried from round to round" if stays else ", or 1"
                yield Fault(where, expected, str(home.node.buffers), f"write 'hold {home.node.memory} x{needed}'")
