"""Functions that build workloads, by call or by name."""

from halley.workloads.attention import attention
from halley.workloads.blocks import embedding, gated_scan, merge_heads, power_spectrum, scatter_add
from halley.workloads.construction.parameters import Parameter, ParameterType, WorkloadKind
from halley.workloads.convolution import conv, conv_chain
from halley.workloads.dlrm import dlrm
from halley.workloads.einsum import attention_einsum, gpt_layer
from halley.workloads.fft import fft
from halley.workloads.gemm import gemm, gemm_layernorm, gemm_rmsnorm, gemm_softmax
from halley.workloads.hpl import hpl, hpl_orders
from halley.workloads.hyena import hyena
from halley.workloads.layer import transformer_layer
from halley.workloads.mamba import mamba, mamba_2
from halley.workloads.mla import mla
from halley.workloads.mlp import gated_mlp, gemm_gelu_gemm
from halley.workloads.models import MODELS, ModelShape, shapes
from halley.workloads.moe import moe
from halley.workloads.registry import WORKLOADS, build, variants
from halley.workloads.user import graph

__all__ = [
    "MODELS",
    "WORKLOADS",
    "ModelShape",
    "Parameter",
    "ParameterType",
    "WorkloadKind",
    "attention",
    "attention_einsum",
    "build",
    "conv",
    "conv_chain",
    "dlrm",
    "embedding",
    "fft",
    "gated_mlp",
    "gated_scan",
    "gemm",
    "gemm_gelu_gemm",
    "gemm_layernorm",
    "gemm_rmsnorm",
    "gemm_softmax",
    "gpt_layer",
    "graph",
    "hpl",
    "hpl_orders",
    "hyena",
    "mamba",
    "mamba_2",
    "merge_heads",
    "mla",
    "moe",
    "power_spectrum",
    "scatter_add",
    "shapes",
    "transformer_layer",
    "variants",
]
