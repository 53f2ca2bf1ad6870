"""``python -m validation.training.bridge FOLDER``: Megatron-Bridge on B200 against plans of the same degrees. No number was
fitted to it: efficiencies of the A100, the B200's data sheet, NCCL on B200, no host. FP8 in products of layers.

The shardings of ops are those of the search over the chips that share a stage's ops: tensor, context and expert parallelism
together. What a container recomputes is not published; nothing is assumed to be. Rows that differ only in the container are all
listed. Hybrid models (Nemotron) and expert parallelism over several nodes are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from validation.table import markdown, told
from validation.training.runs import TABLE

from halley.errors import HalleyError
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.networks.fits import load_libraries
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import machine
from halley.kernels.sustained import under_load
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.search import best_training_plan
from halley.workloads.transformer import Experts, Transformer

NODE = 8
LIMIT = 60.0
"""Of a search [s]."""


@cache
def models() -> Mapping[str, Transformer]:
    """By the words of the table. What Halley does not ship is by the models' own configurations; norms of queries and keys,
    windows and biases are left out."""
    return {
        "LLAMA3_8B": load_model("llama3-8b"),
        "LLAMA3.1_405B": load_model("llama3-405b"),
        "DeepSeekV3": load_model("deepseek-v3"),
        "GPT OSS 120B": Transformer("gpt-oss-120b", 36, 2880, 64, 8, 64, 2880, 201088, 4096, experts=Experts(128, 4, 2880)),
        "Qwen3_30B_a3B": Transformer("qwen3-30b", 48, 2048, 32, 4, 128, 6144, 151936, 4096, experts=Experts(128, 8, 768)),
        "Qwen3_235B_a22B": Transformer("qwen3-235b", 94, 4096, 64, 4, 128, 12288, 151936, 4096, experts=Experts(128, 8, 1536)),
    }


@dataclass(frozen=True, slots=True)
class Row:
    """A measured run. ``model``: chips that share the ops of a stage; ``microbatch``: their sequences together."""

    name: str
    container: str
    shape: Transformer
    chips: int
    stages: int
    chunks: int
    model: int
    microbatch: int
    batch: int
    seconds: float


def rows(folder: Path) -> Iterator[Row]:
    """The runs on B200 that are understood."""
    for row in json.loads((folder / TABLE).read_text(encoding="utf-8")):
        name = next((known for known in models() if row["workload"].startswith(known)), "")
        if "Megatron-Bridge" not in row["source"] or row["metric"] != "tokens_per_s_per_gpu" or not name:
            continue
        text = f"{row['workload']} {row['parallelism']}"
        given = dict(word.split("=", 1) for word in text.split() if "=" in word)
        chips, sequence, batch = int(row["hardware"].split("x")[0]), int(given["seq"]), int(given["GBS"])
        dense, experts = int(given["TP"]) * int(given["CP"]), int(given["EP"])
        model = max(dense, experts)
        if model > NODE:
            continue
        fp8 = "FP8" in text or "precision per note" in text
        shape = models()[name]
        shape = replace(shape, sequence=max(sequence, shape.sequence), products="fp8" if fp8 else "")
        chunks = 1 if given["VP"] == "n/a" else int(given["VP"])
        words = f"{name}, {chips} chips, {given['TP']} x {given['PP']} x {given['EP']}, microbatch {given['MBS']}, batch {batch}"
        yield Row(
            words,
            row["notes"].split(" NeMo")[0],
            shape,
            chips,
            int(given["PP"]),
            min(chunks, shape.layers // int(given["PP"])),
            model,
            int(given["MBS"]) * max(1, experts // dense),
            batch,
            batch * sequence / chips / float(row["value"]),
        )


@cache
def iteration(row: Row) -> float:
    """Time of an iteration [s]. Raises BadInput, Infeasible, SearchStopped as `best_training_plan`."""
    system = load_system(f"{row.chips} x b200, nvlink {NODE}, ib" if row.chips > NODE else f"{row.chips} x b200, nvlink {NODE}")
    data = row.chips // row.stages // row.model
    fixed = Fixed(
        data=data,
        stages=row.stages,
        model=row.model,
        microbatch=row.microbatch,
        chunks=row.chunks,
        recompute=Recompute.NONE,
        sharded=Sharded.OPTIMIZER if data > 1 else Sharded.NOTHING,
        offload=False,
        fused=True,
    )
    fit = load_chip_fit("a100")
    efficiency = under_load(fit, machine(load_chip(fit.chip)))
    given = (row.shape, system, row.batch, row.shape.sequence, efficiency, load_libraries(system))
    # that it ran says that it fitted, with what its software recomputes
    return best_training_plan(TrainingProblem(*given, fixed=fixed, usable=1e13), others=0, limit=LIMIT).cost.time


def table(folder: Path) -> str:
    """Measured and predicted, and the mean error."""
    lines, errors = [], []
    for row in rows(folder):
        try:
            found = iteration(replace(row, container=""))
        except HalleyError as error:
            lines.append((row.name, row.container, f"{row.seconds:.2f} s", str(error), ""))
            continue
        errors.append(found / row.seconds - 1)
        lines.append((row.name, row.container, f"{row.seconds:.2f} s", f"{found:.2f} s", f"{100 * errors[-1]:+.0f} %"))
    mean = 100 * sum(map(abs, errors)) / len(errors)
    return f"{markdown(('run', 'container', 'measured', 'Halley', 'error'), lines)}\n\nmean error {mean:.0f} %"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m validation.training.bridge FOLDER", file=sys.stderr)
        return 1
    return told(lambda: table(Path(arguments[0])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
