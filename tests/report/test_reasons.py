"""Why plans differ: the parts add up to the difference, and the words say what the plans do."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.certificates.exhaustive import draw_chip, draw_workload
from tests.cli.running import halley
from tests.report.made import NASTY, made_result, nasty_result

from halley.errors import Infeasible
from halley.io.results.result import save_result
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.result import Result, Solution
from halley.report.mapping.page import page
from halley.report.mapping.reasons import all_reasons, headline, memory_names, reasons, reasons_document, reasons_table

S_AT_DRAM = (8 + 7 + 1 + 2) * 16 * 256 * 2
"""Bytes of S in the unfused plan made by hand: drained in each of 8 steps of k, filled again in 7, read by the softmax, and
handed from the inner to the outer Hold."""


def check_sums(before: Solution, after: Solution, memories: tuple[str, ...]) -> None:
    found = reasons(before, after, memories)
    old, new = before.estimate, after.estimate
    assert sum(c.difference for c in found.time) == pytest.approx(new.time - old.time, abs=1e-9 * float(old.time + new.time))
    energies = sum(c.difference for c in found.energy)
    assert energies == pytest.approx(new.energy - old.energy, abs=1e-9 * float(old.energy + new.energy))
    for memory in memories:
        moved = sum(c.difference for c in found.traffic if c.memory == memory)
        assert moved == new.traffic(memory) - old.traffic(memory)
    links = sum(joining.bytes.difference for joining in found.collectives)
    assert links == sum(new.links().values()) - sum(old.links().values())


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 40))])
def test_reasons_add_up_on_drawn_problems(seed: int) -> None:
    draw = random.Random(seed)
    workload, chip = draw_workload(draw), draw_chip(draw)
    try:
        result = optimise(Problem(workload, chip))
    except Infeasible:
        return
    plans = (*result.baselines, result.best)
    memories = memory_names([chip])
    for before in plans:
        for after in plans:
            check_sums(before, after, memories)
            assert reasons(before, after, memories).same or before.plan != after.plan


def test_reasons_of_plans_written_by_hand() -> None:
    """The scores of a fused GEMM-Softmax stay in the shared buffer; its rows are split over clusters."""
    result = made_result()
    unfused, local = all_reasons(result)
    assert (unfused.before, unfused.after, local.before) == ("unfused", "best", "fused, no split reductions")
    (scores,) = (change for change in unfused.traffic if change.memory == "dram")
    assert (scores.subject, scores.before, scores.after) == ("S", S_AT_DRAM, 0)
    assert any(line[1] == "S no longer travels to dram" and line[2] == "-144 KiB" for line in reasons_table(unfused).rows)
    assert not unfused.collectives  # both have the same
    assert {joining.name for joining in local.collectives} == {
        f"all-reduce {tensor} over cluster.{axis} (centre)" for tensor in ("mx", "z") for axis in "xy"
    }
    assert all(joining.bytes.before == 0 < joining.bytes.after for joining in local.collectives)
    assert {f"collectives on network cluster.{axis}" for axis in "xy"} < {change.subject for change in local.time}


def test_reasons_are_ordered_by_size_and_small_ones_summed() -> None:
    _, local = all_reasons(made_result())
    for changes in (local.time, local.energy):
        sizes = [abs(change.difference) for change in changes]
        assert sizes == sorted(sizes, reverse=True)
    tiny = replace(local.time[0], subject="tiny", before=1e-15, after=2e-15)
    text = str(reasons_table(replace(local, time=(*local.time, tiny))).rows)
    assert "tiny" not in text
    assert "smaller" in text


def test_a_plan_beside_itself() -> None:
    best = made_result().best
    found = reasons(best, best, ("dram",))
    assert found.same
    assert reasons_table(found).rows == (("", "the same costs: nothing differs", ""),)
    assert reasons_document(found)["sentences"] == [{"kind": "", "reason": "the same costs: nothing differs", "change": ""}]


def test_the_page_says_why(tmp_path: Path) -> None:
    result = made_result()
    text = page(result)
    for found in all_reasons(result):
        assert f"<summary>{reasons_table(found).title}: {headline(found)}</summary>" in text
    assert "; S no longer travels to dram, -144 KiB</summary>" in text
    assert "S no longer travels to dram" in text
    assert NASTY not in page(nasty_result()).partition('id="result"')[0]


def saved(result: Result, path: Path) -> str:
    save_result(result, path)
    return str(path)


def test_compare_one_file(empty_folder: Path) -> None:
    result = made_result()
    file = saved(result, empty_folder / "result.json")
    outcome = halley("compare", file)
    assert outcome.code == 0, outcome.err
    for found in all_reasons(result):
        assert reasons_table(found).title in outcome.out
    assert "S no longer travels to dram" in outcome.out
    shown = halley("compare", file, "--json").json
    assert shown["schema"] == "halley.comparison/1"
    assert shown["reasons"] == json.loads(json.dumps([reasons_document(found) for found in all_reasons(result)]))
    for reason in shown["reasons"]:
        parts = sum(part["after_s"] - part["before_s"] for part in reason["time"]["parts"])
        assert parts == pytest.approx(reason["time"]["after_s"] - reason["time"]["before_s"], rel=1e-9)


def test_compare_two_files(empty_folder: Path) -> None:
    result = made_result()
    first = saved(replace(result, best=replace(result.baselines[0], name="best")), empty_folder / "first.json")
    second = saved(result, empty_folder / "second.json")
    outcome = halley("compare", first, second)
    assert outcome.code == 0, outcome.err
    assert f"Why {second} takes" in outcome.out.replace("\n", " ")
    (found,) = halley("compare", first, second, "--json").json["reasons"]
    assert (found["before"], found["after"]) == (first, second)
    assert {"memory": "dram", "tensor": "S", "before_B": S_AT_DRAM, "after_B": 0.0} in found["traffic"]


@pytest.mark.parametrize("words", [["a.json", "b.json", "c.json"], ["a.json", "--chip", "edge"], ["a.json", "--baseline", "all"]])
def test_compare_refuses_what_no_file_needs(words: list[str]) -> None:
    outcome = halley("compare", *words)
    assert outcome.code == 1
    assert "expected one or two files of answers, and no options but --json" in outcome.err
