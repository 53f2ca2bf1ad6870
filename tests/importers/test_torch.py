"""Programs of torch.export: every layer, executed by Halley's interpreter on the values that PyTorch computed before it, gives
the values of PyTorch. Without PyTorch, the same for programs that are kept with their values (``programs``)."""

from __future__ import annotations

import copy
import json
import re
import shlex
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import halley
from tests.importers.executing import CHIP, executed, mapping

from halley.errors import BadInput
from halley.execute.interpreter import run
from halley.importers.fusing import fused
from halley.importers.lowering.node import LoweredNode
from halley.importers.network import ImportedNetwork
from halley.importers.torch.aten import GROUPED, LOWERINGS, VIEWS
from halley.importers.torch.export import _Layers, from_torch, import_pt2
from halley.importers.torch.program import read_program
from halley.ir.text import parse
from halley.rewrite.backward import backward
from halley.workloads.user import graph

KEPT = Path(__file__).with_name("programs")


Values = Mapping[str, Any]


def compared(network: ImportedNetwork, values: Values, tolerance: float, inputs: Mapping[str, Values] | None = None) -> int:
    """Execute every layer, but for products of groups of rows; the number of them. ``inputs``: by node, the values that it read,
    where something in place changed them later."""
    if any("+" in node.operator for node in fused(network).nodes) and not any("+" in node.operator for node in network.nodes):
        compared(fused(network), values, tolerance, inputs)
    count = 0
    for node in network.nodes:
        made = node.lowered
        if made is None or set(node.operator.split("+")) & set(GROUPED):
            continue
        known = {**values, **(inputs or {}).get(node.name, {})}
        given = {name: infinite(known[name]) for name in made.inputs.values()}
        given |= {name: np.asarray(known[name]) for name in made.rows.values()}
        for name, found in executed(made, given).items():
            expected = np.asarray(values[name], float)
            assert found.size == expected.size
            scale = max([1.0, *np.abs(expected[np.isfinite(expected)])])  # masked scores are infinite
            message = f"{node.name}: {'; '.join(made.lines)}"
            flat = found.reshape(-1), expected.reshape(-1)
            np.testing.assert_allclose(*flat, rtol=tolerance, atol=tolerance * scale, err_msg=message)
        count += 1
    return count


def infinite(value: Any) -> Any:
    """Truths of a mask as infinities."""
    array = np.asarray(value)
    return np.where(array, np.inf, -np.inf) if array.dtype == bool else array.astype(float)


# --- kept programs ----------------------------------------------------------------------------------------------------------


def kept(folder: Path, name: str) -> str:
    """A kept program as a file of torch.export, without weights."""
    path = folder / f"{name}.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(KEPT / f"{name}.json", f"{name}/models/model.json")
    return str(path)


def test_a_kept_block(tmp_path: Path) -> None:
    """A transformer block of RMS norms, attention by groups of heads, and a gated MLP, with the values of PyTorch 2.14."""
    network = import_pt2(kept(tmp_path, "block"))
    assert network.name == "block"
    assert (network.dtype, network.opset) == ("fp32", 0)
    with np.load(KEPT / "block.npz") as values:
        assert compared(network, dict(values), 1e-5) == sum(layer.count for layer in network.layers) == 14
    assert not network.left_out
    assert {layer.operator for layer in network.layers} == {
        "rms_norm", "linear", "scaled_dot_product_attention", "add", "silu", "mul"
    }  # fmt: skip
    # four projections of 24 tokens, the MLP's three products, scores and values of 4 heads
    projections = 24 * 32 * (32 + 16 + 16 + 32) + 24 * 32 * 48 * 3
    assert network.macs == projections + 2 * 2 * 4 * 12 * 12 * 8
    assert network.constants == 32 * (32 + 16 + 16 + 32) + 3 * 32 * 48 + 2 * 32


