"""Measured iterations: the table of runs outside this repository, as settings that a plan can fix."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halley.errors import BadInput, Fault
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.workloads.transformer import Transformer

TABLE = Path("training") / "measured_iterations.json"
"""In the folder of data."""

ROW_LIMIT, BYTE_LIMIT = 100_000, 2**26
VTRAIN, FOUNDRY = "vtrain", "llm-foundry"
"""The sources that are read."""

MPT: Mapping[str, tuple[int, int, int]] = {
    "125m": (768, 12, 12),
    "350m": (1024, 24, 16),
    "760m": (1536, 24, 12),
    "1b": (2048, 24, 16),
    "3b": (2560, 32, 20),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 48, 56),
    "70b": (8192, 80, 64),
}
"""Width, layers and heads of the MPT models (mosaicml/llm-foundry@8c8dd48f7, scripts/train/yamls)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured iteration. ``tensor``, ``stages``, ``data``: degrees; ``microbatch``, ``batch`` [sequences]; ``fused``:
    attention is one kernel. ``seconds`` of an iteration. ``index``: its place among the rows of its source."""

    source: str
    index: int
    shape: Transformer
    data: int
    stages: int
    tensor: int
    microbatch: int
    batch: int
    recompute: Recompute
    sharded: Sharded
    fused: bool
    seconds: float

    @property
    def fitted(self) -> bool:
        """Whether a fit may see it: every second row, the first one too."""
        return self.index % 2 == 0

    @property
    def chips(self) -> int:
        """All chips."""
        return self.data * self.stages * self.tensor

    @property
    def name(self) -> str:
        """For a table."""
        shape, degrees = self.shape, f"{self.data} x {self.stages} x {self.tensor}"
        return f"{shape.name}, {shape.sequence} tokens, {degrees}, batch {self.batch}, microbatch {self.microbatch}"


def runs(folder: Path, source: str) -> tuple[Run, ...]:
    """The runs of a source. Raises BadInput: the table cannot be read, or a row of the source is not understood."""
    path, reader = folder / TABLE, {VTRAIN: _vtrain, FOUNDRY: _foundry}[source]
    found = list[Run]()
    for row in _rows(path):
        try:
            if (run := reader(row, len(found))) is not None:
                found.append(run)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise BadInput(Fault(f"{path}, a row of {source}", "a setting that is understood", repr(error))) from error
    return tuple(found)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.stat().st_size > BYTE_LIMIT:
            raise BadInput(Fault(str(path), f"at most {BYTE_LIMIT} B", "more"))
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(Fault(str(path), "measured iterations in JSON", type(error).__name__)) from error
    if not isinstance(rows, list) or len(rows) > ROW_LIMIT or not all(isinstance(row, dict) for row in rows):
        raise BadInput(Fault(str(path), f"a list of at most {ROW_LIMIT} rows", "something else"))
    yield from rows


def _words(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _gpt(name: str, width: int, layers: int, heads: int, sequence: int, vocabulary: int, dropout: float) -> Transformer:
    kinds = {"gated": False, "rms": False, "positions": True, "tied": True, "dropout": dropout}
    return Transformer(name, layers, width, heads, heads, width // heads, 4 * width, vocabulary, sequence, **kinds)  # type: ignore[arg-type]


def _vtrain(row: Mapping[str, Any], index: int) -> Run | None:
    """Megatron-DeepSpeed in one node. All layers are recomputed: ``use_checkpoint`` of vTrain's own files of these runs
    (config/validation/single) is true. Its vocabulary is 50257, padded by Megatron to a multiple of 128 per rank."""
    if "vTrain" not in row["source"]:
        return None
    work, ranks = _words(row["workload"]), _words(row["parallelism"])
    width, layers, heads, sequence = (int(work[key]) for key in ("hidden", "layers", "heads", "seq"))
    tensor = int(ranks["TP"])
    vocabulary = 128 * tensor * math.ceil(50257 / (128 * tensor))
    return Run(
        VTRAIN,
        index,
        _gpt(f"gpt-{width}-{layers}", width, layers, heads, sequence, vocabulary, 0.1),
        int(ranks["DP"]),
        int(ranks["PP"]),
        tensor,
        int(work["micro_batch"]),
        int(work["global_batch"]),
        Recompute.FULL,
        Sharded.NOTHING,
        False,
        float(row["value"]),
    )


def _foundry(row: Mapping[str, Any], index: int) -> Run | None:
    """FSDP in one node of eight: parameters are sharded (ZeRO 3); attention is the Triton kernel."""
    if "llm-foundry" not in row["source"] or row["hardware"] != "8x a100_80gb":
        return None
    work = _words(row["workload"])
    size = row["workload"].split()[0].removeprefix("MPT-")
    width, layers, heads = MPT[size]
    sequence, batch = int(work["seq"]), int(work["global_batch"])
    return Run(
        FOUNDRY,
        index,
        _gpt(f"mpt-{size}", width, layers, heads, sequence, 50368, 0.0),
        8,
        1,
        1,
        int(work["microbatch"]),
        batch,
        Recompute.FULL if work["act_ckpt"] == "True" else Recompute.NONE,
        Sharded.PARAMETERS,
        True,
        batch * sequence / 8 / float(row["value"]),
    )
