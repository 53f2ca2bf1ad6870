"""Iterations of Megatron-LM on A100: what ``halley plan --fix`` says of published ones, without a number fitted to them.

All that Megatron-LM decided is fixed, the splits of its ops among it; kernels, collectives, schedule and optimizer are those of
every plan. What goes in was measured elsewhere: operators (the fit ``a100``), one large GEMM under load, collectives (the overlay
of NCCL). Any table with the same columns can be judged: `points` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from validation.outcome import Case, Line, Outcome, positive, read_figures, whole

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.fits import load_chip_fit
from halley.io.networks.fits import load_libraries
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.placement import Replicate, Shard
from halley.ir.system import System, resized
from halley.kernels.machine import PEAK, machine
from halley.kernels.sustained import under_load
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.plan import Fixed, PlanCost, TrainingProblem
from halley.training.search.search import best_training_plan
from halley.training.tensor_parallel import tensor_parallel

POINTS = Path(__file__).parent / "points.csv"
COLUMNS = ("model", "tensor", "stages", "chunks", "microbatch", "batch", "recompute", "scattered", "seconds")
MEAN, WORST = 0.04, 0.08
"""Allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model was trained: ``tensor`` ranks, ``stages`` of ``chunks``, sequences of a ``microbatch`` and of the ``batch``.
    ``scattered``: between split weights each rank had its share of the tokens (sequence parallelism), else all of them."""

    tensor: int
    stages: int
    microbatch: int
    batch: int
    chunks: int
    recompute: Recompute
    scattered: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One published iteration."""

    model: str
    setting: Setting
    seconds: float

    @property
    def name(self) -> str:
        """For a table."""
        chosen = self.setting
        tokens = ", tokens scattered" if chosen.scattered else ""
        return f"{self.model}, {chosen.tensor} x {chosen.stages}, recompute {chosen.recompute}{tokens}"


def points(path: Path = POINTS) -> tuple[Point, ...]:
    """The rows of a table. Raises BadInput: a row that cannot be read."""
    found = []
    for number, row in enumerate(read_figures(path, COLUMNS), start=1):
        where = f"{path}, row {number}"
        for column, known in (("recompute", list(Recompute)), ("scattered", ["no", "yes"])):
            if row[column] not in known:
                expected = f"one of {', '.join(known)}"
                raise BadInput(Fault(f"{where}, {column}", expected, repr(row[column]), did_you_mean(row[column], known)))
        counts = {name: whole(row, name, where) for name in ("tensor", "stages", "microbatch", "batch", "chunks")}
        setting = Setting(**counts, recompute=Recompute(row["recompute"]), scattered=row["scattered"] == "yes")
        found.append(Point(row["model"], setting, positive(row, "seconds", where)))
    return tuple(found)


def system_of(setting: Setting) -> System:
    """As many A100 as the setting takes, whole nodes of them."""
    return resized(load_system("dgx-a100-pod"), setting.tensor * setting.stages)


def problem(point: Point, as_it_ran: bool = True) -> TrainingProblem:
    """The point with all that Megatron-LM decided; ``as_it_ran``: the splits of ops too, else they are free."""
    setting, shape, system = point.setting, load_model(point.model), system_of(point.setting)
    fixed = Fixed(
        data=1,
        stages=setting.stages,
        model=setting.tensor,
        microbatch=setting.microbatch,
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        chunks=setting.chunks,
        recompute=setting.recompute,
        sharded=Sharded.NOTHING,
        offload=False,
        fused=False,
        axes={"gpu": {Role.MODEL: setting.tensor}},
    )
    if as_it_ran:
        splits = tensor_parallel(shape, shape.sequence, setting.scattered)
        boundary = (Shard("m") if setting.scattered else Replicate(),)
        fixed = replace(fixed, splits={op: {"gpu": dim} for op, dim in splits.items()}, boundary=boundary)
    efficiency = under_load(load_chip_fit("a100"), machine(system.chip))
    return TrainingProblem(shape, system, setting.batch, shape.sequence, efficiency, load_libraries(system), fixed=fixed)


@cache
def iteration(point: Point, as_it_ran: bool = True) -> PlanCost:
    """What Halley says; BadInput and Infeasible as `best_training_plan`."""
    return best_training_plan(problem(point, as_it_ran), others=0).cost


def roofline(point: Point) -> float:
    """The same plan [s], its kernels at the data sheet's rates, its collectives by the best schedule of the bare links."""
    return best_training_plan(replace(problem(point), efficiency=PEAK, libraries={}), others=0).cost.time


def constant(found: PlanCost, share: float) -> float:
    """All products of a plan at a share of the peak [s]."""
    return found.hardware_work / (found.peak * share)


def compare(path: Path = POINTS) -> Outcome:
    """All points, with what is allowed."""
    cases = tuple(Case(point.name, iteration(point).time, point.seconds) for point in points(path))
    return Outcome("megatron", (Line("seconds per iteration", cases, MEAN, WORST),))
