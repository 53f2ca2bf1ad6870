"""Dims of extent 1: a workload with one has the optimum of the workload without it, and the mapping found is one of the given
workload, of equal cost, with results equal to NumPy's."""

from __future__ import annotations

import pytest

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.space.unit_dims import without_unit_dims
from halley.rewrite.legality import faults
from halley.verify.mapping import execution_findings
from halley.workloads import build, graph


def product_and_map(m: int, k: int, f: int, lead: tuple[str, ...], function: str = "gelu_gradient") -> Workload:
    """A product and an elementwise op behind it, whose rows have ``lead`` dims of extent 1 before them."""
    dims = {**dict.fromkeys(lead, 1), "m": m, "k": k, "f": f}
    inner = {"G": ("m", "k"), "W": ("k", "f"), "D": ("m", "f"), "H": ("m", "f"), "Y": ("m", "f")}
    tensors = {name: Tensor(name, own if name == "W" else (*lead, *own)) for name, own in inner.items()}
    ops = (
        Op("product", OpKind.CONTRACT, ("G", "W"), ("D",), (*lead, "m", "f", "k"), "mul", "sum"),
        Op("gradient", OpKind.MAP, ("D", "H"), ("Y",), (*lead, "m", "f"), function),
    )
    return Workload("product-and-map", dims, tensors, ops, ("Y",), (("product",), ("gradient",)))


def best(work: Workload, chip: str) -> float:
    return float(optimise(Problem(work, load_chip(chip), baselines=False)).best.certificate.value)


@pytest.mark.medium
def test_the_optimum_is_that_without_them() -> None:
    """Before, it took 3 % longer: the product and the op behind it were not fused."""
    assert best(product_and_map(2048, 12288, 12288, ("b",)), "cloud") == best(product_and_map(2048, 12288, 12288, ()), "cloud")


@pytest.mark.medium
@pytest.mark.parametrize("lead", [("b",), ("b", "c")])
def test_the_mapping_is_one_of_the_given_workload(lead: tuple[str, ...]) -> None:
    chip, work = load_chip("edge"), product_and_map(12, 8, 16, lead)
    found = optimise(Problem(work, chip, baselines=False)).best
    assert not faults(found.plan, work, chip)
    assert float(evaluate(work, chip, found.plan).time) == pytest.approx(found.certificate.value, rel=1e-12)
    assert all(finding.passed for finding in execution_findings("best", work, chip, found.plan))


def exponentials(rows: int, columns: int) -> Workload:
    """One elementwise op, whose last dim may have one element."""
    dims = {"h": 2, "m": rows, "n": columns}
    tensors = {name: Tensor(name, tuple(dims)) for name in ("X", "Y")}
    return Workload("exponentials", dims, tensors, (Op("exp", OpKind.MAP, ("X",), ("Y",), tuple(dims), "exp"),), ("Y",))


@pytest.mark.parametrize("columns", [1, 5])
def test_a_last_dim_of_one_element_keeps_its_lane(columns: int) -> None:
    """Its value is that of the given workload: one lane works where the last dim has one element."""
    chip, work = load_chip("edge"), exponentials(4, columns)
    found = optimise(Problem(work, chip, baselines=False, fixed_variant=True)).best
    assert float(evaluate(work, chip, found.plan).time) == pytest.approx(found.certificate.value, rel=1e-12)
    assert "n" in without_unit_dims(work).dims


def test_dims_that_stay() -> None:
    """The only row dim of a product, one that a mask needs, one without a like in some op, and larger ones."""
    for work in (build("gemm", {"m": 1, "n": 8, "k": 8}), product_and_map(1, 8, 8, ()), product_and_map(2, 8, 8, ())):
        assert without_unit_dims(work) is work
    one = product_and_map(1, 8, 8, ("b",))
    assert without_unit_dims(one).dims in ({"m": 1, "k": 8, "f": 8}, {"b": 1, "k": 8, "f": 8})
    causal = build("attention", {"batch": 1, "heads": 2, "queries": 1, "keys": 8, "head_dim": 4, "causal": True})
    assert without_unit_dims(causal) is causal
    padded = build("conv", {"height": 1, "width": 8, "channels": 1, "filters": 1, "kernel": 3, "padding": 1})
    assert padded.indices
    assert without_unit_dims(padded) is padded


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("scatter-add", {"tokens": 3, "slots": 1, "width": 3}), ("embedding", {"tokens": 3, "vocabulary": 1, "width": 3})],
)
def test_dims_that_are_reached_by_index_stay(kind: str, sizes: dict[str, object]) -> None:
    """No op iterates them."""
    work, chip = build(kind, sizes), load_chip("edge")
    assert without_unit_dims(work) is work
    found = optimise(Problem(work, chip, baselines=False)).best
    assert all(finding.passed for finding in execution_findings("best", work, chip, found.plan))


@pytest.mark.parametrize("line", ["Z[m,p] = O[h,m,e] * W[h,e,p]", "Z[h,e,p] = O[h,e,m] * W[m,p]", "Z[m,h,e] = O[m,p] * W[p,h,e]"])
def test_the_dims_on_the_array_stay(line: str) -> None:
    """A mapping that names none has the last row, column and reduced dims there. The search took those of the workload without
    ``e``, and ended with an internal error."""
    chip, work = load_chip("edge"), graph(line, {"m": 2, "h": 2, "e": 1, "p": 2})
    found = optimise(Problem(work, chip, baselines=False)).best
    without = optimise(Problem(graph(line.replace("e,", "").replace(",e", ""), {"m": 2, "h": 2, "p": 2}), chip, baselines=False))
    assert found.certificate.value == pytest.approx(without.best.certificate.value, rel=1e-12)
    assert all(finding.passed for finding in execution_findings("best", work, chip, found.plan))


def test_dims_that_a_map_reorders_stay() -> None:
    """Without ``n`` the result had the dims of its input in their order, and the search overwrote it: an illegal plan."""
    chip, work = load_chip("edge"), graph("T[n,h,m] = X[h,n,m] * Y[n,h]", {"n": 1, "h": 1, "m": 5})
    assert without_unit_dims(work) is work
    found = optimise(Problem(work, chip, baselines=False)).best
    assert all(finding.passed for finding in execution_findings("best", work, chip, found.plan))
