"""JSON that others wrote, read within bounds, with the line of every key."""

from __future__ import annotations

import json
import re

from halley.errors import BadInput, Fault
from halley.io.files.text import DEPTH_LIMIT, Document, KeyPath

NUMBER_LIMIT = 300
"""Most digits of a whole number; longer ones are read as infinite."""

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\],:\n]')


def read_json(text: str, name: str) -> Document:
    """The document in the text; ``name`` is the file's name for messages. NaN and Infinity, which some writers leave in,
    are numbers.

    >>> document = read_json('{"a": 1,\\n "b": [{"name": "x"}]}', "config.json")
    >>> document.data, document.where(("b", 0, "name"))
    ({'a': 1, 'b': [{'name': 'x'}]}, 'config.json:2: b.x.name')

    Raises BadInput: no JSON; nested too deeply; every duplicate key.
    """
    lines, faults = _lines(text, name)
    if faults:
        raise BadInput(faults)
    try:
        data = json.loads(text, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise BadInput(Fault(f"{name}:{error.lineno}", "JSON", error.msg, f"look at column {error.colno}")) from None
    return Document(name, data, lines)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= NUMBER_LIMIT else float("inf")


def _lines(text: str, name: str) -> tuple[dict[KeyPath, int], list[Fault]]:
    """Lines by path, and duplicate keys. Text that is no JSON gives some lines; the parser then says what is wrong."""
    lines: dict[KeyPath, int] = {(): 1}
    faults: list[Fault] = []
    path: list[str | int] = []  # of the value that comes next, without the last key of an open map
    maps: list[bool] = []
    word, line = "", 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            if len(maps) >= DEPTH_LIMIT:
                raise BadInput(Fault(f"{name}:{line}", f"at most {DEPTH_LIMIT} levels of nesting", "more"))
            maps.append(token == "{")
            path.append("" if token == "{" else 0)
            lines.setdefault(tuple(path), line)
        elif token in "}]":
            if maps:
                maps.pop()
                path.pop()
        elif token == ",":
            if maps and not maps[-1] and isinstance(path[-1], int):
                path[-1] += 1
                lines[tuple(path)] = line
        elif token == ":" and maps and maps[-1]:
            path[-1] = _unquoted(word)
            place = tuple(path)
            if place in lines and path[-1] != "":
                where = f"{name}:{line}: {'.'.join(map(str, place))}"
                faults.append(Fault(where, "each key once", f"it again, first on line {lines[place]}", "remove one"))
            lines.setdefault(place, line)
        word = token
    return lines, faults


def _unquoted(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word
