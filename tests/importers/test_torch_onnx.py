"""A module exported by ``torch.onnx.export`` and by ``torch.export``: the same layers, up to names and the order of axes, and the
results of PyTorch. Skipped without the packages torch, onnx and onnxscript."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halley.importers.fusing import fused
from halley.importers.network import ImportedNetwork

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

from tests.importers.executing import run_network  # noqa: E402
from tests.importers.test_torch import compared, recorded  # noqa: E402

from halley.importers.onnx.load import import_onnx  # noqa: E402
from halley.importers.torch.export import from_torch  # noqa: E402

nn, f = torch.nn, torch.nn.functional
TOKENS, IMAGE = (2, 6, 16), (1, 4, 8, 8)
EXPORTS = {"17 step by step": 17, "20": 20, "23 with attention": 23}
"""Versions of operators: the first has no GELU, the second no attention."""


class Rms(nn.Module):
    """An RMS norm written out as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(16))

    def forward(self, x: Any) -> Any:
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Attention(nn.Module):
    """A residual block of attention; with fewer heads of keys, by groups."""

    def __init__(self, kv_heads: int = 4, norm: str = "layer", **options: Any) -> None:
        super().__init__()
        self.kv_heads, self.options = kv_heads, options
        self.norm = nn.LayerNorm(16) if norm == "layer" else Rms()
        self.queries, self.keys, self.values = nn.Linear(16, 16), nn.Linear(16, 4 * kv_heads), nn.Linear(16, 4 * kv_heads)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Any, mask: Any = None) -> Any:
        n = self.norm(x)
        split = [layer(n).view(2, 6, -1, 4).transpose(1, 2) for layer in (self.queries, self.keys, self.values)]
        grouped = {"enable_gqa": True} if self.kv_heads < 4 else {}
        a = f.scaled_dot_product_attention(*split, attn_mask=mask, **grouped, **self.options)
        return x + self.out(a.transpose(1, 2).reshape(2, 6, 16))


class GatedMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(*pair, bias=False) for pair in ((16, 24), (16, 24), (24, 16)))

    def forward(self, x: Any) -> Any:
        return x + self.down(f.silu(self.gate(x)) * self.up(x))


class Residual(nn.Module):
    """Convolutions with norms and a shortcut, as in ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1))
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
        self.body[1].running_mean, self.body[1].running_var = torch.rand(4), torch.rand(4) + 0.5

    def forward(self, x: Any) -> Any:
        return self.head(f.relu(x + self.body(x)))


class UNet(nn.Module):
    """Down, up by a transposed convolution and by repetition, and both side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.last = nn.Conv2d(4, 6, 3, 2, 1), nn.ConvTranspose2d(6, 4, 2, 2), nn.Conv2d(14, 2, 1)

    def forward(self, x: Any) -> Any:
        low = f.hardswish(self.down(x))
        return self.last(torch.cat((x, self.up(low), f.interpolate(low, scale_factor=2)), 1)).abs()


class Embedded(nn.Module):
    """Tokens and positions, whose sum is normed, to the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.norm = nn.Embedding(40, 16), nn.Embedding(8, 16), nn.LayerNorm(16)

    def forward(self, tokens: Any, places: Any) -> Any:
        return f.log_softmax(self.norm(self.tokens(tokens) + self.places(places)) @ self.tokens.weight.T, -1)


class Tanh(nn.Module):
    """GELU by tanh, written out as in GPT-2."""

    def forward(self, x: Any) -> Any:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def modules() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Modules by name, with inputs."""
    torch.manual_seed(11)
    x, image, truths = torch.randn(TOKENS), torch.randn(IMAGE), torch.ones(6, 6).tril().bool()
    without_bias = nn.LayerNorm(16, bias=False)
    without_bias.weight = nn.Parameter(torch.rand(16))
    return {
        "mlp": (nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)), (x,)),
        "mlp by tanh": (nn.Sequential(nn.Linear(16, 24), Tanh(), nn.Linear(24, 16)), (x,)),
        "gated mlp": (GatedMlp(), (x,)),
        "attention": (Attention(), (x,)),
        "causal attention": (Attention(is_causal=True, scale=0.3), (x,)),
        "attention by groups": (Attention(kv_heads=2, norm="rms"), (x,)),
        "attention with a mask": (Attention(), (x, torch.randn(2, 1, 6, 6))),
        "attention with truths": (Attention(), (x, truths)),
        "residual block": (Residual(), (image,)),
        "unet": (UNet(), (image,)),
        "embedding": (Embedded(), (torch.randint(40, (2, 6)), torch.arange(6))),
        "norm without bias": (without_bias, (x,)),
        "norm of groups": (nn.GroupNorm(2, 4), (image,)),
        "softplus": (nn.Sequential(nn.Conv2d(4, 4, 1), nn.Softplus()), (image,)),
        "norm of channels": (nn.InstanceNorm2d(4, affine=True), (image,)),
    }


