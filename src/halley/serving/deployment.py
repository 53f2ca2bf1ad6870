"""One deployment: a model on the chips of a system, laid out in equal replicas, under a load."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

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
from halley.serving.speculation import Speculation, check_target
from halley.serving.steady import Lengths
from halley.serving.step import StepModel, decode_steps
from halley.units import format_bytes

ATTENTION_DTYPE = "bf16"
"""Attention computes in the dtype of activations, whatever that of the cache."""


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
    axis. ``copies``: replicas that serve, 0 for as many as there are chips for. ``network``: one that other deployments on the
    system share, None: its own. ``speculation``: the draft of speculative decoding, None: it does not speculate. ``steps``: makes
    the step of a deployment that shares tables with others, None: it has its own.

    In a pipeline each of the batches under way has a draft on the chips of a stage of its own, so that all stages have equal
    work.

    Raises BadInput: a layout that model or system do not have, or a draft of a model without attention; Infeasible: a model that
    does not fit.
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
    network: ReplicaNetwork | None = None
    speculation: Speculation | None = None
    steps: Callable[[Deployment], StepModel] | None = None

    def __post_init__(self) -> None:
        if self.system.chips % self.layout.chips:
            where = f"serving of {self.model.shape.name} on {self.system.name}"
            expected = f"a layout whose chips divide {self.system.chips}"
            raise BadInput(Fault(where, expected, f"{self.layout.text}: {self.layout.chips} chips"))
        if self.speculation is not None:
            check_target(self.model)

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
        """The time of a step, with speculation that of a round."""
        if self.steps is not None:
            return self.steps(self)
        kernels = self.kernels or library_kernels(self.system, self.efficiency, self.software, self.fits)
        network = self.network or ReplicaNetwork(self.system, self.libraries)
        made = self.model, self.layout, network, kernels, self.software, self.longest
        if self.speculation is None or self.drafting is None:
            return StepModel(*made)
        return StepModel(*made, self.speculation.window + 1, self.drafting.step, self.tokens_of_step)

    @cached_property
    def drafting(self) -> Deployment | None:
        """The draft on the chips of an engine; None: there is no speculation."""
        return None if self.speculation is None else with_draft(self, self.speculation.draft)

    @cached_property
    def memory(self) -> ServingMemory:
        """The memory of a chip."""
        return chip_memory(self.model, self.layout, self.system, self.software, self.speculation)

    @cached_property
    def engine_memory(self) -> ServingMemory:
        """The memory that one engine has."""
        return shared_memory(self.memory, self.layout)

    def decode_steps(self, lengths: Lengths) -> float:
        """Steps in which a request gets its output tokens after the first."""
        return decode_steps(max(lengths.output - 1, 0.0), self.tokens_of_step)

    @property
    def tokens_of_step(self) -> float:
        """Output tokens that a sequence gets in a step that decodes."""
        return 1.0 if self.speculation is None else self.speculation.tokens

    @property
    def verified(self) -> int:
        """Tokens of a sequence that a step computes where it decodes."""
        return 1 if self.speculation is None else self.speculation.window + 1

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
    def remarks(self) -> tuple[str, ...]:
        """What to know of the times: states of recurrent layers; a cache in a dtype that the matrix engine of the chip lacks is
        converted. Weights in one are refused, as their products have that dtype."""
        chip, model, found = serving_machine(self.system), self.model, list[str]()
        if model.hybrid is not None:
            size = format_bytes(model.state_bytes_per_sequence)
            layers = f"{model.recurrent_layers} of {model.shape.layers} layers"
            words = f"{layers} keep {size} of state of a sequence, whatever its context, in {model.state}"
            found.append(f"{words}; bf16 is assumed unless --state is given")
        if model.cache not in chip.macs:
            own = f"attention computes in {ATTENTION_DTYPE}; the conversion of the cache is not timed"
            found.append(f"{chip.name} has no {model.cache} products: {own}")
        return tuple(found)

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

    def busy_engines(self, load: Load) -> float:
        """Engines that have a user: fewer than all where there are fewer users."""
        return self.engines if load.concurrency is None else min(self.engines, load.concurrency)


def with_draft(deployment: Deployment, draft: ServedModel) -> Deployment:
    """The draft of speculative decoding on the chips of a deployment: tensor parallel as far as it has heads for."""
    layout = draft_layout(draft, deployment.layout)
    return replace(deployment, model=draft, layout=layout, speculation=None)


def draft_layout(draft: ServedModel, layout: ReplicaLayout) -> ReplicaLayout:
    """How a draft is laid out on the chips of one attention rank."""
    return ReplicaLayout(math.gcd(layout.tp, draft.split_heads))


def chip_memory(
    model: ServedModel,
    layout: ReplicaLayout,
    system: System,
    software: ServingSoftware,
    speculation: Speculation | None = None,
) -> ServingMemory:
    """The memory of a chip, with that of the draft if there is ``speculation``."""
    if speculation is None:
        return serving_memory(model, layout, system, software)
    width = speculation.window + 1
    draft = serving_memory(speculation.draft, draft_layout(speculation.draft, layout), system, software, width)
    return replace(serving_memory(model, layout, system, software, width), draft=draft)


def shared_memory(memory: ServingMemory, layout: ReplicaLayout) -> ServingMemory:
    """The memory that one engine has: stages of a pipeline share it among the batches under way, but for that of a draft, of
    which each stage has the cache of one batch."""
    return replace(memory, page=memory.page * layout.pp, state=memory.state * layout.pp)


def transfer_time(deployment: Deployment, tokens: float, link: Link, lanes: int) -> float:
    """Time to move the cache and the state of a request of so many ``tokens`` from one pool to another over ``lanes`` links of
    chips [s]."""
    models = [deployment.model] if deployment.speculation is None else [deployment.model, deployment.speculation.draft]
    size = sum(tokens * model.attention_layers * model.cache_width * CACHE_BYTES[model.cache] for model in models)
    size += sum(model.state_bytes_per_sequence for model in models)
    return link.latency + size / (link.bandwidth * max(lanes, 1))
