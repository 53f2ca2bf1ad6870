"""Iterations of training and their memory against the event simulation, published figures and hand calculation."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.reference.textbook import (
    attention_core_bytes,
    exposed_reduction_time,
    interleaved_share,
    layer_input_bytes,
    replicated_layer_bytes,
    sequence_parallel_layer_bytes,
)
from tests.reference.training_cases import drawn, simulate_training, training

from halley.errors import BadInput
from halley.ir.mapping import CollectiveKind
from halley.memory.peak import in_flight, training_memory
from halley.pipeline.data_parallel import RECIPES, DataParallel, LayerBlock, Sharded, layers_of_chunks, recipe
from halley.pipeline.iteration import Optimizer, PipelinedTraining, iteration_time
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline

ADAM = RECIPES["mixed-adam"]
GIGA = 10**9


def free(kind: CollectiveKind, payload: float) -> float:
    return 0.0


def alone(sharded: Sharded = Sharded.NOTHING, ranks: int = 1) -> DataParallel:
    return DataParallel(ranks, sharded, free, ADAM)


@pytest.mark.parametrize("seed", range(30))
def test_iteration_and_activations_equal_simulation(seed: int) -> None:
    """Any pipeline, blocks, sharding, clipping, offload: time of the iteration, and bytes of activations at each stage's peak."""
    draw = random.Random(f"training {seed}")
    for _ in range(8):
        case = drawn(draw, 6, 12)
        if case.pipeline is None or case.table is None:
            continue
        plan = training(draw, case)
        clock, found = simulate_training(plan, case.table), iteration_time(plan)
        assert found.time[0] == pytest.approx(clock.time, rel=1e-12)
        assert min(float(part.min()) for part in found.breakdown().values()) >= -1e-9
        assert sum(float(part[0]) for part in found.breakdown().values()) == found.time[0]
        assert training_memory(plan).activations[:, 0].tolist() == list(clock.peaks)


@pytest.mark.parametrize("seed", range(12))
def test_laws(seed: int) -> None:
    """Slower networks, longer work and a slower memory never make an iteration shorter; more sharding never takes more memory for
    states."""
    draw = random.Random(f"laws {seed}")
    case = drawn(draw, 5, 10)
    if case.pipeline is None:
        return
    plan = training(draw, case)
    time, stored = iteration_time(plan).time[0], training_memory(plan)
    slower = replace(plan.data, time=lambda kind, payload: 1.5 * plan.data.time(kind, payload) + 0.01)
    assert iteration_time(replace(plan, data=slower)).time[0] >= time
    assert iteration_time(replace(plan, optimizer=replace(plan.optimizer, bandwidth=900.0))).time[0] >= time
    longer = [[replace(block, backward=block.backward * draw.choice([1, 2])) for block in chunk] for chunk in plan.chunks]
    assert iteration_time(replace(plan, chunks=longer)).time[0] >= time * (1 - 1e-12)
    if plan.data.sharded is not Sharded.PARAMETERS:
        more = training_memory(replace(plan, data=replace(plan.data, sharded=Sharded(plan.data.sharded + 1))))
        assert (more.weights + more.gradients + more.states <= stored.weights + stored.gradients + stored.states).all()


def test_many_plans_at_once_are_the_same_bits() -> None:
    draw = np.random.default_rng(7)
    times = draw.uniform(1, 9, (8, 3, 40))
    for sharded in Sharded:

        def plan(rows: slice | int, sharded: Sharded = sharded) -> PipelinedTraining:
            chunks = [
                [LayerBlock(*time[:, rows], parameters=1000.0 + time[0, rows], activation=time[1, rows])] * 2 for time in times
            ]
            data = DataParallel(4, sharded, lambda kind, payload: payload / 300, ADAM)
            return PipelinedTraining(
                TrainingPipeline(4, 8, 2), chunks, data, Optimizer(5000.0, clipping=True), [0.5] * 7, [0.25] * 7
            )

        together, stored = iteration_time(plan(slice(None))), training_memory(plan(slice(None)))
        for row in range(0, 40, 9):
            assert iteration_time(plan(row)).time[0] == together.time[row]
            assert training_memory(plan(row)).peak[0] == stored.peak[row]