MODULES = modules()
DIFFERENT = {("attention by groups", 17), ("norm without bias", 17)}
"""Of version 17: not exported at all, and exported with a bias of zeros."""


def layers(network: ImportedNetwork) -> Counter[Any]:
    """What each layer computes, its multiply-accumulates and its bytes; how many of each there are."""
    found: Counter[Any] = Counter()
    for layer in fused(network).layers:
        ops = tuple(f"{op.kind} {op.function} {op.monoid}" for op in layer.workload.ops)
        found[ops, layer.macs // layer.count, layer.bytes // layer.count] += layer.count
    return found


@pytest.mark.medium
@pytest.mark.parametrize("export", EXPORTS)
@pytest.mark.parametrize("name", MODULES)
def test_both_exports_give_the_same_layers(tmp_path: Path, name: str, export: str) -> None:
    module, args = MODULES[name]
    path, opset = tmp_path / "net.onnx", EXPORTS[export]
    if (name, opset) in DIFFERENT:
        pytest.skip("an export that differs")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), args, path, dynamo=opset > 17, opset_version=opset, verbose=False)
        expected = module(*args).numpy()
    ours = import_onnx(str(path))
    theirs, values, before = recorded(module, args)
    assert ours.left_out == theirs.left_out == ()
    assert layers(ours) == layers(theirs)
    assert ours.macs == theirs.macs
    assert compared(theirs, values, 1e-5, before) == sum(layer.count for layer in theirs.layers)
    model = onnx.load(path)
    feeds = dict(zip([item.name for item in model.graph.input], [arg.numpy() for arg in args], strict=True))
    for each in (ours, fused(ours)):
        found = run_network(onnx, model, each, feeds)[model.graph.output[0].name]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


TRANSFORMERS = {
    "bert": {"linear": 6, "linear+add": 4, "linear+gelu": 2},
    "gpt2": {"addmm": 2, "addmm+add": 4, "addmm+gelu": 2, "linear": 1},
    "llama": {"linear": 9, "linear+add": 4, "linear+silu+mul": 2},
    "vit": {"linear": 6, "linear+add": 4, "linear+gelu": 2, "conv2d": 1},
}
"""Layers with weights of two blocks: the queries, keys and values by themselves, the bias, the residual sum and the activation in
the product before them."""


@pytest.mark.medium
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_are_products_attentions_and_norms(tmp_path: Path, name: str) -> None:
    """A small model by both exports; the one of ONNX, executed, gives the results of onnxruntime."""
    transformers, runtime = pytest.importorskip("transformers"), pytest.importorskip("onnxruntime")
    from tests.importers.test_torch import MODELS

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kind = transformers.AutoModelForCausalLM if name in ("gpt2", "llama") else transformers.AutoModel
            self.model = kind.from_config(MODELS[name])

        def forward(self, x: Any) -> Any:
            more = {"use_cache": False} if name in ("gpt2", "llama") else {}
            found = self.model(x, **more, **({"token_type_ids": torch.zeros_like(x)} if name == "bert" else {}))
            return found.logits if "logits" in found else found.last_hidden_state

    torch.manual_seed(5)
    model = Model().eval()
    for parameter in model.parameters():  # biases of zero are left out by an export
        parameter.data += 0.1 * torch.rand_like(parameter)
    x = torch.randn(1, 3, 16, 16) if name == "vit" else torch.randint(3, 128, (1, 16))
    theirs = fused(from_torch(model, (x,)))
    found = Counter(node.operator for node in theirs.nodes if node.lowered)
    attentions = found.pop("scaled_dot_product_attention")
    pooled = found.pop("linear+tanh", 0)
    assert attentions == 2
    assert {word: count for word, count in found.items() if word.startswith(("linear", "addmm", "conv"))} == TRANSFORMERS[name]
    path = str(tmp_path / "net.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), path, dynamo=True, opset_version=20, verbose=False)
    ours = import_onnx(path)
    assert ours.left_out == ()
    assert ours.macs == theirs.macs - pooled * 64 * 64  # whose result is not returned
    file = onnx.load(path)
    feeds = {file.graph.input[0].name: x.numpy()}
    (expected,) = runtime.InferenceSession(path).run(None, feeds)
    made = fused(ours)
    assert Counter(node.operator for node in made.nodes if node.lowered)["Attention"] == 2
    result = run_network(onnx, file, made, feeds)[file.graph.output[0].name]
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
