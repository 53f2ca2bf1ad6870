"""``python -m benchmarks.compare BEFORE AFTER``: what changed between two runs of the benchmarks, or of a study.

The files are two versions of benchmarks/latest.json, or of the JSON file of a study. Values (energies, times of plans, gaps,
sizes of spaces) are listed where they differ by more than one part in 1e9. Costs (seconds, memory, rates) are compared by the
geometric mean of their ratios. Exit code 1 where a value differs or a row is missing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TOLERANCE = 1e-9
"""Relative difference from which on values are different."""

COSTS = {"s", "MiB", "MB"}
"""Units of what a run costs; rates per second belong to them, too."""

EFFORT = ("seconds", "source", "machine")
"""Fields of a study's row that say how it was found."""

Values = Mapping[str, tuple[float, bool]]
"""By name, a number and whether it is a cost of the run (of a rate, seconds for each)."""


def read(path: Path) -> Values:
    """The numbers of a file of benchmarks or of a study.

    Raises SystemExit: the file is neither.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(document, list):
        return {row["name"]: _cost(float(row["value"]), row["unit"]) for row in document}
    if isinstance(document, dict) and isinstance(document.get("rows"), list):
        found: dict[str, tuple[float, bool]] = {}
        for number, row in enumerate(document["rows"]):
            key = " / ".join(str(row[name]) for name in ("group", "name", "series") if name in row) or f"row {number}"
            found |= {f"{key}: {name}": (value, False) for name, value in _numbers(row)}
        return found
    raise SystemExit(f"{path}: expected benchmarks/latest.json or the JSON of a study; got something else")


def _cost(value: float, unit: str) -> tuple[float, bool]:
    """A measurement: whether it is a cost; rates as seconds for each.

    >>> _cost(4.0, "mappings/s"), _cost(3.0, "mJ")
    ((0.25, True), (3.0, False))
    """
    return (1.0 / value, True) if unit.endswith("/s") and value else (value, unit in COSTS)


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number below a value, with its path.

    >>> list(_numbers({"best": {"time": 1.0}, "seconds": 9.0, "gap": 0.0}))
    [('best.time', 1.0), ('gap', 0.0)]
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in EFFORT:
                yield from _numbers(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def differences(before: Values, after: Values) -> list[str]:
    """A line for each value that differs, and each row that only one file has.

    >>> differences({"gap": (0.0, False), "t": (1.0, True)}, {"gap": (0.5, False), "t": (9.0, True)})
    ['gap: 0 -> 0.5']
    """
    lines = [f"{name}: {before[name][0]:.12g} -> none" for name in before if name not in after]
    lines += [f"{name}: none -> {after[name][0]:.12g}" for name in after if name not in before]
    for name, (old, cost) in before.items():
        new = after[name][0] if name in after else old
        if not cost and abs(new - old) > TOLERANCE * max(abs(old), abs(new)):
            lines.append(f"{name}: {old:.12g} -> {new:.12g}" + (f" ({new / old - 1:+.3%})" if old else ""))
    return lines


def ratios(before: Values, after: Values) -> list[float]:
    """After over before of each cost that both have."""
    return [after[name][0] / old for name, (old, cost) in before.items() if cost and name in after and old > 0 < after[name][0]]


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="What changed between two runs.")
    options.add_argument("before", type=Path)
    options.add_argument("after", type=Path)
    asked = options.parse_args()
    before, after = read(asked.before), read(asked.after)
    lines = differences(before, after)
    for line in lines:
        print(line)
    values = sum(not cost for _, cost in before.values())
    print(f"{values} values, {len(lines)} differ by more than {TOLERANCE:g} or are in one file alone")
    if found := ratios(before, after):
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{len(found)} costs: geometric mean of after / before {mean:.3f}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
