"""The dataflows of attention on a mesh of tiles: legal, right, counted as executed; their times against published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reference.test_counts import assert_agrees
from validation.mesh import runs
from validation.mesh.attention import DATAFLOWS, FLASH, Run, largest_slice, mapping, workload

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs
from halley.execute.interpreter import run as execute
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse
from halley.rewrite.legality import check, faults
from halley.simulate.simulation import simulate
from halley.workloads.gemm import gemm

FIGURES = runs.figures()


def small(side: int) -> Chip:
    """The mesh with fewer tiles."""
    chip = load_chip("tile-mesh")
    outer, tile = chip.levels
    assert tile.network is not None
    axes = tuple(replace(axis, size=side) for axis in tile.network.axes)
    return replace(chip, levels=(outer, replace(tile, network=replace(tile.network, axes=axes))))


def softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("dataflow", "group", "largest", "full"),
    [
        *((name, 1, 4, False) for name in FLASH),
        *((name, 1, largest, True) for name in FLASH for largest in (4, 8, 16)),
        *((name, group, 8, False) for name in DATAFLOWS if name not in FLASH for group in (2, 4)),
        *((name, 2, 2, False) for name in DATAFLOWS if name not in FLASH),
    ],
)
def test_a_dataflow_computes_attention_and_is_counted_as_executed(dataflow: str, group: int, largest: int, full: bool) -> None:
    run, chip = Run(dataflow, 2, 8, 16, 4, tiles=4, group=group, largest=largest, full=full), small(4)
    work, tree = workload(run), mapping(run)
    check(tree, work, chip)
    arrays = random_inputs(work, 1)
    done = execute(work, chip, tree, arrays)
    for output in work.outputs:
        mark = output[1:]
        q, k, v = (arrays[name + mark] for name in "QKV")
        expected = softmax(np.einsum("hmd,hnd->hmn", q, k) / 2) @ v
        np.testing.assert_allclose(done.outputs[output], expected, rtol=1e-9)
    assert_agrees(work, chip, tree, done)


def traffic(estimate: Estimate) -> float:
    moved = (*estimate.reads().items(), *estimate.writes().items())
    return float(sum(total for (memory, _, _), total in moved if memory == "hbm"))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.run.name)
def test_a_published_run_is_legal_fits_and_moves_the_published_bytes(figure: runs.Figure) -> None:
    chip = runs.machine(figure)
    work, tree = workload(figure.run), mapping(figure.run)
    assert faults(tree, work, chip) == []
    estimate = evaluate(work, chip, tree)
    assert estimate.footprint["l1"] <= chip.memory("l1").capacity
    assert traffic(estimate) == figure.run.traffic


@pytest.mark.parametrize("dataflow", FLASH)
@pytest.mark.parametrize("sequence", [512, 1024, 2048, 4096])
def test_full_blocks_fit_and_move_the_bytes_of_the_formula(dataflow: str, sequence: int) -> None:
    """Each tile has one block, or the largest that fits."""
    run, chip = Run(dataflow, 4, 32, sequence, 128, group=1, largest=largest_slice(small(32), 128), full=True), small(32)
    work, tree = workload(run), mapping(run)
    assert faults(tree, work, chip) == []
    estimate = evaluate(work, chip, tree)
    assert estimate.footprint["l1"] <= chip.memory("l1").capacity
    assert traffic(estimate) == run.traffic
    assert run.slice == 128 or run.slice * 32**2 * run.lanes == sequence * 128


def test_the_largest_slices_are_those_that_fit() -> None:
    assert [largest_slice(load_chip(name), 128) for name in ("tile-mesh", "tile-mesh-16", "tile-mesh-8")] == [128, 256, 512]


def test_the_constants_are_those_of_the_fit() -> None:
    assert runs.fit(FIGURES) == (runs.EFFICIENCY, runs.BARRIER)
    shipped = load_chip("tile-mesh").axis("tile", "x").exchange.barrier
    assert shipped == pytest.approx(runs.BARRIER / runs.CLOCK)


@pytest.mark.parametrize("dataflow", ["FlatColl", "FlatAsyn"])
def test_a_dma_engine_is_as_busy_in_the_simulation(dataflow: str) -> None:
    """All transfers and collectives of a tile: as long in both, and as long as they take one after the other."""
    run, chip = Run(dataflow, 1, 4, 64, 16, tiles=4, group=4), small(4)
    work, tree = workload(run), mapping(run)
    estimate, simulation = evaluate(work, chip, tree), simulate(work, chip, tree)
    busy = {server.resource: time for server, time in simulation.busy.items()}
    assert estimate.busy["dma", "l1"] == pytest.approx(busy["dma", "l1"], rel=1e-9)
    assert max(simulation.time, float(estimate.time)) >= busy["dma", "l1"]


def without_dma(chip: Chip) -> Chip:
    outer, tile = chip.levels
    return replace(chip, levels=(outer, replace(tile, memories=tuple(replace(each, dma=False) for each in tile.memories))))


def test_a_dma_engine_delays_only_what_would_be_concurrent() -> None:
    """One step after the other takes as long with it; rounds that overlap take longer."""
    times = {}
    for dataflow in ("FlatColl", "FlatAsyn"):
        run, chip = Run(dataflow, 1, 8, 64, 16, tiles=4, group=4), small(4)
        for machine in (chip, without_dma(chip)):
            work, tree = workload(run), mapping(run)
            found = float(evaluate(work, machine, tree).time), simulate(work, machine, tree).time
            times[dataflow, machine.memory("l1").dma] = found
    assert times["FlatColl", True] == pytest.approx(times["FlatColl", False], rel=1e-9)
    assert all(one > 1.1 * other for one, other in zip(times["FlatAsyn", True], times["FlatAsyn", False], strict=True))


READ_AHEAD = """
hold hbm: A B C
  for m by 8
    spread n by 8 over tile.x
      hold l1 x2: A B C
        compute gemm
