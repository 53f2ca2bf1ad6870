"""Rows of measured serving as deployments and loads of Halley."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from validation.outcome import positive, read_figures

from halley.io.chips.load import load_chip
from halley.io.networks.fits import load_libraries
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.system import System, with_memory
from halley.network.fit.overlay import Overlay
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.steady import Lengths

HERE = Path(__file__).parent
END_TO_END = "serving/end_to_end.csv"
COLUMNS = ("source", "model", "gpu", "framework", "mode")

MODELS = {
    "Meta-Llama-3-8B": "llama3-8b",
    "Llama-3.1-8B": "llama3-8b",
    "Llama-3.1-8B-Instruct": "llama3-8b",
    "Meta-Llama-3-70B": "llama3-70b",
    "Meta-Llama-3.1-70B": "llama3-70b",
    "Llama-3.1-70B": "llama3-70b",
    "Llama-2-70b-hf": "llama2-70b",
    "Llama-2-7b-hf": "llama2-7b",
    "llama-7b": "llama2-7b",
    "Mistral-7B-v0.1": "mistral-7b",
    "Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "Qwen2-72B": HERE / "models" / "qwen2-72b.yaml",
    "DeciLM-7B": HERE / "models" / "decilm-7b.yaml",
    "Qwen3-235B-A22B-FP8": HERE / "models" / "qwen3-235b-a22b.yaml",
    "MiniMax-M2.5": HERE / "models" / "minimax-m2.yaml",
    "DeepSeek-R1": "deepseek-v3",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "DeepSeek-R1-NVFP4": "deepseek-v3",
}
"""By the last part of a name in the table. Left out: models with linear attention, and four with one row each."""

CHIPS = {"A100": ("a100", "nvlink"), "H100": ("h100", "nvlink"), "B200": ("b200", "nvlink"), "GB200": ("b200", "nvlink")}
"""Chips of the table that Halley describes, and the port that joins them in a node."""
SMALL_A100 = (40e9, 1.555e12)
"""The A100 of LLM-Inference-Bench has 40 GB (its table of machines), at 1,555 GB/s (NVIDIA's data sheet)."""

WEIGHTS = {"fp16/bf16": "bf16", "fp16": "bf16", "float16": "bf16", "bf16": "bf16", "": "bf16", "fp8": "fp8", "fp8_block": "fp8"}
WEIGHTS |= {"nvfp4": "nvfp4", "int8": "int8"}
FRAMEWORKS = {"vLLM": "vllm", "vllm": "vllm", "TensorRT-LLM": "trtllm", "trtllm": "trtllm", "sglang": "sglang"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A row: the machine, the layout, the load, and what was measured; times [s], None where the row lacks them."""

    gpu: str
    name: str
    model: ServedModel
    system: System
    layout: ReplicaLayout
    framework: str
    mode: str
    lengths: Lengths
    batch: int
    latency: float | None
    ttft: float | None
    tpot: float | None
    experts: bool
    where: str
    origin: str
    version: str

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model."""
        return self.gpu, self.name


@lru_cache(maxsize=64)
def system_of(gpu: str, gpus: int, source: str) -> System:
    """The machine of a row."""
    chip, port = CHIPS[gpu]
    text = f"{gpus} x {chip}" + (f", {port} {gpus}" if gpus > 1 else "")
    found = load_system(text)
    if gpu == "A100" and source == "llm-inference-bench":
        energy = load_chip(chip).memories[0].read_energy
        found = replace(found, chip=with_memory(found.chip, *SMALL_A100, energy))
    return found


@lru_cache(maxsize=64)
def libraries_of(gpu: str, gpus: int, source: str) -> dict[str, Overlay]:
    return load_libraries(system_of(gpu, gpus, source))


def _number(text: str, default: int) -> int:
    return int(text) if text.isdigit() else default


def measured(folder: Path, modes: Sequence[str], sources: Sequence[str] = ()) -> Iterator[Measured]:
    """Rows of these modes that Halley can describe. Raises BadInput: a table that cannot be read."""
    path = folder / END_TO_END
    for number, row in enumerate(read_figures(path, COLUMNS), start=1):
        name = row["model"].rsplit("/", 1)[-1]
        known = name in MODELS and row["gpu"] in CHIPS and row["framework"] in FRAMEWORKS and row["weights"] in WEIGHTS
        if row["mode"] not in modes or not known or (sources and row["source"] not in sources):
            continue
        if "AMBIGUOUS" in row["notes"] or row["notes"].startswith("ttft = latency at output length"):
            continue
        gpus = _number(row["gpus"], _number(row["tp"], 1) * _number(row["pp"], 1))
        tp, pp, dp = _number(row["tp"], gpus), _number(row["pp"], 1), _number(row["dp"], 1)
        ep = _number(row["ep"], 1)
        if "Parallelism" in row["notes"] or row["notes"].startswith("parallelism: "):
            tp, pp, ep = _noted(row["notes"], gpus, tp, pp, ep)
        if tp * pp * dp != gpus or "likely the total" in row["notes"]:
            continue
        where = f"{path}, row {number}"
        shape = load_model(MODELS[name])
        weights = WEIGHTS[row["weights"]]
        if row["model"].endswith("Llama-3.1-8B-Instruct"):
            weights = "bf16"
        cache = "fp8" if row["kv_dtype"] == "fp8" else "int8" if row["kv_dtype"] == "int8" else "bf16"
        quantised = weights == "nvfp4" or (weights == "fp8" and row["framework"] == "trtllm")
        if not row["kv_dtype"] and row["mode"] == "agg" and quantised:
            cache = "fp8"  # as nvfp4 checkpoints state, and TensorRT-LLM's recipes of quantised models
        matrix = system_of(row["gpu"], gpus, row["source"]).chip.matrix
        if matrix is None or (cache == "fp8" and "fp8" not in matrix.rate):
            continue  # a dtype that the chip does not have is converted in software
        if shape.experts is None and (ep > 1 or dp > 1):
            continue
        yield Measured(
            row["gpu"],
            name,
            ServedModel(shape, weights, cache),
            system_of(row["gpu"], gpus, row["source"]),
            ReplicaLayout(tp, pp, ep, dp),
            FRAMEWORKS[row["framework"]],
            row["mode"],
            Lengths(positive(row, "isl", where), positive(row, "osl", where)),
            _number(row["batch"] or row["concurrency"], 1),
            positive(row, "latency_s", where) if row["latency_s"] else None,
            positive(row, "ttft_ms", where) / 1e3 if row["ttft_ms"] else None,
            positive(row, "tpot_ms", where) / 1e3 if row["tpot_ms"] else None,
            shape.experts is not None,
            f"row {number}: {name} on {gpus} {row['gpu']}, {row['framework']}, {row['isl']}/{row['osl']}, {row['batch']}",
            row["origin"],
            row["version"],
        )


def _noted(notes: str, gpus: int, tp: int, pp: int, ep: int) -> tuple[int, int, int]:
    """The layout that the notes of LLM-Inference-Bench's figure 5b name."""
    words = notes.removeprefix("parallelism: ").replace("Tensor Parallelism", "TP").replace("Pipeline Parallelism", "PP")
    known = {"TP": (gpus, 1, 1), "PP": (1, gpus, 1), "EP": (gpus, 1, gpus)}
    known |= {"Hybrid TP = 2 and EP = 2": (gpus, 1, 2), "Hybrid TP = 2 and PP = 2": (2, 2, 1)}
    return known.get(words, (tp, pp, ep))


def halves(rows: Iterable[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Rows that software is fitted to, and rows that judge it: the (GPU, model) pairs in order of their names alternate."""
    kept = list(rows)
    pairs = sorted({row.pair for row in kept})
    fitted = set(pairs[::2])
    return [row for row in kept if row.pair in fitted], [row for row in kept if row.pair not in fitted]
