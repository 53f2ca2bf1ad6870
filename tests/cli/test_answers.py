"""Every verb on every kind of answer, from the command line and from Python; and files that were tampered with."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.running import PROGRAM, halley
from tests.cli.test_plan import OWN, TINY
from tests.report.chromium import chromium

from halley.answer import Certificate
from halley.answers.base import Answer
from halley.answers.load import KINDS, as_answer, load
from halley.errors import BadInput, HalleyError
from halley.io.results.envelope import KINDS as SAVED_KINDS
from halley.report.browser import browser
from halley.verify import verify
from halley.verify.findings import differences

MAPPING = """hold dram: A B C
  spread m by 10 over cluster.x
    hold obuf: C
      hold wbuf: B
        hold ibuf: A
          compute gemm
"""
GEMM = ("gemm", "--m", "20", "--n", "24", "--k", "12", "--chip", "edge")
LOAD = ("--input", "512", "--output", "128")
FEW = ("--system", "4 x a100, nvlink 4")

COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "mapping": (("optimise", *GEMM), ("optimise", *GEMM, "--objective", "energy", "--no-baselines")),
    "estimate": (("estimate", "mapping.txt", *GEMM), ("estimate", "mapping.txt", *GEMM[:-3], "16", *GEMM[-2:])),
    "network-mapping": (
        ("optimise", str(PROGRAM), "--dtype", "bf16", "--chip", "edge", "--gap", "0.2"),
        ("optimise", str(PROGRAM), "--dtype", "bf16", "--chip", "edge", "--objective", "energy"),
    ),
    "collective": (
        ("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-h100"),
        ("collective", "all-reduce", "--size", "1MiB", "--system", "dgx-h100", "--algorithm", "ring"),
    ),
    "sharding": (
        ("shard", "gemm-softmax", "--m", "4096", "--n", "2048", "--k", "2048", *FEW),
        ("shard", "gemm-softmax", "--m", "4096", "--n", "2048", "--k", "2048", *FEW, "--overlap"),
    ),
    "training-plan": (OWN, (*OWN[:-1], "tp=4,pp=1,microbatch=2,recompute=none,zero=0,offload=no")),
    "dfmodel-plan": (
        ("plan", "tiny.yaml", *FEW, "--batch", "8", "--view", "dfmodel"),
        ("plan", "tiny.yaml", *FEW, "--batch", "8", "--view", "dfmodel", "--fix", "pp=4"),
    ),
    "serving": (
        ("serve", "llama3-8b", *LOAD, "--system", "1 x h100", "--concurrency", "4"),
        ("serve", "llama3-8b", *LOAD, "--system", "1 x h100", "--concurrency", "8"),
    ),
    "serving-plan": (
        ("plan", "llama3-8b", "--serve", *LOAD, "--system", "2 x h100, nvlink 2", "--slo", "tpot 50 ms", "--together"),
        ("plan", "llama3-8b", "--serve", *LOAD, "--system", "2 x h100, nvlink 2", "--slo", "tpot 8 ms", "--together"),
    ),
}
"""By kind, the command whose answer is looked at, and one whose answer it is compared with."""
WITHOUT_CERTIFICATE = ("estimate", "serving")
"""Kinds of which nothing is searched."""


def test_show_one_op(made: Made) -> None:
    path = str(made["training-plan"][0])
    shown = halley("show", path, "--op", "output")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("# output of tiny layer, forward pass\n")
    assert "# nvlink-model, 2 model-parallel chips: " in shown.out
    assert "kernels were not searched" in shown.out
    assert halley("show", path, "--op", "output", "--json").json == {"op": "output", "mapping": shown.out.rstrip("\n")}
    wrong = halley("show", path, "--op", "outputs")
    assert wrong.code == 1
    assert "got 'outputs'; did you mean 'output'?" in wrong.err
    other = halley("show", str(made["mapping"][0]), "--op", "output")
    assert other.code == 1
    assert "expected a plan of training, from halley plan; got a mapping" in other.err


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, str]]:
    """By kind, the files of two answers, and what the first command printed."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "mapping.txt").write_text(MAPPING)
    before, found = os.getcwd(), {}
    os.chdir(folder)
    try:
        for kind, commands in COMMANDS.items():
            files = folder / f"{kind}.json", folder / f"{kind}-other.json"
            outcomes = [halley(*words, "-o", str(file)) for words, file in zip(commands, files, strict=True)]
            assert [outcome.code for outcome in outcomes] == [0, 0], [outcome.err for outcome in outcomes]
            found[kind] = (*files, outcomes[0].out)
    finally:
        os.chdir(before)
    return found


