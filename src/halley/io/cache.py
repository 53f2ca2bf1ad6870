"""Kernels that were searched on chips, kept between runs in one SQLite file.

Several processes may use the file at once, and it survives the kill of any of them: each kernel is one transaction. Kernels of
another version of the model (the source of formulas, rules and search, without docstrings) are not used; `KernelCache.clear`
removes all of them.
Files of others may be read beside it and are never written (`SharedKernels`).
"""

from __future__ import annotations

import ast
import hashlib
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import halley
from halley.errors import BadInput, Fault
from halley.ir.digest import digest
from halley.ir.hardware import Chip
from halley.kernels.groups import GroupShape
from halley.kernels.searched import AttentionShape, KernelCost, KernelShape, Product

FOLDER_VARIABLE = "HALLEY_CACHE"
"""Environment variable that names the folder of the file; empty: nothing is kept."""

SHARED_VARIABLE = "HALLEY_CACHE_SHARED"
"""Environment variable that names folders with files of others, separated as in PATH: they are read and never written."""

MODEL = ("cost", "formulas", "ir", "mapping", "optim", "rewrite", "workloads")
"""The packages on which the time of a searched kernel depends."""

FILE = "products.sqlite"
"""Name of the file."""

LOCK_TIMEOUT = 60.0
"""How long a process waits for another one that writes [s]."""

TABLES: Mapping[str, type[KernelShape]] = {"products": Product, "attention": AttentionShape, "groups": GroupShape}
"""The tables of the file, and what each keeps."""


class Kept(NamedTuple):
    """Kernels kept of a chip: the ``name`` that it had, whether they are of this version of the model, their number."""

    name: str
    current: bool
    kernels: int


