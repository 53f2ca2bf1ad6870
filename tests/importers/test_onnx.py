"""ONNX networks: operations against an independent count, and execution against the reference of the package onnx."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import halley

from halley.errors import BadInput

onnx = pytest.importorskip("onnx")
onnx.shape_inference = pytest.importorskip("onnx.shape_inference")

from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from tests.importers.executing import run_network  # noqa: E402

from halley.importers.fusing import fused  # noqa: E402
from halley.importers.lowering.operators import LOWERINGS, VIEWS  # noqa: E402
from halley.importers.onnx.load import import_onnx  # noqa: E402
from halley.io.chips.load import load_chip  # noqa: E402
from halley.mapping.optimise import optimise  # noqa: E402
from halley.mapping.problem import Problem  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NETWORKS = sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))

PUBLISHED = {
    "resnet50": (4.09e9, 0.005),  # He et al. 2016 with strides as in the released Torch model: 4.09 GMAC
    "vgg19": (19.63e9, 0.001),  # Simonyan and Zisserman 2015: 19.6 GMAC
    "densenet121": (2.83e9, 0.005),  # Huang et al. 2017: 2.83 GMAC
    "squeezenet": (0.35e9, 0.01),  # SqueezeNet 1.1, its repository: 0.35 GMAC, 2.4 times fewer than 1.0
}
"""Multiply-accumulates for an image of 224 x 224, and the relative difference that rounding leaves."""


def counted(path: Path) -> int:
    """Multiply-accumulates from the shapes of the file alone: elements of the result times those that are summed for each."""
    shown = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    shapes = {
        item.name: [dim.dim_value for dim in item.type.tensor_type.shape.dim]
        for item in (*shown.input, *shown.value_info, *shown.output)
    }
    shapes |= {item.name: list(item.dims) for item in shown.initializer}
    total = 0
    for node in shown.node:
        if node.op_type == "Conv":
            total += math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type == "Gemm":
            turned = any(item.name == "transA" and item.i for item in node.attribute)
            total += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if turned else 1]
        else:
            assert node.op_type not in ("MatMul", "Einsum", "ConvTranspose")
    return total


def fed(path: Path) -> int:
    """Nodes that depend on the input; the others compute constants."""
    shown = onnx.load(path).graph
    constants, count = {item.name for item in shown.initializer}, 0
    for node in shown.node:
        if set(node.input) <= constants:
            constants.update(node.output)
        else:
            count += 1
    return count


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_package(name: str) -> None:
    """The nine networks without weights in the package's test data."""
    path = LIGHT / f"light_{name}.onnx"
    network = import_onnx(str(path))
    assert network.macs == counted(path) > 0
    assert network.left_out == ()
    assert sum(layer.count for layer in network.layers) + sum(network.views.values()) == fed(path)
    if name in PUBLISHED:
        macs, error = PUBLISHED[name]
        assert network.macs == pytest.approx(macs, rel=error)


def test_there_are_nine_of_them() -> None:
    assert len(NETWORKS) == 9


# --- execution --------------------------------------------------------------------------------------------------------------


