"""Tokens of one line of a mapping's text, and a reader that consumes them from left to right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from halley.errors import did_you_mean

SPECIAL = '":|#'
"""Characters that end a bare word."""
NUMBER_LIMIT = 10**18
"""Largest tile, share or number of buffers."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    quoted: bool = False

    def __str__(self) -> str:
        return repr(self.text)


_QUOTED_CHARACTERS = 80
"""Most characters of a word in a message."""


class SyntaxFault(Exception):
    """The first syntax fault of a line."""

    def __init__(self, expected: str, got: object, remedy: str = "") -> None:
        super().__init__(expected)
        found = str(got)
        self.expected, self.remedy = expected, remedy
        self.got = found if len(found) <= _QUOTED_CHARACTERS else f"{found[: _QUOTED_CHARACTERS - 3]}..."


def words_of(line: str) -> Iterator[Word]:
    """Split a line into bare words, quoted names and the marks ``:`` and ``|``; a comment ends it."""
    at = 0
    while at < len(line):
        char = line[at]
        if char == "#":
            return
        if char.isspace():
            at += 1
        elif char == '"':
            name, at = _quoted(line, at)
            yield Word(name, quoted=True)
        elif char in ":|":
            yield Word(char)
            at += 1
        else:
            end = at
            while end < len(line) and not line[end].isspace() and line[end] not in SPECIAL:
                end += 1
            yield Word(line[at:end])
            at = end


def _quoted(line: str, at: int) -> tuple[str, int]:
    try:
        name, end = json.JSONDecoder().raw_decode(line, at)
    except json.JSONDecodeError as error:
        raise SyntaxFault("a name in quotes", line[at : at + 20], "close the quotes; escape as in JSON") from error
    return str(name), end


class LineReader:
    """Reads the words of one line from left to right. All its readers raise SyntaxFault."""

    def __init__(self, words: list[Word]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> Word | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def sees(self, text: str) -> bool:
        return self.next == Word(text)

    def take(self, expected: str) -> Word:
        word = self.next
        if word is None:
            raise SyntaxFault(expected, "the end of the line")
        self.at += 1
        return word

    def keyword(self, text: str) -> None:
        word = self.take(repr(text))
        if word != Word(text):
            near = did_you_mean(word.text, [text])
            raise SyntaxFault(repr(text), word, near if near.startswith("did") else f"insert {text!r} here")

    def name(self, what: str) -> str:
        word = self.take(f"the name of {what}")
        if not word.quoted and word.text in SPECIAL:
            raise SyntaxFault(f"the name of {what}", word)
        return word.text

    def number(self, what: str) -> int:
        word = self.take(what)
        digits = word.text if word.text.isascii() and word.text.isdigit() and not word.quoted else "0"
        if len(digits) > len(str(NUMBER_LIMIT)) or not 1 <= int(digits) <= NUMBER_LIMIT:
            raise SyntaxFault(f"{what}, a whole number from 1 to {NUMBER_LIMIT:.0e}", word)
        return int(digits)

    def place(self) -> tuple[str, str]:
        word = self.take("LEVEL.AXIS")
        if word.quoted:
            return word.text, self.name("an axis")
        level, dot, axis = word.text.partition(".")
        if not (level and dot and axis) or "." in axis:
            raise SyntaxFault("LEVEL.AXIS", word, 'names with a dot are written "level" "axis"')
        return level, axis

    def shares(self) -> tuple[int, ...]:
        self.keyword("shares")
        found = [self.number("a share")]
        while self.next is not None:
            found.append(self.number("a share"))
        return tuple(found)

    def loop(self, what: str) -> tuple[str, int]:
        dim = self.name(what)
        self.keyword("by")
        return dim, self.number("a tile")