class KernelCache:
    """A `halley.kernels.searched.KernelStore` in a file.

    >>> import tempfile
    >>> from halley.io.chips.load import load_chip
    >>> cache, small = KernelCache(Path(tempfile.mkdtemp()) / "products.sqlite"), Product(8, 8, 8, 1, "bf16", "bf16")
    >>> cache.add(load_chip("edge"), small, KernelCost(1e-6, "compute gemm"))
    >>> cache.costs(load_chip("edge"))[small].time, len(cache.costs(load_chip("cloud"))), cache.kept()
    (1e-06, 0, [Kept(name='edge', current=True, kernels=1)])
    """

    def __init__(self, path: Path, remedy: str = f"delete the file, or set {FOLDER_VARIABLE} to another folder") -> None:
        self.path, self.remedy = path, remedy

    def costs(self, chip: Chip) -> Mapping[KernelShape, KernelCost]:
        """All kernels kept of a chip under this version of the model. Raises BadInput: the file cannot be read, or there is a
        file in place of its folder."""
        if not self._exists():
            return {}
        found: dict[KernelShape, KernelCost] = {}
        with self._open(write=False) as base:
            for table in _tables(base):
                kind = TABLES[table]
                asked = f"select {', '.join(kind._fields)}, time, mapping from {table} where chip = ? and model = ?"
                for row in base.execute(asked, (_chip_key(chip), model_key())).fetchall():
                    found[_shape(kind, row[:-2])] = KernelCost(*row[-2:])
        return found

    def add(self, chip: Chip, shape: KernelShape, cost: KernelCost) -> None:
        """Keeps the cost of a kernel; of two processes that found it, the later one. A file that is read only stays as
        it is. Raises BadInput: the file cannot be written."""
        if self.path.exists() and not os.access(self.path, os.W_OK):
            return
        table = next(name for name, kind in TABLES.items() if isinstance(shape, kind))
        row = (_chip_key(chip), model_key(), chip.name, *shape, *cost)
        with self._open(write=True) as base, base:
            base.execute(f"insert or replace into {table} values ({', '.join('?' * len(row))})", row)

    def kept(self) -> list[Kept]:
        """What is kept, by chip. Raises BadInput: as `costs`."""
        if not self._exists():
            return []
        found: dict[tuple[str, str, bool], int] = {}
        with self._open(write=False) as base:
            for table in _tables(base):
                asked = f"select chip, name, model = ?, count(*) from {table} group by chip, model = ?, name"
                for chip, name, current, count in base.execute(asked, (model_key(),) * 2).fetchall():
                    found[name, chip, bool(current)] = found.get((name, chip, bool(current)), 0) + count
        order = sorted(found, key=lambda each: (each[0], not each[2]))
        return [Kept(name, current, found[name, chip, current]) for name, chip, current in order]

    def clear(self) -> int:
        """Removes all kernels; their number. Raises BadInput: the file cannot be written."""
        if not self._exists():
            return 0
        with self._open(write=True) as base, base:
            return sum(base.execute(f"delete from {table}").rowcount for table in _tables(base))

    def export(self, target: Path) -> None:
        """Writes a copy, for other users to read; one that is there is replaced when the new one is whole.

        Raises BadInput: there is nothing, its file cannot be read, or the copy cannot be written.
        """
        if not target.parent.is_dir():
            raise BadInput(Fault(str(target.parent), "an existing folder", _there(target.parent), "create it, or name another"))
        if not self._exists():
            raise BadInput(Fault(str(self.path), "searched kernels", "no file yet", "plan something with --kernels searched"))
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        with self._open(write=False) as base:
            try:
                base.execute("vacuum into ?", (str(beside),))
                os.replace(beside, target)
            except (OSError, sqlite3.OperationalError) as error:  # of the copy: faults of the file itself are of another class
                fault = Fault(str(target), "a file that can be written", str(error), "free some space, or name another folder")
                raise BadInput(fault) from None
            finally:
                beside.unlink(missing_ok=True)

    def _exists(self) -> bool:
        """Whether there is a file. Raises BadInput: no folder can have it."""
        above = next((each for each in self.path.parents if each.exists()), None)
        if above is not None and not above.is_dir():
            raise BadInput(Fault(str(above), "a folder for searched kernels", "a file", f"set {FOLDER_VARIABLE} to a folder"))
        return self.path.exists()

    @contextmanager
    def _open(self, write: bool) -> Iterator[sqlite3.Connection]:
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            address = f"{self.path.resolve().as_uri()}?mode={'rwc' if write else 'ro'}"
            with closing(sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT)) as base:
                if write:
                    base.execute("pragma journal_mode = wal")
                    for table, kind in TABLES.items():
                        base.execute(_definition(table, kind))
                yield base
        except (OSError, sqlite3.OperationalError) as error:
            able = "can be written" if write else "can be read"
            remedy = f"see to its disk and permissions, or {self.remedy.split(', or ')[-1]}"
            raise BadInput(Fault(str(self.path), f"a file of searched kernels that {able}", str(error), remedy)) from None
        except sqlite3.Error as error:
            raise BadInput(Fault(str(self.path), "a file of searched kernels", str(error), self.remedy)) from None


class SharedKernels:
    """A `halley.kernels.searched.KernelStore` of the user's own file, None if nothing is kept, and of others' files, which are
    only read. Of a kernel that several have, the user's own counts, then the first of the others.

    ``fault``: why kernels are no longer kept, None if they are: a search goes on without a file that cannot be written."""

    def __init__(self, own: KernelCache | None, shares: Sequence[KernelCache]) -> None:
        self.own, self.shares = own, tuple(shares)
        self.fault: BadInput | None = None

    def costs(self, chip: Chip) -> Mapping[KernelShape, KernelCost]:
        """All kernels known of a chip under this version of the model. Raises BadInput: a file is missing or cannot be read."""
        found: dict[KernelShape, KernelCost] = {}
        for share in reversed(self.shares):
            found.update(present(share).costs(chip))
        return {**found, **(self.own.costs(chip) if self.own else {})}

    def add(self, chip: Chip, shape: KernelShape, cost: KernelCost) -> None:
        """Keeps the cost of a kernel in the user's own file, until it cannot be written (``fault``)."""
        if self.own is not None and self.fault is None:
            try:
                self.own.add(chip, shape, cost)
            except BadInput as fault:
                self.fault = fault


