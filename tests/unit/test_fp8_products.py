"""Products of layers in FP8: which ones, what they cost with their casts, and that bounds hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.test_op_costs import LLAMA, MIXTURE

from halley.errors import BadInput
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.ir.mapping import CollectiveKind
from halley.kernels.machine import machine
from halley.kernels.times import Attention, Gemm, Stream
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import MeshAxis
from halley.training.op_costs import op_tasks
from halley.training.part_bounds import model_bound
from halley.training.part_costs import model_costs, training_graphs
from halley.training.part_solvers import CostTerms
from halley.workloads.transformer import Transformer

CHIP, FIT = machine(load_chip("h100")), load_chip_fit("a100").efficiency


def wire(kind: CollectiveKind, axes: tuple[str, ...], size: float) -> float:
    return 1e-6 + size / 1e11


def kernels(shape: Transformer, place: int, fused: bool = True) -> list[tuple[str, list[object]]]:
    graph = training_graphs(shape, 1, shape.sequence, Recompute.NONE, fused)[place]
    return [(op.name, [task.kernel for task in op_tasks(graph, op, {})]) for op in graph.workload.ops]


def test_products_with_weights_are_cast_and_no_others() -> None:
    """Two matrices of attention and three of the gated block (merged: queries, keys, values; gate and up), each with two
    gradients; scores, values and the head stay."""
    fp8 = replace(LLAMA, products="fp8")
    layer = [(name, found) for name, found in kernels(fp8, 1, fused=False) if any(isinstance(k, Gemm) for k in found)]
    types = {name: next(k.dtype for k in found if isinstance(k, Gemm)) for name, found in layer}
    assert {name for name, dtype in types.items() if dtype == "bf16"} >= {"scores", "values"}
    assert {types[name] for name in ("queries", "output", "gate", "down")} == {"fp8"}
    plain = dict(kernels(LLAMA, 1, fused=False))
    for name, found in layer:
        casts = len(found) - len(plain[name])
        forward = "_d_" not in name
        if types[name] == "bf16":
            assert casts == 0
        elif forward:
            assert casts == 1
    (product, cast) = next(found for name, found in layer if name == "down")
    assert isinstance(product, Gemm)
    assert isinstance(cast, Stream)
    assert (cast.points, cast.read, cast.written) == (128 * 512, 2 * 128 * 512, 2 * 128 * 512)
    assert kernels(fp8, 2) == kernels(LLAMA, 2)
    assert all(k.dtype != "fp8" for _, found in kernels(fp8, 1) for k in found if isinstance(k, Attention))


@pytest.mark.parametrize("shape", [LLAMA, MIXTURE])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_bounds_hold_and_large_layers_gain(shape: Transformer, recompute: Recompute) -> None:
    large = replace(shape, model=2048, heads=16, kv_heads=16, head_dim=128, hidden=8192, sequence=1024)
    times = []
    for products in ("", "fp8"):
        given = replace(large, products=products)
        found = model_costs(given, 1, 1024, CostTerms((MeshAxis("x", 2),), wire, CHIP, FIT), recompute)
        assert model_bound(given, 1, 1024, 2, CHIP, FIT, recompute).time <= found.time
        times.append(found.time)
    # small experts take longer: their products gain less than their casts cost
    assert 0.5 < times[1] / times[0] < (1.0 if shape is LLAMA else 1.1)


def test_words_that_are_no_types_are_refused() -> None:
    with pytest.raises(BadInput, match="products: expected bf16 or fp8; got 'fp4'"):
        replace(LLAMA, products="fp4")
    with pytest.raises(BadInput, match="a type that its matrix engine has"):
        model_costs(replace(LLAMA, products="fp8"), 1, 128, CostTerms((), wire, machine(load_chip("a100")), FIT))
