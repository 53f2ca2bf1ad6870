"""Synthetic logs in the form of nccl-tests, made from a known time with noise. No figure in them was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

HEAD = """# nccl-tests version 2.13.8 nccl-headers=22703 nccl-library=22703
# Collective test starting: {name}_perf
# nThread 1 nGpus {ranks} minBytes {least} maxBytes {most} step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
TAIL = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 71.3
#
"""


def log(name: str, ranks: int, sizes: Sequence[int], time: Callable[[int], float], noise: float = 0.0, seed: int = 0) -> str:
    """One run: ``time`` [s] of a size out of place; in place it takes a tenth less."""
    source = Random(seed)
    devices = "\n".join(f"#  Rank {rank:2} Group  0 Pid {900 + rank} on made-up device {rank}" for rank in range(ranks))
    lines = []
    for size in sizes:
        microseconds = 1e6 * time(size) * (1 + noise * source.uniform(-1, 1))
        out, inside = (f"{value:8.2f} {size / value / 1e3:7.2f} {0:7.2f}" for value in (microseconds, 0.9 * microseconds))
        lines.append(f"{size:12} {size // 4:13} {'float':>9} {'sum':>7} {-1:7} {out}      0 {inside}    N/A")
    head = HEAD.format(name=name, ranks=ranks, least=min(sizes), most=max(sizes), devices=devices)
    return head + "\n".join(lines) + "\n" + TAIL
