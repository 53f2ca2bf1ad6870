"""Processes that search: a pool that ends with its owner, whatever ends it, and an executor that works in this process."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")

MOST_WORKERS = 1024
"""Most searches at a time that a command takes."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Variables that keep a process to one thread: as many processes as cores are at work."""


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """Worker processes, each with a single thread. They end when `close` is called, when their owner ends, and when it
    is killed: each waits for that beside its work. Ctrl-C is the owner's affair."""

    def __init__(self, workers: int) -> None:
        context = get_context("spawn")
        ended, self._writer = context.Pipe(duplex=False)
        before = {name: os.environ.get(name) for name in THREADS}
        os.environ.update(dict.fromkeys(THREADS, "1"))  # read by libraries while a process starts
        try:
            self.executor = ProcessPoolExecutor(workers, context, _begin, (ended,))
            for started in [self.executor.submit(_ready) for _ in range(workers)]:
                started.result()
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def close(self) -> None:
        """Ends the processes at once, with what they are doing."""
        self._writer.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


def _begin(ended: Connection) -> None:
    """The start of a worker: it leaves Ctrl-C to its owner, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(200_000, 10, 10)
    threading.Thread(target=_follow, args=(ended,), daemon=True).start()


def _follow(ended: Connection) -> None:
    owner = parent_process()
    wait([ended, *([owner.sentinel] if owner is not None else [])])
    os._exit(0)


def _ready() -> bool:
    return True


class InProcess(Executor):
    """An executor that runs each task when it is submitted, in the calling thread.

    >>> InProcess().submit(max, 1, 2).result()
    2
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs the task; the future is done."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
