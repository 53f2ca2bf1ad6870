"""Kernels and passes of whole models that were timed for Halley on an H100 and an H200.

``kernels-*.json`` is what ``halley measure`` wrote; `steps.py` made ``steps-*.json``. The fit of the chip, and those of its
kernels, are of the first H100 alone. Passes of compiled models and all rows of the H200 were not fitted, so that these test the
model and not a fit; passes of plain PyTorch on the H100 gave one number of its software.
"""

from __future__ import annotations

import json
import math
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
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.fit import judge as judge_kernels
from halley.kernels.library.rows import MeasuredKernel, columns, strata
from halley.kernels.library.times import kernel_time
from halley.kernels.machine import machine
from halley.kernels.software import Software
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
"""Chips that were timed; the first was fitted."""
FITTED = "h100"
SECOND = "h100-second"
"""Another machine with the same chip."""
LAUNCH = 1e-6
"""Time [s] between kernels that follow each other in a graph, for the fit of operators."""
PLAIN, COMPILED = "pytorch", "pytorch-compiled"
"""Software of the passes."""

KERNELS = {"gemm": 0.06, "attention_prefill": 0.15, "attention_decode": 0.13}
OPERATORS = {"gemm": 0.09, "attention": 0.12, "attention-backward": 0.13}
"""Allowed mean errors of rows held out, by family and by operator."""
KIN = {"gemm": 0.09, "attention_prefill": 0.06, "attention_decode": 0.15, "layernorm": 0.16}
"""Allowed mean errors of kernels on the H200 by the H100's fits."""
WORST = 1.5
"""Allowed of a single kernel."""
OTHER_TABLES = (0.09, 0.6)
"""Allowed of products by the fit of tables that others measured on an H100 of theirs."""
REPEATED = (0.04, 0.6)
"""Allowed between two machines with the same chip."""
PASSES = {
    ("h100", "train compiled"): (0.07, 0.1),
    ("h100", "train compiled under load"): (0.06, 0.1),
    ("h200", "train compiled"): (0.03, 0.05),
    ("h100", "train"): (0.06, 0.12),
    ("h100", "train under load"): (0.07, 0.12),
    ("h200", "train"): (0.06, 0.12),
}
"""Allowed mean and worst error of forward and backward passes."""
FREE = math.inf
"""Allowed of lines that stand beside for comparison: anything."""


@cache
def measured(name: str = FITTED) -> tuple[TimedCase, ...]:
    """The kernels that were timed on a machine."""
    path = HERE / f"kernels-{name}.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    return tuple(read_rows(path, said["device"], said["software"]).values())


def kernel_rows(name: str = FITTED) -> tuple[MeasuredKernel, ...]:
    """Kernels as `halley calibrate chip` reads them."""
    (rows,) = read_kernel_table(kernel_table(name, "", measured(name), ""), "kernels").values()
    return rows


def passes(chip: str, kind: str) -> list[Mapping[str, Any]]:
    """Timed passes of models on a chip: ``train``, ``train compiled``, and both with ``under load``."""
    said = json.loads((HERE / f"steps-{chip}.json").read_text(encoding="utf-8"))
    return [row for row in said["rows"] if row["kind"] == kind]


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
    efficiency = load_chip_fit(FITTED).efficiency
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


def pass_cases(chip: str, kind: str, software: Software | None) -> tuple[Case, ...]:
    """Forward and backward pass together."""
    rows = passes(chip, kind)
    return tuple(Case(name_of(row), sum(predicted(row, chip, software)), row["forward"] + row["backward"]) for row in rows)


def constant(chip: str, kind: str, found: Sequence[Mapping[str, Any]]) -> tuple[Case, ...]:
    """Passes at one share of the matrix rate, that of least mean error on ``found``, which are passes of the first chip."""

    def work(row: Mapping[str, Any], chip: str) -> float:
        """Time [s] of forward and backward pass at the matrix rate."""
        asked = problem(row, chip, None)
        return row["batch"] * model_macs(asked) / machine(asked.chip).mac_rate("bf16")

    def time(row: Mapping[str, Any]) -> float:
        return float(row["forward"] + row["backward"])

    shares = np.array([work(row, FITTED) / time(row) for row in found])
    best = min(shares.tolist(), key=lambda share: float(np.abs(shares / share - 1).mean()))
    return tuple(Case(name_of(row), work(row, chip) / best, time(row)) for row in passes(chip, kind))


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
        yield Line(f"kernels of PyTorch, {family}, held out", tuple(cases), allowed, WORST)