def test_a_program_on_a_chip(tmp_path: Path) -> None:
    path = kept(tmp_path, "block")
    listed = halley("import", path)
    assert listed.code == 0
    assert "operators of PyTorch" in listed.out
    found = halley("optimise", path, "--layer", "linear-1", "--dtype", "bf16", "--chip", "edge", "-o", str(tmp_path / "a.json"))
    assert found.code == 0, found.err
    assert "expected none for a program" in halley("import", path, "--dim", "b=1").err


# --- faults -----------------------------------------------------------------------------------------------------------------


def program() -> Any:
    return json.loads((KEPT / "block.json").read_text(encoding="utf-8"))


def written(folder: Path, changed: Any, part: str = "block/models/model.json") -> str:
    path = folder / "changed.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(part, changed if isinstance(changed, str) else json.dumps(changed))
    return str(path)


@pytest.mark.parametrize(
    ("part", "content", "told"),
    [
        ("block/models/model.json", "{", "text that is no JSON"),
        ("block/models/model.json", "[]", "a part in another form"),
        ("block/models/model.json", '{"graph_module": {}}', "a part in another form"),
        ("block/other.json", "{}", "an archive without one"),
        ("block/models/model.json", "[" * 100_000, "text that is no JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, part: str, content: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        import_pt2(written(tmp_path, content, part))


def test_a_part_that_no_layer_can_be_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an epsilon too large for a float, which is read, but found only when steps become a norm."""

    def too_large(*_: Any) -> Any:
        return float(10**400)

    monkeypatch.setattr("halley.importers.torch.export.with_norms", too_large)
    with pytest.raises(BadInput, match="a part in another form"):
        import_pt2(kept(tmp_path, "block"))


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(BadInput, match="another file, or a part of one"):
        import_pt2(str(tmp_path / "a.pt2"))
    with pytest.raises(BadInput, match="no such file"):
        import_pt2(str(tmp_path / "none.pt2"))
    with pytest.raises(BadInput, match="a folder or a device"):
        import_pt2(str(tmp_path))


def test_unknown_operators_and_symbols(tmp_path: Path) -> None:
    """An operator without a lowering is left out with its bytes; a symbol has the extent of the example."""
    given = program()
    graph = given["graph_module"]["graph"]
    first = next(node for node in graph["nodes"] if "silu" in node["target"])
    first["target"] = "torch.ops.aten.fancy\x1b.default"
    size = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}
    for value in graph["tensor_values"].values():
        value["sizes"] = [size if item == {"as_int": 2} else item for item in value["sizes"]]
    network = import_pt2(written(tmp_path, given))
    (left,) = network.left_out
    assert "\x1b" not in left.operator
    assert left.bytes == 2 * 24 * 48 * 4
    assert any("the dim s0 has the extent of the example: 2" in remark for remark in network.remarks)


# --- PyTorch itself ---------------------------------------------------------------------------------------------------------

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
needs_torch = pytest.mark.skipif(torch is None, reason="needs PyTorch")


def recorded(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[ImportedNetwork, Values, Any]:
    """The network of a module, all values of its program on these inputs, and by node those that it read."""
    exported = torch.export.export(module, args, kwargs or {}, strict=False)
    held = {**exported.state_dict, **exported.constants}
    values, before, _ = run_program(exported, held, torch.utils._pytree.tree_leaves((args, kwargs or {})))
    network = from_torch(module, args, kwargs)
    same_from_a_file(network, exported)
    return network, values, before


def same_from_a_file(network: ImportedNetwork, exported: Any) -> None:
    """The program in memory and the file that PyTorch writes of it give the same network."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"{network.name}.pt2")
        torch.export.save(exported, path)
        saved = import_pt2(path)
    assert saved.constant == network.constant
    plain = (replace(each, source="", constant=frozenset()) for each in (saved, network))
    assert len({repr(each) for each in plain}) == 1  # arrays have no single truth of ==


def run_program(exported: Any, held: Mapping[str, Any], given: Any) -> tuple[Values, Any, Any]:
    """All values of a program, by node those that it read, and its results. ``held``: parameters and constants."""
    values: dict[str, Any] = {}
    before: dict[str, dict[str, Any]] = {}

    def array(tensor: Any) -> Any:
        return (tensor.double() if tensor.is_floating_point() else tensor).numpy().copy()

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            before[node.name] = {
                item.name: array(self.env[item]) for item in node.all_input_nodes if isinstance(self.env[item], torch.Tensor)
            }
            found = super().run_node(node)
            if isinstance(found, torch.Tensor):
                values[node.name] = array(found)
            return found

    left = iter(given)
    inputs = [held[spec.target] if spec.target in held else next(left) for spec in exported.graph_signature.input_specs]
    with torch.no_grad():
        results = Recorder(exported.graph_module).run(*inputs)
    return values, before, results


def agrees(module: Any, *args: Any, left: tuple[str, ...] = (), layers: int | None = None, **kwargs: Any) -> ImportedNetwork:
    """Import the module, and compare every layer with PyTorch."""
    network, values, inputs = recorded(module.eval(), args, kwargs)
    assert {item.operator for item in network.left_out} <= set(left), network.left_out
    count = compared(network, values, 2e-5, inputs)
    assert count == sum(layer.count for layer in network.layers) > 0
    assert layers is None or count == layers
    return network


def blocks() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Modules by name, with their inputs."""
    if torch is None:
        return {}
    nn, f = torch.nn, torch.nn.functional
    torch.manual_seed(3)
    rand = torch.randn

    def of(function: Any) -> Any:
        class Block(nn.Module):
            def forward(self, *args: Any) -> Any:
                return function(*args)

        return Block()

    image, tokens, heads = rand(2, 6, 9, 9), rand(2, 5, 8), rand(2, 4, 6, 8)
    sdpa = f.scaled_dot_product_attention
    mask = torch.ones(6, 6).tril().bool()
    return {
        "linear": (nn.Linear(8, 4), (tokens,)),
        "linear without bias": (nn.Linear(8, 4, bias=False), (tokens,)),
        "mlp": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), (tokens,)),
        "mlp tanh": (nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh"), nn.Linear(16, 8)), (tokens,)),
        "matmul": (of(lambda a, b: a @ b.transpose(-1, -2)), (heads, heads)),
        "matmul broadcast": (of(lambda a, b: a @ b), (heads, rand(8, 3))),
        "mm": (of(torch.mm), (rand(3, 4), rand(4, 5))),
        "bmm": (of(torch.bmm), (rand(2, 3, 4), rand(2, 4, 5))),
        "addmm": (of(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0)), (rand(5), rand(3, 4), rand(4, 5))),
        "einsum": (of(lambda a, b: torch.einsum("bhmd,bhnd->bhmn", a, b)), (heads, heads)),
        "conv": (nn.Conv2d(6, 4, 3, padding=1, stride=2), (image,)),
        "conv same": (nn.Conv2d(6, 4, 3, padding="same"), (image,)),
        "conv depthwise": (nn.Conv2d(6, 6, 3, groups=6, bias=False), (image,)),
        "conv dilated": (nn.Conv2d(6, 4, 3, dilation=2), (image,)),
        "conv1d": (nn.Conv1d(5, 5, 4, padding=3, groups=5), (rand(2, 5, 8),)),
        "conv3d": (nn.Conv3d(2, 3, 2), (rand(1, 2, 4, 4, 4),)),
        "max pool": (nn.MaxPool2d(3, 2, 1), (image,)),
        "average pool": (nn.AvgPool2d(3, 2, 1), (image,)),
        "average pool, inside": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (image,)),
        "adaptive pool": (nn.AdaptiveAvgPool2d(3), (image,)),
        "global pool": (nn.AdaptiveAvgPool2d(1), (image,)),
        "layer norm": (nn.LayerNorm(8), (tokens,)),
        "layer norm alone": (nn.LayerNorm(8, elementwise_affine=False), (tokens,)),
        "layer norm without bias": (nn.LayerNorm(8, bias=False), (tokens,)),
        "rms norm": (nn.RMSNorm(8, eps=1e-6), (tokens,)),
        "group norm": (nn.GroupNorm(2, 6), (image,)),
        "instance norm": (nn.InstanceNorm2d(6, affine=True), (image,)),
        "batch norm": (nn.BatchNorm2d(6), (image,)),
        "softmax": (nn.Softmax(1), (image,)),
        "log softmax": (nn.LogSoftmax(-1), (tokens,)),
        "reductions": (of(lambda x: (x.mean(1), x.sum((0, 2)), x.amax(-1), x.mean())), (tokens,)),
        "scalars": (of(lambda x: (1 - x / 3) * 2.5 + (x - 1).pow(2) + x.pow(3) - 0.5), (tokens,)),
        "roots": (of(lambda x: x.abs().sqrt() + (x * x + 1).rsqrt() + (x * x + 1).pow(-0.5)), (tokens,)),
        "clamps": (of(lambda x: f.relu6(x) + f.hardswish(x) + f.hardsigmoid(x) + x.clamp(-0.3, 0.4) + x.clamp(min=0)), (tokens,)),
        "activations": (
            of(lambda x: f.silu(x) + f.relu(x) + f.leaky_relu(x, 0.2) + f.softplus(x) + x.sigmoid() + x.tanh() + x.exp()),
            (tokens,),
        ),
        "two operands": (of(lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) / (y * y + 1)), (tokens, rand(5, 8))),
        "in place": (of(lambda x: x.clone().add_(1).mul_(x).relu_()), (tokens,)),
        "attention": (of(lambda q, k, v: sdpa(q, k, v)), (heads, heads, heads)),
        "attention causal": (of(lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3)), (heads, heads, heads)),
        "attention by groups": (
            of(lambda q, k, v: sdpa(q, k, v, enable_gqa=True)), (heads, rand(2, 2, 6, 8), rand(2, 2, 6, 8))
        ),
        "attention of truths": (of(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m)), (heads, heads, heads, mask)),
        "attention of numbers": (of(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m)), (heads, heads, heads, rand(2, 4, 6, 6))),
        "attention of three axes": (of(lambda q, k, v: sdpa(q, k, v)), (tokens, tokens, tokens)),
        "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), (tokens,)),
        "residual block": (
            nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 1)), (image,)
        ),
    }  # fmt: skip


BLOCKS = blocks()


@needs_torch
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str) -> None:
    module, args = BLOCKS[name]
    agrees(module, *args)


@needs_torch
@pytest.mark.parametrize(("steps", "layers"), [
    ("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)", 1),
    ("gain * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)", 1),
    ("(x * torch.rsqrt(x.pow(2).mean(2, keepdim=True) + 1e-5)) * (1.0 + gain)", 2),  # 1 + gain is a layer, too
    ("x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * gain", 6),  # of another dim
    ("x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 9) * gain", 6),
    ("(lambda r: x * r + r)(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))", 6),  # another call reads the root
    ("(lambda r: (x * r, r))(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))", 5),  # the program returns the root
    ("other * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)", 5),  # of another tensor
    ("x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * other", 2),  # no gain
])  # fmt: skip
def test_norms_step_by_step(steps: str, layers: int) -> None:
    """The steps of a norm are one layer, where they are one."""

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.rand(6))

        def forward(self, x: Any, other: Any) -> Any:
            return eval(steps, {"torch": torch, "x": x, "other": other, "gain": self.gain})

    torch.manual_seed(2)
    network = agrees(Norm(), torch.rand(2, 3, 6), torch.rand(2, 3, 6), layers=layers)
    assert any(layer.operator == "rms_norm" for layer in network.layers) == (layers <= 2)


@needs_torch
def test_experts_in_equal_groups_are_one_product() -> None:
    """Products of groups of rows: as groups of equal sizes, and that is said."""

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(2, 16, 32, dtype=torch.bfloat16))

        def forward(self, rows: Any, ends: Any) -> Any:
            return torch._grouped_mm(rows, self.weight, offs=ends)

    network = from_torch(Experts(), (torch.randn(8, 16, dtype=torch.bfloat16), torch.tensor([3, 8], dtype=torch.int32)))
    (layer,) = network.layers
    assert layer.workload.dims == {"e": 2, "m": 4, "n": 32, "k": 16}
    assert network.macs == 8 * 16 * 32
    assert any("equal sizes" in remark for remark in network.remarks)


@needs_torch
def test_weights_on_no_device_and_a_module_that_cannot_be_exported() -> None:
    with torch.device("meta"):
        module = torch.nn.Linear(16384, 65536)
        network = from_torch(module, (torch.zeros(4096, 16384),), dtype="bf16")
    assert (network.name, network.dtype, network.constants) == ("Linear", "bf16", 16384 * 65536 + 65536)

    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(BadInput, match=r"Branching: expected a module that torch\.export takes"):
        from_torch(Branching(), (torch.zeros(2),))


def models() -> dict[str, Any]:
    """Small models of the package transformers by name."""
    if torch is None:
        return {}
    try:
        import transformers as t
    except ImportError:
        return {}
    small = {
        "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    grouped = {**small, "num_key_value_heads": 2}
    latent = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    routed = {"moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    state = {"state_size": 16, "head_dim": 16, "num_heads": 8, "n_groups": 1, "chunk_size": 8}
    return {
        "llama": t.LlamaConfig(**grouped),
        "qwen3": t.Qwen3Config(**grouped, head_dim=16),
        "gpt2": t.GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=4, **ends),
        "gemma2": t.Gemma2Config(**grouped, head_dim=16),
        "phi3": t.Phi3Config(**grouped),
        "mixtral": t.MixtralConfig(**grouped, num_local_experts=4, num_experts_per_tok=2),
        "deepseek-v3": t.DeepseekV3Config(**small, **latent, **routed, num_key_value_heads=4, first_k_dense_replace=1),
        "gpt-oss": t.GptOssConfig(**grouped, head_dim=16, num_local_experts=4, num_experts_per_tok=2),
        "mamba2": t.Mamba2Config(vocab_size=128, hidden_size=64, num_hidden_layers=1, **ends, **state),
        "bert": t.BertConfig(**small),
        "vit": t.ViTConfig(
            hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4
        ),
    }


MODELS = models()
ROUTING = ("bitwise_not", "floor_divide", "gather", "histc", "index", "index_put", "masked_fill", "scatter", "sort", "topk")
"""What chooses and moves tokens, masks, or counts."""


@needs_torch
def test_graphs_within_a_program_and_results_that_nobody_reads() -> None:
    """A part without gradients is a graph of its own; a split has several results, one of which is not read."""

    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 12), torch.nn.Linear(4, 8)

        def forward(self, tensor: Any) -> Any:
            with torch.no_grad():
                _, middle, _ = torch.split(self.first(tensor), 4, dim=-1)
                values, _ = torch.topk(middle, 4)
            return self.last(middle) + values.sum(), torch.chunk(tensor, 2)[1]

    module, args = Several(), (torch.randn(6, 8),)
    exported = torch.export.export(module, args)
    assert "wrap_with_set_grad_enabled" in str(exported.graph)
    network = from_torch(module, args)
    same_from_a_file(network, exported)
    assert network.macs == 6 * (8 * 12 + 4 * 8)


@needs_torch
def test_graphs_within_graphs() -> None:
    """A part in another precision inside a part without gradients."""

    class Deep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.next = torch.nn.Linear(8, 12), torch.nn.Linear(12, 6)

        def forward(self, tensor: Any) -> Any:
            with torch.no_grad():
                middle = self.first(tensor).relu()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    found = self.next(middle).relu()
            return tensor.sum() + found.float()

    module, args = Deep(), (torch.randn(4, 8),)
    network = from_torch(module, args)
    same_from_a_file(network, torch.export.export(module, args))
    assert (network.left_out, network.macs) == ((), 4 * (8 * 12 + 12 * 6))


@needs_torch
def test_dims_that_may_change_have_the_extent_of_the_example(tmp_path: Path) -> None:
    module, args = torch.nn.Linear(8, 4), (torch.randn(6, 8),)
    exported = torch.export.export(module, args, dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.export.save(exported, tmp_path / "a.pt2")
    saved, read = import_pt2(str(tmp_path / "a.pt2")), _Layers(read_program(exported, "a"), "a", None).network()
    assert repr(replace(saved, source="a", constant=frozenset())) == repr(replace(read, constant=frozenset()))
    assert read.macs == 6 * 8 * 4
    assert any("has the extent of the example: 6" in remark for remark in read.remarks)


@needs_torch
@pytest.mark.medium
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """Models of the package transformers: all layers equal, but for products of groups, whose sizes the router decides."""
    import transformers as t

    torch.manual_seed(5)
    causal = name not in ("bert", "vit")
    model = (t.AutoModelForCausalLM if causal else t.AutoModel).from_config(MODELS[name]).eval()
    inputs = torch.randn(1, 3, 16, 16) if name == "vit" else torch.randint(3, 128, (1, 16))
    network, values, before = recorded(model, (inputs,), {"use_cache": False} if causal else {})
    assert {item.operator for item in network.left_out} <= {"embedding", "cumsum", "max", "pad", *ROUTING}
    compared(network, values, 1e-4, before)


BACKWARD = (
    "addmm", "attention by groups", "attention causal", "attention of numbers", "average pool", "conv", "conv depthwise",
    "group norm", "layer norm", "linear", "matmul", "max pool", "mlp", "rms norm", "scalars", "softmax", "two operands",
)  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_passes(name: str) -> None:
    """Halley's derivative of each layer against PyTorch's, for all inputs of real numbers."""
    module, args = BLOCKS[name]
    network, _, before = recorded(module.eval(), args)
    exported = torch.export.export(module, args, strict=False)
    calls = {node.name: node for node in exported.graph_module.graph.nodes}
    count = 0
    for node in network.nodes:
        if node.lowered is None:
            continue
        call = calls[node.name]
        known = {name: torch.tensor(value, requires_grad=True) for name, value in before[node.name].items()}
        taken = torch.fx.node.map_arg((call.args, call.kwargs), lambda item: known[item.name])  # noqa: B023
        result = call.target(*taken[0], **taken[1])
        seed = torch.randn_like(result)
        result.backward(seed)
        found = gradients(node.lowered, before[node.name], seed.numpy())
        for tensor, gradient in found.items():
            expected = known[tensor].grad.numpy().reshape(-1)
            np.testing.assert_allclose(gradient.reshape(-1), expected, rtol=1e-5, atol=1e-6, err_msg=f"{node.name} {tensor}")
        count += len(found)
    assert count > 0


JOINT = (
    "bert layer", "batch norm", "conv", "conv depthwise", "encoder layer", "group norm", "layer norm", "linear",
    "linear without bias", "llama layer", "mlp tanh", "residual block", "rms norm",
)  # fmt: skip
NO_LOWERING = {"any", "convolution_backward", "eq", "erf", "le", "logical_not", "sub", "where"}
"""Calls of core ATen in backward passes that are counted by their bytes."""


def layers_with_attention() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    class Attention(torch.nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.norm, self.second = torch.nn.RMSNorm(8, eps=1e-5), torch.nn.RMSNorm(8, eps=1e-5)
            self.heads, self.out = torch.nn.Linear(8, 24, bias=False), torch.nn.Linear(8, 8, bias=False)
            self.gate, self.up = torch.nn.Linear(8, 12, bias=False), torch.nn.Linear(8, 12, bias=False)
            self.down, self.causal = torch.nn.Linear(12, 8, bias=False), causal

        def forward(self, x: Any) -> Any:
            q, k, v = (part.view(2, 5, 2, 4).transpose(1, 2) for part in self.heads(self.norm(x)).chunk(3, -1))
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + self.out(found.transpose(1, 2).reshape(2, 5, 8))
            y = self.second(x)
            return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))

    torch.manual_seed(4)
    return {name: (Attention(name == "llama layer"), (torch.randn(2, 5, 8),)) for name in ("bert layer", "llama layer")}


@needs_torch
@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PyTorch's own
@pytest.mark.parametrize("name", JOINT)
def test_forward_and_backward_passes_of_pytorch(name: str) -> None:
    """The program of both passes, exported without memory: every layer of it on the values that PyTorch computed before the
    layer; its results are the gradients of autograd."""
    block, args = (BLOCKS | layers_with_attention())[name]

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block.eval()

        def forward(self, *given: Any) -> Any:
            return (self.block(*given).square().mean(),)

    module = Loss()
    empty, given = copy.deepcopy(module).to("meta"), tuple(arg.to("meta") for arg in args)
    network = from_torch(empty, given, backward=True)
    exported = torch.export.experimental._export_forward_backward(torch.export.export(empty, given))
    same_from_a_file(network, exported)
    for node in exported.graph_module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    exported.graph_module.recompile()
    values, before, results = run_program(exported, module.state_dict(), args)
    module(*args)[0].backward()
    wanted = {name: value.grad for name, value in module.named_parameters()}
    specs = zip(exported.graph_signature.output_specs, results, strict=True)
    found = {spec.target: value for spec, value in specs if spec.kind.name == "GRADIENT_TO_PARAMETER"}
    assert set(found) == set(wanted)
    for parameter, value in found.items():
        torch.testing.assert_close(value, wanted[parameter], rtol=1e-4, atol=1e-6)
    assert {item.operator for item in network.left_out} <= NO_LOWERING
    count = compared(network, values, 2e-5, before)
    assert count == sum(layer.count for layer in network.layers) > 0
    products = {"linear": 2, "llama layer": 3, "bert layer": 3}.get(name)  # nobody asks for the gradient of a program's input
    assert products is None or network.macs == products * from_torch(empty, given).macs


@needs_torch
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_backward_pass_needs_a_scalar() -> None:
    with pytest.raises(BadInput, match="return a scalar loss first"):
        from_torch(torch.nn.Linear(4, 3), (torch.zeros(2, 4),), backward=True)


def gradients(made: LoweredNode, values: Values, seed: Any) -> dict[str, Any]:
    """By value that the layer reads, the gradient of its result times ``seed``."""
    work = graph(made.lines, made.dims, "bf16", tuple(made.outputs))
    inputs = [name for name in work.inputs if name not in made.computed]
    found = backward(work, wrt=inputs)
    (output,) = made.outputs
    arrays = {found.seeds[output]: seed}
    for name in work.inputs:
        arrays[name] = made.computed[name] if name in made.computed else values[made.inputs[name]]
    shaped = {
        name: np.asarray(array, float).reshape([found.workload.dims[dim] for dim in found.workload.tensors[name].dims])
        for name, array in arrays.items()
    }
    results = run(found.workload, CHIP, parse(mapping(found.workload)), shaped).outputs
    sums: dict[str, Any] = {}
    for name in inputs:
        value = made.inputs[name]
        sums[value] = sums.get(value, 0) + results[found.gradients[name]].reshape(-1)
    return sums


# --- the page ---------------------------------------------------------------------------------------------------------------


def page() -> str:
    return (Path(__file__).parents[2] / "docs/how-to/import-pytorch.md").read_text(encoding="utf-8")


@pytest.mark.medium
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept(tmp_path, "block")
    lines = [line for line in page().splitlines() if line.startswith("$ ")]
    assert len(lines) == 4
    for line in lines:
        sign, program, *words = shlex.split(line)
        assert (sign, program) == ("$", "halley")
        found = halley(*words)
        assert found.code in (0, 3), f"{line}\n{found.err}"  # 3: a limit of time on a busy machine


@needs_torch
@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_python_of_the_page_runs() -> None:
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", page(), re.MULTILINE | re.DOTALL))
    names: dict[str, Any] = {}
    exec(compile(text, "import-pytorch.md", "exec"), names)
    assert 2 < names["both"].macs / names["network"].macs < 3


def test_every_name_of_the_page_is_an_operator() -> None:
    """The first column of the table lists operators; those of norms and products all of them."""
    told = {word for row in re.findall(r"^\| (`.*?) \| ", page(), re.MULTILINE) for word in re.findall(r"`([a-z_]+)`", row)}
    assert told <= {*LOWERINGS, *VIEWS}
