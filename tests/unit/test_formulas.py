"""Every formula: documented, balanced in its units, the same on numbers and on arrays to the last bit.

Formulas are found, not listed: a new one without an entry in `CASES` fails. The helpers in `halley.formulas.numbers` are no
equations; they are checked against Python's exact fractions.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import math
import pkgutil
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.reference import textbook

import halley.formulas
from halley.errors import UnitError
from halley.formulas import (
    affine,
    area,
    busiest,
    collectives,
    efficiency,
    energy,
    engines,
    lanes,
    numbers,
    pipeline,
    price,
    recurrence,
    software,
    spatial,
    tiling,
    timing,
    training,
    uncertainty,
)
from halley.formulas.affine import AffineDim
from halley.formulas.tiling import Split
from halley.units import Quantity

Formula = Callable[..., Any]
Unit = dict[str, int]

ONE: Unit = {}
BYTE: Unit = {"B": 1}
SECOND: Unit = {"s": 1}
BANDWIDTH: Unit = {"B": 1, "s": -1}
JOULE: Unit = {"J": 1}
JOULE_PER_BYTE: Unit = {"J": 1, "B": -1}
WATT: Unit = {"J": 1, "s": -1}
AREA: Unit = {"m": 2}
POINT: Unit = {"point": 1}
PER_LANE: Unit = {"cycle": 1}
MONEY: Unit = {"USD": 1}
PER_BANDWIDTH: Unit = {"USD": 1, "B": -1, "s": 1}


@dataclass(frozen=True)
class Case:
    """How to feed a formula: the unit of each argument and of the result; ``call`` packs flat arguments where it wants sequences;
    ``powers`` are the arguments that have to be powers of two."""

    arguments: tuple[Unit, ...]
    result: Unit
    call: Callable[..., Any] | None = None
    powers: tuple[int, ...] = ()


def leaf_of(size: Any) -> Any:
    return size * size


def chain(outer: Any, inner: Any) -> list[Split]:
    return [Split(outer, True), Split(inner, True)]


def first_inside(outer: Any, inner: Any) -> list[Split]:
    return [Split(outer, True), Split(inner, False)]


def weighed_sizes(extent: Any, outer: Any, inner: Any) -> Any:
    """Sizes and how many, as one number that tells lists apart; entries of no size or no count add nothing."""
    found: Any = 0
    for size, count in tiling.sizes(extent, chain(outer, inner)):
        found = found + size * size * count
    return found


MESSAGE = (ONE, BYTE, SECOND, BANDWIDTH)
SPREAD = Case((ONE, BYTE), BYTE)
UNEVEN = (*(SECOND,) * 5, ONE)

CASES: dict[Formula, Case] = {
    timing.busy_time: Case((BYTE, BANDWIDTH), SECOND),
    timing.transfer_time: Case((SECOND, SECOND, SECOND), SECOND),
    timing.phase_time: Case(
        (ONE, SECOND, SECOND, SECOND, SECOND, SECOND), SECOND, lambda n, u, v, w, a, b: timing.phase_time(n, u, v, w, [a, b])
    ),
    timing.least_phase_time: Case(
        (ONE, SECOND, SECOND, SECOND, SECOND, SECOND),
        SECOND,
        lambda n, u, v, w, a, b: timing.least_phase_time(n, u, v, w, [a, b]),
    ),
    timing.buffered_time: Case((ONE, SECOND, SECOND, SECOND), SECOND),
    timing.port_phase_time: Case((ONE, SECOND, SECOND), SECOND),
    timing.in_flight_time: Case((SECOND, ONE), SECOND),
    timing.ragged_time: Case((ONE, ONE, SECOND, SECOND), SECOND),
    timing.revisit_time: Case((ONE, ONE, SECOND), SECOND),
    timing.waiting_revisits: Case((ONE, ONE), ONE),
    timing.visits_time: Case((ONE, ONE, SECOND, SECOND), SECOND),
    timing.stall_time: Case((SECOND, SECOND, ONE), SECOND),
    timing.pipeline_time: Case((SECOND, SECOND, SECOND, ONE), SECOND, lambda a, b, c, n: timing.pipeline_time([a, b, c], n)),
    timing.contended_time: Case((SECOND, SECOND, SECOND), SECOND, lambda a, b, e: timing.contended_time([a, b], e)),
    timing.delayed_time: Case((SECOND, {"s": 2}), SECOND),
    timing.share_of_rounds: Case((ONE, ONE), ONE),
    timing.waiting_time: Case((SECOND, SECOND, ONE), SECOND),
    timing.longest: Case((SECOND, SECOND, SECOND), SECOND, lambda *t: timing.longest(t)),
    timing.total: Case((JOULE, JOULE, JOULE), JOULE, lambda *t: timing.total(t)),
    energy.action_energy: Case((BYTE, JOULE_PER_BYTE), JOULE),
    energy.static_energy: Case((WATT, SECOND), JOULE),
    energy.sustained_time: Case((SECOND, JOULE, WATT), SECOND),
    energy.engine_power: Case((ONE, ONE, {"s": -1}, JOULE), WATT),
    area.memory_area: Case((ONE, ONE, ONE, AREA, ONE), AREA),
    area.logic_area: Case((ONE, AREA, ONE, ONE, ONE), AREA),
    area.interface_area: Case((BANDWIDTH, {"m": 2, "s": 1, "B": -1}), AREA),
    price.silicon_power: Case((ONE,), ONE),
    price.bandwidth_price: Case((BANDWIDTH, PER_BANDWIDTH), MONEY),
    price.interconnect_price: Case((ONE, ONE, BANDWIDTH, PER_BANDWIDTH, PER_BANDWIDTH), MONEY),
    price.busy_power: Case((BANDWIDTH, JOULE_PER_BYTE), WATT),
    engines.systolic_cycles: Case((ONE,) * 6, ONE),
    engines.vector_cycles: Case((ONE, PER_LANE), PER_LANE),
    engines.pipeline_latency: Case((ONE, SECOND), SECOND),
    tiling.over_tiles: Case(
        (POINT, POINT, POINT), {"point": 2}, lambda e, t, u: tiling.over_tiles(e, first_inside(t, u), leaf_of)
    ),
    tiling.visits: Case((POINT, POINT, POINT), ONE, lambda e, t, u: tiling.visits(e, chain(t, u))),
    tiling.covered: Case((POINT, POINT, POINT), POINT, lambda e, t, u: tiling.covered(e, first_inside(t, u))),
    tiling.folds: Case((POINT, POINT, POINT, POINT), ONE, lambda e, t, u, w: tiling.folds(e, first_inside(t, u), w)),
    tiling.granular_folds: Case(
        (*(POINT,) * 4, ONE), ONE, lambda e, t, u, w, g: tiling.granular_folds(e, first_inside(t, u), w, 1, g)
    ),
    tiling.first_tile: Case((POINT, POINT, POINT), POINT, lambda e, t, u: tiling.first_tile(e, chain(t, u))),
    tiling.sizes: Case((POINT, POINT, POINT), {"point": 2}, weighed_sizes),
    # its "e - 1" is the last point's index: points are counted here, so they have no dimension
    tiling.reach: Case((ONE, ONE, ONE), ONE, lambda e, t, u: tiling.reach(e, first_inside(t, u))),
    affine.steps: Case((ONE, ONE, ONE), ONE, lambda e, t, u: affine.steps(e, first_inside(t, u))),
    affine.unclipped_points: Case(
        (ONE, ONE, ONE),
        ONE,
        lambda e, t, u: affine.unclipped_points([AffineDim(2, e, first_inside(t, u)), AffineDim(-1, e, chain(u, t))]),
    ),
    affine.buffered_points: Case(
        (ONE, ONE, ONE), ONE, lambda e, t, u: affine.buffered_points([AffineDim(1, 9, chain(t, u)), AffineDim(2, 4, [])], 7)
    ),
    affine.affine_points: Case(
        (ONE, ONE, ONE),
        ONE,
        lambda e, t, u: affine.affine_points([AffineDim(2, 9, first_inside(t, u)), AffineDim(1, 4, chain(u, t))], -3, 13),
    ),
    collectives.collective_time: Case((ONE, SECOND, ONE, BYTE, BANDWIDTH), SECOND),
    collectives.step_overhead: Case((ONE, SECOND, SECOND, ONE, SECOND), SECOND),
    collectives.streamed_time: Case((ONE, SECOND, SECOND, SECOND), SECOND),
    textbook.ring_all_gather_time: Case(MESSAGE, SECOND),
    textbook.ring_all_reduce_time: Case(MESSAGE, SECOND),
    textbook.bidirectional_ring_all_gather_time: Case(MESSAGE, SECOND),
    textbook.halved_ring_all_gather_time: Case(MESSAGE, SECOND),
    textbook.direct_all_gather_time: Case(MESSAGE, SECOND),
    textbook.direct_all_reduce_time: Case(MESSAGE, SECOND),
    textbook.direct_all_to_all_line_time: Case(MESSAGE, SECOND),
    textbook.chain_broadcast_time: Case(MESSAGE, SECOND),
    textbook.pipelined_broadcast_time: Case((ONE, ONE, BYTE, SECOND, BANDWIDTH), SECOND),
    textbook.doubling_all_gather_time: Case(MESSAGE, SECOND, powers=(0,)),
    textbook.doubling_all_reduce_time: Case(MESSAGE, SECOND, powers=(0,)),
    textbook.halving_all_reduce_time: Case(MESSAGE, SECOND, powers=(0,)),
    collectives.gather_bound: Case((ONE, BYTE, BANDWIDTH), SECOND),
    textbook.broadcast_bound: Case((BYTE, BANDWIDTH), SECOND),
    collectives.all_reduce_bound: Case((ONE, BYTE, BANDWIDTH), SECOND),
    collectives.cut_bound: Case((BYTE, BANDWIDTH), SECOND),
    textbook.latency_bound: Case((ONE, SECOND), SECOND),
    collectives.dimension_time: Case((ONE, ONE, BYTE, BANDWIDTH), SECOND),
    busiest.chunk_bytes: SPREAD,
    busiest.ring_bytes: SPREAD,
    busiest.both_ways_bytes: SPREAD,
    busiest.halved_bytes: SPREAD,
    busiest.across_line_bytes: SPREAD,
    busiest.all_but_first_bytes: SPREAD,
    busiest.second_chunk_bytes: SPREAD,
    busiest.most_of_others_bytes: SPREAD,
    busiest.doubled_bytes: SPREAD,
    busiest.folded_bytes: SPREAD,
    busiest.folded_scatter_bytes: SPREAD,
    busiest.chain_bytes: Case((ONE, ONE, BYTE), BYTE),
    busiest.switch_all_reduce_bytes: Case((ONE, ONE, BYTE), BYTE),
    busiest.forwarded_bytes: SPREAD,
    busiest.doublings: Case((ONE,), ONE),
    busiest.squared_chunk_count: Case((ONE, ONE, BYTE, SECOND, BANDWIDTH), ONE),
    software.sent_bytes: Case((ONE, ONE, BYTE), BYTE),
    software.protocol_time: Case((SECOND, ONE, SECOND, SECOND, SECOND), SECOND),
    software.overlaid_time: Case((SECOND, SECOND), SECOND),
    software.dispatch_time: Case((ONE, SECOND, ONE, SECOND, SECOND), SECOND),
    software.queued_time: Case((SECOND, SECOND), SECOND),
    uncertainty.deviation: Case((ONE,), ONE),
    spatial.peak_rate: Case((ONE, {"s": -1}), {"s": -1}),
    spatial.matrix_tile_cycles: Case((ONE,) * 5, ONE),
    spatial.vector_tile_cycles: Case((ONE,) * 3, ONE),
    spatial.streamed_time: Case((ONE, ONE, {"s": -1}), SECOND),
    spatial.two_stage_time: Case((SECOND, SECOND, ONE), SECOND),
    spatial.ramp_time: Case((SECOND, ONE, ONE), SECOND),
    spatial.buffer_bytes: Case((BYTE, ONE), BYTE),
    spatial.resident_samples: Case((BYTE, ONE, ONE, BYTE, BYTE), ONE),
    spatial.amortised_time: Case((SECOND, SECOND, ONE), SECOND),
    spatial.stage_time: Case((SECOND, ONE, ONE), SECOND),
    spatial.utilisation: Case((ONE, SECOND, {"s": -1}), ONE),
    pipeline.warmup_passes: Case((ONE,) * 3, ONE),
    pipeline.passes_in_flight: Case((ONE,) * 3, ONE),
    pipeline.even_pipeline_time: Case((ONE, ONE, ONE, SECOND, SECOND), SECOND),
    textbook.bubble_share: Case((ONE,) * 3, ONE),
    textbook.even_transfer_time: Case((ONE, ONE, SECOND), SECOND),
    pipeline.flow_shop_time: Case((SECOND, SECOND, ONE), SECOND),
    textbook.gpipe_time: Case(UNEVEN, SECOND, lambda f, g, b, p, q, m: textbook.gpipe_time([f, g], [b, f], [p], [q], m)),
    textbook.round_trip_bound: Case(
        UNEVEN, SECOND, lambda f, g, b, p, q, m: textbook.round_trip_bound([f, g], [b, f], [p], [q], m)
    ),
    recurrence.sequence_state: Case((ONE, ONE, ONE, BYTE, ONE, ONE, BYTE), BYTE),
    training.drained_time: Case((SECOND,) * 4 + (ONE,), SECOND),
    textbook.exposed_reduction_time: Case((ONE, SECOND, SECOND), SECOND),
    training.contended_time: Case((SECOND, SECOND, ONE), SECOND),
    training.prefetched_time: Case((SECOND,) * 4, SECOND, lambda g, h, w, x: training.prefetched_time([g, h], [w, x])),
    training.sharded_backward_time: Case(
        (SECOND,) * 6, SECOND, lambda g, h, w, x, c, d: training.sharded_backward_time([g, h], [w, x], [c, d])
    ),
    training.sharded_bytes: Case((ONE, BYTE, ONE), BYTE),
    training.optimizer_traffic: Case((ONE, BYTE, BYTE, BYTE), BYTE),
    training.offloaded_step_time: Case((BYTE, BANDWIDTH, BYTE, BANDWIDTH), SECOND),
    textbook.attention_core_bytes: Case((ONE,) * 4, ONE),
    textbook.replicated_layer_bytes: Case((ONE,) * 4, ONE),
    textbook.sequence_parallel_layer_bytes: Case((ONE,) * 4, ONE),
    textbook.layer_input_bytes: Case((ONE,) * 4, ONE),
    textbook.interleaved_share: Case((ONE,) * 2, ONE),
    collectives.lower_bound: Case((SECOND, SECOND, SECOND), SECOND),
    efficiency.waves_time: Case((ONE, ONE, SECOND), SECOND),
    efficiency.gathered_bandwidth: Case((ONE, BANDWIDTH, BANDWIDTH), BANDWIDTH),
    efficiency.wave_bytes: Case((ONE, ONE, ONE, ONE, BYTE, BYTE), BYTE),
    efficiency.refetched_share: Case((BYTE, BYTE), ONE),
    efficiency.refetched_bytes: Case((BYTE, BYTE, ONE), BYTE),
    efficiency.partial_bytes: Case((ONE, BYTE), BYTE),
    efficiency.interleaved_time: Case((SECOND, SECOND, ONE), SECOND),
    efficiency.causal_keys: Case((ONE, ONE, ONE), ONE),
    efficiency.host_time: Case((SECOND, SECOND, SECOND), SECOND),
    lanes.lane_bandwidth: Case((BANDWIDTH, ONE), BANDWIDTH),
    lanes.lane_latency: Case((SECOND, ONE), SECOND),
    lanes.around_ring_bytes: SPREAD,
    lanes.slot_time: Case(
        (SECOND,) * 6, SECOND, lambda a, b, c, d, e, f: lanes.slot_time([a, b], [[c], [d]], [[e], [f]], [[a], [c]], [[b], [e]])
    ),
    lanes.phased_time: Case(
        (SECOND,) * 6,
        SECOND,
        lambda a, b, c, d, e, f: lanes.phased_time([a, b], [[c], [d]], [[e], [f]], [[a], [c]], [[b], [e]], 3),
    ),
}


def found() -> list[Formula]:
    """Every public function that a module of halley.formulas defines."""
    modules = [importlib.import_module(f"halley.formulas.{item.name}") for item in pkgutil.iter_modules(halley.formulas.__path__)]
    modules.append(textbook)
    return [
        member
        for module in modules
        for name, member in inspect.getmembers(module, inspect.isfunction)
        if member.__module__ == module.__name__ and not name.startswith("_")
    ]


def name_of(formula: Formula) -> str:
    return f"{formula.__module__.rpartition('.')[2]}.{formula.__name__}"


FORMULAS = [formula for formula in found() if formula.__module__ != numbers.__name__]
each_formula = pytest.mark.parametrize("formula", FORMULAS, ids=name_of)


def call_of(formula: Formula) -> Callable[..., Any]:
    return CASES[formula].call or formula


def test_every_formula_has_a_case() -> None:
    assert {name_of(formula) for formula in FORMULAS} == {name_of(formula) for formula in CASES}


# --- documented -------------------------------------------------------------------------------------------------------


@each_formula
def test_docstring(formula: Formula) -> None:
    text = inspect.getdoc(formula) or ""
    assert ".. math::" in text, "an equation"
    assert re.search(r"Symbols: .*\[[^\]]+\]", text, re.DOTALL), "symbols with their units in brackets"
    assert re.search(r"Source:\s", text), "where the equation comes from"


@each_formula
def test_doctest_has_arguments_that_differ(formula: Formula) -> None:
    """Swapped arguments change the answer, so an example with equal ones would not notice."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(formula) or "")
    assert examples, "an example"
    assert any(example.want.strip() for example in examples)
    for example in examples:
        for call in ast.walk(ast.parse(example.source)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == formula.__name__:
                given = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and not isinstance(n.value, bool)]
                assert len(set(given)) == len(given), example.source


