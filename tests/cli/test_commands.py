"""Every command end to end."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import Outcome, halley

from halley.cli.main import COMMANDS
from halley.io.results.result import load_result
from halley.io.schema import schema as file_schema
from halley.ir.mapping import Collective, walk
from halley.library import CHIPS
from halley.mapping.result import Clause
from halley.report.mapping.causes import causes
from halley.report.mapping.tree import lines
from halley.workloads import WORKLOADS

Solved = tuple[Path, Outcome]
EMBEDDING = ["embedding", "--tokens", "9", "--vocabulary", "4", "--width", "3"]
PLAN = """hold dram: A B C
  hold glb: A B C
    hold obuf: C
      hold ibuf: A
        hold wbuf: B
          compute gemm
"""


def test_optimise_prints_plan_certificate_and_comparison(solved: Solved) -> None:
    path, outcome = solved
    assert outcome.code == 0, outcome.err
    result = load_result(path)
    for line in lines(result.best.plan, result.best.estimate):
        assert line.text.strip()[:30] in outcome.out
    for title in ("Mapping", "Estimate", "Where the time goes", "Comparison", "Time-energy front"):
        assert f"\n{title}\n" in outcome.out
    more = ("Where the energy goes", "Certificate", "Space", "Left out", "Collectives")
    assert not [title for title in more if f"\n{title}\n" in outcome.out]
    details = halley("show", str(path), "--details").out
    assert not [title for title in more if f"\n{title}\n" not in details]
    assert f"optimal: of {result.best.certificate.size:,} mappings" in outcome.out
    assert any(isinstance(node, Collective) for _, node in walk(result.best.plan))
    assert "all-reduce" in outcome.out
    assert "gemm-layernorm-edge.json" in outcome.err


def test_times_by_cause_add_up(solved: Solved) -> None:
    result = load_result(solved[0])
    for solution in (result.best, *result.baselines):
        parts = causes(solution.plan, solution.estimate)
        assert math.isclose(sum(parts.values()), solution.estimate.time, rel_tol=1e-9)


def test_no_node_takes_longer_than_the_whole(solved: Solved) -> None:
    best = load_result(solved[0]).best
    for line in lines(best.plan, best.estimate):
        assert 0 <= line.time <= best.estimate.time * (1 + 1e-12)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(solved: Solved, width: int) -> None:
    for words in (["show", str(solved[0])], ["chips", "edge"], ["workloads"], ["explain", str(solved[0]), "1"]):
        outcome = halley(*words, width=width)
        assert outcome.code == 0
        assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= width


def test_json_is_the_file(solved: Solved) -> None:
    shown = halley("show", str(solved[0]), "--json")
    assert shown.code == 0
    assert shown.json == json.loads(solved[0].read_text())


def test_the_space_and_what_it_leaves_out_are_lists(solved: Solved) -> None:
    """On the terminal, each point at the start of a line; in the file, each with its name."""
    certificate = load_result(solved[0]).best.certificate
    for title, clauses in (("Space", certificate.declaration), ("Left out", certificate.left_out)):
        head, _, rest = halley("show", str(solved[0]), "--details").out.partition(f"\n{title}\n")
        assert rest, head
        shown = rest.partition("\n\n")[0].splitlines()
        assert [line.split("  ")[0] for line in shown if not line.startswith(" ")] == [clause.what for clause in clauses]
        assert len({clause.what for clause in clauses}) == len(clauses) > 10
    stored = json.loads(solved[0].read_text())["answer"]["best"]["certificate"]
    assert stored["space"] == [{"what": clause.what, "how": clause.how} for clause in certificate.declaration]


def test_a_file_of_the_version_before_is_read(solved: Solved, empty_folder: Path) -> None:
    """Version 2 had one text for the space, and texts without names for what it leaves out."""
    now = json.loads(solved[0].read_text())
    content = {"problem": now["question"], **now["answer"], "provenance": now["provenance"], "schema": "halley.result/3"}
    path = empty_folder / "before.json"
    path.write_text(json.dumps(content))
    assert load_result(path) == load_result(solved[0])
    outcome = halley("show", str(path))
    assert outcome.out == solved[1].out
    assert "is of the version halley.result/3: question and answer are now separate" in outcome.err
    content["schema"] = "halley.result/2"
    for solution in (content["best"], *content["baselines"]):
        solution["certificate"] |= {"space": "every mapping", "left_out": ["this", "that"]}
    path.write_text(json.dumps(content))
    result, now = load_result(path), load_result(solved[0])
    space = (Clause("space", "every mapping"),)
    left_out = (Clause("left out", "this"), Clause("left out", "that"))
    for old, new in zip((result.best, *result.baselines), (now.best, *now.baselines), strict=True):
        assert old == replace(new, certificate=replace(new.certificate, declaration=space, left_out=left_out))
    assert "every mapping" in halley("show", str(path), "--details").out
    assert halley("check", str(path), "--no-search").code == 0


def test_optimise_json_and_no_save(empty_folder: Path) -> None:
    outcome = halley("optimise", *EMBEDDING, "--chip", "edge", "--json", "--no-save", "--no-baselines", "--objective", "energy")
    assert outcome.code == 0
    assert outcome.json["schema"] == "halley.answer/1"
    assert outcome.json["answer"]["best"]["certificate"]["value"]["unit"] == "J"
    assert outcome.json["answer"]["baselines"] == []
    assert list(empty_folder.iterdir()) == []


def test_show_repeats_what_optimise_said(solved: Solved) -> None:
    assert halley("show", str(solved[0])).out == solved[1].out


def test_check_passes_and_proves_again(solved: Solved) -> None:
    outcome = halley("check", str(solved[0]))
    assert outcome.code == 0, outcome.out
    rows = outcome.out.splitlines()
    assert {line.split()[0] for line in rows} == {"ok"}
    result = load_result(solved[0])
    assert len(rows) == 1 + 7 * len([result.best, *result.baselines]) + 3
    assert "proven anew" in rows[-1]


def test_explain_by_line_and_by_path(solved: Solved) -> None:
    best = load_result(solved[0]).best
    shown = lines(best.plan, best.estimate)
    for line in shown:
        by_line = halley("explain", str(solved[0]), str(line.number))
        assert by_line.code == 0
        path = ".".join(map(str, line.path))
        if len(line.path) != 1:  # a lone number is a line
            assert halley("explain", str(solved[0]), path or ".").out == by_line.out
    collective = next(line for line in shown if isinstance(line.node, Collective))
    said = halley("explain", str(solved[0]), str(collective.number)).out
    assert "collective_time" in said
    assert "levels.cluster.network" in said
    assert "source" in said
    assert halley("explain", str(solved[0]), "1", "--json").json["node"][0] == {"key": "node", "text": shown[0].text}


def test_estimate(empty_folder: Path) -> None:
    (empty_folder / "plan.txt").write_text(PLAN)
    words = ["estimate", "plan.txt", "gemm", "--m", "8", "--n", "8", "--k", "8", "--chip", "edge"]
    outcome = halley(*words)
    assert outcome.code == 0, outcome.err
    assert "compute gemm" in outcome.out
    made = halley(*words, "--json").json["answer"]["estimate"]
    # each operand passes DRAM once: 8 x 8 words of 2 bytes
    assert made["traffic"]["dram"] == {"read_B": 256, "write_B": 128}


def test_estimate_names_the_memory_that_overflows(empty_folder: Path) -> None:
    (empty_folder / "plan.txt").write_text(PLAN)
    outcome = halley("estimate", "plan.txt", "gemm", "--m", "8", "--n", "65536", "--k", "8", "--chip", "edge")
    assert outcome.code == 2
    assert "memory wbuf: expected at most 64 KiB in wbuf; got 1 MiB live at once" in outcome.err
    assert outcome.out == ""


def test_estimate_tells_every_broken_rule(empty_folder: Path) -> None:
    (empty_folder / "plan.txt").write_text("hold dram: A B\n  compute gem\n")
    outcome = halley("estimate", "plan.txt", "gemm", "--m", "8", "--n", "8", "--k", "8", "--chip", "edge")
    assert outcome.code == 1
    assert "gem" in outcome.err
    assert "Traceback" not in outcome.err


def test_compare_on_two_chips() -> None:
    outcome = halley("compare", *EMBEDDING, "--chip", "edge", "--chip", "cloud")
    assert outcome.code == 0, outcome.err
    assert "on edge" in outcome.out
    assert "on cloud" in outcome.out
    both = halley("compare", *EMBEDDING, "--chip", "edge", "--chip", "cloud", "--json").json
    assert [item["question"]["chip"]["name"] for item in both["answers"]] == ["edge", "cloud"]


def test_baselines_can_be_chosen(solved: Solved) -> None:
    norm = ["gemm-layernorm", "--m", "1", "--n", "64", "--k", "4", "--chip", "edge"]
    outcome = halley("optimise", *norm, "--no-save", "--json", "--baseline", "unfused", "--baseline", "flash-decoding")
    assert outcome.code == 0, outcome.err
    assert outcome.json["question"]["baselines"] == ["unfused", "flash-decoding"]
    assert [plan["name"] for plan in outcome.json["answer"]["baselines"]] == ["unfused"]  # there is no attention in it
    assert outcome.json["answer"]["absent"] == []
    assert halley("compare", *norm, "--baseline", "none", "--json").json["reasons"] == []
    everything = halley("compare", *norm, "--baseline", "all", "--json").json
    usual = [solution.name for solution in load_result(solved[0]).baselines]
    names = [item["before"] for item in everything["reasons"]]
    assert [name for name in names if name in usual] == usual
    assert set(names) - set(usual) == {"op by op"}  # those without split reductions have none for one row
    wrong = halley("compare", *norm, "--baseline", "unfusd")
    assert wrong.code == 1
    assert "--baseline: expected a baseline, or 'all' or 'none' alone; got 'unfusd'" in wrong.err
    assert "did you mean 'unfused'?" in wrong.err


def test_chips_and_workloads_are_all_listed() -> None:
    assert all(name in halley("chips").out for name in CHIPS.names())
    assert [chip["name"] for chip in halley("chips", "--json").json] == list(CHIPS.names())
    assert all(name in halley("workloads").out for name in WORKLOADS)
    for kind in WORKLOADS.values():
        said = halley("workloads", kind.name, width=160)
        assert said.code == 0
        assert all(f"--{parameter.name.replace('_', '-')}" in said.out for parameter in kind.parameters)
    assert "[1]" in halley("chips", "edge").out


def test_schema() -> None:
    for name in ("chip", "problem"):
        assert halley("schema", name).json == file_schema(name)
    assert halley("schema", "mapping").json["properties"]["schema"]["const"] == "halley.answer/1"


def test_problem_file(empty_folder: Path) -> None:
    text = "workload: {kind: embedding, tokens: 9, vocabulary: 4, width: 3}\nchip: edge\nobjective: energy\ntime_limit: 60 s\n"
    (empty_folder / "problem.yaml").write_text(text)
    outcome = halley("optimise", "problem.yaml", "-o", "out.json", "--no-baselines")
    assert outcome.code == 0, outcome.err
    problem = load_result("out.json").problem
    assert (problem.objective.value, problem.time_limit) == ("energy", 60.0)


def test_help_of_every_command_has_an_example() -> None:
    for name in COMMANDS:
        outcome = halley(name, "--help")
        assert outcome.code == 0
        assert f"halley {name}" in outcome.out
    assert halley("--version").out.startswith("halley ")


def test_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    import halley.cli.mappings.demo as command

    monkeypatch.setattr(command, "ROLES", {"projection-norm": "GEMM + norm"})
    outcome = halley("demo", "--tokens", "2", "--model", "bert-large", "--chip", "edge", "--time-limit", "2s", "--json")
    assert outcome.code in (0, 3), outcome.err
    plans = outcome.json["results"][0]["plans"]
    assert [plan["name"] for plan in plans][-1] == "best"
    assert all(plan["estimate"]["time_s"] >= plans[-1]["estimate"]["time_s"] for plan in plans)


@pytest.mark.parametrize("group", [(), ("system",), ("topology",), ("calibrate",)], ids=" ".join)
def test_without_a_command_there_is_the_help_and_no_error(group: tuple[str, ...]) -> None:
    found = halley(*group)
    assert (found.code, found.err) == (0, "")
    assert "Commands" in found.out
