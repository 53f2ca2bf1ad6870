"""What the report on a plan says: traffic and roofline against sends counted one by one, and reasons that add up."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from math import prod

import pytest

import halley
from halley.cli.plans.systems import efficiency_of, system_of
from halley.io.chips.software import load_software
from halley.io.networks.fits import load_libraries
from halley.io.results.training import plan_document
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Shard
from halley.pipeline.data_parallel import Sharded
from halley.report.plans.cluster import cluster_picture
from halley.report.plans.figures import loads_roofline
from halley.report.plans.others import why
from halley.report.plans.page import plan_page
from halley.report.plans.plan import EXPERTS_REMARK, SCANS_REMARK, plan_tables, short_tables
from halley.report.plans.schedule import schedule_figure
from halley.report.plans.words import model_names, plan_words, short_words
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.training.tensor_parallel import tensor_parallel
from halley.verify.iteration import simulated_iteration
from halley.workloads.transformer import Experts, Transformer

WIDTHS = {"model": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "hidden": 16384, "vocabulary": 32000, "sequence": 1024}
SHAPE = Transformer("small", 4, **WIDTHS, gated=False, rms=False, positions=True, tied=True, dropout=0.0)
NODE = {"nvlink": {Role.MODEL: 4}}
SPLITS = {op: {"nvlink": dim} for op, dim in tensor_parallel(SHAPE, SHAPE.sequence, scattered=True).items()}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@cache
def planned(fixed: str, words: str = "8 x a100, nvlink 4, ib", batch: int = 16) -> TrainingResult:
    choices = {
        "tensor": Fixed(data=4, axes={"nvlink": {Role.DATA: 2, Role.MODEL: 2}}, microbatch=1, sharded=Sharded.PARAMETERS),
        "megatron": Fixed(data=2, axes=NODE, microbatch=2, sharded=Sharded.PARAMETERS, splits=SPLITS, boundary=(Shard("m"),)),
        "pipeline": Fixed(stages=4, model=2, microbatch=2, chunks=1),
        "interleaved": Fixed(stages=2, model=2, chunks=2, microbatch=2, sharded=Sharded.OPTIMIZER),
        "gradients": Fixed(data=4, stages=2, sharded=Sharded.GRADIENTS, microbatch=2),
        "replicas": Fixed(data=8, sharded=Sharded.NOTHING, microbatch=1),
        "wide": Fixed(data=1, stages=1, model=8, recompute=Recompute.FULL),
        "free": Fixed(),
    }
    system = system_of(words)
    given = SHAPE, system, batch, SHAPE.sequence, efficiency_of(system, None), load_libraries(system)
    return best_training_plan(TrainingProblem(*given, fixed=choices[fixed]), others=10 if fixed == "free" else 0)


def sent(kind: str, ranks: int, size: float) -> float:
    """What a rank of a ring sends, share by share."""
    shares = {"all-gather": ranks - 1, "reduce-scatter": ranks - 1, "all-reduce": 2 * (ranks - 1), "all-to-all": ranks - 1}
    return sum(size / ranks for _ in range(shares[kind]))


def counted(result: TrainingResult) -> Counter[str]:
    """By role, the bytes that a chip of the busiest stage sends: walks its chunks and microbatches one by one."""
    plan, cost, found = result.plan, result.cost, Counter[str]()
    stages, chunks = plan.pipeline.stages, len(plan.layers)
    kinds = [None, *(part for part, count in cost.parts.blocks for _ in range(count)), None]
    sequence = [cost.parts.embedding, *kinds[1:-1], cost.parts.head]
    ends = [1 + sum(plan.layers[: chunk + 1]) for chunk in range(chunks)]
    owned = [sequence[(0 if chunk == 0 else ends[chunk - 1]) : ends[chunk] + (chunk == chunks - 1)] for chunk in range(chunks)]
    times = [sum(part.time for chunk in range(stage, chunks, stages) for part in owned[chunk]) for stage in range(stages)]
    stage = max(range(stages), key=lambda each: times[each])
    mesh = {part.axis: part.size for part in plan.assignment if part.role is Role.MODEL}
    boundary = plan.microbatch * SHAPE.sequence * SHAPE.model * 2
    for item in cost.parts.boundary:
        boundary //= mesh[next(iter(mesh))] if hasattr(item, "dim") and len(mesh) == 1 else 1
    for chunk in range(stage, chunks, stages):
        for _ in range(plan.pipeline.microbatches):
            found["pipeline"] += boundary * ((chunk < chunks - 1) + (chunk > 0))
            for part in owned[chunk]:
                for move, step in part.sharding.steps:
                    # an all-to-all goes through one axis after the other, whole each time
                    ranks = [mesh[axis] for axis in step.axes]
                    groups = ranks if step.kind is CollectiveKind.ALL_TO_ALL else [prod(ranks)]
                    found["model"] += sum(sent(str(step.kind), group, step.bytes) for group in groups) / move.runs
                if plan.sharded is Sharded.PARAMETERS:
                    found["data"] += 2 * sent("all-gather", plan.data, 2 * part.parameters)
                if plan.sharded >= Sharded.GRADIENTS:
                    found["data"] += sent("reduce-scatter", plan.data, 4 * part.parameters)
        for part in owned[chunk]:
            if plan.sharded is Sharded.NOTHING:
                found["data"] += sent("all-reduce", plan.data, 4 * part.parameters)
            elif plan.sharded is Sharded.OPTIMIZER:
                found["data"] += sent("reduce-scatter", plan.data, 4 * part.parameters)
            if plan.sharded in (Sharded.OPTIMIZER, Sharded.GRADIENTS):
                found["data"] += sent("all-gather", plan.data, 2 * part.parameters)
    if SHAPE.tied and stages > 1 and stage in (0, stages - 1):
        table = min(cost.parts.embedding.parameters, cost.parts.head.parameters)
        found["pipeline"] += 4 * (-(-table // plan.data) if plan.sharded else table)
    return found


@pytest.mark.parametrize("fixed", ["tensor", "pipeline", "interleaved", "gradients", "replicas", "wide"])
def test_levels_of_the_roofline_add_up_to_what_is_sent(fixed: str) -> None:
    result = planned(fixed)
    wanted, crossings = counted(result), len({part.axis for part in result.plan.assignment if part.role is Role.PIPELINE})
    moved = Counter[str]()
    for item in result.cost.traffic:
        moved[str(item.role)] += item.count * (item.bytes if item.role is Role.PIPELINE else sum(item.sent.values()))
    for role in Role:
        assert moved[str(role)] == pytest.approx(wanted[str(role)], rel=1e-9), role
    assert wanted[{"replicas": "data", "wide": "model", "pipeline": "pipeline"}.get(fixed, "data")] > 0
    networks = [load for load in result.cost.loads if load.resource.startswith("network")]
    asked = sum(load.demand for load in networks)
    if crossings <= 1:
        assert asked == pytest.approx(sum(wanted.values()), rel=1e-9)
    assert asked == pytest.approx(sum(item.total for item in result.cost.traffic), rel=1e-9)
    for load in result.cost.loads:
        assert load.time <= result.cost.time
        assert not load.parts or load.demand == pytest.approx(sum(load.parts.values()))


def test_slow_levels_carry_the_least() -> None:
    """ZeRO 3 over two nodes: a node of four chips fetches a gathered vector's other half once, a quarter by each chip."""
    result = planned("tensor")
    data = {part.axis: part.size for part in result.plan.assignment if part.role is Role.DATA}
    assert data == {"ib": 2, "nvlink": 2}
    for item in result.cost.traffic:
        if item.role is Role.DATA:
            assert item.sent == pytest.approx({"nvlink": item.bytes / 2, "ib": item.bytes / 4})


