"""Settings of frameworks, written as text and read again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault

Setting = str | int | float | bool
TEXT_LIMIT = 2**16
"""Longest text of flags that is read [characters]."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A plan as settings of a ``framework`` with its ``version``: the settings by name in order (a value of True is a flag
    alone), the ``text`` to be used, and ``remarks`` on what it has no setting for, each a sentence."""

    framework: str
    version: str
    settings: Mapping[str, Setting]
    text: str
    remarks: tuple[str, ...]


def flag_text(settings: Mapping[str, Setting]) -> str:
    """Flags in the form ``--name value``, one a line, which a shell reads as one command.

    >>> print(flag_text({"--tensor-model-parallel-size": 8, "--sequence-parallel": True}))
    --tensor-model-parallel-size 8 \\
    --sequence-parallel
    """
    lines = [name if value is True else f"{name} {_quoted(value)}" for name, value in settings.items()]
    return " \\\n".join(lines)


def assignment_text(settings: Mapping[str, Setting], joint: str = " \\\n") -> str:
    """Settings in the form ``name=value``.

    >>> assignment_text({"model.context_parallel_size": 2, "model.sequence_parallel": True}, " ")
    'model.context_parallel_size=2 model.sequence_parallel=true'
    """
    return joint.join(f"{name}={_quoted(value)}" for name, value in settings.items())


def _word(value: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _quoted(value: Setting) -> str:
    word = _word(value)
    return word if re.fullmatch(r"[\w.,:-]+", word) else f"'{word}'"


_PIECE = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")
_FLAG = re.compile(r"--|-[A-Za-z]")  # a number below 0 is a value


def read_flags(text: str, where: str) -> dict[str, str]:
    """Settings from text of either form; comments from # on are skipped. A flag alone has the value "true".

    >>> read_flags("--a 8 \\\\\\n--b  # remark\\nmodel.c=2", "flags")
    {'--a': '8', '--b': 'true', 'model.c': '2'}

    Raises BadInput: text that is neither; a setting that occurs twice.
    """
    found: dict[str, str] = {}
    faults: list[Fault] = []
    for number, line in enumerate(text.splitlines(), 1):
        name = ""
        for piece in _PIECE.findall(re.sub(r"(^|\s)#.*", "", line).rstrip("\\ \t")):
            word = re.sub("['\"]", "", piece)
            key, equals, value = word.partition("=")
            if _FLAG.match(word) or equals:
                if key in found:
                    faults.append(Fault(f"{where}:{number}", "each setting once", f"{key[:60]!r} again", "remove one"))
                found[key] = value if equals else "true"
                name = "" if equals else key
            elif name:
                found[name], name = word, ""
            else:
                faults.append(Fault(f"{where}:{number}", "settings such as --name 8 or name=8", repr(word[:60])))
    if faults:
        raise BadInput(faults[:20])
    return found
