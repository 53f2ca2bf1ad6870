"""`halley.plan_serving`: the best deployment of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halley.importers.serving import lengths_of, serving_problem
from halley.ir.system import System
from halley.products.arguments import checked
from halley.serving.plans.search import ServingPlan, search

Progress = Callable[[str, float], None]


@checked
def plan_serving(
    model: str | Path,
    system: System | str | Path,
    input: int,
    output: int,
    prefix: int = 0,
    slo: str | None = None,
    rate: float | None = None,
    weights: str = "bf16",
    cache: str = "bf16",
    software: str | None = None,
    efficiency: str | None = None,
    front: bool = False,
    together: bool = False,
    progress: Progress | None = None,
) -> ServingPlan:
    """The deployment that serves most requests, with a bound that holds for any schedule of requests.

    ``model`` and ``system``: as for `halley.plan`; ``input``, ``output``, ``prefix``: mean tokens of a prompt, of an answer, and
    of what the cache has already; ``slo``: limits such as ``"ttft 1 s, tpot 30 ms"``; ``rate`` [1/s]: requests to be served on as
    few chips as possible; ``weights``: dtypes of matrices to choose from; ``cache``: dtype of the cache; ``software``: the
    serving framework; ``front``: cost all candidates; ``together``: no chips of their own for prompts.

    >>> found = plan_serving("llama3-8b", "8 x h100, nvlink 8", input=1024, output=256, slo="tpot 20 ms")
    >>> found.best.tpot <= 0.02 and found.bound >= found.best.rate
    True

    Raises BadInput: an unknown name, or numbers that make no sense; Infeasible: no deployment fits, or keeps the limits.
    """
    lengths = lengths_of(input, output, prefix)
    problem = serving_problem(model, system, lengths, slo, weights, cache, software, efficiency, rate, front, together)
    return search(problem, progress)
