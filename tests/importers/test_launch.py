"""Launch flags: names as the frameworks have them, and plan -> flags -> plan."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import halley

from halley.answers.load import load
from halley.errors import BadInput
from halley.launch.decisions import LaunchDecisions, decisions
from halley.launch.emit import FRAMEWORKS, emitted_text
from halley.launch.read import read_degrees
from halley.launch.settings import Emitted
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute

TABLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "launch_flags.csv"
IN_TABLE = {
    "megatron": "Megatron-Core",
    "megatron-bridge": "Megatron-Core",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "maxtext": "MaxText",
}
BRIDGE_ONLY = {"virtual_pipeline_model_parallel_size", "seq_length"}
"""Names of Megatron-Bridge's own; the others are those of Megatron-Core's configuration."""


@st.composite
def plans(draw: st.DrawFn) -> LaunchDecisions:
    power = st.integers(0, 3).map(lambda exponent: 2**exponent)
    pipeline, tensor, context = draw(power), draw(power), draw(power)
    inner = draw(power)
    data = inner * draw(power)
    experts = draw(st.booleans())
    chunks = draw(st.integers(1, 3)) if pipeline > 1 else 1
    each = draw(st.integers(1, 4))
    layers = tuple(each + (draw(st.integers(0, 1)) if pipeline > 1 else 0) for _ in range(pipeline * chunks))
    microbatch, microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    gpipe = chunks == 1 and draw(st.booleans())
    return LaunchDecisions(
        model="model",
        chips=data * pipeline * tensor * context,
        batch=data * microbatch * microbatches,
        sequence=draw(st.sampled_from([128, 4096])),
        data=data,
        pipeline=pipeline,
        tensor=tensor,
        context=context,
        expert=inner if experts else 1,
        inner=inner,
        gathered=draw(st.booleans()) and inner > 1,
        sequence_parallel=draw(st.booleans()) and tensor > 1,
        experts=experts,
        microbatch=microbatch,
        microbatches=microbatches,
        schedule=PipelineSchedule.GPIPE if gpipe else PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
        chunks=chunks,
        layers=layers,
        recompute=draw(st.sampled_from(list(Recompute))),
        zero=draw(st.sampled_from(list(Sharded))),
        offload=draw(st.booleans()),
        remarks=(),
    )


def said(made: Emitted, word: str) -> bool:
    return any(word in remark for remark in made.remarks)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=40)
@given(plan=plans())
def test_flags_read_again_give_the_same_plan(framework: str, plan: LaunchDecisions) -> None:
    """What the flags cannot say is in the remarks."""
    made = FRAMEWORKS[framework](plan)
    found = read_degrees(emitted_text(made), plan.chips)
    assert found.framework == framework
    assert (found.data, found.pipeline, found.tensor, found.context) == (plan.data, plan.pipeline, plan.tensor, plan.context)
    assert found.batch == plan.batch
    assert found.microbatch == plan.microbatch
    if framework != "deepspeed":  # there it is in code
        assert found.expert == plan.expert or said(made, "expert")
    if framework.startswith("megatron"):
        assert found.chunks == plan.chunks
        assert found.layers in ((), plan.layers)
        assert found.recompute is plan.recompute
    if framework in ("megatron", "megatron-bridge", "deepspeed"):
        assert found.offload == plan.offload
    else:
        assert said(made, "optimizer's state") or not plan.offload
    if plan.gathered and plan.zero < Sharded.GRADIENTS and plan.data > plan.inner and framework.startswith("megatron"):
        assert found.zero is None  # sharded over a part of the data-parallel ranks
    elif plan.data > 1 and found.zero is not plan.zero:
        assert said(made, "ZeRO") or said(made, "shards parameters") or plan.gathered


@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=40)
@given(plan=plans())
def test_names_are_those_of_the_framework(framework: str, plan: LaunchDecisions) -> None:
    if not TABLE.exists():
        pytest.skip("no data")
    made = FRAMEWORKS[framework](plan)
    rows = [
        row for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()) if row["framework"] == IN_TABLE[framework]
    ]
    assert {row["commit"] for row in rows} == {made.version.split()[-1]}
    words = {word for row in rows for word in re.findall(r"[\w.-]+", f"{row['flag']} {row['notes']}")}
    leaves = {word.rpartition(".")[2] for word in words}
    for name in made.settings:
        if framework == "megatron-bridge":
            leaf = name.rpartition(".")[2]
            assert leaf in BRIDGE_ONLY or f"--{leaf.replace('_', '-')}" in words, name
        elif framework == "deepspeed":
            assert set(name.split(".")) - {"device"} <= leaves | {word.split(".")[0] for word in words}, name
        else:
            assert name in words, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "settings of "),
        ("rm -rf x", "settings such as"),
        ("--tensor-model-parallel-size", "a whole number from 1"),
        ("--tensor-model-parallel-size 8 --tensor-model-parallel-size 8", "each setting once"),
        ("--tensor-model-parallel-size 3", "the number of chips, 64"),
        ("--tensor-model-parallel-size 0", "a whole number from 1"),
        ("--tensor-model-parallel-size 99999999999999999999", "a whole number from 1"),
        ("{", "JSON"),
        ("[" * 10_000, "settings such as"),
        ('{"a":' * 10_000, "JSON"),
        ("{}", "settings of "),
        ('{"train_batch_size": "many"}', "a whole number from 1"),
        ('{"train_batch_size": 64, "zero_optimization": {"stage": [1]}}', "0, 1, 2 or 3"),
        ("ici_data_parallelism=-1", "a whole number from 1"),
        ("x" * 100_000, "at most 65536 characters"),
    ],
)
def test_flags_that_are_wrong(text: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_degrees(text, 64)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 3000


SMALL = ("gpt2-xl", "--system", "8 x a100, nvlink 8", "--batch", "16", "--sequence", "256")


@pytest.mark.medium
@pytest.mark.parametrize("fixed", ["dp=2,tp=4,pp=1,microbatch=2,zero=1", "dp=4,tp=1,pp=2,microbatch=1,recompute=full,zero=0"])
def test_plans_to_flags_to_plans(empty_folder: Path, fixed: str) -> None:
    made = halley("plan", *SMALL, "--fix", fixed, "-o", "plan.json", "--emit", "megatron", width=200)
    assert made.code == 0, made.err
    assert "Launch flags for Megatron-Core" in made.out
    result = load("plan.json").value
    told = decisions(result)
    assert (told.data * told.pipeline * told.tensor * told.context) == 8
    assert told.data // told.inner == result.plan.data
    assert told.inner * told.tensor * told.context == result.plan.model
    for framework in FRAMEWORKS:
        shown = halley("show", "plan.json", "--emit", framework)
        assert shown.code == 0, shown.err
        found = read_degrees(shown.out, 8)
        assert (found.data, found.pipeline, found.tensor, found.context) == (
            told.data,
            told.pipeline,
            told.tensor,
            told.context,
        )
    Path("flags.txt").write_text(halley("show", "plan.json", "--emit", "megatron").out)
    words = ("--sequence", "256", "--from-flags", "flags.txt", "-o", "again.json")
    again = halley("plan", *SMALL[:3], *words)
    assert again.code == 0, again.err
    second = load("again.json").value.plan
    first = result.plan
    assert (second.data, second.pipeline.stages, second.model) == (first.data, first.pipeline.stages, first.model)
    assert (second.microbatch, second.recompute, second.sharded) == (first.microbatch, first.recompute, first.sharded)


def test_emit_is_refused_before_the_search(empty_folder: Path) -> None:
    assert "did you mean 'megatron'?" in halley("plan", *SMALL, "--emit", "megatorn").err
    assert "no --json beside it" in halley("plan", *SMALL, "--emit", "megatron", "--json").err
    assert "no --fix beside it" in halley("plan", *SMALL, "--fix", "tp=1", "--from-flags", "x").err
    assert "no such file" in halley("plan", *SMALL, "--from-flags", "none.txt").err


def test_only_plans_have_flags(empty_folder: Path) -> None:
    halley("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-h100", "-o", "other.json")
    found = halley("show", "other.json", "--emit", "megatron")
    assert found.code == 1
    assert "expected a plan or a deployment, for --emit; got a file of the kind collective" in found.err
