"""A chip as kernels use it: `Machine` with the rates of the data sheet, `Efficiency` with the shares of them that kernels
reach."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from halley.errors import BadInput, Fault
from halley.ir.hardware import Chip, Dataflow, MatrixEngine
from halley.ir.workload import DTYPE_BYTES

LANE_TYPE = "fp32"
"""Type in which vector lanes compute. Products in it, as gradients through routers of experts, run there if the matrix engine
lacks it. Other types that a matrix engine lacks are refused: libraries convert their operands, which no formula here contains."""

MAC_ON_LANES: Mapping[str, float] = {"mul": 1.0, "add": 1.0}
"""Elementary functions of a multiply-accumulate on vector lanes."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A chip as equal cores around one memory.

    ``macs`` [1/s] of the whole chip by dtype; ``lanes`` [1/s]: lane cycles of all vector engines; ``rates``: elementary
    functions per lane and cycle. ``memory`` [B/s] of the outermost memory; ``cache`` [B/s] and ``capacity`` [B] of the next
    memory that all cores share, infinite and 0 without one; ``port`` [B/s] of a core. ``arrays`` [1/s]: multiply-accumulates that
    the arrays of the whole chip reach at most, by dtype and bytes of a result (`array_rate`); not limited where it has none.
    """

    name: str
    cores: int
    macs: Mapping[str, float]
    lanes: float
    rates: Mapping[str, float]
    memory: float
    cache: float
    capacity: float
    port: float
    arrays: Mapping[tuple[str, int], float] = field(default_factory=dict)

    def on_lanes(self, dtype: str) -> bool:
        """Whether products of a dtype run on the vector lanes: those in `LANE_TYPE`, if the matrix engine has no rate for it."""
        return dtype == LANE_TYPE and dtype not in self.macs and self.rates.keys() >= MAC_ON_LANES.keys()

    def product_rate(self, dtype: str, efficiency: Efficiency) -> float:
        """Multiply-accumulates per second that kernels reach in their main loop. Raises as `mac_rate`."""
        return (efficiency.vector if self.on_lanes(dtype) else efficiency.matrix) * self.mac_rate(dtype)

    def most_products(self, dtype: str, result: str) -> float:
        """Multiply-accumulates per second that no kernel exceeds, with results of this type. Raises as `mac_rate`.

        >>> from halley.io.chips.load import load_chip
        >>> cloud = machine(load_chip("cloud"))
        >>> round(cloud.most_products("bf16", "bf16") / cloud.mac_rate("bf16"), 4)
        0.8897
        """
        limit = math.inf if self.on_lanes(dtype) else self.arrays.get((dtype, DTYPE_BYTES[result]), math.inf)
        return min(self.mac_rate(dtype), limit)

    def mac_rate(self, dtype: str) -> float:
        """Multiply-accumulates per second, on the matrix engine or `on_lanes`. Raises BadInput: the chip has no rate for the
        dtype.

        >>> from halley.io.chips.load import load_chip
        >>> edge = machine(load_chip("edge"))
        >>> edge.on_lanes("fp32"), edge.mac_rate("fp32") == edge.lanes / 2, edge.on_lanes("bf16")
        (True, True, False)
        """
        if self.on_lanes(dtype):
            return self.lanes / self.lane_cycles(MAC_ON_LANES)
        if dtype not in self.macs:
            remedy = f"use one of: {', '.join(sorted(self.macs))}; or give it a rate for {dtype} in a chip file of your own"
            raise BadInput(Fault(f"chip {self.name}", "a type that its matrix engine has", dtype, remedy))
        return self.macs[dtype]

    def lane_cycles(self, work: Mapping[str, float]) -> float:
        """Lane cycles of elementary functions. Raises BadInput: one that the vector engine lacks."""
        missing = [name for name in work if name not in self.rates]
        if missing:
            raise BadInput(Fault(f"chip {self.name}", "a vector engine with these functions", ", ".join(missing)))
        return sum(count / self.rates[name] for name, count in work.items())


def machine(chip: Chip) -> Machine:
    """The chip's cores, rates and bandwidths. Raises BadInput: it lacks an engine or a memory.

    A core is one instance of the innermost level; the cache is the innermost memory that all cores share, other than the
    outermost. On a chip whose cores hand tensors to each other (``streams``), operands that are on the chip come from the
    memories of other cores, over a network that copies them: only the ports of the cores limit them.
    """
    if chip.matrix is None or chip.vector is None:
        raise BadInput(Fault(f"chip {chip.name}", "a matrix and a vector engine", "not both"))
    cores = math.prod(level.count for level in chip.levels)
    array, lanes = chip.matrix.rows * chip.matrix.cols * chip.matrix.clock, chip.vector.lanes * chip.vector.clock
    shared = [memory for level in chip.levels if level.count == 1 and not level.network for memory in level.memories]
    outer, caches = chip.levels[0].memories[0], [memory for memory in shared if memory not in chip.levels[0].memories]
    scaled = {"nvfp4": cores * array * chip.matrix.nvfp4} if chip.matrix.nvfp4 else {}
    instances = accumulate((level.count for level in chip.levels), operator.mul)
    near = sum(
        n * m.capacity for n, level in zip(instances, chip.levels, strict=True) for m in level.memories if m.name in chip.streams
    )
    ports = [level.network.port.bandwidth for level in chip.levels if level.network and level.network.port]
    return Machine(
        chip.name,
        cores,
        {dtype: cores * array * rate for dtype, rate in chip.matrix.rate.items()} | scaled,
        cores * lanes,
        dict(chip.vector.rate),
        outer.read_bandwidth,
        caches[-1].read_bandwidth if caches and not near else math.inf,
        near or (caches[-1].capacity if caches else 0.0),
        min(ports, default=math.inf),
        {(dtype, word): array_rate(chip, dtype, word) for dtype in chip.matrix.rate for word in set(DTYPE_BYTES.values())},
    )


def array_rate(chip: Chip, dtype: str, result: float) -> float:
    """Upper bound of the multiply-accumulates per second of a chip's arrays under any mapping, for results of ``result`` bytes an
    element. Infinite if the chip has no such limit: folds follow each other without a gap.

    .. math:: P / t \\le n f \\left(\\frac{1}{R C} + \\max_i \\frac{r w_i}{s_i D_i}\\right)^{-1}

    Symbols: P multiply-accumulates in t [s], n members with an R x C array each, f [Hz] their rate, r [cycles] skew of a fold. A
    fold of m streamed points on c columns has m c results, which fit into the s_i [B] of the results' memory with w_i [B] each,
    so the folds of a member are at least P w_i / (n s_i D_i), with D_i = R; the same holds for the streamed operand, with
    D_i = C. Source: the cycles of `halley.formulas.engines.systolic_cycles`.
    """
    engine = chip.matrix
    if engine is None or engine.dataflow is Dataflow.NONE or engine.back_to_back:
        return math.inf
    members = math.prod(axis.size for _, axis in chip.axes)
    skew = engine.rows + engine.cols - 2
    streams = _streams(engine, dtype, result)
    per_point = max(skew * word / (_capacity(chip, engine, role) * width) for role, word, width in streams)
    return members * engine.rate.get(dtype, 1.0) * engine.clock / (1 / (engine.rows * engine.cols) + per_point)


def _streams(engine: MatrixEngine, dtype: str, result: float) -> Iterator[tuple[str, float, int]]:
    """What the streamed points of a fold occupy: role, bytes of an element, and the side of the array that does not hold it."""
    word = DTYPE_BYTES[dtype]
    if engine.dataflow is Dataflow.OUTPUT:
        yield "input", word, engine.cols
        yield "weight", word, engine.rows
        return
    yield "output", DTYPE_BYTES[engine.accumulators[dtype]] if dtype in engine.accumulators else result, engine.rows
    yield "input" if engine.dataflow is Dataflow.WEIGHT else "weight", word, engine.cols


def _capacity(chip: Chip, engine: MatrixEngine, role: str) -> float:
    """Bytes of the largest memory that the engine reads this operand from, or writes it to."""
    return max((chip.memory(name).capacity for name in engine.reads.get(role, ())), default=math.inf)


@dataclass(frozen=True, slots=True)
class HostTime:
    """What the host adds to a timed call [s]: ``call`` before and after the kernel, ``hidden`` in parallel with it."""

    call: float
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How close kernels come to the data sheet: shares of its rates, at most 1, and latencies [s].

    ``matrix``: of the matrix rate, in the main loop of a tile; ``vector``: of the lanes' cycles; ``memory`` and ``cache``: of
    the bandwidths on long streams; ``overlap``: share of matrix and vector work of one tile that overlaps. ``latency``: until a
    tile or a pass over rows has its first operands, and to store its results; ``launch``: of a kernel that follows another.
    ``smaller``: share of ``matrix`` reached by tiles smaller than the largest, which load more operands per product;
    ``gradient``: share of the forward pass's rates that attention reaches in its backward pass. ``hosts``: by operator, where
    the host timed single calls; not part of a kernel's own time.
    """

    matrix: float
    vector: float
    memory: float
    cache: float
    overlap: float
    latency: float
    launch: float
    smaller: float = 1.0
    gradient: float = 1.0
    hosts: Mapping[str, HostTime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [name for name in SHARE_PARAMETERS if not 0 <= getattr(self, name) <= 1]
        wrong += [name for name in ("latency", "launch") if not 0 <= getattr(self, name) < math.inf]
        if wrong:
            raise ValueError(f"efficiency: not a share from 0 to 1, or not a time: {', '.join(wrong)}")


SHARE_PARAMETERS = ("matrix", "vector", "memory", "cache", "overlap", "smaller", "gradient")
"""The parameters that are shares of a figure of the data sheet."""

PEAK = Efficiency(matrix=1.0, vector=1.0, memory=1.0, cache=1.0, overlap=1.0, latency=0.0, launch=0.0)
"""A chip that reaches its data sheet."""
