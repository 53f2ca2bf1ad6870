"""``python -m validation.collectives FOLDER``: mean relative errors of every machine, collective and number of ranks,
beside simple models. FOLDER holds ``measured_collectives.csv``."""

from __future__ import annotations

import sys
from pathlib import Path

from validation.collectives.compare import TABLE, extrapolated, judged
from validation.table import markdown, told

HEAD = ("machine", "collective", "ranks", "overlay", "start-up + bandwidth", "constant bandwidth", "peak", "ranks unseen")


def rows(path: Path) -> list[tuple[str, ...]]:
    """The table, as text."""
    unseen = {(machine, key): sum(row.error for row in found) / len(found) for machine, key, found in extrapolated(path)}
    made = []
    for machine, item in judged(path):
        errors = (item.overlay, item.start_and_bandwidth, item.constant_bandwidth, item.peak, unseen.get((machine, item.key)))
        shares = ("-" if error is None else f"{100 * error:.1f} %" for error in errors)
        made.append((machine.name, str(item.key[0]), str(item.key[1]), *shares))
    return made


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m validation.collectives FOLDER", file=sys.stderr)
        return 1
    return told(lambda: markdown(HEAD, rows(Path(arguments[0]) / TABLE)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
