"""Times of kernels: laws, and oracles that share no code with them: walks over tiles, schedules, caches."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.formulas.efficiency import causal_keys, refetched_share, wave_bytes, waves_time
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.kernels.machine import PEAK, Machine, machine
from halley.kernels.operations import op_kernel
from halley.kernels.times import (
    Attention,
    Gemm,
    Kernel,
    call_time,
    demand,
    elementwise,
    kernel_time,
    layer_norm,
    rms_norm,
    softmax,
)
from halley.workloads.gemm import gemm
from halley.workloads.registry import build

A100, H100 = machine(load_chip("a100")), machine(load_chip("h100"))
FIT = load_chip_fit("a100").efficiency

extent = st.integers(1, 5000)
gemms = st.builds(Gemm, extent, extent, extent, st.integers(1, 40))
heads = st.sampled_from([(32, 8, 128), (16, 16, 64), (40, 1, 256), (8, 2, 96)])


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    queries = draw(st.integers(1, 3000))
    keys = queries + draw(st.integers(0, 3000))
    marks = {"causal": draw(st.booleans()), "backward": draw(st.booleans())}
    return Attention(draw(st.integers(1, 30)), queries, keys, *draw(heads), **marks)


kernels = st.one_of(
    gemms,
    attentions(),
    st.builds(softmax, extent, extent),
    st.builds(layer_norm, extent, extent),
    st.builds(rms_norm, extent, extent),
    st.builds(elementwise, st.integers(1, 10**9), st.sampled_from(["gelu", "add", "silu_mul"])),
)


# --- laws ---------------------------------------------------------------------------------------------------------------


@given(kernels)
def test_no_kernel_beats_the_roofline(kernel: Kernel) -> None:
    """Whatever the efficiency: not even one that reaches every peak."""
    macs, moved = demand(kernel)
    dtype = getattr(kernel, "dtype", "bf16")
    least = max(float(macs) / A100.mac_rate(dtype), float(moved) / A100.memory)
    assert float(kernel_time(kernel, A100, PEAK)) >= least * (1 - 1e-9)
    assert float(kernel_time(kernel, A100, FIT)) >= least


@given(kernels, st.sampled_from(["memory", "cache", "port", "lanes"]), st.floats(1, 8))
def test_a_better_chip_is_never_slower(kernel: Kernel, what: str, factor: float) -> None:
    better = replace(A100, **{what: getattr(A100, what) * factor})
    assert kernel_time(kernel, better, FIT) <= kernel_time(kernel, A100, FIT) * (1 + 1e-12)


@given(kernels, st.sampled_from(["matrix", "vector", "memory", "cache", "overlap"]), st.floats(0.2, 1))
def test_a_lower_share_is_never_faster(kernel: Kernel, what: str, factor: float) -> None:
    worse = replace(FIT, **{what: getattr(FIT, what) * factor})
    assert kernel_time(kernel, A100, worse) >= kernel_time(kernel, A100, FIT) * (1 - 1e-12)


@given(gemms, st.sampled_from(["depth", "batch"]))
def test_twice_the_work_is_never_faster(kernel: Gemm, name: str) -> None:
    """Twice the rows may be, by a hair: what was one core's port is then two."""
    larger = replace(kernel, **{name: 2 * getattr(kernel, name)})  # type: ignore[arg-type]
    assert kernel_time(larger, A100, FIT) >= kernel_time(kernel, A100, FIT) * (1 - 1e-9)


def test_a_large_gemm_reaches_the_peak_and_a_long_stream_the_bandwidth() -> None:
    large, stream = Gemm(16384, 16384, 16384), elementwise(2**30, "add")
    assert float(kernel_time(large, A100, PEAK)) == pytest.approx(16384**3 / A100.mac_rate("bf16"), rel=0.02)
    assert float(kernel_time(stream, A100, PEAK)) == pytest.approx(6 * 2**30 / A100.memory, rel=0.02)


@given(st.lists(st.tuples(extent, extent, extent, st.integers(1, 5)), min_size=1, max_size=150))
def test_arrays_are_numbers_side_by_side(shapes: list[tuple[int, int, int, int]]) -> None:
    rows, columns, depth, batch = (np.array(column) for column in zip(*shapes, strict=True))
    together = kernel_time(Gemm(rows, columns, depth, batch), A100, FIT)
    assert together.tolist() == [float(kernel_time(Gemm(*shape), A100, FIT)) for shape in shapes]
    norms = kernel_time(layer_norm(rows, columns), A100, FIT)
    assert norms.tolist() == [float(kernel_time(layer_norm(m, n), A100, FIT)) for m, n, _, _ in shapes]


