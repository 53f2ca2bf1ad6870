"""What a study found, kept beside its page: JSON for the study itself, CSV for everybody's spreadsheet."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from halley.ir.digest import full_text
from studies.cases import Case, Exchange, Figures, Row

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "studies"
SCHEMA = "halley.study/1"
WAYS = ("op_by_op", "unfused", "local", "silent", "best")
"""Mapping strategies, by the names of a row's fields."""

DEPENDS = ("errors.py", "formulas", "ir", "network", "workloads", "rewrite", "cost", "mapping")
"""The parts of the source that a figure depends on; workloads and chips count by their values."""


def source() -> str:
    """A fingerprint of the code behind every figure."""
    digest = hashlib.sha256(Path(__file__).with_name("cases.py").read_bytes())
    for part in DEPENDS:
        path = ROOT / "src" / "halley" / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def behind(*files: Path) -> str:
    """A fingerprint of these files, and of all of Halley's modules that are loaded."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "halley"]
    digest = hashlib.sha256()
    for file in (*files, *(Path(module.__file__) for module in modules if module.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def load_tables(name: str, schema: str) -> dict[str, Any]:
    """What a study of whole systems kept; empty where it was never run, or kept under another schema."""
    path = DOCS / f"{name}.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return kept if kept.get("schema") == schema else {}


def save_tables(name: str, known: Mapping[str, Any]) -> None:
    """Write what is known as JSON, a row a line."""
    entries = (f"{json.dumps(key)}: {_lines(value)}" for key, value in known.items())
    replace_text(DOCS / f"{name}.json", "{" + ",\n".join(entries) + "}\n")


def _lines(value: Any) -> str:
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]" if isinstance(value, list) else json.dumps(value)


def filled(template: Path, parts: Mapping[str, str]) -> str:
    """A page: the template, with the parts in place of their comments."""
    text = template.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text.rstrip() + "\n"


def fingerprint(case: Case, code: str) -> str:
    """Of all that the figures of a case depend on; descriptions and sources change none of them."""
    chip = replace(case.chip, description="", sources={})
    return hashlib.sha256(f"{code} {case.workload!r} {full_text(chip)}".encode()).hexdigest()[:16]


def load(name: str) -> tuple[list[Row], str]:
    """The rows of a study and the machine that searched them; none where it was never run."""
    path = DOCS / f"{name}.json"
    if not path.exists():
        return [], ""
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept.get("schema") != SCHEMA:
        return [], ""
    return [_row(entry) for entry in kept["rows"]], kept["machine"]


def _row(entry: dict[str, Any]) -> Row:
    ways = {way: Figures(**entry[way]) if entry[way] else None for way in WAYS}
    exchanges = tuple(
        Exchange(**item | {"tensors": tuple(item["tensors"]), "axes": tuple(item["axes"])}) for item in entry["exchanges"]
    )
    return Row(**entry | ways | {"exchanges": exchanges, "fused": tuple(map(tuple, entry["fused"]))})


def save(name: str, rows: Sequence[Row], machine: str) -> None:
    """Write the rows as JSON, a row a line, and as CSV."""
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    head = f'{{"schema": {json.dumps(SCHEMA)}, "machine": {json.dumps(machine)}, "rows": [\n'
    replace_text(DOCS / f"{name}.json", head + lines + "\n]}\n")
    replace_text(DOCS / f"{name}.csv", sheet(rows))


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


def sheet(rows: Iterable[Row]) -> str:
    """The rows as CSV in SI units, with all digits."""
    units = {"time": "s", "energy": "J", "traffic": "B"}
    columns = [(way, field.name) for way in WAYS for field in fields(Figures)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["group", "name", "series", "extents", *(f"{way}_{name}_{units[name]}" for way, name in columns)]
    writer.writerow([*head, "groups", "collectives", "busiest", "share", "gap", "seconds", "reason"])
    for row in rows:
        found = [getattr(row, way) for way, _ in columns]
        values = [getattr(item, name) if item else "" for item, (_, name) in zip(found, columns, strict=True)]
        groups = " / ".join(" + ".join(group) for group in row.fused)
        told = "; ".join(map(str, row.exchanges))
        writer.writerow([*row.key, row.extents, *values, groups, told, row.busiest, row.share, row.gap, row.seconds, row.reason])
    return out.getvalue()
