"""Programs run compiled, and over whole grids: the same numbers as instruction by instruction on everything at once."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from tests.certificates.test_program import group

from halley.cost.programs import grid as grids
from halley.cost.programs.grid import SWITCH as OWN
from halley.cost.programs.grid import Grid, GridMinimum, cheapest_order
from halley.cost.programs.instructions import Array, Instruction, Place, allocated, apply
from halley.cost.programs.program import Factor
from halley.errors import BadInput
from halley.formulas.terms import Operation, TermFactory
from halley.io.chips.load import load_chip
from halley.ir.text import to_text
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.optim.switch import LOAD_AFTER_SECONDS, MODE_VARIABLE, CompiledLoops
from halley.workloads import attention, gated_mlp, gemm, gemm_layernorm, gemm_softmax

ARITHMETIC = [operation for operation in Operation if operation not in (Operation.CONSTANT, Operation.OPEN)]


@pytest.fixture(params=["off", "on"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test of numbers runs with NumPy and compiled."""
    if request.param == "on":
        pytest.importorskip("numba", reason="the accelerator is not installed: pip install 'halley[fast]'")
    monkeypatch.setattr(OWN, "mode", request.param)
    with np.errstate(all="ignore"):
        yield request.param


def drawn(draw: random.Random, dims: str) -> tuple[list[Instruction], list[Place], list[str], dict[str, int]]:
    """Code of every operation on factors, earlier values and constants; outputs; each factor's dim; choices of each dim."""
    kinds = [draw.choice(dims) for _ in range(draw.randint(1, 6))]
    code: list[Instruction] = []

    def place() -> Place:
        return draw.randrange(len(code)) if draw.random() < 0.8 else draw.choice([0.0, 1.0, 2.5, -3.0, 7.0])

    for factor in range(len(kinds)):
        code.append(Instruction(Operation.OPEN, len(code), factor, 0.0))
    for _ in range(draw.randint(0, 40)):
        code.append(Instruction(draw.choice(ARITHMETIC), len(code), place(), place()))
    outputs = [place() for _ in range(4)]
    counts = {dim: draw.choice([1, 2, 7, 40] if dim != dims[-1] else [1, 3, 700, 1100]) for dim in dims}
    return code, outputs, kinds, counts


def plainly(code: list[Instruction], outputs: list[Place], loaded: list[Array]) -> list[Array | float]:
    """Each instruction on everything at once, every value kept."""
    values: list[Array] = []
    for step in code:
        if step.operation is Operation.OPEN:
            values.append(loaded[int(step.a)])
        else:
            values.append(apply(step.operation, *(values[x] if isinstance(x, int) else np.float64(x) for x in (step.a, step.b))))
    return [values[place] if isinstance(place, int) else place for place in outputs]


@pytest.mark.parametrize("seed", range(60))
def test_a_grid_is_every_combination(seed: int, mode: str) -> None:
    draw = random.Random(seed)
    code, outputs, kinds, counts = drawn(draw, draw.choice(["a", "ab", "abc"]))
    source = np.random.default_rng(seed)
    columns = [source.integers(1, 30, counts[kind]) / draw.choice([1, 7]) for kind in kinds]
    grid = Grid(code, outputs, kinds, columns, counts)
    at = dict(zip(counts, np.meshgrid(*(np.arange(count) for count in counts.values()), indexing="ij"), strict=True))
    expected = plainly(code, outputs, [column[at[kind]].ravel() for column, kind in zip(columns, kinds, strict=True)])
    found = grid.costs()
    for row, value in zip(found, expected, strict=True):
        assert np.array_equal(row, np.broadcast_to(value, row.shape), equal_nan=True)

    capacities = [draw.choice([math.inf, float(row[0]), 5.0, -1e9]) for row in found[2:]]
    fits = ~np.logical_or.reduce([row > capacity for row, capacity in zip(found[2:], capacities, strict=True)])
    for least, row in zip(grid.least(capacities), found, strict=False):
        rest = np.where(fits & (row < np.inf), row, np.inf)
        best = int(rest.argmin())
        assert least == ((rest[best], best) if rest[best] < np.inf else GridMinimum(math.inf, -1))