# --- balanced ---------------------------------------------------------------------------------------------------------


def quantities(case: Case) -> list[Any]:
    """Whole numbers that differ; without a dimension they stay plain numbers."""
    values = [
        2 ** (index + 3) if index in case.powers else (12, 7, 5, 3, 11, 2, 13)[index] for index in range(len(case.arguments))
    ]
    return [Quantity.of(value, **unit) if unit else value for value, unit in zip(values, case.arguments, strict=True)]


def unit_of(value: Any) -> Unit:
    return dict(value.exponents) if isinstance(value, Quantity) else {}


@each_formula
def test_units_balance(formula: Formula) -> None:
    case = CASES[formula]
    assert unit_of(call_of(formula)(*quantities(case))) == case.result


@each_formula
def test_a_wrong_unit_shows(formula: Formula) -> None:
    """Give one argument after the other one dimension too many: the formula raises, or its result has another dimension."""
    case = CASES[formula]
    for position, unit in enumerate(case.arguments):
        if not unit:
            continue
        given = quantities(case)
        given[position] = Quantity.of(given[position].value, **unit, kelvin=1)
        try:
            result = call_of(formula)(*given)
        except UnitError:
            continue
        assert unit_of(result) != case.result, f"argument {position + 1} could have any unit"


def test_sums_of_unequal_dimensions_raise() -> None:
    time, size = Quantity.of(3, s=1), Quantity.of(5, B=1)
    for attempt in (
        lambda: timing.transfer_time(time, size),
        lambda: timing.phase_time(2, time, time, size, [time]),
        lambda: timing.total([time, size]),
        lambda: collectives.collective_time(2, size, 3, size, Quantity.of(7, B=1, s=-1)),
        lambda: tiling.covered(Quantity.of(13, point=1), [Split(size, True), Split(size, False)]),
    ):
        with pytest.raises(UnitError):
            attempt()


