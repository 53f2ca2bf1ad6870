"""Plans with searched kernels: the lazy search equals one that searches every kernel it is asked for; slower chips have slower
plans; files keep the mappings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from halley.answer import Status
from halley.answers.load import as_answer, load
from halley.errors import BadInput, Fault, SearchStopped
from halley.io.chips.load import load_chip
from halley.io.results.training import plan_document
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.mapping import Collective, Compute, walk
from halley.ir.system import System
from halley.ir.text import parse
from halley.kernels import search
from halley.kernels.groups import GroupKernel, GroupShape
from halley.kernels.machine import PEAK
from halley.kernels.searched import AnyKernel, AttentionShape, KernelCost, KernelShape, Product, SearchedKernels, shape_of
from halley.kernels.times import Array, Attention, Gemm, kernel_time
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.report.plans.op import op_text
from halley.rewrite.legality import faults
from halley.rewrite.recompute import Recompute
from halley.training.groups import fused_groups
from halley.training.op_mapping import op_mapping, ops_of_kernels
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search import joint
from halley.training.search.joint import best_joint_plan, plan_kernels, searched_in_plan
from halley.training.search.search import best_training_plan
from halley.verify.training import training_findings
from halley.workloads.transformer import Experts, Transformer

MODEL = Transformer(
    "small", layers=2, model=64, heads=2, kv_heads=2, head_dim=32, hidden=128, vocabulary=64, sequence=32, gated=False
)
FIXED = Fixed(fused=True, recompute=Recompute.NONE, microbatch=2)


def one_cluster(**figures: float) -> Chip:
    """The chip `edge` with one cluster, whose mappings are found faster; ``figures``: others for its memories."""
    chip = load_chip("edge")
    levels = []
    for level in chip.levels:
        network = level.network and replace(level.network, axes=tuple(replace(axis, size=1) for axis in level.network.axes))
        changed = figures if level.name == "cluster" else {}
        levels.append(replace(level, network=network, memories=tuple(replace(memory, **changed) for memory in level.memories)))
    return replace(chip, levels=tuple(levels))


def problem(chip: Chip) -> TrainingProblem:
    axes = (Axis("x", 2, Topology.SWITCH, Link(20e9, 1e-6)),)
    return TrainingProblem(MODEL, System("drawn", chip, axes), 4, MODEL.sequence, PEAK, fixed=FIXED)


class Eager(SearchedKernels):
    """Searches every product, group and attention core that it is asked for."""

    def times(self, kernel: AnyKernel) -> Array:
        if isinstance(kernel, GroupKernel):
            for row in set(zip(*(each.ravel().tolist() for each in np.broadcast_arrays(*kernel.extents)), strict=True)):
                group = GroupKernel(kernel.pattern, row).shape
                if group not in self.known:
                    self.search(group)
        if isinstance(kernel, Gemm) and not kernel.spread:
            extents = np.broadcast_arrays(kernel.rows, kernel.columns, kernel.depth, kernel.batch)
            for row in set(zip(*(each.ravel().tolist() for each in extents), strict=True)):
                product = Product(*map(int, row), kernel.dtype, kernel.result)
                if product not in self.known:
                    self.search(product)
        if isinstance(kernel, Attention) and not kernel.backward:
            names = ("queries", "keys", "heads", "kv_heads", "head_dim", "value_dim")
            extents = np.broadcast_arrays(*(getattr(kernel, name) for name in names))
            for row in set(zip(*(each.ravel().tolist() for each in extents), strict=True)):
                shape = shape_of(replace(kernel, **dict(zip(names, row, strict=True))))
                if shape is not None and shape not in self.known:
                    self.search(shape)
        return SearchedKernels.times(self, kernel)


@cache
def found() -> TrainingResult:
    return best_joint_plan(problem(one_cluster()))


@pytest.mark.medium
def test_products_of_the_plan_have_the_times_of_the_mapping_search() -> None:
    result = found()
    products = searched_in_plan(result)
    assert len(products) >= 8
    assert any(isinstance(shape, AttentionShape) for shape in products)
    for product, cost in products.items():
        alone = isinstance(product, GroupShape)
        best = optimise(Problem(product.workload, result.problem.chip, baselines=False, fixed_variant=alone)).best
        assert cost.time == best.certificate.value, product
    assert result.certificate.value == result.cost.time >= result.certificate.bound


@pytest.mark.medium
def test_no_library_time_is_used_for_a_product() -> None:
    result = found()
    by_formula = best_training_plan(replace(result.problem, searched=None), others=0)
    assert result.cost.time != pytest.approx(by_formula.cost.time, rel=1e-3)


@pytest.mark.slow
def test_lazy_equals_eager() -> None:
    result = found()
    eager = replace(result.problem, searched=Eager(result.problem.chip, dict(result.problem.searched.known)))
    again = best_training_plan(eager, others=0)
    assert result.problem.searched.known.keys() < eager.searched.known.keys()
    assert result.certificate.bound <= again.cost.time * (1 + 1e-9)
    assert result.cost.time == pytest.approx(again.cost.time, rel=max(result.certificate.gap, again.certificate.gap, 1e-9))


@pytest.mark.medium
@pytest.mark.parametrize("figures", [{"capacity": 2048}, {"read_bandwidth": 2e9, "write_bandwidth": 2e9}])
def test_the_plan_hears_of_the_memories_inside_the_chip(figures: dict[str, float]) -> None:
    changed = best_joint_plan(problem(one_cluster(**figures)))
    assert changed.certificate.bound > found().cost.time * 1.05


def two_clusters(links: float) -> Chip:
    """The chip `edge` with two clusters; ``links``: bandwidth between them, as a multiple."""
    chip, levels = load_chip("edge"), []
    for level in chip.levels:
        if (network := level.network) is not None:
            x, y = network.axes
            x, y = (replace(x, link=replace(x.link, bandwidth=links * x.link.bandwidth)), replace(y, size=1))
            network = replace(network, axes=(x, y))
        levels.append(replace(level, network=network))
    return replace(chip, levels=tuple(levels))


@pytest.mark.medium
def test_kernels_of_plans_hear_of_the_links_inside_the_chip() -> None:
    """A product of few rows is split over its sum, and clusters add up their parts."""
    kernel = Gemm(8, 8, 256)
    fast, slow = SearchedKernels(two_clusters(1.0)), SearchedKernels(two_clusters(1e-3))
    for kernels in (fast, slow):
        kernels.search(shape_of(kernel))
    assert float(slow.times(kernel)) > 1.2 * float(fast.times(kernel))
    assert any(isinstance(node, Collective) for _, node in walk(parse(fast.known[shape_of(kernel)].mapping)))


@pytest.mark.slow
def test_experts_are_planned_with_searched_kernels() -> None:
    """Products of experts, batched over them, are searched; the gradient through the router, of fp32, runs on the lanes."""
    shape = replace(MODEL, experts=Experts(2, 1, 64), gated=True)
    result = best_joint_plan(replace(problem(one_cluster()), shape=shape))
    known, kernels = searched_in_plan(result), dict(_of_experts(result))
    assert any(isinstance(each, Product) and each.batch > 1 for each in known)
    assert kernels["router_d_B"].dtype == "fp32"
    assert shape_of(kernels["router_d_B"]) not in known
    assert {shape_of(kernels[name]) for name in ("router_d_Wr", "down_d_Wd")} <= known.keys()
    assert result.certificate.gap < 0.05
    assert result.cost.time >= result.certificate.bound
    assert all(finding.passed is not False for finding in training_findings(result, search=False))


def _of_experts(result: TrainingResult) -> Iterator[tuple[str, AnyKernel]]:
    for own in ops_of_kernels(result).values():
        if "router" in own:
            yield from own.items()


def test_a_chip_with_concurrent_kernels_is_refused() -> None:
    with pytest.raises(BadInput, match="one kernel at a time"):
        best_joint_plan(problem(load_chip("sn40l")))


def test_a_limit_before_the_first_plan() -> None:
    with pytest.raises(SearchStopped):
        best_joint_plan(problem(one_cluster()), limit=0.0)


@pytest.mark.medium
def test_an_interrupt_keeps_the_best_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the kernels of the first plan are searched: that plan, with a bound that holds."""
    interrupts = [0]
    assert found().certificate.gap <= joint.OPTIMAL_GAP
    monkeypatch.setattr(joint, "OPTIMAL_GAP", -1.0)  # the first plan is optimal: else the search ends with it

    def interrupted(*_: object) -> bool:
        interrupts[0] += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(joint._JointSearch, "_raise_lowest", interrupted)  # what follows the first plan
    result = best_joint_plan(problem(one_cluster()))
    assert interrupts[0] > 0
    assert result.problem.searched is not None
    assert not result.problem.searched.by_formula
    assert result.certificate.bound <= found().cost.time * (1 + 1e-9)
    assert result.cost.time >= found().certificate.bound * (1 - 1e-9)


