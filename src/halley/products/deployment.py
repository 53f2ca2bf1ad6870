"""`halley.serve`: what one deployment of a model does under a load; `halley.plan_serving`: the best deployment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halley.importers.serving import (
    SOFTWARE,
    STATE,
    deployment,
    layout_on,
    lengths_of,
    served_model,
    serving_problem,
    with_speculation,
)
from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.products.arguments import at_least, checked
from halley.serving.deployment import Load
from halley.serving.plans.search import ServingPlan, search
from halley.serving.served import Served, served

Progress = Callable[[str, float], None]


@checked
def serve(
    model: str | Path,
    system: System | str | Path,
    input: int,
    output: int,
    prefix: int = 0,
    concurrency: float | None = None,
    rate: float | None = None,
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    weights: str = "bf16",
    cache: str = "bf16",
    software: str | None = None,
    efficiency: str | None = None,
    draft: str | None = None,
    acceptance: str | None = None,
    window: int | None = None,
    state: str = STATE,
) -> Served:
    """What one deployment does: latency, throughput, memory, where the time goes, and bounds for any schedule of requests.

    ``model`` and ``system``: as for `halley.plan`; ``input``, ``output``, ``prefix``: mean tokens of a prompt, of an answer, and
    of what the cache has already; ``concurrency``: users, each of whom asks again at once, or ``rate`` [1/s] of Poisson
    arrivals; ``tp``: tensor-parallel ranks, all chips unless given; ``pp``: stages, ``ep``: groups of experts, ``dp``: attention
    ranks of a replica; ``weights``, ``cache``, ``state`` (of recurrent layers): dtypes; ``software``: the serving framework;
    ``draft``, ``acceptance``: as for `halley.plan_serving`, and ``window``: tokens that the draft proposes in a round.

    >>> found = serve("llama3-8b", "2 x h100, nvlink 2", input=1024, output=128, concurrency=16, tp=1)
    >>> found.deployment.replicas, found.requests <= found.bounds[0].rate
    (2, True)

    Raises BadInput: an unknown name, or numbers that make no sense; Infeasible: the model does not fit, or arrivals outrun it.
    """
    at_least("serve", 1, tp=tp, pp=pp, ep=ep, dp=dp)
    load = Load(lengths_of(input, output, prefix), concurrency, rate)
    found = system if isinstance(system, System) else load_system(system)
    layout, asked = layout_on(found, tp, pp, ep, dp), served_model(str(model), weights, cache, state)
    made = deployment(asked, found, layout, load_software(software or SOFTWARE), efficiency)
    return served(with_speculation(made, draft, acceptance, window), load)


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
    draft: str | None = None,
    acceptance: str | None = None,
    state: str = STATE,
    progress: Progress | None = None,
) -> ServingPlan:
    """The deployment that serves most requests, with a bound that holds for any schedule of requests.

    ``model`` and ``system``: as for `halley.plan`; ``input``, ``output``, ``prefix``: mean tokens of a prompt, of an answer, and
    of what the cache has already; ``slo``: limits such as ``"ttft 1 s, tpot 30 ms"``; ``rate`` [1/s]: requests to be served on as
    few chips as possible; ``weights``: dtypes of matrices to choose from; ``cache``, ``state``: dtypes of the cache and of the
    states of recurrent layers; ``software``: the serving framework; ``front``: cost all candidates; ``together``: no separate
    pools for prompts and decoding. ``draft``: a model that may speculate on the same chips, ``"head"`` for one layer of the model
    itself, with its ``acceptance``: ``"0.7"``, ``"0.7,0.95"`` with the decay, or a measured curve by its name.

    >>> found = plan_serving("llama3-8b", "8 x h100, nvlink 8", input=1024, output=256, slo="tpot 20 ms")
    >>> found.best.tpot <= 0.02 and found.bound >= found.best.rate
    True

    Raises BadInput: an unknown name, or numbers that make no sense; Infeasible: no deployment fits, or keeps the limits.
    """
    lengths = lengths_of(input, output, prefix)
    fitted = slo, weights, cache, software, efficiency
    problem = serving_problem(model, system, lengths, *fitted, rate, front, together, draft, acceptance, state)
    return search(problem, progress)
