"""An iteration of training as tasks on the clock of `halley.simulate.tasks`: the oracle of `halley.pipeline`.

Each stage has an engine and a network of its data-parallel ranks; between stages there is a link per direction. Each serves one
request at a time, first come, first served. A pass has one task per block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from halley.errors import BadInput, Fault
from halley.simulate.schedule import Direction, PassTable, PipelinePass
from halley.simulate.tasks import BusyInterval, Requests, Server, Tasks, TaskSchedule, run

TASK_LIMIT = 2_000_000
"""Most tasks of a simulation."""


@dataclass(frozen=True, slots=True)
class SimulatedBlock:
    """Layers whose parameters are gathered, and whose gradients are reduced, in one collective. Forward and backward work,
    all-gather and reduction [s] for one microbatch on one chip; saved activations [B]."""

    forward: float
    backward: float
    gather: float = 0.0
    reduction: float = 0.0
    activation: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingIteration:
    """An iteration to simulate.

    ``blocks[chunk]``; ``onward`` and ``back`` [chunks - 1]: transfer of an activation to the next chunk, and of a gradient from
    it [s]. ``holding``: a transfer blocks its sender. ``sharded``: the ZeRO stage: 0 nothing, 1 optimizer state, 2 also
    gradients, 3 also parameters. Per stage: ``norm`` [s] of its gradients, ``step`` [s] of the optimizer; ``norm_reduction`` [s]
    over all ranks, None without gradient clipping. ``tied`` [s]: sum of the gradients of a table that the first and the last
    stage share; 0 without one.
    """

    table: PassTable
    blocks: Sequence[Sequence[SimulatedBlock]]
    onward: Sequence[float]
    back: Sequence[float]
    holding: bool = False
    sharded: int = 0
    step: Sequence[float] = ()
    norm: Sequence[float] = ()
    norm_reduction: float | None = None
    tied: float = 0.0

    def __post_init__(self) -> None:
        if any(not (block.forward > 0 and block.backward > 0) for chunk in self.blocks for block in chunk):
            raise BadInput(Fault("simulation of training", "blocks that take time both ways", "one that takes none"))


@dataclass(frozen=True, slots=True)
class SimulatedIteration:
    """``time`` [s] of the iteration; ``last_backward`` [s] per chunk: end of its last backward work; ``peaks`` [B] per stage:
    peak of the saved activations; ``schedule``: the simulated tasks."""

    time: float
    last_backward: tuple[float, ...]
    peaks: tuple[float, ...]
    schedule: TaskSchedule


def simulate(training: TrainingIteration) -> SimulatedIteration:
    """Simulate an iteration."""
    run_of = _Run(training)
    for each in training.table.linear():
        run_of.add_pass(each)
    run_of.finish()
    schedule = run(run_of.tasks)
    chunks = range(training.table.last + 1)
    work = [interval for interval in schedule.intervals if interval.server.resource[0] == "engine" and interval.path]
    backward = [[i.stop for i in work if i.path[1] == chunk and i.path[0]] for chunk in chunks]
    peaks = tuple(_peak(training, work, stage) for stage in range(training.table.stages))
    return SimulatedIteration(schedule.time, tuple(map(max, backward)), peaks, schedule)


def _peak(training: TrainingIteration, work: Iterable[BusyInterval], stage: int) -> float:
    """Peak activation bytes of a stage; a block's activation is live from the start of its forward to its backward work."""
    live = peak = 0.0
    for interval in work:
        backward, chunk, block = interval.path
        if chunk % training.table.stages == stage:
            size = training.blocks[chunk][block].activation
            live += -size if backward else size
            peak = max(peak, live)
    return peak