@pytest.mark.medium
def test_an_interrupt_before_a_plan_has_exact_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after as many searches as the best plan needs, while plans are compared again: a plan with a bound that holds."""
    searches, interrupts = [0], [0]
    assert found().certificate.gap <= joint.OPTIMAL_GAP
    monkeypatch.setattr(joint, "OPTIMAL_GAP", -1.0)  # the first plan is optimal: else the search ends with it

    def interrupted(words: str, share: float) -> None:
        searches[0] += words.startswith("searches")
        if searches[0] == found().certificate.effort["kernels"] and not words.startswith("searches"):
            interrupts[0] += 1
            raise KeyboardInterrupt

    result = best_joint_plan(problem(one_cluster()), interrupted)
    assert interrupts[0] > 0
    # no mapping of its last group fits: its kernels run apart, and those that were not searched have times by formula
    assert result.problem.searched is not None
    assert result.problem.searched.by_formula
    assert any("which the search did not reach" in words for words in result.certificate.left_out), result.certificate.left_out
    assert result.certificate.bound <= found().cost.time * (1 + 1e-9)
    assert result.certificate.bound <= result.cost.time


def test_an_interrupt_before_the_first_plan_gives_none() -> None:
    def interrupted(words: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SearchStopped, match="expected a plan that fits, in time; got none yet"):
        best_joint_plan(problem(one_cluster()), interrupted)


def interrupted_after(searches: int) -> TrainingResult:
    """Ctrl-C after so many searches of kernels."""
    begun = [0]

    def interrupted(words: str, share: float) -> None:
        begun[0] += words.startswith("searches")
        if begun[0] > searches:
            raise KeyboardInterrupt

    return best_joint_plan(problem(one_cluster()), interrupted)


@pytest.mark.medium
@pytest.mark.parametrize("searches", [0, 1, 3])
def test_an_interrupt_while_kernels_of_the_first_plan_are_searched(searches: int, tmp_path: Path) -> None:
    """The plan that is best by bounds, with a bound that holds; what was not searched takes its time from formulas, and says so.
    Its file is read as the same plan, and is in order."""
    result = interrupted_after(searches)
    searched, whole = result.problem.searched, found()
    assert result.certificate.status is Status.LIMIT
    assert result.certificate.bound <= min(whole.cost.time, result.cost.time) * (1 + 1e-9)
    assert searched.by_formula
    assert len(searched_in_plan(result)) == searches == result.certificate.effort["kernels"]
    left = searched.missing(plan_kernels(result.problem, result.plan, result.cost.parts))
    assert result.certificate.left_out[2].startswith(
        f"mappings of {len(left)} kernels of this plan, which the search did not reach"
    )
    assert not any(isinstance(shape, GroupShape) for shape in left), "groups that were not searched run as kernels of their own"
    for kernel in plan_kernels(result.problem, result.plan, result.cost.parts):
        if shape_of(kernel) in left:
            assert float(searched.times(kernel)) >= float(kernel_time(kernel, searched.rates, PEAK))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_document(result)), encoding="utf-8")
    read = load(path).value
    assert read.cost.time == result.cost.time
    assert searched_in_plan(read) == searched_in_plan(result)
    assert all(finding.passed is not False for finding in training_findings(read, search=False))
    tables = as_answer(read).tables(details=True)
    rows = next(table.rows for table in tables if table.title.startswith("Where the times of kernels"))
    assert any(row[0].startswith("formula, for want of time: products") for row in rows)


def test_a_time_limit_before_kernels_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of kernels that the limit ends: the plan as it is by formulas."""

    def out_of_time(chip: Chip, shape: KernelShape, limit: float | None = None) -> KernelCost:
        raise SearchStopped(Fault(f"{shape}", "the best mapping", "none in time"))

    monkeypatch.setattr(search, "searched_kernel", out_of_time)
    result = best_joint_plan(problem(one_cluster()), limit=1e3)
    assert result.certificate.status is Status.LIMIT
    assert 0 < result.certificate.bound <= result.cost.time
    assert not searched_in_plan(result)