def test_extents_broadcast() -> None:
    times = kernel_time(Gemm(np.arange(1, 4)[:, None], np.arange(1, 6), 64), A100, FIT)
    assert times.shape == (3, 5)
    assert times[1, 4] == kernel_time(Gemm(2, 5, 64), A100, FIT)
    assert kernel_time(Gemm(np.zeros(0), 4, 4), A100, FIT).shape == (0,)


def test_what_a_chip_lacks_is_said() -> None:
    with pytest.raises(BadInput, match=r"chip a100: expected a type that its matrix engine has; got fp8"):
        kernel_time(Gemm(8, 8, 8, dtype="fp8"), A100, FIT)
    with pytest.raises(BadInput, match=r"an elementwise function; got 'geluu'; did you mean 'gelu'\?"):
        elementwise(8, "geluu")


# --- oracles ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 40))
def test_waves_are_a_list_schedule(tiles: int, cores: int) -> None:
    """Every tile goes to the core that is free first."""
    free = [0.0] * cores
    for _ in range(tiles):
        heapq.heappush(free, heapq.heappop(free) + 3.0)
    assert waves_time(tiles, cores, 3.0) == max(free)


WAVES = [(24, 4, 8, 10), (16, 8, 4, 9), (32, 8, 16, 4), (6, 2, 2, 3)]


@pytest.mark.parametrize(("active", "band", "row_tiles", "column_tiles"), WAVES)
def test_a_wave_reads_what_its_tiles_touch(active: int, band: int, row_tiles: int, column_tiles: int) -> None:
    """Walk the first wave in bands of tile rows, column after column, and count distinct operands."""
    high = min(band, row_tiles)
    order = [(top + row, column) for top in range(0, row_tiles, high) for column in range(column_tiles) for row in range(high)]
    wave = order[:active]
    rows, columns = {row for row, _ in wave}, {column for _, column in wave}
    assert len(rows) * len(columns) == active
    assert wave_bytes(active, band, row_tiles, column_tiles, 16, 64) == 16 * len(rows) + 64 * len(columns)


@pytest.mark.parametrize(("lines", "capacity"), [(10, 16), (16, 16), (32, 16), (50, 16)])
def test_a_cyclic_walk_through_a_cache(lines: int, capacity: int) -> None:
    """A cache that drops the least recently used line, walked three times: at both ends it misses what the formula says."""
    kept: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for step, line in enumerate(itertools.chain.from_iterable(range(lines) for _ in range(3))):
        missed += step >= lines and line not in kept
        kept[line] = None
        kept.move_to_end(line)
        if len(kept) > capacity:
            kept.popitem(last=False)
    assert refetched_share(lines, capacity) == missed / (2 * lines)


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 16))
def test_causal_keys_by_enumeration(tiles: int, before: int, tile: int) -> None:
    queries = tiles * tile
    keys = queries + before
    seen = [before + first + tile for first in range(0, queries, tile)]
    assert causal_keys(queries, keys, tile) == pytest.approx(sum(seen) / len(seen))


def _by_hand(m: int, n: int, k: int, chip: Machine) -> float:
    """A GEMM that fits into L2, at the fit's efficiency, tile by tile in plain arithmetic."""
    best = math.inf
    for rows, columns in itertools.product((64, 128, 256), (16, 32, 48, 64, 96, 128, 192, 256)):
        for parts in (1, 2, 4, 8):
            few = math.ceil(m / 128) * math.ceil(n / 128) < chip.cores
            if rows * columns > 32768 or (parts > 1 and not few):
                continue
            tiles, depth = math.ceil(m / rows) * math.ceil(n / columns) * parts, math.ceil(k / parts)
            busy = min(tiles, chip.cores)
            reached = FIT.matrix * (FIT.smaller if rows * columns < 32768 else 1.0)
            multiply = rows * columns * depth / (reached * chip.macs["bf16"] / chip.cores)
            feed = 2 * depth * (min(m, rows) + min(n, columns)) / min(chip.port, FIT.cache * chip.cache / busy)
            cores = math.ceil(tiles / chip.cores) * (FIT.latency + max(multiply, feed))
            memory = FIT.latency + 2 * (m * k + k * n + m * n) / min(busy * chip.port, FIT.memory * chip.memory)
            adding = FIT.latency + 8 * parts * m * n / (FIT.cache * chip.cache) if parts > 1 else 0.0
            best = min(best, max(cores, memory) + adding)
    return FIT.launch + best


