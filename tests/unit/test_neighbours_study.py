"""The study of neighbouring systems: the page shows what is kept, its sentences hold, and what is kept is found again."""

from __future__ import annotations

import pytest
from studies import neighbours
from studies import neighbours_decode as decode
from studies import neighbours_partitions as partitions
from studies import neighbours_training as training
from studies.store import DOCS

from halley.io.chips.load import load_chip
from halley.report.markup import svg_file
from halley.verify.mapping import execution_findings, time_finding
from halley.workloads.training import training_model


def test_page_and_figures_show_what_is_kept() -> None:
    known = neighbours.STUDY.load()
    assert (DOCS / "neighbours.md").read_text(encoding="utf-8") == neighbours.page(known)
    for name, figure in (("decode", neighbours.decode_figure), ("bandwidth", neighbours.bandwidth_figure)):
        assert (DOCS / f"neighbours-{name}.svg").read_text(encoding="utf-8") == svg_file(figure(known))


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in neighbours.findings(neighbours.STUDY.load()) if not item.holds] == []


@pytest.mark.parametrize("name", decode.WRITTEN)
def test_written_mappings_compute_attention_in_the_kept_time(name: str) -> None:
    keys = decode.KEYS[0]
    row = next(row for row in neighbours.STUDY.load()["fused"] if (row["mapping"], row["keys"]) == (name, keys))
    own = decode.written(decode.WRITTEN[name], keys, row["model"], row["tile"])
    assert float(own.estimate.time) == pytest.approx(row["time"])
    found = list(execution_findings(name, decode.step(keys), load_chip(decode.CHIP), own.plan))
    assert found
    assert [item for item in found if not item.passed] == []


@pytest.mark.medium
@pytest.mark.parametrize("name", decode.WRITTEN)
def test_written_mappings_take_as_long_in_the_simulation(name: str) -> None:
    keys = decode.KEYS[0]
    row = next(row for row in neighbours.STUDY.load()["fused"] if (row["mapping"], row["keys"]) == (name, keys))
    own = decode.written(decode.WRITTEN[name], keys, row["model"], row["tile"])
    assert time_finding(name, decode.step(keys), load_chip(decode.CHIP), own.plan).passed


@pytest.mark.medium
def test_attention_alone_is_found_again() -> None:
    keys = decode.KEYS[0]
    row = next(row for row in neighbours.STUDY.load()["kernels"] if (row["keys"], row["links"]) == (keys, True))
    assert decode.alone(decode.core(keys), load_chip(decode.CHIP))["time"] == pytest.approx(row["time"])


def test_the_operation_is_projections_and_attention_of_the_same_extents() -> None:
    whole, core = decode.step(1024), decode.core(1024)
    assert {op.name for op in whole.ops} == {"query", "key", "value", "output", *(op.name for op in core.ops)}
    assert {dim: whole.dims[dim] for dim in core.dims} == dict(core.dims)


def test_the_wait_for_an_exchange_is_that_of_the_textbook() -> None:
    """A GPU sends its share of the parameters 2 (n - 1) / n times in an all-reduce of n workers."""
    bandwidth, step = 1e9, 2.0
    share = 4 * training.parameters() / training.WORKER
    wire = 2 * (training.WORKERS - 1) / training.WORKERS * share / bandwidth
    waited = wire + 2 * training.LATENCY
    assert training.all_reduce(bandwidth, 4 * training.parameters()) == pytest.approx(waited, rel=1e-3)
    plain, *_, both = training.EXCHANGES
    assert plain.speed(bandwidth, step) == pytest.approx(100 * step / (100 * step + waited), rel=1e-3)
    assert both.speed(bandwidth, step) == 1.0


def test_the_least_bandwidth_is_a_threshold() -> None:
    known = neighbours.STUDY.load()["bandwidths"]
    by = {row["method"]: row for row in known}
    for each in training.EXCHANGES:
        row = by[each.name]
        at = row["bandwidth"] / training.WORKER
        assert each.speed(at, row["step"]) >= training.GOAL > each.speed(at / (1 + training.PRECISION), row["step"])


@pytest.mark.medium
def test_data_parallelism_is_planned_again() -> None:
    row = neighbours.STUDY.load()["bandwidths"][0]
    at = row["bandwidth"] / training.WORKER
    assert row["step"] / training.planned(at) == pytest.approx(row["speed"])
    assert training.worker_time() == pytest.approx(row["step"])


def test_a_plan_on_frontier_is_found_again() -> None:
    kept = next(row for row in neighbours.STUDY.load()["partitions"] if (row["share"], row["kind"]) == (0.5, partitions.FLAT))
    (row,) = partitions.partition(0.5, partitions.FLAT)
    assert row == kept | {
        "time": pytest.approx(kept["time"]),
        "bound": pytest.approx(kept["bound"]),
        "utilisation": row["utilisation"],
    }
    assert partitions.frontier(1.0).chips == partitions.SEQUENCES
    assert training_model(partitions.model(), batch=1).parameters == pytest.approx(20.5e9, rel=0.02)
