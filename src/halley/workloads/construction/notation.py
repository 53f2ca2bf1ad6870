"""Parser of user graphs, one operation per line, into `Statement`s. No text is executed as code.

    S[m,n] = A[m,k] * B[k,n]              # a sum of products over k, which the left side lacks
    O[f,p] = I[c,2p+r-1] * W[f,c,r]       # I is read at sums of dims: a convolution with stride 2 and padding 1
    I[c,h]                                # I has the dims c and h; without this line, no position may lie before its first
    P[m,n] = divide(E[m,n], z[m])         # an elementwise function; + - * / are add, subtract, mul, divide
    q[m]:fp32 = sum(square(S[m,n]))       # a reduction; ":fp32" is the element type of that tensor
    mx[m], z[m] = softmax(S[m,n])         # a reduction with a state of two tensors

    line    = ref | ref {"," ref} "=" value
    value   = term [("+" | "-" | "/") term] | term {"*" term}
    term    = ref | name "(" argument {"," argument} ")"
    argument = term [("+" | "-" | "*" | "/") term] | name "=" number
    ref     = name "[" place {"," place} "]" [":" name]
    place   = ["-"] part {("+" | "-") part}
    part    = [whole number ["*"]] name | whole number

`#` starts a comment. Faults are reported with line and column, for all lines at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from halley.ir.affine import AffineIndex

LINE_LIMIT = 1000
"""Longest line [characters]."""
LINES_LIMIT = 1000
"""Largest number of lines of a graph."""
LONGEST_NUMBER = 12
"""Most digits of a coefficient."""
NESTING_LIMIT = 4
"""Deepest nesting of functions that is parsed; `halley.workloads.user` allows less."""

INFIX = {"+": "add", "-": "subtract", "*": "mul", "/": "divide"}
"""Functions that are written between their arguments."""

_TOKEN = re.compile(
    r"(?P<space>\s+|#.*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<sign>[\[\](),=:*/+-])|(?P<other>.)"
)


class LineFault(NamedTuple):
    """A fault at a line and column, both counted from 1."""

    line: int
    column: int
    expected: str
    got: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A position along a dim of a tensor: the sum of (dim, coefficient) ``terms``, and a constant."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    @property
    def dim(self) -> str:
        """The dim that is the position itself; "" for a sum."""
        return self.terms[0][0] if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 else ""

    def __str__(self) -> str:
        return str(AffineIndex("", self.terms, self.constant))


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor with its places: ``S[m,n]``. ``dtype`` is "" where the text names none."""

    name: str
    places: tuple[Place, ...]
    dtype: str
    column: int

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims of all places, each once."""
        return tuple(dict.fromkeys(dim for place in self.places for dim, _ in place.terms))

    @property
    def plain(self) -> bool:
        """Whether each place is a dim of its own."""
        return all(place.dim for place in self.places) and len(self.dims) == len(self.places)

    @property
    def text(self) -> str:
        return ",".join(map(str, self.places))


@dataclass(frozen=True, slots=True)
class Call:
    """A function with arguments and constants: ``scale(S[m,n], scale=0.125)``. ``infix``: written with ``+ - * /``."""

    name: str
    arguments: tuple[Term, ...]
    constants: tuple[tuple[str, float], ...]
    column: int
    infix: bool = False


Term: TypeAlias = Ref | Call


@dataclass(frozen=True, slots=True)
class Statement:
    """One line: its result tensors and the expression that computes them; None if the line only says what dims a tensor has."""

    line: int
    targets: tuple[Ref, ...]
    value: Term | None


class _Wrong(Exception):
    """The first fault of a line; ends its parsing."""

    def __init__(self, column: int, expected: str, got: str, remedy: str = "") -> None:
        super().__init__(expected)
        self.column, self.expected, self.got, self.remedy = column, expected, got, remedy


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


def read(lines: Sequence[str]) -> tuple[list[Statement], list[LineFault]]:
    """The statements of all valid lines, and the faults of the others; empty lines and comments are skipped.

    >>> statements, misfits = read(["C[m,n] = A[m,k] * B[k,n]  # a GEMM"])
    >>> statements[0].targets[0].dims, statements[0].value.name, misfits
    (('m', 'n'), 'mul', [])
    """
    if len(lines) > LINES_LIMIT:
        return [], [LineFault(LINES_LIMIT + 1, 1, f"at most {LINES_LIMIT} lines", f"{len(lines)}")]
    statements, misfits = [], []
    for number, line in enumerate(lines, 1):
        try:
            tokens = _tokens(line)
            if len(tokens) > 1:
                statements.append(_Reader(tokens).statement(number))
        except _Wrong as wrong:
            misfits.append(LineFault(number, wrong.column, wrong.expected, wrong.got, wrong.remedy))
    return statements, misfits


def _tokens(line: str) -> list[_Token]:
    if len(line) > LINE_LIMIT:
        raise _Wrong(LINE_LIMIT + 1, f"at most {LINE_LIMIT} characters a line", f"{len(line)}")
    tokens = []
    for match in _TOKEN.finditer(line):
        kind, column = str(match.lastgroup), match.start() + 1
        if kind == "other":
            raise _Wrong(column, "names, numbers and [ ] ( ) , = : + - * /", repr(match[0]))
        if kind != "space":
            tokens.append(_Token(kind, match[0], column))
    return [*tokens, _Token("end", "", len(line) + 1)]


class _Reader:
    """Recursive-descent parser of one line; the grammar is in the module's docstring."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.place = 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        token = self.now
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def wrong(self, expected: str, remedy: str = "") -> _Wrong:
        return _Wrong(self.now.column, expected, repr(self.now.text) if self.now.text else "the end of the line", remedy)

    def sign(self, text: str, what: str) -> None:
        if self.now.text != text:
            raise self.wrong(what)
        self.take()

    def name(self, what: str) -> _Token:
        if self.now.kind != "name":
            raise self.wrong(what)
        return self.take()

    def statement(self, line: int) -> Statement:
        targets = [self.ref(self.name("the name of a tensor"))]
        while self.now.text == ",":
            self.take()
            targets.append(self.ref(self.name("the name of a tensor")))
        if self.now.kind == "end" and len(targets) == 1:
            return Statement(line, tuple(targets), None)
        self.sign("=", "'='")
        value = self.expression(0)
        if self.now.kind != "end":
            more = "one operation a line; give the inner result a line of its own" if self.now.text in INFIX else ""
            raise self.wrong("the end of the line", more)
        return Statement(line, tuple(targets), value)

    def expression(self, depth: int) -> Term:
        first = self.term(depth)
        if self.now.text not in INFIX:
            return first
        sign = self.take()
        arguments = [first, self.term(depth)]
        while sign.text == "*" and self.now.text == "*":
            self.take()
            arguments.append(self.term(depth))
        return Call(INFIX[sign.text], tuple(arguments), (), sign.column, infix=True)

    def term(self, depth: int) -> Term:
        name = self.name("a tensor such as A[m,k], or a function")
        if self.now.text == "[":
            return self.ref(name)
        if self.now.text != "(":
            raise self.wrong("'[' and dims, or '(' and arguments")
        if depth >= NESTING_LIMIT:
            raise self.wrong(f"at most {NESTING_LIMIT} functions in each other", "give the inner result a line of its own")
        self.take()
        arguments: list[Term] = []
        constants: list[tuple[str, float]] = []
        while True:
            if self.now.kind == "name" and self.tokens[self.place + 1].text == "=":
                key = self.take()
                self.take()
                if key.text in dict(constants):
                    raise _Wrong(key.column, "each constant once", f"{key.text!r} again")
                constants.append((key.text, self.number()))
            else:
                arguments.append(self.expression(depth + 1))
            if self.now.text != ",":
                break
            self.take()
        self.sign(")", "',' or ')'")
        return Call(name.text, tuple(arguments), tuple(constants), name.column)

    def number(self) -> float:
        negative = self.now.text == "-"
        if self.now.text in ("-", "+"):
            self.take()
        column = self.now.column
        if self.now.kind != "number":
            raise self.wrong("a number")
        value = float(self.take().text)
        if value == float("inf"):
            raise _Wrong(column, "a finite number", "one that is too large")
        return -value if negative else value

    def ref(self, name: _Token) -> Ref:
        self.sign("[", "'[' and the dims of the tensor")
        places = [self.position()]
        while self.now.text == ",":
            self.take()
            places.append(self.position())
        self.sign("]", "',' or ']'")
        dtype = ""
        if self.now.text == ":":
            self.take()
            dtype = self.name("an element type").text
        return Ref(name.text, tuple(places), dtype, name.column)

    def position(self) -> Place:
        terms: dict[str, int] = {}
        constant, column = 0, self.now.column
        sign = -1 if self.now.text == "-" else 1
        if sign < 0:
            self.take()
        while True:
            count, numbered = 1, self.now.kind == "number"
            if numbered:
                if not self.now.text.isdigit() or len(self.now.text) > LONGEST_NUMBER:
                    raise self.wrong("the name of a dim, or a whole number", "between a number and a name such as e1 write *")
                count = int(self.take().text)
            if numbered and self.now.text == "*":
                self.take()
                numbered = False
            if self.now.kind == "name" or not numbered:
                dim = self.name("the name of a dim").text
                terms[dim] = terms.get(dim, 0) + sign * count
            else:
                constant += sign * count
            if self.now.text not in ("+", "-"):
                break
            sign = -1 if self.take().text == "-" else 1
        kept = tuple((dim, count) for dim, count in terms.items() if count)
        if not kept:
            raise _Wrong(column, "a sum with a dim", "a number alone")
        return Place(kept, constant)
