"""Digests of values: equal for equal figures, whatever the values print."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any


def digest(value: object) -> str:
    """Of all that a value consists of, as hexadecimal text; fields that a record leaves out of its ``repr`` are caches.

    >>> from halley.io.chips.load import load_chip
    >>> digest(load_chip("edge")) == digest(load_chip("edge")), digest(load_chip("edge")) == digest(load_chip("cloud"))
    (True, False)
    """
    return hashlib.sha256(full_text(value).encode()).hexdigest()


def full_text(value: Any) -> str:
    """All figures, also where the value's own ``repr`` is a summary."""
    kind = type(value)
    if is_dataclass(kind):
        return (
            f"{kind.__qualname__}({', '.join(f'{f.name}={full_text(getattr(value, f.name))}' for f in fields(value) if f.repr)})"
        )
    if kind is tuple:
        return f"({', '.join(map(full_text, value))}{',' if len(value) == 1 else ''})"
    if kind is list:
        return f"[{', '.join(map(full_text, value))}]"
    if kind is dict:
        return f"{{{', '.join(f'{full_text(key)}: {full_text(item)}' for key, item in value.items())}}}"
    if kind is MappingProxyType:
        return f"mappingproxy({full_text(dict(value))})"
    return repr(value)