def value(name: str, shape: tuple[int | str, ...]) -> Any:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def network_of(
    nodes: list[Any], inputs: dict[str, tuple[int, ...]], constants: dict[str, Any], outputs: list[str], opset: int
) -> Any:
    """A model; its nodes get names."""
    for place, node in enumerate(nodes):
        node.name = f"node{place}"
    made = helper.make_graph(
        nodes,
        "test",
        [value(name, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def agree(folder: Path, model: Any, feeds: dict[str, Any], layers: int | None = None) -> Any:
    """Import, run both, compare every value element by element."""
    path = folder / "net.onnx"
    onnx.save(model, path)
    network = import_onnx(str(path))
    assert network.left_out == (), network.left_out
    if layers is not None:
        assert sum(layer.count for layer in network.layers) == layers
    names = [name for node in model.graph.node for name in node.output if name]
    for name in names:
        if name not in [item.name for item in model.graph.output]:
            model.graph.output.append(helper.make_empty_tensor_value_info(name))
    expected = dict(zip([item.name for item in model.graph.output], ReferenceEvaluator(model).run(None, feeds), strict=True))
    for each in (network, fused(network)):
        found = run_network(onnx, model, each, feeds)
        for name in names:
            assert found[name].shape == expected[name].shape
            size = np.abs(np.nan_to_num(expected[name], posinf=0, neginf=0))
            scale = max(1.0, float(size.max()))  # the reference computes in fp32
            np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-6 * scale, err_msg=name)
    return network


RANDOM = np.random.default_rng(7)


def random(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return (np.abs(random(*shape)) + 0.5).astype(np.float32)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 8), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 9, 7), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 0]}),
    ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 3, 10, 10), (2, 3, 3, 3), {"dilations": [2, 3], "pads": [2, 2, 2, 2]}),
    ((1, 3, 5, 5), (4, 3, 1, 1), {}),
    ((1, 3, 5, 5), (4, 3, 1, 1), {"strides": [2, 2]}),
    ((1, 1, 5, 5), (1, 1, 1, 1), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 5), (4, 3, 5, 5), {}),
    ((1, 3, 6, 5), (4, 3, 5, 5), {}),
    ((2, 3, 9), (4, 3, 4), {"strides": [3], "pads": [2, 1]}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"pads": [1, 0, 0, 0, 1, 0]}),
    ((1, 3, 7, 8), (2, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 7, 8), (2, 3, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    ((1, 3, 7, 8), (2, 3, 3, 2), {"auto_pad": "VALID"}),
]


@pytest.mark.parametrize(("image", "weights", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("biased", [True, False])
def test_convolutions(
    tmp_path: Path, image: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], biased: bool
) -> None:
    constants = {"w": random(*weights)} | ({"b": random(weights[0])} if biased else {})
    node = helper.make_node("Conv", ["x", "w", *(["b"] if biased else [])], ["y"], **attributes)
    agree(tmp_path, network_of([node], {"x": image}, constants, ["y"], 13), {"x": random(*image)}, 1)


POOLS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("MaxPool", (1, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", (2, 3, 9, 7), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", (1, 2, 10), {"kernel_shape": [3], "dilations": [2]}),
    ("MaxPool", (1, 3, 5, 5), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    ("AveragePool", (1, 3, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", (1, 3, 7, 7), {"kernel_shape": [7, 7]}),
    ("AveragePool", (1, 3, 8, 8), {"kernel_shape": [7, 7]}),
    ("AveragePool", (1, 3, 6, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", (1, 3, 6, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", (2, 3, 4, 5), {}),
    ("GlobalMaxPool", (1, 3, 4, 5), {}),
    # as many images as channels: the reference of onnx 1.23 only fills that many channels
    ("LRN", (6, 6, 3, 3), {"size": 5, "alpha": 0.3, "bias": 2.0}),
    ("LRN", (6, 6, 3, 3), {"size": 4}),
]


@pytest.mark.parametrize(("operator", "shape", "attributes"), POOLS)
def test_pools(tmp_path: Path, operator: str, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    agree(tmp_path, network_of([node], {"x": shape}, {}, ["y"], 13), {"x": random(*shape)}, 1)


@pytest.mark.parametrize("operator", ["Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "LeakyRelu"])
def test_functions_of_one_value(tmp_path: Path, operator: str) -> None:
    model = network_of([helper.make_node(operator, ["x"], ["y"])], {"x": (2, 3, 4)}, {}, ["y"], 13)
    agree(tmp_path, model, {"x": positive(2, 3, 4) - (0.7 if operator == "LeakyRelu" else 0)}, 1)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum"])
@pytest.mark.parametrize(
    "shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (2, 1, 4)), ((2, 3, 4, 4), (3, 1, 1)), ((2, 3), ())]
)
def test_functions_of_two_values(tmp_path: Path, operator: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    node = helper.make_node(operator, ["x", "z"], ["y"])
    model = network_of([node], {"x": shapes[0], "z": shapes[1]}, {}, ["y"], 13)
    agree(tmp_path, model, {"x": random(*shapes[0]), "z": positive(*shapes[1])}, 1)


@pytest.mark.parametrize("opset", [13, onnx.defs.onnx_opset_version()])
@pytest.mark.parametrize("case", range(12))
def test_other_operators(tmp_path: Path, case: int, opset: int) -> None:
    node = helper.make_node
    cases: list[tuple[Any, dict[str, tuple[int, ...]], dict[str, Any]]] = [
        (node("Gemm", ["x", "w", "c"], ["y"], transB=1), {"x": (3, 4)}, {"w": random(5, 4), "c": random(5)}),
        (
            node("Gemm", ["x", "w", "c"], ["y"], transA=1, alpha=0.5, beta=2.0),
            {"x": (4, 3)},
            {"w": random(4, 5), "c": random(3, 1)},
        ),
        (node("MatMul", ["x", "w"], ["y"]), {"x": (2, 3, 4)}, {"w": random(4, 5)}),
        (node("MatMul", ["x", "w"], ["y"]), {"x": (2, 1, 3, 4), "w": (6, 4, 5)}, {}),
        (node("MatMul", ["x", "w"], ["y"]), {"x": (4, 5), "w": (2, 5, 3)}, {}),
        (node("Softmax", ["x"], ["y"], axis=1), {"x": (2, 5, 3)}, {}),
        (node("Softmax", ["x"], ["y"]), {"x": (2, 5)}, {}),
        (
            node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"]),
            {"x": (2, 3, 4, 4)},
            {"g": random(3), "b": random(3), "m": random(3), "v": positive(3)},
        ),
        (node("Sum", ["x", "z", "w"], ["y"]), {"x": (2, 3), "z": (3,), "w": (2, 1)}, {}),
        (node("Clip", ["x", "l", "h"], ["y"]), {"x": (3, 4)}, {"l": np.float32(-0.3), "h": np.float32(0.4)}),
        (node("Pow", ["x", "e"], ["y"]), {"x": (3, 4)}, {"e": np.float32(2.0)}),
        (node("ReduceMax", ["x"], ["y"], keepdims=1), {"x": (3, 4)}, {}),
    ]
    made, inputs, constants = cases[case]
    if made.op_type == "BatchNormalization" and opset < 14:
        pytest.skip("the reference of onnx 1.23 mixes in the statistics of the batch; the next test has its equation")
    agree(
        tmp_path, network_of([made], inputs, constants, ["y"], opset), {name: random(*shape) for name, shape in inputs.items()}, 1
    )


def test_batch_norms_of_old_models(tmp_path: Path) -> None:
    """y = gain (x - mean) / sqrt(variance + epsilon) + bias, with the stored statistics, as in operators before version 14."""
    x, g, b, m, v = random(2, 3, 4), random(3), random(3), random(3), positive(3)
    node = helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], epsilon=0.01, momentum=0.9)
    model = network_of([node], {"x": x.shape}, {"g": g, "b": b, "m": m, "v": v}, ["y"], 9)
    network = import_onnx(saved(tmp_path, model))
    found = run_network(onnx, model, network, {"x": x})["y"]
    g, b, m, v = (array[:, None] for array in (g, b, m, v))
    np.testing.assert_allclose(found, g * (x - m) / np.sqrt(v + 0.01) + b, rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk->ki", [(3, 4), (4, 5)]),
        ("ij,j->i", [(3, 4), (4,)]),
        ("ij,k->jk", [(3, 4), (5,)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),
        ("ijk->kj", [(3, 4, 5)]),
        ("ij->ji", [(3, 4)]),
    ],
)
def test_einsums(tmp_path: Path, equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = ["x", "w"][: len(shapes)]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    model = network_of([node], dict(zip(names, shapes, strict=True)), {}, ["y"], 13)
    agree(tmp_path, model, {name: random(*shape) for name, shape in zip(names, shapes, strict=True)}, 1)


@pytest.mark.parametrize("equation", ["ii->i", "...ij->...ji", "ij->", "ij,jk,kl->il", "ij", "ij->iq"])
def test_einsums_that_are_not_imported(tmp_path: Path, equation: str) -> None:
    count = equation.count(",") + 1
    names = ["x", "w", "v"][:count]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    model = network_of([node], dict.fromkeys(names, (3, 3)), {}, ["y"], 13)
    try:
        network = import_onnx(saved(tmp_path, model))
    except BadInput:
        return
    assert network.layers == ()
    assert [item.operator for item in network.left_out] == ["Einsum"]


ATTENTION: list[tuple[list[tuple[int, ...]], dict[str, Any], int]] = [
    ([(2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)], {}, 2 * 2 * 5 * 5 * (4 + 4)),
    ([(2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)], {"is_causal": 1, "scale": 0.3}, 2 * 2 * 5 * 5 * (4 + 4)),
    ([(1, 4, 3, 4), (1, 2, 6, 4), (1, 2, 6, 5)], {}, 4 * 3 * 6 * (4 + 5)),
    ([(2, 5, 12), (2, 5, 6), (2, 5, 6)], {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, 2 * 4 * 5 * 5 * (3 + 3)),
    ([(1, 1, 4), (1, 7, 4), (1, 7, 4)], {"q_num_heads": 1, "kv_num_heads": 1}, 7 * (4 + 4)),
]
"""Shapes of queries, keys and values, attributes, and multiply-accumulates."""


@pytest.mark.parametrize(("shapes", "attributes", "macs"), ATTENTION)
def test_attention(tmp_path: Path, shapes: list[tuple[int, ...]], attributes: dict[str, Any], macs: int) -> None:
    inputs = dict(zip(("q", "k", "v"), shapes, strict=True))
    model = network_of([helper.make_node("Attention", list(inputs), ["y"], **attributes)], inputs, {}, ["y"], 23)
    network = agree(tmp_path, model, {name: random(*shape) for name, shape in inputs.items()}, 1)
    assert network.macs == macs


@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (1, 4, 5)])
def test_norms_of_channels(tmp_path: Path, shape: tuple[int, ...]) -> None:
    node = helper.make_node("InstanceNormalization", ["x", "g", "b"], ["y"], epsilon=1e-3)
    constants = {"g": random(shape[1]), "b": random(shape[1])}
    agree(tmp_path, network_of([node], {"x": shape}, constants, ["y"], 22), {"x": random(*shape)}, 1)


def test_norms(tmp_path: Path) -> None:
    constants = {"g": random(6), "b": random(6)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["a"], axis=-1, epsilon=1e-3),
        helper.make_node("RMSNormalization", ["a", "g"], ["c"], epsilon=1e-3),
        helper.make_node("Gelu", ["c"], ["y"], approximate="tanh"),
        helper.make_node("Swish", ["y"], ["s"]),
        helper.make_node("ReduceMean", ["s", "axes"], ["z"], keepdims=0),
    ]
    model = network_of(nodes, {"x": (2, 3, 6)}, constants | {"axes": np.array([0, 2])}, ["z"], 24)
    agree(tmp_path, model, {"x": random(2, 3, 6)}, 5)


SQUARE = {"two": np.array(2.0, np.float32), "eps": np.array(1e-3, np.float32), "one": np.array(1.0, np.float32)}
MEAN = [("ReduceMean", "x last", "m"), ("Sub", "x m", "d")]
RMS = [("Pow", "d two", "s"), ("ReduceMean", "s last", "v"), ("Add", "v eps", "e"), ("Sqrt", "e", "r")]
GAIN = [("Mul", "q g", "y")]
STEPS = {
    "layer norm": ([*MEAN, *RMS, ("Div", "d r", "q"), *GAIN, ("Add", "y b", "z")], ["LayerNormalization"]),
    "layer norm, factors turned": ([*MEAN, *RMS, ("Div", "d r", "q"), ("Mul", "g q", "y"), ("Add", "b y", "z")],
                                   ["LayerNormalization"]),
    "no bias": ([*MEAN, *RMS, ("Div", "d r", "q"), *GAIN, ("Relu", "y", "z")],
                ["ReduceMean", "Sub", "RMSNormalization", "Relu"]),
    "rms norm": ([("Relu", "x", "d"), *RMS, ("Div", "d r", "q"), *GAIN, ("Add", "y d", "z")],
                 ["Relu", "RMSNormalization", "Add"]),
    "by a reciprocal": ([("Relu", "x", "d"), *RMS, ("Reciprocal", "r", "i"), ("Mul", "d i", "q"), *GAIN, ("Relu", "y", "z")],
                        ["Relu", "RMSNormalization", "Relu"]),
    "by one over the root": ([("Relu", "x", "d"), *RMS, ("Div", "one r", "i"), ("Mul", "d i", "q"), *GAIN, ("Relu", "y", "z")],
                             ["Relu", "RMSNormalization", "Relu"]),
    "a product as the square": ([*MEAN, ("Mul", "d d", "s"), *RMS[1:], ("Div", "d r", "q"), *GAIN, ("Add", "y b", "z")],
                                ["LayerNormalization"]),
    "no gain": ([("Relu", "x", "d"), *RMS, ("Div", "d r", "z")], None),
    "turned upside down": ([("Relu", "x", "d"), *RMS, ("Div", "r d", "q"), *GAIN, ("Relu", "y", "z")], None),
    "the root read twice": ([("Relu", "x", "d"), *RMS, ("Div", "d r", "q"), *GAIN, ("Add", "y r", "z")], None),
    "of another tensor": ([*MEAN, *RMS, ("Div", "x r", "q"), *GAIN, ("Add", "y b", "z")], None),
    "of another dim": ([*MEAN, RMS[0], ("ReduceMean", "s first", "v"), *RMS[2:], ("Div", "d r", "q"), *GAIN,
                        ("Add", "y b", "z")], None),
    "another power": ([("Relu", "x", "d"), ("Pow", "d three", "s"), *RMS[1:], ("Div", "d r", "q"), *GAIN, ("Relu", "y", "z")],
                      None),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_norms_step_by_step(tmp_path: Path, name: str) -> None:
    """The steps of a norm are one layer, where they are one; its values are those of onnx's evaluator."""
    steps, operators = STEPS[name]
    constants = SQUARE | {"g": random(6), "b": random(6), "last": np.array([-1]), "first": np.array([0]), "three": np.float32(3)}
    used = {each for _, inputs, _ in steps for each in inputs.split()}
    nodes = [helper.make_node(operator, inputs.split(), [output]) for operator, inputs, output in steps]
    shape = (3, 6) if name == "of another dim" else (2, 3, 6)
    model = network_of(nodes, {"x": shape}, {key: value for key, value in constants.items() if key in used}, ["z"], 18)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    network = import_onnx(str(path))
    found = [node.operator for node in network.nodes]
    assert found == (operators or [operator for operator, _, _ in steps])
    feeds = {"x": 1 + random(*shape) ** 2}
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    if not network.left_out:
        np.testing.assert_allclose(run_network(onnx, model, network, feeds)["z"], expected, rtol=2e-5, atol=2e-5)
    assert not network.left_out or operators is None


def test_steps_that_onnx_does_not_define_are_no_norm(tmp_path: Path) -> None:
    """An operator of another domain, and attributes of an unknown type, which are not taken for left out."""
    steps, _ = STEPS["layer norm"]
    constants = {**SQUARE, "g": random(6), "b": random(6), "last": np.array([-1])}
    del constants["one"]
    for changed, told in (("Sqrt", "mine.Sqrt"), ("ReduceMean", "ReduceMean")):
        nodes = [helper.make_node(operator, inputs.split(), [output]) for operator, inputs, output in steps]
        model = network_of(nodes, {"x": (2, 3, 6)}, constants, ["z"], 18)
        for node in model.graph.node:
            if node.op_type == changed == "Sqrt":
                node.domain = "mine"
            elif node.op_type == changed:
                node.attribute.add(name="keepdims")
        model.opset_import.append(helper.make_opsetid("mine", 1))
        network = import_onnx(saved(tmp_path, model))
        assert "LayerNormalization" not in {node.operator for node in network.nodes}
        assert told in {item.operator for item in network.left_out}


def test_a_transformer_block(tmp_path: Path) -> None:
    """Attention with two heads from products, views and a softmax, which are one layer; then a feed-forward block. The shape of a
    view is computed."""
    node = helper.make_node
    constants = {"wqkv": random(8, 24), "wo": random(8, 8), "w1": random(8, 16), "b1": random(16), "w2": random(16, 8)}
    constants |= {"g": random(8), "b": random(8), "scale": np.float32(0.5), "heads": np.array([2, 5, 2, 4])}
    constants |= {"split": np.array([8, 8, 8]), "one": np.array([0]), "two": np.array([1]), "flat": np.array([-1, 8])}
    nodes = [
        node("LayerNormalization", ["x", "g", "b"], ["n"]),
        node("MatMul", ["n", "wqkv"], ["qkv"]),
        node("Split", ["qkv", "split"], ["q", "k", "v"], axis=-1),
        *(node("Reshape", [name, "heads"], [f"{name}r"]) for name in "qkv"),
        node("Transpose", ["qr"], ["qt"], perm=[0, 2, 1, 3]),
        node("Transpose", ["kr"], ["kt"], perm=[0, 2, 3, 1]),
        node("Transpose", ["vr"], ["vt"], perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], ["s"]),
        node("Mul", ["s", "scale"], ["ss"]),
        node("Softmax", ["ss"], ["p"]),
        node("MatMul", ["p", "vt"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Shape", ["x"], ["shape"]),
        node("Reshape", ["ot", "shape"], ["of"]),
        node("MatMul", ["of", "wo"], ["a"]),
        node("Add", ["x", "a"], ["r"]),
        node("MatMul", ["r", "w1"], ["h1"]),
        node("Add", ["h1", "b1"], ["h2"]),
        node("Relu", ["h2"], ["h3"]),
        node("MatMul", ["h3", "w2"], ["h4"]),
        node("Add", ["r", "h4"], ["y"]),
    ]
    network = agree(tmp_path, network_of(nodes, {"x": (2, 5, 8)}, constants, ["y"], 17), {"x": random(2, 5, 8)}, 9)
    assert network.macs == 10 * 8 * 24 + 2 * 2 * 2 * 5 * 5 * 4 + 10 * 8 * 8 + 2 * 10 * 8 * 16
    assert network.views == {"Split": 1, "Reshape": 4, "Transpose": 4}


@pytest.mark.medium
def test_a_small_residual_network(tmp_path: Path) -> None:
    """Convolutions, norms, a residual sum, concatenation and pools, as in the networks of the package."""
    node = helper.make_node
    constants: dict[str, Any] = {
        "w1": random(4, 3, 3, 3),
        "w2": random(4, 4, 3, 3),
        "w3": random(4, 2, 1, 1),
        "fc": random(5, 8),
        "c": random(5),
    }
    constants |= {f"{part}{place}": positive(4) for part in "gbmv" for place in (1, 2)}
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "g1", "b1", "m1", "v1"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c2", "g2", "b2", "m2", "v2"], ["n2"]),
        node("Sum", ["n2", "r1"], ["s"]),
        node("MaxPool", ["s"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p", "w3"], ["d"], group=2),
        node("Concat", ["p", "d"], ["cat"], axis=1),
        node("GlobalAveragePool", ["cat"], ["gap"]),
        node("Flatten", ["gap"], ["flat"]),
        node("Gemm", ["flat", "fc", "c"], ["logits"], transB=1),
        node("Softmax", ["logits"], ["y"]),
    ]
    agree(tmp_path, network_of(nodes, {"x": (1, 3, 16, 16)}, constants, ["y"], 15), {"x": random(1, 3, 16, 16)}, 11)


# --- what is no layer, and files that are wrong ------------------------------------------------------------------------------


def saved(folder: Path, model: Any) -> str:
    path = folder / "net.onnx"
    onnx.save(model, path)
    return str(path)


def test_what_is_no_layer_is_listed_with_its_bytes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Erf", ["x"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Cos", ["b"], ["c"]),
        helper.make_node("Fancy", ["c"], ["d"], domain="com.example"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = network_of(nodes, {"x": (4, 8)}, {}, ["y"], 20)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    network = import_onnx(saved(tmp_path, model))
    left = {item.operator: item for item in network.left_out}
    assert (left["Erf"].count, left["Erf"].bytes) == (2, 2 * 2 * 4 * 8 * 4)
    assert "without a lowering" in left["Cos"].reason
    assert "another domain" in left["com.example.Fancy"].reason
    assert [layer.name for layer in network.layers] == ["relu-1"]


def test_named_dims_need_an_extent(tmp_path: Path) -> None:
    model = network_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("batch", "seq", 8)}, {}, ["y"], 13)  # type: ignore[dict-item]
    path = saved(tmp_path, model)
    with pytest.raises(BadInput) as caught:
        import_onnx(path, {"sek": 4})
    for said in ("add --dim batch=NUMBER", "add --dim seq=NUMBER", "did you mean 'seq'?"):
        assert said in str(caught.value)
    network = import_onnx(path, {"batch": 2, "seq": 4})
    assert network.layers[0].workload.dims == {"i": 64}


def test_functions_of_the_file_are_inlined(tmp_path: Path) -> None:
    own = helper.make_function(
        "own", "Twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    model = network_of([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": (3, 4)}, {}, ["y"], 17)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.append(own)
    model.graph.output[0].CopyFrom(value("y", (3, 4)))
    assert [layer.operator for layer in import_onnx(saved(tmp_path, model)).layers] == ["Add"]


def test_files_that_are_no_network(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for content in (b"", b"\x00" * 100, b"not onnx", RANDOM.bytes(5000)):
        path.write_bytes(content)
        with pytest.raises(BadInput):
            import_onnx(str(path))
    for place in (str(tmp_path), str(tmp_path / "none.onnx"), "\0.onnx"):
        with pytest.raises(BadInput):
            import_onnx(place)


def test_files_with_wrong_bytes(tmp_path: Path) -> None:
    """A file with bytes changed or cut off: an import or a fault, never another exception."""
    constants = {"w": random(4, 3, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2]),
    ]
    good = network_of(nodes, {"x": (1, 3, 8, 8)}, constants, ["y"], 13).SerializeToString()
    path = tmp_path / "net.onnx"
    for _ in range(60):
        content = bytearray(good)
        for place in RANDOM.integers(0, len(content), 3):
            content[place] = RANDOM.integers(0, 256)
        path.write_bytes(bytes(content[: RANDOM.integers(len(content) // 2, len(content) + 1)]))
        try:
            import_onnx(str(path))
        except BadInput:
            continue


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Conv", {"strides": [0, 1]}),
        ("Conv", {"pads": [-1, 0, 0, 0]}),
        ("Conv", {"group": 7}),
        ("Conv", {"strides": [1]}),
        ("Conv", {"dilations": [10**12, 1]}),
        ("Conv", {"pads": [10**15, 0, 0, 0]}),
    ],
)
def test_attributes_that_are_wrong(tmp_path: Path, operator: str, attributes: dict[str, Any]) -> None:
    node = helper.make_node(operator, ["x", "w"], ["y"], **attributes)
    model = network_of([node], {"x": (1, 3, 8, 8)}, {"w": random(4, 3, 3, 3)}, ["y"], 13)
    try:
        network = import_onnx(saved(tmp_path, model))
    except BadInput:
        return
    assert network.layers == ()
    assert network.left_out


# --- the command line -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(empty_folder: Path) -> str:
    constants = {"w": random(4, 3, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Erf", ["c"], ["y"]),
    ]
    return saved(empty_folder, network_of(nodes, {"x": (1, 3, 6, 6)}, constants, ["y"], 13))


def test_import_prints_layers_and_what_is_none(small: str) -> None:
    found = halley("import", "net.onnx", width=200)
    assert found.code == 0, found.err
    for said in ("conv-1", "relu-1", "Erf", "an operator without a lowering", "3,888"):
        assert said in found.out
    document = halley("import", "net.onnx", "--json").json
    assert document["macs"] == 36 * 4 * 27
    assert [layer["count"] for layer in document["layers"]] == [1, 2]
    assert halley("import", "net.onnx", "-o", "x.yaml").code == 1


@pytest.mark.medium
def test_the_commands_of_the_page_run(small: str) -> None:
    """`docs/how-to/import-onnx.md`, with a small network."""
    page = (Path(__file__).parents[2] / "docs/how-to/import-onnx.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("$ ")]
    assert len(lines) == 4
    for line in lines:
        sign, program, *words = shlex.split(line)
        assert (sign, program) == ("$", "halley")
        found = halley(*words)
        assert found.code in (0, 3), f"{line}\n{found.err}"  # 3: a limit of time on a busy machine


def test_the_page_lists_the_operators() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/import-onnx.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    assert {word for row in rows for word in re.findall(r"`([A-Z][A-Za-z]+)`", row)} == {*LOWERINGS, *VIEWS}


@pytest.mark.medium
def test_a_whole_network_on_one_chip(small: str) -> None:
    words = ("--dtype", "bf16", "--chip", "edge", "--time-limit", "4s")
    found = halley("optimise", "net.onnx", *words, "-o", "net.json", width=200)
    assert found.code in (0, 3), found.err
    for said in (
        "conv-relu-relu-1",
        "distinct layers",
        "2 elementwise operators are part of the layer before",
        "not imported, beside these totals: ",
    ):
        assert said in found.out
    separate = halley("optimise", "net.onnx", *words, "--separate", "-o", "separate.json", width=200)
    assert separate.code in (0, 3), separate.err
    assert "conv-1" in separate.out
    assert "relu-1" in separate.out
    assert "elementwise operators" not in separate.out
    document = json.loads(Path("net.json").read_text())
    nodes = [len(layer["nodes"]) for layer in document["question"]["network"]["layers"]]
    solutions = [layer["best"] for layer in document["answer"]["layers"]]
    times = [count * best["estimate"]["time_s"] for count, best in zip(nodes, solutions, strict=True)]
    assert document["answer"]["time_s"] == pytest.approx(sum(times))
    assert 0 < document["certificate"]["bound"] <= document["certificate"]["value"] * (1 + 1e-9)


# --- elementwise operators as part of the layer before them -------------------------------------------------------------------


def joined(folder: Path, nodes: list[Any], inputs: dict[str, tuple[int, ...]], constants: dict[str, Any], *outputs: str) -> Any:
    """The network with elementwise operators in the layers before them; executed, it gives what the file gives."""
    feeds = {name: random(*shape) for name, shape in inputs.items()}
    return fused(agree(folder, network_of(nodes, inputs, constants, list(outputs), 17), feeds))


def operators(network: Any) -> list[str]:
    return [node.operator for node in network.nodes if node.lowered]


def channels(*names: str) -> dict[str, Any]:
    return {name: positive(4) for name in names}


def test_a_norm_in_inference_goes_into_the_weights(tmp_path: Path) -> None:
    """Convolution, norm, the scale and the shift of older exports, the sum with the shortcut, ReLU: what remains is the product
    with one vector added, the sum and the ReLU."""
    node = helper.make_node
    constants = channels(*"gbmv") | {"w": random(4, 4, 3, 3), "c": random(4, 1, 1), "d": random(4, 1, 1)}
    for bias in ([], ["e"]):
        nodes = [
            node("Conv", ["x", "w", *bias], ["a"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", *"gbmv"], ["n"]),
            node("Mul", ["n", "c"], ["s"]),
            node("Add", ["d", "s"], ["t"]),
            node("Sum", ["x", "t"], ["u"]),
            node("Relu", ["u"], ["y"]),
        ]
        made = joined(tmp_path, nodes, {"x": (1, 4, 5, 6)}, constants | {"e": random(4)}, "y")
        assert operators(made) == ["Conv+BatchNormalization+Mul+Add+Sum+Relu"]
        lowered = made.nodes[-1].lowered
        made_of = [re.sub(r".* = (?:(\w+)\(.*|.*( \*) .*)", r"\1\2", line).strip() for line in lowered.lines if "=" in line]
        assert made_of == ["*", "add", "add", "relu"]
        assert lowered.lines[1].startswith("Y1[f,p0,p1]" if bias else "Y[f,p0,p1]")


@pytest.mark.parametrize(
    ("operator", "shape", "weights", "attributes"),
    [
        ("Conv", (2, 4, 5, 6), (4, 4, 1, 1), {}),
        ("Conv", (1, 4, 5, 6), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
        ("Conv", (2, 4, 5, 6), (4, 2, 2, 3), {"group": 2, "strides": [1, 2]}),
        ("Conv", (1, 4, 7), (4, 4, 3), {}),
    ],
)
@pytest.mark.parametrize("behind", ["norm", "scale", "shift", "relu"])
def test_what_may_stand_behind_a_convolution(
    tmp_path: Path, operator: str, shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], behind: str
) -> None:
    node, column = helper.make_node, (4, *(1,) * (len(shape) - 2))
    follows = {
        "norm": node("BatchNormalization", ["a", *"gbmv"], ["n"]),
        "scale": node("Mul", ["a", "c"], ["n"]),
        "shift": node("Add", ["c", "a"], ["n"]),
        "relu": node("Relu", ["a"], ["n"]),
    }
    nodes = [node(operator, ["x", "w"], ["a"], **attributes), follows[behind], node("Sigmoid", ["n"], ["y"])]
    constants = channels(*"gbmv") | {"w": random(*weights), "c": random(*column)}
    made = joined(tmp_path, nodes, {"x": shape}, constants, "y")
    assert len(operators(made)) == 1


def test_what_others_read_stays_a_result(tmp_path: Path) -> None:
    """A value that two layers read, or that the network returns, is written to the outermost memory: nothing follows it there."""
    node = helper.make_node
    constants = {"w": random(4, 4, 1, 1)}
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Conv", ["b", "w"], ["c"])]
    twice = [*nodes, node("MaxPool", ["a"], ["d"], kernel_shape=[2, 2])]
    assert operators(joined(tmp_path, twice, {"x": (1, 4, 5, 6)}, constants, "c", "d")) == ["Conv", "Relu", "Conv", "MaxPool"]
    path = saved(tmp_path, network_of(nodes, {"x": (1, 4, 5, 6)}, constants, ["a", "c"], 17))
    assert operators(fused(import_onnx(path))) == ["Conv", "Relu", "Conv"]
    path = saved(tmp_path, network_of(nodes, {"x": (1, 4, 5, 6)}, constants, ["c"], 17))
    assert operators(fused(import_onnx(path))) == ["Conv+Relu", "Conv"]


def test_a_function_of_several_steps_is_one_layer(tmp_path: Path) -> None:
    """x tanh(x): the product reads the result of the convolution and what follows from it. x sigmoid(x) is a function."""
    node = helper.make_node
    constants = channels(*"gbmv") | {"w": random(4, 4, 1, 1)}
    for name, expected in (("Tanh", "Tanh+Mul"), ("Sigmoid", "Swish")):
        nodes = [
            node("Conv", ["x", "w"], ["a"]),
            node("BatchNormalization", ["a", *"gbmv"], ["n"]),
            node(name, ["n"], ["s"]),
            node("Mul", ["n", "s"], ["y"]),
        ]
        made = joined(tmp_path, nodes, {"x": (1, 4, 5, 6)}, constants, "y")
        assert operators(made) == [f"Conv+BatchNormalization+{expected}"]


def test_weights_that_are_inputs_are_not_scaled_ahead(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["a"]), node("BatchNormalization", ["a", *"gbmv"], ["y"])]
    made = joined(tmp_path, nodes, {"x": (1, 4, 5, 6), "w": (4, 4, 1, 1)}, channels(*"gbmv"), "y")
    lowered = made.nodes[-1].lowered
    assert [line.split("[")[0] for line in lowered.ahead] == ["r_1"]
    assert "normalise_affine" in lowered.lines[-1]


def test_broadcasts_and_other_shapes_stay_apart(tmp_path: Path) -> None:
    """A sum that repeats the result along a new dim, and a function behind a transposition, are layers of their own."""
    node = helper.make_node
    constants = {"w": random(6, 4), "e": random(3, 1, 1)}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "e"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
        node("Relu", ["c"], ["y"]),
    ]
    assert operators(joined(tmp_path, nodes, {"x": (5, 6)}, constants, "y")) == ["MatMul", "Add", "Relu"]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_package_with_joined_layers(name: str) -> None:
    """The same multiply-accumulates with fewer layers, and no more bytes; each layer's nodes are those of the file."""
    network = import_onnx(str(LIGHT / f"light_{name}.onnx"), dtype="bf16")
    made = fused(network)
    assert made.macs == network.macs
    assert made.bytes < network.bytes
    assert sorted(word for each in operators(made) for word in each.split("+")) == sorted(operators(network))
    assert not [
        node
        for node in made.nodes
        if node.operator in ("Relu", "BatchNormalization") and name not in ("densenet121", "shufflenet")
    ]


@pytest.mark.medium
def test_joined_layers_take_less_time(tmp_path: Path) -> None:
    """The best mapping of the joined layer takes no longer than those of its parts, one after the other."""
    node = helper.make_node
    constants = channels(*"gbmv") | {"w": random(4, 4, 1, 1)}
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("BatchNormalization", ["a", *"gbmv"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    network = import_onnx(saved(tmp_path, network_of(nodes, {"x": (1, 4, 16, 16)}, constants, ["y"], 17)), dtype="bf16")

    def times(layers: Any) -> list[float]:
        chip = load_chip("edge")
        found = [optimise(Problem(layer.workload, chip, time_limit=60.0, baselines=False)) for layer in layers]
        assert all(result.best.certificate.gap == 0 for result in found)
        return [result.best.estimate.time for result in found]

    (one,), parts = times(fused(network).layers), times(network.layers)
    assert one < 0.6 * sum(parts)


def test_one_layer_of_a_network(small: str) -> None:
    words = ("--chip", "edge", "--no-baselines", "--no-save", "--time-limit", "10s", "--json")
    found = halley("optimise", "net.onnx", "--layer", "relu-1", *words)
    assert found.code == 0, found.err
    fp32 = halley("optimise", "net.onnx", "--chip", "edge")
    assert "expected an engine for products in fp32; got " in fp32.err
    both = halley("optimise", "net.onnx", "--layer", "conv-relu-relu-1", "--dtype", "bf16", *words)
    assert both.json["question"]["workload"]["kind"] == "graph", both.err
    wrong = halley("optimise", "net.onnx", "--layer", "relu-2", *words)
    assert "did you mean 'relu-1'?" in wrong.err


# --- several nodes as one layer -----------------------------------------------------------------------------------------------

HALF, ROOT, ONE = np.float32(0.5), np.float32(np.sqrt(2)), np.float32(1)
GELUS: dict[str, list[tuple[str, list[str], str]]] = {
    "x(1 + erf)/2": [("Div", ["x", "root"], "a"), ("Erf", ["a"], "b"), ("Add", ["b", "one"], "c"), ("Mul", ["x", "c"], "d"),
                     ("Mul", ["d", "half"], "y")],
    "(x/2)(1 + erf)": [("Mul", ["x", "half"], "h"), ("Mul", ["x", "inverse"], "a"), ("Erf", ["a"], "b"),
                       ("Add", ["one", "b"], "c"), ("Mul", ["h", "c"], "y")],
    "x((1 + erf)/2)": [("Div", ["x", "root"], "a"), ("Erf", ["a"], "b"), ("Add", ["b", "one"], "c"), ("Mul", ["half", "c"], "d"),
                       ("Mul", ["d", "x"], "y")],
}  # fmt: skip
"""Ways to write GELU."""


@pytest.mark.parametrize("name", GELUS)
@pytest.mark.parametrize("read", [False, True])
def test_gelu_by_the_error_function(tmp_path: Path, name: str, read: bool) -> None:
    """One layer, however it is written; no layer where another node reads a value between the steps."""
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in GELUS[name]]
    outputs = ["y", "b"] if read else ["y"]
    constants = {"root": ROOT, "inverse": np.float32(1 / ROOT), "half": HALF, "one": ONE}
    model = network_of(nodes, {"x": (3, 4)}, constants, outputs, 17)
    if read:
        assert [item.operator for item in import_onnx(saved(tmp_path, model)).left_out] == ["Erf"]
        return
    network = agree(tmp_path, model, {"x": random(3, 4)}, 1)
    assert network.layers[0].operator == "Gelu"


@pytest.mark.parametrize("changed", ["half", "root", "one"])
def test_other_formulas_are_no_gelu(tmp_path: Path, changed: str) -> None:
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in GELUS["x(1 + erf)/2"]]
    constants = {"root": ROOT, "inverse": ONE, "half": HALF, "one": ONE} | {changed: np.float32(0.7)}
    network = import_onnx(saved(tmp_path, network_of(nodes, {"x": (3, 4)}, constants, ["y"], 17)))
    assert "Gelu" not in {layer.operator for layer in network.layers}


def scores(scale: bool, mask: str, repeated: bool, turned: bool) -> tuple[list[Any], dict[str, tuple[int, ...]], dict[str, Any]]:
    """Nodes of an attention of 4 heads of 5 queries and keys, its inputs and constants."""
    node = helper.make_node
    inputs = {"q": (1, 4, 5, 3), "k": (1, 2, 5, 3) if repeated else (1, 4, 5, 3), "v": (1, 2, 5, 3) if repeated else (1, 4, 5, 3)}
    causal = np.where(np.tril(np.ones((5, 5))), 0, -np.inf).astype(np.float32)
    constants: dict[str, Any] = {"c": np.float32(0.4), "causal": causal, "axis": np.array([2]), "wide": np.array([1, 2, 2, 5, 3])}
    constants |= {"whole": np.array([1, 4, 5, 3])}
    nodes, keys, values, now = [], "k", "v", "s"
    if repeated:
        for name in "kv":
            nodes += [node("Unsqueeze", [name, "axis"], [f"{name}1"]), node("Expand", [f"{name}1", "wide"], [f"{name}2"])]
            nodes += [node("Reshape", [f"{name}2", "whole"], [f"{name}3"])]
        keys, values = "k3", "v3"
    if turned:
        inputs["k"] = (1, 4, 3, 5)
    else:
        nodes.append(node("Transpose", [keys], ["kt"], perm=[0, 1, 3, 2]))
        keys = "kt"
    nodes.append(node("MatMul", ["q", keys], ["s"]))
    if scale:
        nodes.append(node("Mul", ["c", "s"], ["t"]))
        now = "t"
    if mask:
        if mask == "m":
            inputs["m"] = (1, 1, 5, 5)
        nodes.append(node("Add", [now, mask], ["u"]))
        now = "u"
    return [*nodes, node("Softmax", [now], ["p"], axis=-1), node("MatMul", ["p", values], ["y"])], inputs, constants


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("mask", ["", "m", "causal"])
@pytest.mark.parametrize(("repeated", "turned"), [(False, False), (True, False), (False, True)])
def test_attention_step_by_step(tmp_path: Path, scale: bool, mask: str, repeated: bool, turned: bool) -> None:
    nodes, inputs, constants = scores(scale, mask, repeated, turned)
    model = network_of(nodes, inputs, constants, ["y"], 17)
    network = agree(tmp_path, model, {name: random(*shape) for name, shape in inputs.items()}, 1)
    (layer,) = network.layers
    assert layer.operator == "Attention"
    assert layer.macs == 2 * 4 * 5 * 5 * 3
    assert layer.bytes == 4 * (4 + 4 + (2 + 2 if repeated else 4 + 4)) * 15 + (4 * 25 if mask == "m" else 0)
    assert ("scale_mask" in str(layer.workload.parameters["lines"])) == (mask == "causal")


@pytest.mark.parametrize("read", ["s", "p", "scaled mask"])
def test_what_is_no_attention_of_one_layer(tmp_path: Path, read: str) -> None:
    """Another node reads the scores or the shares; the mask is scaled, too."""
    nodes, inputs, constants = scores(True, "", False, False)
    if read == "scaled mask":
        nodes[1:3] = [nodes[1], helper.make_node("Add", ["s", "causal"], ["a"]), helper.make_node("Mul", ["a", "c"], ["t"])]
    model = network_of(nodes, inputs, constants, ["y"] if " " in read else ["y", read], 17)
    network = import_onnx(saved(tmp_path, model))
    assert {layer.operator for layer in network.layers} >= {"MatMul", "Softmax"}


@pytest.mark.parametrize("kind", ["numbers", "truths", "heads"])
def test_attention_with_a_mask(tmp_path: Path, kind: str) -> None:
    """The operator of version 23."""
    shape = (2, 4, 5, 6) if kind == "heads" else (5, 6)
    mask: Any = np.tril(np.ones(shape, bool)) if kind == "truths" else random(*shape)
    inputs = {"q": (2, 4, 5, 3), "k": (2, 2, 6, 3), "v": (2, 2, 6, 3)}
    model = network_of([helper.make_node("Attention", [*inputs, "m"], ["y"])], inputs, {"m": mask}, ["y"], 23)
    network = agree(tmp_path, model, {name: random(*shape) for name, shape in inputs.items()}, 1)
    assert network.remarks == ("1 attentions read a mask: none of its tiles is skipped",)


def test_a_product_with_a_bias_is_one_layer(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["b", "a"], ["y"])]
    model = network_of(nodes, {"x": (2, 3, 4)}, {"w": random(4, 5), "b": random(5)}, ["y"], 17)
    (layer,) = agree(tmp_path, model, {"x": random(2, 3, 4)}, 1).layers
    assert layer.bytes == 4 * (24 + 20 + 5 + 30)


def test_rows_of_a_table(tmp_path: Path) -> None:
    """An embedding reads the rows that are looked up; a choice by constant numbers is a view, one along another axis is none."""
    node, indices = helper.make_node, np.array([[3, 0, 7], [7, 7, 1]])
    model = network_of(
        [node("Gather", ["table", "i"], ["e"]), node("Relu", ["e"], ["y"])], {}, {"table": random(9, 4)}, ["y"], 17
    )
    model.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, (2, 3)))
    network = agree(tmp_path, model, {"i": indices}, 2)
    assert network.dtype == "fp32"
    assert network.layers[0].bytes == 2 * 4 * 6 * 4
    assert operators(fused(network)) == ["Gather+Relu"]
    nodes = [node("Gather", ["x", "one"], ["e"], axis=1), node("Relu", ["e"], ["y"])]
    assert agree(
        tmp_path, network_of(nodes, {"x": (2, 3, 4)}, {"one": np.array(1)}, ["y"], 17), {"x": random(2, 3, 4)}, 1
    ).views == {"Gather": 1}
    model = network_of([node("Gather", ["table", "i"], ["y"], axis=1)], {}, {"table": random(9, 4)}, ["y"], 17)
    model.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, (2,)))
    assert "along another axis" in import_onnx(saved(tmp_path, model)).left_out[0].reason


def test_views_that_keep_the_order_may_be_between_the_parts_of_a_layer(tmp_path: Path) -> None:
    node = helper.make_node
    constants = {"w": random(4, 6), "shape": np.array([2, 3, 6]), "other": np.array([0, 2, 1])}
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Add", ["b", "z"], ["c"]),
        node("Identity", ["c"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    inputs = {"x": (6, 4), "z": (2, 3, 6)}
    assert operators(joined(tmp_path, nodes, inputs, constants, "y")) == ["MatMul+Add+Relu"]
    assert operators(joined(tmp_path, nodes, inputs, constants, "y", "b")) == ["MatMul", "Add+Relu"]
    nodes[1:3] = [node("Reshape", ["a", "shape"], ["b1"]), node("Transpose", ["b1"], ["b"], perm=[1, 0, 2])]
    nodes.insert(3, node("Add", ["b", "z"], ["c"]))
    assert operators(joined(tmp_path, nodes, inputs | {"z": (3, 2, 6)}, constants, "y")) == ["MatMul", "Add+Relu"]


@pytest.mark.parametrize("operator", ["Abs", "HardSigmoid", "HardSwish", "Softplus", "LogSoftmax"])
def test_more_functions_of_one_value(tmp_path: Path, operator: str) -> None:
    agree(tmp_path, network_of([helper.make_node(operator, ["x"], ["y"])], {"x": (3, 8)}, {}, ["y"], 22), {"x": random(3, 8)}, 1)


def test_norms_of_groups(tmp_path: Path) -> None:
    """As one operator, and as a norm of instances between reshapes."""
    node, x = helper.make_node, random(2, 4, 3, 3)
    constants = {"g": random(4), "b": random(4), "ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32)}
    constants |= {"seen": np.array([2, 2, -1]), "back": np.array([2, 4, 3, 3]), "gain": random(4, 1, 1), "bias": random(4, 1, 1)}
    steps = [
        node("Reshape", ["x", "seen"], ["a"]),
        node("InstanceNormalization", ["a", "ones", "zeros"], ["n"]),
        node("Reshape", ["n", "back"], ["r"]),
        node("Mul", ["r", "gain"], ["m"]),
        node("Add", ["m", "bias"], ["y"]),
    ]
    (layer,) = agree(tmp_path, network_of(steps, {"x": x.shape}, constants, ["y"], 17), {"x": x}, 1).layers
    assert (layer.operator, layer.bytes) == ("GroupNormalization", 4 * (2 * 72 + 8))
    one = network_of([node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=2)], {"x": x.shape}, constants, ["y"], 21)
    one.graph.output[0].CopyFrom(value("y", x.shape))
    (other,) = agree(tmp_path, one, {"x": x}, 1).layers
    assert other.workload == layer.workload


def test_norms_without_a_bias(tmp_path: Path) -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y"])
    agree(tmp_path, network_of([node], {"x": (3, 8)}, {"g": random(8)}, ["y"], 17), {"x": random(3, 8)}, 1)
    (layer,) = agree(
        tmp_path, network_of([node], {"x": (3, 8)}, {"g": np.ones(8, np.float32)}, ["y"], 17), {"x": random(3, 8)}, 1
    ).layers
    assert layer.bytes == 2 * 3 * 8 * 4


@pytest.mark.parametrize(
    ("taps", "attributes"), [((2, 2), {"strides": [2, 2]}), ((3, 2), {"strides": [3, 2]}), ((3,), {"strides": [3]})]
)
@pytest.mark.parametrize("biased", [True, False])
def test_transposed_convolutions(tmp_path: Path, taps: tuple[int, ...], attributes: dict[str, Any], biased: bool) -> None:
    shape = (2, 3, *(4, 5)[: len(taps)])
    node = helper.make_node("ConvTranspose", ["x", "w", *(["b"] if biased else [])], ["y"], **attributes)
    constants = {"w": random(3, 4, *taps), "b": random(4)}
    agree(tmp_path, network_of([node], {"x": shape}, constants, ["y"], 17), {"x": random(*shape)}, 1)


@pytest.mark.parametrize("attributes", [{}, {"strides": [2, 2], "pads": [0, 0, 1, 1]}, {"strides": [2, 2], "group": 3}])
def test_transposed_convolutions_that_overlap(tmp_path: Path, attributes: dict[str, Any]) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    model = network_of([node], {"x": (1, 3, 4, 4)}, {"w": random(3, 2, 2, 2)}, ["y"], 17)
    network = import_onnx(saved(tmp_path, model))
    assert network.layers == ()
    assert "transposed" in network.left_out[0].reason


@pytest.mark.parametrize(
    "steps",
    [
        [("Pow", ["x", "c"], "a"), ("Cast", ["a"], "b"), ("Cast", ["b"], "a")],
        [
            ("Mul", ["b", "x"], "a"),
            ("Mul", ["a", "c"], "b"),
            ("Erf", ["b"], "e"),
            ("Add", ["e", "c"], "d"),
            ("Mul", ["d", "a"], "z"),
        ],
        [("Mul", ["p", "c"], "q"), ("Mul", ["q", "c"], "p"), ("Softmax", ["p"], "s"), ("MatMul", ["s", "x"], "z")],
        [
            *(("Mul", [f"a{n}" if n else "x"] * 2, f"a{n + 1}") for n in range(20)),
            ("Erf", ["a20"], "e"),
            ("Mul", ["e", "c"], "z"),
        ],
        [("MatMul", ["x"], "s"), ("Softmax", ["s"], "p"), ("MatMul", ["p"], "z")],
    ],
)
def test_nodes_in_circles_and_without_inputs(tmp_path: Path, steps: list[tuple[str, list[str], str]]) -> None:
    """Files that are wrong: an import or a fault, and that at once."""
    nodes = [
        helper.make_node(operator, inputs, [output], **({"to": 1} if operator == "Cast" else {}))
        for operator, inputs, output in steps
    ]
    model = network_of([*nodes, helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 4, 4)}, {"c": np.float32(2)}, ["y"], 17)
    try:
        import_onnx(saved(tmp_path, model))
    except BadInput:
        return