@pytest.mark.parametrize("seed", range(30))
def test_rows_compiled_are_rows_plainly(seed: int) -> None:
    pytest.importorskip("numba", reason="the accelerator is not installed: pip install 'halley[fast]'")
    from halley.cost.programs.accelerator import CompiledProgram

    draw = random.Random(seed)
    code, outputs, kinds, counts = drawn(draw, "abc")
    source = np.random.default_rng(seed)
    tables = [source.integers(1, 30, counts[kind]).astype(np.float64) for kind in kinds]
    terms = TermFactory()
    factors = [Factor(kind, terms.open(f"{kind}{place}", kind), False) for place, kind in enumerate(kinds)]
    rows = draw.choice([1, 5, 511, 512, 1500])
    nodes = {dim: source.integers(-1, count + 1, rows) for dim, count in counts.items()}  # beyond a table: the nearest in it
    with np.errstate(all="ignore"):
        loaded = [table.take(nodes[kind], mode="clip") for table, kind in zip(tables, kinds, strict=True)]
        expected = plainly(code, outputs, loaded)
    found = CompiledProgram(allocated(code, outputs, [0] * len(code)), factors, tables)(nodes, rows)
    for row, value in zip(found, expected, strict=True):
        assert np.array_equal(row, np.broadcast_to(value, row.shape), equal_nan=True)


