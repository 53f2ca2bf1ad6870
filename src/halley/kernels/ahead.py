"""Searches of kernels in other processes, ahead of their turn.

The search for a plan decides after each kernel which one it needs next. Other processes meanwhile search those that it will
probably need. A result is used when its turn comes, so that the plan is the same with any number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future

from halley.errors import Fault, SearchStopped
from halley.ir.hardware import Chip
from halley.kernels.searched import KernelCost, KernelShape, search_kernel
from halley.processes import WorkerPool

START_AFTER = 2.0
"""Time of searches in this process after which others are started [s]: each takes half a second to start."""


class SearchesAhead:
    """Searches kernels of a chip, with so many ``workers`` besides this process; none if fewer than two. Leave it by ``with``:
    the processes end then, whatever they do."""

    def __init__(self, chip: Chip, workers: int = 1) -> None:
        self.chip, self.workers = chip, workers
        self._pool: WorkerPool | None = None
        self._begun: dict[KernelShape, Future[KernelCost]] = {}
        self._spent = 0.0

    def __enter__(self) -> SearchesAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()

    def expect(self, shapes: Sequence[KernelShape], limit: float | None = None) -> None:
        """What will probably be needed, in this order, within ``limit`` [s]. What was expected before is dropped, if its search
        has not begun."""
        self._begun = {shape: future for shape, future in self._begun.items() if not future.cancel()}
        if self.workers < 2 or self._spent < START_AFTER or len(shapes) < 2:
            return
        end = None if limit is None else time.monotonic() + limit
        try:
            if self._pool is None:
                self._pool = WorkerPool(self.workers)
            for shape in shapes:
                if shape not in self._begun:
                    self._begun[shape] = self._pool.executor.submit(_searched, self.chip, shape, end)
        except BrokenExecutor:
            self._give_up()

    def search(self, shape: KernelShape, limit: float | None = None) -> KernelCost:
        """The cost of a kernel, with proof.

        Raises SearchStopped: ``limit`` [s], or a signal, ended the search before; Infeasible: no mapping fits.
        """
        if (future := self._begun.pop(shape, None)) is not None:
            try:
                return future.result(limit)
            except TimeoutError:
                where = f"{shape} on {self.chip.name}"
                raise SearchStopped(Fault(where, "the best mapping, with proof", "none in time")) from None
            except (BrokenExecutor, CancelledError):  # a process was ended from outside, perhaps for want of memory
                self._give_up()
        begun = time.monotonic()
        try:
            return _searched(self.chip, shape, None if limit is None else begun + limit)
        finally:
            self._spent += time.monotonic() - begun

    def _give_up(self) -> None:
        """All that follows is searched in this process."""
        self.workers = 1
        self._begun.clear()


def _searched(chip: Chip, shape: KernelShape, end: float | None) -> KernelCost:
    """``end`` [s]: on the clock of `time.monotonic`, which all processes share."""
    return search_kernel(chip, shape, None if end is None else max(end - time.monotonic(), 0.0))
