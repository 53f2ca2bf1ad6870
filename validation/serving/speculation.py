"""Measured speculation: curves of acceptance with two numbers, and whether a draft model pays. ``python -m
validation.serving.speculation FOLDER`` prints the curves of ``halley/library/acceptance.yaml``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from validation.outcome import Case, read_figures
from validation.serving.predict import efficiency
from validation.serving.rows import libraries_of, system_of

from halley.io.software import load_software
from halley.io.transformers import load_model
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.speculation import Acceptance, Round, sequence_tokens, speculation_round

TABLE = "serving/speculation.csv"
LONG_CURVE = 3
"""Windows that a curve needs, so that two numbers do not fit it in any case."""
DRAFT_ACCEPTANCE = Acceptance(0.5)
"""Assumed of the 68M draft: the rows do not state it. From 0.4 to 0.6 no sign of the table changes."""
DRAFTS = {"meta-llama/Llama-2-7b-hf": ("llama2-7b", 1), "mistralai/Mixtral-8x7B-v0.1": ("mixtral-8x7b", 4)}
"""Targets of the sign test, and the A100 that hold them."""

Curve = list[tuple[int, float]]


DRAFTS_BY_WORD = {"specforge": "eagle3-specforge", "gqa": "eagle3-gqa", "eagle3": "eagle3", "dspark": "dspark", "mtp": "mtp"}
"""Names of drafts by a word of the method, the first that it has."""


def curve_name(row: Mapping[str, str]) -> str:
    """Model, draft and task of a row, as the shipped table names them."""
    model = row["model"].rsplit("/", 1)[-1].lower().removesuffix("-fp8").removesuffix("-instruct")
    draft = next(name for word, name in DRAFTS_BY_WORD.items() if word in row["method"].lower().replace(" ", ""))
    thinking = "-" + row["notes"].replace("_", "-") if row["notes"].startswith("thinking") else ""
    return f"{model}/{draft}/{row['dataset'].lower().removeprefix('speed-bench ')}{thinking}"


def curves(folder: Path) -> dict[str, Curve]:
    """By name, (window, tokens of a round) of sequences at several windows."""
    found: dict[str, Curve] = {}
    for row in read_figures(folder / TABLE, ("source", "model", "method")):
        if row["topk"] != "1" or not row["acceptance_length"] or row["method"].startswith("Without"):
            continue
        found.setdefault(curve_name(row), []).append((int(row["steps"]), float(row["acceptance_length"])))
    return {name: sorted(set(curve)) for name, curve in found.items() if len({w for w, _ in curve}) >= LONG_CURVE}


def fitted(curve: Sequence[tuple[int, float]]) -> Acceptance:
    """The two numbers that fit a curve best."""

    def errors(values: np.ndarray) -> list[float]:
        made = Acceptance(float(values[0]), float(values[1]))
        return [sequence_tokens(made, window) / tokens - 1 for window, tokens in curve]

    found = least_squares(errors, [0.7, 0.95], bounds=([0.01, 0.1], [1.0, 1.0]))
    return Acceptance(float(found.x[0]), float(found.x[1]))


def curve_cases(folder: Path) -> Iterator[Case]:
    """Tokens of a round by the two numbers of each curve."""
    for name, curve in curves(folder).items():
        made = fitted(curve)
        for window, tokens in curve:
            yield Case(f"{name}, {window}", sequence_tokens(made, window), tokens)


def rounds(folder: Path) -> Iterator[tuple[str, Round, float]]:
    """Name, predicted round, measured speed-up of the rows with a draft model on A100."""
    software = load_software("vllm-2024")
    for row in read_figures(folder / TABLE, ("source", "model", "method")):
        if row["model"] not in DRAFTS or not row["speedup"]:
            continue
        name, gpus = DRAFTS[row["model"]]
        system, libraries = system_of("A100", gpus, row["source"]), libraries_of("A100", gpus, row["source"])

        def made(model: str, tp: int, parts: tuple[object, ...] = (system, libraries)) -> Deployment:
            return Deployment(ServedModel(load_model(model)), parts[0], ReplicaLayout(tp), software, efficiency(), parts[1])  # type: ignore[arg-type]

        length = int(row["dataset"].rsplit("=", 1)[-1])
        target, draft = made(name, gpus), made("llama-68m", 1)
        users, window = float(row["batch"]), int(row["steps"])
        found = speculation_round(target.step, draft.step, DRAFT_ACCEPTANCE, window, users, 1.5 * length)
        yield f"{row['model']}, batch {row['batch']}, {row['dataset']}", found, float(row["speedup"])


def main(folder: Path) -> None:
    """Prints the two numbers of each curve."""
    for name, curve in sorted(curves(folder).items()):
        made = fitted(curve)
        print(f"  {name}: {{first: {made.first:.3f}, decay: {made.decay:.3f}}}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
