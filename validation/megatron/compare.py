"""Iterations of Megatron-LM on A100: what Halley says of published ones, without a number fitted to them.

What goes in was measured elsewhere: operators (the fit ``a100``), one large GEMM under load, collectives (the overlay of NCCL),
and how many cores NCCL holds. Any table with the same columns can be judged: `points` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from validation.outcome import Case, Line, Outcome, positive, read_figures, whole

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time
from halley.io.chip_fits import load_chip_fit
from halley.io.fits import load_libraries
from halley.io.system import load_system
from halley.io.transformers import load_model
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System, resized
from halley.network.collective import bound_of, team_of
from halley.planning.kernels import Gemm, demand
from halley.planning.machine import PEAK, machine
from halley.planning.megatron_iteration import MegatronTime, Setting, megatron_iteration, worker_of
from halley.planning.passes import Step, Worker, under_load
from halley.rewrite.recompute import Recompute

POINTS = Path(__file__).parent / "points.csv"
COLUMNS = ("model", "tensor", "stages", "chunks", "microbatch", "batch", "recompute", "scattered", "seconds")
MEAN, WORST = 0.04, 0.08
"""Allowed."""


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


class Roofline(Worker):
    """Kernels at the data sheet's rate or bandwidth, whichever takes longer; nothing else."""

    def step_time(self, step: Step) -> Number:
        products, traffic = demand(step.kernel)
        kind = step.kernel.dtype if isinstance(step.kernel, Gemm) else "bf16"
        rate, bandwidth = self.chip.mac_rate(kind), self.chip.memory
        return max(float(busy_time(products, rate)), float(busy_time(traffic, bandwidth)))


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


@cache
def iteration(model: str, setting: Setting) -> MegatronTime:
    """What Halley says."""
    system = system_of(setting)
    efficiency = under_load(load_chip_fit("a100"), machine(system.chip))
    library = load_libraries(system)["gpu"]
    worker = worker_of(system, efficiency, library, setting.tensor, library.channels.count)
    return megatron_iteration(load_model(model), setting, system, worker)


def roofline(model: str, setting: Setting) -> float:
    """The same kernels, schedule and transfers [s], at the data sheet's rates, collectives at the bound of their links."""
    system = system_of(setting)
    team = team_of((replace(system.axes[-1], size=setting.tensor),))

    def collective(kind: CollectiveKind, size: Number) -> Number:
        return bound_of(kind, team, int(size)).value

    worker = Roofline(machine(system.chip), PEAK, collective)
    return megatron_iteration(load_model(model), setting, system, worker).time


def constant(found: MegatronTime, chips: int, share: float) -> float:
    """All products at a share of the peak [s]."""
    rate = machine(load_system("dgx-a100-pod").chip).mac_rate("bf16")
    return found.macs / (chips * rate * share)


def compare(path: Path = POINTS) -> Outcome:
    """All points, with what is allowed."""
    cases = tuple(Case(point.name, iteration(point.model, point.setting).time, point.seconds) for point in points(path))
    return Outcome("megatron", (Line("seconds per iteration", cases, MEAN, WORST),))
