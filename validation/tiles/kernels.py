"""Runs the mappings of `cases` on a GPU as Triton kernels, checks their results, and times them.

    python -m validation.tiles.kernels OUT.json [--only WORD] [--processes 14]

Needs PyTorch and Triton 3.4 or later and a GPU with 132 cores, nothing of Halley. A sample is a graph of calls that follow each
other; each call has operands of its own, together larger than the L2, so that they come from DRAM. All cores run at the same time
(one program per core), so a program may wait for another: collectives meet at counters in L2.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
from validation.tiles.cases import ATTENTION, CAUSAL, COLUMNS, DECODE, FLAT, GROUP, HEADS, ROWS, SOFTMAX, SPLIT, Case, cases

CORES = ROWS * COLUMNS
SAMPLES, SAMPLE_TIME, MOST_CALLS = 7, 1e-3, 100
PAUSE = 0.02
"""Time [s] before a sample in which the chip cools, so that samples run at full clock."""
COLD = 160e6
"""Bytes of the operands of all calls together: about three times the L2."""
WORST = 2e-2
"""Allowed error of a result, relative to the norm: that of bf16."""
COUNTER = tl.constexpr(32)
"""Words between the counters of two groups of cores: a line of L2."""

Call = Callable[[], object]


@triton.jit
def meet(counters, group, members: tl.constexpr):
    """Waits for all members of a group. The last to arrive resets the count and opens the next generation."""
    arrived, generation = counters + group * COUNTER, counters + group * COUNTER + 1
    tl.debug_barrier()
    before = tl.atomic_add(generation, 0, sem="acquire")
    if tl.atomic_add(arrived, 1, sem="acq_rel") == members - 1:
        tl.atomic_xchg(arrived, 0, sem="relaxed")
        tl.atomic_add(generation, 1, sem="release")
    else:
        while tl.atomic_add(generation, 0, sem="acquire") == before:
            pass
    tl.debug_barrier()


@triton.jit
def gemm(
    a, b, c, rows, columns, depth, grid: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, buffers: tl.constexpr
):
    """C = A B; a core has ``rows`` x ``columns`` of C and takes them tile by tile."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    for i in range(0, rows, bm):
        for j in range(0, columns, bn):
            m, n = x * rows + i, y * columns + j
            total = tl.zeros((bm, bn), tl.float32)
            for k in tl.range(0, depth, bk, num_stages=buffers):
                total = tl.dot(a.load([m, k]), b.load([k, n]), total)
            c.store([m, n], total.to(tl.bfloat16))