@pytest.mark.parametrize("seed", range(8))
def test_real_programs(seed: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and grids of compiled skeletons, sets of chains among them: the very numbers of NumPy's rows."""
    draw = random.Random(seed)
    works = [gemm(300, 96, 130, b=3), gemm_softmax(120, 200, 64), gated_mlp(60, 128, 160), attention(1, 6, 2, 80, 300, 64)]
    work = draw.choice(works)
    search = group(work, draw.choice(["edge", "cloud"]), draw)
    for rough in (True, False) * 3:
        frame = draw.choice(search.frames)
        index = draw.randrange(len(frame.stages))
        skeleton = draw.choice(frame.stages[index].skeletons)
        shape = search.costs.shape(frame, index, skeleton)
        costs = search.costs.estimate(frame, index, skeleton, search.costs.symbols(frame, skeleton), rough=rough)
        limited = [used for name, used in costs.footprint.items() if name in search.costs.limited]
        objectives = [getattr(costs, name) for name in search.objectives]
        # exact costs are compiled as they are, as in a search: their normal forms are much longer
        compiled = partial(search.costs.trees.program, where=skeleton.naming) if rough else search.costs.trees.single
        made = compiled([*objectives, *limited], shape.trees)
        program, tables = made.program, made.tables
        source = np.random.default_rng(seed)
        counts = {dim: draw.randint(1, 12) for dim in shape.trees}
        order = program.order(counts)
        choices = {dim: source.integers(0, len(shape.trees[dim].start), counts[dim]) for dim in order}
        mesh = np.meshgrid(*choices.values(), indexing="ij") if order else []
        rows = math.prod(counts.values())
        nodes = {dim: nodes.ravel() for dim, nodes in zip(order, mesh, strict=True)}
        found = program(tables, nodes, rows)
        grid = program.grid(tables, choices)
        assert grid.size == rows
        assert np.array_equal(grid.costs(), found)
        monkeypatch.setattr(OWN, "mode", "off")
        assert np.array_equal(program(tables, nodes, rows), found)
        monkeypatch.setattr(OWN, "mode", mode)
        bounds = found[: len(objectives)].T.copy()
        bounds[(shape.capacities < found[len(objectives) :].T).any(axis=1)] = np.inf
        for best, column in zip(grid.least(shape.capacities), bounds.T, strict=True):
            assert best.value == column.min()
            assert best.combination == (int(column.argmin()) if np.isfinite(column.min()) else -1)


def test_among_equals_the_first_counts(mode: str) -> None:
    """The accelerator meets (1, 0) before (0, 600), as it takes a piece of the last dim for all others."""
    values = np.ones((2, 1100))
    values[0, 600] = values[1, 0] = values[1, 700] = 0.5
    code = [
        Instruction(Operation.OPEN, 0, 0, 0.0),
        Instruction(Operation.OPEN, 1, 1, 0.0),
        Instruction(Operation.OPEN, 2, 2, 0.0),
    ]
    code += [
        Instruction(Operation.MULTIPLY, 3, 0, 1),
        Instruction(Operation.SUBTRACT, 4, 1.0, 0),
        Instruction(Operation.MULTIPLY, 5, 4, 2),
    ]
    code += [Instruction(Operation.ADD, 6, 3, 5)]  # row 0 where a is 1, row 1 where a is 0
    grid = Grid(code, [6], ["a", "c", "c"], [np.array([1.0, 0.0]), values[0], values[1]], {"a": 2, "c": 1100})
    assert grid.costs().tolist() == [values.ravel().tolist()]
    assert grid.least([]) == [(0.5, 600)]


def test_what_fewer_dims_change_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 x 40 x 9000 combinations: a product of the first two dims once per pair of them."""
    monkeypatch.setattr(OWN, "mode", "off")
    kinds = ["a", "b", "c"]
    code = [Instruction(Operation.OPEN, at, at, 0.0) for at in range(3)]
    code += [
        Instruction(Operation.MULTIPLY, 3, 0, 1),
        Instruction(Operation.ADD, 4, 3, 2),
        Instruction(Operation.CEIL_DIVIDE, 5, 2, 3.0),
    ]
    counts = {"a": 50, "b": 40, "c": 9000}
    columns = [np.arange(1.0, 1 + counts[kind]) for kind in kinds]
    done: dict[Operation, int] = dict.fromkeys(Operation, 0)

    def counting(operation: Operation, a: Array, b: Array) -> Array:
        result: Array = np.asarray(apply(operation, a, b))
        done[operation] += result.size
        return result

    monkeypatch.setattr(grids, "apply", counting)
    (least,) = Grid(code, [4, 5], kinds, columns, counts).least([1e9])
    assert least == (2.0, 0)
    assert done[Operation.MULTIPLY] <= 2 * 50 * 40  # a box is a part of the last dim here: once for each of its two parts
    assert done[Operation.ADD] == 50 * 40 * 9000


def test_the_order_of_least_work() -> None:
    """Three steps on a and b, one on all: c walks between a and b, so that the three are not done again for each choice of c."""
    code = [Instruction(Operation.OPEN, at, at, 0.0) for at in range(3)]
    code += [Instruction(Operation.MULTIPLY, 3, 0, 1), Instruction(Operation.ADD, 4, 3, 0)]
    code += [Instruction(Operation.DIVIDE, 5, 4, 1), Instruction(Operation.ADD, 6, 5, 2)]
    counts = {"a": 100, "b": 100, "c": 100}
    assert cheapest_order(code, ["a", "b", "c"], counts)[1] == "c"
    assert cheapest_order(code, ["a", "b", "c"], {"a": 2, "b": 2, "c": 1000})[-1] == "c"
    assert set(cheapest_order(code, ["a", "b", "c"], {**counts, **dict.fromkeys("defgh", 2)})) == set("abcdefgh")


def test_a_grid_needs_choices_for_every_dim() -> None:
    search = group(gemm(30, 20, 10), "edge", random.Random(0))
    shape = search.costs.shape(search.frames[0], 0, search.frames[0].stages[0].skeletons[0])
    nodes = {dim: np.zeros(2, dtype=np.int64) for dim in shape.trees}
    for wrong in (dict(list(nodes.items())[1:]), {**nodes, "m": np.empty(0, dtype=np.int64)}):
        with pytest.raises(ValueError, match="expected choices for every dim"):
            shape.least.program.grid(shape.least.tables, wrong)


def test_a_grid_takes_a_value_per_choice() -> None:
    """Compiled loops do not look whether a column ends."""
    with pytest.raises(ValueError, match="expected 3 values of a factor of a; got 2"):
        Grid([Instruction(Operation.OPEN, 0, 0, 0.0)], [0], ["a"], [np.ones(2)], {"a": 3})


WORK = [gemm_softmax(30, 24, 16), attention(1, 1, 1, 6, 10, 4, variant="online"), gemm_layernorm(20, 15, 8)]
LARGER = attention(1, 2, 1, 12, 20, 8, variant="online")


@pytest.mark.parametrize("work", [*WORK, pytest.param(LARGER, marks=pytest.mark.slow)], ids=lambda work: work.name)
def test_a_search_finds_the_same(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same mappings, the same numbers, and the same count of bounds on the way."""
    pytest.importorskip("numba", reason="the accelerator is not installed: pip install 'halley[fast]'")
    outcomes = []
    for mode in ("off", "on"):
        monkeypatch.setattr(OWN, "mode", mode)
        result = optimise(Problem(work, load_chip("edge"), baselines=False, front=True, fixed_variant=True))
        best = result.best
        front = [(to_text(point.plan), point.time, point.energy) for point in result.front]
        outcomes.append((to_text(best.plan), best.estimate.time, best.certificate.costed, best.certificate.bounds, front))
    assert outcomes[0] == outcomes[1]


# --- when it is loaded ------------------------------------------------------------------------------------------------


MODULE = "halley.cost.programs.accelerator"


def test_auto_waits_until_it_pays() -> None:
    pytest.importorskip("numba", reason="the accelerator is not installed: pip install 'halley[fast]'")
    switch = CompiledLoops(MODULE, "auto")
    assert switch.loops() is None
    assert switch.loops(ahead=LOAD_AFTER_SECONDS) is not None  # a long run is seen coming
    switch.spent = LOAD_AFTER_SECONDS
    assert switch.loops() is sys.modules["halley.cost.programs.accelerator"]
    assert CompiledLoops(MODULE, "off", spent=LOAD_AFTER_SECONDS).loops() is None
    assert CompiledLoops(MODULE, "on").loops() is not None


def test_programs_tell_how_long_they_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OWN, "mode", "auto")
    monkeypatch.setattr(OWN, "spent", 0.0)
    search = group(gemm(30, 20, 10), "edge", random.Random(0))
    shape = search.costs.shape(search.frames[0], 0, search.frames[0].stages[0].skeletons[0])
    nodes = {dim: np.zeros(20_000, dtype=np.int64) for dim in shape.trees}
    shape.bounds(nodes, 20_000)
    once = OWN.spent
    assert 0.0 < once < LOAD_AFTER_SECONDS
    shape.least.program.grid(shape.least.tables, {dim: ids[:20] for dim, ids in nodes.items()}).least(())
    assert OWN.spent > once


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_without_numba(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy is used unless Numba is asked for; then the error says what to do."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "halley.cost.programs.accelerator", raising=False)
    switch = CompiledLoops(MODULE, mode, spent=LOAD_AFTER_SECONDS)
    if mode == "auto":
        assert switch.loops() is None
    else:
        with pytest.raises(BadInput, match=rf"{MODE_VARIABLE}: expected numba .* pip install 'halley\[fast\]'"):
            switch.loops()


@pytest.mark.parametrize(("word", "mode"), [("", "auto"), ("off", "off"), ("auto", "auto")])
def test_the_environment_says_which(word: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, word)
    switch = CompiledLoops(MODULE)
    assert switch.loops() is None
    assert switch.mode == mode


def test_a_word_that_is_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODE_VARIABLE, "yes")
    with pytest.raises(BadInput, match=f"{MODE_VARIABLE}: expected one of auto, off, on; got 'yes'"):
        CompiledLoops(MODULE).loops()
