"""All plans of a training problem as arrays: every choice except the shardings of ops, counted exactly.

A *layout* is an assignment of the axes, a microbatch and a pipeline. Each layout is combined with every *option*:
recomputation, fused attention or not, what is sharded over data-parallel ranks, and where the optimizer's state is stored.
Plans that are equal to others by construction are omitted: schedules of a single stage, sharding over a single data-parallel
rank, and selective recomputation with fused attention.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.optim.distinct import distinct_columns
from halley.optim.divisors import divisors
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import (
    MAX_CHUNKS,
    MAX_MICROBATCHES,
    PipelineSchedule,
    TrainingPipeline,
    layers_per_chunk,
    never_deadlocks,
)
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Assignment, Role, assignments, degree
from halley.training.plan import Fixed, Plan, TrainingProblem

T = TypeVar("T")
Integers = NDArray[np.int64]

LEFT_OUT = (
    "layers divided over chunks other than as evenly as possible",
    "microbatches of different sizes, stages on different numbers of chips",
    "zero-bubble schedules",
    "recomputation of some layers only",
    "offloading anything but the optimizer's state",
    "weight gradients reduced over the chips of one stage once for all microbatches",
)
"""What the space does not contain."""

LEFT_OUT_MEMORIES = "weights, gradients and activations of one plan in different memories of a chip"
"""Left out where chips have several memories for tensors."""

LEFT_OUT_MEASURED = "measured collectives whose time grows faster than their size; bounds assume that none does"
"""Left out where collectives were measured."""


class Option(NamedTuple):
    """Choices that every layout is combined with."""

    recompute: Recompute
    fused: bool
    sharded: Sharded
    offload: bool


@dataclass(frozen=True, slots=True, eq=False)
class PlanSpace:
    """``assignments``, each of some layout; per layout [layouts]: ``assignment`` (its number), ``data``, ``stages``,
    ``microbatch`` [sequences], ``microbatches``, ``chunks`` per stage, ``gpipe`` (1 for that schedule). ``options``. Plans
    are all pairs of a layout and an option; a single data-parallel rank shards nothing."""

    problem: TrainingProblem
    assignments: tuple[Assignment, ...]
    assignment: Integers
    data: Integers
    stages: Integers
    microbatch: Integers
    microbatches: Integers
    chunks: Integers
    gpipe: Integers
    options: tuple[Option, ...]

    @property
    def layouts(self) -> int:
        """Number of layouts."""
        return len(self.assignment)

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """[layouts, options] the pairs that are plans."""
        nothing = np.array([option.sharded is Sharded.NOTHING for option in self.options])
        # where the user fixes sharding, a single rank has all parts
        asked = self.problem.fixed.sharded is not None
        found = np.asarray((self.data > 1)[:, None] | nothing | asked)
        if limits := self.problem.limits:
            staged = np.array([option.sharded in limits.staged for option in self.options])
            found &= (self.stages == 1)[:, None] | staged
        return found

    @property
    def size(self) -> int:
        """Number of plans."""
        return int(self.allowed.sum())

    @property
    def choices(self) -> dict[str, int]:
        """Number of values of each choice."""
        counted = {
            "assignments of axes": len(np.unique(self.assignment)),
            "microbatches": len(np.unique(self.microbatch)),
            "pipelines": len(distinct_columns([self.stages, self.microbatches, self.chunks, self.gpipe])[0]),
        }
        names = {"recompute": "recomputation", "fused": "attention kernels", "sharded": "shares of state", "offload": "offload"}
        for place, name in enumerate(Option._fields):
            counted[names[name]] = len({option[place] for option in self.options})
        return counted

    def pipeline(self, layout: int) -> TrainingPipeline:
        """The pipeline of a layout."""
        schedule = PipelineSchedule.GPIPE if self.gpipe[layout] else PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
        return TrainingPipeline(int(self.stages[layout]), int(self.microbatches[layout]), int(self.chunks[layout]), schedule)

    def kind(self, layout: int, option: int) -> tuple[object, ...]:
        """Plans of one kind differ in the split of axes and in chunks; only the best of a kind is reported."""
        columns, chosen = (self.data, self.stages, self.microbatch, self.gpipe), self.options[option]
        return (*(int(column[layout]) for column in columns), chosen.recompute, chosen.sharded, chosen.offload)

    def find(self, plan: Plan) -> tuple[int, int] | None:
        """The layout and the option of a plan; None where it is not one of the space."""
        pipeline = plan.pipeline
        option = Option(plan.recompute, plan.fused, plan.sharded, plan.offload)
        if plan.assignment not in self.assignments or option not in self.options:
            return None
        rows = self.assignment == self.assignments.index(plan.assignment)
        for column, value in (
            (self.microbatch, plan.microbatch),
            (self.chunks, pipeline.chunks),
            (self.gpipe, pipeline.schedule is PipelineSchedule.GPIPE),
        ):
            rows &= column == value
        number = self.options.index(option)
        found = np.flatnonzero(rows & self.allowed[:, number])
        return (int(found[0]), number) if len(found) else None

    def plan(self, layout: int, option: int) -> Plan:
        """A plan as a value."""
        pipeline = self.pipeline(layout)
        layers = layers_per_chunk(self.problem.shape.layers, pipeline.last + 1)
        assignment, chosen = self.assignments[self.assignment[layout]], self.options[option]
        given = (chosen.recompute, chosen.sharded, chosen.offload, chosen.fused)
        return Plan(assignment, int(self.microbatch[layout]), pipeline, *given, layers)


def training_space(problem: TrainingProblem) -> PlanSpace:
    """All plans that the problem leaves open.

    Raises BadInput: degrees whose product is not the number of chips, or other fixed choices that no plan has, all faults
    together.
    """
    fixed = problem.fixed
    found = _assignments(problem)
    degrees = [(degree(each, Role.DATA), degree(each, Role.PIPELINE)) for each in found]
    rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for pair in set(degrees):
        rows[pair] = list(_pipelines(problem, *pair))
    if not any(rows.values()):
        raise BadInput(list(_faults(problem, sorted(set(degrees)))))
    used = [(each, pair) for each, pair in zip(found, degrees, strict=True) if rows[pair]]
    table = [(number, *pair, *row) for number, (_, pair) in enumerate(used) for row in rows[pair]]
    number, data, stages, microbatch, microbatches, chunks, gpipe = np.array(table, np.int64).T
    options = itertools.product(
        _choice(fixed.recompute, Recompute),
        _choice(fixed.fused, (True, False)),
        _choice(fixed.sharded, Sharded),
        _choice(fixed.offload, (False, True) if problem.second else (False,)),
    )
    kept = tuple(Option(*each) for each in options if _differs(fixed, Option(*each)) and _can_run(problem, Option(*each)))
    if not kept and problem.limits:
        raise BadInput(
            Fault("fixed choices", f"some that {problem.limits.version} has", "others", "fix less, or leave out --for")
        )
    return PlanSpace(
        problem, tuple(each for each, _ in used), number, data, stages, microbatch, microbatches, chunks, gpipe, kept
    )


def _can_run(problem: TrainingProblem, option: Option) -> bool:
    """Whether the framework that is asked for has an option."""
    limits = problem.limits
    if limits is None:
        return True
    able = option.recompute in limits.recompute and option.sharded in limits.sharded
    return able and (limits.offload or not option.offload)


def _differs(fixed: Fixed, option: Option) -> bool:
    """A fused attention kernel recomputes the scores anyway."""
    return not (option.fused and option.recompute is Recompute.SELECTIVE) or fixed.recompute is not None


def _choice(fixed: T | None, known: Iterable[T]) -> tuple[T, ...]:
    return tuple(known) if fixed is None else (fixed,)


def _assignments(problem: TrainingProblem) -> tuple[Assignment, ...]:
    """The assignments with the sub-axes that the user fixed."""
    fixed, system = problem.fixed, problem.system
    given = {Role.DATA: fixed.data, Role.PIPELINE: fixed.stages, Role.MODEL: fixed.model}
    faults = [
        Fault(f"fixed parts of axis {name}", f"a product of {system.axis(name).size}, its chips", str(math.prod(parts.values())))
        for name, parts in fixed.axes.items()
        if math.prod(parts.values()) != system.axis(name).size
    ]
    if faults:
        raise BadInput(faults)
    found = assignments(system, {role: size for role, size in given.items() if size is not None}, problem.whole)
    kept = tuple(each for each in found if all(_parts(each, name) == _real(parts) for name, parts in fixed.axes.items()))
    if not kept:
        got = "; ".join(f"{name}: {' x '.join(f'{role} {size}' for role, size in p.items())}" for name, p in fixed.axes.items())
        raise BadInput(Fault("fixed parts of axes", "parts whose products are the degrees", got, "fix either of them"))
    return kept


def _parts(assignment: Assignment, axis: str) -> dict[Role, int]:
    return {part.role: part.size for part in assignment if part.axis == axis}


def _real(parts: Mapping[Role, int]) -> dict[Role, int]:
    return {role: size for role, size in parts.items() if size > 1}


def _pipelines(problem: TrainingProblem, data: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Microbatch, microbatches, chunks, and GPipe (1 or 0), of all pipelines with ``stages``."""
    fixed, layers = problem.fixed, problem.shape.layers
    if problem.batch % data or stages > min(layers, MAX_CHUNKS):
        return
    local = problem.batch // data
    for microbatch in divisors(local) if fixed.microbatch is None else (fixed.microbatch,):
        count = local // microbatch
        if local % microbatch or count > MAX_MICROBATCHES:
            continue
        most = min(layers, MAX_CHUNKS) // stages if stages > 1 else 1
        for chunks in range(1, most + 1):
            if (
                fixed.chunks in (None, chunks)
                and fixed.schedule is not PipelineSchedule.GPIPE
                and never_deadlocks(stages, count, chunks)
                and _has_pipeline(problem, PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, stages, chunks)
            ):
                yield microbatch, count, chunks, 0
        if (
            fixed.chunks in (None, 1)
            and (fixed.schedule is PipelineSchedule.GPIPE or (fixed.schedule is None and stages > 1))
            and _has_pipeline(problem, PipelineSchedule.GPIPE, stages, 1)
        ):
            yield microbatch, count, 1, 1