@triton.jit
def split(
    a, b, c, parts, counters, rows, columns, depth, width, grid: tl.constexpr, stride: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, buffers: tl.constexpr, shard: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """C = A B; a core has ``depth`` of the contraction. The cores of a column add their tiles: each writes its own to L2, waits
    for the others, and adds ``shard`` rows of all."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    row, column = tl.arange(0, bm), tl.arange(0, bn)
    turn = 0
    for i in range(0, rows, bm):
        for j in range(0, columns, bn):
            n = y * columns + j
            total = tl.zeros((bm, bn), tl.float32)
            for k in tl.range(0, depth, bk, num_stages=buffers):
                total = tl.dot(a.load([i, x * depth + k]), b.load([x * depth + k, n]), total)
            tile = parts + ((turn % 2) * stride + y * grid) * (bm * bn)
            tl.store(tile + x * (bm * bn) + row[:, None] * bn + column[None, :], total, cache_modifier=".cg")
            meet(counters, y, grid)
            mine = x * shard + tl.arange(0, padded)
            kept = (mine < (x + 1) * shard) & (mine < bm)
            added = tl.zeros((padded, bn), tl.float32)
            for p in tl.static_range(grid):
                at = tile + p * (bm * bn) + mine[:, None] * bn + column[None, :]
                added += tl.load(at, mask=kept[:, None], other=0.0, cache_modifier=".cg")
            tl.store(c + (i + mine)[:, None] * width + n + column[None, :], added.to(tl.bfloat16), mask=kept[:, None])
            turn += 1


@triton.jit
def gemm_softmax(
    a, b, c, stats, counters, rows, depth, grid: tl.constexpr, across: tl.constexpr, padded: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr, buffers: tl.constexpr,
):  # fmt: skip
    """Softmax of the rows of A B; the cores of a row of the grid have a row's columns, and reduce its maximum and sum."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    row, peer = tl.arange(0, bm), tl.arange(0, padded)
    for i in range(0, rows, bm):
        m, turn = x * rows + i, i // bm
        total = tl.zeros((bm, bn), tl.float32)
        for k in tl.range(0, depth, bk, num_stages=buffers):
            total = tl.dot(a.load([m, k]), b.load([k, y * bn]), total)
        mine = stats + ((turn % 2) * grid + x) * (2 * across * bm)
        tl.store(mine + y * bm + row, tl.max(total, 1), cache_modifier=".cg")
        meet(counters, x, across)
        every = mine + peer[:, None] * bm + row[None, :]
        seen = tl.load(every, mask=peer[:, None] < across, other=float("-inf"), cache_modifier=".cg")
        power = tl.exp(total - tl.max(seen, 0)[:, None])
        tl.store(mine + (across + y) * bm + row, tl.sum(power, 1), cache_modifier=".cg")
        meet(counters, x, across)
        sums = tl.load(every + across * bm, mask=peer[:, None] < across, other=0.0, cache_modifier=".cg")
        c.store([m, y * bn], (power / tl.sum(sums, 0)[:, None]).to(tl.bfloat16))


@triton.jit
def attention(
    q, k, v, o, rows, tokens, scale, grid: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, head: tl.constexpr, buffers: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    """Online softmax; a core has ``rows`` queries of one head."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    for i in range(0, rows, bm):
        m = x * rows + i
        queries = q.load([y * tokens + m, 0])
        highest = tl.full((bm,), float("-inf"), tl.float32)
        z = tl.zeros((bm,), tl.float32)
        u = tl.zeros((bm, head), tl.float32)
        last = tokens
        if causal:
            last = m + bm
        for n in tl.range(0, last, bn, num_stages=buffers):
            s = tl.dot(queries, k.load([y * tokens + n, 0]).T) * scale
            if causal:
                s = tl.where((m + tl.arange(0, bm))[:, None] >= (n + tl.arange(0, bn))[None, :], s, float("-inf"))
            new = tl.maximum(highest, tl.max(s, 1))
            e = tl.exp2(s - new[:, None])
            kept = tl.exp2(highest - new)
            z = z * kept + tl.sum(e, 1)
            u = tl.dot(e.to(tl.bfloat16), v.load([y * tokens + n, 0]), u * kept[:, None])
            highest = new
        o.store([y * tokens + m, 0], (u / z[:, None]).to(tl.bfloat16))


@triton.jit
def decode(
    q, k, v, o, stats, parts, counters, tokens, each, scale, grid: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, head: tl.constexpr, buffers: tl.constexpr, shard: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """Attention of one token: a core has ``each`` of the keys of a head. The cores of a column hand over maximum, sum and result;
    each adds ``shard`` of the dim of the head."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    row, column = tl.arange(0, bm), tl.arange(0, head)
    queries = tl.load(q + (y * bm + row)[:, None] * head + column[None, :])
    highest = tl.full((bm,), float("-inf"), tl.float32)
    z = tl.zeros((bm,), tl.float32)
    u = tl.zeros((bm, head), tl.float32)
    for n in tl.range(0, each, bn, num_stages=buffers):
        at = y * tokens + x * each + n
        s = tl.dot(queries, k.load([at, 0]).T) * scale
        new = tl.maximum(highest, tl.max(s, 1))
        e = tl.exp2(s - new[:, None])
        kept = tl.exp2(highest - new)
        z = z * kept + tl.sum(e, 1)
        u = tl.dot(e.to(tl.bfloat16), v.load([at, 0]), u * kept[:, None])
        highest = new
    mine = stats + (y * grid + x) * (2 * bm)
    tile = parts + y * grid * (bm * head)
    tl.store(mine + row, highest, cache_modifier=".cg")
    tl.store(mine + bm + row, z, cache_modifier=".cg")
    tl.store(tile + x * (bm * head) + row[:, None] * head + column[None, :], u, cache_modifier=".cg")
    meet(counters, y, grid)
    part = x * shard + tl.arange(0, padded)
    inside = (part < (x + 1) * shard) & (part < head)
    largest = tl.full((bm,), float("-inf"), tl.float32)
    for p in tl.static_range(grid):
        largest = tl.maximum(largest, tl.load(stats + (y * grid + p) * (2 * bm) + row, cache_modifier=".cg"))
    total = tl.zeros((bm,), tl.float32)
    added = tl.zeros((bm, padded), tl.float32)
    for p in tl.static_range(grid):
        weight = tl.exp2(tl.load(stats + (y * grid + p) * (2 * bm) + row, cache_modifier=".cg") - largest)
        total += weight * tl.load(stats + (y * grid + p) * (2 * bm) + bm + row, cache_modifier=".cg")
        at = tile + p * (bm * head) + row[:, None] * head + part[None, :]
        added += weight[:, None] * tl.load(at, mask=inside[None, :], other=0.0, cache_modifier=".cg")
    tl.store(o + (y * bm + row)[:, None] * head + part[None, :], (added / total[:, None]).to(tl.bfloat16), mask=inside[None, :])


@triton.jit
def reductions(parts, counters, out, count, grid: tl.constexpr, across: tl.constexpr, padded: tl.constexpr, words: tl.constexpr):
    """``count`` all-reduces of ``words`` fp32 among the cores of a row of the grid, one after the other."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    word, peer = tl.arange(0, words), tl.arange(0, padded)
    value = word.to(tl.float32) + y
    for turn in range(count):
        mine = parts + ((turn % 2) * grid + x) * (across * words)
        tl.store(mine + y * words + word, value, cache_modifier=".cg")
        meet(counters, x, across)
        seen = tl.load(mine + peer[:, None] * words + word[None, :], mask=peer[:, None] < across, other=0.0, cache_modifier=".cg")
        value = tl.sum(seen, 0) * (1.0 / across)
    tl.store(out + tl.program_id(0) * words + word, value)


@triton.jit
def scatters(
    parts, counters, out, count, grid: tl.constexpr, groups: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, shard: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """``count`` reduce-scatters of a tile in fp32 among the cores of a column of the grid."""
    x, y = tl.program_id(0) % grid, tl.program_id(0) // grid
    row, column = tl.arange(0, bm), tl.arange(0, bn)
    value = row[:, None].to(tl.float32) + column[None, :] + x
    added = tl.zeros((padded, bn), tl.float32)
    for turn in range(count):
        tile = parts + ((turn % 2) * groups + y) * grid * (bm * bn)
        tl.store(tile + x * (bm * bn) + row[:, None] * bn + column[None, :], value, cache_modifier=".cg")
        meet(counters, y, grid)
        mine = x * shard + tl.arange(0, padded)
        kept = (mine < (x + 1) * shard) & (mine < bm)
        for p in tl.static_range(grid):
            at = tile + p * (bm * bn) + mine[:, None] * bn + column[None, :]
            added += tl.load(at, mask=kept[:, None], other=0.0, cache_modifier=".cg")
    at = out + tl.program_id(0) * (padded * bn) + tl.arange(0, padded)[:, None] * bn + column[None, :]
    tl.store(at, added)


@triton.jit
def meetings(counters, count, grid: tl.constexpr, across: tl.constexpr):
    """``count`` times the cores of a row of the grid wait for each other."""
    for _ in range(count):
        meet(counters, tl.program_id(0) % grid, across)


def random(*shape: int) -> torch.Tensor:
    """Operands in bf16, as those of a model: small, around 0."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).mul_(0.5).to(torch.bfloat16)


@cache
def counters() -> torch.Tensor:
    """Two words for each group of cores."""
    return torch.zeros(CORES * COUNTER.value, device="cuda", dtype=torch.int32)


@cache
def scratch(words: int) -> torch.Tensor:
    """What cores hand to each other, in fp32."""
    return torch.empty(words, device="cuda", dtype=torch.float32)


Operands = tuple[torch.Tensor, ...]


def operands(case: Case) -> Operands:
    """Inputs, and the result last."""
    if case.kind in (ATTENTION, CAUSAL):
        tokens, head = case.sizes
        return tuple(random(HEADS * tokens, head) for _ in range(4))
    if case.kind == DECODE:
        tokens, head = case.sizes
        return random(HEADS * GROUP, head), *(random(HEADS * tokens, head) for _ in range(2)), random(HEADS * GROUP, head)
    m, n, k = case.sizes
    return random(m, k), random(k, n), torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)


def call(case: Case, given: Operands, warps: int) -> Call:
    """One call of the case's kernel."""
    bm, bn, bk = case.tile
    options = {"num_warps": warps, "num_stages": case.buffers}
    if case.kind in (ATTENTION, CAUSAL):
        tokens, head = case.sizes
        q, k, v, o = given
        blocks = (q, bm), (k, bn), (v, bn), (o, bm)
        described = [TensorDescriptor.from_tensor(tensor, [rows, head]) for tensor, rows in blocks]
        scale = 1 / math.sqrt(head) / math.log(2)
        asked = {"bm": bm, "bn": bn, "head": head, "buffers": case.buffers, "causal": case.kind == CAUSAL, **options}
        return lambda: attention[(CORES,)](*described, tokens // ROWS, tokens, scale, ROWS, **asked)
    if case.kind == DECODE:
        tokens, head = case.sizes
        q, k, v, o = given
        keys, values = (TensorDescriptor.from_tensor(tensor, [bn, head]) for tensor in (k, v))
        stats, parts = scratch(2 * CORES * GROUP), scratch(CORES * GROUP * head)
        shard, scale = -(-head // ROWS), 1 / math.sqrt(head) / math.log(2)
        asked = {"bm": GROUP, "bn": bn, "head": head, "buffers": case.buffers, **options}
        rest = {"shard": shard, "padded": triton.next_power_of_2(shard), **asked}
        return lambda: decode[(CORES,)](q, keys, values, o, stats, parts, counters(), tokens, tokens // ROWS, scale, ROWS, **rest)
    a, b, c = given
    m, n, k = case.sizes
    first, second = TensorDescriptor.from_tensor(a, [bm, bk]), TensorDescriptor.from_tensor(b, [bk, bn])
    tile = {"bm": bm, "bn": bn, "bk": bk, "buffers": case.buffers, **options}
    if case.kind == SPLIT:
        shard = -(-bm // ROWS)
        parts = scratch(2 * CORES * bm * bn)
        rest = {"shard": shard, "padded": triton.next_power_of_2(shard), **tile}
        return lambda: split[(CORES,)](first, second, c, parts, counters(), m, n // COLUMNS, k // ROWS, n, ROWS, CORES, **rest)
    third = TensorDescriptor.from_tensor(c, [bm, bn])
    if case.kind == FLAT:
        return lambda: gemm[(CORES,)](first, second, third, m, n // CORES, k, 1, **tile)
    if case.kind == SOFTMAX:
        stats = scratch(4 * CORES * bm)
        return lambda: gemm_softmax[(CORES,)](first, second, third, stats, counters(), m // ROWS, k, ROWS, COLUMNS, 16, **tile)
    return lambda: gemm[(CORES,)](first, second, third, m // ROWS, n // COLUMNS, k, ROWS, **tile)


def _one_token(case: Case, given: Operands) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of attention of one token; the query heads of a head of keys as rows, which is the same."""
    tokens, head = case.sizes
    q, k, v = given[:3]
    return q.view(1, HEADS, GROUP, head), k.view(1, HEADS, tokens, head), v.view(1, HEADS, tokens, head)


def library(case: Case, given: Operands) -> Call:
    """PyTorch's kernels for the same workload."""
    if case.kind == DECODE:
        one = _one_token(case, given)
        return lambda: torch.nn.functional.scaled_dot_product_attention(*one)
    if case.kind in (ATTENTION, CAUSAL):
        tokens, head = case.sizes
        q, k, v = (tensor.view(1, HEADS, tokens, head) for tensor in given[:3])
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.kind == CAUSAL)
    a, b, c = given
    if case.kind == SOFTMAX:
        return lambda: torch.softmax(torch.matmul(a, b), 1)
    return lambda: torch.matmul(a, b, out=c)


def expected(case: Case, given: Operands) -> torch.Tensor:
    """The result in fp32."""
    if case.kind == DECODE:
        q, k, v = (tensor.float() for tensor in _one_token(case, given))
        return (torch.softmax(q @ k.mT / math.sqrt(case.sizes[1]), -1) @ v).view(HEADS * GROUP, case.sizes[1])
    if case.kind in (ATTENTION, CAUSAL):
        tokens, head = case.sizes
        q, k, v = (tensor.view(1, HEADS, tokens, head).float() for tensor in given[:3])
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.kind == CAUSAL)
        return found.view(HEADS * tokens, head)
    product = given[0].float() @ given[1].float()
    return torch.softmax(product, 1) if case.kind == SOFTMAX else product


def error(case: Case, warps: int) -> float:
    """Relative error of the result of a case."""
    torch.manual_seed(hash(case.sizes) % 2**31)
    given = operands(case)
    run = call(case, given, warps)
    run()
    run()
    wanted = expected(case, given)
    torch.cuda.synchronize()
    return float((given[-1].float() - wanted).norm() / wanted.norm())


def warps_of(case: Case) -> tuple[int, ...]:
    """Numbers of warps that are tried: the mapping does not say them, so the fastest counts."""
    area = case.tile[0] * case.tile[1]
    if case.kind in (ATTENTION, CAUSAL, DECODE):
        return (4,) if case.tile[0] <= 64 else (4, 8)
    return (8,) if area >= 128 * 256 else (4,) if area <= 64 * 64 else (4, 8)


def tried(item: tuple[Case, int]) -> tuple[float | None, str]:
    """Compiles a case and checks its result, in a process of its own. The error, or why there is none."""
    try:
        return error(*item), ""
    except Exception as fault:  # a tile that does not compile is a finding, and others go on
        return None, f"{type(fault).__name__}: {str(fault).strip()[:120]}"


def elapsed(run: Call) -> float:
    """Time [s] on the device."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def timed(calls: Sequence[Call]) -> tuple[float, float]:
    """Median time [s] of a call, and half of the distance of the quartiles, relative."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for run in calls:
            run()
        first = elapsed(lambda: [run() for run in calls]) / len(calls)
        number = max(len(calls), min(MOST_CALLS, math.ceil(SAMPLE_TIME / max(first, 1e-7))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for index in range(number):
                calls[index % len(calls)]()
        graph.replay()
        samples = []
        for _ in range(SAMPLES):
            torch.cuda.synchronize()
            time.sleep(PAUSE)
            samples.append(elapsed(graph.replay) / number)
    low, middle, high = statistics.quantiles(samples, n=4)
    return middle, (high - low) / 2 / middle


def launches() -> dict[str, float]:
    """Times [s] from one kernel to the next in a graph, where the kernels do next to nothing: the slope over their number."""
    out = random(CORES * 64, 64)
    described = TensorDescriptor.from_tensor(out, [64, 64])
    tile = {"bm": 64, "bn": 64, "bk": 64, "buffers": 3, "num_warps": 4, "num_stages": 3}
    kernels: dict[str, Call] = {
        "nothing": lambda: meetings[(CORES,)](counters(), 0, ROWS, COLUMNS, num_warps=4),
        "one barrier": lambda: meetings[(CORES,)](counters(), 1, ROWS, COLUMNS, num_warps=4),
        "a product without a contraction": lambda: gemm[(CORES,)](
            described, described, described, 64, 64, 0, ROWS * COLUMNS, **tile
        ),
        "a product of one step": lambda: gemm[(CORES,)](described, described, described, 64, 64, 64, ROWS * COLUMNS, **tile),
        "one product of PyTorch": lambda: torch.matmul(out[:64], out[:64]),
    }
    found = {}
    for name, run in kernels.items():
        run()
        times = []
        for number in (20, 220):
            graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.Stream()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(number):
                    run()
            with torch.cuda.stream(stream):
                graph.replay()
                torch.cuda.synchronize()
                times.append(statistics.median(elapsed(graph.replay) for _ in range(9)))
        found[name] = (times[1] - times[0]) / 200
    return found


LOAD_TIME = 2.5
"""Length [s] of a loop whose power is measured; the second half counts."""


def loaded() -> list[dict[str, Any]]:
    """Kernels that are repeated without a pause: time [s] of one, power [W] of the card, clock [Hz] of the cores."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    large = torch.empty(2**30, device="cuda", dtype=torch.bfloat16)
    half = len(large) // 2
    zeros = [
        torch.zeros(6144, 4096, device="cuda", dtype=torch.bfloat16),
        torch.zeros(4096, 5632, device="cuda", dtype=torch.bfloat16),
    ]

    def of(case: Case, warps: int) -> Call:
        return call(case, operands(case), warps)

    chosen = {
        str(case): of(case, 8)
        for case in (
            Case("gemm", (6144, 5632, 4096), (128, 256, 64), 3),
            Case("gemm", (6144, 5632, 4096), (128, 128, 32), 4),
            Case("gemm", (1536, 1408, 4096), (128, 128, 64), 4),
            Case(ATTENTION, (6144, 128), (128, 64, 128), 3),
            Case(SOFTMAX, (1536, 2816, 512), (128, 256, 64), 3),
        )
    }
    loops: dict[str, Call] = {
        "nothing, the clock still high": lambda: time.sleep(1e-3),
        "copy of 1 GiB": lambda: large[half:].copy_(large[:half]),
        "fill of 2 GiB": lambda: large.zero_(),
        "sum of 2 GiB": lambda: large.sum(),
        "PyTorch's product of zeros, 6144 x 5632 x 4096": lambda: torch.matmul(*zeros),
        "PyTorch's product, 6144 x 5632 x 4096": library(c := Case("gemm", (6144, 5632, 4096), (1, 1, 1), 1), operands(c)),
        **chosen,
        "nothing": lambda: time.sleep(1e-3),
    }
    rows = []
    for name, run in loops.items():
        ended, number, clocks = time.monotonic() + LOAD_TIME, 0, []
        first: tuple[float, int] | None = None
        while (now := time.monotonic()) < ended:
            for _ in range(20):
                run()
            torch.cuda.synchronize()
            if now > ended - LOAD_TIME / 2:
                if first is None:
                    first, number = (time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(card)), 0
                else:
                    number += 20
                clocks.append(pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM))
        if first is None:
            continue
        took = time.monotonic() - first[0]
        power = (pynvml.nvmlDeviceGetTotalEnergyConsumption(card) - first[1]) / 1e3 / took
        rows.append({"name": name, "time": took / max(1, number), "power": power, "clock": statistics.median(clocks) * 1e6})
        print(rows[-1], flush=True)
    return rows


def copies(case: Case) -> list[Operands]:
    """Operands of the calls, together larger than the L2."""
    first = operands(case)
    size = sum(tensor.numel() * tensor.element_size() for tensor in first)
    return [first] + [operands(case) for _ in range(max(0, math.ceil(COLD / size) - 1))]


def collectives() -> list[dict[str, Any]]:
    """Times [s] of one collective: the difference between many and few in one kernel."""
    rows = []

    def each(run: Callable[[int], object]) -> float:
        few, many = 100, 1100
        return (timed([lambda: run(many)])[0] - timed([lambda: run(few)])[0]) / (many - few)

    out = scratch(CORES * 65536)
    parts = torch.zeros(2 * CORES * 128 * 256, device="cuda", dtype=torch.float32)
    for members, grid in ((COLUMNS, ROWS), (CORES, 1)):
        found = each(lambda count, members=members, grid=grid: meetings[(CORES,)](counters(), count, grid, members, num_warps=4))
        rows.append({"collective": "barrier", "members": members, "bytes": 0, "time": found})
    for words in (1, 64, 128, 256, 1024, 2048):
        found = each(
            lambda count, words=words: reductions[(CORES,)](parts, counters(), out, count, ROWS, COLUMNS, 16, words, num_warps=4)
        )
        rows.append({"collective": "all-reduce one-shot", "members": COLUMNS, "bytes": 4 * words, "time": found})
    for bm, bn in ((16, 64), (64, 64), (128, 64), (128, 128), (128, 256)):
        shard = -(-bm // ROWS)
        rest = {"shard": shard, "padded": triton.next_power_of_2(shard), "num_warps": 8}
        found = each(
            lambda count, bm=bm, bn=bn, rest=rest: scatters[(CORES,)](
                parts, counters(), out, count, ROWS, COLUMNS, bm, bn, **rest
            )
        )
        rows.append({"collective": "reduce-scatter direct", "members": ROWS, "bytes": 4 * bm * bn, "time": found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Times mappings on a GPU.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", default="", help="problems whose name has this word")
    parser.add_argument("--processes", type=int, default=14, help="that compile")
    parser.add_argument("--limit", type=float, default=420, help="no case is begun after so long [s]")
    given = parser.parse_args()
    started = time.monotonic()
    wanted = [case for case in cases() if given.only in case.problem]
    items = [(case, warps) for case in wanted for warps in warps_of(case)]
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        results = dict(zip(items, pool.map(tried, items, chunksize=4), strict=True))
    print(f"compiled and checked {len(items)} in {time.monotonic() - started:.0f} s", flush=True)
    for (case, warps), (found, why) in results.items():
        if found is None or not found < WORST:
            print(f"left out: {case}, {warps} warps: {why or f'error {found}'}", flush=True)
    rows, references = [], []
    # every 37th: a run that ends early has some of each problem
    order = sorted(range(len(wanted)), key=lambda index: (index % 37, index))
    kept: dict[str, list[Operands]] = {}
    for index in order:
        case = wanted[index]
        if time.monotonic() - started > given.limit:
            print("time is over")
            break
        if case.problem not in kept:
            kept[case.problem] = copies(case)
            middle, spread = timed([library(case, each) for each in kept[case.problem]])
            references.append({"kind": case.kind, "sizes": case.sizes, "time": middle, "spread": spread})
        found = [
            (*timed([call(case, each, warps) for each in kept[case.problem]]), warps)
            for warps in warps_of(case)
            if (worst := results[case, warps][0]) is not None and worst < WORST
        ]
        if found:
            middle, spread, warps = min(found)
            row = {"kind": case.kind, "sizes": case.sizes, "tile": case.tile, "buffers": case.buffers}
            rows.append({**row, "time": middle, "spread": spread, "warps": warps})
    answer: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "software": f"torch {torch.__version__}, triton {triton.__version__}",
        "library": references,
        "rows": rows,
    }
    parts: dict[str, Callable[[], Any]] = {"launch": launches, "collectives": collectives, "loaded": loaded}
    for name in ("", *({} if given.only else parts)):
        if name:
            answer[name] = parts[name]()
        given.output.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} of {len(wanted)} cases, {time.monotonic() - started:.0f} s")
    print(answer.get("launch"))
    for item in answer.get("collectives", ()):
        print(item["collective"], item["members"], item["bytes"], f"{item['time'] * 1e6:.3f} us")


if __name__ == "__main__":
    main()