def test_reasons_add_up() -> None:
    result = planned("free")
    assert len(result.alternatives) == 10
    for item in result.alternatives:
        said = re.findall(r"([+-])([\d.]+) (s|ms|us|ns) ", why(item, result.cost.time))
        total = sum((1 if sign == "+" else -1) * float(value) * SECONDS[unit] for sign, value, unit in said)
        slower = item.cost.time - result.cost.time
        # four digits of each part are shown, and what is below a ten-thousandth is left out
        assert total == pytest.approx(slower, abs=2e-4 * result.cost.time + 1e-3 * max(abs(t) for _, t in item.slower))


def test_megatron_is_recognised() -> None:
    result = planned("megatron")
    assert model_names(result.cost) == "TP+SP"
    assert "model 4 (TP+SP)" in plan_words(result.plan, result.cost)
    text = "\n".join(" ".join(row) for table in plan_tables(result) for row in table.rows)
    assert "DP, ZeRO 3 all-gather ib" in text
    names = {name for part in plan_document(result)["answer"]["shardings"] for op in part["names"].values() for name in op}
    assert names <= {"TP", "SP", ""}


def test_resources_that_hardly_work_are_not_drawn() -> None:
    cost = planned("free").cost
    drawn = loads_roofline(cost.loads, 1e15, cost.time)
    assert {item.name for item in (*drawn.roofs, *drawn.peaks)} <= {load.resource for load in cost.loads}
    assert all(item.used > 0.001 for item in drawn.roofs)