# --- arrays -----------------------------------------------------------------------------------------------------------


@each_formula
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
def test_batch_equals_scalar_bit_for_bit(formula: Formula, whole: bool) -> None:
    """One call with arrays gives what a call per entry gives; whole numbers are Python integers there."""
    case = CASES[formula]
    draw = random.Random(f"{formula.__name__} {whole}")
    rows: list[list[Any]] = []
    for _ in range(200):
        row: list[Any] = []
        for position, unit in enumerate(case.arguments):
            if position in case.powers:
                row.append(2 ** draw.randint(1, 10))
            elif whole or unit in (ONE, POINT):
                row.append(draw.randint(2, 10 ** draw.randint(1, 6)))
            else:
                row.append(draw.uniform(1e-3, 1e3))
        rows.append(row)
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    batch = call_of(formula)(*columns)
    assert isinstance(batch, np.ndarray)
    scalars = [call_of(formula)(*row) for row in rows]
    assert [float(value).hex() for value in scalars] == [float(value).hex() for value in batch]


# --- right, where counting can tell -----------------------------------------------------------------------------------


def tiles(start: int, stop: int, splits: Sequence[Split]) -> list[tuple[int, int]]:
    """The innermost tiles that the splits select, as ranges: by walking, as a loop nest does."""
    if not splits:
        return [(start, stop)]
    (tile, summed, place), inner = splits[0], splits[1:]
    starts = range(start, stop, tile) if summed else [start + place * tile]
    starts = [first for first in starts if first < stop]
    return [found for first in starts for found in tiles(first, min(first + tile, stop), inner)]


