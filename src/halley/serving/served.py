"""What a deployment does under a load: closed forms, held to what no schedule of requests exceeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from halley.answer import Answerable
from halley.errors import Fault, Infeasible
from halley.serving.bounds import ThroughputBound
from halley.serving.deployment import Deployment, Load
from halley.serving.steady import Steady, arrivals, closed_loop, held_to
from halley.serving.step_bounds import schedule_bounds

MILLION = 1e6
"""Energy and cost are for a million output tokens."""
JOULES_PER_KWH = 3.6e6
"""Joules of a kilowatt-hour."""
SECONDS_PER_YEAR = 365.25 * 24 * 3600.0
"""Seconds of a year, over which parts are paid."""


@dataclass(frozen=True, slots=True, repr=False)
class Served(Answerable):
    """What a deployment does under a load. Times [s]; ``requests``, ``output``, ``total`` [1/s]: requests, output tokens, all
    tokens of all chips; ``user``, ``chip`` [1/s]: output tokens per user and per chip; ``users``: in flight; ``used`` [B]: cache
    of a chip; ``power`` [W], ``price`` [USD] of all chips, None where no source states them; ``bounds`` of ``requests``, none of
    which they exceed (`schedule_bounds`)."""

    deployment: Deployment
    load: Load
    state: Steady
    requests: float
    output: float
    total: float
    user: float
    chip: float
    users: float
    used: float
    power: float | None
    price: float | None
    bounds: tuple[ThroughputBound, ...]

    @property
    def energy(self) -> float | None:
        """Joule per million output tokens at full power."""
        return None if self.power is None else self.power * MILLION / self.output

    def cost(self, years: float, power_price: float) -> float | None:
        """USD per million output tokens, of parts that are written off in so many ``years`` and of energy at a ``power_price``
        [USD/kWh] at full power; None where no source states the price of the parts, or their power although energy has a price.

        .. math:: c = \\frac{10^6}{X} (\\frac{P}{t} + W e)

        Symbols: X [1/s] output tokens, P [USD] price, t [s] years, W [W] power, e [USD/J] price of energy.
        """
        if self.price is None or (power_price and self.power is None):
            return None
        energy = (self.power or 0.0) * power_price / JOULES_PER_KWH
        return (self.price / (years * SECONDS_PER_YEAR) + energy) * MILLION / self.output

    @property
    def end_to_end(self) -> float:
        """Mean time of a request [s]."""
        return self.state.ttft + max(self.load.lengths.output - 1, 0) * self.state.tpot


def served(deployment: Deployment, load: Load, most: float = math.inf) -> Served:
    """The deployment under the load. The closed forms are no schedules: they are held to the least bound of any schedule of these
    users, and to ``most`` [1/s] where more is known. Raises Infeasible: the model does not fit, or arrivals outrun it."""
    deployment.check(load.lengths)
    lengths, engines = load.lengths, deployment.busy_engines(load)
    bounds = schedule_bounds(deployment, lengths, math.inf if load.concurrency is None else load.concurrency)
    state = steady_state(deployment, load, min(most, bounds[0].rate))
    requests = min(state.rate * engines, bounds[0].rate)  # but for rounding
    output = requests * lengths.output
    system = deployment.system
    parts = (system.chip_cost, system.memory_cost, system.node_cost)
    power = _known(part.power for part in parts)
    price = _known(part.price for part in parts)
    running = min(state.running, deployment.capacity_users(lengths))
    memory = deployment.engine_memory
    pages = running * memory.pages(lengths.mean_context)
    per_user = 1 / state.tpot if lengths.output > 1 else 1 / state.ttft
    return Served(
        deployment,
        load,
        state,
        requests,
        output,
        requests * (lengths.input + lengths.output),
        per_user,
        output / deployment.chips,
        state.users * engines,
        pages * memory.page,
        None if power is None else power * deployment.chips,
        None if price is None else price * deployment.chips,
        bounds,
    )


def steady_state(deployment: Deployment, load: Load, most: float) -> Steady:
    """The steady state of one engine, of a deployment that serves at most so many requests per second.

    Raises Infeasible: arrivals outrun it.
    """
    lengths, engines = load.lengths, deployment.engines
    if load.concurrency is not None:
        state = closed_loop(deployment.step, deployment.engine_memory, max(load.concurrency / engines, 1.0), lengths)
        return held_to(state, most / deployment.busy_engines(load))
    assert load.rate is not None  # a load has one of them
    found = None
    if load.rate <= most:
        found = arrivals(deployment.step, deployment.engine_memory, load.rate / engines, lengths, engines)
    if found is None:
        full = closed_loop(deployment.step, deployment.engine_memory, deployment.capacity_users(lengths), lengths)
        where = f"serving of {deployment.model.shape.name} on {deployment.system.name} with {deployment.layout.text}"
        expected = f"at most {min(full.rate * engines, most):.3g} requests/s, limited by {full.limit}"
        raise Infeasible(Fault(where, expected, f"{load.rate:g}", "use more chips, or serve fewer requests"))
    return found


def _known(values: Iterable[float | None]) -> float | None:
    """Sum of what is stated; None where that is nothing: memory in a chip's package has a price of 0 of its own."""
    return math.fsum(value for value in values if value is not None) or None
