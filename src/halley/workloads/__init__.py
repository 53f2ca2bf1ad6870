"""Functions that build workloads, by call or by name."""

from halley.workloads.attention import attention
from halley.workloads.blocks import embedding, gated_scan, merge_heads, power_spectrum, scatter_add
from halley.workloads.gemm import gemm, gemm_layernorm, gemm_rmsnorm, gemm_softmax
from halley.workloads.mlp import gated_mlp
from halley.workloads.models import MODELS, ModelShape, shapes
from halley.workloads.parameters import Parameter, ParameterType, WorkloadKind
from halley.workloads.registry import WORKLOADS, build, variants

__all__ = [
    "MODELS",
    "WORKLOADS",
    "ModelShape",
    "Parameter",
    "ParameterType",
    "WorkloadKind",
    "attention",
    "build",
    "embedding",
    "gated_mlp",
    "gated_scan",
    "gemm",
    "gemm_layernorm",
    "gemm_rmsnorm",
    "gemm_softmax",
    "merge_heads",
    "power_spectrum",
    "scatter_add",
    "shapes",
    "variants",
]
