"""Measured iterations of training: how rows are read, what is predicted of them, and the comparison with baselines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from validation.outcome import Case
from validation.training.__main__ import main
from validation.training.compare import MEANS, cases, compare, constant, fits, iteration, kendall, problem
from validation.training.fit import error_of, fitted, mean_error
from validation.training.runs import FOUNDRY, TABLE, VTRAIN, Run, runs

from halley.cli.validate import DATA
from halley.errors import BadInput
from halley.importers.iterations import read_iterations
from halley.io.chips.software import load_software
from halley.kernels.software import Software
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.training.fit.calibrate import calibrate_software
from halley.training.search.search import best_training_plan

FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
needs_data = pytest.mark.skipif(FOLDER is None, reason=f"no data: set {DATA} to their folder")

GPT = {
    "source": "VIA-Research/vTrain@0:table.csv",
    "workload": "GPT hidden=1024 heads=16 layers=12 seq=1024 global_batch=16 micro_batch=1",
    "hardware": "4x NVIDIA A100",
    "parallelism": "TP=2 DP=1 PP=2",
    "value": 0.5,
}
MPT = {
    "source": "mosaicml/llm-foundry@0:README.md",
    "workload": "MPT-125m training seq=2048 global_batch=512 microbatch=32 grad_accum=2 precision=amp_bf16 act_ckpt=False",
    "hardware": "8x a100_80gb",
    "parallelism": "FSDP FULL_SHARD mp=DEFAULT",
    "value": 131072.0,
}


def folder(path: Path, *rows: dict[str, Any]) -> Path:
    (path / TABLE.parent).mkdir()
    (path / TABLE).write_text(json.dumps(rows))
    return path


def test_rows_are_read(tmp_path: Path) -> None:
    where = folder(tmp_path, GPT, MPT, {"source": "another"}, GPT)
    first, second = runs(where, VTRAIN)
    assert (first.chips, first.tensor, first.stages, first.data, first.microbatch, first.batch) == (4, 2, 2, 1, 1, 16)
    assert (first.recompute, first.sharded, first.seconds) == (Recompute.FULL, Sharded.NOTHING, 0.5)
    assert (first.fitted, second.fitted) == (True, False)
    assert first.shape.vocabulary == 50432  # 50257, to the next multiple of 256
    (mpt,) = runs(where, FOUNDRY)
    assert mpt.seconds == 512 * 2048 / 8 / 131072.0
    assert (mpt.sharded, mpt.recompute, mpt.data) == (Sharded.PARAMETERS, Recompute.NONE, 8)


def test_rows_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a setting that is understood"):
        runs(folder(tmp_path, {**GPT, "parallelism": "TP=2"}), VTRAIN)
    (tmp_path / TABLE).write_text("{")
    with pytest.raises(BadInput, match="measured iterations in JSON"):
        runs(tmp_path, VTRAIN)


@pytest.mark.medium
def test_an_iteration_is_that_of_a_plan_with_the_same_choices(tmp_path: Path) -> None:
    """Shortcuts of the comparison (layers costed once) against the search for plans."""
    where = folder(tmp_path, GPT, MPT)
    for run in (*runs(where, VTRAIN), *runs(where, FOUNDRY)):
        for software in (None, load_software("megatron-deepspeed")):
            found = best_training_plan(problem(run, software), others=0)
            assert iteration(run, software) == pytest.approx(found.cost.time)
        assert fits(run)


def test_a_fit_finds_the_software_that_made_the_times(tmp_path: Path) -> None:
    (run,) = runs(folder(tmp_path, GPT), VTRAIN)
    made = Software("made", block=1.5e-3)
    measured = [replace(run, microbatch=size, batch=4 * size, seconds=1.0) for size in (1, 2)]
    measured = [replace(each, seconds=iteration(each, made)) for each in measured]
    assert error_of(measured, made) < 1e-9
    found, error = fitted(Software("start", block=1e-3), ["block"], measured)
    assert found.block == pytest.approx(1.5e-3, rel=0.03)
    assert error < 0.03


def test_baselines(tmp_path: Path) -> None:
    (run,) = runs(folder(tmp_path, GPT), VTRAIN)
    twice = replace(run, batch=32, seconds=1.0)
    assert constant([run], [run, twice]) == pytest.approx([0.5, 1.0])
    assert kendall([Case("a", 1, 2), Case("b", 2, 3), Case("c", 3, 5)]) == 1.0
    assert [case.figure for case in cases([run], None)] == [0.5]


def test_without_data_it_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(None).skipped == compare(tmp_path).skipped == "no data"
    assert main([]) == 1
    assert "usage" in capsys.readouterr().err


@needs_data
@pytest.mark.slow
def test_rows_held_out_are_met() -> None:
    outcome = compare(FOLDER)
    assert outcome.holds
    errors = {line.quantity: line.mean_error for line in outcome.lines}
    for source, better in ((VTRAIN, 3), (FOUNDRY, 2)):
        assert errors[f"{source}, no software"] > better * errors[f"{source}, held out"]


def log_of(found: Sequence[Run], path: Path) -> str:
    """Runs as a table for ``halley calibrate training``, with their models in files beside it."""
    lines = ["model,system,dp,pp,tp,microbatch,batch,recompute,zero,attention,splits,time_s"]
    for run in found:
        model = path / f"{run.shape.name}-{run.shape.vocabulary}.yaml"
        sizes = ("layers", "model", "heads", "kv_heads", "head_dim", "hidden", "vocabulary", "sequence", "dropout")
        kinds = "gated: false\nrms: false\npositions: true\ntied: true\npublished: 1\n"
        head = f"format: halley.model/1\nname: {run.shape.name}\nsource: runs\n"
        model.write_text(head + "".join(f"{name}: {getattr(run.shape, name)}\n" for name in sizes) + kinds)
        system = f'"{run.chips} x a100, nvlink {run.chips}"' if run.chips > 1 else "1 x a100"
        degrees = run.data, run.stages, run.tensor, run.microbatch, run.batch
        choices = run.recompute, int(run.sharded), "fused" if run.fused else "unfused", "megatron" if run.tensor > 1 else ""
        lines.append(",".join(map(str, (model, system, *degrees, *choices, run.seconds))))
    return "\n".join(lines) + "\n"


@needs_data
@pytest.mark.medium
def test_a_log_of_measured_runs_has_the_held_out_error_of_the_shipped_fit(tmp_path: Path) -> None:
    """Every 45th row that the shipped fit did not see; a fit to one half of them, from other software, predicts the other."""
    assert FOLDER is not None
    judged = [run for run in runs(FOLDER, VTRAIN) if not run.fitted][::45]
    shipped = load_software("megatron-deepspeed")
    rows = read_iterations(log_of(judged, tmp_path), "runs.csv", shipped)
    predicted = [row.plan.cost(shipped).time for row in rows]
    assert predicted == pytest.approx([iteration(run, shipped) for run in judged], rel=1e-9)
    assert [row.seconds for row in rows] == [run.seconds for run in judged]
    assert mean_error(judged, lambda run: predicted[judged.index(run)]) < MEANS[VTRAIN]
    found = calibrate_software(rows, load_software("eager"))
    assert found.before > 0.15
    assert found.held_out is not None
    assert found.held_out < 0.13
    assert [number.name for number in found.numbers] == ["block"]
    assert found.software.block == pytest.approx(shipped.block, rel=0.2)
