"""The smallest change of what a user fixed that makes a plan fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.training.plan import Fixed, TrainingProblem

OPTION_NAMES = {"data": "dp", "stages": "pp", "model": "tp", "sharded": "zero", "fused": "attention"}
"""The user's names of choices, where they differ from those in `Fixed`."""

TRIED_LAST = ("axes", "data", "stages", "model")
"""Choices that are changed last: another degree is another plan."""


def chosen(fixed: Fixed) -> list[str]:
    """The choices that the user has fixed, by their names in `Fixed`."""
    return [each.name for each in fields(Fixed) if getattr(fixed, each.name) not in (None, {})]


def smallest_change(problem: TrainingProblem, fits: Callable[[TrainingProblem], bool]) -> str:
    """The change in words; changes are tried from small to large. ``fits``: whether a problem has a plan that fits."""
    for words, fixed in _changes(problem):
        if fits(replace(problem, fixed=fixed)):
            return words
    return ""


def _changes(problem: TrainingProblem) -> Iterator[tuple[str, Fixed]]:
    """Changes in words, each with its choices: one choice changed, one left open, all left open."""
    fixed = problem.fixed
    made = sorted(chosen(fixed), key=lambda name: name in TRIED_LAST)
    for name, value, word in _others(fixed):
        yield f"take {OPTION_NAMES.get(name, name)}={word}, with which it fits", replace(fixed, **{name: value})
    for name in made:
        freed = replace(fixed, **{name: getattr(Fixed(), name)})
        yield f"leave {OPTION_NAMES.get(name, name)} to the search, which finds one that fits", freed
    if len(made) > 1:
        names = ", ".join(OPTION_NAMES.get(name, name) for name in made)
        yield f"leave {names} to the search, which finds a plan that fits", Fixed()


def _others(fixed: Fixed) -> Iterator[tuple[str, Any, str]]:
    """Other values of what is fixed that take less memory, the nearest first: name, value, and its text."""
    if fixed.microbatch is not None:
        for value in range(fixed.microbatch - 1, 0, -1):
            if fixed.microbatch % value == 0:
                yield "microbatch", value, str(value)
    if fixed.sharded is not None:
        for sharded in Sharded:
            if sharded > fixed.sharded:
                yield "sharded", sharded, str(int(sharded))
    if fixed.recompute is not None:
        order = list(Recompute)
        for recompute in order[order.index(fixed.recompute) + 1 :]:
            yield "recompute", recompute, str(recompute)
    if fixed.fused is False:
        yield "fused", True, "fused"
    if fixed.schedule is PipelineSchedule.GPIPE:
        yield "schedule", PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, str(PipelineSchedule.ONE_FORWARD_ONE_BACKWARD)
    if fixed.offload is False:
        yield "offload", True, "yes"
