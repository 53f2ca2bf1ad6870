"""The 80 systems of DFModel's design space with its four workloads, each planned in its view: what is asked and what is kept."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path

from halley import Infeasible, Workload, build
from halley.dfmodel.plan import DFModelProblem, best_training
from halley.errors import Fault
from halley.formulas.spatial import utilisation
from halley.graphs.plan import GraphPlan, GraphProblem, plan_graph
from halley.io.systems.grid import load_grid
from halley.io.transformers import load_model
from halley.ir.system import System
from halley.network.graph.bill import bill
from halley.sharding.axes import assignment_text
from studies.store import DOCS, ROOT, behind, replace_text
from studies.systems80_dlrm import microbatch

NAME = "systems"
SCHEMA = "halley.study.systems/1"

DATAFLOW = ("sn30", "wse-2")
"""Chips that stream from kernel to kernel; the others run kernel by kernel (arXiv 2412.16432, section VI-C)."""

MODEL, BATCH = "gpt3-1t", 2048
"""Trained on so many sequences an iteration, of the tokens that the model was trained on."""

ORDER, BLOCKS, STEPS = 5_000_000, (4096, 16384, 65536), 12
"""LINPACK's matrix; blocks that are tried; of so many runs of steps the middle one is planned and stands for all of it."""

POINTS = 1 << 20
"""Points of either round of the transform: 2^40 in all."""

WORKLOADS = ("llm", "dlrm", "hpl", "fft")
TITLES = {
    "llm": "GPT3-1T training",
    "dlrm": "DLRM with 793e9 parameters",
    "hpl": "LINPACK of order 5e6",
    "fft": "Fourier transform of 2^40 points",
}
PARTS = ("compute", "memory", "network", "bubble")
"""The parts of an iteration's time; loading weights is memory, transfers and gradients are network."""
_PART_OF = {"weights": "memory", "transfers": "network", "gradients": "network"}

FILES = ("systems/grids/dfmodel.yaml", f"models/{MODEL}.yaml", *(f"chips/{name}.yaml" for name in ("h100", "tpu-v4", *DATAFLOW)))
"""What of the library a figure depends on."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on a system of the grid, by name."""

    system: str
    workload: str

    @property
    def key(self) -> tuple[str, str]:
        return self.system, self.workload


