"""Megatron-LM's tensor parallelism: heads, hidden dim and vocabulary are split over the ranks; between them tokens or nothing."""

from __future__ import annotations

from halley.ir.workload import OpKind
from halley.rewrite.recompute import Recompute
from halley.training.part_costs import training_graphs
from halley.workloads.transformer import Transformer

LOSS = ("log", "total", "loss", "loss_d_picked", "log_d_z")
"""Ops of the loss that go over all tokens on every rank, whatever lies between the weights."""

WEIGHTS = {"queries": "h", "output": "h", "gate": "f", "up": "f", "down": "f", "logits": "v", "look_up": "v"}
"""By op with a weight, the dim that the ranks split."""


def tensor_parallel(shape: Transformer, sequence: int, scattered: bool) -> dict[str, str]:
    """By op, the dim that the ranks split; "" for none; ops that are left out are the search's. ``scattered``: between split
    weights each rank has its share of the tokens (sequence parallelism), else all of them.

    >>> from halley.io.transformers import load_model
    >>> found = tensor_parallel(load_model("megatron-22b"), 2048, True)
    >>> found["up"], found["normalise1"]
    ('f', 'm')

    Source: Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198.
    """
    between: list[str] = []
    known: set[str] = set()
    for graph in training_graphs(shape, 1, sequence, Recompute.FULL, False):
        known |= {op.name for op in graph.workload.ops}
        ops = [
            op
            for op in graph.workload.ops
            if op.kind in (OpKind.MAP, OpKind.REDUCE) and {"b", "m"} <= {*op.dims} <= {"b", "m", "k"}
        ]
        # sums of what the ranks have yet to sum are left to the search
        between += [op.name for op in ops if op.name not in LOSS and not graph.contributions[op.name].part]
    weights = {op: dim for op, dim in WEIGHTS.items() if op in known}
    return dict.fromkeys(between, "m" if scattered else "") | weights
