"""Kernels and collectives of a GPT's parts against published counts, and against the same model as a graph of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.formulas.numbers import Number
from halley.formulas.training import beside_time
from halley.io.chip_fits import load_chip_fit
from halley.io.fits import load_fit
from halley.io.load import load_chip
from halley.io.system import load_system
from halley.ir.mapping import CollectiveKind
from halley.ir.system import resized
from halley.planning.kernels import Gemm, kernel_time
from halley.planning.machine import PEAK, machine
from halley.planning.megatron import Part, Split, embedding, head, layer
from halley.planning.megatron_iteration import MegatronTime, Setting, megatron_iteration, worker_of
from halley.planning.memory import memory
from halley.planning.passes import Exchange, Kind, Step, Work, Worker, macs, sustained
from halley.rewrite.recompute import Recompute
from halley.workloads.training import training_model
from halley.workloads.transformer import Transformer

SMALL = Transformer(
    "small", 4, 256, 8, 8, 32, 1024, 512, 128, gated=False, rms=False, positions=True, tied=True, dropout=0.1
)
CHIP = machine(load_chip("a100"))
FIT = load_chip_fit("a100").efficiency
AR, AG, RS = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


def exchanges(work: Work) -> Counter[tuple[CollectiveKind, Number, bool]]:
    found = (item for item in work if isinstance(item, Exchange))
    return Counter((item.collective, item.size, item.beside is not None) for item in found)


def iteration(setting: Setting, shape: Transformer = SMALL) -> MegatronTime:
    system = resized(load_system("dgx-a100-pod"), max(8, setting.tensor * setting.stages))
    if setting.tensor * setting.stages < 8:
        system = replace(system, axes=(replace(system.axes[-1], size=setting.tensor * setting.stages),))
    worker = worker_of(system, FIT, load_fit("a100-sxm-nccl-2.27.3"), setting.tensor, channels=24)
    return megatron_iteration(shape, setting, system, worker)


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("scattered", [False, True])
def test_products_are_those_of_the_papers_and_of_the_graph(ranks: int, scattered: bool) -> None:
    split = Split(3, SMALL.sequence, ranks, scattered)
    part, s, h = layer(SMALL, split, Recompute.SELECTIVE), SMALL.sequence, SMALL.model
    # Narayanan et al., SC 2021, appendix: 24 B s h^2 + 4 B s^2 h operations forward, half as many products, backward twice that
    forward = 3 * (12 * s * h * h + 2 * s * s * h)
    assert ranks * macs(part.forward) == forward == training_model(SMALL, 3).blocks[0].workload.macs()
    assert ranks * macs(part.backward) == 2 * forward
    assert ranks * macs(part.recompute) == 3 * 2 * s * s * h
    assert ranks * macs(head(SMALL, split).forward) == 3 * s * h * SMALL.vocabulary
    assert macs(layer(SMALL, split, Recompute.FULL).recompute) == macs(part.forward)


def test_parameters_are_those_of_the_paper() -> None:
    split = Split(1, SMALL.sequence)
    assert layer(SMALL, split).parameters == 12 * SMALL.model**2 + 13 * SMALL.model
    everything = 4 * layer(SMALL, split).parameters + embedding(SMALL, split).parameters + head(SMALL, split, False).parameters
    # P = 12 l h^2 (1 + 13 / 12 h + (V + s) / 12 l h), and the gain and bias of the last norm
    assert everything == 4 * (12 * 256**2 + 13 * 256) + (512 + 128) * 256 + 2 * 256


def test_a_layer_has_megatrons_collectives() -> None:
    size = 3 * SMALL.sequence * SMALL.model * 2
    whole, shares = (layer(SMALL, Split(3, SMALL.sequence, 4, scattered)) for scattered in (False, True))
    assert exchanges(whole.forward) == {(AR, size, False): 2}
    assert exchanges(whole.backward) == {(AR, size, True): 2}
    assert exchanges(shares.forward) == {(AG, size, False): 2, (RS, size, False): 2}
    assert exchanges(shares.backward) == {(AG, size, False): 2, (AG, size, True): 2, (RS, size, True): 2}


@pytest.mark.parametrize("made", [layer, embedding, head])
def test_scattered_tokens_leave_less_work_between_weights(made: Callable[[Transformer, Split], Part]) -> None:
    times = []
    for scattered in (False, True):
        part = made(SMALL, Split(64, SMALL.sequence, 8, scattered))
        times.append(Worker(CHIP, FIT, lambda kind, size: 0.0).times((*part.forward, *part.backward)))
    assert times[1][Kind.VECTOR] < times[0][Kind.VECTOR]
    assert times[1][Kind.MATRIX] == times[0][Kind.MATRIX]


def test_without_dropout_there_is_no_mask() -> None:
    part = layer(replace(SMALL, dropout=0.0), Split(1, SMALL.sequence))
    names = [item.name for item in (*part.forward, *part.backward) if isinstance(item, Step)]
    assert not [name for name in names if "drop" in name]


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.floats(0, 0.9))
def test_work_and_a_collective_beside_it(work: float, collective: float, held: float) -> None:
    time = beside_time(work, collective, held)
    assert max(work, collective) <= time <= work + collective
    # while both run, work goes on at a part of its rate
    together = min(collective, work / (1 - held))
    assert time == pytest.approx(max(collective, together + work - (1 - held) * together))


def test_what_a_collective_beside_a_kernel_adds() -> None:
    step = Step("product", Kind.MATRIX, Gemm(4096, 4096, 4096))
    worker = Worker(CHIP, FIT, lambda kind, size: 1e-4, held=0.25)
    alone = float(worker.step_time(step))
    assert float(worker.time((Exchange(AR, 1, beside=step),))) == pytest.approx(alone + 0.25e-4)
    assert float(worker.time((step, Exchange(AR, 1)))) == pytest.approx(alone + 1e-4)


def test_sustained_meets_the_time_that_was_measured() -> None:
    large = Gemm(8192, 8192, 8192)
    short = float(kernel_time(large, CHIP, FIT))
    slower = sustained(FIT, CHIP, large, 1.2 * short)
    assert float(kernel_time(large, CHIP, slower)) == pytest.approx(1.2 * short)
    assert replace(slower, matrix=FIT.matrix) == FIT
    with pytest.raises(BadInput, match="sustained GEMM: expected a time of at least"):
        sustained(FIT, CHIP, large, 0.5 * short)


def test_one_stage_does_its_work_in_turn() -> None:
    found = iteration(Setting(tensor=8, stages=1, microbatch=2, batch=6))
    assert float(found.account.bubble[0]) == pytest.approx(0, abs=1e-12)
    account = {name: float(time[0]) for name, time in found.account.breakdown().items()}
    work = sum(account[name] for name in ("forward", "recompute", "backward"))
    assert sum(found.kinds.values()) == pytest.approx(work)
    assert found.time == pytest.approx(work + account["norm"] + account["step"])
    s, h = SMALL.sequence, SMALL.model
    assert found.macs == 6 * 3 * (4 * (12 * s * h * h + 2 * s * s * h) + s * h * SMALL.vocabulary)


def test_recomputation_costs_time_and_spares_memory() -> None:
    found = [iteration(Setting(8, 2, 1, 8, 2, choice)) for choice in Recompute]
    times = [item.time for item in found]
    sizes = [float(memory(item.training).peak[0]) for item in found]
    assert sorted(times) == times
    assert sorted(sizes, reverse=True) == sizes


def test_stages_send_over_the_network_between_nodes() -> None:
    near, far = iteration(Setting(4, 2, 1, 8)), iteration(Setting(8, 2, 1, 8))
    assert float(far.training.onward[0]) > float(near.training.onward[0])
    whole = iteration(Setting(8, 2, 1, 8, shared_sends=False))
    assert whole.training.onward[0] == pytest.approx(2 * 500e-9 + SMALL.sequence * SMALL.model * 2 / 25e9, rel=0.5)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: layer(replace(SMALL, gated=True, rms=True), Split(1, 128)), "expected a GPT.*got gated, rms"),
        (lambda: layer(SMALL, Split(1, 128, 3)), r"expected a divisor of heads \(8\); got 3"),
        (lambda: iteration(Setting(3, 1, 1, 1)), "divisor"),
        (lambda: iteration(Setting(8, 2, 3, 8)), "batch: expected a multiple of 3"),
    ],
)
def test_faults(made: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        made()


def test_the_data_sheet_is_a_bound() -> None:
    part = layer(SMALL, Split(8, SMALL.sequence, 2))
    work = (*part.forward, *part.backward)
    best = Worker(CHIP, PEAK, lambda kind, size: 0.0)
    assert float(best.time(work)) < float(Worker(CHIP, FIT, lambda kind, size: 0.0).time(work))
    assert float(best.time(work)) > float(macs(work)) / CHIP.mac_rate("bf16")