@pytest.mark.parametrize("seed", range(60))
def test_sums_over_tiles_by_enumeration(seed: int) -> None:
    draw = random.Random(seed)
    extent, width = draw.randint(1, 40), draw.randint(1, 6)
    splits = [Split(draw.randint(1, 14), draw.random() < 0.7) for _ in range(draw.randint(0, 3))]
    walked = [stop - start for start, stop in tiles(0, extent, splits)]
    assert tiling.visits(extent, splits) == len(walked)
    assert tiling.covered(extent, splits) == sum(walked)
    assert affine.steps(extent, splits) == sum(size - 1 for size in walked)
    assert tiling.folds(extent, splits, width) == sum(math.ceil(Fraction(size, width)) for size in walked)
    assert tiling.first_tile(extent, splits) == walked[0] == max(walked)
    assert tiling.reach(extent, splits) == max(stop for _, stop in tiles(0, extent, splits))
    assert tiling.over_tiles(extent, splits, leaf_of) == sum(size**2 for size in walked)
    assert sorted(size for size, count in tiling.sizes(extent, splits) for _ in range(count)) == sorted(walked)


@pytest.mark.parametrize("seed", range(60))
def test_sums_of_later_members_by_enumeration(seed: int) -> None:
    draw = random.Random(seed)
    extent, width = draw.randint(1, 40), draw.randint(1, 6)
    splits = [Split(draw.randint(1, 14), draw.random() < 0.5, draw.randint(0, 3)) for _ in range(draw.randint(1, 3))]
    walked = [stop - start for start, stop in tiles(0, extent, splits)]
    assert tiling.visits(extent, splits) == len(walked)
    assert tiling.covered(extent, splits) == sum(walked)
    assert tiling.folds(extent, splits, width) == sum(math.ceil(Fraction(size, width)) for size in walked)