"""


def test_a_dma_engine_limits_what_is_read_ahead() -> None:
    """Two operands and a result for each of 16 tiles of rows: each transfer waits for the one before, latency and all."""
    work, tree, chip = gemm(128, 32, 64, dtype="fp16"), parse(READ_AHEAD), small(4)
    formula, simulated = float(evaluate(work, chip, tree).time), simulate(work, chip, tree).time
    assert formula == pytest.approx(simulated, rel=0.05)
    assert formula > 16 * 3 * chip.memory("hbm").latency
    assert float(evaluate(work, without_dma(chip), tree).time) < 0.5 * formula


def test_times_by_the_formulas() -> None:
    flash = runs.line("", tuple(each for each in FIGURES if each.run.dataflow in FLASH), (0.10, 0.15), simulated=False)
    flat = runs.line("", tuple(each for each in FIGURES if each.run.dataflow not in FLASH), (0.15, 0.30), simulated=False)
    assert (len(flash.cases), len(flat.cases)) == (12, 7)
    assert flash.holds
    assert flash.mean_error < 0.06
    assert flat.holds
    assert flat.mean_error < 0.10


def test_the_best_group_is_the_published_one() -> None:
    groups = {each.run.group: each for each in FIGURES if (each.run.dataflow, each.run.batch) == ("FlatAsyn", 4)}
    assert set(groups) == {4, 8, 16, 32}
    predicted = {group: runs.formula_time(each, runs.machine(each)) for group, each in groups.items()}
    assert min(groups, key=lambda group: groups[group].time) == min(groups, key=predicted.__getitem__) == 8
    order = sorted(groups, key=lambda group: groups[group].time)
    assert order == [8, 4, 16, 32] == sorted(groups, key=predicted.__getitem__)


def test_latencies_and_barriers_decide_the_runs_with_collectives() -> None:
    whole = tuple(each for each in FIGURES if each.run.group == 32)
    assert len(whole) == 4
    assert all(-0.9 < case.error < -0.7 for case in runs.line("", whole, (1, 1), simulated=False, bare=True).cases)


@pytest.mark.slow
def test_times_by_the_simulation() -> None:
    """Every published run that no constant was fitted to, and FlashAttention, which the efficiency was fitted to. `test_outcomes`
    compares these lines with the page."""
    flash, flat = runs.lines()[:2]
    assert flash.holds
    assert flash.mean_error < 0.05
    assert flat.holds
    assert flat.mean_error < 0.08


def test_few_heads_tell_the_time_of_many() -> None:
    figure = next(each for each in FIGURES if (each.run.dataflow, each.run.group, each.run.batch) == ("FlatAsyn", 16, 4))
    chip, run = runs.machine(figure), figure.run
    assert runs.simulated_time(figure, chip) == pytest.approx(simulate(workload(run), chip, mapping(run)).time, rel=0.01)


def test_other_rows_are_left_out_and_wrong_ones_are_named(tmp_path: Path) -> None:
    text = (runs.HERE / "attention.csv").read_text()
    table = tmp_path / "runs.csv"
    table.write_text(text.replace("runtime,total,0.3231", "runtime_exposed,total,0.3231"))
    assert len(runs.figures(table)) == len(FIGURES) - 1
    for old, new, message in [
        ("0.3231,ms", "0.3231,h", "row 1, unit: expected ms or us; got 'h'"),
        ("64,FA-2", "64,FA-4", "dataflow: expected one of FA-2, FA-3, Flat, FlatColl, FlatAsyn; got 'FA-4'"),
        ("mha_prefill,32x32", "mha_prefill,32x16", "row 1, tiles: expected a square, such as 32x32; got '32x16'"),
        ("mha_prefill,32x32", "mha_prefill,4x4", "tiles: expected one of 32x32, 16x16, 8x8; got 4x4"),
    ]:
        table.write_text(text.replace(old, new, 1))
        with pytest.raises(BadInput, match=message):
            runs.figures(table)