def held_out_operators() -> Iterable[Line]:
    """The chip's fit, one efficiency for all operators, judged on rows between."""
    rows = [row for row in read_operators(operator_table(measured(), ""), "operators") if row.operator != LOADED]
    judged = judge_operators(rows, machine(load_chip(FITTED)), replace(TYPICAL_EFFICIENCY, launch=LAUNCH))
    for operator, allowed in OPERATORS.items():
        held = [item for item in judged.held if item.row.operator == operator]
        cases = [Case(str(item.row.kernel), item.predicted, item.row.time) for item in held]
        yield Line(f"operators, {operator}, held out", tuple(cases), allowed, WORST)


def timed(rows: Iterable[MeasuredKernel], chip: str, framework: str) -> tuple[tuple[Case, ...], float]:
    """Rows of one family by the fits of a chip (or of its kin), and the share of rows in the interval."""
    cases, inside = list[Case](), list[bool]()
    fits = load_kernel_fits(chip)
    for stratum, alike in strata(rows).items():
        kernel = stratum.kernel if framework == stratum.framework else None
        sizes, formats = columns(alike, FAMILIES[stratum.family]), (stratum.dtype, stratum.cache or None)
        found = kernel_time(fits, stratum.family, sizes, *formats, framework, kernel, cold=True)
        for row, time, low, high in zip(alike, found.time, found.low, found.high, strict=True):
            cases.append(Case(f"{stratum}: {dict(row.sizes)}", float(time), row.time))
            inside.append(bool(low <= row.time <= high))
    return tuple(cases), float(np.mean(inside))


def other_tables() -> Line:
    """Products by the fit of other people's tables."""
    rows = [row for row in kernel_rows() if row.family == "gemm" and row.dtype == "bf16"]
    return Line("products, by the fit of vLLM's tables", timed(rows, FITTED, "vllm")[0], *OTHER_TABLES)


def kin() -> tuple[list[Line], list[str]]:
    """Kernels of the H200 by the H100's fits."""
    lines, notes = [], []
    for family, allowed in KIN.items():
        cases, inside = timed([row for row in kernel_rows("h200") if row.family == family], "h200", "pytorch")
        lines.append(Line(f"kernels of the H200 by the H100's fit, {family}", cases, allowed, WORST))
        notes.append(f"{family} {100 * inside:.0f} %")
    return lines, [f"kernels of the H200 in the interval of the H100's fit: {', '.join(notes)}"]


def repeated() -> Line:
    """All kernels of one H100 by those of another, which is what no model can better."""
    first = {str(item.case): item.timing.time for item in measured()}
    second = {str(item.case): item.timing.time for item in measured(SECOND)}
    cases = tuple(Case(name, first[name], time) for name, time in second.items() if name in first)
    return Line("kernels of one H100 by those of another", cases, *REPEATED)


def compare() -> Outcome:
    """All of them; the rows are part of the repository."""
    lines, notes = kin()
    lines = [other_tables(), *held_out_kernels(), *held_out_operators(), repeated(), *lines]
    for (chip, kind), allowed in PASSES.items():
        software = load_software(COMPILED if "compiled" in kind else PLAIN).on(chip)
        said = f"{'compiled' if 'compiled' in kind else 'plain'} passes{' under load' if 'under load' in kind else ''}"
        lines.append(Line(f"{said}, {chip.upper()}", pass_cases(chip, kind, software), *allowed))
        lines.append(Line(f"{said}, {chip.upper()}, one utilisation", constant(chip, kind, passes(FITTED, kind)), FREE, FREE))
    return Outcome("machines", tuple(lines), tuple(notes))
