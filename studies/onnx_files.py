"""ONNX files of networks without weights: nine of the package onnx, and transformers written node by node, as exports for
operators of version 17 have them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer: ``gated`` feed-forward blocks have three matrices and SiLU, others two and GELU; ``image``: embeds patches
    of 16 x 16 of an image of 224 x 224 instead of tokens."""

    layers: int
    model: int
    heads: int
    kv_heads: int
    hidden: int
    tokens: int
    vocabulary: int = 0
    causal: bool = False
    gated: bool = False
    image: bool = False


TRANSFORMERS: Mapping[str, Shape] = {
    "bert-base": Shape(12, 768, 12, 12, 3072, 512, 30522),
    "gpt2": Shape(12, 768, 12, 12, 3072, 1024, 50257, causal=True),
    "vit-b16": Shape(12, 768, 12, 12, 3072, 196, image=True),
    "llama-3-8b-block": Shape(1, 4096, 32, 8, 14336, 2048, causal=True, gated=True),
}
"""Shapes of the published models; the last one is a layer, without rotations of queries and keys."""


def files(folder: Path) -> dict[str, Path]:
    """The files of all networks by name; those of transformers are written to the folder."""
    onnx = importlib.import_module("onnx")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found = {path.stem.removeprefix("light_"): path for path in sorted(light.glob("*.onnx"))}
    for name, shape in TRANSFORMERS.items():
        found[name] = folder / f"{name}.onnx"
        onnx.save(transformer(shape), found[name])
    return found


def transformer(shape: Shape) -> Any:
    """The network; its weights are inputs."""
    return _Writer(shape).model()


@dataclass(slots=True)
class _Writer:
    shape: Shape
    helper: Any = field(default_factory=lambda: importlib.import_module("onnx.helper"))
    nodes: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    count: int = 0
    mask: str = ""

    def weight(self, *extents: int, kind: int = 1) -> str:
        """A value that is given, of fp32 (1) or int64 (7)."""
        name = f"w{len(self.inputs)}"
        self.inputs.append(self.helper.make_tensor_value_info(name, kind, extents))
        return name

    def constant(self, values: Sequence[float], kind: int = 1, extents: Sequence[int] = ()) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.helper.make_tensor(name, kind, extents, values))
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(self.helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def reshaped(self, value: str, *extents: int) -> str:
        return self.node("Reshape", value, self.constant(extents, 7, [len(extents)]))

    def linear(self, value: str, columns: int, rows: int) -> str:
        product = self.node("MatMul", value, self.weight(rows, columns))
        return product if self.shape.gated else self.node("Add", product, self.weight(columns))

    def norm(self, value: str) -> str:
        model = self.shape.model
        if not self.shape.gated:
            return self.node("LayerNormalization", value, self.weight(model), self.weight(model))
        square = self.node("Pow", value, self.constant([2.0]))
        mean = self.node("ReduceMean", square, axes=[-1])
        root = self.node("Sqrt", self.node("Add", mean, self.constant([1e-5])))
        return self.node("Mul", self.node("Div", value, root), self.weight(model))

    def heads(self, value: str, count: int, order: Sequence[int]) -> str:
        width = self.shape.model // self.shape.heads
        split = self.node(
            "Transpose", self.reshaped(self.linear(value, count * width, self.shape.model), 1, -1, count, width), perm=order
        )
        if count == self.shape.heads:
            return split
        group, tokens = self.shape.heads // count, self.shape.tokens
        wide = self.node("Unsqueeze", split, self.constant([2], 7, [1]))
        wide = self.node("Expand", wide, self.constant([1, count, group, tokens, width], 7, [5]))
        return self.reshaped(wide, 1, self.shape.heads, tokens, width)

    def attention(self, value: str) -> str:
        own = self.shape
        queries, values = self.heads(value, own.heads, (0, 2, 1, 3)), self.heads(value, own.kv_heads, (0, 2, 1, 3))
        keys = self.node("Transpose", self.heads(value, own.kv_heads, (0, 2, 1, 3)), perm=(0, 1, 3, 2))
        scores = self.node("Div", self.node("MatMul", queries, keys), self.constant([(own.model // own.heads) ** 0.5]))
        if own.causal:
            mask = [0.0 if key <= row else -3e38 for row in range(own.tokens) for key in range(own.tokens)]
            self.mask = self.mask or self.constant(mask, 1, [own.tokens, own.tokens])
            scores = self.node("Add", scores, self.mask)
        found = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        joined = self.reshaped(self.node("Transpose", found, perm=(0, 2, 1, 3)), 1, -1, own.model)
        return self.linear(joined, own.model, own.model)

    def feed_forward(self, value: str) -> str:
        own = self.shape
        up = self.linear(value, own.hidden, own.model)
        if own.gated:
            gate = self.linear(value, own.hidden, own.model)
            inner = self.node("Mul", self.node("Mul", gate, self.node("Sigmoid", gate)), up)
        else:
            error = self.node("Erf", self.node("Div", up, self.constant([2**0.5])))
            doubled = self.node("Mul", up, self.node("Add", error, self.constant([1.0])))
            inner = self.node("Mul", doubled, self.constant([0.5]))
        return self.linear(inner, own.model, own.hidden)

    def embedded(self) -> str:
        own = self.shape
        if own.image:
            patches = self.node(
                "Conv", self.weight(1, 3, 224, 224), self.weight(own.model, 3, 16, 16), self.weight(own.model), strides=[16, 16]
            )
            rows = self.node("Transpose", self.reshaped(patches, 1, own.model, -1), perm=(0, 2, 1))
        elif own.vocabulary:
            rows = self.node("Gather", self.weight(own.vocabulary, own.model), self.weight(1, own.tokens, kind=7))
        else:
            return self.weight(1, own.tokens, own.model)
        return self.node("Add", rows, self.weight(1, own.tokens, own.model))

    def model(self) -> Any:
        own = self.shape
        value = self.embedded()
        for _ in range(own.layers):
            value = self.node("Add", value, self.attention(self.norm(value)))
            value = self.node("Add", value, self.feed_forward(self.norm(value)))
        if own.layers > 1:
            value = self.norm(value)
        if own.causal and own.vocabulary:
            value = self.node("MatMul", value, self.weight(own.model, own.vocabulary))
        outputs = [self.helper.make_empty_tensor_value_info(value)]
        graph = self.helper.make_graph(self.nodes, "transformer", self.inputs, outputs, self.constants)
        return self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", 17)], ir_version=8)