@pytest.mark.medium
def test_a_store_saves_searches() -> None:
    class Store:
        def __init__(self) -> None:
            self.kept: dict[KernelShape, KernelCost] = {}

        def costs(self, chip: Chip) -> dict[KernelShape, KernelCost]:
            return self.kept

        def add(self, chip: Chip, product: KernelShape, cost: KernelCost) -> None:
            self.kept[product] = cost

    store = Store()
    first = best_joint_plan(problem(one_cluster()), store=store)
    again = best_joint_plan(problem(one_cluster()), store=store)
    assert first.certificate.effort["kernels"] == len(store.kept) > 0 == again.certificate.effort["kernels"]
    assert again.cost.time == first.cost.time


@pytest.mark.medium
def test_a_file_has_the_mappings(tmp_path: Path) -> None:
    result, path = found(), tmp_path / "plan.json"
    document = plan_document(result)
    path.write_text(json.dumps(document), encoding="utf-8")
    read = load(path).value
    assert read.cost.time == result.cost.time
    assert searched_in_plan(read) == searched_in_plan(result)
    assert all(finding.passed is not False for finding in training_findings(read, search=False))


@pytest.mark.medium
def test_a_wrong_mapping_in_a_file_is_refused(tmp_path: Path) -> None:
    document, path = plan_document(found()), tmp_path / "plan.json"
    document["answer"]["products"][0]["mapping"] = "compute gemm"
    document["answer"]["products"][1]["mapping"] = "hold nothing"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load(path)
    assert {"answer.products.0", "answer.products.1"} <= {
        fault.where.split(": ")[1].split(",")[0] for fault in caught.value.faults
    }


