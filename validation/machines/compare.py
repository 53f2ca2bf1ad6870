"""Kernels and passes of whole models that were timed for Halley on an H100 and an H200.

`kernels-h100.json` is what ``halley measure`` wrote; `steps.py` made ``steps-*.json``. The chip's fit is of kernels of the H100
alone. No pass of a model and no row of the H200 was fitted, so these test the model and not a fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from validation.outcome import Case, Line, Outcome

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.kernel_fits import load_kernel_fits
from halley.io.chips.kernel_tables import read_kernel_table
from halley.io.chips.load import load_chip
from halley.io.chips.operators import LOADED, read_operators
from halley.io.chips.software import load_software
from halley.io.networks.fits import load_libraries
from halley.io.systems.system import load_system
from halley.kernels.calibrate import TYPICAL_EFFICIENCY
from halley.kernels.calibrate import judge as judge_operators
from halley.kernels.library.fit import judge as judge_kernels
from halley.kernels.library.rows import MeasuredKernel
from halley.kernels.library.times import kernel_time
from halley.kernels.machine import machine
from halley.kernels.software import Software
from halley.kernels.sustained import under_load
from halley.measure.tables import kernel_table, operator_table, read_rows
from halley.measure.timing import TimedCase
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.iteration import iteration_time
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.sharding.communication import Communication, Interconnect
from halley.training.axis_bounds import GraphVariant
from halley.training.cost import Batch, PlanInputs, model_macs, training_of
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.space import training_space
from halley.training.sharded_model import ShardedModel
from halley.workloads.transformer import Transformer

HERE = Path(__file__).parent
CHIPS = ("h100", "h200")
"""Chips whose passes were timed; kernels were timed on the first."""
FITTED = "h100"
SOFTWARE = "pytorch"
LAUNCH = 1e-6
"""Time [s] between kernels that follow each other in a graph, for the fit of operators."""

KERNELS = {"gemm": 0.06, "attention_prefill": 0.15, "attention_decode": 0.13}
OPERATORS = {"gemm": 0.09, "attention": 0.12, "attention-backward": 0.13}
"""Allowed mean errors of rows held out, by family and by operator."""
KERNEL_WORST = 1.5
OTHER_MACHINE = (0.09, 0.6)
"""Allowed of products by the fit of tables that others measured on an H100 of theirs."""
PASSES = {"h100": (0.06, 0.12), "h200": (0.05, 0.12)}
"""Allowed mean and worst error of a forward and backward pass."""
FREE = 10.0
"""Allowed of lines that stand beside for comparison: anything."""


@cache
def measured() -> tuple[TimedCase, ...]:
    """The kernels that were timed on the H100."""
    path = HERE / f"kernels-{FITTED}.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    return tuple(read_rows(path, said["device"], said["software"]).values())


def kernel_rows() -> tuple[MeasuredKernel, ...]:
    """Kernels as `halley calibrate chip` reads them."""
    (rows,) = read_kernel_table(kernel_table("h100", "", measured(), ""), "kernels").values()
    return rows


def passes(chip: str) -> list[Mapping[str, Any]]:
    """Timed passes of models on a chip, those of training."""
    said = json.loads((HERE / f"steps-{chip}.json").read_text(encoding="utf-8"))
    return [row for row in said["rows"] if row["kind"] == "train"]


def problem(row: Mapping[str, Any], chip: str, software: Software | None) -> TrainingProblem:
    """The pass as a plan of one chip, with all choices fixed."""
    shape = Transformer(
        row["name"],
        row["layers"],
        row["hidden"],
        row["heads"],
        row["kv_heads"],
        row["hidden"] // row["heads"],
        row["inter"],
        row["vocabulary"],
        row["tokens"],
        gated=row["gated"],
        rms=row["gated"],
    )
    system = load_system(f"1 x {chip}")
    efficiency = under_load(load_chip_fit(FITTED), machine(load_chip(FITTED)))
    fixed = Fixed(
        data=1,
        stages=1,
        model=1,
        microbatch=row["batch"],
        schedule=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        chunks=1,
        recompute=Recompute.NONE,
        sharded=Sharded.NOTHING,
        offload=False,
        fused=True,
    )
    fitted = efficiency if software is None else software.of(efficiency)
    return TrainingProblem(
        shape, system, row["batch"], row["tokens"], fitted, load_libraries(system), fixed=fixed, software=software
    )


def predicted(row: Mapping[str, Any], chip: str, software: Software | None) -> tuple[float, float]:
    """Times [s] of the forward and the backward pass."""
    asked = problem(row, chip, software)
    space = training_space(asked)
    communication = Communication(Interconnect(asked.system, asked.libraries, False), space.assignments[0])
    costs = ShardedModel(asked).costs(communication, row["batch"], GraphVariant(Recompute.NONE, True))
    batch = Batch(space.pipeline(0), Sharded.NOTHING, False)
    found = iteration_time(training_of(asked, batch, [PlanInputs(communication, costs)]), attribute_transfers=True)
    return float(found.forward[0]), float(found.backward[0])


def name_of(row: Mapping[str, Any]) -> str:
    """For a table."""
    return f"{row['name']}, {row['batch']} sequences of {row['tokens']} tokens"


def pass_cases(chip: str, software: Software | None) -> tuple[Case, ...]:
    """Forward and backward pass together."""
    return tuple(
        Case(name_of(row), sum(predicted(row, chip, software)), row["forward"] + row["backward"]) for row in passes(chip)
    )


def constant(chip: str, found: Sequence[Mapping[str, Any]]) -> tuple[Case, ...]:
    """Passes at one share of the matrix rate, that of least mean error on ``found``, which are passes of the first chip."""

    def work(row: Mapping[str, Any]) -> float:
        """Time [s] of forward and backward pass at the matrix rate."""
        asked = problem(row, chip, None)
        return row["batch"] * model_macs(asked) / machine(asked.chip).mac_rate("bf16")

    def time(row: Mapping[str, Any]) -> float:
        return float(row["forward"] + row["backward"])

    shares = np.array([work(row) / time(row) for row in found])
    best = min(shares.tolist(), key=lambda share: float(np.abs(shares / share - 1).mean()))
    return tuple(Case(name_of(row), work(row) / best, time(row)) for row in passes(chip))


def held_out_kernels() -> Iterable[Line]:
    """Fits of kernels of PyTorch, judged on rows between."""
    judged = judge_kernels(kernel_rows(), machine(load_chip(FITTED)))
    for family, allowed in KERNELS.items():
        cases = [
            Case(f"{item.stratum}", float(guess), float(time))
            for item in judged
            if item.stratum.family == family
            for time, guess in zip(item.measured, item.predicted, strict=True)
        ]
        yield Line(f"kernels of PyTorch, {family}, held out", tuple(cases), allowed, KERNEL_WORST)


def held_out_operators() -> Iterable[Line]:
    """The chip's fit, one efficiency for all operators, judged on rows between."""
    rows = [row for row in read_operators(operator_table(measured(), ""), "operators") if row.operator != LOADED]
    judged = judge_operators(rows, machine(load_chip(FITTED)), replace(TYPICAL_EFFICIENCY, launch=LAUNCH))
    for operator, allowed in OPERATORS.items():
        held = [item for item in judged.held if item.row.operator == operator]
        cases = [Case(str(item.row.kernel), item.predicted, item.row.time) for item in held]
        yield Line(f"operators, {operator}, held out", tuple(cases), allowed, KERNEL_WORST)


