"""Measured iterations of training from a CSV: one row per run, with its model, system, parallelism and measured time.

`REQUIRED` columns, one of `MEASURES`, and as many of the others as the runs need. Choices have the words of ``halley plan --fix``
as columns; an empty cell stands for the default in `DEFAULTS`. Lines that start with # are comments.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.source import find_model, planned
from halley.importers.training import RECIPE, training_problem
from halley.io.chips.software import NO_SOFTWARE
from halley.io.files.text import read_text_bounded
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.kernels.software import Software
from halley.training.cost import model_macs
from halley.training.fit.calibrate import MeasuredIteration
from halley.training.fit.fixed_plan import Known, fixed_plan
from halley.training.fixed import ASIDE, KNOWN, NAMES, READERS, parse_fixed
from halley.training.plan import TrainingProblem
from halley.units import counted
from halley.workloads.transformer import Transformer

TEXT_LIMIT = 2**20
"""Largest file [B]."""
LOG_LIMIT = 64 * 2**20
"""Largest log of a framework [B]."""
ROW_LIMIT = 1000
"""Most runs of a table."""
NUMBER_LIMIT = 1e15
"""Largest number of a cell; a larger one is a typing error."""
WARM_UP = 0.1
"""Share of the iterations of a log that is left out at its start, at least one of several."""

REQUIRED = ("model", "system", "batch", "microbatch")
OTHERS = ("name", "sequence", "axes", "splits", "products", "optimizer", "efficiency")
DEFAULTS: Mapping[str, str] = {
    "pp": "1",
    "tp": "1",
    "zero": "0",
    "schedule": "1f1b",
    "chunks": "1",
    "recompute": "none",
    "offload": "no",
    "attention": "fused",
}
"""Choices of runs that do not state them; ``dp`` is what remains of the chips."""
SPLITS: Mapping[str, bool | None] = {"": None, "searched": None, "megatron": False, "megatron-sp": True}
"""By word, whether tokens are scattered between the weights that Megatron-LM splits; None: the search shards ops."""
PRODUCTS = ("bf16", "fp8")

Seconds = Callable[[float, TrainingProblem], float]


def _by_tokens(value: float, problem: TrainingProblem) -> float:
    return problem.tokens / value


def _by_tokens_of_chip(value: float, problem: TrainingProblem) -> float:
    return problem.tokens / (value * problem.system.chips)


def _by_rate(value: float, problem: TrainingProblem) -> float:
    """Operations of the model alone, without recomputation, with all scores of attention: as Megatron-LM counts them."""
    return 2.0 * problem.batch * model_macs(problem) / (value * 1e12 * problem.system.chips)


MEASURES: Mapping[str, Seconds] = {
    "time_s": lambda value, problem: value,
    "time_ms": lambda value, problem: value / 1e3,
    "tokens_per_s": _by_tokens,
    "tokens_per_s_per_gpu": _by_tokens_of_chip,
    "tflops_per_gpu": _by_rate,
    "megatron_log": lambda value, problem: value,
}
"""Columns of the measurement, of which a table has one, and the time of an iteration [s] by its value. ``megatron_log``: the path
of a log of Megatron-LM, whose median iteration counts."""
COLUMNS = tuple(dict.fromkeys((*REQUIRED, *KNOWN, *OTHERS, *MEASURES)))

_ELAPSED = re.compile(r"elapsed time per iteration \(ms\):\s*([0-9]+(?:\.[0-9]+)?)")


def read_iterations(
    text: str, name: str, software: Software, efficiency: str | None = None, progress: Callable[[str, float], None] | None = None
) -> tuple[MeasuredIteration, ...]:
    """The rows of a CSV of measured iterations; ``name`` is the file's name for messages. ``software``: under which plans of
    several possible assignments of axes are compared; ``efficiency``: fit of the chips' kernels, of rows that name none.

    Raises BadInput: every fault of every row, with its line; no rows, or too many.
    """
    head, rows, faults = _table(text, name)
    reader = _Reader(software, efficiency)
    found: list[MeasuredIteration] = []
    for number, (where, cells) in enumerate(rows if not faults else ()):
        if progress is not None:
            progress(f"reads {where}", number / len(rows))
        if len(cells) != len(head):
            faults.append(Fault(where, f"{len(head)} cells, as the head has columns", str(len(cells))))
            continue
        measured, wrong = reader.row(dict(zip(head, cells, strict=True)), where)
        found += measured
        faults += wrong
    if faults:
        raise BadInput(faults)
    return tuple(found)


def _table(text: str, name: str) -> tuple[list[str], list[tuple[str, list[str]]], list[Fault]]:
    """The head, the cells of each row with its place, and what is wrong with the table as a whole."""
    # a comment becomes an empty line, which counts but is skipped
    lines = csv.reader(("" if line.startswith("#") else line for line in text.splitlines()), skipinitialspace=True)
    rows: list[tuple[str, list[str]]] = []
    try:
        rows += ((f"{name}:{lines.line_num}", [cell.strip() for cell in cells]) for cells in lines if cells)
    except csv.Error as error:
        return [], [], [Fault(f"{name}:{lines.line_num}", "a line of CSV", str(error))]
    if len(rows) < 2:
        return [], [], [Fault(name, "a head and rows of measured iterations", f"{len(rows)} lines")]
    (where, first), *rows = rows
    head = [column.lower() for column in first]
    faults = _head(head, where)
    if len(rows) > ROW_LIMIT:
        faults.append(Fault(name, f"at most {ROW_LIMIT} rows", str(len(rows))))
    return head, rows, faults


def _head(head: list[str], where: str) -> list[Fault]:
    said = ", ".join(head)[:80] or "nothing"
    faults = [Fault(where, f"the column {column}", said) for column in REQUIRED if column not in head]
    measures = [column for column in head if column in MEASURES]
    if len(measures) != 1:
        expected = f"one column of the measurement ({', '.join(MEASURES)})"
        faults.append(Fault(where, expected, ", ".join(measures)[:80] or f"none in {said}"))
    for place, column in enumerate(head):
        if column not in COLUMNS:
            remedy = ASIDE.get(column) or did_you_mean(column[:40], COLUMNS)
            faults.append(Fault(where, "a known column", repr(column[:40]), remedy))
        elif column in head[:place]:
            faults.append(Fault(where, "each column once", f"{column} again", "remove one"))
    return faults


@dataclass(slots=True)
class _Reader:
    """Reads rows. Models, systems and costs that rows share are read once."""

    software: Software
    efficiency: str | None
    models: dict[str, Transformer] = field(default_factory=dict)
    systems: dict[str, System] = field(default_factory=dict)
    known: Known = field(default_factory=dict)

    def row(self, cells: Mapping[str, str], where: str) -> tuple[list[MeasuredIteration], list[Fault]]:
        """The measured iteration, or all that is wrong with the row."""
        faults: list[Fault] = []

        def read(column: str, reader: Callable[[str], Any], text: str) -> Any:
            """What the text of a cell says, or None and its faults."""
            place = f"{where}: {column}" if column else where
            try:
                return reader(text)
            except BadInput as error:
                faults.extend(_placed(error.faults, place))
            except ValueError as error:
                faults.append(Fault(place, str(error), repr(text[:40])))
            return None

        words = {**DEFAULTS, **{word: cells[word] for word in KNOWN if cells.get(word)}, "microbatch": cells["microbatch"]}
        model, system = read("model", self._model, cells["model"]), read("system", self._system, cells["system"])
        batch = read("batch", READERS["microbatch"], cells["batch"])
        sequence = read("sequence", READERS["microbatch"], cells["sequence"]) if cells.get("sequence") else None
        for word, said in words.items():
            read(word, READERS[NAMES.get(word) or word], said)
        splits = read("splits", _one_of(SPLITS), cells.get("splits", ""))
        products = read("products", _one_of(("", *PRODUCTS)), cells.get("products", ""))
        measure = next(column for column in cells if column in MEASURES)
        value = read(measure, _median if measure == "megatron_log" else _positive, cells[measure])
        if faults:
            return [], faults
        chosen = " ".join(f"{word}={said}" for word, said in words.items())
        axes = [axis.name for axis in system.axes]
        fixed = read("axes", lambda given: parse_fixed(f"{chosen} {given}", axes), cells.get("axes", ""))
        if fixed is None:
            return [], faults
        shape = replace(model, products=products) if products else model
        fit = cells.get("efficiency") or self.efficiency

        def measured(optimizer: str) -> MeasuredIteration:
            problem = training_problem(shape, system, batch, sequence, fixed, False, optimizer, fit, NO_SOFTWARE)
            if system.chip.streams:
                raise BadInput(Fault("system", "a chip that runs one kernel at a time", system.chip.name))
            plan = fixed_plan(replace(problem, usable=math.inf), self.software, SPLITS[splits], self.known)
            title = cells.get("name") or _title(cells, words, system.chips)
            return MeasuredIteration(title, plan, MEASURES[measure](value, problem), where)

        found = read("", measured, cells.get("optimizer") or RECIPE)
        return [found] if found else [], faults

    def _model(self, name: str) -> Transformer:
        if name not in self.models:
            self.models[name] = planned(find_model(name))
        return self.models[name]

    def _system(self, name: str) -> System:
        if name not in self.systems:
            self.systems[name] = load_system(name)
        return self.systems[name]


def _placed(faults: Iterable[Fault], where: str) -> list[Fault]:
    """Faults of what a cell names, with the place of the cell."""
    last = where.rpartition(": ")[2]
    return [replace(fault, where=where if fault.where in (last, "--fix") else f"{where}: {fault.where}") for fault in faults]


def _title(cells: Mapping[str, str], words: Mapping[str, str], chips: int) -> str:
    """A name of a row."""
    shown = [f"{word} {words[word]}" for word in ("dp", "pp", "tp") if words.get(word, "1") != "1"]
    sizes = f"batch {cells['batch']}", f"microbatch {cells['microbatch']}"
    return ", ".join((cells["model"], counted(chips, "chip"), *shown, *sizes))


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    """What reads one of the words."""

    def reader(text: str) -> str:
        if text not in known:
            raise ValueError(f"one of {', '.join(word for word in known if word)}, or nothing")
        return text

    return reader


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= NUMBER_LIMIT:
        raise ValueError("a number above 0")
    return value


def _median(path: str) -> float:
    """The median time of an iteration [s] of a log of Megatron-LM, after its warm-up."""
    times = [float(found) / 1e3 for found in _ELAPSED.findall(read_text_bounded(path, LOG_LIMIT))]
    kept = times[max(1, math.ceil(WARM_UP * len(times))) :] if len(times) > 1 else times
    if not kept or not statistics.median(kept) > 0:
        raise BadInput(Fault(path, "lines with 'elapsed time per iteration (ms): 1234.5'", "none"))
    return statistics.median(kept)
