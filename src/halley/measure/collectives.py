"""Collectives timed between GPUs of a machine, or between processes of a processor, through torch.distributed."""

from __future__ import annotations

import csv
import importlib
import io
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault
from halley.io.networks.nccl_tests import COLUMNS
from halley.measure.timing import Timing, summary

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives by the names that `halley calibrate network` reads."""
SIZES = tuple(2**power for power in range(10, 31, 2))
"""Sizes [B] as nccl-tests count them: 1 KiB to 1 GiB."""
CPU_SIZES = SIZES[:7]
WARM_UP, SAMPLES = 3, 9
CALLS_TIME = 2e-3
"""Time [s] that the calls of one sample take at least, about: far above the resolution of a clock."""
MOST_CALLS = 100
"""Most calls of one sample."""


@dataclass(frozen=True, slots=True)
class MeasuredCollective:
    """``size`` [B] as nccl-tests count it."""

    kind: str
    ranks: int
    size: int
    timing: Timing


def measure_collectives(device: str, ranks: int, sizes: Sequence[int] = ()) -> list[MeasuredCollective]:
    """Times of all kinds and sizes between so many processes, one for each GPU. ``device``: ``cuda`` or ``cpu``.

    Raises BadInput: no PyTorch; fewer GPUs than ranks; processes that fail.
    """
    try:
        torch: Any = importlib.import_module("torch")
        processes: Any = importlib.import_module("torch.multiprocessing")
    except ImportError:
        raise BadInput(Fault("measure", "PyTorch, which runs the collectives", "none", "pip install 'halley[torch]'")) from None
    if device == "cuda" and torch.cuda.device_count() < ranks:
        raise BadInput(Fault("--ranks", f"at most {torch.cuda.device_count()}, the GPUs of this machine", str(ranks)))
    chosen = tuple(sizes) or (SIZES if device == "cuda" else CPU_SIZES)
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port, out = free.getsockname()[1], Path(folder) / "times.csv"
        free.close()
        try:
            processes.spawn(_rank, (ranks, device, port, chosen, str(out)), nprocs=ranks)
        except (processes.ProcessRaisedException, processes.ProcessExitedException) as error:
            last = (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
            raise BadInput(Fault("measure", f"collectives between {ranks} processes", last)) from None
        rows = list(csv.reader(out.read_text().splitlines()))
    return [
        MeasuredCollective(kind, ranks, int(size), Timing(float(middle), float(spread), int(count)))
        for kind, size, middle, spread, count in rows
    ]


def collective_table(measured: Sequence[MeasuredCollective]) -> str:
    """The rows as `halley calibrate network` reads them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((item.kind, item.ranks, item.size, f"{item.timing.time * 1e6:.6g}") for item in measured)
    return text.getvalue()


def _rank(rank: int, ranks: int, device: str, port: int, sizes: Sequence[int], out: str) -> None:
    """What one process does; the first writes the times."""
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=ranks)
    try:
        wait = torch.cuda.synchronize if on_gpu else (lambda: None)
        rows = []
        for kind in KINDS:
            for size in sizes:
                call = _call(torch, distributed, kind, size, ranks, torch.device("cuda", rank) if on_gpu else torch.device("cpu"))
                if call is not None:
                    timing = _timed(distributed, call, wait)
                    rows.append((kind, size, timing.time, timing.spread, timing.count))
        if rank == 0:
            with Path(out).open("w", newline="") as file:
                csv.writer(file).writerows(rows)
    finally:
        distributed.destroy_process_group()


def _call(torch: Any, distributed: Any, kind: str, size: int, ranks: int, device: Any) -> Callable[[], object] | None:
    """A call with buffers of its own; None where the backend has no such collective or the size is too small for the ranks."""
    part = size // 2 // ranks
    if not part:
        return None
    whole = torch.ones(part * ranks, dtype=torch.bfloat16, device=device)
    piece = torch.ones(part, dtype=torch.bfloat16, device=device)
    # newer versions of PyTorch have other names for the same
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: distributed.all_reduce(whole),
        "all_gather": lambda: gather(whole, piece),
        "reduce_scatter": lambda: scatter(piece, whole),
        "all_to_all": lambda: distributed.all_to_all_single(torch.empty_like(whole), whole),
    }
    try:
        calls[kind]()
    except (RuntimeError, NotImplementedError):
        return None
    return calls[kind]


def _timed(distributed: Any, call: Callable[[], object], wait: Callable[[], object]) -> Timing:
    """All processes take the number of calls that the slowest asks for, so that none waits for another's calls."""

    def elapsed(number: int) -> float:
        distributed.barrier()
        wait()
        start = time.perf_counter()
        for _ in range(number):
            call()
        wait()
        return (time.perf_counter() - start) / number

    first = elapsed(WARM_UP)
    said: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(said, first)
    number = max(1, min(MOST_CALLS, int(CALLS_TIME / max(*said, 1e-9))))
    return summary([elapsed(number) for _ in range(SAMPLES)])
