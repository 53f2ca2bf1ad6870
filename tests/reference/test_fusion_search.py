"""Entries of the table of fused groups: mappings of the exact search, counted by the interpreter; and files of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reference.graphs import evaluate
from tests.reference.oracles import inputs
from tests.unit.test_op_costs import GPT, LLAMA, layer

from halley.errors import BadInput
from halley.execute.interpreter import run
from halley.io.chips.load import load_chip
from halley.io.files.save import dumps
from halley.io.results.fusions import fusions_document, load_fusions, save_fusions
from halley.search.optimise import optimise
from halley.search.problem import Problem
from halley.training.fusion.groups import Fusion, fusions
from halley.training.fusion.search import NO_MAPPING, searched
from halley.training.fusion.shapes import FusionKey, fusion_pattern
from halley.training.fusion.table import FusionEntry, empty_table
from halley.training.kernels import kernels

EDGE, H100 = load_chip("edge"), load_chip("h100")
UP, BACK = fusion_pattern(fusions(layer(GPT))[0]), fusion_pattern(fusions(layer(LLAMA))[2])
TABLE = replace(
    empty_table(H100),
    entries={
        FusionKey(UP.graph, (64, 32, 48)): FusionEntry(2e-6, 1.5e-6, 4096.0, "stopped early"),
        FusionKey(BACK.graph, (64, 32, 48)): FusionEntry(math.inf, math.inf, 0.0, NO_MAPPING),
    },
)


@pytest.mark.parametrize(("pattern", "extents"), [(UP, (12, 8, 16)), (UP, (7, 5, 9)), (BACK, (12, 8, 16))])
def test_searched_traffic_is_what_the_interpreter_counts(pattern, extents: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    group = pattern.workload(extents)
    entry, best = searched(group, EDGE), optimise(Problem(group, EDGE, baselines=False)).best
    assert entry.time == entry.bound == best.estimate.time
    assert entry.gap == 0.0
    arrays = inputs(group, 1)
    done = run(group, EDGE, best.plan, arrays)
    values = evaluate(group, arrays)
    for name in group.outputs:
        np.testing.assert_allclose(done.outputs[name], values[name], rtol=1e-6, atol=1e-9)
    outermost = EDGE.levels[0].memories[0].name
    counted = [done.counters.reads, done.counters.writes]
    assert entry.traffic == sum(size for each in counted for (memory, *_), size in each.items() if memory == outermost)
    assert entry.traffic >= sum(group.bytes(name) for name in (*group.inputs, *group.outputs))


def test_the_best_of_kernels_apart_is_no_slower_than_their_group() -> None:
    """The group as one kernel is one of the plans of its kernels."""
    group = UP.workload((8, 4, 8))
    apart = replace(group, kernels=tuple((op.name,) for op in group.ops))
    assert optimise(Problem(apart, EDGE, baselines=False)).best.estimate.time <= searched(group, EDGE).time


def test_two_results_may_leave_a_stage_whose_rows_stay() -> None:
    """Its best mapping keeps the product's rows in the clusters, and neither result is read there again."""
    assert searched(BACK.workload((256, 256, 512)), H100, limit=600).gap == 0.0


def test_no_mapping_is_said() -> None:
    """Sums over rows and over columns: no dim is left that all ops can walk together."""
    graph = layer(LLAMA)
    norm = next(kernel for kernel in kernels(graph.workload) if kernel[0] == "normalise1_d_X")
    group = fusion_pattern(Fusion(norm, ("sum_d_X", "sum_d_X_2"), graph))
    entry = searched(group.workload((8, 8)), EDGE)
    assert (entry.found, entry.time, entry.bound, entry.traffic) == (NO_MAPPING, math.inf, math.inf, 0.0)


# --- files --------------------------------------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_fusions(TABLE, tmp_path / "table.json")
    assert load_fusions(tmp_path / "table.json") == TABLE
    save_fusions(TABLE, tmp_path / "table.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "halley.fusions/9"}, "halley.fusions/1"),
        ({"chips": "h100"}, "chip"),
        ({"entries": [{"graph": "g", "extents": [0], "found": "x"}]}, "extents"),
        ({"entries": [{"graph": "g", "extents": [4], "time": 1.0, "found": "x"}]}, "a bound where there is a time"),
        ({"entries": [{"graph": "g", "extents": [4], "time": 1.0, "bound": 2.0, "found": "x"}]}, "at most the time"),
        ({"entries": [{"graph": "g", "extents": [4], "time": -1.0, "bound": 2.0, "found": "x"}]}, "greater than 0|above 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, change: dict, words: str) -> None:
    (tmp_path / "table.json").write_text(json.dumps(json.loads(dumps(fusions_document(TABLE))) | change))
    with pytest.raises(BadInput, match=words):
        load_fusions(tmp_path / "table.json")
