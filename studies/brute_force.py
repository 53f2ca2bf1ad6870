"""``python -m studies.brute_force STUDY``: searches every design of a sweep, whatever its bounds say, and compares the front.

The sweep must have been run (``halley sweep STUDY``). Answers are kept in a store of their own, so that nothing that the sweep
found is used, and a run that is stopped goes on where it was: ``--limit`` seconds at a time, each search to the gap of the study.
``--sample N`` searches only so many of the designs that bounds excluded, drawn at random.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from halley.sweeps.explore import Standing
from halley.sweeps.load import load_study
from halley.sweeps.run import DesignSweep, SweepResult
from halley.sweeps.study import Study

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
    asked = options.parse_args()
    study, path = load_study(asked.study), Path(asked.study)
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


if __name__ == "__main__":
    sys.exit(main())
