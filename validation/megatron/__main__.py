"""``python -m validation.megatron [FILE]``: each point of a table (``points.csv`` if none is named) beside simpler models, and
where its time goes."""

from __future__ import annotations

import sys
from pathlib import Path

from validation.megatron.compare import POINTS, compare, constant, iteration, points, roofline
from validation.table import markdown, told


def errors(path: Path) -> str:
    """Predicted, measured, error; errors of a constant utilisation and of the roofline; with the fastest splits of ops."""
    rows = []
    for point in points(path):
        found = iteration(point)
        simple = (roofline(point), constant(found, 1.0), constant(found, 0.5))
        shares = [f"{100 * (time / point.seconds - 1):+.1f} %" for time in (found.time, *simple)]
        free = iteration(point, as_it_ran=False).time
        rows.append((point.name, f"{point.seconds:.2f} s", f"{found.time:.2f} s", *shares, f"{free:.2f} s"))
    head = ("point", "measured", "Halley", "error", "roofline", "100 % of peak", "50 % of peak", "splits free")
    return markdown(head, rows)


def accounts(path: Path) -> str:
    """Where the time goes, of the stage that finishes last, and what it waits for."""
    sections = []
    for point in points(path):
        found = iteration(point)
        parts = [(part, f"{time:.3f} s") for part, time in found.account.items() if time > 1e-6]
        waits = [(f"waits: {item.kind} ({item.role})", f"{item.time:.3f} s") for item in found.exposed if item.time > 1e-6]
        sections.append(f"{point.name}:\n\n{markdown(('part', 'time'), [*parts, *waits])}")
    return "\n\n".join(sections)


def summary(path: Path) -> str:
    """The errors of all points together."""
    line = compare(path).lines[0]
    return f"mean error {100 * line.mean_error:.1f} %, bias {100 * line.bias:+.1f} %"


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        print("usage: python -m validation.megatron [FILE]", file=sys.stderr)
        return 1
    path = Path(arguments[0]) if arguments else POINTS
    return told(lambda: "\n\n".join((errors(path), summary(path), accounts(path))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
