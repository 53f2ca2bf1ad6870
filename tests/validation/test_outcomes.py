"""Halley against SCALE-Sim, RTL and measured attention: the comparisons themselves, and the command that prints them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import halley
from validation.attention import graphs, plans
from validation.attention.compare import Shape, chosen, fused_time, unfused_time
from validation.attention.gpu import BUS_FRACTION, MATRIX_FRACTION, fit, gpu, measurements
from validation.outcome import Case, Line, read_figures
from validation.rtl import compare as rtl
from validation.scalesim import compare as scalesim
from validation.sources import SOURCES

from halley.cli.validate import DATA, _percent
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import run
from halley.io.chips.save import chip_document
from halley.ir.hardware import Chip
from halley.rewrite.legality import faults
from halley.workloads.gemm import gemm

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
needs_data = pytest.mark.skipif(FOLDER is None, reason=f"no data: set {DATA} to their folder")


# SCALE-Sim.


def test_every_row_of_scalesim_is_equal() -> None:
    outcome = scalesim.compare()
    assert [(line.quantity, len(line.cases), line.worst_case.error) for line in outcome.lines] == [
        ("compute cycles", 33, 0.0),
        ("input buffer reads", 33, 0.0),
        ("filter buffer reads", 33, 0.0),
        ("output buffer writes", 33, 0.0),
    ]
    assert {(run.dataflow, run.array_rows) for run in scalesim.runs()} == {(d, n) for d in ("os", "ws", "is") for n in (32, 128)}


def test_a_changed_figure_is_found(tmp_path: Path) -> None:
    text = (scalesim.HERE / "figures.csv").read_text()
    changed = tmp_path / "figures.csv"
    changed.write_text(text.replace("20351", "20352"))
    lines = scalesim.compare(changed).lines
    assert [line.holds for line in lines] == [False, True, True, True]
    assert (lines[0].worst_case.halley, lines[0].worst_case.figure) == (20351, 20352)


# Lockstep, against a pipeline that is run step by step.


def synchronous(load: float, work: float, store: float, tiles: int, partial: int) -> float:
    """Load, work and store of tile after tile between barriers; every ``partial``-th tile is stored. Ends with the last store."""
    total = 0.0
    for step in range(tiles + 2):
        stages = [load] if step < tiles else []
        stages += [work] if 0 <= step - 1 < tiles else []
        stages += [store] if 0 <= step - 2 < tiles and (step - 2) % partial == partial - 1 else []
        total += max(stages, default=0.0)
    return total


@pytest.mark.parametrize("seed", range(60))
def test_lockstep_is_a_pipeline_with_barriers(seed: int) -> None:
    """To within one step; exact where the array is what everything waits for."""
    source = np.random.default_rng(seed)
    m, n, k = (int(16 * source.integers(1, 9)) for _ in range(3))
    rows, columns, sums = (int(source.integers(1, 5)) for _ in range(3))
    latency, start = (float(source.integers(0, 60)) for _ in range(2))
    machine = rtl.with_latencies(rtl.chip(), latency, start)
    case = rtl.Run(m * rows, n * columns, k * sums, m, n, k, 1.0)
    load, work, store = 2 * latency + (m * k + k * n) / 4, m * n * k / 256 + start + 8, latency + m * n / 4
    expected = synchronous(load, work, store, rows * columns * sums, sums)
    found = rtl.predicted(case, machine)
    assert abs(found - expected) <= max(load, work, store) + 1e-6
    if work >= load and work >= store:
        assert found == pytest.approx(expected, rel=1e-9)


def running_ahead(machine: Chip) -> Chip:
    return replace(
        machine,
        levels=tuple(replace(x, memories=tuple(replace(m, lockstep=False) for m in x.memories)) for x in machine.levels),
    )


def test_lockstep_changes_only_the_time() -> None:
    case = rtl.Run(128, 128, 64, 64, 64, 16, 1.0)
    work, tree = gemm(128, 128, 64, dtype="fp16"), rtl.tree(case)
    barrier, ahead = (evaluate(work, machine, tree) for machine in (rtl.chip(), running_ahead(rtl.chip())))
    assert (barrier.events, barrier.footprint, barrier.busy) == (ahead.events, ahead.footprint, ahead.busy)
    assert barrier.time > max(barrier.busy.values())
    assert barrier.time != ahead.time


def test_rtl_tree_is_legal_and_computes() -> None:
    case = rtl.Run(64, 32, 32, 32, 32, 16, 1.0)
    work, tree = gemm(64, 32, 32, dtype="fp16"), rtl.tree(case)
    assert faults(tree, work, rtl.chip()) == []
    estimate = evaluate(work, rtl.chip(), tree)
    assert all(estimate.footprint[m.name] <= m.capacity for m in rtl.chip().memories)


def test_a_shared_bus_takes_turns() -> None:
    base = rtl.chip()
    outer = replace(base.levels[0], memories=tuple(replace(m, shared_bus=True) for m in base.levels[0].memories))
    case = rtl.Run(64, 64, 64, 32, 32, 32, 1.0)
    work, tree = gemm(64, 64, 64, dtype="fp16"), rtl.tree(case)
    apart, shared = (evaluate(work, machine, tree) for machine in (base, replace(base, levels=(outer, *base.levels[1:]))))
    assert shared.busy["bus", "dram"] == pytest.approx(apart.busy["read", "dram"] + apart.busy["write", "dram"])
    assert ("read", "dram") not in shared.busy


def test_new_keys_of_a_memory_are_saved() -> None:
    memories = chip_document(rtl.chip())["levels"][1]["memories"]["buffer"]
    assert memories["lockstep"]["value"] is True
    assert "shared_bus" not in memories


# RTL.


def rtl_table(folder: Path, cycles: dict[int, str] | None = None) -> Path:
    """A table of 32 runs that a pipeline with barriers made."""
    lines = ["M,N,K,micro_M,micro_N,micro_K,rtl_cycles"]
    for index in range(32):
        m, n, k = 16 * (1 + index % 4), 16 * (1 + index // 4 % 4), 16 * (1 + index // 16)
        sizes = (4 * m, 2 * n, 2 * k, m, n, k)
        load, work, store = 12 + (m * k + k * n) / 4, m * n * k / 256 + 55, 6 + m * n / 4
        taken = (cycles or {}).get(index, f"{synchronous(load, work, store, 16, 2):.0f}")
        lines.append(",".join([*map(str, sizes), taken]))
    (folder / rtl.TABLE.parent).mkdir(exist_ok=True)
    (folder / rtl.TABLE).write_text("\n".join(lines) + "\n")
    return folder


def test_rtl_is_compared_where_there_is_a_table(tmp_path: Path) -> None:
    assert rtl.compare(None).skipped == rtl.compare(tmp_path).skipped == "no data: rtl/rtl_single_gemm_16x16.csv"
    line = rtl.compare(rtl_table(tmp_path)).lines[0]
    assert len(line.cases) == 30
    assert line.mean_error < 0.05
    assert line.worst_case.error != 0


@pytest.mark.parametrize(("cell", "message"), [("", "a value for rtl_cycles"), ("-3", "a number above 0"), ("nan", "above 0")])
def test_a_broken_table_is_refused(tmp_path: Path, cell: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        rtl.compare(rtl_table(tmp_path, {3: cell}))


def test_a_fit_finds_its_own_constants() -> None:
    base = rtl.with_latencies(rtl.chip(), 9, 21)
    cases = [rtl.Run(32 * i, 32, 32, 16, 16, 16, 1.0) for i in (1, 2)] + [rtl.Run(64, 64, 64, 64, 32, 64, 1.0)]
    cases += [rtl.Run(64, 64, 16, 64, 64, 16, 1.0), rtl.Run(128, 128, 128, 64, 64, 64, 1.0)]
    assert rtl.fit(tuple(replace(case, cycles=rtl.predicted(case, base)) for case in cases)) == (9, 21)


@needs_data
@pytest.mark.slow
def test_rtl_constants_are_those_of_the_fit() -> None:
    assert FOLDER is not None
    machine = rtl.chip()
    found = tuple(round(machine.memory(name).latency * rtl.CLOCK) for name in ("dram", "buffer"))
    assert rtl.fit(rtl.runs(FOLDER / rtl.TABLE)[:: rtl.FITTED]) == found


# Attention.


def small(machine: Chip) -> Chip:
    """The GPU with 2 x 2 SMs, so that the interpreter is quick."""
    inner = machine.levels[-1]
    assert inner.network is not None
    axes = tuple(replace(axis, size=2) for axis in inner.network.axes)
    return replace(machine, levels=(*machine.levels[:-1], replace(inner, network=replace(inner.network, axes=axes))))


def reference(given: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """Attention and its gradients by the chain rule, in plain NumPy."""
    q, k, v, do = (given[name] for name in ("Q", "K", "V", "dO"))
    scores = scale * np.einsum("hmd,hnd->hmn", q, k)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    lse = np.log(weights.sum(-1)) + scores.max(-1)
    p = weights / weights.sum(-1, keepdims=True)
    out = np.einsum("hmn,hne->hme", p, v)
    dp = np.einsum("hme,hne->hmn", do, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return {
        "O": out,
        "lse": lse,
        "dQ": np.einsum("hmn,hnd->hmd", ds, k),
        "dK": np.einsum("hmn,hmd->hnd", ds, q),
        "dV": np.einsum("hmn,hme->hne", p, do),
    }


def drawn(heads: int, queries: int, keys: int, head_dim: int) -> dict[str, np.ndarray]:
    source = np.random.default_rng(heads + queries + keys)
    shapes = {"Q": queries, "K": keys, "V": keys, "dO": queries}
    return {name: source.standard_normal((heads, rows, head_dim)) for name, rows in shapes.items()}


def test_the_reference_is_the_gradient() -> None:
    given = drawn(1, 3, 4, 2)
    loss = [float((reference(given | {"Q": given["Q"] + d}, 1.0)["O"] * given["dO"]).sum()) for d in (1e-6, -1e-6)]
    assert (loss[0] - loss[1]) / 2e-6 == pytest.approx(reference(given, 1.0)["dQ"].sum(), rel=1e-6)


@pytest.mark.parametrize("along", plans.Along)
@pytest.mark.parametrize("kind", ["standard", "fa2", "fa1"])
def test_plans_are_legal_and_compute_attention(kind: str, along: plans.Along) -> None:
    heads, queries, keys, head_dim = 3, 21, 16, 4
    chip = small(gpu(1.0, 1.0, atomics=True))
    given, scale = drawn(heads, queries, keys, head_dim), 1.0 if kind == "standard" else head_dim**-0.5
    expected = reference(given, scale)
    if kind == "standard":
        made = [(graphs.standard(heads, queries, keys, head_dim, False), lambda deal: plans.standard(deal, False))]
    elif kind == "fa2":
        made = [
            (graphs.forward(heads, queries, keys, head_dim), plans.forward),
            (graphs.backward(heads, queries, keys, head_dim), plans.backward),
        ]
    else:
        made = [(graphs.backward_by_blocks(heads, queries, keys, head_dim, 8), plans.backward_by_blocks)]
    for work, plan in made:
        kernels = plan(plans.Deal(chip, dict(work.dims), along))
        tree = plans.in_memory(work, kernels, plans.passed(work, kernels))
        assert faults(tree, work, chip) == []
        arrays = {name: given[name.removesuffix("0")] for name in work.inputs if name.removesuffix("0") in given}
        arrays |= {name: expected[name] for name in work.inputs if name in expected}
        arrays = {name: arrays[name].reshape([work.dims[d] for d in work.tensors[name].dims]) for name in work.inputs}
        done = run(work, chip, tree, arrays)
        for name in set(work.outputs) - {"mx", "z"}:
            plain = expected[name.removesuffix("0")]
            np.testing.assert_allclose(done.outputs[name].reshape(plain.shape), plain, rtol=1e-9, atol=1e-9, err_msg=name)


def test_chosen_kernels_fit_and_pass_the_rules() -> None:
    chip = gpu(1.0, 1.0, atomics=True)
    for work, plan in (
        (graphs.forward_by_blocks(64, 1024, 1024, 128, 128), plans.forward_by_blocks),
        (graphs.backward_by_blocks(64, 1024, 1024, 128, 128), plans.backward_by_blocks),
        (graphs.standard(32, 2048, 2048, 64, True), lambda deal: plans.standard(deal, True)),
    ):
        kernels = tuple(kernel for _, kernel in chosen(work, chip, plan))
        tree = plans.in_memory(work, kernels, plans.passed(work, kernels))
        assert faults(tree, work, chip) == []
        footprint = evaluate(work, chip, tree).footprint
        assert all(footprint[name] <= chip.memory(name).capacity for name in footprint)


def test_fusion_pays_more_with_longer_sequences_and_a_mask() -> None:
    """Laws that need no data: fused is faster, the first kernel slower than the second, a mask helps the fused ones alone."""
    plain, masked = (Shape(4, 16, 2048, 64, causal) for causal in (False, True))
    assert fused_time(plain) < fused_time(plain, first=True) < unfused_time(plain)
    assert fused_time(masked) < 0.6 * fused_time(plain)
    assert unfused_time(masked) > unfused_time(plain)


@needs_data
def test_fractions_are_those_of_the_fit() -> None:
    assert FOLDER is not None
    assert fit(measurements(FOLDER / "measured_ops.csv")) == pytest.approx((MATRIX_FRACTION, BUS_FRACTION), abs=5e-4)


# The command and the page.


def test_lines_judge() -> None:
    line = Line("x", (Case("a", 11, 10), Case("b", 7, 10)), mean=0.2, worst=0.3)
    assert (line.mean_error, line.bias, line.worst_case.name) == (pytest.approx(0.2), pytest.approx(-0.1), "b")
    assert line.holds
    assert not replace(line, mean=0.19).holds
    assert not replace(line, worst=0.29).holds
    assert Case("zero", 0, 0).error == 0
    assert Case("zero", 1, 0).error == float("inf")


def test_figures_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("a,b\n")
    for text, message in (("a,b\n", "1 to 100000 rows; got none"), ("a,b\n1,\n", "row 1: expected a value for b")):
        path.write_text(text)
        with pytest.raises(BadInput, match=message):
            read_figures(path, ("a", "b"))
    with pytest.raises(BadInput, match="a table of figures"):
        read_figures(tmp_path / "none.csv", ())


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DATA, raising=False)
    done = halley("validate", "--json")
    assert done.code == 0
    found = {item["source"]: item for item in done.json}
    assert list(found) == list(SOURCES)
    assert [line["worst_error"] for line in found["scalesim"]["lines"]] == [0.0] * 4
    assert found["rtl"]["skipped"].startswith("no data")
    assert "rtl: skipped: no data" in done.err
    assert "HALLEY_DATA" in done.err
    missed = halley("validate", "rtl", "--data", str(rtl_table(tmp_path, {3: "1"})))
    assert missed.code == 1
    assert "rtl: cycles: missed; worst: 256 x 32 x 32 by 64 x 16 x 16" in missed.err
    assert "did you mean 'rtl'?" in halley("validate", "rlt").err
    assert "--data: expected a folder" in halley("validate", "rtl", "--data", str(tmp_path / "none")).err


def the_page_has(names: Iterable[str]) -> None:
    rows = set(re.findall(r"^\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for name in names:
        for line in SOURCES[name](FOLDER).lines:
            shares = (line.mean_error, line.mean, abs(line.worst_case.error), line.worst)
            assert " | ".join([name, line.quantity, str(len(line.cases)), *map(_percent, shares)]) in rows


README_ROWS = {
    "612 counts of accesses": ["timeloop | accesses"],
    "cycles of GEMMs": ["rtl | cycles", "rtl | cycles, chains"],
    "FlashAttention": ["mesh | FlashAttention, formulas", "mesh | FlatAttention, formulas"],
    "mappings run as kernels": [f"tiles | {name}" for name in ("gemm, held out", "attention", "gemm-softmax")],
    "all-reduce": ["collectives | all-reduce, held-out sizes", "collectives | all-to-all, held-out sizes"],
    "kernels of GPU libraries": [
        f"kernels | {name}, held out" for name in ("gemm", "attention_prefill", "attention_decode", "moe")
    ],
    "iterations of Megatron-LM": [
        "megatron | seconds per iteration",
        "training | vtrain, held out",
        "training | llm-foundry, held out",
    ],
    "closed loops of serving, TPOT": ["serving | closed loops, TPOT, dense", "serving | closed loops, TPOT, moe"],
    "closed loops of serving, TTFT": [
        "serving | closed loops, TTFT by events, dense",
        "serving | closed loops, TTFT by events, moe",
    ],
}
"""By the start of a row of README's table, the lines of the page whose mean errors it has."""


def test_the_readme_has_errors_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8").partition("## How accurate")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| .* \| (.*) \|$", readme, re.MULTILINE)[1:]
    assert len(rows) == len(README_ROWS)
    for (what, errors), (start, lines) in zip(rows, README_ROWS.items(), strict=True):
        assert what.startswith(start)
        found = [re.search(rf"^\| {re.escape(line)} \| \d+ \| ([^|]*) \|", page, re.MULTILINE) for line in lines]
        assert errors.split("; ") == [line and line[1] for line in found]


def test_the_page_has_the_table() -> None:
    the_page_has(name for name in SOURCES if name != "kernels")


@needs_data
@pytest.mark.slow
def test_the_page_has_the_table_of_kernels() -> None:
    """Apart, as its fits take minutes."""
    the_page_has(["kernels"])