def other_machine() -> Line:
    """Products by the fit of other people's tables."""
    rows = [row for row in kernel_rows() if row.family == "gemm" and row.dtype == "bf16"]
    sizes = {name: np.array([row.sizes[name] for row in rows]) for name in ("m", "n", "k")}
    found = kernel_time(load_kernel_fits(FITTED), "gemm", sizes, framework="vllm", cold=True)
    cases = [
        Case(" x ".join(f"{size:g}" for size in row.sizes.values()), float(time), row.time)
        for row, time in zip(rows, found.time, strict=True)
    ]
    return Line("products, by the fit of vLLM's tables", tuple(cases), *OTHER_MACHINE)


def compare() -> Outcome:
    """All of them; the rows are part of the repository."""
    lines = [other_machine(), *held_out_kernels(), *held_out_operators()]
    software = load_software(SOFTWARE)
    for chip in CHIPS:
        said = f"passes of training, {chip.upper()}"
        lines.append(Line(f"{said}, none fitted", pass_cases(chip, software), *PASSES[chip]))
        lines.append(Line(f"{said}, no software", pass_cases(chip, None), FREE, FREE))
        lines.append(Line(f"{said}, one utilisation", constant(chip, passes(FITTED)), FREE, FREE))
    return Outcome("machines", tuple(lines))
