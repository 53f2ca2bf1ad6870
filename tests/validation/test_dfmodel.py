"""DFModel's published mappings: equal figures, the facts behind them, and the page that tells of them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from validation.dfmodel.__main__ import HEAD, rows, table
from validation.dfmodel.case import GB, NS, graph, mapping, problem, published
from validation.dfmodel.compare import compare, costed

from halley.cli.validate import DATA
from halley.spatial.chip import DFMODEL, HALLEY
from halley.spatial.solve import best_plan

PAGE = Path(__file__).parents[2] / "docs" / "validation-dfmodel.md"
FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
NAME = "dfmodel_sn10.json"
needs_data = pytest.mark.skipif(
    FOLDER is None or not (FOLDER / NAME).is_file(), reason=f"no data: set {DATA} to a folder that has {NAME}"
)


@cache
def original() -> dict[str, Any]:
    assert FOLDER is not None
    found: dict[str, Any] = json.loads((FOLDER / NAME).read_text(encoding="utf-8"))
    return found


def test_every_figure_is_equal() -> None:
    outcome = compare()
    assert [(line.quantity, len(line.cases), line.holds) for line in outcome.lines] == [
        ("mappings", 8, True),
        ("partitions", 32, True),
        ("intensities", 4, True),
        ("optima", 6, True),
    ]


@pytest.mark.parametrize("name", ["vendor", "optimised"])
def test_it_is_the_log_s_layer(name: str) -> None:
    chosen = mapping(name)
    assert costed(chosen).layer / NS == pytest.approx(chosen.figures["layer"], rel=1e-14)


def test_the_published_partitions_of_the_torus_are_the_best() -> None:
    chosen, best = mapping("optimised"), best_plan(problem(4, 2))
    assert best.proven
    assert (best.tile, best.groups) == (chosen.tile, tuple((group, 0) for group in chosen.groups))


def test_those_of_the_ring_are_not() -> None:
    for bandwidth in (100 * GB, 200 * GB):
        found = {row.name: row for row in rows(DFMODEL, bandwidth)}
        best, described = found["best, ring"], found["as described in the paper, ring"]
        assert found["vendor, ring"].time / described.time == pytest.approx(1.19, abs=0.025)
        assert best.time < 0.85 * described.time


def test_more_is_counted_by_default() -> None:
    """The ends of a layer pass through memory; what is stored once is less."""
    paper, ours = (costed(mapping("vendor"), assumptions) for assumptions in (DFMODEL, HALLEY))
    assert [part.ramp for part in paper.partitions] == [0.0] * 4
    assert all(part.ramp > 0 for part in ours.partitions)
    assert ours.partitions[0].traffic > paper.partitions[0].traffic
    assert ours.samples > paper.samples


@needs_data
@pytest.mark.parametrize(("ours", "theirs"), [("forward", "graph_forward_18"), ("training", "graph_forward_backward_41")])
def test_graphs_are_the_published_ones(ours: str, theirs: str) -> None:
    found, expected = graph(1, ours), original()[theirs]
    for kernel, row in zip(found.kernels, expected["kernels"], strict=True):
        assert (kernel.name, kernel.rows, kernel.columns, kernel.depth) == (row["name"], row["outer_times_M"], row["N"], row["K"])
        assert kernel.engine == {"SIMD": "vector", "SYSTOLIC": "matrix"}[row["type"]]
        assert bool(kernel.weights) == row["has_weight"]
        assert kernel.tiled == {"N": "columns", "K": "depth"}[row.get("tiling", "N")]
        reduced = published()[ours]["kernels"][kernel.name][4] == "depth"
        assert reduced == row.get("all_reduce_if_TP", row.get("TP_all_reduce"))
    edges = sorted((tensor.writer, reader) for tensor in found.tensors if tensor.writer is not None for reader in tensor.readers)
    assert edges == sorted((source, target) for source, target in expected["edges"])


@needs_data
def test_buffers_are_as_deep_as_published() -> None:
    levels, expected = graph(1).levels, original()["graph_forward_18"]
    depths = [levels[target] - levels[source] + 1 for source, target in expected["edges"]]
    assert depths == expected["buffer_depth"]


@needs_data
@pytest.mark.parametrize(("ours", "theirs"), [("vendor", "vendor_8x1"), ("optimised", "optimised_4x2")])
def test_figures_are_the_published_ones(ours: str, theirs: str) -> None:
    row, expected = published()["mappings"][ours], original()[theirs]
    figures, predicted = row["figures"], expected["predicted"]
    assert [row["tensor"], row["stages"], row["tile"], row["samples"]] == [
        expected["mapping"][name] for name in ("TP", "PP", "tile_size", "micro_batch_size")
    ]
    names = {"layer": "II_layer_ns", "iteration": "II_ns", "utilisation": "util", "memory_intensity": "OI_memory"}
    assert {name: figures[name] for name in names} == {name: predicted[other] for name, other in names.items()}
    for name, other in {"compute": "compute", "memory": "dram", "network": "net", "once": "setup"}.items():
        assert figures[name] == [part[other] for part in predicted["per_partition"]]
    chip = expected["system"]["chip"]
    assert [published()["chip"][name] for name in ("cores", "GHz", "sram_B", "dram_B", "dram_GBs")] == [
        chip[name] for name in ("core", "freq_GHz", "sram_B", "dram_B", "dram_GBs")
    ]


@needs_data
def test_optima_are_the_published_ones() -> None:
    expected = original()["exact_points_of_the_same_formulation_ns_per_layer"]
    assert {row["layer"] for row in published()["optima"]} == set(expected.values()) - {expected["vendor_8x1_t32"]}


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", [100, 200])
@pytest.mark.parametrize("model", ["dfmodel", "halley"])
def test_the_page_has_the_table(model: str, bandwidth: int) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *table(model, bandwidth * GB))) in page
