"""Kernels of a workload, and the ways to cut their list into groups that are fused."""

from __future__ import annotations

from halley.ir.workload import Workload

Partition = tuple[tuple[int, int], ...]
"""Groups of kernels, each from its first to behind its last."""


def kernels(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """Op names by kernel; each op alone where the workload names none."""
    return workload.kernels or tuple((op.name,) for op in workload.ops)


def partitions(count: int) -> list[Partition]:
    """Every way to cut 0..count into consecutive groups.

    >>> partitions(2)
    [((0, 1), (1, 2)), ((0, 2),)]
    """
    if count == 0:
        return [()]
    found = []
    for last in range(count - 1, -1, -1):
        found += [(*head, (last, count)) for head in partitions(last)]
    return found
