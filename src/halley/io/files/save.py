"""Writing files: whole or not at all, and the same bytes for the same value."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import secrets
from collections.abc import Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault, InternalError


def write_atomic(path: str | Path, text: str | bytes, force: bool = False) -> None:
    """Write the text as UTF-8, or the bytes, so that the file is at every moment either as before or complete.

    Written to a new file in the same folder, which is then renamed. ``force`` allows an existing file to be replaced.

    Raises BadInput: the file exists and ``force`` is not set; the folder is missing or not writable; the path is no regular file.
    """
    where, target = str(path), target_of(path)
    content = text if isinstance(text, bytes) else _encoded(where, text)
    try:
        draft = _draft_of(target)
        try:
            _write(draft, content)
            _take_name(draft, target, where, force)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(where, error) from None


def write_numbered(path: str | Path, text: str | bytes) -> Path:
    """Write to the path, or where it is taken, to the first of ``name-2.json``, ``name-3.json``, ... that is free; the path that
    was written. Of several writers each has a file of its own. Raises BadInput: as `write_atomic`."""
    path = Path(path)
    for number in itertools.count(1):
        target = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        if os.path.lexists(target):
            continue
        try:
            write_atomic(target, text)
            return target
        except BadInput:
            if not os.path.lexists(target):  # otherwise another writer took the name in between
                raise
    raise AssertionError("there is always a next number")


def check_target(path: str | Path) -> None:
    """Check that a file can be written at a path, by making an empty one beside it.

    Raises BadInput: the folder is missing or not writable; the path is no regular file, or its name is not allowed.
    """
    target = target_of(path)
    draft = _draft_of(target)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)  # a name that is too long
        try:
            _write(draft, b"")
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(str(path), error) from None


def target_of(path: str | Path) -> Path:
    """The file that is written at a path: through a symbolic link the file is replaced, not the link.

    Raises BadInput: the folder is missing; the path is no regular file.
    """
    where = str(path)
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise BadInput(Fault(where, "a path to a file", "a folder or a device"))
        if not target.parent.is_dir():
            raise BadInput(Fault(where, "a folder that exists", f"no folder {target.parent}", "create it"))
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise _unwritable(where, error) from None
    return target


def _draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")


def _unwritable(where: str, error: OSError | ValueError) -> BadInput:
    return BadInput(Fault(where, "a file that can be written", getattr(error, "strerror", None) or str(error)))


def _encoded(where: str, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(Fault(where, "text that UTF-8 can hold", f"the character U+{ord(text[error.start]):04X}")) from None


def _write(draft: Path, content: bytes) -> None:
    # not `tempfile`: its files are private to the user, where a result should have the usual permissions
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with open(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _take_name(draft: Path, target: Path, where: str, force: bool) -> None:
    exists = BadInput(Fault(where, "a new file", "a file that exists", "choose another name, or give --force to replace it"))
    if force:
        with contextlib.suppress(FileNotFoundError):
            draft.chmod(target.stat().st_mode & 0o777)
        os.replace(draft, target)
        return
    try:
        os.link(draft, target)  # unlike a check and a rename, this cannot overwrite a file that appears in between
    except FileExistsError:
        raise exists from None
    except OSError:  # a file system without hard links
        if target.exists():
            raise exists from None
        os.replace(draft, target)


def dumps(value: object) -> str:
    """JSON with sorted keys and a final newline; equal values give equal text.

    Takes what Halley's values are made of: numbers, text, enums, dataclasses, maps with text keys, sequences, sets (sorted),
    paths and NumPy scalars and arrays.

    >>> print(dumps({"b": (1, 2.5), "a": None}), end="")
    {
      "a": null,
      "b": [
        1,
        2.5
      ]
    }

    Raises InternalError: a value of another type, a number that is not finite, or a map with keys that are no text.
    """
    return json.dumps(_plain(value, "value"), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any, where: str) -> Any:
    match value:
        case Enum():
            return _plain(value.value, where)
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise InternalError(Fault(where, "a finite number", repr(value)))
            return float(value)
        case Mapping():
            return {_key(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
        case Set():
            return sorted((_plain(item, where) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        case Path():
            return value.as_posix()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [item.name for item in dataclasses.fields(value) if not item.name.startswith("_")]  # the others are caches
        return {name: _plain(getattr(value, name), f"{where}.{name}") for name in names}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist(), where)
    raise InternalError(Fault(where, "a value that JSON can hold", f"a {type(value).__name__}"))


def _key(key: object, where: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise InternalError(Fault(where, "keys that are text", repr(key)))
    return key
