"""The studies: pages show what was kept, every search is proven, sentences are borne out, and a few cases are searched again."""

from __future__ import annotations

import csv
import doctest
import importlib
import io
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from studies import index, store
from studies import study as study_module
from studies.cases import Case, Row, exchanges, single, solve, without_links
from studies.index import STUDIES
from studies.sn40l import TIERS
from studies.store import DOCS, WAYS
from studies.study import Study

from halley import Problem, build, evaluate, load_chip, optimise, variants
from halley.ir.mapping import Collective, Temporal, walk
from halley.mapping.result import Result

QUICK = [case for study in STUDIES.values() for case in study.cases() if study.quick(case)]
ROUNDING = 1 + 1e-9


@pytest.fixture(params=list(STUDIES.values()), ids=list(STUDIES))
def study(request: pytest.FixtureRequest) -> Study:
    found: Study = request.param
    return found


def lawful(row: Row) -> None:
    """The best is no slower than any other way of its space, and everything is proven."""
    assert row.gap == 0
    if row.best is None:
        assert row.reason
        return
    assert all(ratio >= 1 / ROUNDING for way in ("unfused", "local", "silent") if (ratio := row.ratio(way)) is not None)
    if not row.exchanges:
        assert row.silent == row.best


def test_pages_and_figures_show_what_was_kept(study: Study) -> None:
    rows, machine = store.load(study.name)
    assert (DOCS / f"{study.name}.md").read_text(encoding="utf-8") == study.page(rows, machine)
    for name, svg in study.figures(rows).items():
        assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == svg


def test_every_case_is_there_and_proven(study: Study) -> None:
    rows, _ = store.load(study.name)
    assert [row.key for row in rows] == [case.key for case in study.cases()]
    for row in rows:
        lawful(row)


def test_sentences_are_borne_out(study: Study) -> None:
    said = study.account(store.load(study.name)[0])
    assert [finding.text for finding in (*said.agrees, *said.differs) if not finding.holds] == []


def test_spreadsheet_has_the_same_numbers(study: Study) -> None:
    rows, _ = store.load(study.name)
    text = (DOCS / f"{study.name}.csv").read_text(encoding="utf-8")
    for row, line in zip(rows, csv.DictReader(io.StringIO(text)), strict=True):
        assert (line["group"], line["name"], line["series"]) == row.key
        for way in WAYS:
            found = getattr(row, way)
            assert line[f"{way}_time_s"] == ("" if found is None else repr(found.time))


def test_figures_have_a_dot_for_each_ratio(study: Study) -> None:
    rows, _ = store.load(study.name)
    for name, svg in study.figures(rows).items():
        groups = study.plots[name][1]
        root = ElementTree.fromstring(svg)
        tips = root.findall(".//{*}circle/{*}title")
        wanted = [row.ratio(way) for row in rows if row.group in groups for way in WAYS[:-1]]
        assert len(tips) == sum(ratio is not None for ratio in wanted) > 0
        dots = [float(circle.get("cx", "nan")) for circle in root.findall(".//{*}circle")]
        assert all(0 < x < float(root.get("width", "0")) for x in dots)


def test_contents_list_every_study() -> None:
    page = (DOCS / "README.md").read_text(encoding="utf-8")
    assert page == index.contents()
    assert all(f"({name}.md)" in page for name in STUDIES)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if i else []) for i, case in enumerate(QUICK)], ids=lambda case: case.key
)
def test_quick_cases(case: Case) -> None:
    """Searched now: lawful and proven, with all five ways in place."""
    row = solve(case, 300.0, "")
    lawful(row)
    assert row.best is not None
    assert row.op_by_op is not None
    assert row.unfused is not None
    assert 0 < row.share <= 1


def test_rows_survive_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, machine = store.load("comet")
    monkeypatch.setattr(store, "DOCS", tmp_path)
    store.save("again", rows, machine)
    assert store.load("again") == (rows, machine)


