"""``halley plan``: what it prints and writes, and what it says to bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import halley
from tests.report.chromium import chromium

from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.report.browser import browser
from halley.report.plans.figures import FIGURES
from halley.report.plans.plan import ACCOUNT, HELD
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.fixed import parse_fixed
from halley.training.plan import Fixed
from halley.units import format_time

TINY = """
format: halley.model/1
name: tiny
source: made up
layers: 4
model: 512
heads: 8
kv_heads: 8
head_dim: 64
hidden: 2048
vocabulary: 32000
sequence: 512
gated: false
rms: false
positions: true
tied: false
dropout: 0.0
published: 5.0e7
"""
FEW = ("--system", "4 x a100, nvlink 4", "--batch", "8")
OWN = ("plan", "tiny.yaml", *FEW, "--fix", "tp=2,pp=2,microbatch=2,recompute=none,zero=0,offload=no")


@pytest.fixture
def folder(empty_folder: Path) -> Path:
    (empty_folder / "tiny.yaml").write_text(TINY)
    return empty_folder


@pytest.fixture
def planned(folder: Path) -> dict[str, Any]:
    outcome = halley(*OWN, "-o", "plan.json", "--page", "plan.html", "--json")
    assert outcome.code == 0, outcome.err
    written = json.loads((folder / "plan.json").read_text())
    assert outcome.json | {"provenance": {}} == written | {"provenance": {}}
    return dict(written["answer"] | {"certificate": written["certificate"]})


def test_what_the_user_decided_is_what_he_gets(planned: dict[str, Any]) -> None:
    plan = planned["plan"]
    assert (plan["data"], plan["stages"], plan["model"], plan["microbatch"], plan["microbatches"]) == (1, 2, 2, 2, 4)
    assert (plan["recompute"], plan["zero"], plan["offload"]) == ("none", 0, False)
    assert sum(plan["layers"]) == 4
    assert math.prod(part["size"] for part in plan["axes"]) == 4


def test_numbers_add_up(planned: dict[str, Any]) -> None:
    cost, certificate = planned["cost"], planned["certificate"]
    assert math.isclose(sum(cost["account"].values()), cost["time"], rel_tol=1e-12)
    assert all(sum(stage.values()) <= cost["capacity"] for stage in cost["memory"])
    assert set(cost["account"]) <= set(ACCOUNT)
    assert set(cost["memory"][0]) <= set(HELD)
    assert math.isclose(cost["tokens_per_second"] * cost["time"], 8 * 512, rel_tol=1e-12)
    assert 0 < cost["utilisation"] <= cost["hardware_utilisation"] <= 1
    assert all(load["demand"] / load["capacity"] <= cost["time"] for load in cost["loads"])
    assert 0 < certificate["bound"] <= certificate["value"] == cost["time"]
    assert all(other["figures"]["time"] >= cost["time"] for other in planned["alternatives"])
    sent = sum(item["count"] * sum(item["sent"].values()) for item in cost["traffic"])
    levels = [load["demand"] for load in cost["loads"] if load["resource"].startswith("network")]
    assert math.isclose(sum(levels), sent, rel_tol=1e-12)
    assert sent > 0
    for other in planned["alternatives"]:
        other = other["figures"]
        assert math.isclose(sum(other["slower"].values()), other["time"] - cost["time"], rel_tol=1e-9, abs_tol=1e-12)


def test_the_terminal_says_it_all(folder: Path) -> None:
    outcome = halley(*OWN, "--ops")
    assert outcome.code == 0, outcome.err
    wanted = ("data 1 x pipeline 2 x model 2", "of capacity", "Where the time goes", "Certificate", "left out", "scores")
    for words in wanted:
        assert words in outcome.out, words


def test_what_runs_side_by_side_on_a_chip(folder: Path) -> None:
    """The terminal, the page and the document have the partitions; their times are the passes of the plan."""
    few = ("--system", "2 x sn10, pcie", "--batch", "4", "--fix", "tp=2,pp=1,microbatch=4,recompute=none,zero=0,offload=no")
    outcome = halley("plan", "tiny.yaml", *few, "--details", "-o", "plan.json", "--page", "plan.html")
    assert outcome.code == 0, outcome.err
    assert "--time-limit" in outcome.err
    for words in ("On the chip: tiny layer, forward pass", "kernels side by side", "queries"):
        assert words in outcome.out, words
    assert 'id="on-chip"' in (folder / "plan.html").read_text()
    found = json.loads((folder / "plan.json").read_text())["answer"]["on_chip"]["tiny layer"]
    assert set(found) == {"forward", "backward"}
    for each in found.values():
        assert math.isclose(sum(part["time"] for part in each["partitions"]), each["time"], rel_tol=1e-9)
        assert 0 < each["bound"] <= each["time"] * (1 + 1e-9)
        names = [name for part in each["partitions"] for name in part["kernels"]]
        assert len(names) == len(set(names))


@pytest.mark.skipif(browser() is None, reason="no Chromium on the search path; install the package chromium")
def test_the_page_in_a_browser(planned: dict[str, Any], folder: Path) -> None:
    with chromium(folder / "profile") as made:
        made.size(1280, 900)
        made.open(folder / "plan.html")
        assert made.complaints() == []
        assert made.requests() == [(folder / "plan.html").as_uri()]
        assert made.run("document.querySelector('[data-value=time]').textContent") == format_time(planned["cost"]["time"])
        assert json.loads(made.run("document.querySelector('#result').textContent"))["answer"]["plan"] == planned["plan"]
        sizes = "[...document.querySelectorAll('figure svg')].map((svg) => svg.getBoundingClientRect().height)"
        assert [size > 50 for size in made.run(sizes)] == [True] * len(FIGURES)
        assert made.run("document.documentElement.scrollWidth") <= 1280


def test_decisions_in_words() -> None:
    words = "dp=2, tp=4 pp=1,zero=3,schedule=gpipe,chunks=2,recompute=full,attention=unfused,node=dp:2+tp:4"
    found = parse_fixed(words, ["node"])
    assert found == Fixed(
        data=2,
        stages=1,
        model=4,
        schedule=PipelineSchedule.GPIPE,
        chunks=2,
        recompute=Recompute.FULL,
        sharded=Sharded.PARAMETERS,
        fused=False,
        axes={"node": {Role.DATA: 2, Role.MODEL: 4}},
    )
    assert parse_fixed(None) == Fixed()


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["tiny.yaml", "--batch", "8"], "--system: expected a system; got nothing", 1),
        (["tiny.yaml", *FEW[:2]], "--batch: expected a whole number", 1),
        (["tiny.yaml", *FEW[:3], "0"], "--batch: expected a whole number from 1 to 999,999,999; got '0'", 1),
        (["tiny.yaml", *FEW[:3], "1" * 40], "--batch: expected a whole number", 1),
        (
            ["tiny.yaml", "--system", "dgx-h100", "--batch", "8"],
            "got the network dgx-h100, which has none",
            1,
        ),
        (["gpt3-2t", *FEW], "did you mean 'gpt3-1t'?", 1),
        (["tiny.yaml", "--system", "4 x a101, nvlink 4", "--batch", "8"], "did you mean 'a100'", 1),
        (["tiny.yaml", *FEW, "--fix", "tp=3"], "expected degrees whose product divides the 4 chips", 1),
        (["tiny.yaml", *FEW, "--fix", "tp=2,pp=1,dp=1"], "expected degrees whose product is the 4 chips", 1),
        (["tiny.yaml", *FEW, "--fix", "tp"], "--fix: expected words such as tp=8; got 'tp'", 1),
        (["tiny.yaml", *FEW, "--fix", "tp=2,tp=2"], "--fix tp: expected each word once; got it again", 1),
        (["tiny.yaml", *FEW, "--fix", "sp=2"], "tensor and sequence parallelism share the chips of tp=", 1),
        (["tiny.yaml", *FEW, "--fix", "recompte=full"], "did you mean 'recompute'?", 1),
        (["tiny.yaml", *FEW, "--fix", "zero=4"], "--fix zero: expected 0, 1, 2 or 3", 1),
        (["tiny.yaml", *FEW, "--fix", "nvlink=dp:x"], "--fix nvlink: expected parts such as dp:16+pp:8; got 'dp:x'", 1),
        (["tiny.yaml", *FEW, "--fix", "nvlink=dp:4+dp:4"], "--fix nvlink: expected each of dp, pp and tp once; got dp again", 1),
        (["tiny.yaml", *FEW, "--streaming"], "--streaming: expected --view dfmodel", 1),
        (["tiny.yaml", *FEW, "--view", "dfmodel", "--optimizer", "fp32-adam"], "--optimizer: expected the default view", 1),
        (["tiny.yaml", *FEW, "--fix", "pp=4,chunks=2"], "chunks", 1),
        (["tiny.yaml", "--system", "4 x a100, nvlink 4", "--batch", "6", "--fix", "dp=4"], "batch: expected a multiple", 1),
        (["tiny.yaml", *FEW, "--optimizer", "adam"], "optimizer: expected a known one", 1),
        (["tiny.yaml", *FEW, "--time-limit", "5m"], "--time-limit", 1),
        (["tiny.yaml", *FEW, "-j", "2"], "--workers: expected --kernels searched beside it; got library kernels", 1),
        (
            ["tiny.yaml", *FEW, "--kernels", "searched", "-j", "0"],
            "--workers: expected a whole number from 1 to 1,024; got '0'",
            1,
        ),
        (["tiny.yaml", *FEW, "--view", "dfmodel", "-j", "2"], "--workers: expected the default view", 1),
        (["tiny.yaml", *FEW, "--view", "dfmodl"], "--view: expected halley or dfmodel; got 'dfmodl'; did you mean 'dfmodel'?", 1),
        (["tiny.yaml", *FEW, "--view", "dfmodel", "--page", "p.html"], "--page: expected the default view", 1),
        (["tiny.yaml", *FEW, "--view", "dfmodel", "--fix", "zero=1"], "--fix: expected dp, pp and tp with --view dfmodel", 1),
        (["tiny.yaml", *FEW, "--fix", "microbatch=3"], "a data-parallel rank (2 or 4 or 8); got 3; take 2", 1),
        (["gpt3-1t", *FEW], "GiB on a chip", 2),
        (["gpt3-6.7b", *FEW, "--fix", "dp=4,zero=0,offload=no"], "take zero=1, with which it fits", 2),
    ],
)
def test_one_clear_line(words: list[str], said: str, code: int, folder: Path) -> None:
    outcome = halley("plan", *words)
    assert said in outcome.err
    assert (outcome.code, outcome.out) == (code, "")
    faults = [line for line in outcome.err.splitlines() if not line.startswith("no measured kernels of")]
    assert all(line.startswith("halley: ") for line in faults)
    assert len(faults) == 1


def test_faults_of_model_and_system_at_once(folder: Path) -> None:
    outcome = halley("plan", "gpt3-2t", "--system", "nosuch.yaml", "--batch", "8")
    assert (outcome.code, outcome.out) == (1, "")
    lines = outcome.err.splitlines()
    assert lines[0].startswith("halley: nosuch.yaml: expected a file")
    assert "did you mean 'gpt3-1t'?" in lines[1]
    assert len(lines) == 2


def test_one_screen_unless_details_are_asked_for(folder: Path) -> None:
    short = halley("plan", "tiny.yaml", *FEW, width=80)
    assert short.code == 0, short.err
    lines = short.out.splitlines()
    assert len(lines) <= 45
    for title in ("The best plan", "Parallelism on each axis", "Where the time goes", "The next best kinds of plan"):
        assert any(line.startswith(title) for line in lines)
    assert "--details prints memory" in short.err
    long = halley("plan", "tiny.yaml", *FEW, "--details", width=80)
    assert all(title in long.out for title in ("Certificate", "Hierarchical roofline", "Memory of a chip at its peak"))
    assert "--details prints" not in long.err


def test_a_batch_without_data_parallelism_is_remarked(folder: Path) -> None:
    outcome = halley("plan", "tiny.yaml", *FEW[:3], "7", "--fix", "pp=1,tp=4,recompute=none")
    assert (outcome.code, "7 sequences share no factor with 4 chips" in outcome.err) == (0, True)


def test_all_faults_of_a_model_file_at_once(folder: Path) -> None:
    (folder / "bad.yaml").write_text(TINY.replace("layers: 4", "layers: -4").replace("hidden:", "hiden:"))
    outcome = halley("plan", "bad.yaml", *FEW)
    assert (outcome.code, outcome.out, len(outcome.err.splitlines())) == (1, "", 3)
    assert "layers: expected a number greater than or equal to 1; got -4" in outcome.err
    assert "did you mean 'hidden'?" in outcome.err


def test_keys_that_do_not_go_together_are_reported_at_their_line(folder: Path) -> None:
    text = TINY.replace("kv_heads: 8", "kv_heads: 3")
    (folder / "odd.yaml").write_text(text)
    outcome = halley("plan", "odd.yaml", *FEW)
    line = text.splitlines().index("kv_heads: 3") + 1
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"halley: odd.yaml:{line}: kv_heads: expected a divisor of heads (8); got 3")


def test_a_file_that_exists_is_kept(folder: Path) -> None:
    (folder / "plan.json").write_text("mine")
    outcome = halley(*OWN, "-o", "plan.json")
    assert (outcome.code, "plan.json: expected a new file" in outcome.err) == (1, True)
    assert (folder / "plan.json").read_text() == "mine"


def test_a_reader_who_leaves_early_keeps_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("halley.cli.output.show", leave)
    # the command then gives its standard output away for good, which the test runner would miss
    monkeypatch.setattr("halley.cli.errors.os.dup2", lambda *_: 0)
    halley(*OWN, "-o", "plan.json")
    assert json.loads((folder / "plan.json").read_text())["answer"]["plan"]["model"] == 2


def test_an_interrupt_before_any_answer_is_answered_in_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halley.cli.plans.plan.best_training_plan", interrupted)
    outcome = halley(*OWN)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.splitlines()[-1] == "halley: interrupted"


def test_the_view_of_dfmodel(folder: Path) -> None:
    outcome = halley("plan", "tiny.yaml", *FEW, "--view", "dfmodel", "--fix", "pp=4", "-o", "plan.json")
    assert outcome.code == 0, outcome.err
    assert "optimal" in outcome.out
    written = json.loads((folder / "plan.json").read_text())
    figures = written["answer"]["figures"]
    assert math.isclose(sum(figures["account"].values()), figures["time"], rel_tol=1e-9)
    assert figures["axes"] == "pipeline 4 nvlink"
    assert 0 < figures["utilisation"] < 1


def test_any_graph_on_a_system(folder: Path) -> None:
    gemm = ("shard", "gemm", "--m", "8192", "--n", "4096", "--k", "4096", "--system", "4 x a100, nvlink 4")
    outcome = halley(*gemm, "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json["answer"]["figures"]
    assert outcome.json["certificate"]["gap"] < 1e-9
    assert math.isclose(sum(found["account"].values()), found["time"], rel_tol=1e-9)
    assert list(outcome.json["answer"]["sharding"]["ops"].values()) in ([["m"]], [["n"]])
    assert "optimal" in halley(*gemm).out
    overlapped = halley(*gemm, "--overlap", "--json").json["certificate"]
    assert overlapped["bound"] <= overlapped["value"] <= found["time"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gemm", "--m", "8", "--n", "8", "--k", "8"], "--system: expected a system; got nothing"),
        (["gem", "--system", "4 x a100, nvlink 4"], "did you mean 'gemm'?"),
        (["gemm", "--m", "8", "--n", "8", "--system", "4 x a100, nvlink 4"], "k"),
        (["gemm", "--m", "8", "--n", "8", "--k", "8", "--system", "4 x a100, nvlink 4", "--layers", "0"], "--layers: expected"),
        (["gemm", "--m", "8", "--n", "8", "--k", "8", "--system", "4 x a100, nvlink 4", "--fused"], "kernels one by one"),
        (
            ["gemm", "--m", "8", "--n", "8", "--k", "8", "--system", "4 x a100, nvlink 4", "-j", "2"],
            "--workers: expected --kernels",
        ),
        (["gemm", "--m", "8", "--n", "8", "--k", "8", "--system", "1 x a100"], "expected at least 2 chips"),
        (["none.yaml", "--system", "4 x a100, nvlink 4"], "none.yaml: expected a file"),
    ],
)
def test_bad_graphs_on_systems(words: list[str], said: str, folder: Path) -> None:
    outcome = halley("shard", *words)
    assert (outcome.code, said in outcome.err, outcome.out) == (1, True, ""), outcome.err
