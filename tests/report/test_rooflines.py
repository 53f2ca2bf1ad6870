"""Rooflines on the pages of whole networks and of serving: the same figures as the answers beside them."""

from __future__ import annotations

import math

import pytest
from tests.reference.serving_cases import deployment
from tests.report.made import made_result

from halley.answers.plans import DFModelAnswer, ShardingAnswer
from halley.answers.serving import ServingAnswer
from halley.cost.estimate import Estimate
from halley.dfmodel.loads import dfmodel_loads
from halley.dfmodel.plan import DFModelProblem, best_training
from halley.graphs.loads import graph_loads
from halley.graphs.plan import GraphProblem, plan_graph
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.report.document import ROOFLINE_WORDS
from halley.report.mapping.roofline import Roofline, joined_roofline, roofline
from halley.serving.deployment import Load
from halley.serving.served import served
from halley.serving.steady import Lengths
from halley.sharding.axes import Role
from halley.workloads import graph


def parts() -> tuple[Roofline, Estimate]:
    result = made_result()
    return roofline(result.problem.chip, result.best.estimate), result.best.estimate


def test_a_kernel_that_runs_thrice_has_the_roofline_of_one() -> None:
    one, cost = parts()
    joined = joined_roofline([(one, 3, float(cost.time))])
    assert joined.operations == pytest.approx(3 * one.operations)
    assert joined.reached == pytest.approx(one.reached)
    for mine, theirs in zip((*joined.roofs, *joined.peaks), (*one.roofs, *one.peaks), strict=True):
        assert (mine.name, mine.limit, mine.used) == (theirs.name, pytest.approx(theirs.limit), pytest.approx(theirs.used))


def test_an_idle_kernel_beside_it_halves_what_is_used() -> None:
    one, cost = parts()
    joined = joined_roofline([(one, 1, float(cost.time)), (Roofline(0.0, 0.0, (), ()), 1, float(cost.time))])
    assert joined.reached == pytest.approx(one.reached / 2)
    assert all(mine.used == pytest.approx(theirs.used / 2) for mine, theirs in zip(joined.roofs, one.roofs, strict=True))


def test_bounds_of_serving_state_what_a_request_asks_for() -> None:
    value = served(deployment(), Load(Lengths(512, 64), concurrency=8))
    resources = [item for item in value.bounds if item.capacity > 0]
    assert {"matrix rate", "memory bandwidth"} <= {item.name for item in resources}
    for item in resources:
        assert item.rate == pytest.approx(item.capacity / item.demand)
        assert not any(math.isinf(number) for number in (item.demand, item.capacity))
    page = ServingAnswer(value).page()
    assert ROOFLINE_WORDS in page
    assert "roofline" in ServingAnswer(value).pictures()


def test_loads_of_a_sharded_product_by_hand() -> None:
    """A product that the caller splits over its sum on 4 chips: a chip has a quarter of both operands, writes a whole partial
    result, and sends 2 x 3/4 of it in an all-reduce."""
    m, k, n, layers = 256, 1024, 512, 3
    work = graph("Y[m,n] = X[m,k] * W[k,n]", {"m": m, "k": k, "n": n})
    (axis,) = (system := load_system("4 x h100, nvlink 4")).axes
    layouts = {"X": {axis.name: "k"}, "W": {axis.name: "k"}, "Y": {}}
    plan = plan_graph(GraphProblem(work, system, layers=layers, layouts=layouts, splits={"Y": {axis.name: "k"}}))
    found = graph_loads(plan)
    by_name = {load.resource: load.demand for load in found.loads}
    assert found.operations == by_name["matrix engine"] == layers * 2 * m * k * n / 4
    assert by_name["memory"] == layers * 2 * (m * k / 4 + k * n / 4 + m * n)
    assert by_name[f"network {axis.name}"] == layers * 2 * (3 / 4) * 2 * m * n
    assert set(by_name) == {"matrix engine", "memory", f"network {axis.name}"}
    page = ShardingAnswer(plan).page()
    assert ROOFLINE_WORDS in page
    assert all(load.time <= plan.time for load in found.loads)


def test_loads_in_the_view_of_dfmodel_by_hand() -> None:
    """GPT's layer on 2 replicas of 4 stages of 4 tensor-parallel chips. By hand: the products of a layer, twice as many backward;
    four all-reduces of a sample's activations in a layer (forward after the projection and the second matrix of the MLP, backward
    after the gradients of the first matrix and of V); one message a layer to the next stage, as the view counts it; one
    all-reduce of the gradients."""
    shape, batch, sequence = load_model("gpt3-6.7b"), 32, 2048
    system = load_system("32 x tpu-v4, ici 4x4x2")
    degrees = {Role.DATA: 2, Role.PIPELINE: 4, Role.MODEL: 4}
    result = best_training(DFModelProblem(shape, system, batch, sequence, fused=False, degrees=degrees))
    found = dfmodel_loads(result)
    by_name = {load.resource: load for load in found.loads}
    (data,), (stages,), (model,) = (result.problem.axes(result.choice.assignment, role) for role in Role)
    runs = shape.layers / 4 * batch / 2
    weights = 4 * shape.model**2 + 2 * shape.model * shape.hidden
    products = 3 * 2 * sequence * (weights + 2 * sequence * shape.model) / 4
    assert by_name["compute tiles"].demand == pytest.approx(runs * products)
    activations = 2 * shape.model * sequence
    assert by_name[f"network {model.name}"].demand == pytest.approx(runs * 4 * 2 * activations * 3 / 4)
    assert by_name[f"network {stages.name}"].demand == pytest.approx(runs * activations)
    assert by_name[f"network {data.name}"].demand == pytest.approx(shape.layers / 4 * 2 * 2 * weights / 4 / 2)
    memory = by_name["memory"]
    graph = result.layer.problem.graph
    inside = sum(2 * len(each.readers) * each.bytes for each in graph.tensors if each.writer is not None)  # a copy each reader
    assert memory.parts["tensors"] == pytest.approx(runs * inside)
    assert memory.parts["weights"] == pytest.approx(runs / result.choice.microbatch * graph.weights)
    assert all(load.time <= result.time for load in found.loads)
    assert ROOFLINE_WORDS in DFModelAnswer(result).page()


def test_loads_of_several_axes_add_up_to_the_networks_of_kernels() -> None:
    """Tensor parallelism over both axes of a torus."""
    problem = DFModelProblem(load_model("gpt3-175b"), load_system("sn10-torus"), 64, 2048, fused=False, degrees={Role.MODEL: 8})
    result = best_training(problem)
    stage = result.layer.problem
    sent = [load.time for load in dfmodel_loads(result).loads if load.resource.startswith("network")]
    assert len(sent) == 2
    kernels = sum(kernel.network for kernel in stage.graph.kernels)
    assert sum(sent) == pytest.approx(stage.layers * problem.batch * kernels)