Made = dict[str, tuple[Path, Path, str]]
every = pytest.mark.parametrize("kind", COMMANDS)


def test_all_kinds_are_looked_at() -> None:
    assert set(COMMANDS) == set(KINDS) == set(SAVED_KINDS)


@every
def test_what_is_saved_is_what_is_loaded(made: Made, kind: str, empty_folder: Path) -> None:
    answer = load(made[kind][0])
    assert (answer.kind, answer.remark) == (kind, "")
    answer.save(empty_folder / "again.json")
    first, again = (json.loads(file.read_text()) for file in (made[kind][0], empty_folder / "again.json"))
    # in the view of DFModel the search adds the same times in another order
    assert differences(first, again) == [] if kind == "dfmodel-plan" else first == again
    with pytest.raises(BadInput, match="--force"):
        answer.save(empty_folder / "again.json")
    assert as_answer(answer.value).document()["answer"] == answer.document()["answer"]


@every
def test_the_file_says_what_was_asked_and_how_good_the_answer_is(made: Made, kind: str) -> None:
    content = json.loads(made[kind][0].read_text())
    assert set(content) == {"schema", "kind", "question", "certificate", "answer", "provenance"}
    certificate = load(made[kind][0]).certificate
    if kind in WITHOUT_CERTIFICATE:
        assert content["certificate"] is certificate is None
        return
    assert isinstance(certificate, Certificate)
    assert content["certificate"]["gap"] == certificate.gap
    assert 0 < certificate.bound <= certificate.value * (1 + 1e-9)


