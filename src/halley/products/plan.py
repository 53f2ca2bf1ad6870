"""`halley.plan`: the fastest way to train a model on a system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halley.importers.training import LIBRARY, RECIPE, is_searched, training_problem
from halley.io.cache import user_store
from halley.ir.system import System
from halley.products.arguments import at_least, checked, limit_of
from halley.training.plan import Fixed, TrainingResult
from halley.training.search.joint import best_joint_plan
from halley.training.search.search import best_training_plan
from halley.workloads.transformer import Transformer

Progress = Callable[[str, float], None]


@checked
def plan(
    model: Transformer | str | Path,
    system: System | str | Path,
    batch: int,
    sequence: int | None = None,
    fix: Fixed | str | None = None,
    whole: bool = False,
    optimizer: str = RECIPE,
    efficiency: str | None = None,
    software: str | None = None,
    kernels: str = LIBRARY,
    time_limit: float | str | None = None,
    progress: Progress | None = None,
    workers: int = 1,
) -> TrainingResult:
    """The fastest plan of an iteration of training, with its certificate.

    ``model``: a shape, a name, a model file, or the configuration of a Hugging Face model; ``system``: a name, a file or a short
    form such as ``"1024 x h100, nvlink 8, ib"``; ``batch``: sequences of an iteration; ``sequence``: tokens of each, those of the
    model unless given; ``fix``: decisions such as ``"tp=8,pp=8"``; ``whole``: each axis for one kind of parallelism;
    ``efficiency``: fit of a chip's kernels; ``software``: what launches them, that measured on the chip unless given,
    ``"none"``: hosts take no time; ``kernels``: ``"library"`` or ``"searched"``; ``time_limit`` in seconds, or as text;
    ``workers``: processes that search kernels (a script needs ``if __name__ == "__main__"`` for more than one).

    >>> result = plan("gpt2-xl", "8 x h100, nvlink 8", batch=8)
    >>> result.certificate.gap < 0.01
    True

    Raises BadInput: an unknown name, or numbers that make no sense; Infeasible: no plan fits the memory; SearchStopped: the limit
    came before any plan.
    """
    at_least("plan", 1, batch=batch, sequence=sequence, workers=workers)
    searched = is_searched(kernels, efficiency)
    limit = limit_of("plan", time_limit)
    problem = training_problem(model, system, batch, sequence, fix, whole, optimizer, efficiency, software, searched)
    if searched:
        return best_joint_plan(problem, progress, limit, user_store(), workers)
    return best_training_plan(problem, progress, limit)