@dataclass(slots=True)
class _Run:
    """Tasks so far: ``free[stage]`` end the latest pass of a stage, ``given[pass]`` delivers its result, ``reduced[stage]`` are
    gradient reductions."""

    training: TrainingIteration
    tasks: Tasks = field(default_factory=lambda: Tasks("simulation of training", TASK_LIMIT))
    free: dict[int, tuple[int, ...]] = field(default_factory=dict)
    given: dict[PipelinePass, int] = field(default_factory=dict)
    reduced: dict[int, list[int]] = field(default_factory=dict)

    def add_pass(self, each: PipelinePass) -> None:
        table = self.training.table
        needed, stage = table.needed(each), each.chunk % table.stages
        gate = (*self.free.get(stage, ()), *((self.given[needed],) if needed else ()))
        work, others = self._blocks(each, stage, gate)
        self.given[each], self.free[stage] = work, (work, *others)
        if each.chunk != (table.last if each.direction is Direction.FORWARD else 0):
            self._transfer(each, stage, (work, *others))

    def _transfer(self, each: PipelinePass, stage: int, after: tuple[int, ...]) -> None:
        onward = each.direction is Direction.FORWARD
        time = self.training.onward[each.chunk] if onward else self.training.back[each.chunk - 1]
        link = _engine(stage) if self.training.holding else Server(("link", str(each.direction), str(stage)))
        sent = self.tasks.add(f"transfer after {each}", (), after, ((link, time),))
        self.given[each] = sent
        if self.training.holding:
            self.free[stage] = (sent,)

    def _blocks(self, each: PipelinePass, stage: int, gate: tuple[int, ...]) -> tuple[int, list[int]]:
        """The last work task of a pass, and the collectives that must be done before the next pass."""
        backward = each.direction is Direction.BACKWARD
        blocks = list(enumerate(self.training.blocks[each.chunk]))[:: -1 if backward else 1]
        sharded, network = self.training.sharded, Server(("axis", "data", str(stage)))
        final = each.microbatch == self.training.table.microbatches - 1
        gathered: tuple[int, ...] = ()
        scattered: list[int] = []
        if sharded == 3:
            gathered = (self.tasks.add(f"gather for {each}", (), gate, ((network, blocks[0][1].gather),)),)
        before, work = gate, -1
        for position, (index, block) in enumerate(blocks):
            start = (*before, *gathered)
            time = block.backward if backward else block.forward
            work = self.tasks.add(str(each), (int(backward), each.chunk, index), start, ((_engine(stage), time),))
            if sharded == 3 and position + 1 < len(blocks):
                following = blocks[position + 1][1].gather
                gathered = (self.tasks.add(f"gather for {each}", (), start, ((network, following),)),)
            if backward and (final or sharded >= 2):
                reduce = self.tasks.add(f"reduce after {each}", (), (work,), ((network, block.reduction),))
                (scattered if sharded >= 2 else self.reduced.setdefault(stage, [])).append(reduce)
            before = (work,)
        return work, scattered

    def finish(self) -> None:
        """Norm, optimizer step, gathers of updated parameters."""
        training, stages = self.training, range(self.training.table.stages)
        ready = {stage: (*self.free[stage], *self.reduced.get(stage, ())) for stage in stages}
        if training.tied:
            shared = self.tasks.add("sum of a shared table", (), (*ready[0], *ready[stages[-1]]), (), training.tied)
            ready[0] = ready[stages[-1]] = (shared,)
        if training.norm_reduction is not None:
            norms = [self._on_engine("norm", stage, ready[stage], training.norm) for stage in stages]
            both = self.tasks.add("norm of all", (), norms, (), training.norm_reduction)
            ready = dict.fromkeys(stages, (both,))
        for stage in stages:
            done = self._on_engine("optimizer", stage, ready[stage], training.step)
            if training.sharded in (1, 2):
                for chunk in range(stage, training.table.last + 1, training.table.stages):
                    for block in training.blocks[chunk]:
                        request: Requests = ((Server(("axis", "data", str(stage))), block.gather),)
                        self.tasks.add("gather of updated parameters", (), (done,), request)

    def _on_engine(self, name: str, stage: int, after: Iterable[int], times: Sequence[float]) -> int:
        return self.tasks.add(name, (), after, ((_engine(stage), times[stage] if times else 0.0),))


def _engine(stage: int) -> Server:
    return Server(("engine", f"stage {stage}"))
