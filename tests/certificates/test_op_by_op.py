"""The best plan of every kind of workload is no worse than its ops one by one, each mapped best."""

from __future__ import annotations

from random import Random

import pytest
from tests.reference.problems import SIZES
from tests.reference.sequences import LONG

from halley.errors import Infeasible
from halley.io.chips.load import load_chip
from halley.ir.workload import Op, OpKind, Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.workloads import build, variants

LARGE = (*LONG, "attention", "conv-chain", "transformer-layer", "mla", "moe", "gpt-layer")
"""Kinds of many ops or variants, whose proofs take long even where they are small."""


def alone(workload: Workload, op: Op) -> Workload:
    """The workload of one op: what others make for it is an input."""
    names = dict.fromkeys((*op.inputs, *op.outputs))
    return Workload(op.name, workload.dims, {name: workload.tensors[name] for name in names}, (op,), op.outputs)


def op_by_op(workload: Workload, chip: str) -> float:
    """Sum of the shortest times of the ops [s]; infinite where one has no mapping of its own, such as a running maximum."""
    total = 0.0
    for op in workload.ops:
        try:
            problem = Problem(alone(workload, op), load_chip(chip), baselines=False, fixed_variant=True)
            total += optimise(problem).best.certificate.value
        except Infeasible:
            return float("inf")
    return total


def compare(kind: str, seed: int, chip: str) -> None:
    workload = build(kind, SIZES[kind](Random(seed)))
    singly = min(op_by_op(variant, chip) for variant in variants(workload))
    best = optimise(Problem(workload, load_chip(chip), baselines=False)).best.certificate.value
    assert best <= singly * (1 + 1e-9)


@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind not in LARGE])
def test_the_best_is_no_worse_than_op_by_op(kind: str) -> None:
    compare(kind, 0, "edge")


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("mamba", {"length": 512, "model": 768}),
        ("mamba-2", {"chunks": 8, "chunk": 64, "model": 768, "heads": 24, "head_dim": 64}),
        ("mamba-2", {"chunks": 8, "chunk": 64, "model": 768, "heads": 24, "head_dim": 64, "variant": "chunked"}),
        ("hyena", {"length": 512, "model": 768}),
        ("hyena", {"length": 2048, "model": 768}),
    ],
)
def test_blocks_of_published_sizes_fit_an_edge_chip(kind: str, sizes: dict[str, object]) -> None:
    """Each of their scans, transforms and other vector operations has a mapping there, and so have the blocks."""
    workload = build(kind, sizes)
    for op in workload.ops:
        if op.kind is not OpKind.CONTRACT:
            optimise(Problem(alone(workload, op), load_chip("edge"), baselines=False, fixed_variant=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("chip", ["edge", "cloud"])
def test_the_best_is_no_worse_than_op_by_op_on_many(kind: str, chip: str) -> None:
    for seed in range(1, 4):
        compare(kind, seed, chip)
