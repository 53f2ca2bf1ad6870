"""Training plans as values: the problem, the distribution of a model over a system, its costs, and the result of a search.

A plan determines an iteration's time. Names such as tensor or sequence parallelism are derived from its shardings
(`halley.sharding.text`); nothing here uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from halley.answer import Answerable, Certificate, Status
from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.spatial import utilisation
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.kernels.machine import Efficiency
from halley.kernels.searched import SearchedKernels
from halley.kernels.software import Software
from halley.network.fit.overlay import Overlay
from halley.network.graph.bill import Bill
from halley.pipeline.data_parallel import RECIPES, Recipe, Sharded
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Assignment, Role, degree
from halley.sharding.layouts import Layout
from halley.sharding.loads import ResourceLoad
from halley.sharding.solution import Sharding
from halley.sharding.text import parallelisms, splitting_axes
from halley.training.framework import FrameworkLimits
from halley.training.part_costs import ModelCosts
from halley.workloads.transformer import Transformer

HOST = "the host's memory"
"""Name of the memory of the node's processors."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """What the user has fixed; None and empty: the search decides.

    ``data``, ``stages``, ``model`` [ranks]: degrees of the three roles. ``microbatch`` [sequences]. ``chunks`` per stage.
    ``axes``: by axis, the ranks of each role; roles that are not named have 1. ``splits``: by op, the dims that axes split;
    ``boundary``: the layout in which parts meet.
    """

    data: int | None = None
    stages: int | None = None
    model: int | None = None
    microbatch: int | None = None
    schedule: PipelineSchedule | None = None
    chunks: int | None = None
    recompute: Recompute | None = None
    sharded: Sharded | None = None
    offload: bool | None = None
    fused: bool | None = None
    axes: Mapping[str, Mapping[Role, int]] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    boundary: Layout | None = None


class TensorMemory(NamedTuple):
    """A memory for tensors: its ``name``, capacity [B], and bandwidth [B/s] to the kernels."""

    name: str
    capacity: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class TrainingProblem:
    """A model, the system that trains it, the ``batch`` [sequences] of an iteration, of ``sequence`` [tokens] each.

    ``efficiency``: shares of the chip's data sheet that kernels reach. ``libraries``: by axis, measured times of its
    communication library. ``recipe``: bytes per parameter. ``fixed``: what the user has fixed. ``whole``: no axis is split
    between roles. ``home``: the memory of a chip that holds the tensors, one of ``homes``; "" is the last of them.
    ``searched``: times of kernels that are searched; then the efficiency is `halley.kernels.machine.PEAK`. ``software``: what
    launches the kernels; None: the chips never wait for their hosts. ``efficiency`` is that of its kernels (`Software.of`).
    ``usable`` [B]: what plans may fill of the chip's outermost memory; None: all of it. ``limits``: of the framework that has to
    run the plan.
    """

    shape: Transformer
    system: System
    batch: int
    sequence: int
    efficiency: Efficiency
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    recipe: Recipe = RECIPES["mixed-adam-fp32-gradients"]
    fixed: Fixed = field(default_factory=Fixed)
    whole: bool = False
    home: str = ""
    searched: SearchedKernels | None = None
    software: Software | None = None
    usable: float | None = None
    limits: FrameworkLimits | None = None

    def __post_init__(self) -> None:
        if self.home not in ("", *self.homes):
            expected = f"one of {', '.join(self.homes)}"
            raise BadInput(Fault(f"memory of {self.system.name}", expected, repr(self.home), did_you_mean(self.home, self.homes)))

    @property
    def homes(self) -> tuple[str, ...]:
        """Memories of a chip that can hold the tensors, the nearest first; not those through which kernels stream to each
        other."""
        return tuple(tier.name for tier in self.system.tiers if tier.name not in self.system.chip.streams)

    @property
    def chip(self) -> Chip:
        """The chip from the memory that holds the tensors inwards; passes do not use memories further out."""
        chip, name = self.system.chip, self.memory.name
        first, *inner = chip.levels[chip.depth(name) :]
        if first is chip.levels[0] and first.memories[0].name == name:
            return chip
        return replace(chip, levels=(replace(first, memories=(chip.memory(name),)), *inner))

    @property
    def memory(self) -> TensorMemory:
        """The memory that holds the tensors."""
        return self._tier(self.home or self.homes[-1])

    @property
    def second(self) -> TensorMemory | None:
        """The tier to which the optimizer's state may be offloaded: the chip's next memory, or the host's after its last one."""
        place = self.homes.index(self.memory.name) + 1
        if place < len(self.homes):
            return self._tier(self.homes[place])
        host = self.system.host
        return None if host is None else TensorMemory(HOST, host.capacity, min(host.link.bandwidth, host.bandwidth))

    def _tier(self, name: str) -> TensorMemory:
        memory = self.system.chip.memory(name)
        return TensorMemory(name, memory.capacity, memory.read_bandwidth)

    @property
    def contention(self) -> float:
        """Share of a chip that a collective of each pass takes from the kernels beside it."""
        return 0.0 if self.software is None else self.software.contention

    @property
    def tokens(self) -> int:
        """Tokens of an iteration."""
        return self.batch * self.sequence

    @property
    def capacity(self) -> float:
        """Bytes of the chip's memory that plans have to fit."""
        outermost = self.system.chip.levels[0].memories[0].name
        return self.usable if self.usable is not None and self.memory.name == outermost else self.memory.capacity


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is trained on a system.

    ``assignment``: the split of each axis between the roles. ``microbatch`` [sequences]. ``sharded``: what is sharded over
    data-parallel ranks (ZeRO). ``offload``: a second tier holds the optimizer's state. ``fused``: attention is one kernel,
    forward and backward. ``layers`` [chunks]: number of the model's layers in each chunk, in the order of the model; the first
    also has the embedding, the last the head.
    """

    assignment: Assignment
    microbatch: int
    pipeline: TrainingPipeline
    recompute: Recompute
    sharded: Sharded
    offload: bool
    fused: bool
    layers: tuple[int, ...]

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return degree(self.assignment, Role.DATA)

    @property
    def model(self) -> int:
        """Chips that share each op of a stage."""
        return degree(self.assignment, Role.MODEL)


@dataclass(frozen=True, slots=True)
class Exposed:
    """Collectives or transfers of one role that work waits for, in an iteration [s], on the stage that finishes last. ``kind``:
    of collective, or ``transfer`` between stages."""

    role: Role
    kind: str
    time: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Equal collectives of one role, or sends between stages, that a chip takes part in during an iteration: ``kind`` of
    collective or ``transfer``, over ``axes``; ``count`` of them; ``bytes`` of each by the convention of the kind
    (`halley.network.time.collective.CONVENTIONS`); ``sent`` [B]: by axis, what the chip sends in one."""

    role: Role
    kind: str
    axes: tuple[str, ...]
    count: float
    bytes: float
    sent: Mapping[str, float]

    @property
    def total(self) -> float:
        """All that the chip sends in them [B]."""
        return self.count * sum(self.sent.values())


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Costs of an iteration of a plan.

    ``account`` [s]: breakdown of the time of the stage that finishes last; its parts add up to ``time``
    (`halley.pipeline.iteration.Iteration`). ``memory`` [B]: peak of a chip, by stage and content; ``offloaded`` [B]: by stage,
    in the ``second`` tier; ``capacity`` [B] of the ``tier`` that holds the rest. ``parts``: of the model, with their shardings.
    ``exposed``: collectives that work waits for. ``traffic``: what a chip of the busiest stage sends; ``loads``: demand and
    capacity of each of its resources. ``model_work``, ``hardware_work`` [op] of all chips: of the model alone, and with
    recomputation. ``peak`` [op/s] of all chips. ``tokens`` of an iteration. ``bill``: price and power of the system.
    """

    time: float
    account: Mapping[str, float]
    memory: tuple[Mapping[str, float], ...]
    offloaded: tuple[float, ...]
    tier: str
    second: str
    capacity: float
    parts: ModelCosts
    exposed: tuple[Exposed, ...]
    traffic: tuple[Traffic, ...]
    loads: tuple[ResourceLoad, ...]
    model_work: float
    hardware_work: float
    peak: float
    tokens: int
    bill: Bill

    @property
    def tokens_per_second(self) -> float:
        """Tokens that the system trains on in a second."""
        return self.tokens / self.time

    @property
    def utilisation(self) -> float:
        """Share of the peak rate used for the model's work (model FLOPs utilisation)."""
        return float(utilisation(self.model_work, self.time, self.peak))

    @property
    def hardware_utilisation(self) -> float:
        """Share of the peak rate in use, with recomputation (hardware FLOPs utilisation)."""
        return float(utilisation(self.hardware_work, self.time, self.peak))

    @property
    def fullest(self) -> int:
        """The stage whose chips need most memory."""
        return max(range(len(self.memory)), key=lambda stage: sum(self.memory[stage].values()))

    @property
    def shardings(self) -> Mapping[str, Sharding]:
        """By part of the model: embedding, each kind of layer, head."""
        kinds = {part.sharding.problem.workload.name: part.sharding for part in self.parts.parts[1:-1]}
        return {"embedding": self.parts.embedding.sharding, **kinds, "head": self.parts.head.sharding}

    @property
    def splitting(self) -> frozenset[str]:
        """The axes along which matrices of some part of the model are split."""
        return frozenset(axis for sharding in self.shardings.values() for axis in splitting_axes(sharding))

    @property
    def parallelisms(self) -> Mapping[str, tuple[str, ...]]:
        """By axis that splits ops, the names of its uses (TP, SP, CP, EP, ...), over all parts of the model."""
        found: dict[str, set[str]] = {}
        splitting = self.splitting
        for sharding in self.shardings.values():
            for axis, names in parallelisms(sharding, splitting).items():
                found.setdefault(axis, set()).update(names)
        return {axis: tuple(sorted(names)) for axis, names in found.items()}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan: the best of its kind. ``slower`` [s]: by part of the account, by how much it exceeds the best plan, the
    largest differences first; negative where it is faster. ``changes``: what differs, in words."""

    plan: Plan
    cost: PlanCost
    changes: tuple[str, ...]
    slower: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult(Answerable):
    """The best plan of a problem, its costs, the fastest plans found of other kinds in the order of their times, and the proof:
    no plan takes less than its bound [s], under any sharding.

    Other plans may be between these: none that was not timed takes less than ``untimed`` [s]; none that did not fit with the
    shardings tried takes less than ``unfit`` [s]. ``lowest``: the plan with the lowest bound among those that were timed or do
    not fit with the shardings tried, and its costs under the fastest ones.
    """

    problem: TrainingProblem
    plan: Plan
    cost: PlanCost
    alternatives: tuple[Alternative, ...]
    certificate: Certificate
    untimed: float
    unfit: float
    lowest: tuple[Plan, ModelCosts] | None = None

    @property
    def status(self) -> Status:
        """How the search ended."""
        return self.certificate.status