def test_a_page_of_one_chip_has_no_section_of_ops() -> None:
    assert 'id="ops"' in plan_page(planned("tensor"))
    assert 'id="ops"' not in plan_page(planned("replicas"))
    assert short_words(planned("wide").plan).startswith("1 x 1 x 8, mb")


@pytest.mark.parametrize("fixed", ["pipeline", "interleaved", "tensor"])
def test_the_schedule_has_every_pass_of_every_stage(fixed: str) -> None:
    result = planned(fixed)
    pipeline = result.plan.pipeline
    drawn = schedule_figure(result)
    tips = [item.findtext("title") or "" for item in drawn.iter("rect") if item.find("title") is not None]
    shown = {int(tip.partition("microbatch ")[2].split()[0]) for tip in tips}
    assert shown == set(range(len(shown)))
    assert len(tips) == 2 * pipeline.stages * pipeline.chunks * len(shown)
    rows = [item.text for item in drawn.iter("text") if (item.text or "").startswith("stage ")]
    assert rows == [f"stage {stage + 1}" for stage in range(pipeline.stages)]
    if len(shown) == pipeline.microbatches:
        assert simulated_iteration(result, len(shown)).time == pytest.approx(result.cost.time, rel=1e-9)


def test_one_screen_names_the_software_and_says_what_is_not_validated() -> None:
    made = planned("megatron")
    assert dict(short_tables(made)[0].rows)["software"].startswith("none: ")
    hosted = replace(made, problem=replace(made.problem, software=load_software("pytorch-compiled").on("h100")))
    assert dict(short_tables(hosted)[0].rows)["software"] == "pytorch-compiled; 4 % mean error on iterations held out"
    assert "how far to trust" not in dict(short_tables(made)[0].rows)
    experts = replace(made, problem=replace(made.problem, shape=replace(SHAPE, gated=True, experts=Experts(8, 2, 16384))))
    assert dict(short_tables(experts)[0].rows)["how far to trust"] == EXPERTS_REMARK


def test_plans_of_state_spaces_claim_no_measured_error() -> None:
    made = halley.plan("mamba2-1.3b", "8 x h100, nvlink 8", batch=64)
    shown = dict(short_tables(made)[0].rows)
    assert shown["how far to trust"] == SCANS_REMARK
    assert "interval of 80 %" not in shown


@pytest.mark.parametrize("fixed", ["tensor", "pipeline", "replicas"])
def test_the_cluster_has_every_rank_of_every_axis(fixed: str) -> None:
    result = planned(fixed)
    drawn = cluster_picture(result)
    tips = [title.text or "" for title in drawn.iter("title")]
    for part in result.plan.assignment:
        assert sum(tip.startswith(f"{part.axis}: ") and tip.endswith(f" of {part.size}") for tip in tips) >= part.size
    assert len(tips) == sum(part.size for part in result.plan.assignment) + 1  # and one chip
    said = {text.text for text in drawn.iter("text")}
    assert {"1 a100"} <= said
    assert ("layers (PP)" in said) is (result.plan.pipeline.stages > 1)
