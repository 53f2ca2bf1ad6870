"""How the ops of a graph are split over axes, and the collectives that follow, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from halley.planning.sharded import Sharding
from halley.planning.sharding_text import op_names
from halley.report.table import Table
from halley.units import format_bytes, format_time


def sharding_tables(name: str, sharding: Sharding, of: str, ops: bool) -> Iterator[Table]:
    """``ops``: each of them, backward too; else neighbours of the forward pass that are split alike in one row. ``of``: what the
    collectives are counted for."""
    yield (_every_op if ops else _forward_ops)(name, sharding)
    yield from _moves(name, sharding, of)


def _every_op(name: str, sharding: Sharding) -> Table:
    names = op_names(sharding)
    mesh = sharding.problem.mesh
    rows = tuple(
        (item.op, *(way.name or "-" for way in item.ways), _called(names[item.op]), format_time(item.time))
        for item in sharding.ops
    )
    head = ("op", *(f"split over {axis.name}" for axis in mesh), "name", "work")
    return Table(f"{name}: how each op is shared out", head, rows, frozenset({len(head) - 1}))


def _forward_ops(name: str, sharding: Sharding) -> Table:
    """Neighbours that are split alike stand in one row."""
    names, mesh, groups = op_names(sharding), sharding.problem.mesh, list[tuple[tuple[str, ...], list[str], float]]()
    for item in sharding.ops:
        if item.op == sharding.problem.backward:
            break
        ways = (*(way.name or "-" for way in item.ways), _called(names[item.op]))
        if not groups or groups[-1][0] != ways:
            groups.append((ways, [], 0.0))
        ways, known, time = groups.pop()
        groups.append((ways, [*known, item.op], time + item.time))
    rows = tuple((" ".join(known), *ways, format_time(time)) for ways, known, time in groups)
    head = ("ops", *(f"split over {axis.name}" for axis in mesh), "name", "work")
    return Table(f"{name}: how ops are shared out (--ops: each of them)", head, rows, frozenset({len(head) - 1}))


def _called(names: Sequence[str]) -> str:
    return " ".join(dict.fromkeys(filter(None, names))) or "repeated"


def _moves(name: str, sharding: Sharding, of: str) -> Iterator[Table]:
    """Equal collectives stand in one row."""
    found: dict[tuple[str, str, int], list[tuple[str, float]]] = {}
    for move, step in sharding.steps:
        found.setdefault((str(step.kind), " ".join(step.axes), step.bytes), []).append((move.tensor, step.time))
    if found:
        rows = tuple(
            (
                f"{len(each)} x {kind}",
                axes,
                format_bytes(size),
                format_time(sum(time for _, time in each)),
                ", ".join(dict.fromkeys(tensor for tensor, _ in each)),
            )
            for (kind, axes, size), each in found.items()
        )
        head = ("collective", "over", "bytes", "time of all", "tensors")
        yield Table(f"{name}: collectives of {of}", head, rows, frozenset({2, 3}))
