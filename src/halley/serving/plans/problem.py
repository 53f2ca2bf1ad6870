"""What a search of deployments is asked: models, system, limits, objective, and what a candidate costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from halley.errors import BadInput, Fault
from halley.ir.system import System
from halley.kernels.library.times import KernelFits
from halley.kernels.machine import Efficiency
from halley.network.fit.overlay import Overlay
from halley.serving.deployment import Deployment
from halley.serving.model import ServedModel
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Acceptance, Speculation, windows_worth_trying
from halley.serving.steady import Lengths
from halley.serving.tables import Array

BUDGETS = (512, 2048, 8192)
"""Tokens of a step that are tried."""
REPLICAS_ROUNDING = 1e-12
"""Replicas by which rounding may lift a ratio above a whole number."""


class ServingObjective(StrEnum):
    """What the search optimises."""

    THROUGHPUT = "throughput"
    CHIPS = "chips"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the mean times to first token (``ttft``) and per output token (``tpot``) [s]."""

    ttft: float = math.inf
    tpot: float = math.inf

    def __post_init__(self) -> None:
        if not (self.ttft > 0 and self.tpot > 0):
            raise BadInput(Fault("--slo", "times above 0", f"ttft {self.ttft:g} s, tpot {self.tpot:g} s"))


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts that may speculate: one for each of the problem's models, all with one ``acceptance``."""

    models: tuple[ServedModel, ...]
    acceptance: Acceptance


@dataclass(frozen=True, eq=False)
class ServingProblem:
    """What is searched. ``models``: one for each precision that may be chosen; ``rate`` [1/s]: with `ServingObjective.CHIPS`, the
    requests that have to be served. ``pools``: whether prompts and decoding may have separate pools of chips. ``front``: cost all
    candidates, for a front that is whole. ``fits``: measured kernels of the chip. ``drafts``: for speculative decoding, None: it
    is not tried."""

    models: tuple[ServedModel, ...]
    system: System
    software: ServingSoftware
    efficiency: Efficiency
    lengths: Lengths
    limits: Limits = Limits()
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    objective: ServingObjective = ServingObjective.THROUGHPUT
    rate: float = 0.0
    pools: bool = True
    front: bool = False
    budgets: tuple[int, ...] = BUDGETS
    fits: KernelFits | None = None
    drafts: Drafts | None = None

    def speculations(self, model: ServedModel) -> tuple[Speculation | None, ...]:
        """Without speculation, and with each window that is worth trying."""
        if self.drafts is None:
            return (None,)
        draft, acceptance = self.drafts.models[self.models.index(model)], self.drafts.acceptance
        return None, *(Speculation(draft, acceptance, window) for window in windows_worth_trying(acceptance))


def objective_cost(problem: ServingProblem, deployment: Deployment, rate: float) -> float:
    """What the search minimises, for a candidate that serves ``rate`` [1/s] on all chips: the negative rate, or the chips of the
    replicas that the required rate needs. Infinite if there are fewer replicas."""
    if problem.objective is ServingObjective.THROUGHPUT:
        return -rate
    return deployment.layout.chips * replicas_for(problem, rate / deployment.replicas, deployment.replicas)


def replicas_for(problem: ServingProblem, each: float, most: float) -> float:
    """Replicas that the required rate needs if one serves ``each`` [1/s]; infinite if that is more than ``most``."""
    need = float(replicas_needed(problem.rate, np.float64(each)))
    return need if need <= most else math.inf


def replicas_needed(rate: float, each: Array | np.float64) -> Array:
    """Replicas that a ``rate`` [1/s] needs if one serves ``each`` [1/s], element by element; infinite where that is 0.

    >>> replicas_needed(10.0, np.array([5.0, 4.0, 0.0])).tolist()
    [2.0, 3.0, inf]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.ceil(rate / each - REPLICAS_ROUNDING), 1.0))


def rate_to_beat(problem: ServingProblem, deployment: Deployment, cost: float) -> float:
    """The rate [1/s] on all chips that a candidate has to exceed to cost less."""
    if problem.objective is ServingObjective.THROUGHPUT or not math.isfinite(cost):
        return max(-cost, 0.0) if math.isfinite(cost) else 0.0
    replicas = math.ceil(cost / deployment.layout.chips) - 1
    return problem.rate / replicas * deployment.replicas * (1 - REPLICAS_ROUNDING) if replicas else math.inf