@every
def test_show_prints_what_the_command_printed(made: Made, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = halley("show", str(made[kind][0]))
    assert shown.code == 0, shown.err
    if kind == "estimate":  # the command has the file's name in its first line
        assert shown.out.splitlines()[2:] == made[kind][2].splitlines()[1:]
    else:
        assert shown.out == made[kind][2]
    assert halley("show", str(made[kind][0]), "--json").json == json.loads(made[kind][0].read_text())
    load(made[kind][0]).show()
    assert capsys.readouterr().out


@pytest.mark.medium
@every
def test_check_finds_no_fault(made: Made, kind: str) -> None:
    outcome = halley("check", str(made[kind][0]))
    assert outcome.code == 0, outcome.out
    assert {line.split()[0] for line in outcome.out.splitlines()} == {"ok"}
    found = load(made[kind][0]).check(limit=20.0)
    assert found
    assert [item for item in found if not item.passed] == []
    assert [item.what for item in verify(load(made[kind][0]), search=False)]
    document = halley("check", str(made[kind][0]), "--no-search", "--json").json
    assert document["passed"]
    assert {check["outcome"] for check in document["checks"]} == {"ok"}


@every
def test_report(made: Made, kind: str, empty_folder: Path) -> None:
    outcome = halley("report", str(made[kind][0]), "-o", "page.html")
    assert outcome.code == 0, outcome.err
    text = (empty_folder / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert 'class="tiles"' in text
    assert "\N{FULL BLOCK}" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)  # bars are drawn
    assert text.count("<section") == text.count("</section>") > 0
    load(made[kind][0]).report(empty_folder / "again.html")
    assert (empty_folder / "again.html").read_text().count("<table") == text.count("<table")


@every
def test_explain(made: Made, kind: str) -> None:
    outcome = halley("explain", str(made[kind][0]))
    assert outcome.code == 0, outcome.err
    assert "time" in outcome.out.lower()
    assert halley("explain", str(made[kind][0]), "--json").json
    assert load(made[kind][0]).explain()
    wrong = halley("explain", str(made[kind][0]), "nothing-of-this-name")
    assert (wrong.code, wrong.out) == (1, "")
    assert "expected" in wrong.err


PARTS = {
    "mapping": "1",
    "network-mapping": "linear-1",
    "estimate": "2",
    "collective": "ring",
    "sharding": "ops",
    "training-plan": "tiny layer",
}


@pytest.mark.parametrize(("kind", "part"), [*PARTS.items(), ("dfmodel-plan", "partitions")])
def test_explain_a_part(made: Made, kind: str, part: str) -> None:
    outcome = halley("explain", str(made[kind][0]), part)
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip()


@every
def test_compare(made: Made, kind: str) -> None:
    first, second = (str(file) for file in made[kind][:2])
    outcome = halley("compare", second, first, width=300)
    assert outcome.code == 0, outcome.err
    assert f"Why {Path(second)} takes" in outcome.out.replace("\n", " ") or f"Why {Path(first)} takes" in outcome.out
    document = halley("compare", second, first, "--json").json
    reasons = document["reasons"][0]["time"]
    total = reasons["after_s"] - reasons["before_s"]
    parts = sum(part["after_s"] - part["before_s"] for part in reasons["parts"])
    assert parts == pytest.approx(total, rel=1e-6, abs=1e-9 * reasons["after_s"])
    assert [answer["kind"] for answer in document["answers"]] == [kind, kind]
    both = load(made[kind][1]).compare(load(made[kind][0]))
    assert both.tables
    same = load(made[kind][0]).compare(load(made[kind][0])).document
    assert all(part["after_s"] == part["before_s"] for part in same["reasons"][0]["time"]["parts"])


def test_compare_says_which_decisions_differ(made: Made) -> None:
    plans = halley("compare", *(str(file) for file in made["training-plan"][:2]), "--json").json
    decided = {item["decision"]: (item["before"], item["after"]) for item in plans["decisions"]}
    assert decided["degrees"] == ("data 1 x pipeline 2 x model 2", "data 1 x pipeline 1 x model 4")
    assert "batch" not in decided


def test_answers_of_unlike_kinds_are_not_compared(made: Made) -> None:
    outcome = halley("compare", str(made["mapping"][0]), str(made["sharding"][0]))
    assert (outcome.code, outcome.out) == (1, "")
    assert "expected two answers of one kind" in outcome.err
    assert "got a mapping and a sharding" in outcome.err
    alone = halley("compare", str(made["sharding"][0]))
    assert (alone.code, "expected a second file, of a sharding" in alone.err) == (1, True)


def test_an_own_mapping_is_compared_with_the_best(made: Made, empty_folder: Path) -> None:
    """As a saved estimate, and as the text of the mapping."""
    (empty_folder / "mine.txt").write_text(MAPPING)
    best, own = str(made["mapping"][0]), str(made["estimate"][0])
    for mine in ("mine.txt", own):
        outcome = halley("compare", mine, best, width=300)
        assert outcome.code == 0, outcome.err
        assert "not searched" in outcome.out
        assert f"Why {best} takes" in outcome.out
    assert halley("compare", best, "mine.txt").code == 0
    assert "expected a file" in halley("compare", "other.txt", best).err
    refused = halley("compare", "mine.txt", str(made["sharding"][0]))
    assert (refused.code, "-o FILE.json" in refused.err) == (1, True)


@every
def test_tables(made: Made, kind: str, empty_folder: Path) -> None:
    answer, file = load(made[kind][0]), str(made[kind][0])
    for name in answer.sheets():
        text = halley("table", file, name).out
        assert text == answer.table(name)
        head, *rows = text.splitlines()
        assert all(head.split(","))
        assert rows or name in ("front", "collectives")
    assert halley("table", file).out == answer.table(next(iter(answer.sheets())))
    wrong = halley("table", file, "nothing")
    assert (wrong.code, "TABLE: expected" in wrong.err) == (1, True)


@every
def test_figures(made: Made, kind: str, empty_folder: Path) -> None:
    answer, file = load(made[kind][0]), str(made[kind][0])
    for name in answer.pictures():
        if kind == "mapping" and name == "front":
            continue  # was not asked for
        outcome = halley("figure", file, name)
        assert outcome.code == 0, outcome.err
        assert (empty_folder / f"{name}.svg").read_text().startswith("<?xml")
    answer.figure(empty_folder / "first.svg")
    assert (empty_folder / "first.svg").exists()
    wrong = halley("figure", file, "nothing")
    assert (wrong.code, "FIGURE: expected" in wrong.err) == (1, True)


# --- files that were tampered with ------------------------------------------------------------------------------------------


def numbers(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a record has numbers."""
    if isinstance(node, dict):
        for key, item in node.items():
            yield from numbers(item, (*path, key))
    elif isinstance(node, list):
        for place, item in enumerate(node):
            yield from numbers(item, (*path, place))
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield path


UNVERIFIABLE = {
    "seconds",
    "search_s",
    "size",
    "mappings",
    "costed",
    "bounded",
    "evaluated",
    "solved",
    "nodes",
    "entries",
    "bounds",
}
"""How long a search took, and what it did."""


def changed(content: Any, path: tuple[str | int, ...], change: Callable[[Any], Any]) -> Any:
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])
    return copy


def found_out(content: Any, folder: Path) -> bool:
    """Whether a check without a search finds a fault, and says so in its words."""
    (folder / "edited.json").write_text(json.dumps(content))
    outcome = halley("check", "edited.json", "--no-search")
    assert outcome.code in (0, 1, 2), outcome.err
    assert "internal error" not in outcome.err
    return outcome.code == 1 or outcome.code == 2


@pytest.mark.medium
@every
def test_a_changed_number_of_the_answer_is_found(made: Made, kind: str, empty_folder: Path) -> None:
    """Every n-th number of the answer, some thirty of them, is changed by a tenth."""
    content = json.loads(made[kind][0].read_text())
    paths = [path for path in numbers(content["answer"]) if not UNVERIFIABLE & set(map(str, path))]
    paths = [path for path in paths if kind != "dfmodel-plan" or path[0] != "candidates"]
    for path in paths[:: max(len(paths) // 30, 1)]:
        wrong = changed(
            content, ("answer", *path), lambda value: value * 1.1 if isinstance(value, float) and value else value + 1
        )
        assert found_out(wrong, empty_folder), path


DECISIONS: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("mapping", ("answer", "best", "plan"), "hold dram: A B C\n  compute gemm"),
    ("estimate", ("answer", "plan"), MAPPING.replace("spread m by 8 over cluster.x", "spread m by 8 over cluster.y")),
    ("network-mapping", ("answer", "layers", 0, "best", "plan"), "hold dram: A B C\n  compute gemm"),
    ("network-mapping", ("answer", "layers", 0, "name"), "gemm-1"),
    ("collective", ("answer", "chosen", "algorithm"), "ring"),
    ("collective", ("answer", "chosen", "algorithm"), "nothing"),
    ("sharding", ("answer", "axes", 0, "size"), 2),
    ("sharding", ("answer", "sharding", "ops", "gemm"), ["k"]),
    ("sharding", ("answer", "sharding", "ops", "gemm"), ["q"]),
    ("training-plan", ("answer", "plan", "microbatch"), 4),
    ("training-plan", ("answer", "plan", "zero"), 3),
    ("training-plan", ("answer", "plan", "recompute"), "full"),
    ("training-plan", ("answer", "plan", "layers"), [1, 3]),
    ("training-plan", ("answer", "plan", "axes", 0, "role"), "data"),
    ("training-plan", ("question", "batch"), 16),
    ("dfmodel-plan", ("answer", "microbatch"), 3),
    ("dfmodel-plan", ("answer", "partitions", 0, "kernels"), ["nothing"]),
]


@pytest.mark.parametrize(
    ("kind", "path", "value"), DECISIONS, ids=[f"{kind} {path[-1]} {value}"[:50] for kind, path, value in DECISIONS]
)
def test_a_changed_decision_is_found(made: Made, kind: str, path: tuple[str | int, ...], value: Any, empty_folder: Path) -> None:
    content = json.loads(made[kind][0].read_text())
    assert found_out(changed(content, path, lambda _: value), empty_folder)


@every
@pytest.mark.parametrize(("key", "factor"), [("bound", 1.5), ("value", 0.9)])
def test_a_changed_certificate_is_found(made: Made, kind: str, key: str, factor: float, empty_folder: Path) -> None:
    if kind in WITHOUT_CERTIFICATE:
        return
    content = json.loads(made[kind][0].read_text())
    assert found_out(changed(content, ("certificate", key), lambda value: value * factor), empty_folder)


def test_a_worse_plan_with_a_fitting_certificate_is_found_by_searching(made: Made, empty_folder: Path) -> None:
    """Every figure is in order, but the optimum is lower."""
    best, other = (json.loads(file.read_text()) for file in made["training-plan"][:2])
    if best["certificate"]["value"] > other["certificate"]["value"]:
        best, other = other, best
    other["question"]["fixed"] = best["question"]["fixed"] = {**best["question"]["fixed"], "stages": None, "model": None}
    (empty_folder / "worse.json").write_text(json.dumps(other))
    assert halley("check", "worse.json", "--no-search").code == 0
    outcome = halley("check", "worse.json", "--time-limit", "20s")
    assert (outcome.code, "below the file's bound" in outcome.out) == (1, True), outcome.out


@every
def test_unknown_keys_and_missing_ones_are_named_all_at_once(made: Made, kind: str, empty_folder: Path) -> None:
    content = json.loads(made[kind][0].read_text())
    content["colour"] = "red"
    content["question"]["shape"] = 3
    (empty_folder / "edited.json").write_text(json.dumps(content))
    outcome = halley("show", "edited.json")
    assert (outcome.code, outcome.out) == (1, "")
    assert "edited.json: colour: expected a known key" in outcome.err
    assert "edited.json: question.shape: expected a known key" in outcome.err


@pytest.mark.medium
@every
def test_nothing_but_an_error_comes_of_a_damaged_file(made: Made, kind: str, empty_folder: Path) -> None:
    """Every tenth or so value is replaced by one of another kind."""
    content = json.loads(made[kind][0].read_text())
    paths = [path for part in ("question", "answer") for path in numbers(content[part], (part,))]
    for number, path in enumerate(paths[:: max(len(paths) // 12, 1)]):
        value = ("x", None, [], {}, -1, 1e300)[number % 6]
        (empty_folder / "damaged.json").write_text(json.dumps(changed(content, path, lambda _, value=value: value)))
        with contextlib.suppress(HalleyError):  # any other exception fails the test
            load(empty_folder / "damaged.json")


def test_an_answer_is_no_answer_of_another_kind(made: Made, empty_folder: Path) -> None:
    content = json.loads(made["sharding"][0].read_text()) | {"kind": "mapping"}
    (empty_folder / "other.json").write_text(json.dumps(content))
    assert halley("show", "other.json").code == 1
    with pytest.raises(BadInput, match="one of Result"):
        as_answer(3)


def test_the_python_of_an_answer(made: Made) -> None:
    import halley as package

    answer = package.load(made["training-plan"][0])
    assert isinstance(answer, Answer)
    assert package.as_answer(answer.value).lines() == answer.lines()


@every
def test_what_notebooks_show(made: Made, kind: str) -> None:
    answer = load(made[kind][0])
    plain, document = answer.to_dict(), json.loads(json.dumps(answer.document()))
    assert {**plain, "provenance": None} == {**document, "provenance": None}
    shown = answer._repr_html_()
    assert shown.count("<table") == shown.count("</table>") == len(answer.tables())
    for name in answer.pictures():
        if name != "front":  # this mapping has none
            assert "<svg" in answer.plot(name)._repr_svg_()
    if answer.pictures():
        assert answer.plot().svg == answer.plot(next(iter(answer.pictures()))).svg
    with pytest.raises(BadInput, match="FIGURE: expected"):
        answer.plot("nothing")


@every
def test_data_frames(made: Made, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pandas, else of polars; the package gets the table as CSV."""
    answer = load(made[kind][0])

    def frame(text: io.StringIO) -> str:
        return text.read()

    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(read_csv=frame))
    for name in answer.sheets():
        assert answer.to_frame(name) == answer.table(name)
    assert answer.to_frame() == answer.table(next(iter(answer.sheets())))
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(BadInput, match="the package pandas or polars"):
        answer.to_frame()


@pytest.mark.medium
@pytest.mark.skipif(browser() is None, reason="no Chromium is installed")
def test_pages_of_all_kinds_fit_a_phone(made: Made, empty_folder: Path) -> None:
    """Nothing sticks out at 400 px or at 1280, and the pages load nothing and complain of nothing."""
    with chromium(empty_folder / "profile") as running:
        for kind, (file, _, _) in made.items():
            page = empty_folder / f"{kind}.html"
            load(file).report(page)
            for width in (400, 1280):
                running.size(width, 900)
                running.open(page)
                assert running.run("document.documentElement.scrollWidth <= innerWidth"), (kind, width)
            assert running.complaints() == [], kind
