"""``python -m validation.space_loss``: how much better a random search over the mapping language is than the searched optimum.

Each problem of the list is searched, and random edits of the winner are climbed for ``--minutes``. The loss of the space is the
winner's value over the climb's best, less one. Writes docs/space-loss.csv and docs/space-loss.md, a row as soon as it is known;
it may be stopped, and goes on with ``--resume``. ``--only WORD`` prints the rows and mappings of these problems, and writes
nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from validation.space_loss import page
from validation.space_loss.climb import climb
from validation.space_loss.page import Row
from validation.space_loss.problems import PROBLEMS, Problem

from halley import Problem as Search
from halley import load_chip, optimise, to_text
from halley.errors import HalleyError
from halley.ir.mapping import Node
from halley.mapping.problem import Objective
from halley.workloads import variants

SEARCH_LIMIT = 60.0
"""Time limit of each search [s]; a winner that is not proven optimal says so in its row."""


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m validation.space_loss", description=__doc__)
    options.add_argument("--minutes", type=float, default=60.0, help="of climbing, per problem (60)")
    options.add_argument("--seed", type=int, default=0, help="of the edits (0)")
    options.add_argument("--only", action="append", default=[], metavar="WORD", help="a part of the name, or the chip")
    options.add_argument("--resume", action="store_true", help="leave rows that are there as they are")
    options.add_argument("--page", action="store_true", help="write the page from the rows that are there and end")
    asked = options.parse_args()
    rows = {row.key: row for row in page.load()} if asked.resume or asked.page else {}
    for problem in () if asked.page else chosen(asked.only):
        if (problem.chip, problem.name, problem.objective) in rows and not asked.only:
            continue
        row, found, better = measured(problem, 60 * asked.minutes, asked.seed)
        print(f"{row.chip:13} {row.problem:60} {row.objective:6} {row.reason or f'{row.loss:.2%}'}", flush=True)
        if asked.only and found is not None and better is not None:
            print("searched:", to_text(found), "climbed:", to_text(better), sep="\n", flush=True)
        rows[row.key] = row
        if not asked.only:
            page.save(list(rows.values()))
    if not asked.only:
        page.write(list(rows.values()))


def chosen(words: Sequence[str]) -> list[Problem]:
    """The problems that are named; all where none is."""
    return [problem for problem in PROBLEMS if not words or any(word == problem.chip or word in problem.name for word in words)]


def measured(problem: Problem, seconds: float, seed: int) -> tuple[Row, Node | None, Node | None]:
    """The row of a problem, the search's mapping and the climb's best one."""
    chip, key = load_chip(problem.chip), (problem.chip, problem.name, problem.objective)
    work = problem.workload()
    try:
        best = optimise(Search(work, chip, Objective(problem.objective), baselines=False, time_limit=SEARCH_LIMIT)).best
    except HalleyError as error:
        return Row(*key, reason=" ".join(str(error).split())), None, None
    variant = next((each for each in variants(work) if each.variant == best.variant), work)
    climbed = climb(variant, chip, best.plan, problem.objective, seed, seconds)
    value = best.certificate.value
    row = Row(*key, value, best.certificate.gap, climbed.value, climbed.proposed, climbed.legal, seconds / 60)
    return row, best.plan, climbed.tree


if __name__ == "__main__":
    main()
