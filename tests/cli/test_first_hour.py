"""What a newcomer meets: names, spellings, help, full disks, names that would steer the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import halley

import halley as package
from halley import BadInput, Infeasible, Problem, build, load_chip
from halley.io.systems.system import load_system

GEMM = ["gemm", "--m", "4", "--n", "4", "--k", "4"]


def python(*words: str, stdout: int = subprocess.PIPE, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-m", "halley", *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, timeout=300)


def test_the_package_runs_as_a_module() -> None:
    assert python("--version").stdout.startswith("halley ")


@pytest.mark.parametrize("words", [(), ("sweep",)])
def test_no_command_is_no_error(words: tuple[str, ...]) -> None:
    shown = halley(*words)
    assert shown.code == 0
    assert "Usage" in shown.out


def test_american_spelling() -> None:
    assert halley("optimize", *GEMM, "--chip", "edge", "--no-baselines", "--no-save").code == 0
    assert "did you mean 'optimise'" in halley("optimis").err


@pytest.mark.medium
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("words", [("chips",), ("workloads", "--json")])
def test_a_full_disk_is_no_fault_of_halley(words: tuple[str, ...]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        said = python(*words, stdout=full)
    finally:
        os.close(full)
    assert said.returncode == 1
    assert said.stderr == (
        "halley: output: expected a place with space for the answer; got No space left on device; "
        "free some space, or write elsewhere\n"
    )


def test_capitals_and_a_million_chips() -> None:
    system, plain = (load_system(text) for text in ("256 X H100, NVLink 8, IB", "256 x h100, nvlink 8, ib"))
    assert (system.chip, system.axes) == (plain.chip, plain.axes)
    assert load_system("1000000 x h100, nvlink 8, ib").chips == 1_000_000
    refused = halley("collective", "all-reduce", "--size", "1MiB", "--system", "1000000 x h100, nvlink 8, ib")
    assert "at most 16,384 chips for the graph of a network; got 1,000,000" in refused.err
    with pytest.raises(BadInput, match="from 1 to 1,048,576; got '1048577'"):
        load_system("1048577 x h100, nvlink 8, ib")


def test_names_cannot_steer_the_terminal(empty_folder: Path) -> None:
    text = package.library.CHIPS.text("edge").replace("name: edge", 'name: "ed\\e[31mge"', 1)  # type: ignore[attr-defined]
    (empty_folder / "chip.yaml").write_text(text)
    for words in (["chips", "chip.yaml"], ["optimise", *GEMM, "--chip", "chip.yaml", "--no-baselines"]):
        shown = halley(*words)
        assert shown.code == 0
        assert "\x1b[31m" not in shown.out + shown.err
        assert "\\x1b[31m" in shown.out
    refused = halley("optimise", "embedding\x1b[31m")
    assert "\x1b" not in refused.err


def test_completion_scripts() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_HALLEY_COMPLETE" in halley("completion", shell).out
    assert "expected one of bash, zsh, fish; got 'csh'" in halley("completion", "csh").err


@pytest.mark.medium
@pytest.mark.parametrize(("words", "found"), [("halley opti", "optimise"), ("halley sweep show --be", "--best")])
def test_completions(words: str, found: str) -> None:
    said = python(_HALLEY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert said.stdout.split() == [found]


def test_time_limits_are_numbers_or_text() -> None:
    work, chip = build("gemm", {"m": 4, "n": 4, "k": 4}), load_chip("edge")
    assert Problem(work, chip, time_limit="60s").time_limit == 60.0  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="problem, time_limit: expected a time; got '60', without a unit"):
        Problem(work, chip, time_limit="60")  # type: ignore[arg-type]


@pytest.mark.medium
def test_one_function_per_product() -> None:
    own = package.estimate(
        "hold dram: A B C\n  hold ibuf: A\n    hold wbuf: B\n      hold obuf: C\n        compute gemm",
        build("gemm", {"m": 4, "n": 4, "k": 4}),
        "edge",
    )
    assert own.estimate.traffic("dram") == 96
    with pytest.raises(Infeasible, match="ibuf"):
        package.estimate(own.plan, build("gemm", {"m": 4096, "n": 4, "k": 4096}), "edge")
    answer = package.collective("all-reduce", 2**20, "dgx-h100", ranks="0-3")
    assert answer.single is not None
    assert answer.single.cost.time == package.collective("all-reduce", "1 MiB", "dgx-h100", ranks=range(4)).single.cost.time  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="library or searched"):
        package.plan("gpt2-xl", "8 x h100, nvlink 8", 8, kernels="none")
    plan = package.plan("gpt2-xl", "8 x h100, nvlink 8", 8, fix="tp=2", time_limit="60s")
    assert plan.problem.fixed.model == 2
    assert package.as_answer(plan).kind == "training-plan"


def test_a_name_that_is_taken_is_refused_before_the_search(empty_folder: Path) -> None:
    (empty_folder / "a.json").write_text("mine")
    refused = halley("optimise", "attention", "--batch", "1", "--heads", "32", "--kv-heads", "8", "--queries", "512", "--keys",
                     "512", "--head-dim", "128", "--chip", "edge", "-o", "a.json")  # fmt: skip
    assert refused.code == 1
    assert "a.json: expected a new file" in refused.err
