"""Software that launches kernels: its files, its host, and what both do to the costs of parts and plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.test_op_costs import GPT, LLAMA

from halley.errors import BadInput
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.chips.software import NUMBERS, load_software, parse_software, software_document, software_of_chip
from halley.io.results.envelope import Saved
from halley.io.results.training import KIND, plan_document, read_training
from halley.io.systems.parts import usable_memory
from halley.io.systems.system import load_system
from halley.ir.mapping import CollectiveKind
from halley.kernels.machine import machine
from halley.kernels.software import Software
from halley.library import SOFTWARE
from halley.pipeline.data_parallel import RECIPES, DataParallel, LayerBlock, Sharded
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import MeshAxis
from halley.training.op_costs import launches
from halley.training.part_costs import model_costs, training_graphs
from halley.training.part_solvers import CostTerms
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.verify.iteration import iteration_finding
from halley.workloads.transformer import Transformer

CHIP, FIT = machine(load_chip("a100")), load_chip_fit("a100").efficiency
SLOW = Software("slow", launch=30e-6, block=200e-6, collective=50e-6)


def wire(kind: CollectiveKind, axes: tuple[str, ...], size: float) -> float:
    return 1e-6 + size / 1e11


def terms(ranks: int, software: Software | None) -> CostTerms:
    mesh = (MeshAxis("x", ranks),) if ranks > 1 else ()
    return CostTerms(mesh, wire, CHIP, FIT, software=software)


# --- files ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOFTWARE.names())
def test_every_number_of_shipped_software_has_a_source(name: str) -> None:
    found = load_software(name)
    assert found.name == name
    given = [key for key in NUMBERS if getattr(found, key) != getattr(Software(""), key)]
    assert given
    assert set(given) <= set(found.origin)
    assert all(found.origin.values())


def test_all_faults_of_a_file_are_raised_at_once() -> None:
    """Values that cannot be read, unknown keys, numbers out of bounds and keys that exclude each other, each with its line."""
    lines = ["format: halley.software/1", "name: mine", "source: my runs", "launch: 5 s", "graph: 10 us", "colective: 3 us"]
    lines += ["attention: 1.5", "kernels: {value: x, source: my runs}", "attention_on: {h100: 1.2}", "contention: 1.0"]
    with pytest.raises(BadInput) as raised:
        parse_software("\n".join([*lines, "fitted: {rows: -1}"]), "mine.yaml")
    keys = ("launch", "graph", "colective", "attention", "kernels.value", "attention_on.h100", "contention", "fitted.rows")
    assert [fault.where for fault in raised.value.faults] == [f"mine.yaml:{n}: {key}" for n, key in enumerate(keys, 4)]


def test_only_measured_chips_have_software_of_their_own() -> None:
    found = software_of_chip("a100")
    assert found is not None
    assert found.rows > 100
    assert found.error is not None
    assert found.error < 0.10
    assert [made.name for chip in ("h100", "h200") if (made := software_of_chip(chip))] == ["pytorch-compiled"] * 2
    assert software_of_chip("b200") is software_of_chip("tpu-v4") is None


def test_the_share_of_an_attention_kernel_is_that_of_the_chip() -> None:
    """Fits of A100 were measured with FlashAttention-2, those of H100 with cuDNN's kernel."""
    triton, flash = load_software("llm-foundry"), load_software("pytorch")
    assert (triton.on("a100").attention, flash.on("a100").attention) == (0.543, 1)
    assert triton.on("h100").attention == pytest.approx(triton.on("a100").attention * flash.on("h100").attention, abs=0.005)
    assert triton.on("h200") == triton.on("h100") != triton.on("b200") == triton.on("a100")
    assert parse_software(software_document(triton, "remark")) == triton
    with pytest.raises(BadInput, match=r"attention_on.h100: expected a share"):
        Software("x", attention_on={"h100": 0.0})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("launch: 5 us", "launch: expected a source, or assumed: and why; got neither"),
        ("kernels: {value: 1.5, source: x}", "kernels: expected a share of at most 1; got 1.5"),
        ("attention_on: {h100: {value: 2, source: x}}", "attention_on.h100: expected a share of at most 1; got 2"),
        ("attention_on: {h100: 0.5}", "attention_on.h100: expected a source"),
        ("lunch: 5 us", "lunch: expected a known key; got 'lunch'|lunch"),
        ("graph: {value: 5 us, source: x}\nlaunch: {value: 5 us, source: x}", "graph: expected a graph, or times of launches"),
    ],
)
def test_faults_of_files_are_told(line: str, message: str) -> None:
    text = f'format: "halley.software/1"\nname: x\nsource: y\n{line}\n'
    with pytest.raises(BadInput, match=message):
        parse_software(text, sourced=True)


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(BadInput, match="attention: expected a share above 0") as caught:
        Software("x", launch=-1.0, attention=0.0, contention=1.0)
    assert len(caught.value.faults) == 3


