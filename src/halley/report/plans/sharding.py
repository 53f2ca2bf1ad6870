"""How the ops of a graph are split over axes, and the collectives that follow, as tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from types import MappingProxyType
from typing import NamedTuple

from halley.report.table import Table
from halley.sharding.solution import Sharding
from halley.sharding.text import joined, op_names
from halley.units import format_bytes, format_time


def sharding_tables(
    name: str,
    sharding: Sharding,
    of: str,
    ops: bool,
    splitting: Collection[str] = (),
    dims: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Table]:
    """``of``: what the collectives are counted for. ``ops``: each of them, backward too; else neighbours of the forward pass that
    are split alike in one row. ``splitting``: axes that split matrices in other parts of the model. ``dims``: what they are."""
    rows = list(_rows(sharding, op_names(sharding, splitting), dims))
    mesh, shown = sharding.problem.mesh, _every_op(rows) if ops else _forward_ops(rows, sharding.problem.backward)
    head = ("op" if ops else "ops", *(f"split over {axis.name}" for axis in mesh), "name", "work")
    title = "sharding of every op" if ops else "sharding of the ops, forward"
    yield Table(f"{name}: {title}", head, tuple(shown), frozenset({len(head) - 1}))
    yield from _moves(name, sharding, of)


class _Row(NamedTuple):
    """An op, how each axis splits it, what that is called; ``time`` of its own work [s]."""

    op: str
    strategies: tuple[str, ...]
    name: str
    time: float


def _rows(sharding: Sharding, names: Mapping[str, Sequence[str]], dims: Mapping[str, str]) -> Iterator[_Row]:
    for item in sharding.ops:
        parts = (part.name for part in item.strategy)
        strategies = tuple(f"{name} ({dims[name]})" if name in dims else name or "not split" for name in parts)
        yield _Row(item.op, strategies, joined({*names[item.op]} - {""}) or "replicated", item.time)


def _every_op(rows: Iterable[_Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        yield row.op, *row.strategies, row.name, format_time(row.time)


def _forward_ops(rows: Iterable[_Row], backward: str) -> Iterator[tuple[str, ...]]:
    """Neighbours that are split alike stand in one row."""
    forward = takewhile(lambda row: row.op != backward, rows)
    for (strategies, name), group in groupby(forward, key=lambda row: (row.strategies, row.name)):
        alike = list(group)
        yield " ".join(row.op for row in alike), *strategies, name, format_time(sum(row.time for row in alike))


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