def _has_pipeline(problem: TrainingProblem, schedule: PipelineSchedule, stages: int, chunks: int) -> bool:
    """Whether the framework that is asked for has a pipeline."""
    return problem.limits is None or problem.limits.runs(schedule, stages, chunks, problem.shape.layers)


def _faults(problem: TrainingProblem, degrees: list[tuple[int, int]]) -> Iterator[Fault]:
    """Why there is no plan at all."""
    fixed, layers, batch = problem.fixed, problem.shape.layers, problem.batch
    if all(batch % data for data, _ in degrees):
        ranks = sorted({data for data, _ in degrees})
        above = -(-batch // ranks[0]) * ranks[0]
        near = " or ".join(str(size) for size in (above - ranks[0], above) if size)
        expected = f"a multiple of the data-parallel ranks, {', '.join(map(str, ranks))}"
        yield Fault("batch", expected, str(batch), f"take a batch of {near}, or fix other degrees")
        return
    degrees = [(data, stages) for data, stages in degrees if batch % data == 0]
    if all(stages > layers for _, stages in degrees):
        fewest = min(stages for _, stages in degrees)
        yield Fault("pipeline", f"at most {layers} stages, a layer each", str(fewest), "take fewer stages, or more layers")
        return
    if fixed.microbatch is not None and all(batch // data % fixed.microbatch for data, _ in degrees):
        local = sorted({batch // data for data, _ in degrees})
        yield _no_divisor(fixed.microbatch, local)
        return
    if problem.limits is not None:
        yield Fault("pipeline", f"one that {problem.limits.version} has", "others", "fix less, or leave out --for")
    elif fixed.chunks is not None:
        most = max(layers // stages if stages > 1 else 1 for _, stages in degrees)
        if fixed.chunks > 1 and fixed.schedule is PipelineSchedule.GPIPE:
            yield Fault("chunks per stage", "1 with GPipe", str(fixed.chunks), "take the schedule 1f1b")
        elif not 1 <= fixed.chunks <= most:
            expected = f"from 1 to {most} with {layers} layers"
            yield Fault("chunks per stage", expected, str(fixed.chunks), "take fewer chunks or stages")
        else:
            expected = "microbatches whose last group keeps all stages going"
            remedy = "take a batch for which the microbatches are a multiple of the stages, or 1 chunk"
            yield Fault("pipeline, microbatches", expected, f"stages that would deadlock with {fixed.chunks} chunks", remedy)


def _no_divisor(microbatch: int, local: list[int]) -> Fault:
    """``local``: sequences that a data-parallel rank may have."""
    fitting = {size for sequences in local for size in divisors(sequences)}
    nearest = min(fitting, key=lambda size: (abs(size - microbatch), size))
    expected = f"a divisor of the sequences of a data-parallel rank ({' or '.join(map(str, local))})"
    return Fault("microbatch", expected, str(microbatch), f"take {nearest}")