@pytest.mark.parametrize("seed", range(300))
def test_affine_points_by_walking(seed: int) -> None:
    """Intervals of every combination of tiles, with strides, dilations, reversed dims and padding."""
    draw = random.Random(seed)
    dims = []
    for _ in range(draw.choice([1, 2, 2, 3])):
        cuts = [Split(draw.randint(1, 8), draw.random() < 0.7) for _ in range(draw.randint(0, 3))]
        splits = [cut if cut.summed else cut._replace(place=draw.choice([0, 0, 1])) for cut in cuts]
        dims.append(AffineDim(draw.choice([1, 1, 2, 3, -1, -2]), draw.randint(1, 7), splits))
    constant, extent = draw.randint(-6, 6), draw.randint(1, 12)
    unclipped = clipped = space = 0
    for chosen in product(*(tiles(0, dim.extent, dim.splits) for dim in dims)):
        ends = [(dim.coefficient * start, dim.coefficient * (stop - 1)) for dim, (start, stop) in zip(dims, chosen, strict=True)]
        first, last = constant + sum(map(min, ends)), constant + sum(map(max, ends))
        unclipped += last + 1 - first
        clipped += sum(0 <= position < extent for position in range(first, last + 1))
        space += min(last + 1 - first, extent)
    assert affine.unclipped_points(dims) == unclipped
    assert affine.affine_points(dims, constant, extent) == clipped
    assert affine.buffered_points(dims, extent) == space