# --- costs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [GPT, LLAMA])
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_a_pass_takes_the_longer_of_its_kernels_and_their_launches(shape: Transformer, ranks: int, recompute: Recompute) -> None:
    """Counted anew: kernels of the graph, collectives of the sharding."""
    plain, hosted = (model_costs(shape, 1, 128, terms(ranks, software), recompute) for software in (None, SLOW))
    graphs = training_graphs(shape, 1, 128, recompute, True)
    for before, after, graph in zip(plain.parts, hosted.parts, graphs, strict=True):
        calls = sum(step.kind is not None for move in after.sharding.redistributions for step in move.steps)
        passes = [name for name, count in launches(graph).items() if count]
        host = sum(launches(graph).values()) * SLOW.launch + len(passes) * SLOW.block + calls * SLOW.collective
        assert max(before.time, host) <= after.time * (1 + 1e-12)
        assert after.time <= before.time + host
        assert after.time - before.time == pytest.approx(math.fsum(after.waits.values()))
    assert hosted.bound <= hosted.time * (1 + 1e-12)
    assert all(least <= part.time * (1 + 1e-12) for least, part in zip(hosted.least, hosted.parts, strict=True))


def test_large_layers_hide_their_launches_and_a_graph_takes_one() -> None:
    large = replace(GPT, model=4096, heads=32, kv_heads=32, head_dim=128, hidden=16384, sequence=2048)
    fast = replace(SLOW, launch=1e-6, block=0.0)
    layers = [model_costs(large, 8, 2048, terms(1, each)).blocks[0][0] for each in (None, fast)]
    assert layers[0].time == layers[1].time
    assert layers[1].waits == {}
    small = [model_costs(GPT, 1, 32, terms(1, each)).blocks[0][0].forward for each in (SLOW, Software("graph", graph=2e-3))]
    assert small[1] == 2e-3


def test_attention_of_slower_software_takes_longer() -> None:
    plain, slow = (
        model_costs(replace(GPT, sequence=2048), 1, 2048, terms(1, each)).blocks[0][0]
        for each in (None, Software("x", attention=0.5))
    )
    assert plain.time < slow.time < 2 * plain.time


def test_contention_adds_its_share_of_the_collectives() -> None:
    """By hand: gather 3 s, scatter 5 s, a fifth of each."""

    def time(kind: CollectiveKind, payload: object) -> float:
        return 3.0 if kind is CollectiveKind.ALL_GATHER else 5.0

    block = LayerBlock(20.0, 40.0, 20.0, parameters=1.0)
    given = (4, Sharded.PARAMETERS, time, RECIPES["mixed-adam"])
    assert DataParallel(*given).passes([block]) == (3 + 20, 3 + 60 + 5)
    assert DataParallel(*given, contention=0.2).passes([block]) == pytest.approx((3 + 20 + 0.6, 3 + 60 + 1.6 + 5))
    whole = DataParallel(4, Sharded.OPTIMIZER, time, RECIPES["mixed-adam"], contention=0.2)
    assert whole.passes([block]) == (20, 60)


# --- plans ------------------------------------------------------------------------------------------------------------------


def best(software: Software | None, sharded: Sharded | None = None) -> TrainingResult:
    system = load_system("4 x a100, nvlink 4")
    fixed = Fixed(sharded=sharded, offload=False)
    return best_training_plan(TrainingProblem(GPT, system, 8, 128, FIT, fixed=fixed, software=software), others=0)


@pytest.mark.medium
def test_a_plan_with_a_slow_host_is_proven_saved_and_checked() -> None:
    plain, slow = best(None), best(SLOW)
    assert slow.cost.time > plain.cost.time
    assert slow.cost.account["host"] > 0
    assert sum(slow.cost.account.values()) == pytest.approx(slow.cost.time)
    assert slow.certificate.bound <= slow.cost.time
    assert slow.certificate.gap < 0.02
    assert iteration_finding("plan", slow).passed
    again = read_training(Saved("plan.json", KIND, plan_document(slow)))
    assert again.problem.software == SLOW
    assert again.cost.time == slow.cost.time


@pytest.mark.medium
def test_no_plan_with_a_slow_host_is_below_the_bound() -> None:
    """Each kind of plan alone, with shardings that leave out collectives where the kernels would take longer."""
    system, free = load_system("4 x a100, nvlink 4"), best(SLOW)
    times = []
    for data, stages, model in ((4, 1, 1), (1, 1, 4), (2, 2, 1), (1, 2, 2), (2, 1, 2)):
        for recompute in (Recompute.NONE, Recompute.FULL):
            fixed = Fixed(data=data, stages=stages, model=model, recompute=recompute, offload=False)
            found = best_training_plan(TrainingProblem(GPT, system, 8, 128, FIT, fixed=fixed, software=SLOW), others=0)
            times.append(found.cost.time)
            assert found.certificate.bound <= found.cost.time
    assert min(times) >= free.certificate.bound * (1 - 1e-9)
    assert min(times) >= free.cost.time * (1 - free.certificate.gap - 1e-9)


@pytest.mark.medium
def test_contention_agrees_with_the_simulation_of_the_iteration() -> None:
    found = best(replace(SLOW, launch=0.0, block=0.0, contention=0.3), Sharded.PARAMETERS)
    assert iteration_finding("plan", found).passed


def test_memory_is_what_the_driver_reports_less_a_reserve() -> None:
    system = load_system("1 x a100")
    whole = TrainingProblem(GPT, system, 8, 128, FIT)
    usable = usable_memory("a100", whole.capacity)
    assert usable == pytest.approx(78.15 * 2**30)
    assert replace(whole, usable=usable).capacity == usable
    assert usable_memory("wse-2", 1e12) == 1e12
