"""``python -m validation.referee``: winners of the published list by formula and by simulation; writes docs/referee.

``--chip a100 --only gemv``: search, cost and simulate these alone, print both times, their ratio and the plan; write nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from validation.referee import page, store
from validation.referee.compare import SECONDS, TASKS, busiest, compare, rivals, times
from validation.referee.problems import CHIPS, PROBLEMS, Problem, chosen
from validation.referee.why import chain

from halley.cost.anatomy import anatomy
from halley.cost.evaluate import evaluate
from halley.errors import HalleyError
from halley.io.chips.load import load_chip
from halley.ir.text import to_text
from halley.report.mapping.causes import summary
from halley.simulate.truncation import truncated_to_tasks

LONGER = 10
"""Factor of the limit of a second search, where the first one was stopped and its winner is too slow in the simulation: what was
found by then need not be the best plan by formula."""


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m validation.referee", description=__doc__)
    options.add_argument("--chip", action="append", default=[], choices=CHIPS, help="only on this chip; may be repeated")
    names = sorted({problem.group for problem in PROBLEMS} | {problem.kind for problem in PROBLEMS})
    options.add_argument("--only", action="append", default=[], metavar="WORD", help=f"a name begins so, or {', '.join(names)}")
    options.add_argument("--limit", type=float, default=SECONDS, metavar="SECONDS", help=f"of each search ({SECONDS:g})")
    options.add_argument("--tasks", type=int, default=TASKS, help=f"about the most tasks of a simulation ({TASKS})")
    options.add_argument("--keep", action="store_true", help="write what is chosen to docs/referee too")
    options.add_argument("--minutes", type=float, default=0.0, help="end after these, to go on another time; 0: run to the end")
    options.add_argument("--ten", action="store_true", help="also simulate the ten best plans")
    options.add_argument("--no-tree", dest="tree", action="store_false", help="leave the plans out")
    options.add_argument("--list", action="store_true", help="print the list and end")
    options.add_argument("--page", action="store_true", help="write the page from what is kept and end")
    asked = options.parse_args()
    some = list(chosen(asked.chip, asked.only))
    if asked.list:
        for chip, problem in some:
            print(chip, problem.name, problem.kind, sizes(problem))
    elif asked.page:
        page.write(list(store.load().values()))
    elif (asked.chip or asked.only) and not asked.keep:
        for chip, problem in some:
            _quick(chip, problem, asked.limit, asked.tasks, asked.tree, asked.ten)
    else:
        _kept(some, asked.limit, asked.tasks, asked.minutes)


def sizes(problem: Problem) -> str:
    return " ".join(f"{key}={value}" for key, value in problem.sizes.items())


def _kept(some: Sequence[tuple[str, Problem]], limit: float, tasks: int, minutes: float) -> None:
    """Bring these rows up to date, each written as soon as it is known."""
    end = time.monotonic() + 60 * minutes
    sources = {(chip, problem.name): store.fingerprint(chip, problem) for chip, problem in some}
    by_problem = sorted(some, key=lambda item: PROBLEMS.index(item[1]))  # a part of them says something of every chip
    for number, (chip, problem) in enumerate(by_problem, 1):
        rows = store.load()
        if (chip, problem.name) in rows and rows[chip, problem.name].source == sources[chip, problem.name]:
            continue
        if minutes and time.monotonic() > end:
            print(f"{len(some) - number + 1} of {len(some)} left; start it again")
            break
        row = row_of(chip, problem, limit, tasks, sources[chip, problem.name])
        outcome = f"{row.ratio:.3f}, lost {row.lost:.1%}" if row.told else row.reason
        print(f"{number:4} {row.chip:13} {row.problem:20} {outcome}", flush=True)
        order = {(one, other.name): place for place, (one, other) in enumerate(chosen((), ()))}
        rows = store.load()  # others may have written meanwhile
        store.save(sorted((rows | {row.key: row}).values(), key=lambda one: order.get(one.key, len(order))))
    page.write(list(store.load().values()))
    print("\n".join(page.broken(list(store.load().values()))) or "the law holds")


def row_of(chip: str, problem: Problem, limit: float, tasks: int, source: str) -> store.Row:
    """Search, simulate, and compare with the next best plans."""
    key = (chip, problem.name, problem.group, sizes(problem))
    try:
        found = compare(chip, problem, limit, tasks)
        race = rivals(found)
        if found.gap > 0 and race.lost > page.LOST:
            found = compare(chip, problem, LONGER * limit, tasks)
            race = rivals(found)
    except HalleyError as error:
        return store.Row(*key, reason=" ".join(str(error).split()), source=source)
    both = found.times
    scaled = (1e6 * found.formula, 1e6 * both.formula, 1e6 * both.simulated, both.ratio)
    return store.Row(*key, *scaled, both.tasks, both.iterations, found.gap, race.plans, race.lost, "", source)


def _quick(chip: str, problem: Problem, limit: float, tasks: int, with_tree: bool, ten: bool) -> None:
    """Print one comparison."""
    try:
        found = compare(chip, problem, limit, tasks)
    except HalleyError as error:
        print(f"{chip:13} {problem.name:20} {type(error).__name__}: {error}", flush=True)
        return
    both = found.times
    cut = f"first {both.iterations} iterations" if both.iterations else "whole"
    print(
        f"{chip:13} {problem.name:20} formula {both.formula * 1e6:10.3f} us  simulated {both.simulated * 1e6:10.3f} us  "
        f"ratio {both.ratio:6.3f}  {both.tasks} tasks, {cut}, search {found.searched:.1f} s, simulation {found.simulated:.1f} s",
        flush=True,
    )
    machine = load_chip(chip)
    if with_tree:
        _, run = times(found.workload, machine, found.tree, tasks)
        print("  by formula:", summary(anatomy(found.tree, evaluate(found.workload, machine, found.tree)).total))
        print("  simulated: ", ", ".join(busiest(run)))
        small = truncated_to_tasks(found.workload, found.tree, tasks)
        parts = chain(small.workload, machine, small.tree, 4 * tasks)[:8]
        print("  its chain: ", ", ".join(f"{what} {100 * share:.0f} %" for what, share in parts if share > 0.01))
        print("\n".join("    " + line for line in to_text(found.tree).splitlines()), flush=True)
    if ten:
        race = rivals(found)
        print(f"  of {race.plans} best plans the simulation's best is {100 * race.lost:.1f} % faster than the winner", flush=True)
        if with_tree and race.lost > 0:
            print("\n".join("    " + line for line in to_text(race.best).splitlines()), flush=True)


if __name__ == "__main__":
    main()
