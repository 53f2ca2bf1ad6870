"""What is wrong is said in one line each, with the right exit code, and never as a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Outcome, halley

from halley.answer import Status
from halley.cli import solve
from halley.io.results.result import load_result

Solved = tuple[Path, Outcome]
GEMM = ["optimise", "gemm", "--m", "4", "--n", "4", "--k", "4"]
EMBEDDING = ["optimise", "embedding", "--tokens", "9", "--vocabulary", "4", "--width", "3", "--chip", "edge", "--no-baselines"]
WHOLE = "expected a whole number from 1 to 1099511627776"

BAD: list[tuple[list[str], str]] = [
    (["optimise", "C[m,n] = A[m,k] * B[k,n", "--m", "4"], "graph, line 1, column 24: expected ',' or ']'; got the end"),
    (["optimise", "C[m,n] = A[m,k] * B[k,n]", "--m", "4", "--k", "4"], "expected parameter n (size); got nothing"),
    (["optimise", "C[m,n] = A[m,k] * B[k,n]", "--m", "4", "--l", "4"], "expected a known option; got '--l'"),
    (["optimise", "gem", "--m", "4"], "workload: expected a known kind; got 'gem'; did you mean 'gemm'?"),
    (["optimise", "--m", "4", "gemm"], "workload: expected its kind before its parameters; got '--m'"),
    (["optimise", "gemm", "--n", "4", "--k", "4", "--chip", "edge"], "workload gemm: expected parameter m (size); got nothing"),
    (["optimise", "gemm", "--m", "0", "--n", "4", "--k", "4"], f"workload gemm, parameter m: {WHOLE}; got 0"),
    (["optimise", "gemm", "--m", "-3", "--n", "4", "--k", "4"], f"workload gemm, parameter m: {WHOLE}; got -3"),
    (["optimise", "gemm", "--m=1e3", "--n", "4", "--k", "4"], f"workload gemm, parameter m: {WHOLE}; got '1e3'"),
    (["optimise", "gemm", "--m", "9" * 30, "--n", "4", "--k", "4"], f"workload gemm, parameter m: {WHOLE}"),
    ([*GEMM, "--m", "5"], "workload gemm, option --m: expected each parameter once; got it again; remove one"),
    ([*GEMM, "--b"], "workload gemm, option --b: expected independent GEMMs; got no value"),
    ([*GEMM, "--objectve", "time"], "workload gemm: expected a known option; got '--objectve'; did you mean '--objective'?"),
    ([*GEMM, "stray"], "workload gemm: expected options such as --m 64; got 'stray'"),
    ([*GEMM, "--dtype", "bf15"], "workload gemm, parameter dtype: expected a known word; got 'bf15'; did you mean 'bf16'?"),
    (GEMM, "--chip: expected a chip; got nothing"),
    ([*GEMM, "--chip", "egde"], "did you mean 'edge'?"),
    ([*GEMM, "--chip", "./none.yaml"], "none.yaml: expected a file; got no such file"),
    (
        [*GEMM, "--chip", "edge", "--objective", "tim"],
        "--objective: expected time, energy or edp; got 'tim'; did you mean 'time'?",
    ),
    ([*GEMM, "--chip", "edge", "--time-limit", "60"], "--time-limit: expected a time; got '60', without a unit"),
    ([*GEMM, "--chip", "edge", "--time-limit", "60 GB"], "--time-limit: expected a time; got '60 GB', a size"),
    ([*GEMM, "--chip", "edge", "--gap", "5"], "--gap: expected a number from 0 to below 1; got '5'"),
    ([*GEMM, "--chip", "edge", "--gap", "nan"], "--gap: expected a number from 0 to below 1; got 'nan'"),
    (["optimise", "none.yaml"], "none.yaml: expected a file; got no such file"),
    (["optimise"], "halley optimise: expected WORKLOAD; got nothing; try 'halley optimise --help'"),
    ([*GEMM, "--chip"], "halley: --chip: expected a value; got nothing"),
    ([*GEMM, "--chip", "edge", "--no-baselins"], "did you mean '--no-baselines'?"),
    (["show", "none.json", "--jsn"], "halley show: expected a known option; got '--jsn'; did you mean '--json'?"),
    (["show", "none.json", "--json=3"], "halley: --json: expected no value; got one"),
    (["show", "none.json", "other.json"], "halley show: expected no more words; got 'other.json'"),
    (["simulate", "none.json", "--iterations", "x"], "--iterations: expected a whole number from 1 to 999,999,999; got 'x'"),
    (["calibrate", "chip", "none.csv", "--chip", "a100", "--launch", "-1"], "--launch: expected a number from 0 to 1,000"),
    (["calibrate", "chip", "none.csv"], "halley calibrate chip: expected --chip; got nothing"),
    (["optimse", "gemm"], "command of halley: expected a known one; got 'optimse'; did you mean 'optimise'?"),
    (["show", "none.json"], "none.json: expected a file; got no such file"),
    (["show", "."], ".: expected a file; got a folder"),
    (["estimate", "none.txt", *GEMM[1:], "--chip", "edge"], "none.txt: expected a file; got no such file"),
    (["compare", *GEMM[1:]], "--chip: expected a chip; got nothing"),
    (["chips", "egde"], "did you mean 'edge'?"),
    (["workloads", "gem"], "did you mean 'gemm'?"),
    (["schema", "mappng"], "got 'mappng'; did you mean 'mapping'?"),
    (["demo", "--tokens", "0"], "--tokens: expected a whole number from 1"),
    (["demo", "--model", "bert-larg"], "did you mean 'bert-large'?"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words)[:50] for words, _ in BAD])
def test_one_clean_line(words: list[str], said: str) -> None:
    outcome = halley(*words)
    assert outcome.code == 1
    assert said in outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert all(line.startswith("halley: ") for line in outcome.err.splitlines())


def test_all_faults_at_once() -> None:
    outcome = halley("optimise", "attention", "--heads", "6", "--kv-heads", "4", "--quries", "3", "--causal=maybe")
    for word in ("'--quries'", "--queries", "parameter keys", "divisor of heads", "true or false"):
        assert word in outcome.err


FILES: list[tuple[str, list[str], str]] = [
    ("{kind: gem, m: 4, n: 4, k: 4}", ["optimise"], ":1: workload: expected a known kind; got 'gem'; did you mean 'gemm'?"),
    ("\n  kind: gemm\n  m: 0\n  n: 4\n  k: 4", ["optimise"], ":3: workload gemm, parameter m: expected a whole number"),
    ("{kind: gemm, n: 4, k: 4}", ["shard", "--system", "sn10-ring"], ":1: workload gemm: expected parameter m (size)"),
    ("gemm: m", ["optimise"], ":1: expected one key on a line, and its value; got another ': '; look at column 15"),
    ("\n  kind: gemm\n  - 3", ["optimise"], ":3: expected the next key or item, indented as those before it; got a list item"),
]


@pytest.mark.parametrize(("text", "words", "said"), FILES, ids=[said[:40] for *_, said in FILES])
def test_faults_of_a_problem_name_their_line(empty_folder: Path, text: str, words: list[str], said: str) -> None:
    (empty_folder / "problem.yaml").write_text(f"workload: {text}\nchip: edge\n")
    outcome = halley(words[0], "problem.yaml", *words[1:])
    assert outcome.code == 1
    assert f"halley: problem.yaml{said}" in outcome.err


def test_faults_of_a_mapping_name_their_line(empty_folder: Path) -> None:
    lines = ["hold dram: A B C", "  # as is usual", "  hold glb: A B C", "    for mm by 2", "", "      compute gem"]
    (empty_folder / "plan.txt").write_text("\n".join(lines))
    outcome = halley("estimate", "plan.txt", *GEMM[1:], "--chip", "edge")
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "halley: plan.txt:4: for mm by 2: expected a dim that exists; got 'mm'; did you mean 'm'?",
        "halley: plan.txt:6: compute gem: expected an op that exists; got 'gem'; did you mean 'gemm'?",
        "halley: plan.txt:1: compute gemm: expected every op of the workload once; got none; add 'compute gemm'",
    ]


def test_never_overwrites_silently(empty_folder: Path) -> None:
    kept = empty_folder / "embedding-edge.json"
    kept.write_text("mine")
    for number in (2, 3):
        by_default = halley(*EMBEDDING)
        assert by_default.code == 0
        assert f"written to embedding-edge-{number}.json;" in by_default.err
    asked = halley(*EMBEDDING, "-o", "embedding-edge.json")
    assert asked.code == 1
    assert "--force" in asked.err
    assert kept.read_text() == "mine"
    assert halley(*EMBEDDING, "--force").code == 0
    assert json.loads(kept.read_text())["schema"] == "halley.answer/1"


def changed(path: Path, to: Path, *keys: str | int, value: Any) -> Path:
    """A copy of the file with one value replaced."""
    content = json.loads(path.read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    to.write_text(json.dumps(content))
    return to


FORMS: list[tuple[str, str]] = [
    ("", "JSON"),
    ("[1, 2]", "the file of an answer"),
    ('{"a": 1}', "the file of an answer (halley.answer/1); got a file that is none"),
    ('{"schema": "halley.result/0"}', "got the version 'halley.result/0'"),
    ('{"schema": "halley.result/3"}', "question"),
    ('{"schema": "halley.result/2"}', "question"),
    ('{"schema": "halley.plan/1"}', "run 'halley plan' again"),
    ('{"schema": "halley.answer/1", "kind": "mappping"}', "did you mean 'mapping'?"),
    ('{"schema": "halley.answer/1", "kind": "mapping"}', "question"),
    ('{"schema": "halley.answer/1", "kind": "training-plan"}', "what made the file"),
    ('{"schema": "halley.answer/1", "kind": "sharding"}', "what made the file"),
    ('{"schema": "halley.answer/1", "kind": "collective"}', "what made the file"),
    ('{"schema": "halley.answer/1", "kind": "estimate"}', "what made the file"),
    ('{"schema": "halley.answer/1", "kind": "dfmodel-plan"}', "what made the file"),
    ('{"schema": "halley.result/2", "baselines": [1], "best": {"certificate": {"space": 3}}}', "best.certificate.space"),
    ('{"schema": "halley.result/3", "schema": 2}', "expected each key once; got 'schema' twice"),
    ('{"schema": NaN}', "expected finite numbers; got NaN"),
    ("[" * 100_000, "nested too deep"),
    ('{"schema": ' + "9" * 5000 + "}", "JSON"),
]


@pytest.mark.parametrize(("text", "said"), FORMS, ids=[said[:30] for _, said in FORMS])
@pytest.mark.parametrize("command", ["show", "check"])
def test_foreign_files(empty_folder: Path, command: str, text: str, said: str) -> None:
    (empty_folder / "foreign.json").write_text(text)
    outcome = halley(command, "foreign.json")
    assert outcome.code == 1
    assert said in outcome.err
    assert outcome.out == ""
    assert "internal error" not in outcome.err


EDITS: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("answer", "best", "estimate", "time_s"), 1e-12, "FAIL  best: figures: time_s"),
    (("answer", "best", "estimate", "footprint_B", "glb"), 1.0, "FAIL  best: figures: footprint_B.glb"),
    (("answer", "baselines", 0, "estimate", "busy_s", "read dram"), 1.0, "FAIL  unfused: figures: busy_s.read dram"),
    (("answer", "best", "certificate", "value", "value"), 1e-12, "FAIL  best: certificate: value"),
    (("answer", "best", "certificate", "bound", "value"), 1.0, "FAIL  best: certificate: the bound"),
    (("answer", "best", "certificate", "bound", "value"), 1e-12, "FAIL  best: certificate: said to be optimal"),
    (("answer", "best", "certificate", "bound", "unit"), "J", "FAIL  best: certificate: objective or unit"),
    (("answer", "best", "plan"), "hold dram: A\n  compute gemm", "FAIL  best: plan is legal"),
    (("answer", "best", "plan"), "hold\n", "FAIL  best: plan reads"),
    (("answer", "front", 0, "time_s"), 1.0, "FAIL  front: figures: point 1: time_s"),
    (("answer", "front", 0, "plan"), "hold dram: A\n  compute gemm", "FAIL  front: figures: point 1"),
    (("question", "chip", "levels", 2, "memories", "obuf", "capacity"), "8 B", "FAIL  best: plan fits"),
    (("question", "chip", "levels", 0, "memories", "dram", "read_bandwidth"), "1 GB/s", "FAIL  best: figures: anatomy_s."),
]


@pytest.mark.parametrize(("keys", "value", "said"), EDITS, ids=[said[6:40] for *_, said in EDITS])
def test_check_finds_what_was_tampered_with(
    solved: Solved, empty_folder: Path, keys: tuple[str | int, ...], value: Any, said: str
) -> None:
    path = changed(solved[0], empty_folder / "edited.json", *keys, value=value)
    outcome = halley("check", str(path), "--no-search")
    assert outcome.code == 1
    assert said in outcome.out, outcome.out


def test_a_false_bound_is_found_by_searching_again(solved: Solved, empty_folder: Path) -> None:
    """A worse plan with a certificate that fits it: every figure is in order, but the optimum is lower."""
    content = json.loads(solved[0].read_text())
    answer = content["answer"]
    answer["best"] = {**answer["baselines"][0], "name": "best"}
    (empty_folder / "other.json").write_text(json.dumps(content))
    outcome = halley("check", "other.json", "--no-search")
    assert (outcome.code, "FAIL  file: figures" in outcome.out) == (1, True)  # the certificate of the answer is another's
    own = answer["best"]["certificate"]
    left_out = [f"{clause['what']}: {clause['how']}" for clause in own["left_out"]]
    content["certificate"] |= {key: own[key]["value"] for key in ("value", "bound")}
    content["certificate"] |= {"size": own["mappings"], "left_out": left_out, "seconds": own["search_s"], "closed": own["closed"]}
    content["certificate"] |= {"effort": {"costed": own["costed"], "bounded": own["bounds"]}}
    path = empty_folder / "worse.json"
    path.write_text(json.dumps(content))
    assert halley("check", str(path), "--no-search").code == 0
    outcome = halley("check", str(path))
    assert outcome.code == 1
    assert "below the file's bound" in outcome.out.splitlines()[-1]


def test_unknown_keys_and_kinds_are_named(solved: Solved, empty_folder: Path) -> None:
    path = changed(solved[0], empty_folder / "a.json", "answer", "best", "colour", value="red")
    assert "answer.best.colour: expected a known key" in halley("show", str(path)).err
    path = changed(solved[0], empty_folder / "b.json", "answer", "best", "estimate", "time_s", value="soon")
    assert "answer.best.estimate.time_s" in halley("show", str(path)).err
    path = changed(solved[0], empty_folder / "c.json", "question", "workload", "kind", value="gem")
    assert "did you mean 'gemm'?" in halley("show", str(path)).err
    path = changed(solved[0], empty_folder / "d.json", "question", "chip", "clock", value="1 GB")
    assert "question.chip.clock" in halley("show", str(path)).err


@pytest.mark.parametrize("node", ["0", "999", "9.9.9", "x", "", "-1", "1.", "٣"])
def test_unknown_node(solved: Solved, node: str) -> None:
    outcome = halley("explain", str(solved[0]), "--", node)
    assert outcome.code == 1
    assert "NODE: expected a line number from 1 to" in outcome.err


def test_an_answer_that_cannot_be_saved_there_is_still_shown(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halley.cli.mappings.optimise.refuse_existing", lambda *_: None)  # as if the folder vanished later
    outcome = halley(*EMBEDDING, "-o", "no/such/folder.json")
    assert outcome.code == 1
    assert "optimal: of" in outcome.out
    assert "a folder that exists" in outcome.err
    assert "it is in folder.json instead" in outcome.err


def test_a_gap_that_is_good_enough(solved: Solved) -> None:
    result = load_result(solved[0])
    certificate = replace(result.best.certificate, bound=result.best.certificate.value / 1.1, status=Status.LIMIT)
    stopped = replace(result, best=replace(result.best, certificate=certificate))
    assert solve.enough(stopped, 0.11)
    assert not solve.enough(stopped, 0.09)
    assert solve.enough(result, 0.0)


def test_infeasible(empty_folder: Path) -> None:
    from halley.library import CHIPS

    (empty_folder / "tiny.yaml").write_text(CHIPS.text("edge").replace("capacity: 64 KiB", "capacity: 1 B"))
    outcome = halley(*GEMM, "--chip", "./tiny.yaml")
    assert outcome.code == 2
    assert "buf" in outcome.err


def test_limit_before_any_answer() -> None:
    outcome = halley("optimise", "gemm", "--m", "512", "--n", "512", "--k", "512", "--chip", "edge", "--time-limit", "1us")
    assert outcome.code == 3, outcome.err


def test_ctrl_c_before_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr(solve, "optimise", interrupted)
    outcome = halley(*GEMM, "--chip", "edge", "--no-save")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_a_fault_of_halleys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(solve, "optimise", broken)
    outcome = halley(*GEMM, "--chip", "edge", "--no-save")
    assert outcome.code == 70
    assert "ZeroDivisionError: no luck; please report it" in outcome.err
    assert "Traceback" not in outcome.err
    monkeypatch.setenv("HALLEY_DEBUG", "1")
    assert "Traceback" in halley(*GEMM, "--chip", "edge", "--no-save").err


def shell(*words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from halley.cli.start import main; main()", *words]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_ctrl_c_in_a_process_of_its_own(empty_folder: Path) -> None:
    words = ["optimise", "attention", "--batch", "1", "--heads", "8", "--kv-heads", "8"]
    words += ["--queries", "4096", "--keys", "4096", "--head-dim", "128", "--chip", "cloud", "--json"]
    process = shell(*words)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    if process.returncode == 3:  # a first mapping was there: the best so far, with a true bound
        answer = json.loads(out)["answer"]["best"]
        assert answer["status"] == "limit"
        assert answer["certificate"]["bound"]["value"] <= answer["certificate"]["value"]["value"]
    else:
        assert process.returncode == 130, err
        assert out == ""


def test_the_exit_code_reaches_the_shell() -> None:
    process = shell("workloads", "gem")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1