def test_reduction_is_hidden_behind_backward_work() -> None:
    """Equal buckets on one stage: the closed form. Collectives shorter than a bucket's work leave the last one exposed."""
    for collective in (0.5, 2.0, 5.0):
        chunk = [LayerBlock(1.0, 3.0, parameters=100)] * 4
        data = DataParallel(2, Sharded.NOTHING, lambda kind, payload, t=collective: t, ADAM)  # type: ignore[misc]
        found = iteration_time(PipelinedTraining(TrainingPipeline(1, 3), [chunk], data, Optimizer(1e30)))
        assert found.reduction[0] == pytest.approx(exposed_reduction_time(4, 3.0, collective))


def test_sharding_costs_what_its_collectives_cost() -> None:
    """Every collective 1 s, work 4 s a block: by hand."""
    chunk = [LayerBlock(4.0, 4.0, parameters=100)] * 2
    expected = {
        # 2 microbatches x 16 s; the second block's all-reduce is exposed
        Sharded.NOTHING: 33.0,
        # the same, then two all-gathers
        Sharded.OPTIMIZER: 35.0,
        # each backward pass leaves a reduce-scatter exposed
        Sharded.GRADIENTS: 36.0,
        # each pass waits for its first gather too: 9 + 10 s
        Sharded.PARAMETERS: 38.0,
    }
    for sharded, time in expected.items():
        data = DataParallel(2, sharded, lambda kind, payload: 1.0, ADAM)
        assert iteration_time(PipelinedTraining(TrainingPipeline(1, 2), [chunk], data, Optimizer(1e30))).time[0] == pytest.approx(
            time
        )


def test_bubble_and_transfers_are_distinguished() -> None:
    """Two stages, 4 microbatches, 3 s a pass and way: 3 s bubble; see `even_transfer_time` for the rest."""
    chunk = [LayerBlock(1.0, 2.0)]
    for holding, added in ((False, 4.0), (True, 5.0)):
        plan = PipelinedTraining(TrainingPipeline(2, 4), [chunk] * 2, alone(), Optimizer(1e30), [1.0], [1.0], holding)
        found = iteration_time(plan)
        assert (found.bubble[0], found.transfers[0]) == (3.0, added)
        assert found.forward[0] + found.backward[0] == 12.0
        together = iteration_time(plan, attribute_transfers=False)
        assert (together.bubble[0], together.time[0]) == (3.0 + added, found.time[0])


def test_optimizer_and_clipping_by_hand() -> None:
    """1000 parameters on stage 0, 3000 on stage 1, at 1000 B/s: gradient 2, state 12 read and written, weight 2 bytes."""
    chunks = [[LayerBlock(1.0, 2.0, parameters=1000)], [LayerBlock(1.0, 2.0, parameters=3000)]]
    plan = PipelinedTraining(TrainingPipeline(2, 1), chunks, alone(), Optimizer(1000.0, start=0.5))
    # stage 0 ends its pass at 6 s and steps for 28.5 s, stage 1 at 4 s for 84.5 s
    assert iteration_time(plan).time[0] == pytest.approx(4 + 84.5)
    clipped = replace(plan, optimizer=replace(plan.optimizer, clipping=True, norm_reduction=0.25))
    # norms are known at 6 + 2 and 4 + 6 s
    assert iteration_time(clipped).time[0] == pytest.approx(10.25 + 84.5)
    offloaded = replace(plan, optimizer=replace(plan.optimizer, offload=100.0))
    assert iteration_time(offloaded).time[0] == pytest.approx(4 + 360.5)
    shared = replace(plan, data=alone(Sharded.OPTIMIZER, 4))
    assert iteration_time(shared).time[0] == pytest.approx(4 + 21.5)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_published_memory_of_sharded_states() -> None:
    """Rajbhandari et al. (ZeRO), SC 2020, figure 1: 7.5e9 parameters, 64 ranks, Adam in mixed precision."""
    published = {Sharded.NOTHING: 120, Sharded.OPTIMIZER: 31.4, Sharded.GRADIENTS: 16.6, Sharded.PARAMETERS: 1.9}
    for sharded, size in published.items():
        chunk = [LayerBlock(1.0, 2.0, parameters=75 * 10**8)]
        found = training_memory(PipelinedTraining(TrainingPipeline(1, 1), [chunk], alone(sharded, 64), Optimizer(1e12)))
        states = found.weights + found.gradients + found.states
        assert float(states[0, 0]) / GIGA == pytest.approx(size, abs=0.05)


