"""Shardings of graphs with searched products: the lazy search equals one that knows every product; they hear of the chip."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.certificates.test_joint_plans import one_cluster
from tests.cli.running import halley

from halley.answer import Status
from halley.answers.load import load
from halley.errors import BadInput, SearchStopped
from halley.graphs.plan import GraphPlan, GraphProblem, plan_graph
from halley.graphs.searched import graph_kernels, plan_searched_graph, searched_products
from halley.io.chips.load import load_chip
from halley.io.results.graphs import graph_document
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.system import System
from halley.kernels.machine import PEAK
from halley.kernels.searched import SearchedKernels, shape_of
from halley.kernels.times import Array, Gemm, Kernel
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.verify.sharding import graph_plan_findings
from halley.workloads.convolution import conv
from halley.workloads.mlp import gated_mlp


def problem(chip: Chip) -> GraphProblem:
    """The MLP of a gated layer on two axes, of which one is slow."""
    fast, slow = (Axis(name, 2, Topology.SWITCH, Link(rate, 1e-6)) for name, rate in (("x", 100e9), ("y", 1e9)))
    return GraphProblem(gated_mlp(64, 64, 128), System("drawn", chip, (slow, fast)), efficiency=PEAK)


class Eager(SearchedKernels):
    """Searches every product that it is asked for."""

    def times(self, kernel: Kernel) -> Array:
        if isinstance(kernel, Gemm):
            for shape in self.missing([kernel]):
                self.search(shape)
        return SearchedKernels.times(self, kernel)


@cache
def found() -> GraphPlan:
    return plan_searched_graph(problem(one_cluster()))


@pytest.mark.slow
def test_lazy_equals_eager() -> None:
    """The best of all shardings with every product searched; the lazy search asks for fewer."""
    lazy, given = found(), problem(one_cluster())
    eager = replace(given, searched=Eager(given.system.chip, dict(lazy.problem.searched.known)))
    best = plan_graph(eager)
    assert lazy.time == best.time
    assert lazy.certificate.status is Status.OPTIMAL
    assert lazy.problem.searched.known.keys() < eager.searched.known.keys()


@pytest.mark.medium
def test_products_have_the_times_of_the_mapping_search() -> None:
    products = searched_products(found())
    assert products
    assert not found().problem.searched.missing(graph_kernels(found()))
    for shape, cost in products.items():
        best = optimise(Problem(shape.workload, found().problem.system.chip, baselines=False, fixed_variant=True)).best
        assert cost.time == best.certificate.value
    times = {item.op: item.time for item in found().sharding.ops}
    for op, kernel in zip(found().problem.workload.ops, graph_kernels(found()), strict=True):
        if shape_of(kernel) in products:
            assert times[op.name] == products[shape_of(kernel)].time


@pytest.mark.slow
def test_shardings_hear_of_the_memories_inside_the_chip() -> None:
    slower = plan_searched_graph(problem(one_cluster(read_bandwidth=2e9, write_bandwidth=2e9)))
    assert slower.certificate.bound > 1.05 * found().time


@pytest.mark.medium
def test_an_interrupt_gives_the_sharding_that_is_best_by_bounds(tmp_path: Path) -> None:
    def interrupted(words: str, share: float) -> None:
        raise KeyboardInterrupt

    plan, path = plan_searched_graph(problem(one_cluster()), interrupted), tmp_path / "shard.json"
    assert plan.certificate.status is Status.LIMIT
    assert plan.certificate.bound <= min(found().time, plan.time)
    assert plan.problem.searched.by_formula
    assert not searched_products(plan)
    assert "which the search did not reach: their times are from formulas" in plan.certificate.left_out[1]
    path.write_text(json.dumps(graph_document(plan)), encoding="utf-8")
    read = load(path).value
    assert read.time == plan.time
    assert all(finding.passed is not False for finding in graph_plan_findings(read, search=False))


@pytest.mark.medium
def test_a_file_has_the_mappings_and_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "shard.json"
    document = graph_document(found())
    path.write_text(json.dumps(document), encoding="utf-8")
    read = load(path).value
    assert (read.time, searched_products(read)) == (found().time, searched_products(found()))
    assert all(finding.passed for finding in graph_plan_findings(read))
    document["answer"]["products"].pop()
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput, match="expected the mapping of every product; got none of"):
        load(path)


def test_a_limit_before_any_sharding() -> None:
    with pytest.raises(SearchStopped, match="a sharding, in time"):
        plan_searched_graph(problem(one_cluster()), limit=0.0)


def test_what_is_refused() -> None:
    given = problem(one_cluster())
    searched = SearchedKernels(given.system.chip)
    with pytest.raises(BadInput, match="full rates in the view of DFModel"):
        replace(given, overlap=True, searched=searched)
    with pytest.raises(BadInput, match="one kernel at a time"):
        replace(given, system=replace(given.system, chip=load_chip("sn40l")), searched=searched)
    with pytest.raises(BadInput, match="products of matrices"):
        replace(given, workload=conv(8, 8, 4, 4), searched=searched)


@pytest.mark.medium
def test_the_command(tmp_path: Path) -> None:
    words = ["shard", "gemm", "--m", "16", "--n", "8", "--k", "8", "--system", "2 x edge, nvlink-5 2"]
    outcome = halley(*words, "--kernels", "searched", "-o", str(tmp_path / "shard.json"))
    assert outcome.code == 0, outcome.err
    assert "products searched on edge" in outcome.out
    assert "Searched products, on one chip" in outcome.out
    assert halley("check", str(tmp_path / "shard.json")).code == 0
    assert "expected --kernels searched beside it" in halley(*words, "--time-limit", "5s").err.replace("\n", " ")
    assert "expected library or searched; got 'serched'; did you mean 'searched'?" in " ".join(
        halley(*words, "--kernels", "serched").err.split()
    )
