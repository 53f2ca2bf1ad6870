"""Training on Frontier: parameters sharded over all dies by ZeRO 3, or plans whose partitions follow its levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from halley.importers.training import training_problem
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.system import System
from halley.sharding.axes import assignment_text
from halley.training.search.search import best_training_plan
from halley.workloads.transformer import Transformer

SYSTEM = Path(__file__).with_name("chips") / "frontier.yaml"
LAYERS, VOCABULARY, SEQUENCES = 44, 50432, 384
"""Of GPT-NeoX-20B; one sequence of 2,048 tokens for each die."""
SHARES = (1.0, 0.5, 0.25)
"""Parts of the line rate that collectives between nodes achieve."""
FLAT, LEVELS, ANY = "ZeRO 3 over all dies", "no pipeline", "any plan"
KINDS = {FLAT: "dp=384,zero=3", LEVELS: "pp=1", ANY: None}
"""What is fixed, by kind of plan."""

Rows: TypeAlias = list[dict[str, Any]]


def model() -> Transformer:
    """20 billion parameters, as in the layers of `megatron-22b`."""
    return replace(load_model("megatron-22b"), name="gpt-neox-20b", layers=LAYERS, vocabulary=VOCABULARY)


def frontier(share: float) -> System:
    """48 nodes, between which a collective achieves this share of the line rate."""
    system = load_system(SYSTEM)
    outer, *inner = system.axes
    return replace(system, axes=(replace(outer, link=replace(outer.link, bandwidth=outer.link.bandwidth * share)), *inner))


def partition(share: float, kind: str) -> Rows:
    """The best plan of a kind."""
    problem = training_problem(model(), frontier(share), SEQUENCES, fix=KINDS[kind])
    result = best_training_plan(problem, others=0)
    return [
        {
            "share": share,
            "kind": kind,
            "time": result.cost.time,
            "bound": result.certificate.bound,
            "utilisation": result.cost.utilisation,
            "plan": assignment_text(result.plan.assignment),
            "zero": int(result.plan.sharded),
        }
    ]
