"""Workloads by name, as files and the command line use them."""

from __future__ import annotations

from collections.abc import Mapping

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.mapping import Compute, Hold, Node, walk
from halley.ir.workload import Workload
from halley.workloads.attention import ATTENTION
from halley.workloads.blocks import EMBEDDING, GATED_SCAN, MERGE_HEADS, POWER_SPECTRUM, SCATTER_ADD
from halley.workloads.construction.parameters import WorkloadKind, check, completed, faults
from halley.workloads.convolution import CONV, CONV_CHAIN
from halley.workloads.dlrm import DLRM
from halley.workloads.einsum import ATTENTION_EINSUM, GPT_LAYER
from halley.workloads.fft import FFT
from halley.workloads.gemm import GEMM, GEMM_LAYERNORM, GEMM_RMSNORM, GEMM_SOFTMAX
from halley.workloads.hpl import HPL
from halley.workloads.hyena import HYENA
from halley.workloads.layer import TRANSFORMER_LAYER
from halley.workloads.mamba import MAMBA, MAMBA_2
from halley.workloads.mla import MLA
from halley.workloads.mlp import GATED_MLP, GEMM_GELU_GEMM
from halley.workloads.moe import MOE
from halley.workloads.user import GRAPH

WORKLOADS: dict[str, WorkloadKind] = {
    "gemm": GEMM,
    "gemm-softmax": GEMM_SOFTMAX,
    "gemm-layernorm": GEMM_LAYERNORM,
    "gemm-rmsnorm": GEMM_RMSNORM,
    "attention": ATTENTION,
    "mla": MLA,
    "gated-mlp": GATED_MLP,
    "gemm-gelu-gemm": GEMM_GELU_GEMM,
    "moe": MOE,
    "transformer-layer": TRANSFORMER_LAYER,
    "attention-einsum": ATTENTION_EINSUM,
    "gpt-layer": GPT_LAYER,
    "mamba": MAMBA,
    "mamba-2": MAMBA_2,
    "hyena": HYENA,
    "conv": CONV,
    "conv-chain": CONV_CHAIN,
    "dlrm": DLRM,
    "hpl": HPL,
    "fft": FFT,
    "gated-scan": GATED_SCAN,
    "power-spectrum": POWER_SPECTRUM,
    "embedding": EMBEDDING,
    "scatter-add": SCATTER_ADD,
    "merge-heads": MERGE_HEADS,
    "graph": GRAPH,
}
"""Every kind of workload by the name that files and the command line use."""


def build(kind: str, parameters: Mapping[str, object]) -> Workload:
    """The workload of that kind.

    >>> build("gemm", {"m": 4, "n": 5, "k": 6}).macs()
    120

    Raises BadInput: an unknown kind, or every unknown, missing, mistyped, out-of-range and contradictory parameter at once.
    """
    if kind not in WORKLOADS:
        raise BadInput(Fault("workload", "a known kind", repr(kind), did_you_mean(str(kind), WORKLOADS)))
    if not isinstance(parameters, Mapping):
        raise BadInput(Fault(f"workload {kind}", "a map of parameters", repr(parameters)[:60]))
    check(WORKLOADS[kind], parameters)
    return WORKLOADS[kind].builder(**completed(WORKLOADS[kind], parameters))


def variants(workload: Workload) -> tuple[Workload, ...]:
    """All algorithmic variants of the same compound op, including the workload itself.

    A workload that differs from what its builder returns for its parameters (hand-written, or rewritten) is its only variant.

    >>> [work.variant for work in variants(build("gemm-softmax", {"m": 4, "n": 5, "k": 6}))]
    ['plain', 'online']
    """
    kind = WORKLOADS.get(workload.name)
    if kind is None or not kind.variants or faults(kind, workload.parameters):
        return (workload,)
    family = tuple(build(kind.name, {**workload.parameters, "variant": variant}) for variant in kind.variants)
    return family if workload in family else (workload,)


def mapped_variant(workload: Workload, tree: Node) -> Workload:
    """The variant that a mapping computes: that with its ops, and with the tensors that it holds; the workload itself if there is
    none."""
    nodes = [node for _, node in walk(tree)]
    ops = {node.op for node in nodes if isinstance(node, Compute)}
    held = {name for node in nodes if isinstance(node, Hold) for name in node.names}
    fitting = (work for work in variants(workload) if {op.name for op in work.ops} == ops and held <= work.tensors.keys())
    return next(fitting, workload)