SHAPES = [(64, 64, 64), (100, 300, 2000), (128, 4096, 1024), (1, 1000, 5000), (2048, 2048, 2048), (777, 33, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gemm_by_hand(shape: tuple[int, int, int]) -> None:
    assert float(kernel_time(Gemm(*shape), A100, FIT)) == pytest.approx(_by_hand(*shape, A100), rel=1e-12)


def test_waves_show() -> None:
    """One tile more than cores costs a wave; the model knows what a roofline does not."""
    column = [float(kernel_time(Gemm(128 * count, 256, 8192), A100, PEAK)) for count in (108, 109, 216)]
    assert column[1] > 1.15 * column[0]
    assert column[2] == pytest.approx(2 * column[0], rel=0.02)


def test_rows_that_spill_are_walked_in_memory() -> None:
    """As many bytes, in longer rows: twice what L2 holds is in flight, and every second read comes from memory."""
    short, long = (float(kernel_time(layer_norm(rows, 2**27 // rows), A100, FIT)) for rows in (2**15, 2**12))
    assert long == pytest.approx(1.5 * short, rel=0.02)


def test_uneven_groups_take_longer_than_even_ones() -> None:
    """Where tiles count and not the weights; of groups of about one row half have none, and do not read theirs."""
    fed = replace(H100, memory=math.inf, cache=math.inf, port=math.inf)
    even = Gemm(64, 4096, 4096, 32)
    assert kernel_time(replace(even, spread=0.3), fed, FIT) > 1.3 * kernel_time(even, fed, FIT)
    single = Gemm(1, 4096, 4096, 32)
    assert kernel_time(replace(single, spread=0.3), H100, FIT) == pytest.approx(0.5 * kernel_time(single, H100, FIT), rel=0.2)


def test_grouped_queries_share_what_they_read() -> None:
    """Decode is bound by the cache of keys and values: fewer heads of them, less time."""
    many, few = (float(kernel_time(Attention(64, 1, 8192, 32, heads, 128), H100, FIT)) for heads in (32, 4))
    assert few < many / 4


def test_a_call_adds_the_host() -> None:
    kernel = softmax(32, 64)
    host = FIT.hosts["softmax"]
    assert float(call_time("softmax", kernel, A100, FIT)) == host.call + max(host.hidden, float(kernel_time(kernel, A100, FIT)))
    assert call_time("unknown", kernel, A100, FIT) == kernel_time(kernel, A100, FIT)


# --- operations of workloads --------------------------------------------------------------------------------------------


def test_a_contraction_is_a_gemm_at_its_local_extents() -> None:
    work = gemm(512, 1024, 2048, dtype="bf16")
    op = work.ops[0]
    assert kernel_time(op_kernel(work, op), A100, FIT) == kernel_time(Gemm(512, 1024, 2048), A100, FIT)
    shards = np.array([1024, 512, 256])
    local = kernel_time(op_kernel(work, op, {"n": shards}), A100, FIT)
    assert local.tolist() == [float(kernel_time(Gemm(512, int(n), 2048), A100, FIT)) for n in shards]


WORKLOADS: dict[str, dict[str, object]] = {
    "transformer-layer": {"tokens": 64, "model": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "hidden": 512},
    "hyena": {"length": 64, "model": 32, "batch": 2},
    "embedding": {"tokens": 64, "vocabulary": 4096, "width": 128},
    "scatter-add": {"tokens": 64, "slots": 4096, "width": 128},
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_operation_has_a_time(kind: str) -> None:
    """Positive, and no faster than its bytes."""
    work = build(kind, WORKLOADS[kind])
    for op in work.ops:
        took, (_, moved) = float(kernel_time(op_kernel(work, op), A100, FIT)), demand(op_kernel(work, op))
        assert took >= float(moved) / A100.memory


def test_a_lookup_reads_what_it_selects() -> None:
    """Not the whole table."""
    work = build("embedding", WORKLOADS["embedding"])
    _, moved = demand(op_kernel(work, work.ops[0]))
    assert float(moved) < 3 * work.bytes(work.ops[0].outputs[0])


def test_a_hundred_thousand_kernels_a_second() -> None:
    """Large shapes, as plans of training have; the machine may be busy, so that half of it is enough here."""
    rows = np.random.default_rng(1).integers(512, 16384, 20_000)
    kernel_time(Gemm(rows[:100], 4096, 4096), A100, FIT)
    start = time.process_time()
    kernel_time(Gemm(rows, 4096, 4096), A100, FIT)
    assert len(rows) / (time.process_time() - start) > 5e4
