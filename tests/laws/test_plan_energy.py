"""Energy of plans: each part alone against demands that other code counts; ratios only where their denominator is known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from halley.cost.evaluate import evaluate
from halley.formulas.energy import static_energy
from halley.io.chips.load import load_chip
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Chip
from halley.ir.system import Cost
from halley.ir.text import parse
from halley.kernels.machine import PEAK
from halley.kernels.searched import KernelCost, Product, SearchedKernels, shape_of
from halley.kernels.times import Gemm
from halley.network.graph.bill import bill
from halley.report.plans.plan import bill_rows
from halley.training.energy import FORMULA, LINKS, MAPPED, OPTIMIZER, STATIC, plan_energy
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.workloads.transformer import Experts, Transformer

TREE = """
hold dram: A B C
  for m by 64
    for n by 64
      hold rf: C
        for k by 64
          hold smem: A B
            compute gemm
"""


@cache
def found() -> TrainingResult:
    """One stage, so that all chips do the same."""
    fixed = Fixed(stages=1, model=4, microbatch=2)
    problem = TrainingProblem(load_model("gpt2-xl"), load_system("8 x h100, nvlink 8"), 64, 1024, PEAK, fixed=fixed)
    return best_training_plan(problem, others=0)


def silent(chip: Chip) -> Chip:
    """The chip without any energy."""
    levels = tuple(
        replace(level, memories=tuple(replace(memory, read_energy=0.0, write_energy=0.0) for memory in level.memories))
        for level in chip.levels
    )
    engines = {name: replace(getattr(chip, name), energy={}) for name in ("matrix", "vector")}
    return replace(chip, levels=levels, static_power=0.0, **engines)


def on(chip: Chip, link: float = 0.0) -> TrainingResult:
    """The same plan on another chip, with links of this energy [J/B]."""
    result = found()
    system = result.problem.system
    axes = tuple(replace(axis, link=replace(axis.link, energy=link)) for axis in system.axes)
    return replace(result, problem=replace(result.problem, system=replace(system, chip=chip, axes=axes)))


def loads(result: TrainingResult) -> dict[str, dict[str, float]]:
    return {load.resource: dict(load.parts) | {"": load.demand} for load in result.cost.loads}


def test_nothing_takes_nothing() -> None:
    energy = plan_energy(on(silent(found().problem.chip)))
    assert energy.parts == {}
    assert energy.unstated == ("engines", "dram", "static power", "links nvlink")


def test_products_on_the_lanes_take_the_energy_of_the_lanes() -> None:
    """Of gradients of tokens through routers, whose operand is fp32, on a chip whose matrix engine lacks it."""
    shape = Transformer("few", 1, 64, 2, 2, 32, 128, 64, 32, experts=Experts(4, 2, 64), gated=True)
    chip = silent(load_chip("cloud"))
    chip = replace(chip, vector=replace(chip.vector, energy={"mul": 3e-12, "add": 1e-12}))
    problem = TrainingProblem(
        shape, replace(load_system("2 x cloud, nvlink-4 2"), chip=chip), 4, 32, PEAK, fixed=Fixed(fused=True, model=1)
    )
    lanes = best_training_plan(problem, others=0)
    both = replace(chip, matrix=replace(chip.matrix, rate={**chip.matrix.rate, "fp32": 1.0}))
    on_matrix = replace(lanes, problem=replace(problem, system=replace(problem.system, chip=both)))
    saved = plan_energy(lanes).total - plan_energy(on_matrix).total
    assert saved == pytest.approx(4 * 32 * 64 * 4 * 4e-12)  # the router's other products read bf16 first
    assert any("gradients of tokens through routers, products of fp32" in words for words in lanes.certificate.left_out)


def test_products_take_what_the_roofline_counts() -> None:
    chip = silent(found().problem.chip)
    chip = replace(chip, matrix=replace(chip.matrix, energy={"bf16": 2e-12}))
    energy = plan_energy(on(chip))
    assert energy.parts.keys() == {FORMULA}
    assert energy.total == pytest.approx(8 * loads(found())["matrix engine"][""] / 2 * 2e-12)


def test_memory_takes_what_the_roofline_counts() -> None:
    chip = silent(found().problem.chip)
    first, *rest = chip.levels
    memory = replace(first.memories[0], read_energy=3e-11, write_energy=3e-11)
    energy = plan_energy(on(replace(chip, levels=(replace(first, memories=(memory,)), *rest))))
    moved = loads(found())["memory"]
    assert energy.parts == {
        FORMULA: pytest.approx(8 * moved["passes"] * 3e-11),
        OPTIMIZER: pytest.approx(8 * moved["optimizer"] * 3e-11),
    }


def test_links_and_static_power() -> None:
    chip = replace(silent(found().problem.chip), static_power=100.0)
    energy = plan_energy(on(chip, link=5e-11))
    sent = sum(item.total for item in found().cost.traffic)
    assert energy.parts == {
        LINKS: pytest.approx(8 * sent * 5e-11),
        STATIC: pytest.approx(8 * static_energy(100.0, found().cost.time)),
    }


def test_a_kernel_with_a_mapping_has_the_energy_of_its_mapping() -> None:
    """A mapping of one product of the plan: what it takes instead of its formula."""
    result = on(found().problem.chip)
    chip, part = result.problem.chip, result.cost.parts.parts[1].sharding
    work = part.problem.workload
    up = next(op for op in work.ops if op.name == "up")
    strategy = next(item.strategy for item in part.ops if item.op == "up")
    split = {way.split for way in strategy}
    hidden = work.dims["f"] // (4 if "f" in split else 1)
    rows = work.dims["b"] * work.dims["m"] // (4 if split & {"b", "m"} else 1)
    shape = shape_of(Gemm(rows, hidden, work.dims["k"]))
    assert isinstance(shape, Product)
    assert set(up.dims) == {"b", "m", "k", "f"}
    known = SearchedKernels(chip, {shape: KernelCost(1.0, TREE)})
    energy = plan_energy(replace(result, problem=replace(result.problem, searched=known))).parts[MAPPED]
    estimate = evaluate(shape.workload, chip, parse(TREE))
    one = float(estimate.energy - estimate.energy_by["static"])
    runs = energy / (one * 8 * result.problem.shape.layers * result.plan.pipeline.microbatches)
    assert runs == pytest.approx(round(runs))
    assert 1 <= runs <= 6  # some of its gradients may be products of the same extents


def test_ratios_are_refused_without_their_denominator() -> None:
    system = load_system("8 x h100, nvlink 8")
    whole = replace(system, chip_cost=Cost(1e4, 700.0), memory_cost=Cost(0.0, 0.0), node_cost=Cost(1e3, 300.0))
    axes = tuple(replace(axis, link=replace(axis.link, price=100.0)) for axis in whole.axes)
    rows = dict(bill_rows(1e15, bill(replace(whole, axes=axes))))
    assert "for each W" in rows["power"]
    rows = dict(bill_rows(1e15, bill(replace(whole, axes=axes, chip_cost=Cost(None, None)))))
    assert "for each" not in rows.get("power", "") + rows.get("price", "")
    assert "without chips" in rows["power"]
