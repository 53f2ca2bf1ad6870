"""Lower bound of the time of a contraction on the matrix engines: folds of the array, its skew, and the buffers beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from halley.ir.array import Array, sides
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.workload import DTYPE_BYTES, Op, Roles, Workload, roles
from halley.mapping.space.hierarchy import Hierarchy


def at_work(
    workload: Workload, engine: MatrixEngine, op: Op, array: Array, tiled: str = "", tile: float = 1.0
) -> tuple[float, float]:
    """The largest number of rows and columns of the array that can be busy, with tiles of ``tile`` points of the dim ``tiled``.

    It is min(w, e) for a side of width w whose dims have e points: a tile of t points takes ceil(t / w) passes, at least
    t / min(w, e).
    """
    on_rows, on_columns = array or sides(roles(workload, op), engine.dataflow)
    rows, columns = (_points(workload, side, tiled, tile) for side in (on_rows, on_columns))
    return min(engine.rows, rows), min(engine.cols, columns)


def _points(workload: Workload, dims: Iterable[str], tiled: str, tile: float) -> float:
    return math.prod(min(tile, workload.dims[dim]) if dim == tiled else workload.dims[dim] for dim in dims)


def seconds_per_mac(workload: Workload, machine: Hierarchy, op: Op, array: Array, tiled: str = "", tile: float = 1.0) -> float:
    """Least time [s] of a multiply-accumulate at one array, on average over all tiles of a member, with tiles of at most ``tile``
    points of the dim ``tiled``.

    .. math:: t = \\frac{1}{f} \\left(\\frac{\\max(1, g / X)}{r c} + \\frac{\\sigma}{r c x}\\right)

    Symbols: f [1/s] rate of the array, r, c [PEs] rows and columns at work, X [1] most points that stream through it, g [1]
    points of an instruction among them, sigma [cycles] skew of a fold, x [1] points that a fold streams, at most X. Their x c
    results fit into the memory of results, and x r points of the streamed operand into its own; half of them where there are two
    buffers. Where both have one buffer, transfers are not hidden (`_serial`). That says nothing of an operand that stages hand
    over in the memory from which the array takes it, for it is not transferred. Source: the cycles of
    `halley.formulas.engines.systolic_cycles`; docs/model.md, "Nodes".
    """
    engine = machine.engine
    assert engine is not None
    dtype = workload.tensors[op.inputs[0]].dtype
    rate = engine.rate.get(dtype, 1.0) * engine.clock
    if engine.dataflow is Dataflow.NONE:
        return 1.0 / rate
    role = roles(workload, op)
    rows, columns = at_work(workload, engine, op, array, tiled, tile)
    streamed, multiple = _streamed(engine, role)
    most = _points(workload, streamed, tiled, tile)
    work = max(1.0, multiple / most) / (rows * columns)
    skew = sum(engine.filling) - 2 + (engine.rows if not (engine.prefetch or engine.back_to_back) else 0)
    if skew <= 0:  # folds follow each other
        return work / rate
    if engine.dataflow is Dataflow.OUTPUT or workload.indices:  # boxes of affine indices have fewer points than a fold streams
        return (work + skew / (rows * columns * most)) / rate
    name = op.inputs[0] if engine.dataflow is Dataflow.WEIGHT else op.inputs[1]
    word, sums = workload.tensors[op.outputs[0]].word, engine.accumulators.get(dtype)
    words = workload.tensors[name].word, max(word, DTYPE_BYTES[sums] if sums else 0)
    places = machine.beside_engine("input" if engine.dataflow is Dataflow.WEIGHT else "weight"), machine.beside_engine("output")
    operand, results = (
        max(machine.memory(each).capacity for each in names) / word for names, word in zip(places, words, strict=True)
    )

    def waits(held: float, kept: float) -> float:
        """Cycles of skew, with buffers for so many points of the operand, and of the results."""
        return skew / min(rows * columns * most, rows * kept, columns * held)

    handed = {machine.output, *(memory for at in machine.hands_over() for memory in machine.tiers[at].memories)}
    if handed & set(places[0]) or set(places[0]) & set(places[1]):
        return (work + waits(operand, results)) / rate
    fill = words[0] / max(machine.memory(each).write_bandwidth for each in places[0]) * rate
    drain = word / max(machine.memory(each).read_bandwidth for each in places[1]) * rate
    single = _serial(skew / (rows * columns), min(fill / results, drain / operand), most)
    return (work + min(waits(operand / 2, results), waits(operand, results / 2), single)) / rate


def _serial(skew: float, transfer: float, most: float) -> float:
    """Least cycles per multiply-accumulate of skew and of exposed transfers, over the points x that a fold streams.

    .. math:: t = \\min_{x \\le X} \\frac{\\sigma}{r c x} + \\tau x

    Symbols: ``skew`` sigma / (r c), ``transfer`` tau [cycles], ``most`` X. With one buffer for the streamed operand and one for
    the results, fills of the operand and drains of the results do not overlap with the work. If the results lie around the
    operand, each of its points serves at most W / x columns, where W results fit: the operand is filled for every W / x
    multiply-accumulates. Otherwise a visit to the results adds up at most V / x terms, where V points of the operand fit, and
    then drains them. tau is the smaller of the times of these transfers.
    """
    best = math.sqrt(skew / transfer) if transfer > 0 else math.inf
    points = min(most, best)
    return skew / points + transfer * points


def _streamed(engine: MatrixEngine, role: Roles) -> tuple[tuple[str, ...], int]:
    """The dims that stream through the array, and the points of an instruction along them."""
    match engine.dataflow:
        case Dataflow.WEIGHT:
            return role.rows, engine.granularity.rows
        case Dataflow.INPUT:
            return role.columns, engine.granularity.columns
        case _:
            return role.reduced, engine.granularity.reduced
