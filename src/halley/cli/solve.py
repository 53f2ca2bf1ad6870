"""A search with its progress bar and its Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from halley.answer import Status
from halley.cli.errors import Cancelled, LimitReached
from halley.cli.interrupts import name_of, noted
from halley.errors import Fault, SearchStopped
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.result import Result

if TYPE_CHECKING:
    from rich.progress import Progress

PROGRESS_DELAY = 1.0
"""Seconds before a progress bar appears."""


class SearchProgressBar:
    """What a search calls at every step: a progress bar on a terminal, once it has taken a while, and the end of the search by
    Ctrl-C where the exception of its own was lost. Raises KeyboardInterrupt: there was one."""

    def __init__(self, console: Console, label: str) -> None:
        self.console, self.label = console, label
        self.interrupts: list[int] = []
        self.started = time.monotonic()
        self.progress: Progress | None = None

    def __call__(self, text: str, share: float) -> None:
        if self.interrupts:
            raise KeyboardInterrupt
        if self.progress is None:
            if not self.console.is_terminal or time.monotonic() - self.started < PROGRESS_DELAY:
                return
            # loaded by then only: most commands end without a bar
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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

    Raises Infeasible; LimitReached, Cancelled: the limit, or a signal, came before any mapping was found.
    """
    return solve_noted(problem, console, label)[0]


def solve_each(problems: Sequence[tuple[str, Problem]], console: Console, announced: bool = False) -> list[Result]:
    """The results of sequential searches, each with its label, which may be ``announced`` where no bar shows it. Ctrl-C gives
    those so far, the best of the search under way among them.

    Raises as `solve`, Cancelled and KeyboardInterrupt only before the first result.
    """
    results: list[Result] = []
    for label, problem in problems:
        if announced and not console.is_terminal:
            console.print(Text(label))
        try:
            result, interrupted = solve_noted(problem, console, label)
        except (Cancelled, KeyboardInterrupt):
            if not results:
                raise
            interrupted = True
        else:
            results.append(result)
        if interrupted and len(results) < len(problems):
            console.print(Text(f"halley: interrupted; {len(results)} of {len(problems)} searches finished"))
            break
    return results


def solve_noted(problem: Problem, console: Console, label: str) -> tuple[Result, bool]:
    """The result, and whether Ctrl-C asked for it."""
    with searching(console, f"{problem.workload.name} on {problem.chip.name}", "mapping", label) as bar:
        return optimise(problem, bar), bool(bar.interrupts)


@contextmanager
def searching(console: Console, where: str, what: str, label: str = "searching") -> Iterator[SearchProgressBar]:
    """Progress on the console while a search for ``what`` runs, and words for a search that found nothing.

    Raises LimitReached, Cancelled: the limit [s], or a signal, ended the search before it had an answer.
    """
    bar = SearchProgressBar(console, label)
    try:
        with noted() as bar.interrupts:
            yield bar
    except SearchStopped:
        if bar.interrupts:
            got = f"{name_of(bar.interrupts[-1])} before the first one"
            raise Cancelled(Fault(where, f"a {what}", got, "let the search run longer")) from None
        raise LimitReached(Fault(where, f"a {what} within the time limit", "none", "raise --time-limit")) from None
    finally:
        bar.stop()


def enough(result: Result, gap: float) -> bool:
    """Whether the best plan is proven to within the gap that was asked for."""
    return result.best.status is Status.OPTIMAL or result.best.certificate.gap <= gap
