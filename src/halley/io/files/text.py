"""Text files, read within bounds, and a strict subset of YAML that remembers the line of every key.

The subset has what configuration needs: maps with text keys, lists, text, whole and decimal numbers, true, false, null. It
refuses anchors, aliases, tags, several documents and duplicate keys, so that a small file cannot unfold into a large one, and a
typo cannot win over the key that it duplicates. Words such as `yes` or `0777` are text, not a flag or an octal number.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from halley.errors import BadInput, Fault

SIZE_LIMIT = 2**20
"""Largest file that is read [B]."""
DEPTH_LIMIT = 20
"""Deepest nesting of maps and lists."""
VALUE_LIMIT = 20_000
"""Most keys and values in one file."""

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a value is: keys of maps and positions in lists, from the root."""

_WHOLE = re.compile(r"[-+]?[0-9]{1,300}")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


class DocumentFault(NamedTuple):
    """Something wrong in a document: at the value of ``path``, or at ``key`` in it where that is not in the file."""

    path: KeyPath
    expected: str
    got: str
    remedy: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says: plain data, the line of each value's key, and the file's name for messages."""

    name: str
    data: object
    lines: Mapping[KeyPath, int]

    def at(self, path: KeyPath) -> object:
        """The value there; None where there is none."""
        value = self.data
        for part in path:
            value = _child(value, part)
        return value

    def line(self, path: KeyPath) -> int:
        """Line of the value, or of the innermost map or list around it that is in the file."""
        return next(self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines)

    def where(self, path: KeyPath, key: str = "") -> str:
        """``file:line: dotted.path``; items of a list are called by their `name`."""
        words = [*self.words(path), *([key] if key else [])]
        return f"{self.name}:{self.line(path)}" + (f": {'.'.join(words)}" if words else "")

    def faults(self, findings: Iterable[DocumentFault]) -> list[Fault]:
        """The findings as faults, in the order of the file's lines."""
        ordered = sorted(findings, key=lambda finding: self.line(finding.path))
        return [Fault(self.where(item.path, item.key), item.expected, item.got, item.remedy) for item in ordered]

    def words(self, path: KeyPath) -> list[str]:
        """The parts of the dotted path."""
        value, words = self.data, []
        for part in path:
            value = _child(value, part)
            name = value.get("name") if isinstance(value, dict) else None
            words.append(name if isinstance(part, int) and isinstance(name, str) else str(part))
        return words