def present(share: KernelCache) -> KernelCache:
    """The file of others. Raises BadInput: there is none."""
    if not share.path.exists():
        remedy = f"'halley cache export' writes one; or leave its folder out of {SHARED_VARIABLE}"
        raise BadInput(Fault(str(share.path), "a file of searched kernels", "none", remedy))
    return share


def user_store() -> SharedKernels | None:
    """The file of this user with the shares that the environment names; None if there is neither."""
    own, shares = user_cache(), user_shares()
    return SharedKernels(own, shares) if own or shares else None


def user_shares() -> tuple[KernelCache, ...]:
    """The files of others that the environment names."""
    folders = filter(None, os.environ.get(SHARED_VARIABLE, "").split(os.pathsep))
    remedy = f"have it written by 'halley cache export', or leave its folder out of {SHARED_VARIABLE}"
    return tuple(KernelCache(Path(folder) / FILE, remedy) for folder in folders)


def user_cache() -> KernelCache | None:
    """The file of this user, in the folder for caches of the system; None if nothing is to be kept."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder == "":
        return None
    return KernelCache((Path(folder) if folder else _folder()) / FILE)


def _there(path: Path) -> str:
    return "a file" if path.exists() else "none"


def _folder() -> Path:
    """Where programs of this system keep what they can make again (on Linux the XDG base directory specification)."""
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Caches" / "halley"
        case "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "halley" / "Cache"
        case _:
            return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halley"


def _definition(table: str, kind: type[KernelShape]) -> str:
    types = dict.fromkeys(("dtype", "result", "pattern", "extents"), "text")
    fields = ", ".join(f"{name} {types.get(name, 'integer')}" for name in kind._fields)
    key = ", ".join(kind._fields)
    columns = f"chip text, model text, name text, {fields}, time real, mapping text"
    return f"create table if not exists {table} ({columns}, primary key (chip, model, {key})) without rowid"


def _tables(base: sqlite3.Connection) -> list[str]:
    """The tables that a file has: one of an earlier version lacks some."""
    found = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
    return [table for table in TABLES if table in found]


def _shape(kind: type[KernelShape], values: tuple[Any, ...]) -> KernelShape:
    """SQLite keeps truth values as numbers."""
    shape = kind(*values)
    return shape._replace(causal=bool(shape.causal)) if isinstance(shape, AttentionShape) else shape


def _chip_key(chip: Chip) -> str:
    """Of all figures of a chip; its name and the version of its file do not matter."""
    return digest(replace(chip, name="", version=0))


@lru_cache(maxsize=4)
def model_key(root: Path = Path(halley.__file__).parent, packages: tuple[str, ...] = MODEL) -> str:
    """Hash of the source of the model below a folder, without docstrings: kernels that were searched with other formulas or rules
    are not used."""
    found = hashlib.sha256()
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode())
        found.update(without_docstrings(path.read_bytes()))
    return found.hexdigest()


def without_docstrings(source: bytes) -> bytes:
    """A module's source without the lines of docstrings: of the module, its classes, functions and constants.

    >>> without_docstrings(b"'of a module'\\nA = 1\\n'of A'\\ndef f():\\n    'of f'\\n    return 'x'\\n")
    b"A = 1\\ndef f():\\n    return 'x'\\n"
    """
    lines = source.splitlines(keepends=True)
    alone = (node for node in _statements(ast.parse(source)) if isinstance(node, ast.Expr))
    words = [node for node in alone if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    for node in sorted(words, key=lambda node: -node.lineno):
        if not lines[node.lineno - 1][: node.col_offset].strip():  # not behind a statement on its line
            del lines[node.lineno - 1 : node.end_lineno]
    return b"".join(lines)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside a node, with the branches that have them."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from _statements(child)
