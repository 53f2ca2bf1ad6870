"""Fits of software to measured iterations: the numbers that give the least mean error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from validation.training.compare import batched, iteration
from validation.training.runs import Run

from halley.formulas.software import queued_time
from halley.kernels.software import Software
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import launches
from halley.training.part_costs import PartCosts, training_graphs

FIRST_STEP, LAST_STEP = 0.4, 0.02
"""Relative steps of the search, halved where no step improves."""

SHARES = ("kernels", "attention")


def mean_error(found: Sequence[Run], times: Callable[[Run], float]) -> float:
    """Mean relative error."""
    return sum(abs(times(run) / run.seconds - 1) for run in found) / len(found)


def error_of(found: Sequence[Run], software: Software) -> float:
    """The mean error with this software. Of times of hosts alone the shardings are those without one, so that they are found
    once."""
    if all(getattr(software, name) == 1 for name in SHARES):
        return mean_error(found, lambda run: batched(run, software, lambda part, place: _launched(run, part, place, software)))
    return mean_error(found, lambda run: iteration(run, software))


def _launched(run: Run, part: PartCosts, place: int, software: Software) -> PartCosts:
    """The costs of a part without a host, with one."""
    kernels, calls = _calls(part, _graph(run, place))
    passes = {name: float(queued_time(getattr(part, name), software.host_time(kernels[name], calls[name]))) for name in kernels}
    return replace(part, **passes)


def _graph(run: Run, place: int) -> TrainingGraph:
    return training_graphs(run.shape, run.microbatch, run.shape.sequence, run.recompute, run.fused)[place]


@cache
def _calls(part: PartCosts, graph: TrainingGraph) -> tuple[dict[str, float], dict[str, int]]:
    """Kernels and collectives by pass."""
    names, calls = list(graph.found.passes.values()), dict.fromkeys(("forward", "recompute", "backward"), 0)
    makers = {name: number for number, op in enumerate(graph.workload.ops) for name in op.outputs}
    for move in part.sharding.redistributions:
        place = move.at if move.reader else makers.get(move.tensor, 0)
        calls[names[place]] += sum(step.kind is not None for step in move.steps)
    return launches(graph), calls


def fitted(start: Software, names: Sequence[str], found: Sequence[Run]) -> tuple[Software, float]:
    """The software whose numbers of these ``names`` give the least mean error on the runs, by steps along one number at a time;
    and that error. Numbers start from those of ``start``, which are not 0."""
    best, error, step = start, error_of(found, start), FIRST_STEP
    while step >= LAST_STEP:
        better = False
        for name in names:
            for factor in (1 + step, 1 / (1 + step)):
                value = getattr(best, name) * factor
                if name in SHARES and value > 1:
                    continue
                tried = replace(best, **{name: value})
                if (now := error_of(found, tried)) < error * (1 - 1e-6):
                    best, error, better = tried, now, True
                    break
        step = step if better else step / 2
    return best, error