def _child(value: object, part: str | int) -> object:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def read_text_bounded(path: str | Path, limit: int = SIZE_LIMIT) -> str:
    """The UTF-8 text of a regular file of at most ``limit`` bytes; the size is checked before anything is read.

    Raises BadInput: no such file, a folder or device, not readable, too large, not UTF-8.
    """
    where = str(path)
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            got = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"
            raise BadInput(Fault(where, "a file", got))
        if status.st_size > limit:
            raise BadInput(Fault(where, f"a file of at most {limit} bytes", f"{status.st_size} bytes"))
        with open(path, "rb") as stream:
            content = stream.read(limit + 1)
    except FileNotFoundError:
        raise BadInput(Fault(where, "a file", "no such file", "check the path")) from None
    except TypeError:
        raise BadInput(Fault("file", "a path", where)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise BadInput(Fault(where, "a file that can be read", getattr(error, "strerror", None) or str(error))) from None
    if len(content) > limit:
        raise BadInput(Fault(where, f"a file of at most {limit} bytes", "more"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got = f"the byte 0x{content[error.start]:02x}"
        raise BadInput(Fault(f"{where}:{line}", "UTF-8 text", got, "save the file as UTF-8")) from None


def read_yaml(text: str, name: str) -> Document:
    """The document in the text; ``name`` is the file's name for messages.

    >>> document = read_yaml("clock: 1 GHz\\nlevels:\\n  - name: dram\\n", "chip.yaml")
    >>> document.data, document.where(("levels", 0, "name"))
    ({'clock': '1 GHz', 'levels': [{'name': 'dram'}]}, 'chip.yaml:3: levels.dram.name')

    Raises BadInput: not YAML, or outside the subset; every duplicate key is reported.
    """
    reader = _Reader(name)
    try:
        data = reader.document(yaml.parse(text, Loader=yaml.BaseLoader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadInput(Fault(f"{name}:{line}", "printable text", f"the character U+{_code(error.character):04X}")) from None
    except yaml.MarkedYAMLError as error:
        raise BadInput(_syntax_fault(name, error)) from None
    if reader.faults:
        raise BadInput(reader.faults)
    return Document(name, data, reader.lines)


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


_TOKENS = {
    "<block end>": "the next key or item, indented as those before it",
    "<block mapping start>": "a key that is indented deeper",
    "<block sequence start>": "a list that is indented deeper",
    "<scalar>": "text",
    "?": "a key",
    "-": "a list item",
    "<document start>": "the end of the file",
    "<stream end>": "the end of the file",
}
"""What the YAML reader calls parts of a file, in words."""


def _syntax_fault(name: str, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}" if mark else name
    problem = error.problem or error.context or "text that cannot be read"
    if "'\\t'" in problem:
        return Fault(where, "spaces", "a tab", "indent with spaces")
    remedy = f"look at column {mark.column + 1}" if mark else ""
    if problem.startswith("mapping values are not allowed"):
        return Fault(where, "one key on a line, and its value", "another ': '", f"{remedy}, and put such text in quotes")
    if asked := re.fullmatch(r"expected (.+), but (?:found|got) (.+)", problem):
        expected, got = (_TOKENS.get(word.strip("'"), word) for word in asked.groups())
        return Fault(where, expected, got, remedy)
    return Fault(where, "YAML", problem.removeprefix("found "), remedy)


@dataclass(slots=True)
class _Reader:
    """Builds plain data from YAML events, lazily, so that a limit stops the parser too."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    values: int = 0

    def document(self, events: Iterator[Any]) -> object:
        self.lines[()] = 1
        next(events)  # the start of the stream
        start = next(events)
        if isinstance(start, yaml.StreamEndEvent):
            raise BadInput(Fault(self.name, "YAML with at least one key", "an empty file"))
        data = self.value(next(events), events, ())
        next(events)  # the end of the document
        extra = next(events)
        if not isinstance(extra, yaml.StreamEndEvent):
            raise self.refusal(extra, "one document", "a second one", "remove the line ---")
        return data

    def refusal(self, event: Any, expected: str, got: str, remedy: str = "") -> BadInput:
        return BadInput(Fault(f"{self.name}:{_line(event)}", expected, got, remedy))

    def value(self, event: Any, events: Iterator[Any], path: KeyPath) -> object:
        self.values += 1
        if self.values > VALUE_LIMIT:
            raise self.refusal(event, f"at most {VALUE_LIMIT} keys and values", "more")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = f"*{event.anchor}" if isinstance(event, yaml.AliasEvent) else f"&{event.anchor}"
            raise self.refusal(event, "plain YAML", f"the anchor or alias {_short(sign)}", "write the value out")
        if event.tag is not None and event.tag != "!":
            raise self.refusal(event, "plain YAML", f"the tag {_short(event.tag)}", "remove it")
        if len(path) > DEPTH_LIMIT:
            raise self.refusal(event, f"at most {DEPTH_LIMIT} levels of nesting", "more")
        self.lines.setdefault(path, _line(event))
        if isinstance(event, yaml.MappingStartEvent):
            return self.map(events, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.list(events, path)
        return _scalar(event.value) if event.style is None else event.value

    def map(self, events: Iterator[Any], path: KeyPath) -> dict[str, object]:
        found: dict[str, object] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
                raise self.refusal(event, "a key that is text", "a map, a list, an anchor or a tag as a key")
            key = event.value
            inner = (*path, key)
            if key in found:
                where = f"{self.name}:{_line(event)}: {_short('.'.join(map(str, inner)))}"
                self.faults.append(Fault(where, "each key once", f"it again, first on line {self.lines[inner]}", "remove one"))
                inner = (*path, key, self.values)  # keep the first one's lines
            self.lines[inner] = _line(event)
            value = self.value(next(events), events, inner)
            found.setdefault(key, value)
        return found

    def list(self, events: Iterator[Any], path: KeyPath) -> list[object]:
        found: list[object] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            found.append(self.value(event, events, (*path, len(found))))
        return found


def _line(event: Any) -> int:
    """The line that an event starts on, counted from 1 (the parser's events always have a mark; its type stubs doubt it)."""
    line: int = event.start_mark.line
    return line + 1


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _scalar(text: str) -> object:
    """A plain scalar by the core schema of YAML 1.2, without octal, hexadecimal and not-finite numbers."""
    if text in ("", "~", "null"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text) and not re.match(r"[-+]?0[0-9]", text):
        return int(text)
    if _DECIMAL.fullmatch(text) and len(text) <= 300 and not re.match(r"[-+]?0[0-9]", text):
        number = float(text)
        return text if number in (float("inf"), float("-inf")) else number
    return text
