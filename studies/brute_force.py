"""``python -m studies.brute_force STUDY``: searches every design of a sweep, whatever its bounds say, and compares the front.

The sweep must have been run (``halley sweep STUDY``). Answers are kept in a store of their own, so that nothing that the sweep
found is used, and a run that is stopped goes on where it was: ``--limit`` seconds at a time, each search to the gap of the study.
``--sample N`` searches only so many of the designs that bounds excluded, drawn at random. ``--draw N`` needs no sweep: it
searches so many designs of the study, and compares them with the front that a sweep of these alone finds with the same answers.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from halley.sweeps.explore import Standing
from halley.sweeps.load import load_study
from halley.sweeps.run import DesignSweep, SweepResult
from halley.sweeps.store import SweepStore
from halley.sweeps.study import Study, problem_key
from halley.sweeps.work import search

ROUNDING = 1e-8
"""Relative difference that is put down to rounding."""


def searched_values(study: Study, store: str | Path | None, numbers: Iterable[int] | None, limit: float) -> dict[int, float]:
    """The values of the designs of these numbers, or of all, each by searches of its own: by number, those that the store has or
    that were found in ``limit`` seconds."""
    wanted = None if numbers is None else set(numbers)
    designs = [design for design in study.designs() if wanted is None or design.number in wanted]
    sweep = DesignSweep(study, store, workers=0, everything=True, designs=designs)
    begun = time.monotonic()
    for found in sweep:
        if not found.stored and time.monotonic() - begun > limit:
            break
    names = {part.name for part in study.workloads}
    return {o.design.number: o.value for o in sweep.result().outcomes if o.answers.keys() == names}


class KnownAnswers(Executor):
    """In place of searches, their answers from a store; everything else is computed."""

    def __init__(self, store: SweepStore) -> None:
        self.store, self.asked = store, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The answer of a search, or what the task computes; the future is done."""
        done: Future[Any] = Future()
        if fn is search:
            self.asked += 1
            (kept,) = self.store.answers([problem_key(args[0])]).values()
            done.set_result(kept.answer)
        else:
            done.set_result(fn(*args, **kwargs))
        return done


def drawn(study: Study, store: Path, count: int, seed: int, limit: float) -> tuple[SweepResult, dict[int, float], int] | None:
    """A sweep of so many designs of a study, drawn at random, with the answers of searches of all of them; their values by
    number; how many of the searches the sweep asked for. None where some were not searched in ``limit`` seconds."""
    every = study.designs()
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    values = searched_values(study, store, [design.number for design in chosen], limit)
    if len(values) < len(chosen):
        return None
    known = KnownAnswers(SweepStore(store, write=False))
    result = DesignSweep(study, executor=known, designs=sorted(chosen, key=lambda design: design.number)).run()
    return result, values, known.asked


def excluded(result: SweepResult, count: int, seed: int) -> list[int]:
    """The numbers of so many designs, or of all if there are fewer, that bounds excluded."""
    left_out = (Standing.EXCLUDED, Standing.PARTLY)
    numbers = [outcome.design.number for outcome in result.outcomes if outcome.standing in left_out]
    return sorted(random.Random(seed).sample(numbers, min(count, len(numbers))))


def beating(result: SweepResult, values: Mapping[int, float]) -> dict[int, float]:
    """The designs that are better than the front says is possible: by number, the least value of a point of the front that has no
    larger figure, over the value of the design, if that is more than 1 and the proven gap."""
    return {number: ratio for number, ratio in over_values(result, values).items() if ratio > (1 + result.gap) * (1 + ROUNDING)}


def over_values(result: SweepResult, values: Mapping[int, float]) -> dict[int, float]:
    """The least value of a point of the front that has no larger figure, over the value of a design, by its number."""
    minimised, found = result.study.minimised, {}
    front = [result.outcomes[place] for place in result.front]
    for outcome in result.outcomes:
        if (value := values.get(outcome.design.number)) is None or math.isinf(value):
            continue
        figures = outcome.design.figures
        able = [o.value for o in front if all(o.design.figures[name] <= figures[name] for name in minimised)]
        found[outcome.design.number] = min(able, default=math.inf) / value
    return found


def main() -> int:
    """The exit code: 0 if all designs that were asked for were searched and none is better than the front, 3 if some are left, 1
    if one is better."""
    options = argparse.ArgumentParser(prog="python -m studies.brute_force", description="Compares a front with brute force.")
    options.add_argument("study", metavar="STUDY", help="a study file whose sweep has ended")
    options.add_argument(
        "--limit", type=float, default=math.inf, metavar="SECONDS", help="stop after this time; no limit if left out"
    )
    options.add_argument("--sample", type=int, metavar="N", help="only so many designs that bounds excluded; all if left out")
    options.add_argument("--seed", type=int, default=0, metavar="N", help="of the sample; 0 if left out")
    options.add_argument("--draw", type=int, metavar="N", help="so many designs of the study, without a sweep")
    asked = options.parse_args()
    study, path = load_study(asked.study), Path(asked.study)
    if asked.draw is not None:
        return _drawn(study, path, asked.draw, asked.seed, asked.limit)
    result = DesignSweep(study, path.with_suffix(".db"), read_only=True).result()
    if not result.done:
        options.error(f"STUDY: expected a sweep that has ended; got designs that are open; run 'halley sweep {path}'")
    numbers = None if asked.sample is None else excluded(result, asked.sample, asked.seed)
    values = searched_values(study, path.with_suffix(".all.db"), numbers, asked.limit)
    wrong, every = beating(result, values), len(result.outcomes if numbers is None else numbers)
    kind = "designs" if numbers is None else "excluded designs"
    print(f"{len(values):,} of {every:,} {kind} searched; {len(wrong):,} are better than the front, proven to {result.gap:.2%}")
    if ratios := over_values(result, values).values():
        print(f"the best point of the front with no larger figure takes {min(ratios):.3f} to {max(ratios):.3f} of their values")
    for number, ratio in wrong.items():
        print(f"design {number}: by {ratio:.4f}")
    return 1 if wrong else 0 if len(values) == every else 3


def _drawn(study: Study, path: Path, count: int, seed: int, limit: float) -> int:
    """As `main`, of designs that are drawn."""
    found = drawn(study, path.with_suffix(".all.db"), count, seed, limit)
    if found is None:
        print("not all designs are searched yet; the same command goes on")
        return 3
    result, values, searches = found
    left_out = excluded(result, count, 0)
    wrong, over = beating(result, values), over_values(result, values)
    every = len(result.outcomes) * len(study.workloads)
    print(f"a sweep of {len(result.outcomes):,} designs: {searches:,} of {every:,} searches, a front of {len(result.front):,}")
    print(f"{len(left_out):,} excluded designs searched; {len(wrong):,} are better than the front, proven to {result.gap:.2%}")
    if left_out:
        ratios = [over[number] for number in left_out]
        print(f"the best point of the front with no larger figure takes {min(ratios):.3f} to {max(ratios):.3f} of their values")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
