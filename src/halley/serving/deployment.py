"""One deployment: a model on the chips of a system, laid out in equal replicas, under a load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from halley.answer import Answerable
from halley.errors import BadInput, Fault, Infeasible
from halley.ir.hardware import Link
from halley.ir.system import System
from halley.kernels.library.times import KernelFits
from halley.kernels.machine import Efficiency
from halley.network.fit.overlay import Overlay
from halley.serving.kernels import NVFP4_SHARE, StepKernels, library_kernels, measured_caches, serving_machine
from halley.serving.layout import ReplicaLayout, ReplicaNetwork
from halley.serving.memory import ServingMemory, check_fits, serving_memory
from halley.serving.model import CACHE_BYTES, ServedModel
from halley.serving.software import ServingSoftware
from halley.serving.steady import Lengths, Steady, arrivals, closed_loop, held_to
from halley.serving.step import StepModel

MILLION = 1e6
"""Energy and cost are for a million output tokens."""
JOULES_PER_KWH = 3.6e6
"""Joules of a kilowatt-hour."""
SECONDS_PER_YEAR = 365.25 * 24 * 3600.0
"""Seconds of a year, over which parts are paid."""


@dataclass(frozen=True, slots=True)
class ReachedRates:
    """Most that kernels of a chip reach: multiply-accumulates per second, memory [B/s]."""

    macs: float
    memory: float


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be served: ``concurrency`` users in a closed loop, or a ``rate`` [1/s] of Poisson arrivals."""

    lengths: Lengths
    concurrency: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise BadInput(Fault("load", "a concurrency or a rate", "both" if self.rate is not None else "neither"))
        for name, value in (("concurrency", self.concurrency), ("rate", self.rate)):
            if value is not None and not 0 < value < math.inf:
                raise BadInput(Fault(f"load, {name}", "a number above 0", f"{value:g}"))


