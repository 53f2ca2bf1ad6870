"""What a name or a path leads to: a file that ships with Halley, or the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from halley.errors import BadInput
from halley.io.files.text import read_text_bounded
from halley.library import Shelf


class Found(NamedTuple):
    """The text of a file, its name for messages, and whether it ships with Halley (then every number must have a source)."""

    text: str
    name: str
    shipped: bool


def found(shelf: Shelf, reference: str | Path) -> Found:
    """The file of that name, if it is on the shelf, else that at the path.

    >>> from halley.library import CHIPS
    >>> found(CHIPS, "edge")[1:]
    ('edge.yaml', True)

    Raises BadInput: neither a shipped name nor a file that can be read.
    """
    name = str(reference)
    if name in shelf.names():
        return Found(shelf.text(name), f"{name}.yaml", True)
    if not is_path(reference):
        raise BadInput(shelf.unknown(name))
    return Found(read_text_bounded(reference), name, False)


def is_path(reference: str | Path) -> bool:
    """Whether it is written as a path, not as a name.

    >>> is_path("edge"), is_path("edge.yaml"), is_path("chips/edge")
    (False, True, True)
    """
    text = str(reference)
    return isinstance(reference, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml"))
