"""The tools that an agent calls: one function for each product, arguments as plain data, answers short and versioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from halley.answers.base import Answer
from halley.answers.load import as_answer
from halley.cost.figures import resource_name
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.kernel_fits import load_kernel_fits
from halley.io.chips.load import load_chip
from halley.ir.text import to_text
from halley.kernels.library.families import family
from halley.kernels.library.times import kernel_time
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.products.collective import collective
from halley.products.plan import plan
from halley.report.table import Table
from halley.workloads import build

SCHEMA = "halley.tools/1"
"""Name and version of every answer of a tool."""

ANSWERS_KEPT = 32
"""Answers that `explain` can look back at; older ones are forgotten."""

TIME_LIMIT = 20.0
"""Time limit of a search [s] unless the agent sets one: agents wait no longer for a tool."""

TABLE_ROWS = 12
"""Rows of a table in an answer."""

ToolAnswer = dict[str, Any]


class Tools:
    """The tools, with the answers that they gave, by their ``id``.

    >>> answer = Tools().collective("all-reduce", "64 MiB", "dgx-h100")
    >>> answer["schema"], answer["id"], answer["unit"]
    ('halley.tools/1', 'a1', 's')
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer[Any]] = {}
        self.count = 0

    def all(self) -> tuple[Callable[..., ToolAnswer], ...]:
        """The tools, in the order in which an agent sees them."""
        return self.optimise, self.plan, self.collective, self.time, self.explain

    def optimise(
        self,
        workload: str,
        sizes: dict[str, int],
        chip: str,
        objective: str = "time",
        gap: float = 0.01,
        time_limit: float = TIME_LIMIT,
    ) -> ToolAnswer:
        """Find the best mapping of a workload on one chip, with a proof.

        workload: gemm, gemm-softmax, attention, gated-mlp, conv, ... sizes: its parameters, such as {"m": 512, "n": 1024,
        "k": 64}. chip: a shipped name (edge, cloud, a100, h100, tpu-v5e, ...) or the path of a chip file. objective: time, energy
        or edp. gap: proven distance from the best at which the search may stop. time_limit: in seconds. Returns the value, its
        lower bound, what limits it, and the mapping as a tree; ask `explain` with the id for more.
        """
        asked = Problem(build(workload, sizes), load_chip(chip), objective, baselines=False, gap=gap, time_limit=time_limit)  # type: ignore[arg-type]
        result = optimise(asked)
        estimate = result.best.estimate
        busy = sorted(((float(time), resource_name(resource)) for resource, time in estimate.busy.items()), reverse=True)
        more = {
            "energy_J": _short(float(estimate.energy)),
            "busiest": {name: _short(time) for time, name in islice(busy, 3)},
            "mapping": to_text(result.best.plan),
        }
        return self._remembered(as_answer(result), more)

    def plan(
        self,
        model: str,
        system: str,
        batch: int,
        sequence: int | None = None,
        fix: str | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> ToolAnswer:
        """Find the fastest way to train a transformer on a system, with a proof: data, pipeline, tensor, sequence, context and
        expert parallelism, microbatches, recomputation, ZeRO, offload.

        model: a shipped name (llama3-70b, gpt3-175b, deepseek-v3, ...) or the path of a config.json. system: a shipped name or a
        short form such as "256 x h100, nvlink 8, ib". batch: sequences of an iteration; sequence: tokens of each. fix: decisions
        such as "tp=8,pp=4". Returns the time of an iteration, its lower bound, utilisation, and the decisions.
        """
        result = plan(model, system, batch, sequence, fix, time_limit=time_limit)
        chosen, cost = result.plan, result.cost
        more = {
            "decisions": {
                "data": chosen.data,
                "pipeline": chosen.pipeline.stages,
                "model": chosen.model,
                "microbatch": chosen.microbatch,
                "recompute": str(chosen.recompute),
                "zero": int(chosen.sharded),
            },
            "tokens_per_s": _short(cost.tokens_per_second),
            "model_flops_utilisation": _short(cost.utilisation),
        }
        return self._remembered(as_answer(result), more)

    def collective(self, kind: str, size: str, system: str) -> ToolAnswer:
        """The time of a collective of a communication library on a network, its lower bound, and the best algorithm.

        kind: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, ... size: such as "256 MiB". system: a shipped name
        (dgx-h100, dgx-a100, ...) or a short form such as "8 x h100, nvlink 8".
        """
        answer = as_answer(collective(kind, size, system))
        return self._remembered(answer, {"algorithm": answer.to_dict()["answer"]["chosen"]["algorithm"]})

    def time(self, kernel: str, sizes: dict[str, float], chip: str, dtype: str = "bf16") -> ToolAnswer:
        """The time of one kernel of a GPU library, with an interval that holds 80 % of measured times, and the roofline's bound.

        kernel: gemm, attention-prefill, attention-decode, ... sizes: such as {"m": 4096, "n": 12288, "k": 12288}. chip: one with
        a fit of measured kernels, or its kin: a100, h100, h200, b200, l40s, ...
        """
        known = family(kernel)
        faults = [
            Fault(f"kernel {kernel}, sizes", "its sizes", repr(name), did_you_mean(name, known.sizes))
            for name in sizes
            if name not in known.sizes
        ]
        faults += [
            Fault(f"kernel {kernel}, sizes", name, "nothing")
            for name in known.sizes
            if name not in sizes and name not in known.defaults
        ]
        if faults:
            raise BadInput(faults)
        found = kernel_time(load_kernel_fits(chip), kernel, sizes, dtype)
        figures = {f"{name}_s": _short(float(getattr(found, name))) for name in ("time", "low", "high", "bound")}
        return {"schema": SCHEMA, **figures, "source": found.source}

    def explain(self, id: str, part: str = "") -> ToolAnswer:
        """Where the time of an earlier answer goes and what limits it. id: of the answer, such as "a1". part: of a mapping a line
        number of its tree, of a plan a part of the model, of a collective an algorithm; empty for all of it."""
        if id not in self.answers:
            raise BadInput(Fault("id", f"one of: {', '.join(self.answers) or 'none yet'}", repr(id[:40])))
        tables = self.answers[id].explain(part)
        return {"schema": SCHEMA, "id": id, "tables": [_table(table) for table in tables]}

    def _remembered(self, answer: Answer[Any], more: Mapping[str, Any]) -> ToolAnswer:
        self.count += 1
        name = f"a{self.count}"
        self.answers[name] = answer
        while len(self.answers) > ANSWERS_KEPT:
            del self.answers[next(iter(self.answers))]
        record: ToolAnswer = {"schema": SCHEMA, "id": name}
        if certificate := answer.certificate:
            record |= {
                "value": _short(certificate.value),
                "unit": certificate.unit,
                "lower_bound": _short(certificate.bound),
                "proven_within": _short(certificate.gap),
                "status": certificate.status.name.lower(),
            }
        return record | dict(more)


def _table(table: Table) -> ToolAnswer:
    rows = [" | ".join(cell for cell in row if cell) for row in table.rows[:TABLE_ROWS]]
    left = len(table.rows) - len(rows)
    return {"title": table.title, "columns": " | ".join(table.head), "rows": rows} | ({"rows_left_out": left} if left else {})


def _short(value: float) -> float:
    """Four significant digits.

    >>> _short(0.000123456), _short(0.0)
    (0.0001235, 0.0)
    """
    return float(f"{value:.4g}")
