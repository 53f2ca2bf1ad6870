"""Operators of ONNX in Halley's notation: by operator, the function that gives its graph."""

from __future__ import annotations

from collections.abc import Callable

from halley.importers.lowering.elementwise import (
    absolute,
    clip,
    folded,
    function,
    gelu,
    hard,
    leaky_relu,
    look_up,
    power,
    scaled,
    softplus,
    swish,
)
from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered
from halley.importers.lowering.products import attention, einsum, gemm, matmul
from halley.importers.lowering.rows import (
    batchnorm,
    global_reduction,
    groupnorm,
    instancenorm,
    layernorm,
    local_response,
    log_softmax,
    reduction,
    softmax,
)
from halley.importers.lowering.windows import conv, conv_transpose, pool


def lower(node: NodeView) -> LoweredNode:
    """The node as a graph. Raises NotLowered: there is none."""
    if node.operator not in LOWERINGS:
        raise NotLowered("an operator without a lowering")
    return LOWERINGS[node.operator](node)


LOWERINGS: dict[str, Callable[[NodeView], LoweredNode]] = {
    "Abs": absolute,
    "Add": function("add"),
    "Attention": attention,
    "AveragePool": pool,
    "BatchNormalization": batchnorm,
    "Clip": clip,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Div": scaled("divide"),
    "Einsum": einsum,
    "Exp": function("exp"),
    "Gather": look_up,
    "Gelu": gelu,
    "Gemm": gemm,
    "GlobalAveragePool": global_reduction("mean"),
    "GlobalMaxPool": global_reduction("max"),
    "GroupNormalization": groupnorm,
    "HardSigmoid": hard,
    "HardSwish": hard,
    "InstanceNormalization": instancenorm,
    "LRN": local_response,
    "LayerNormalization": layernorm,
    "LeakyRelu": leaky_relu,
    "Log": function("log"),
    "LogSoftmax": log_softmax,
    "MatMul": matmul,
    "Max": folded("maximum"),
    "MaxPool": pool,
    "Min": folded("minimum"),
    "Mul": scaled("mul"),
    "Neg": function("scale", ", scale=-1"),
    "Pow": power,
    "RMSNormalization": layernorm,
    "Reciprocal": function("reciprocal"),
    "ReduceMax": reduction("max"),
    "ReduceMean": reduction("mean"),
    "ReduceSum": reduction("sum"),
    "Relu": function("relu"),
    "Sigmoid": function("sigmoid"),
    "Softmax": softmax,
    "Softplus": softplus,
    "Sqrt": function("sqrt"),
    "Sub": function("subtract"),
    "Sum": folded("add"),
    "Swish": swish,
    "Tanh": function("tanh"),
}
"""By operator, its lowering."""

VIEWS = frozenset(
    {
        "Cast",
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that select, reorder, repeat or rename elements. They cost nothing here: the layers on both sides read and write the
elements in any order."""