def test_a_run_is_taken_up_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are kept as they are found; what is known is not searched again, and pages are written at the end."""
    comet = STUDIES["comet"]
    found = {row.key: row for row in store.load("comet")[0]}
    searched: list[Case] = []
    said: list[str] = []

    def remembered(case: Case, limit: float, mark: str) -> Row:
        if len(searched) == 100:
            raise KeyboardInterrupt
        searched.append(case)
        return replace(found[case.key], source=mark)

    for module in (store, study_module):
        monkeypatch.setattr(module, "DOCS", tmp_path)
    monkeypatch.setattr(study_module, "solve", remembered)
    with pytest.raises(KeyboardInterrupt):
        comet.run(1.0, False, said.append)
    assert len(store.load("comet")[0]) == 100
    searched.clear()
    comet.run(1.0, False, said.append)
    assert len(searched) == len(found) - 100
    assert len(said) == 100 + len(found)
    assert [row.key for row in store.load("comet")[0]] == list(found)
    assert (tmp_path / "comet.md").exists()


def test_a_fingerprint_follows_workload_and_chip() -> None:
    case = QUICK[0]
    other = replace(case, workload=build("gemm-softmax", {"m": 17, "n": 8192, "k": 128}))
    marks = {store.fingerprint(each, "code") for each in (case, other, replace(case, chip=without_links(case.chip)))}
    assert len(marks | {store.fingerprint(case, "other code")}) == 4
    reworded = replace(case, chip=replace(case.chip, description="another text", sources={"clock": "another text"}))
    assert store.fingerprint(reworded, "code") == store.fingerprint(case, "code")


def test_op_by_op_of_kernels_of_one_op_is_unfused() -> None:
    """Two ways to the same number: a sum over workloads of one op, and the search's baseline."""
    work, chip = build("gated-mlp", {"tokens": 8, "model": 8, "hidden": 8}), load_chip("edge")
    baseline = optimise(Problem(work, chip, baselines=("unfused",))).baselines[0]
    alone = [optimise(Problem(single(work, op), chip, baselines=False, fixed_variant=True)).best for op in work.ops]
    total = math.fsum(float(solution.estimate.time) for solution in alone)
    assert total == pytest.approx(float(baseline.estimate.time), rel=1e-9)


@pytest.fixture(scope="module")
def result() -> Result:
    """A plan with collectives, and the best one without."""
    work = build("gemm-softmax", {"m": 16, "n": 2048, "k": 64})
    return optimise(Problem(work, load_chip("edge"), baselines=("fused-local",)))


def test_only_collectives_use_links(result: Result) -> None:
    """A plan without a collective costs the same on the chip whose links are useless; one with does not."""
    work, chip = result.problem.workload, result.problem.chip
    for solution in (result.best, *result.baselines):
        mapped = next(variant for variant in variants(work) if variant.variant == solution.variant)
        again = evaluate(mapped, without_links(chip), solution.plan)
        if exchanges(solution):
            assert again.time > 1000 * solution.estimate.time
        else:
            assert (again.time, again.energy) == (solution.estimate.time, solution.estimate.energy)
    assert [bool(exchanges(solution)) for solution in (result.best, *result.baselines)] == [True, False]


def test_exchanges_are_counted(result: Result) -> None:
    """Collectives over both axes are one exchange; loops are those in time around it."""
    best = result.best
    nodes = [node for _, node in walk(best.plan) if isinstance(node, Collective)]
    found = exchanges(best)
    assert sum(len(exchange.axes) for exchange in found) == len(nodes)
    assert {(exchange.kind, exchange.tensors) for exchange in found} == {(node.kind, node.tensors) for node in nodes}
    assert max(exchange.loops for exchange in found) <= sum(isinstance(node, Temporal) for _, node in walk(best.plan))


def test_chips_of_the_tiers_are_the_shipped_one_but_for_its_memories() -> None:
    shipped = load_chip(TIERS["DDR, HBM"])
    ddr, hbm, unit = shipped.levels
    for series, outer in (("HBM", hbm), ("DDR", ddr)):
        chip = load_chip(TIERS[series])
        assert (chip.matrix, chip.vector) == (shipped.matrix, shipped.vector)
        first, pool, last = chip.levels
        assert first.memories == outer.memories
        assert last.network == unit.network
        memories = (pool.memories[0].capacity, last.memories[0].capacity * last.count, unit.memories[0].capacity * unit.count)
        assert memories[0] + memories[1] == memories[2]


@pytest.mark.parametrize("name", ["cases", "tables"])
def test_examples(name: str) -> None:
    module = importlib.import_module(f"studies.{name}")
    assert doctest.testmod(module).failed == 0