@dataclass(frozen=True, eq=False)
class Deployment:
    """A model on all chips of a system. ``kernels``: where the times of kernels come from; None: the library's formulas with
    ``efficiency``, and the kernels of ``fits`` that were measured. ``libraries``: measured times of communication libraries, by
    axis. ``copies``: replicas that serve, 0 for as many as there are chips for.

    Raises BadInput: a layout that model or system do not have; Infeasible: a model that does not fit.
    """

    model: ServedModel
    system: System
    layout: ReplicaLayout
    software: ServingSoftware
    efficiency: Efficiency
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    kernels: StepKernels | None = None
    longest: int = 32768
    fits: KernelFits | None = None
    copies: int = 0

    def __post_init__(self) -> None:
        if self.system.chips % self.layout.chips:
            where = f"serving of {self.model.shape.name} on {self.system.name}"
            expected = f"a layout whose chips divide {self.system.chips}"
            raise BadInput(Fault(where, expected, f"{self.layout.text}: {self.layout.chips} chips"))

    @property
    def chips(self) -> int:
        """Chips of all replicas."""
        return self.replicas * self.layout.chips

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.copies or self.system.chips // self.layout.chips

    @property
    def engines(self) -> int:
        """Batches under way at the same time: attention ranks of all replicas, and those that fill pipelines."""
        return self.replicas * self.layout.dp * self.layout.pp

    @cached_property
    def step(self) -> StepModel:
        """The time of a step."""
        kernels = self.kernels or library_kernels(self.system, self.efficiency, self.software, self.fits)
        return StepModel(
            self.model, self.layout, ReplicaNetwork(self.system, self.libraries), kernels, self.software, self.longest
        )

    @cached_property
    def memory(self) -> ServingMemory:
        """The memory of a chip."""
        return serving_memory(self.model, self.layout, self.system, self.software)

    @cached_property
    def engine_memory(self) -> ServingMemory:
        """The memory that one engine has: stages of a pipeline share it among the batches under way."""
        memory = self.memory
        return replace(memory, page=memory.page * self.layout.pp)

    @cached_property
    def rates(self) -> ReachedRates:
        """Most that kernels reach in this model: the data sheet's figures times the fitted shares. Measured kernels are only
        known to be no faster than the data sheet; those of sequences that decode are bound by memory."""
        chip, shares, software = serving_machine(self.system), self.efficiency, self.software
        dtype, more = self.model.compute, 1.0
        if dtype == "nvfp4":
            chip.mac_rate(dtype)  # a chip that has it
            dtype, more = "fp8", 1 / NVFP4_SHARE
        memory = 1.0 if measured_caches(self.fits, software) else shares.memory * software.memory
        return ReachedRates(more * chip.mac_rate(dtype) * shares.matrix * software.matrix, chip.memory * memory)

    @property
    def port(self) -> float:
        """What a chip sends at most [B/s]."""
        return sum(axis.link.bandwidth * 2 for axis in self.system.axes) or math.inf

    def capacity_users(self, lengths: Lengths) -> float:
        """Requests of these lengths in one engine at most, at the context that they have on average."""
        memory = self.engine_memory
        return min(memory.capacity_pages / max(memory.pages(lengths.mean_context), 1), self.software.users)

    def check(self, lengths: Lengths) -> None:
        """Raises Infeasible: the model or one request does not fit."""
        where = f"serving of {self.model.shape.name} on {self.system.name} with {self.layout.text}"
        check_fits(self.engine_memory, math.ceil(lengths.input + lengths.output), where)
        if self.software.users < 1:
            raise Infeasible(Fault(where, "at least one sequence", str(self.software.users)))

    def steady(self, load: Load) -> Steady:
        """The steady state of one engine. Raises Infeasible: the model does not fit, or arrivals outrun it."""
        self.check(load.lengths)
        if load.concurrency is not None:
            return closed_loop(self.step, self.engine_memory, max(load.concurrency / self.engines, 1.0), load.lengths)
        assert load.rate is not None  # a load has one of them
        found = arrivals(self.step, self.engine_memory, load.rate / self.engines, load.lengths)
        if found is None:
            full = closed_loop(self.step, self.engine_memory, self.capacity_users(load.lengths), load.lengths)
            where = f"serving of {self.model.shape.name} on {self.system.name} with {self.layout.text}"
            most = full.rate * self.engines
            expected = f"at most {most:.3g} requests/s, limited by {full.limit}"
            raise Infeasible(Fault(where, expected, f"{load.rate:g}", "use more chips, or serve fewer requests"))
        return found

    def busy_engines(self, load: Load) -> float:
        """Engines that have a user: fewer than all where there are fewer users."""
        return self.engines if load.concurrency is None else min(self.engines, load.concurrency)


@dataclass(frozen=True, slots=True, repr=False)
class Served(Answerable):
    """What a deployment does under a load. Times [s]; ``requests``, ``output``, ``total`` [1/s]: requests, output tokens, all
    tokens of all chips; ``user``, ``chip`` [1/s]: output tokens per user and per chip; ``users``: in flight; ``used`` [B]: cache
    of a chip; ``power`` [W], ``price`` [USD] of all chips, None where no source states them."""

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
    """The deployment under the load. ``most`` [1/s]: requests that no schedule exceeds, to which a closed loop is held. Raises as
    `Deployment.steady`."""
    state = deployment.steady(load)
    if load.concurrency is not None:
        state = held_to(state, most / deployment.engines)
    engines = deployment.busy_engines(load)
    requests = state.rate * engines
    lengths = load.lengths
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
    )


def _known(values: object) -> float | None:
    """Sum of what is stated; None where nothing is."""
    stated = [value for value in values if value is not None]  # type: ignore[attr-defined]
    return float(sum(stated)) if stated else None


def transfer_time(deployment: Deployment, tokens: float, link: Link, lanes: int) -> float:
    """Time to move the cache of a request of so many ``tokens`` from one pool to another over ``lanes`` links of chips [s]."""
    model = deployment.model
    size = tokens * model.shape.layers * model.cache_width * CACHE_BYTES[model.cache]
    return link.latency + size / (link.bandwidth * max(lanes, 1))
