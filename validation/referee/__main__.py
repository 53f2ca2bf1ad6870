"""``python -m validation.referee``: winners of the published list by formula and by simulation.

``--chip a100 --only gemv``: search, cost and simulate these alone, print both times, their ratio and the tree.
"""

from __future__ import annotations

import argparse

from validation.referee.compare import SECONDS, TASKS, busiest, compare, times
from validation.referee.problems import CHIPS, PROBLEMS, chosen

from halley.cost.anatomy import anatomy
from halley.cost.evaluate import evaluate
from halley.errors import HalleyError
from halley.io.load import load_chip
from halley.ir.text import to_text
from halley.report.causes import summary


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m validation.referee", description=__doc__)
    options.add_argument("--chip", action="append", default=[], choices=CHIPS, help="only on this chip; may be repeated")
    names = sorted({problem.group for problem in PROBLEMS} | {problem.kind for problem in PROBLEMS})
    options.add_argument("--only", action="append", default=[], metavar="WORD", help=f"a name's beginning, or: {', '.join(names)}")
    options.add_argument("--limit", type=float, default=SECONDS, metavar="SECONDS", help="of each search")
    options.add_argument("--tasks", type=int, default=TASKS, help=f"most visits of nodes that are simulated ({TASKS})")
    options.add_argument("--no-tree", dest="tree", action="store_false", help="leave the trees out")
    options.add_argument("--list", action="store_true", help="print the list and end")
    asked = options.parse_args()
    for chip, problem in chosen(asked.chip, asked.only):
        if asked.list:
            print(chip, problem.name, problem.kind, *(f"{key}={value}" for key, value in problem.sizes.items()))
            continue
        _quick(chip, problem, asked.limit, asked.tasks, asked.tree)


def _quick(chip, problem, limit: float, tasks: int, with_tree: bool) -> None:  # type: ignore[no-untyped-def]
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
    if with_tree:
        machine = load_chip(chip)
        _, run = times(found.workload, machine, found.tree, tasks)
        print("  by formula:", summary(anatomy(found.tree, evaluate(found.workload, machine, found.tree)).total))
        print("  simulated: ", ", ".join(busiest(run)))
        print("\n".join("    " + line for line in to_text(found.tree).splitlines()), flush=True)


if __name__ == "__main__":
    main()
