"""Mapping trees as indented text: `to_text` prints, `parse` reads; each undoes the other.

    for DIM by TILE [visible]                                   visible: only tiles of keys that the rows see
    spread DIM by TILE over LEVEL.AXIS
    hold MEMORY [xBUFFERS]: GROUP ...                           a group is TENSOR or TENSOR|TENSOR (one buffer, in place)
    sequence [prefetch]
    overlap
    parallel over LEVEL.AXIS shares NUMBER ...
    pipeline DIM by TILE over LEVEL.AXIS shares NUMBER ...
    KIND TENSOR ... over LEVEL.AXIS [to DIM] with ALGORITHM     KIND is a collective: all-reduce, broadcast, ...
    compute OP [array DIM|DIM x DIM]                            dims on the rows and columns of the array; ``-`` for none

AXIS is an axis of the level, or ``x/8``, the groups of 8 neighbours along x, or ``x%8``, the members of such a group.

One node per line, its children indented below it (printed with two spaces; read with any consistent indentation). A ``#``
starts a comment. A name that would be ambiguous is quoted, escaped as in JSON; a level and an axis are
then two words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias, assert_never

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.array import NO_DIM
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    children,
)
from halley.ir.words import NUMBER_LIMIT, SPECIAL, LineReader, SyntaxFault, Word, words_of

SIZE_LIMIT = 1_000_000
"""Longest text [characters]."""
LINE_LIMIT = 10_000
"""Most lines."""
DEPTH_LIMIT = 200
"""Deepest nesting of nodes."""

_COLLECTIVES = tuple(kind.value for kind in CollectiveKind)
_KEYWORDS = ("for", "spread", "hold", "sequence", "overlap", "parallel", "pipeline", "compute", *_COLLECTIVES)


# ---- printing --------------------------------------------------------------------------------------


def to_text(node: Node) -> str:
    """The tree as text, one node per line, without a line end after the last.

    Raises BadInput for a tree that has no text: a composition without children, a tile that is not a positive whole number (an
    array of a batch, for example), a text over the limits of `parse`.

    >>> print(to_text(Temporal("m", 128, Hold("glb", (("A",), ("S", "E")), Compute("S"), buffers=2))))
    for m by 128
      hold glb x2: A S|E
        compute S
    """
    lines = list(_lines(node, 0))
    text = "\n".join(lines)
    _check_limits(text, len(lines), "<tree>")
    return text


def _lines(node: Node, depth: int) -> Iterator[str]:
    if depth >= DEPTH_LIMIT:
        raise BadInput(Fault("<tree>", f"at most {DEPTH_LIMIT} nested nodes", "more", "merge nodes that nest without need"))
    yield "  " * depth + _header(node)
    for child in children(node):
        yield from _lines(child, depth + 1)


def _header(node: Node) -> str:
    match node:
        case Temporal():
            return f"for {_name(node.dim)} by {_number(node.tile, 'tile')}" + (" visible" if node.visible else "")
        case Spatial():
            return f"spread {_name(node.dim)} by {_number(node.tile, 'tile')} over {_place(node.level, node.axis)}"
        case Hold():
            buffers = "" if node.buffers == 1 else f" x{_number(node.buffers, 'buffers')}"
            _some(node.tensors, "hold", "a group of tensors")
            groups = [_some(group, "hold", "a tensor in each group") for group in node.tensors]
            return f"hold {_name(node.memory)}{buffers}: " + " ".join("|".join(map(_name, group)) for group in groups)
        case Collective():
            names = " ".join(map(_payload_name, _some(node.tensors, node.kind, "a tensor")))
            to = f" to {_name(node.dim)}" if node.dim else ""
            return f"{node.kind} {names} over {_place(node.level, node.axis)}{to} with {_name(node.algorithm)}"
        case Compute():
            return f"compute {_name(node.op)}{_array(node)}"
        case Sequence():
            _some(node.children, "sequence", "a child")
            return "sequence prefetch" if node.prefetch else "sequence"
        case Overlap():
            _some(node.children, "overlap", "a child")
            return "overlap"
        case Parallel():
            _some(node.children, "parallel", "a child")
            return f"parallel over {_place(node.level, node.axis)} shares {_shares(node)}"
        case Pipeline():
            _some(node.children, "pipeline", "a child")
            head = f"pipeline {_name(node.dim)} by {_number(node.tile, 'tile')}"
            return f"{head} over {_place(node.level, node.axis)} shares {_shares(node)}"
        case _:
            assert_never(node)


def _shares(node: Parallel | Pipeline) -> str:
    return " ".join(_number(share, "share") for share in _some(node.shares, "shares", "a share"))


def _array(node: Compute) -> str:
    if not node.array:
        return ""
    if len(node.array) != 2:
        got = f"{len(node.array)} of them"
        raise BadInput(Fault(f"compute {node.op}", "two sides of an array, rows and columns", got, "name the dims of both"))
    rows, columns = ("|".join(json.dumps(dim) if dim == NO_DIM else _name(dim) for dim in side) or NO_DIM for side in node.array)
    return f" array {rows} x {columns}"


def _some(items: tuple[Any, ...], where: str, what: str) -> tuple[Any, ...]:
    if not items:
        raise BadInput(Fault(where, f"at least {what}", "none", "remove the node or give it one"))
    return items


def _number(value: Any, what: str) -> str:
    whole = hasattr(value, "__index__") and not isinstance(value, bool) and not getattr(value, "shape", ())
    if not whole or not 1 <= int(value) <= NUMBER_LIMIT:
        raise BadInput(Fault(what, "a whole number of at least 1", repr(value), "print one mapping, not a batch of them"))
    return str(int(value))


def _is_plain(name: str) -> bool:
    return bool(name) and name.isprintable() and not any(char.isspace() or char in SPECIAL for char in name)


def _name(name: str) -> str:
    return name if _is_plain(name) else json.dumps(name)


def _payload_name(name: str) -> str:
    # a bare `over` ends the list of tensors
    return json.dumps(name) if name == "over" else _name(name)


def _place(level: str, axis: str) -> str:
    if _is_plain(level + axis) and level and axis and "." not in level + axis:
        return f"{level}.{axis}"
    return f"{json.dumps(level)} {json.dumps(axis)}"


# ---- statements ------------------------------------------------------------------------------------


class _Arity(Enum):
    NONE = "no child"
    ONE = "one child"
    MANY = "at least one child"


Make: TypeAlias = Callable[[tuple[Node, ...]], Node]


@dataclass(slots=True)
class _Statement:
    """A parsed line: how many children its node takes, and the function that makes the node from them."""

    line: int
    indent: str
    head: str
    arity: _Arity
    make: Make | None
    body: list[_Statement] = field(default_factory=list)


def _statement(words: list[Word]) -> tuple[_Arity, Make]:
    """The node that a line describes. Raises SyntaxFault."""
    line = LineReader(words)
    head = line.take("a node")
    text = "" if head.quoted else head.text
    match text:
        case "for":
            result = _temporal(line)
        case "spread":
            result = _spatial(line)
        case "hold":
            result = _hold(line)
        case "compute":
            result = _compute(line)
        case "sequence":
            result = _sequence(line)
        case "overlap":
            result = _Arity.MANY, Overlap
        case "parallel":
            result = _parallel(line)
        case "pipeline":
            result = _pipeline(line)
        case _ if text in _COLLECTIVES:
            result = _collective(line, CollectiveKind(text))
        case _:
            raise SyntaxFault("a node of the mapping language", head, did_you_mean(head.text, _KEYWORDS))
    if line.next is not None:
        raise SyntaxFault("the end of the line", line.next, "one node per line")
    return result


def _compute(line: LineReader) -> tuple[_Arity, Make]:
    op = line.name("an op")
    if line.next is None:
        return _Arity.NONE, lambda _: Compute(op)
    if not line.sees("array"):
        near = did_you_mean(line.next.text, ["array"])
        remedy = near if near.startswith("did") else "write compute OP array DIM x DIM, or no more than the op"
        raise SyntaxFault("'array' or the end of the line", line.next, remedy)
    line.keyword("array")
    rows = _side(line, "rows")
    line.keyword("x")
    columns = _side(line, "columns")
    return _Arity.NONE, lambda _: Compute(op, (rows, columns))


def _side(line: LineReader, side: str) -> tuple[str, ...]:
    if line.sees(NO_DIM):
        line.keyword(NO_DIM)
        return ()
    return _group(line, f"a dim on the array's {side}")


def _temporal(line: LineReader) -> tuple[_Arity, Make]:
    dim, tile = line.loop("a dim")
    visible = line.sees("visible")
    if visible:
        line.keyword("visible")
    return _Arity.ONE, lambda body: Temporal(dim, tile, body[0], visible)


def _spatial(line: LineReader) -> tuple[_Arity, Make]:
    dim, tile = line.loop("a dim")
    line.keyword("over")
    level, axis = line.place()
    return _Arity.ONE, lambda body: Spatial(dim, tile, level, axis, body[0])


def _hold(line: LineReader) -> tuple[_Arity, Make]:
    memory, buffers = line.name("a memory"), 1
    if not line.sees(":"):
        count = line.take("':' or xBUFFERS")
        if count.quoted or not count.text.startswith("x"):
            raise SyntaxFault("':' or xBUFFERS", count, "write hold MEMORY: TENSOR ...")
        buffers = LineReader([Word(count.text[1:])]).number("a number of buffers after x")
    line.keyword(":")
    groups = [_group(line)]
    while line.next is not None:
        groups.append(_group(line))
    return _Arity.ONE, lambda body: Hold(memory, tuple(groups), body[0], buffers)


def _group(line: LineReader, what: str = "a tensor") -> tuple[str, ...]:
    names = [line.name(what)]
    while line.sees("|"):
        line.keyword("|")
        names.append(line.name(what))
    return tuple(names)


def _collective(line: LineReader, kind: CollectiveKind) -> tuple[_Arity, Make]:
    tensors: list[str] = []
    while not line.sees("over") or not tensors:
        if line.sees("over"):
            raise SyntaxFault("the name of a tensor", "'over'", f"write {kind} TENSOR ... over LEVEL.AXIS with ALGORITHM")
        if line.next is None:
            raise SyntaxFault("'over'", "the end of the line", f"write {kind} TENSOR ... over LEVEL.AXIS with ALGORITHM")
        tensors.append(line.name("a tensor"))
    line.keyword("over")
    level, axis = line.place()
    dim = ""
    if line.sees("to"):
        line.keyword("to")
        dim = line.name("a dim")
    line.keyword("with")
    algorithm = line.name("an algorithm")
    return _Arity.NONE, lambda _: Collective(kind, tuple(tensors), level, axis, algorithm, dim)


def _sequence(line: LineReader) -> tuple[_Arity, Make]:
    if line.next is None:
        return _Arity.MANY, Sequence
    if not line.sees("prefetch"):
        remedy = did_you_mean(line.next.text, ["prefetch"])
        raise SyntaxFault("'prefetch' or the end of the line", line.next, remedy)
    line.keyword("prefetch")
    return _Arity.MANY, lambda body: Sequence(body, prefetch=True)


def _parallel(line: LineReader) -> tuple[_Arity, Make]:
    line.keyword("over")
    level, axis = line.place()
    shares = line.shares()
    return _Arity.MANY, lambda body: Parallel(level, axis, shares, body)


def _pipeline(line: LineReader) -> tuple[_Arity, Make]:
    dim, tile = line.loop("a dim")
    line.keyword("over")
    level, axis = line.place()
    shares = line.shares()
    return _Arity.MANY, lambda body: Pipeline(dim, tile, level, axis, shares, body)


# ---- parsing ---------------------------------------------------------------------------------------


def parse(text: str, source: str = "<text>") -> Node:
    """Parse a tree that `to_text` printed or a person wrote.

    ``source`` names the text in messages (a file's name). Raises BadInput with every fault of the text, each at
    ``source:line``; a text over the limits on size, lines or depth is not parsed.

    >>> parse("for m by 4   # rows\\n  compute C")
    Temporal(dim='m', tile=4, body=Compute(op='C', array=()), visible=False)
    """
    return located(text, source)[0]


def located(text: str, source: str) -> tuple[Node, dict[tuple[int, ...], str]]:
    """The tree as `parse` reads it, and the position of each node by path: ``source:line``.

    >>> located("for m by 4\\n\\n  compute C", "mine.txt")[1]
    {(): 'mine.txt:1', (0,): 'mine.txt:3'}
    """
    lines = text.split("\n")
    _check_limits(text, len(lines), source)
    faults: list[Fault] = []
    roots: list[_Statement] = []
    above: list[_Statement] = []  # the statements that the next line may be a child of, outermost first
    for number, raw in enumerate(lines, start=1):
        statement = _read(raw.rstrip(), number, source, faults)
        if statement is None:
            continue
        while above and len(above[-1].indent) >= len(statement.indent):
            above.pop()
        if len(above) >= DEPTH_LIMIT:
            raise BadInput(Fault(f"{source}:{number}", f"at most {DEPTH_LIMIT} nested nodes", "more", "flatten the tree"))
        faults.extend(_misplaced(statement, above, roots, source))
        (above[-1].body if above else roots).append(statement)
        above.append(statement)
    if not roots:
        raise BadInput([*faults, Fault(f"{source}:1", "a mapping tree", "no node", "write at least one node")])
    faults.extend(fault for root in roots for fault in _miscounted(root, source))
    if faults:
        raise BadInput(sorted(faults, key=lambda fault: int(fault.where.rpartition(":")[2])))
    return _build(roots[0]), dict(_places(roots[0], (), source))


def _check_limits(text: str, lines: int, source: str) -> None:
    for what, found, limit in (("characters", len(text), SIZE_LIMIT), ("lines", lines, LINE_LIMIT)):
        if found > limit:
            raise BadInput(Fault(source, f"at most {limit} {what}", str(found), "a mapping is a short text; check the file"))


def _read(line: str, number: int, source: str, faults: list[Fault]) -> _Statement | None:
    """The statement of a line; None for a blank one. A faulty line still makes a statement, so that its children are parsed."""
    indent = line[: len(line) - len(line.lstrip())]
    words: list[Word] = []
    try:
        words = list(words_of(line))
        if not words:
            return None
        arity, make = _statement(words)
        return _Statement(number, indent, words[0].text, arity, make)
    except SyntaxFault as fault:
        faults.append(Fault(f"{source}:{number}", fault.expected, fault.got, fault.remedy))
        return _Statement(number, indent, words[0].text if words else "", _Arity.MANY, None)


def _misplaced(statement: _Statement, above: list[_Statement], roots: list[_Statement], source: str) -> Iterator[Fault]:
    where = f"{source}:{statement.line}"
    siblings = above[-1].body if above else roots
    if not above and siblings:
        yield Fault(where, "one root", "a second node that is not indented", "put both below one 'sequence', or indent this one")
    elif siblings and statement.indent != siblings[0].indent:
        line = siblings[0].line
        yield Fault(where, f"the indentation of line {line}", "another", "indent all children of a node alike")
    elif above and not statement.indent.startswith(above[-1].indent):
        yield Fault(where, f"the indentation of line {above[-1].line} and more", "another mix of tabs and spaces", "use spaces")


def _miscounted(statement: _Statement, source: str) -> Iterator[Fault]:
    where, found = f"{source}:{statement.line}", len(statement.body)
    arity = statement.arity
    if statement.make is not None:
        match arity:
            case _Arity.NONE if found:
                yield Fault(where, f"no child below '{statement.head}'", f"{found}", "move it out to the left")
            case _Arity.ONE if found > 1:
                second = f"{source}:{statement.body[1].line}"
                yield Fault(second, f"one child below '{statement.head}'", f"{found}", "put the children below a 'sequence'")
            case _Arity.ONE | _Arity.MANY if not found:
                yield Fault(where, f"{arity.value} below '{statement.head}'", "none", "indent what belongs to it")
            case _:
                pass
    for child in statement.body:
        yield from _miscounted(child, source)


def _places(statement: _Statement, path: tuple[int, ...], source: str) -> Iterator[tuple[tuple[int, ...], str]]:
    yield path, f"{source}:{statement.line}"
    for index, child in enumerate(statement.body):
        yield from _places(child, (*path, index), source)


def _build(statement: _Statement) -> Node:
    if statement.make is None:
        raise BadInput(Fault(f"line {statement.line}", "a node", "a faulty line"))
    return statement.make(tuple(_build(child) for child in statement.body))
