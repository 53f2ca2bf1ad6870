"""Python: what products return, how it prints, and arguments that are none."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from tests.cli.running import PROGRAM
from tests.cli.running import halley as command

import halley
from halley.answer import Answerable
from halley.answers.load import VALUES
from halley.ir.digest import digest
from halley.products.arguments import checked
from halley.report.table import Table
from halley.report.terminal import show
from halley.sweeps.study import problem_key

TEXT = "hold dram: A B C\n  hold ibuf: A\n    hold wbuf: B\n      hold obuf: C\n        compute gemm"
CLUSTER = "8 x h100, nvlink 8"


def gemm() -> halley.Workload:
    return halley.build("gemm", {"m": 8, "n": 8, "k": 8})


def problem(**changes: Any) -> halley.Problem:
    return halley.Problem(gemm(), halley.load_chip("edge"), **({"baselines": False} | changes))


MADE: dict[str, Callable[[], Any]] = {
    "Result": lambda: halley.optimise(problem()),
    "OwnMapping": lambda: halley.estimate(TEXT, gemm(), "edge"),
    "CollectiveAnswer": lambda: halley.collective("all-reduce", "1 MiB", "dgx-h100"),
    "TrainingResult": lambda: halley.plan("gpt2-xl", CLUSTER, 8, fix="tp=2"),
    "NetworkResult": lambda: halley.optimise_network(PROGRAM, "edge", dtype="bf16", gap=0.5),
    "GraphPlan": lambda: halley.shard(gemm(), CLUSTER),
    "Served": lambda: halley.serve("llama3-8b", "2 x h100, nvlink 2", 1024, 128, concurrency=16),
    "ServingPlan": lambda: halley.plan_serving("llama3-8b", CLUSTER, 1024, 256, together=True),
}


@cache
def made(name: str) -> Any:
    return MADE[name]()


@pytest.mark.parametrize("name", MADE)
def test_a_returned_value_does_what_its_answer_does(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = made(name)
    assert isinstance(value, Answerable)
    assert type(value).__name__ == name in VALUES
    answer = halley.as_answer(value)
    assert value.answer().lines() == answer.lines()
    value.save(tmp_path / "a.json")
    saved = halley.load(tmp_path / "a.json")
    assert {**saved.content(), "provenance": None} == {**value.to_dict(), "provenance": None}
    assert value._repr_html_() == answer._repr_html_()
    assert "<svg" in value.plot()._repr_svg_()
    value.show()
    assert answer.tables()[0].title in capsys.readouterr().out
    value.report(tmp_path / "a.html")
    value.figure(tmp_path / "a.svg")
    assert value.table(next(iter(answer.sheets()))).count("\n") > 1
    assert value.compare(value).tables
    assert value.explain()
    assert all(finding.passed is not False for finding in value.check(search=False))


@pytest.mark.parametrize("name", MADE)
def test_a_returned_value_prints_as_its_headline(name: str) -> None:
    shown = repr(made(name))
    assert shown.startswith(f"{name}: ")
    assert shown.count("\n") <= 2
    assert len(shown) < 700


def test_all_values_of_answers_are_answerable() -> None:
    from halley.dfmodel.plan import DFModelResult

    kinds = [*(type(made(name)) for name in MADE), DFModelResult]
    assert {kind.__name__ for kind in kinds if issubclass(kind, Answerable)} == set(VALUES)


def test_data_frames_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(halley.BadInput, match="run: pip install pandas"):
        made("Result").to_frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(read_csv=lambda text: text.read()))
    assert made("Result").to_frame("nodes") == made("Result").table("nodes")


def test_chips_problems_and_solutions_print_in_one_line() -> None:
    result = made("Result")
    for value in (result.problem.chip, result.problem, result.best):
        assert "\n" not in repr(value)
        assert len(repr(value)) < 220
    assert "edge" in repr(result.problem.chip)
    assert "gemm m=8 n=8 k=8" in repr(result.problem)


def test_what_prints_alike_is_not_the_same_problem() -> None:
    """Keys of stored answers are made of all figures, also of those that a chip does not print."""
    chip = halley.load_chip("edge")
    dram = chip.memory("dram")
    faster = replace(dram, read_bandwidth=2 * dram.read_bandwidth)
    other = replace(chip, levels=(replace(chip.levels[0], memories=(faster,)), *chip.levels[1:]))
    assert repr(other) == repr(chip)
    assert digest(other) != digest(chip)
    assert problem_key(problem()) != problem_key(replace(problem(), chip=other))


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: halley.plan("gpt2-xl", CLUSTER, cast(Any, "8")), "plan, batch: expected a whole number; got '8'"),
    (lambda: halley.plan("gpt2-xl", CLUSTER, -8), "plan, batch: expected a whole number from 1; got -8"),
    (lambda: halley.plan("gpt2-xl", CLUSTER, 8, sequence=0), "plan, sequence: expected a whole number from 1"),
    (lambda: halley.plan("gpt2-xl", CLUSTER, 8, progress=cast(Any, True)), "plan, progress: expected a function"),
    (lambda: halley.plan("gpt2-xl", CLUSTER, 8, time_limit=-1), "plan, time_limit: expected seconds"),
    (lambda: halley.plan(cast(Any, 3), CLUSTER, 8), "plan, model: expected"),
    (lambda: halley.plan_serving("llama3-8b", CLUSTER, cast(Any, 1.5), 2), "plan_serving, input: expected a whole number"),
    (lambda: halley.plan_serving("llama3-8b", CLUSTER, -1, 2), "input: expected a number of tokens"),
    (lambda: halley.plan_serving("llama3-8b", CLUSTER, 1, 2, slo=cast(Any, 3)), "plan_serving, slo: expected text or None"),
    (lambda: halley.serve("llama3-8b", CLUSTER, 1, 2), "load: expected a concurrency or a rate; got neither"),
    (lambda: halley.serve("llama3-8b", CLUSTER, 1, 2, concurrency=1, tp=0), "serve, tp: expected a whole number from 1; got 0"),
    (lambda: halley.shard(cast(Any, "gemm"), CLUSTER), "shard, workload: expected a Workload; got 'gemm'"),
    (
        lambda: halley.shard(gemm(), CLUSTER, splits={"gemm": {"rows": "m"}}),
        "op gemm: expected an axis of the system; got 'rows'",
    ),
    (lambda: halley.optimise(cast(Any, gemm())), "optimise, problem: expected a Problem; got a Workload"),
    (lambda: halley.optimise(problem(), cast(Any, True)), "optimise, progress: expected a function"),
    (lambda: halley.estimate(cast(Any, 3), gemm(), "edge"), "estimate, mapping: expected text or a tree of a mapping; got 3"),
    (lambda: halley.estimate(TEXT, cast(Any, "gemm"), "edge"), "estimate, workload: expected a Workload"),
    (lambda: halley.collective("all-reduce", cast(Any, True), "dgx-h100"), "collective, size: expected"),
    (lambda: halley.collective("all-reduce", 8, "dgx-h100", startup=-1.0), "collective, startup: expected seconds"),
    (lambda: halley.calibrate_training(cast(Any, 3)), "calibrate_training, log: expected text or a path"),
    (lambda: halley.sensitivity(cast(Any, problem())), "sensitivity, answer: expected"),
    (lambda: halley.sweep(cast(Any, 3)), "expected a path; got 3"),
    (lambda: halley.codesign(cast(Any, 3)), "expected a path; got 3"),
    (lambda: halley.optimise_network("net.pt2", "edge", dims={"b": 1}), "--dim: expected none for a program"),
    (
        lambda: halley.optimise_network(PROGRAM, "edge", "edp", dtype="bf16"),
        "objective: expected time or energy for a whole network",
    ),
    (
        lambda: halley.optimise_network(PROGRAM, "edge", dtype="bf16", gap=1.5),
        "optimise_network, gap: expected a number from 0 to below 1",
    ),
    (lambda: halley.build("gemm", cast(Any, 3)), "workload gemm: expected a map of parameters; got 3"),
    (lambda: halley.time("gemm", {"m": 4, "n": 4}, "h100"), "gemm: k: expected a size; got none"),
    (lambda: halley.time("gemm", {"m": 4, "n": 4, "k": 4, "j": 4}, "h100"), "gemm: expected the sizes m, n, k; got 'j'"),
    (lambda: halley.time("gemm", cast(Any, "m"), "h100"), "time, sizes: expected a map; got 'm'"),
    (lambda: problem(baselines="x"), "problem, baselines: expected True, False or a tuple of names; got 'x'"),
    (lambda: problem(front=3), "problem, front: expected True or False"),
    (lambda: problem(gap="1"), "problem, gap: expected a number"),
    (lambda: problem(time_limit=[]), "problem, time_limit: expected seconds"),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words[:30] for _, words in WRONG])
def test_a_wrong_argument_is_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(halley.BadInput) as caught:
        call()
    assert words in str(caught.value)


def test_numbers_of_numpy_and_lists_are_taken() -> None:
    @checked
    def total(number: int, share: float | None = None) -> float:
        return number + (share or 0)

    assert total(cast(Any, np.int64(3)), cast(Any, np.float32(0.5))) == 3.5
    assert problem(baselines=["unfused"]).baselines == ("unfused",)


def test_a_comparison_says_that_questions_differ() -> None:
    best, own = made("Result"), made("OwnMapping")
    assert best.compare(own).questions == ()
    work = halley.build("gemm", {"m": 8, "n": 8, "k": 16})
    larger = halley.optimise(halley.Problem(work, halley.load_chip("cloud"), baselines=False))
    found = best.compare(larger)
    assert found.questions == ("workload", "chip")
    assert found.document["different_questions"] == ["workload", "chip"]
    assert found.remark == "the questions differ in workload, chip: not only decisions make the difference"


def test_the_command_says_it_too(tmp_path: Path) -> None:
    made("Result").save(tmp_path / "one.json")
    halley.optimise(problem(objective=halley.Objective.ENERGY)).save(tmp_path / "two.json")
    said = command("compare", str(tmp_path / "one.json"), str(tmp_path / "two.json"))
    assert "the questions differ in objective:" in said.out
    (tmp_path / "net.json").write_text('{"schema": "halley.network-on-chip/1"}')
    assert "run 'halley optimise NETWORK' again" in command("show", str(tmp_path / "net.json"), width=300).err


def test_files_of_jax_are_no_models_yet() -> None:
    assert "StableHLO of JAX is not read yet" in command("import", "step.stablehlo", width=300).err


def test_a_chip_without_the_dtype_says_what_to_add(empty_folder: Path) -> None:
    new = command("chips", "new", "gpu", "--from-datasheet", "181 TFLOPS fp16, 1.6 TB/s, 64 GB")
    assert new.code == 0, new.err
    gemm_words = ("gemm", "--m", "4", "--n", "4", "--k", "4")
    said = command("optimise", *gemm_words, "--no-save", "--chip", "gpu.yaml", width=300)
    assert "add --dtype fp16" in said.err


def test_names_in_tables_are_not_broken() -> None:
    head, name = ("layer", "bytes", "computes"), "scaled_dot_product_attention-1"
    console = Console(width=60, file=io.StringIO())
    show(console, [Table("Layers", head, ((name, "1,024", "S[h,m,n] = Q[h,m,d] * K[h,n,d] and more of it"),), frozenset({1}))])
    assert name in cast(io.StringIO, console.file).getvalue()


def test_the_time_of_a_kernel_is_that_of_the_command() -> None:
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    said = command("time", "gemm", *words, "--chip", "h100", "--json")
    assert float(halley.time("gemm", sizes, "h100").time) == said.json["time_s"]


def test_functions_of_plans_give_what_their_commands_give() -> None:
    served = command("serve", "llama3-8b", "--system", "2 x h100, nvlink 2", "--input", "1024", "--output", "128",
                     "--concurrency", "16", "--json").json  # fmt: skip
    assert made("Served").to_dict()["answer"] == served["answer"]
    sharded = command("shard", "gemm", "--m", "8", "--n", "8", "--k", "8", "--system", CLUSTER, "--json").json
    assert made("GraphPlan").to_dict()["answer"] == sharded["answer"]


def test_lists_of_chips_and_models(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chips, models = halley.chips(), halley.models()
    assert tuple(chips) == halley.chip_names()
    assert chips["edge"] == halley.load_chip("edge")
    assert models["llama3-8b"].layers == 32
    with pytest.raises(KeyError):
        chips["../edge"]
    assert "edge" in repr(chips)
    chips.show()
    assert capsys.readouterr().out.split() == command("chips").out.split()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(read_csv=lambda text: text.read()))
    for listing in (chips, models):
        assert listing._repr_html_().count("<tr>") == len(listing) + 1
        rows = listing.to_frame().splitlines()
        assert len(rows) == len(listing) + 1


def test_progress_of_a_network_goes_from_layer_to_layer() -> None:
    said: list[tuple[str, float]] = []
    found = halley.optimise_network(
        PROGRAM, "edge", dtype="bf16", gap=0.5, progress=lambda text, share: said.append((text, share))
    )
    assert found.enough
    assert all(0 <= share <= 1 for _, share in said)
    assert {text.split(" (")[0] for text, _ in said} == {item.layer.name for item in found.layers}