@pytest.mark.medium
def test_a_file_without_the_mapping_of_attention_is_refused(tmp_path: Path) -> None:
    document, path = plan_document(found()), tmp_path / "plan.json"
    assert [core["causal"] for core in document["answer"].pop("attention")] == [True]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput, match="every product, of attention and of every group; got none of 4 x 32 x 32"):
        load(path)


@pytest.mark.medium
def test_the_answer_says_where_the_times_of_kernels_come_from() -> None:
    tables = as_answer(found()).tables(details=True)
    rows = next(table.rows for table in tables if table.title.startswith("Where the times of kernels"))
    assert [row[0].split(":")[0] for row in rows] == ["searched", "searched", "searched", "formula", "formula"]
    assert {row[0] for row in rows} >= {"searched: products with the ops behind them", "formula: attention, backward"}
    by_formula = sum(float(row[3].split()[0]) for row in rows if row[0].startswith("formula"))
    words = re.search(r"; kernels searched on edge, ([\d.]+) % of their time by formula$", as_answer(found()).lines()[0])
    assert words is not None
    assert float(words[1]) == pytest.approx(by_formula, abs=1.0)
    by_library = best_training_plan(replace(found().problem, searched=None), others=0)
    assert as_answer(by_library).lines()[0].endswith("; kernel times by formula at peaks")
    part = found().cost.parts.parts[1].sharding
    time = next(item.time for item in part.ops if item.op == "values")
    assert time == next(cost.time for shape, cost in searched_in_plan(found()).items() if isinstance(shape, AttentionShape))


@pytest.mark.medium
def test_a_group_is_one_mapping_of_the_plan() -> None:
    """Its ops have one tree, which is legal and computes all of them; any of them stands for the group. Fused, it moves less."""
    result = found()
    layer = result.cost.parts.parts[1].sharding
    groups = fused_groups(layer)
    assert groups
    for first, (group, pair) in groups.items():
        shown = [op_mapping(result, f"{layer.problem.workload.name}/{name}") for name in group.ops]
        assert {each.op for each in shown} == {first}
        one = shown[0]
        assert one.ops == group.ops
        assert one.time == one.cost.time <= pair.time < pair.apart
        assert not faults(one.tree, one.workload, one.chip)
        assert {node.op for _, node in walk(one.tree) if isinstance(node, Compute)} == {op.name for op in one.workload.ops}
        assert f"group of {one.kernel.shape}" in op_text(result, one)
    times = {item.op: item.time for item in layer.ops}
    assert all(times[name] == 0.0 for group, _ in groups.values() for name in group.ops[1:])


@pytest.mark.medium
def test_a_file_with_a_wrong_group_is_refused(tmp_path: Path) -> None:
    document, path = plan_document(found()), tmp_path / "plan.json"
    document["answer"]["groups"][0]["pattern"] = "{}"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput, match="expected a group of ops of this model"):
        load(path)
    document = plan_document(found())
    layer = document["answer"]["shardings"][1]
    layer["fused"] = [*layer["fused"], "values"]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput, match="names of groups that may be one kernel"):
        load(path)


def test_other_kernels_have_the_rates_of_the_data_sheet() -> None:
    kernels = SearchedKernels(load_chip("cloud"))
    uneven = Gemm(100, 64, 64, batch=4, spread=0.2)
    assert kernels.times(uneven) == kernel_time(uneven, kernels.rates, PEAK)
