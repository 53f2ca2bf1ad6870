"""Formulas and recurrence of pipelines against the event simulation of their schedules."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.textbook import bubble_share, even_transfer_time, gpipe_time, round_trip_bound
from tests.reference.training_cases import Drawn, both, drawn, simulate_passes, table_of

from halley.errors import BadInput
from halley.formulas.pipeline import even_pipeline_time
from halley.memory.peak import in_flight
from halley.pipeline.recurrence import pipeline_times
from halley.pipeline.schedule import SWITCH, PipelineSchedule, TrainingPipeline, pass_order
from halley.pipeline.timetable import timetable
from halley.simulate.schedule import (
    Direction,
    PassTable,
    PipelinePass,
    StageOrder,
    gpipe,
    interleaved,
    one_forward_one_backward,
)

ALTERNATE = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 60))])
def test_recurrence_equals_simulation(seed: int) -> None:
    """Any stages, chunks, microbatches, uneven passes, transfers beside work or holding it: time and last gradients."""
    draw = random.Random(seed)
    for _ in range(8):
        case = drawn(draw)
        assert (case.pipeline is None) == (case.table is None)
        if case.pipeline is None:
            continue
        clock = simulate_passes(case)
        times = pipeline_times(case.pipeline, case.forward, case.backward, case.onward, case.back, case.blocking)
        assert times.time[0] == pytest.approx(clock.time, rel=1e-12)
        assert times.last_backward[:, 0] == pytest.approx(np.array(clock.last_backward), rel=1e-12)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 36))])
def test_bounds_and_closed_form_of_uneven_stages(seed: int) -> None:
    draw = random.Random(f"bounds {seed}")
    for _ in range(6):
        case = drawn(draw)
        if case.pipeline is None:
            continue
        time, count = simulate_passes(case).time, case.pipeline.microbatches
        transfers = ([0.0] * len(case.onward),) * 2 if case.blocking else (case.onward, case.back)
        if case.pipeline.schedule is PipelineSchedule.GPIPE and not case.blocking:
            assert gpipe_time(case.forward, case.backward, *transfers, count) == pytest.approx(time, rel=1e-12)
        if case.pipeline.schedule is ALTERNATE and case.pipeline.chunks == 1:
            assert round_trip_bound(case.forward, case.backward, *transfers, count) <= time * (1 + 1e-12)


def even(stages: int, chunks: int, microbatches: int, schedule: PipelineSchedule, times: tuple[float, float, float]) -> float:
    """Simulated time of equal stages."""
    numbers, count = (stages, microbatches, chunks, schedule), stages * chunks
    forward, backward, transfer = times
    passes = [forward] * count, [backward] * count, [transfer] * (count - 1), [transfer] * (count - 1)
    return simulate_passes(Drawn(None, table_of(*numbers), *passes, blocking=False)).time


def test_closed_forms_of_equal_stages() -> None:
    for stages, count in itertools.product(range(1, 9), (1, 2, 3, 7, 8, 16, 19)):
        for schedule in PipelineSchedule:
            time = even(stages, 1, count, schedule, (3.0, 5.0, 0.0))
            assert time == even_pipeline_time(stages, 1, count, 3.0, 5.0)
            work = count * 8.0
            assert time - work == pytest.approx(bubble_share(stages, 1, count) * work)
    for stages, chunks, groups in itertools.product(range(2, 7), (2, 3, 5), (1, 2, 3)):
        time = even(stages, chunks, groups * stages, ALTERNATE, (3.0, 5.0, 0.0))
        assert time == even_pipeline_time(stages, chunks, groups * stages, 3.0, 5.0)


@pytest.mark.parametrize("transfer", [0.5, 1.0, 3.0])
def test_transfers_of_equal_stages(transfer: float) -> None:
    """1F1B comes back for the next microbatch before a round trip with transfers is over: they cost more than 2 (S - 1) p."""
    for stages, count in itertools.product(range(1, 8), range(1, 16)):
        added = even(stages, 1, count, ALTERNATE, (3.0, 5.0, transfer)) - even_pipeline_time(stages, 1, count, 3.0, 5.0)
        assert added == even_transfer_time(stages, count, transfer)
        bound = round_trip_bound([3.0] * stages, [5.0] * stages, *([transfer] * (stages - 1),) * 2, count)
        assert bound == pytest.approx(even_pipeline_time(stages, 1, count, 3.0, 5.0) + added)


def test_published_bubbles() -> None:
    """Narayanan et al., SC 2021, figures 3 and 4: 4 devices, 8 microbatches, backward twice forward; 2 chunks: half of it."""
    one = even(4, 1, 8, ALTERNATE, (2.0, 4.0, 0.0)) - 8 * 6.0
    two = even(4, 2, 8, ALTERNATE, (1.0, 2.0, 0.0)) - 8 * 6.0
    assert (one, two) == (3 * 6.0, 3 * 3.0)


def test_smaller_last_groups_are_refused_where_stages_deadlock() -> None:
    """By formula and by table alike; multiples of the stages always go."""
    refused = 0
    for stages, chunks, count in itertools.product(range(2, 7), range(2, 5), range(1, 16)):
        pipeline, table = both((stages, count, chunks, ALTERNATE))
        assert (pipeline is None) == (table is None)
        assert pipeline is not None or count % stages
        refused += pipeline is None
    assert refused
    with pytest.raises(BadInput, match=r"got 6 \(stages would deadlock\); take 5 or 10, a multiple of the stages") as caught:
        TrainingPipeline(5, 6, 3)
    assert "pipeline, microbatches: expected" in str(caught.value)
    with pytest.raises(BadInput, match="a deadlock: stage 0 waits for the input of the forward pass of microbatch 5"):
        interleaved(5, 3, 6)


@pytest.mark.parametrize(("stages", "chunks", "count"), [(1, 1, 40), (2, 1, 75), (3, 1, 80), (2, 2, 45), (3, 2, 63), (3, 3, 60)])
def test_long_pipelines_equal_simulation(stages: int, chunks: int, count: int) -> None:
    """Microbatches that are left out and added at a steady pace, and plans whose equal stages reach a steady state late."""
    draw, plans, pipeline = np.random.default_rng(stages * count), 6, TrainingPipeline(stages, count, chunks)
    assert timetable(pipeline).repeats > 5
    for unevenness, scale, holding in ((1e-3, 0.0, False), (1.0, 0.5, False), (5.0, 4.0, False), (1.0, 1.0, True)):
        length = pipeline.last + 1
        passes = draw.uniform(3, 3 + unevenness, (2 * length, plans))
        transfers = draw.uniform(0, scale, (2 * length - 2, plans))
        parts = [passes[:length], passes[length:], transfers[: length - 1], transfers[length - 1 :]]
        times = pipeline_times(pipeline, *map(list, parts), holding)
        table = table_of(stages, count, chunks, ALTERNATE)
        for plan in range(plans):
            case = Drawn(pipeline, table, *(part[:, plan].tolist() for part in parts), holding)
            clock = simulate_passes(case)
            assert times.time[plan] == pytest.approx(clock.time, rel=1e-12)
            assert times.last_backward[:, plan] == pytest.approx(np.array(clock.last_backward), rel=1e-12)


LATE = (2, 1, 120), (2, 4, 96), (3, 2, 90), (4, 3, 80), (6, 1, 150)
"""Stages, chunks and microbatches of pipelines that repeat often enough to reach a steady state."""


@pytest.mark.parametrize("numbers", LATE)
def test_plans_that_settle_late_equal_simulation(numbers: tuple[int, int, int]) -> None:
    """First and last stages a little slower or faster than the others: one falls behind by the same time in each group, until
    others wait for it. Few of the groups in which it does are walked through."""
    stages, chunks, count = numbers
    draw, pipeline, plans = np.random.default_rng(stages * count), TrainingPipeline(stages, count, chunks), 12
    length, table = pipeline.last + 1, table_of(stages, count, chunks, ALTERNATE)
    passes = np.repeat(draw.uniform(3, 9, (2, 1, plans)), length, axis=1)
    passes[:, [0, -1]] *= 1 + draw.uniform(-0.1, 0.1, (2, 2, plans)) * 10.0 ** -draw.integers(0, 4, (2, 2, plans))
    transfers = np.repeat(draw.uniform(0, 1, (1, plans)) ** 3, length - 1, axis=0)
    times = pipeline_times(pipeline, *map(list, passes), list(transfers), list(transfers))
    for plan in range(plans):
        sent = transfers[:, plan].tolist()
        case = Drawn(pipeline, table, *passes[:, :, plan].tolist(), sent, sent, blocking=False)
        clock = simulate_passes(case)
        assert times.time[plan] == pytest.approx(clock.time, rel=1e-12)
        assert times.last_backward[:, plan] == pytest.approx(np.array(clock.last_backward), rel=1e-12)


def test_a_timetable_has_every_pass_and_does_not_grow() -> None:
    """The body is found for all shapes, so that a pipeline a thousand times as long has the same sections."""
    for stages, chunks in itertools.product((1, 2, 3, 4, 7, 8, 16), (1, 2, 3, 5, 8)):
        if stages == 1 and chunks > 1:
            continue
        for rest in {0, stages - 1} if chunks > 1 else range(stages):
            found, more = (timetable(TrainingPipeline(stages, groups * stages + rest, chunks)) for groups in (5, 1000))
            sections = found.prologue, found.body, found.epilogue
            each = [len(section.passes) for section in sections]
            assert each == [len(section.passes) for section in (more.prologue, more.body, more.epilogue)]
            for timed, groups in ((found, 5), (more, 1000)):
                assert each[0] + timed.repeats * each[1] + each[2] == 2 * stages * chunks * (groups * stages + rest)


def test_compiled_pipelines_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    draw = np.random.default_rng(7)
    for pipeline in (
        TrainingPipeline(5, 12),
        TrainingPipeline(4, 64, 3),
        TrainingPipeline(2, 500, 2),
        TrainingPipeline(1, 40),
        TrainingPipeline(3, 8, 2),
    ):
        chunks = pipeline.last + 1
        parts = np.split(draw.uniform(1, 1.5, (4 * chunks - 2, 150)), [chunks, 2 * chunks, 3 * chunks - 1])
        for holding in (False, True):
            found = []
            for mode in ("off", "on"):
                monkeypatch.setattr(SWITCH, "mode", mode)
                found.append(pipeline_times(pipeline, *map(list, parts), holding))
            assert (found[0].last_backward == found[1].last_backward).all()
            assert (found[0].stage_ends == found[1].stage_ends).all()


def test_groups_between_the_first_and_the_last_keep_nothing_new() -> None:
    """Activations in flight, counted over all microbatches."""
    for stages, chunks, groups in itertools.product((1, 2, 3, 5), (1, 2, 4), (5, 7)):
        if stages == 1 and chunks > 1:
            continue
        pipeline = TrainingPipeline(stages, groups * stages, chunks)
        forward, passes = np.eye(chunks, dtype=int)[pass_order(pipeline).chunk], groups * stages * chunks
        for stage in range(stages):
            ahead, behind, moments = np.zeros(chunks, int), np.zeros(chunks, int), set()
            for number in range(passes):
                ahead = ahead + forward[number]
                if number >= pipeline.warmup(stage):
                    moments.add(tuple(ahead - behind))
                    behind = behind + forward[number - pipeline.warmup(stage), ::-1]
            assert {tuple(row) for row in in_flight(pipeline, stage).tolist()} == moments


def test_many_plans_at_once_are_the_same_bits() -> None:
    draw = np.random.default_rng(3)
    for pipeline in (
        TrainingPipeline(5, 12),
        TrainingPipeline(4, 8, 3),
        TrainingPipeline(6, 7, 1, PipelineSchedule.GPIPE),
        TrainingPipeline(1, 4),
    ):
        chunks = pipeline.last + 1
        rows = draw.uniform(1, 9, (4 * chunks - 2, 300))
        parts = np.split(rows, [chunks, 2 * chunks, 3 * chunks - 1])
        for holding in (False, True):
            together = pipeline_times(pipeline, *map(list, parts), holding)
            for plan in range(0, 300, 37):
                alone = pipeline_times(pipeline, *(list(part[:, plan]) for part in parts), holding)
                assert alone.time[0] == together.time[plan]
                assert (alone.last_backward[:, 0] == together.last_backward[:, plan]).all()


def test_blocks_of_plans_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = list(np.random.default_rng(5).uniform(1, 9, (4, 50)))
    whole = pipeline_times(TrainingPipeline(4, 9), forward, forward)
    monkeypatch.setattr("halley.pipeline.recurrence.PLAN_BLOCK_BYTES", 10_000)
    assert (pipeline_times(TrainingPipeline(4, 9), forward, forward).stage_ends == whole.stage_ends).all()


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_laws(seed: int) -> None:
    """Longer passes or transfers, and more microbatches, never take less time; stages' names do not matter to GPipe."""
    draw = random.Random(seed)
    case = drawn(draw, 6, 12)
    if case.pipeline is None:
        return
    given_times = case.forward, case.backward, case.onward, case.back
    time = pipeline_times(case.pipeline, *given_times, case.blocking).time[0]
    longer = [[each + draw.choice([0.0, 1.0]) for each in part] for part in given_times]
    assert pipeline_times(case.pipeline, *longer, case.blocking).time[0] >= time
    if case.pipeline.chunks == 1:
        more = TrainingPipeline(case.pipeline.stages, case.pipeline.microbatches + 1, 1, case.pipeline.schedule)
        assert pipeline_times(more, *given_times, case.blocking).time[0] > time


def test_tables_check_themselves() -> None:
    good = one_forward_one_backward(2, 2)
    wrong_order: StageOrder = good.orders[1][::-1]
    with pytest.raises(BadInput, match=r"a deadlock: stage 0 waits .* stage 1 waits"):
        PassTable(2, 1, 2, (good.orders[0], wrong_order))
    with pytest.raises(BadInput, match="schedule, stage 1: expected each of 4 passes once; got 3 passes; backward pass of"):
        PassTable(2, 1, 2, (good.orders[0], good.orders[1][:-1]))
    with pytest.raises(BadInput, match="a pass twice"):
        PassTable(2, 1, 2, (good.orders[0], (*good.orders[1], good.orders[1][0])))
    with pytest.raises(BadInput, match="forward pass of microbatch 0 through chunk 1"):
        PassTable(2, 1, 2, ((PipelinePass(Direction.FORWARD, 1, 0), *good.orders[0][1:]), good.orders[1]))
    assert gpipe(3, 4).orders[0] == tuple(sorted(gpipe(3, 4).orders[0], key=lambda each: each.direction == "backward"))
