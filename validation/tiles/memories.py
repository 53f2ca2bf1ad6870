"""Latencies and rates of a GPU's memories and vector units, by small CUDA kernels.

    python -m validation.tiles.memories OUT.json

Needs CuPy and a GPU, nothing of Halley. Cycles are those of the cores' clock; its rate during a kernel is cycles over time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

SOURCE = Path(__file__).with_suffix(".cu")
LINE = 32
"""Words in a line of 128 B."""


def chain(size: int) -> cp.ndarray:
    """A cycle through all lines of ``size`` bytes, in random order."""
    lines = size // 128
    order = np.random.default_rng(0).permutation(lines).astype(np.uint32)
    found = np.zeros(lines * LINE, np.uint32)
    found[order * LINE] = np.roll(order, -1) * LINE
    return cp.asarray(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Latencies and rates of a GPU.")
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    module = cp.RawModule(code=SOURCE.read_text(encoding="utf-8"), options=("--std=c++17",))
    cores = cp.cuda.Device().attributes["MultiProcessorCount"]
    out, sink = cp.zeros(8192, cp.uint64), cp.zeros(16, cp.float32)
    found: dict[str, Any] = {"device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(), "cores": cores}

    def run(name: str, blocks: int, threads: int, *args: Any) -> list[int]:
        module.get_function(name)((blocks,), (threads,), args)
        cp.cuda.Device().synchronize()
        return [int(word) for word in out.get()[: 2 * blocks]]

    def seconds(call: Callable[[], object]) -> list[float]:
        times = []
        for _ in range(6):
            start, end = cp.cuda.Event(), cp.cuda.Event()
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(cp.cuda.get_elapsed_time(start, end) / 1e3)
        return times[1:]  # the first one loads the kernel

    for megabytes in (1, 4, 16, 32, 48, 64, 256, 1024):
        next_ = chain(megabytes << 20)
        steps = 20000 if megabytes > 48 else 2 * (megabytes << 20) // 128
        found[f"latency of a load, {megabytes} MiB [cycles]"] = run("chase", 1, 1, next_, np.int32(steps), out)[0] / steps
    found["latency of shared memory [cycles]"] = run("chase_shared", 1, 128, np.int32(20000), out)[0] / 20000
    for megabytes, blocks in ((2, 1), (2, 4), (16, cores), (24, cores), (32, cores), (40, cores)):
        words = (megabytes << 20) // 16
        buffer = cp.zeros(4 * words, cp.float32)
        rounds = 8 if blocks > 4 else 40
        run("read_l2", blocks, 1024, buffer, np.int32(words), np.int32(2), out, sink)
        seen = run("read_l2", blocks, 1024, buffer, np.int32(words), np.int32(rounds), out, sink)
        found[f"L2 reads of {megabytes} MiB by {blocks} cores [B/cycle]"] = blocks * rounds * words * 16 / max(seen[::2])
        found[f"clock of it, {megabytes} MiB by {blocks} cores [MHz]"] = 1e3 * seen[0] / seen[1]
    for megabytes in (8, 24):
        words = (megabytes << 20) // 16
        buffer = cp.zeros(4 * words, cp.float32)
        seen = run("write_l2", cores, 1024, buffer, np.int32(words), np.int32(100), out)
        found[f"L2 writes of {megabytes} MiB [B/cycle]"] = 100 * words * 16 / max(seen[::2])
    large = cp.zeros(1 << 30, cp.float32)
    half, words = large.size // 2, np.uint64(large.size // 4)
    moves = {
        "DRAM reads [B/s]": lambda: module.get_function("read_dram")((8 * cores,), (1024,), (large, words, sink)),
        "DRAM copy, reads and writes [B/s]": lambda: cp.copyto(large[half:], large[:half]),
        "DRAM writes [B/s]": lambda: large.data.memset_async(0, large.nbytes),
    }
    for name, move in moves.items():
        found[name] = large.nbytes / statistics.median(seconds(move))
    run("read_shared", cores, 1024, np.int32(100), out, sink)
    seen = run("read_shared", cores, 1024, np.int32(1000), out, sink)
    found["shared memory [B/cycle]"] = 1000 * 8 * 1024 * 16 / seen[0]
    for name in ("exp", "fma", "add", "max", "reciprocal", "convert", "shuffle"):
        run(f"rate_{name}", cores, 1024, np.int32(100), out, sink)
        seen = run(f"rate_{name}", cores, 1024, np.int32(4000), out, sink)
        found[f"{name} [operations/cycle and core]"] = 4000 * 8 * 1024 / seen[0]
        found[f"clock of {name} [MHz]"] = 1e3 * seen[0] / seen[1]
    word = cp.zeros(32, cp.int32)
    for blocks in (2, cores):
        word[:] = 0
        seen = run("exchange", blocks, 32, word, np.int32(2000), out)
        found[f"a word to another core and back, first and last of {blocks} [cycles]"] = seen[0] / 2000
    host, size = cp.cuda.alloc_pinned_memory(1 << 30), 1 << 30
    stream = cp.cuda.get_current_stream().ptr
    for name, to, at in (("to", large.data.ptr, host.ptr), ("from", host.ptr, large.data.ptr)):
        took = min(seconds(lambda to=to, at=at: cp.cuda.runtime.memcpyAsync(to, at, size, cp.cuda.runtime.memcpyDefault, stream)))
        found[f"copies {name} the GPU, pinned memory [B/s]"] = size / took
    counts = cp.zeros(32 * cores, cp.uint32)
    for members in (2, 11, 12, cores):
        counts[:] = 0
        seen = run("barriers", cores, 256, counts, np.int32(members), np.int32(1000), out)
        found[f"barrier of {members} cores [ns]"] = max(seen[::2]) / 1000
    parts = cp.zeros(2 * cores * 65536, cp.float32)
    for members, share in ((11, 0), (12, 0), (11, 1), (12, 1)):
        for words in (1, 128, 256, 1024, 4096, 16384, 32768):
            if share or words <= 4096:
                counts[:] = 0
                asked = (np.int32(members), np.int32(words), np.int32(share), np.int32(400))
                seen = run("sums", cores, 1024, parts, counts, *asked, out, sink)
                name = "reduce-scatter" if share else "all-reduce"
                found[f"{name} of {4 * words} B among {members} cores, all groups at a time [ns]"] = max(seen[::2]) / 400
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
