"""A search with its progress bar and its Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from halley.cli.errors import Cancelled, LimitReached
from halley.errors import Fault, Infeasible
from halley.search.optimise import optimise
from halley.search.problem import Problem
from halley.search.result import Result, Status

PATIENCE = 1.0
"""Seconds before a progress bar appears."""


class Bar:
    """A progress bar on a terminal, once the search has taken a while."""

    def __init__(self, console: Console, label: str) -> None:
        self.console, self.label = console, label
        self.started = time.monotonic()
        self.progress: Progress | None = None

    def __call__(self, text: str, share: float) -> None:
        if self.progress is None:
            if not self.console.is_terminal or time.monotonic() - self.started < PATIENCE:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[text]}"))
            self.progress = Progress(*columns, console=self.console, transient=True)
            self.progress.add_task(self.label, total=1.0, text=text)
            self.progress.start()
        self.progress.update(self.progress.task_ids[0], completed=share, text=text)

    def stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()


def solve(problem: Problem, console: Console, label: str = "searching") -> Result:
    """The result, with progress on the console. Ctrl-C gives the best so far.

    Raises Infeasible; LimitReached, Cancelled: the limit, or Ctrl-C, came before any mapping was found.
    """
    with searching(console, f"{problem.workload.name} on {problem.chip.name}", "mapping", problem.time_limit, label) as bar:
        return optimise(problem, bar)


@contextmanager
def searching(console: Console, where: str, what: str, limit: float | None, label: str = "searching") -> Iterator[Bar]:
    """Progress on the console while a search for ``what`` runs, and words for a search that found nothing.

    Raises LimitReached, Cancelled for Infeasible, where the limit [s], or Ctrl-C, came first.
    """
    bar = Bar(console, label)
    try:
        with _interrupts() as interrupts:
            yield bar
    except Infeasible:
        # the search words both alike; what the user needs to hear, and the exit code, differ
        if interrupts:
            raise Cancelled(Fault(where, f"a first {what}", "Ctrl-C before there was one", "let it run longer")) from None
        if limit is not None and time.monotonic() - bar.started > limit:
            raise LimitReached(Fault(where, f"a first {what} before the time limit", "none", "raise --time-limit")) from None
        raise
    finally:
        bar.stop()


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects the Ctrl-Cs that arrive, beside the KeyboardInterrupt that each raises."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def enough(result: Result, gap: float) -> bool:
    """Whether the best plan is proven to within the gap that was asked for."""
    return result.best.status is Status.OPTIMAL or result.best.certificate.gap <= gap
