"""Searches of a sweep on the machines of a Ray cluster, by the protocol of `concurrent.futures`. It needs the extra ``ray``."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib import import_module
from typing import Any, TypeVar

from halley.errors import BadInput, Fault
from halley.processes import THREADS

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
"""How long a cluster may take to answer at first [s]."""

RETRIES = 3
"""How often a task starts again whose worker was lost."""


class RayExecutor(Executor):
    """Runs each task in a process of a Ray cluster, with a single thread. A task whose worker is lost starts again elsewhere.

    ``address``: of a running cluster, as ``ray.init`` takes it; "": that of the environment, or else a cluster of this machine.
    Halley must be installed on every machine. Closing it ends its tasks, and a cluster that it started.

    Raises BadInput: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, address: str = "") -> None:
        self._ray = _ray()
        self._own = not self._ray.is_initialized()
        if self._own:
            threads = {"env_vars": dict.fromkeys(THREADS, "1")}
            where = address or os.environ.get("RAY_ADDRESS") or None
            try:
                _check_reachable(where or "")
                self._ray.init(address=where, log_to_driver=False, logging_level="error", runtime_env=threads)
            except (OSError, RuntimeError, ValueError) as error:
                got = str(error).partition("\n")[0]
                raise BadInput(Fault("--on ray", "a Ray cluster", got, "start one with 'ray start --head'")) from None
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        self._running: set[Any] = set()

    @property
    def workers(self) -> int:
        """Processors of the cluster: as many tasks run at a time."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Starts a task. Its future raises what the task raises, or `BrokenExecutor` where its workers were lost."""
        reference = self._task.remote(fn, args, kwargs)
        self._running.add(reference)
        found: Future[T] = Future()
        found.set_running_or_notify_cancel()

        def finish(done: Future[T]) -> None:
            self._running.discard(reference)
            error = done.exception()
            if error is None:
                found.set_result(done.result())
            elif isinstance(error, self._ray.exceptions.RayError) and not isinstance(error, self._ray.exceptions.RayTaskError):
                found.set_exception(BrokenExecutor(str(error).partition("\n")[0]))
            else:
                found.set_exception(getattr(error, "cause", None) or error)

        reference.future().add_done_callback(finish)
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends tasks that run, and the cluster if this executor started it."""
        for reference in list(self._running):
            self._ray.cancel(reference, force=True)
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises OSError or ValueError: nothing answers at an address with a port, for which Ray itself would wait for minutes."""
    if ":" in address:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise BadInput(Fault("--on ray", "the package ray", "none", "pip install 'halley[ray]'")) from None


def _call(fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return fn(*args, **kwargs)