@dataclass(frozen=True, slots=True)
class Row:
    """What was found: ``time`` [s] of an iteration (a batch, the whole factorisation, a transform), ``utilisation`` of the peak
    in bf16, operations per second and USD, operations per joule, ``parts`` of the time [s], the plan in words, its gap. With a
    ``reason`` there is no plan."""

    system: str
    workload: str
    time: float
    utilisation: float
    per_price: float
    per_energy: float
    parts: Mapping[str, float]
    plan: str
    gap: float
    seconds: float
    source: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.system, self.workload

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Chip, topology, memory, link."""
        chip, topology, memory, link = self.system.split("/")
        return chip, topology, memory, link


@cache
def grid() -> dict[str, System]:
    return load_grid("dfmodel")


def cases() -> list[Case]:
    return [Case(system, workload) for workload, system in product(WORKLOADS, grid())]


def source() -> str:
    """A fingerprint of the code and the files behind every figure: of all modules that this one has loaded."""
    return behind(
        Path(__file__),
        Path(__file__).with_name("systems80_dlrm.py"),
        *(ROOT / "src" / "halley" / "library" / name for name in FILES),
    )


def solve(case: Case, mark: str) -> Row:
    """Plan one case."""
    start = time.process_time()
    system = grid()[case.system]
    fused = case.system.split("/")[0] in DATAFLOW
    try:
        found = {"llm": _llm, "dlrm": _dlrm, "hpl": _hpl, "fft": _fft}[case.workload](system, fused)
    except Infeasible as fault:
        return Row(*case.key, math.inf, 0.0, 0.0, 0.0, {}, "", 0.0, time.process_time() - start, mark, str(fault))
    whole = bill(system)
    rate = found.work / found.time
    parts = dict.fromkeys(PARTS, 0.0)
    for name, share in found.parts.items():
        parts[_PART_OF.get(name, name)] += share
    used = float(utilisation(found.work, found.time, found.peak))
    seconds = time.process_time() - start
    return Row(*case.key, found.time, used, rate / whole.price, rate / whole.power, parts, found.plan, found.gap, seconds, mark)


@dataclass(frozen=True, slots=True)
class _Found:
    time: float
    work: float
    peak: float
    parts: Mapping[str, float]
    plan: str
    gap: float = 0.0


def _llm(system: System, fused: bool) -> _Found:
    shape = load_model(MODEL)
    result = best_training(DFModelProblem(shape, system, BATCH, shape.sequence, fused))
    plan = f"{assignment_text(result.choice.assignment)}; microbatches of {result.choice.microbatch}"
    if fused:
        plan += f"; {len(result.layer.partitions)} partitions"
    return _Found(result.time, result.problem.work, result.problem.peak, result.account, plan)


def _graph(work: Workload, system: System, fused: bool, layouts: Mapping[str, Mapping[str, str]]) -> GraphPlan:
    place = {"Anew": "A22", "L21": "A21", "U12": "A12"} if work.name == "hpl" else {}
    return plan_graph(GraphProblem(work, system, layouts=layouts, in_place=place, overlap=True, fused=fused))


def _splits(plan: GraphPlan) -> str:
    """Which dims the ops split on each axis, the most frequent first, equal ones by name."""
    told = []
    for place, axis in enumerate(plan.sharding.problem.mesh):
        dims = [item.strategy[place].split or "none" for item in plan.sharding.ops]
        told.append(f"{axis.name}: {', '.join(sorted(set(dims), key=lambda dim: (-dims.count(dim), dim)))}")
    return "; ".join(told)


def _of(plan: GraphPlan) -> _Found:
    return _Found(plan.time, plan.problem.work, plan.problem.peak, plan.account, _splits(plan), plan.certificate.gap)


def _dlrm(system: System, fused: bool) -> _Found:
    found = microbatch(system, fused)
    plan = f"data, tables over all chips; {found.plan}"
    return _Found(found.time, found.work, found.peak, found.parts, plan, max(found.time / found.bound - 1, 0.0))


def _fft(system: System, fused: bool) -> _Found:
    """Points lie in their natural order before and after: block by block over the chips."""
    axes = [axis.name for axis in system.axes]
    layouts = dict.fromkeys(("Xr", "Xi"), dict.fromkeys(axes, "p")) | dict.fromkeys(("Yr", "Yi"), dict.fromkeys(axes, "q"))
    return _of(_graph(build("fft", {"rows": POINTS, "columns": POINTS, "dtype": "bf16"}), system, fused, layouts))


def _hpl(system: System, fused: bool) -> _Found:
    """The whole factorisation with the best of a few blocks; rows lie on the first axis, columns on the others."""
    axes = [axis.name for axis in system.axes]
    rows, others = {axes[0]: "i"}, axes[1:]
    columns = dict.fromkeys(others, "j")
    layouts = {
        "A22": rows | columns,
        "Anew": rows | columns,
        "A21": rows | dict.fromkeys(others, "k"),
        "L21": rows | dict.fromkeys(others, "l"),
        "A12": {axes[0]: "k"} | columns,
        "U12": {axes[0]: "l"} | columns,
    }

    def step(order: int, block: int) -> GraphPlan:
        work = build("hpl", {"order": order, "block": block, "dtype": "bf16"})
        return _graph(work, system, fused, layouts)

    first, misfits = {}, list[Fault]()
    for block in BLOCKS:
        try:
            first[block] = step(ORDER, block)
        except Infeasible as error:
            misfits += error.faults
    if not first:
        raise Infeasible(misfits)
    block = min(first, key=lambda each: first[each].time / each)
    steps = ORDER // block
    edges = [steps * number // STEPS for number in range(STEPS + 1)]
    runs = [(high - low, step(ORDER - block * (low + high) // 2, block)) for low, high in pairwise(edges)]
    parts = {name: math.fsum(count * each.account[name] for count, each in runs) for name in first[block].account}
    total = math.fsum(count * each.time for count, each in runs)
    bound = math.fsum(count * each.certificate.bound for count, each in runs)
    plan = f"blocks of {block}; {_splits(first[block])}"
    return _Found(total, 2 / 3 * ORDER**3, first[block].problem.peak, parts, plan, total / bound - 1)


def load() -> tuple[list[Row], str]:
    """The rows that are kept and the machine that made them."""
    path = DOCS / f"{NAME}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if kept.get("schema") != SCHEMA:
        return [], ""
    rows = [Row(**entry | {"time": math.inf if entry["time"] is None else entry["time"]}) for entry in kept["rows"]]
    return rows, kept["machine"]


def save(rows: Iterable[Row], machine: str) -> None:
    """Write the rows as JSON, a row a line, and as CSV."""
    rows = list(rows)
    entries = [asdict(row) | {"time": row.time if math.isfinite(row.time) else None} for row in rows]
    head = f'{{"schema": {json.dumps(SCHEMA)}, "machine": {json.dumps(machine)}, "rows": [\n'
    replace_text(DOCS / f"{NAME}.json", head + ",\n".join(map(json.dumps, entries)) + "\n]}\n")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ["time_s", "utilisation", "op_per_s_per_usd", "op_per_j", *(f"{part}_s" for part in PARTS)]
    writer.writerow(["workload", "chip", "topology", "memory", "link", *figures, "plan", "gap"])
    for row in rows:
        shares = [row.parts.get(part, "") for part in PARTS]
        found = [row.time, row.utilisation, row.per_price, row.per_energy] if not row.reason else [""] * 4
        writer.writerow([row.workload, *row.words, *found, *shares, row.plan or row.reason, row.gap])
    replace_text(DOCS / f"{NAME}.csv", out.getvalue())