def test_pipeline_by_enumeration() -> None:
    """Tile i enters stage s when the stage is free and the stage before is through with the tile."""
    for stages, count in (((4, 2, 3), 5), ((1, 7), 3), ((2, 2, 2, 9), 4)):
        free = [0] * len(stages)
        for _ in range(count):
            ready = 0
            for index, time in enumerate(stages):
                ready = free[index] = max(ready, free[index]) + time
        assert timing.pipeline_time([time * count for time in stages], count) == free[-1]


@pytest.mark.parametrize(("rows", "columns", "streamed"), [(2, 2, 3), (4, 3, 5), (1, 1, 1), (3, 5, 2)])
def test_systolic_array_by_enumeration(rows: int, columns: int, streamed: int) -> None:
    """One fold, clock by clock: input i reaches PE (r, c) at cycle i + r + c; the last leaves the far corner."""
    last = max(i + r + c for i in range(streamed) for r in range(rows) for c in range(columns))
    # the cycles are numbered from 0
    assert engines.systolic_cycles(1, streamed, 1, rows, columns, 0) == last + 1


def test_whole_number_helpers() -> None:
    draw = random.Random(7)
    for _ in range(2000):
        b = draw.randint(1, 10 ** draw.randint(1, 7))
        a = b * draw.randint(0, 10 ** draw.randint(0, 8)) + draw.choice([0, 0, 1, b - 1])
        exact = Fraction(a, b)
        assert numbers.floor_div(a, b) == math.floor(exact) == int(numbers.floor_div(np.array([float(a)]), float(b))[0])
        assert numbers.ceil_div(a, b) == math.ceil(exact) == int(numbers.ceil_div(np.array([float(a)]), float(b))[0])
        assert numbers.minimum(a, b) == min(a, b) == numbers.minimum(np.array([a]), b)[0]
        assert numbers.maximum(a, b) == max(a, b) == numbers.maximum(np.array([a]), b)[0]
        assert numbers.positive(a) == (a > 0) == numbers.positive(np.array([a]))[0]
