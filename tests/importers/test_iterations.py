"""Tables of measured iterations: how rows are read, and every fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from halley.errors import BadInput
from halley.importers.iterations import read_iterations
from halley.importers.training import training_problem
from halley.io.chips.software import load_software
from halley.training.cost import model_macs
from halley.training.fit.calibrate import MeasuredIteration

EAGER = load_software("eager")
NODE = '"4 x a100, nvlink 4"'
HEAD = "model,system,tp,microbatch,batch"


def read(measure: str, value: object, more: str = "", said: str = "") -> MeasuredIteration:
    (row,) = read_iterations(f"{HEAD}{more},{measure}\nllama-68m,{NODE},2,2,16{said},{value}\n", "runs.csv", EAGER)
    return row


def faults(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_iterations(text, "runs.csv", EAGER)
    return [str(fault) for fault in caught.value.faults]


def test_a_row_is_a_plan_with_its_time() -> None:
    row = read("time_s", 0.25)
    plan = row.plan.plan
    assert (row.name, row.where, row.seconds) == ("llama-68m, 4 chips, tp 2, batch 16, microbatch 2", "runs.csv:2", 0.25)
    assert (plan.data, plan.model, plan.pipeline.stages, plan.microbatch, plan.fused) == (2, 2, 1, 2, True)


@pytest.mark.medium
def test_other_measures() -> None:
    problem = training_problem("llama-68m", "4 x a100, nvlink 4", 16)
    assert read("time_ms", 250).seconds == 0.25
    assert read("tokens_per_s", 4 * problem.tokens).seconds == 0.25
    assert read("tokens_per_s_per_gpu", problem.tokens).seconds == 0.25
    assert read("tflops_per_gpu", 50).seconds == pytest.approx(2 * 16 * model_macs(problem) / (4 * 50e12))


def test_the_median_of_a_log_without_its_warm_up(empty_folder: Path) -> None:
    times = [9000.0, 251.0, 249.0, 250.0, 400.0]
    lines = [
        f" iteration {number}/ 5 | elapsed time per iteration (ms): {time} | lm loss: 1.0" for number, time in enumerate(times)
    ]
    (empty_folder / "train.log").write_text("starts\n" + "\n".join(lines) + "\n")
    assert read("megatron_log", "train.log").seconds == pytest.approx(0.2505)
    (empty_folder / "empty.log").write_text("starts\n")
    text = f"{HEAD},megatron_log\nllama-68m,{NODE},2,2,16,empty.log\nllama-68m,{NODE},2,2,16,no.log\n"
    assert faults(text) == [
        "runs.csv:2: megatron_log: empty.log: expected lines with 'elapsed time per iteration (ms): 1234.5'; got none",
        "runs.csv:3: megatron_log: no.log: expected a file; got no such file; check the path",
    ]


def test_megatrons_splits_and_its_padded_vocabulary() -> None:
    row = read("time_s", 1, ",splits", ",megatron-sp")
    assert row.plan.problem.fixed.splits["up"] == {"nvlink": "f"}
    assert row.plan.problem.shape.vocabulary % 256 == 0
    assert read("time_s", 1).plan.problem.fixed.splits == {}


def test_parts_of_axes() -> None:
    system = '"8 x a100, nvlink 4, ib"'
    text = f"{HEAD},axes,time_s\nllama-68m,{system},4,2,16,nvlink=tp:2+dp:2 ib=tp:2,1\n"
    (row,) = read_iterations(text, "runs.csv", EAGER)
    assert {(part.axis, part.size) for part in row.plan.plan.assignment if part.role == "model"} == {("nvlink", 2), ("ib", 2)}


def test_a_head_that_is_wrong() -> None:
    assert faults("") == ["runs.csv: expected a head and rows of measured iterations; got 0 lines"]
    assert faults("model,system,batch,mb,batch,tpp,time_s,time_ms\n1\n") == [
        "runs.csv:1: expected the column microbatch; got model, system, batch, mb, batch, tpp, time_s, time_ms",
        "runs.csv:1: expected one column of the measurement (time_s, time_ms, tokens_per_s, tokens_per_s_per_gpu, "
        "tflops_per_gpu, megatron_log); got time_s, time_ms",
        "runs.csv:1: expected a known column; got 'mb'; write microbatch=",
        "runs.csv:1: expected each column once; got batch again; remove one",
        "runs.csv:1: expected a known column; got 'tpp'; did you mean 'tp'?",
    ]


def test_all_faults_of_all_rows() -> None:
    rows = [
        "# comments count as lines",
        f"llama-69m,{NODE},2,x,0,maybe,7,9,foo,fp4,-1",
        "llama-68m,8 of h100,2,2,16,,,,,,1",
        f"llama-68m,{NODE},2,2",
        f"llama-68m,{NODE},2,3,16,,,,,,1",
        f"llama-68m,{NODE},3,2,16,,,,,,1",
        f"mixtral-8x7b,{NODE},2,2,16,,,,megatron,,1",
        "llama-68m,sn10-ring,1,2,16,,,,,,1",
    ]
    found = faults(f"{HEAD},recompute,zero,sequence,splits,products,time_s\n" + "\n".join(rows) + "\n")
    places = [line.split(": expected")[0] for line in found]
    assert places == [
        "runs.csv:3: model",
        "runs.csv:3: batch",
        "runs.csv:3: zero",
        "runs.csv:3: recompute",
        "runs.csv:3: microbatch",
        "runs.csv:3: splits",
        "runs.csv:3: products",
        "runs.csv:3: time_s",
        "runs.csv:4: system",
        "runs.csv:5",
        "runs.csv:6: microbatch",
        "runs.csv:7: system 4 x a100, nvlink 4, degrees",
        "runs.csv:8: splits",
        "runs.csv:9: system",
    ]
    assert "got 'llama-69m'; did you mean 'llama-68m'?" in found[0]
    assert found[9] == "runs.csv:5: expected 11 cells, as the head has columns; got 4"


def test_text_that_is_no_table() -> None:
    assert faults("model\x00,b\n1,2\n")[0].startswith("runs.csv:1: expected the column model")
    assert faults("x" * 200_000) == ["runs.csv:1: expected a line of CSV; got field larger than field limit (131072)"]
    with pytest.raises(BadInput, match="at most 1000 rows"):
        read_iterations(f"{HEAD},time_s\n" + f"llama-68m,{NODE},2,2,16,1\n" * 1001, "runs.csv", EAGER)
