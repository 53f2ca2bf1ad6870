"""The referee of time: its list, and the law on the winners (docs/referee.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from validation.referee import page, store
from validation.referee.__main__ import row_of
from validation.referee.compare import SECONDS, TASKS
from validation.referee.neighbours import ten_best
from validation.referee.problems import CHIPS, PROBLEMS, chosen

from halley import Problem as Search
from halley import load_chip, optimise
from halley.ir.mapping import Hold, walk
from halley.library import CHIPS as SHIPPED
from halley.rewrite import legality
from halley.workloads import build

QUICK = ("gemv-1024", "gemm-512", "gemm-1024", "gemm-16x4096x4096")
"""Problems that are searched and simulated within seconds."""


def test_the_list() -> None:
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    assert len(PROBLEMS) * len(CHIPS) >= 200
    left_out = {"wse-2", "tile-mesh", "tile-mesh-16", "tile-mesh-8", "simba", "h100-clusters"}
    left_out |= {"a100-40gb", "b300", "gb200", "gb300", "gh200", "h800", "l40s", "rtx-pro-6000"}
    left_out |= {"mi210", "mi250", "mi325x", "mi355x"}
    left_out |= {"gaudi-2", "gaudi-3", "tpu-v5p", "tpu-v6e", "tpu-v7", "trainium2"}
    assert {*CHIPS, *left_out} == set(SHIPPED.names())
    assert {problem.name for _, problem in chosen(["a100"], ["gemv"])} == {"gemv-4096", "gemv-11008", "gemv-1024"}
    for chip, problem in chosen(["edge", "simba-like", "eyeriss-like"], ()):
        problem.on(chip)


def test_rows_are_kept(tmp_path: Path) -> None:
    row = store.Row("edge", "gemm-512", "gemm", "m=512", 1.5, 1.25, 1.3, 1.04, 33, 4, 0.0, 10, 0.01, "", "abc")
    nothing = store.Row("edge", "fft", "fft", "rows=64", reason="too large, they say")
    store.save([row, nothing], tmp_path / "referee.csv")
    assert store.load(tmp_path / "referee.csv") == {row.key: row, nothing.key: nothing}
    assert not nothing.told


def test_the_law_is_two_sided() -> None:
    row = store.Row("edge", "gemm-512", "gemm", "m=512", 1.0, 1.0, 1.0, 1.0)
    told = [row, replace(row, ratio=1.04), replace(row, problem="slow", ratio=1.16), replace(row, problem="fast", ratio=0.86)]
    wrong = [line for line in page.broken(told) if line.startswith("edge")]
    assert [line.split(":")[0] for line in wrong] == ["edge", "edge, slow", "edge, fast"]
    assert [line for line in page.broken([replace(row, lost=0.04)]) if line.startswith("edge")] == [
        "edge, gemm-512: expected the winner within 3% of the fastest of ten plans; got 4.0%"
    ]


def test_the_ten_best_are_mappings_and_the_winner_leads() -> None:
    workload, chip = build("gemm", {"m": 64, "n": 128, "k": 64}), load_chip("edge")
    best = optimise(Search(workload, chip, baselines=False)).best
    found = ten_best(workload, chip, best.plan)
    assert len(found) == 10
    assert found[0] == (pytest.approx(float(best.estimate.time)), best.plan)
    assert len({tree for _, tree in found}) == 10
    assert all(not legality.faults(tree, workload, chip) for _, tree in found)
    times = [time for time, _ in found]
    assert times[1:] == sorted(times[1:])
    chosen_from = [time for time, tree in found if all(n.buffers <= 2 for _, n in walk(tree) if isinstance(n, Hold))]
    assert times[0] == min(chosen_from)  # the search tries one buffer and two


@pytest.mark.slow
def test_formula_and_simulation_agree_on_the_list() -> None:
    """The law, on the list as it was last run (`make referee`)."""
    rows = list(store.load().values())
    assert {row.key for row in rows} == {(chip, problem.name) for chip, problem in chosen((), ())}
    assert not page.broken(rows)


def test_the_page_names_all_that_breaks_the_law() -> None:
    """Nothing does but winners that others beat, and these have a cause, or the word that it is not known."""
    rows = list(store.load().values())
    slower = page.slower(rows)
    assert {row.key for row in slower} == set(page.CAUSES)
    assert len(page.broken(rows)) == len(slower)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_the_kept_list_is_that_of_the_present_source(chip: str) -> None:
    """A few problems of each chip, searched and simulated again."""
    kept = store.load()
    rows = [row_of(chip, problem, SECONDS, TASKS, "") for _, problem in chosen([chip], QUICK) if problem.name in QUICK]
    for row in rows:
        assert row.part_us == pytest.approx(kept[row.key].part_us, rel=1e-6)
        assert row.simulated_us == pytest.approx(kept[row.key].simulated_us, rel=1e-6)
    assert not [line for line in page.broken(rows) if line.startswith((f"{chip},",))]


def test_a_row_depends_on_its_problem_and_on_the_code_behind_it() -> None:
    first, second = (problem for problem in PROBLEMS if problem.name in ("gemm-512", "gemm-1024"))
    marks = {store.fingerprint(chip, problem) for chip in ("edge", "cloud") for problem in (first, second)}
    assert len(marks) == 4
    behind = {str(path.relative_to(store.ROOT / "src" / "halley")) for path in store._behind(store.MODULES)}
    assert {"simulate/walk.py", "cost/events.py", "mapping/space/rows.py", "formulas/timing.py"} <= behind
    assert not {path for path in behind if path.split("/")[0] in ("workloads", "training", "report", "cli")}
