"""Published iterations of Megatron-LM by the search for plans, with all that Megatron-LM decided fixed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.reference.test_part_costs import TOKENS, WHOLE, tensor_parallel
from validation.megatron.compare import MEAN, WORST, Point, points, system_of

from halley.io.chip_fits import load_chip_fit
from halley.io.fits import load_libraries
from halley.io.transformers import load_model
from halley.planning.axes import Role
from halley.planning.data_parallel import Sharded
from halley.planning.machine import machine
from halley.planning.passes import under_load
from halley.planning.plan import Fixed, TrainingProblem, TrainingResult
from halley.planning.schedule import Schedule
from halley.planning.training_search import best_training_plan


@cache
def planned(point: Point, as_it_ran: bool) -> TrainingResult:
    """The point's plan; its ops split as Megatron-LM splits them, or as they are fastest."""
    setting, shape, system = point.setting, load_model(point.model), system_of(point.setting)
    fixed = Fixed(
        data=1,
        stages=setting.stages,
        model=setting.tensor,
        microbatch=setting.microbatch,
        schedule=Schedule.ONE_FORWARD_ONE_BACKWARD,
        chunks=setting.chunks,
        recompute=setting.recompute,
        sharded=Sharded.NOTHING,
        offload=False,
        fused=False,
        axes={"gpu": {Role.MODEL: setting.tensor}},
    )
    if as_it_ran:
        splits = {op: {"gpu": split["x"]} for op, split in tensor_parallel(setting.scattered).items()}
        fixed = replace(fixed, splits=splits, boundary=TOKENS if setting.scattered else WHOLE)
    efficiency = under_load(load_chip_fit("a100"), machine(system.chip))
    given = shape, system, setting.batch, shape.sequence, efficiency, load_libraries(system)
    return best_training_plan(TrainingProblem(*given, fixed=fixed), others=0)


def test_published_iterations_are_met() -> None:
    errors = [abs(planned(point, True).cost.time / point.seconds - 1) for point in points()]
    assert max(errors) < WORST
    assert sum(errors) / len(errors) < MEAN


@pytest.mark.parametrize("point", points(), ids=lambda point: point.name)
def test_free_shardings_are_no_slower_than_those_that_ran(point: Point) -> None:
    assert planned(point, False).cost.time <= planned(point, True).cost.time
