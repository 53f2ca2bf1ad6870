"""Writing files: whole or not at all, never over another by accident, and the same text for the same value."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from halley.errors import BadInput, InternalError
from halley.io.files.save import dumps, write_atomic


def complaint(call: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as caught:
        call()
    return str(caught.value)


def test_writing_is_whole_and_refuses_to_overwrite(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_atomic(file, "one µ\n")
    assert file.read_bytes() == "one µ\n".encode()
    assert complaint(lambda: write_atomic(file, "two")) == (
        f"{file}: expected a new file; got a file that exists; choose another name, or give --force to replace it"
    )
    assert file.read_text() == "one µ\n"
    file.chmod(0o640)
    write_atomic(file, "two", force=True)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two", 0o640)
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "result.json"
    write_atomic(file, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = f"{file}: expected a file that can be written; got No space left on device"
    assert complaint(lambda: write_atomic(file, "new", force=True)) == message
    assert file.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


def test_places_that_take_no_file(tmp_path: Path) -> None:
    for place in (str(tmp_path), "/dev/null"):
        message = f"{place}: expected a path to a file; got a folder or a device"
        assert complaint(lambda place=place: write_atomic(place, "x", force=True)) == message  # type: ignore[misc]
    assert "expected a folder that exists" in complaint(lambda: write_atomic(tmp_path / "no" / "x", "x"))
    assert "expected text that UTF-8 can hold" in complaint(lambda: write_atomic(tmp_path / "x", "\ud800"))
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    write_atomic(link, "new", force=True)
    assert link.is_symlink()
    assert file.read_text() == "new"


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Point:
    y: float
    x: int


def test_json_is_the_same_for_the_same_value() -> None:
    arrays = [np.float64(0.5), np.int64(3)]
    value = {"b": Point(0.1, 2), "a": (1, True, None), Colour.RED: {"z", "y"}, "n": arrays, "p": Path("a/b")}
    text = dumps(value)
    assert text == dumps(dict(reversed(value.items())))
    assert text.endswith("}\n")
    assert json.loads(text) == {"a": [1, True, None], "b": {"x": 2, "y": 0.1}, "red": ["y", "z"], "n": [0.5, 3], "p": "a/b"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1.0, float("nan")]}, r"value\.a\[1\]: expected a finite number; got nan"),
        ({"a": object()}, r"value\.a: expected a value that JSON can hold; got a object"),
        ({1: 2}, r"value: expected keys that are text; got 1"),
    ],
)
def test_what_json_cannot_hold_is_our_fault(value: object, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        dumps(value)
    assert re.fullmatch(message, str(caught.value))


@dataclass(frozen=True)
class _WithCache:
    size: int
    _known: dict[int, object]


def test_caches_are_not_saved() -> None:
    assert json.loads(dumps(_WithCache(3, {1: object()}))) == {"size": 3}