@pytest.mark.parametrize(("stages", "chunks", "layers"), [(8, 1, 96), (8, 3, 96), (4, 2, 48)])
def test_published_activations_of_the_first_stage(stages: int, chunks: int, layers: int) -> None:
    """Korthikanti et al. 2023: the first stage keeps as much as all layers of one microbatch, with interleaving a little more."""
    tokens, batch, hidden, heads, ranks = 2048, 1, 12288, 96, 8
    core = attention_core_bytes(tokens, batch, heads, ranks)
    layer = sequence_parallel_layer_bytes(tokens, batch, hidden, ranks) + core
    chunk = [LayerBlock(1.0, 2.0, activation=layer)] * (layers // stages // chunks)
    plan = PipelinedTraining(TrainingPipeline(stages, 8 * stages, chunks), [chunk] * (stages * chunks), alone(), Optimizer(1e12))
    share = interleaved_share(stages, chunks) if chunks > 1 else 1
    assert float(training_memory(plan).activations[0, 0]) == pytest.approx(layers * layer * share)


def test_published_savings_of_activations() -> None:
    """Korthikanti et al. 2023: selective recomputation saves 70 % on GPT-3 175B and 65 % on MT-NLG 530B; sequence parallelism
    divides all by t; full recomputation keeps 2 of 34."""
    for hidden, heads, saved in ((12288, 96, 0.70), (20480, 128, 0.65)):
        core, rest = attention_core_bytes(2048, 1, heads, 8), sequence_parallel_layer_bytes(2048, 1, hidden, 8)
        assert core / (core + rest) == pytest.approx(saved, abs=0.01)
        assert rest * 8 == sequence_parallel_layer_bytes(2048, 1, hidden, 1) == replicated_layer_bytes(2048, 1, hidden, 1)
        assert layer_input_bytes(2048, 1, hidden, 1) * 17 == rest * 8


def test_moments_of_the_peak() -> None:
    """GPipe keeps all, 1F1B what lies ahead; interleaving keeps unequal numbers of its chunks, at different moments."""
    assert [in_flight(TrainingPipeline(4, 9), stage).tolist() for stage in range(4)] == [[[4]], [[3]], [[2]], [[1]]]
    assert in_flight(TrainingPipeline(4, 9, 1, PipelineSchedule.GPIPE), 3).tolist() == [[9]]
    assert {tuple(row) for row in in_flight(TrainingPipeline(2, 8, 2), 0).tolist()} == {(3, 2), (4, 1)}
    assert all(sum(row) == TrainingPipeline(4, 16, 3).in_flight(1) for row in in_flight(TrainingPipeline(4, 16, 3), 1).tolist())


def test_a_misspelt_recipe_is_named() -> None:
    with pytest.raises(BadInput, match=r"optimizer: .* got 'mixed-adm'; did you mean 'mixed-adam'\?"):
        recipe("mixed-adm")


def test_a_stack_of_layers_is_dealt_out() -> None:
    layers = [LayerBlock(1.0, 2.0, parameters=number) for number in range(1, 11)]
    chunks = layers_of_chunks(
        layers, TrainingPipeline(2, 4, 2), [LayerBlock(0.5, 0.5, parameters=100)], [LayerBlock(0.5, 0.5, parameters=200)]
    )
    assert [[block.parameters for block in chunk] for chunk in chunks] == [[100, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 200]]


def test_chunks_are_as_many_as_the_pipeline_has() -> None:
    layers = [LayerBlock(1.0, 2.0)]
    with pytest.raises(BadInput, match=r"2 chunks of at least one block \(2 stages x 1\); got 2 chunks, 1 of them empty"):
        PipelinedTraining(TrainingPipeline(2, 1), [layers, []], alone(), Optimizer(1.0))
    with pytest.raises(BadInput, match="training, back: expected 1 transfers between chunks, or none; got 2"):
        PipelinedTraining(TrainingPipeline(2, 1), [layers, layers], alone(), Optimizer(1.0), [1.0], [1.0, 2.0])
