"""A GPU or the CPU through PyTorch, as what times kernels."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from halley.errors import BadInput, Fault
from halley.measure.suite import UNDER_LOAD, Case, operand_bytes
from halley.measure.timing import Call, NotSupported, Timing, summary
from halley.measure.torch_calls import make_call

SAMPLES = 9
"""Samples of a case, of which the median counts."""
FEWEST_SAMPLES, SAMPLES_TIME = 3, 1.0
"""A case takes so many samples at least, and no further one after so long [s]."""
GRAPH_TIME = 1e-3
"""Time [s] that the calls of one sample take at least, about: thousand times the resolution of an event."""
MOST_CALLS = 200
"""Most calls of one sample."""
OPERANDS_PER_CACHE = 3.0
"""Operands of all copies together, in sizes of the device's cache: more than enough that none is still there."""
CAPACITY_SHARE = 0.4
"""Part of the free memory that the copies of one case may take."""
LOAD_TIME, LOAD_CALLS = 5.0, 50
"""Length [s] of the loop under load, and calls of one of its samples."""
CPU_CACHE = 32e6
"""Cache of a CPU [B]: about the last level of a server's."""
CPU_CAPACITY = 1e8
"""Memory that a case on a CPU may take [B]: cases stay short."""
CPU_OPERATIONS = 5e8
"""Most operations of a case on a CPU: some hundredths of a second of a few cores."""
CPU_COPIES = 8
"""Most copies of the operands of a case on a CPU."""
HOST_CALLS = 200
"""Launches timed at once: fewer than the queue of a GPU holds."""


def torch_device(name: str, warm: bool = False) -> CudaDevice | CpuDevice:
    """``cuda``, ``cuda:1`` or ``cpu``. ``warm``: calls repeat the same operands. Raises BadInput: no PyTorch, no such device."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise BadInput(Fault("measure", "PyTorch, which runs the kernels", "none", "pip install 'halley[torch]'")) from None
    kind, _, number = name.partition(":")
    if kind == "cpu" and not number:
        return CpuDevice(torch, warm)
    if kind != "cuda" or (number and not number.isdecimal()):
        raise BadInput(Fault("--device", "cuda, cuda:NUMBER or cpu", repr(name[:40])))
    if not torch.cuda.is_available() or int(number or 0) >= torch.cuda.device_count():
        have = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU that PyTorch can use"
        raise BadInput(Fault("--device", name, have, "give --device cpu to try it on the processor"))
    return CudaDevice(torch, int(number or 0), warm)


class CudaDevice:
    """A GPU. A sample is a graph of calls that follow each other, timed by events; each call has other operands than the one
    before, so that they come from memory, as between the layers of a model."""

    def __init__(self, torch: Any, number: int, warm: bool = False) -> None:
        self.torch, self.device, self.warm = torch, torch.device("cuda", number), warm
        properties = torch.cuda.get_device_properties(number)
        self.name: str = properties.name
        self.software = f"torch {torch.__version__}"
        self.cache = float(getattr(properties, "L2_cache_size", 0) or CPU_CACHE)
        self.capacity = CAPACITY_SHARE * torch.cuda.mem_get_info(number)[0]
        self.operations, self.copies = math.inf, MOST_CALLS
        self.stream = torch.cuda.Stream(number)

    def timed(self, case: Case) -> Timing:
        torch = self.torch
        try:
            with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                if case.op == UNDER_LOAD:
                    return self._loaded(case)
                calls = copies(self, case)
                for call in calls:
                    call()
                first = self._elapsed(lambda: [call() for call in calls]) / len(calls)
                number = max(len(calls), min(MOST_CALLS, math.ceil(GRAPH_TIME / max(first, 1e-9))))
                sequence = [calls[index % len(calls)] for index in range(number)]
                replay = self._graph(sequence)
                replay()
                return sampled(lambda: self._elapsed(replay) / number)
        except torch.OutOfMemoryError:
            raise NotSupported("not enough memory") from None
        except (RuntimeError, NotImplementedError) as error:
            raise NotSupported(_short(error)) from None
        finally:
            torch.cuda.synchronize(self.device)

    def _graph(self, calls: Sequence[Call]) -> Call:
        """One call that runs all of them without the host between."""
        graph = self.torch.cuda.CUDAGraph()
        # relaxed: gradients are launched by another thread
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode="relaxed"):
            for call in calls:
                call()
        return lambda: graph.replay()

    def _elapsed(self, call: Call) -> float:
        """Time [s] on the device."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(self.stream)
        call()
        end.record(self.stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def launch(self) -> Timing:
        """Time of the host to launch an operator of one small kernel."""
        return _launch(self, lambda: self.torch.cuda.synchronize(self.device))

    def _loaded(self, case: Case) -> Timing:
        """The last samples of a long loop."""
        call = make_call(self.torch, case, self.device)
        call()
        ended, samples = time.monotonic() + LOAD_TIME, list[float]()
        while time.monotonic() < ended or len(samples) < SAMPLES:
            samples.append(self._elapsed(lambda: [call() for _ in range(LOAD_CALLS)]) / LOAD_CALLS)
        return summary(samples[-SAMPLES:])


class CpuDevice:
    """The processor, with the threads that PyTorch takes."""

    def __init__(self, torch: Any, warm: bool = False) -> None:
        self.torch, self.device, self.warm = torch, torch.device("cpu"), warm
        self.name = "CPU"
        self.software = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        self.cache, self.capacity, self.operations = CPU_CACHE, CPU_CAPACITY, CPU_OPERATIONS
        self.copies = CPU_COPIES

    def timed(self, case: Case) -> Timing:
        try:
            calls = copies(self, case)
            for call in calls:
                call()
            return sampled(lambda: self._elapsed(calls) / len(calls))
        except (RuntimeError, NotImplementedError) as error:
            raise NotSupported(_short(error)) from None

    def _elapsed(self, calls: Sequence[Call]) -> float:
        start = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - start

    def launch(self) -> Timing:
        """Time of an operator on a few elements."""
        return _launch(self, lambda: None)


def copies(device: CudaDevice | CpuDevice, case: Case) -> list[Call]:
    """Calls with operands of their own, together larger than the cache; a single one for `warm` devices."""
    size = operand_bytes(case)
    number = 1 if device.warm else math.ceil(OPERANDS_PER_CACHE * device.cache / size)
    number = max(1, min(number, device.copies, int(device.capacity / size)))
    return [make_call(device.torch, case, device.device) for _ in range(number)]


def sampled(sample: Callable[[], float]) -> Timing:
    """Samples [s], fewer of what takes long."""
    started, samples = time.monotonic(), list[float]()
    while len(samples) < SAMPLES and (len(samples) < FEWEST_SAMPLES or time.monotonic() - started < SAMPLES_TIME):
        samples.append(sample())
    return summary(samples)


def _launch(device: CudaDevice | CpuDevice, wait: Call) -> Timing:
    call = make_call(device.torch, Case("add", {"rows": 1, "columns": 256}), device.device)
    samples = []
    for _ in range(SAMPLES):
        wait()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        samples.append((time.perf_counter() - start) / HOST_CALLS)
    return summary(samples)


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
