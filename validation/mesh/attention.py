"""The dataflows of attention on a mesh of tiles, as mappings: FlashAttention-2 and -3, and FlatAttention.

FlashAttention: each tile has rows of its own, and reads all keys and values of the head from memory. FlatAttention: a group of
G x G tiles shares a head, rows of queries along y, keys along x. The first tile of each row of the group reads the queries and
broadcasts them along x; the first of each column reads keys and values and broadcasts them along y. Maxima, sums and outputs are
reduced along x. FlashAttention-3 and the asynchronous FlatAttention work on several heads at a time.

The dataflows are those of arXiv 2505.18824 and of its software for SoftHier (github.com/gvsoc/gvsoc,
examples/Implementation/FlatAttention).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Op, Workload
from halley.workloads.attention import attention

FLASH_2, FLASH_3, FLAT, FLAT_HARDWARE, FLAT_ASYNCHRONOUS = "FA-2", "FA-3", "Flat", "FlatColl", "FlatAsyn"
DATAFLOWS = (FLASH_2, FLASH_3, FLAT, FLAT_HARDWARE, FLAT_ASYNCHRONOUS)
FLASH = (FLASH_2, FLASH_3)

WORD = 2
"""Bytes of fp16."""


@dataclass(frozen=True, slots=True)
class Run:
    """Attention of ``batch`` x ``heads`` heads, ``sequence`` queries and keys and ``head`` elements on ``tiles`` x ``tiles``
    tiles, in groups of ``group`` x ``group`` (1 for FlashAttention). ``largest``: rows, and keys, that a tile works on at a time,
    at most. ``full``: FlashAttention takes the largest blocks of which each tile has one, instead of the published ones."""

    dataflow: str
    batch: int
    heads: int
    sequence: int
    head: int
    tiles: int = 32
    group: int = 32
    largest: int = 128
    full: bool = False

    def __post_init__(self) -> None:
        if self.dataflow not in DATAFLOWS:
            raise BadInput(Fault("run on a mesh, dataflow", f"one of {', '.join(DATAFLOWS)}", repr(self.dataflow)))
        if self.tiles % self.group:
            raise BadInput(Fault("run on a mesh, group", f"a divisor of {self.tiles}", str(self.group)))

    @property
    def name(self) -> str:
        sizes = f"S {self.sequence}, D {self.head}, {self.batch * self.heads} heads"
        return f"{self.dataflow}, {sizes}, groups of {self.group} x {self.group}, {self.tiles} x {self.tiles} tiles"

    @property
    def slice(self) -> int:
        """Rows, and keys, of a tile. For FlashAttention a block is the sequence over the tiles of a side, as published."""
        if self.full and self.dataflow in FLASH:
            return min(self.largest, max(1, self.sequence * self.batch * self.heads // self.lanes // self.tiles**2))
        return min(self.largest, self.sequence // (self.tiles if self.dataflow in FLASH else self.group))

    @property
    def block(self) -> int:
        """Rows, and keys, that a group works on at a time."""
        return self.slice * self.group

    @property
    def blocks(self) -> bool:
        """Whether the keys of a head take several blocks, so that the softmax is a running one."""
        return self.sequence > self.block

    @property
    def lanes(self) -> int:
        """Parts of the heads on which a tile works side by side."""
        return 2 if self.dataflow == FLASH_3 or (self.dataflow == FLAT_ASYNCHRONOUS and self.blocks) else 1

    @property
    def traffic(self) -> int:
        """Bytes to and from memory as published: 2 B H D S (1 + S / M) elements, M the block."""
        return 2 * self.batch * self.heads * self.head * self.sequence * (self.block + self.sequence) // self.block * WORD


def largest_slice(chip: Chip, head: int) -> int:
    """The largest power of two of rows and keys for which two heads fit into a tile: queries, keys, values, output, scores."""
    capacity, rows = chip.memory("l1").capacity, 1
    while 2 * (4 * 2 * rows * head + 4 * rows * rows) * WORD < capacity:  # less, for the statistics
        rows *= 2
    return rows


def workload(run: Run) -> Workload:
    """One attention for each lane, of an equal part of the heads."""
    heads = run.batch * run.heads // run.lanes
    variant = "online" if run.blocks else "deferred"
    one = attention(1, heads, heads, run.sequence, run.sequence, run.head, variant=variant, dtype="fp16")
    marks = _marks(run)
    tensors = {name + mark: replace(each, name=name + mark) for mark in marks for name, each in one.tensors.items()}
    ops = tuple(_marked(op, mark) for mark in marks for op in one.ops)
    kernels = tuple(tuple(op + mark for op in kernel) for mark in marks for kernel in one.kernels)
    outputs = tuple(name + mark for mark in marks for name in one.outputs)
    return replace(one, tensors=tensors, ops=ops, kernels=kernels, outputs=outputs)


def _marks(run: Run) -> tuple[str, ...]:
    """Suffixes of the names of each lane."""
    return ("",) if run.lanes == 1 else tuple(f"_{lane}" for lane in range(run.lanes))


def _marked(op: Op, mark: str) -> Op:
    inputs, outputs, running = (tuple(name + mark for name in names) for names in (op.inputs, op.outputs, op.running))
    scaled = op.scaled_by + mark if op.scaled_by else ""
    return replace(op, name=op.name + mark, inputs=inputs, outputs=outputs, running=running, scaled_by=scaled)


def mapping(run: Run) -> Node:
    """The mapping of the run's workload."""
    marks = _marks(run)
    held = "hold hbm: " + " ".join(name + mark for mark in marks for name in "QKVO")
    if run.dataflow in FLASH:
        lanes = [_flash(run, mark) for mark in marks]
    elif run.dataflow == FLAT_ASYNCHRONOUS and not run.blocks:
        lanes = [_rounds(run)]
    else:
        lanes = [_flat(run, mark) for mark in marks]
    return parse("\n".join(_nested([held], lanes[0] if len(lanes) == 1 else _children("overlap", *lanes))))


def _nested(around: list[str], body: list[str]) -> list[str]:
    """Lines inside each other, and a body inside the last."""
    depth = len(around)
    return ["  " * at + line for at, line in enumerate(around)] + ["  " * depth + line for line in body]


def _children(node: str, *children: list[str]) -> list[str]:
    return [node, *(f"  {line}" for child in children for line in child)]


def _sequence(*parts: list[str]) -> list[str]:
    return _children("sequence", *parts)


def _compute(mark: str, *ops: str) -> list[str]:
    return [f"compute {op}{mark}" for op in ops]


def _flash(run: Run, mark: str) -> list[str]:
    """Heads along x, blocks of rows along y. One lane reads ahead; of two lanes, one reads while the other computes."""
    heads, buffers = run.batch * run.heads // run.lanes, "" if run.lanes > 1 else " x2"
    rows = min(run.sequence // run.slice, run.tiles)
    groups = run.tiles // rows if run.full else 1
    share = -(-heads // groups)
    around = [
        *([f"spread h by {share} over tile.y/{rows}"] if groups > 1 else []),
        f"spread h by {-(-share // run.tiles)} over tile.x",
        f"spread m by {-(-run.sequence // rows)} over tile.y" + (f"%{rows}" if groups > 1 else ""),
        "for h by 1",
        f"for m by {run.slice}",
        f"hold l1: U{mark}|O{mark} mx{mark} z{mark}",
    ]
    loop = [f"for n by {run.slice}"] if run.blocks else []
    keys = [f"hold l1{buffers}: Q{mark}", *loop, f"hold l1{buffers}: K{mark} V{mark}", _scores(mark)]
    softmax = ("running_max", "exp", "running_sum") if run.blocks else ("max", "exp", "sum")
    block = _compute(mark, "scores", "scale", *softmax, "values")
    return _nested(around, _sequence(_nested(keys, _sequence(block)), _compute(mark, "divide")))


def _scores(mark: str) -> str:
    return f"hold l1: S{mark}|S2{mark}|E{mark}"


def _flat(run: Run, mark: str) -> list[str]:
    """One head after the other in each group, and one step after the other."""
    around, x, y = _groups(run)
    way = _way(run)
    if run.blocks:
        softmax = _compute(mark, "scale", "running_max", "exp", "running_sum")
    else:
        softmax = [*_compute(mark, "scale", "max"), *_combined("mx", mark, x, way), *_compute(mark, "exp", "sum")]
        softmax += _combined("z", mark, x, way)
    block = _sequence(_compute(mark, "scores"), softmax, _compute(mark, "values"))
    loops = [*_loop(run), f"spread n by {run.slice} over {x}", f"hold l1: K{mark} V{mark}"]
    copies = [f"broadcast {name}{mark} over {y} with {way}" for name in "KV"]
    keys = _nested(loops, _sequence(copies, _nested([_scores(mark)], block)))
    queries = _nested([f"hold l1: Q{mark}"], _sequence([f"broadcast Q{mark} over {x} with {way}"], keys))
    statistics = [*_combined("mx", mark, x, way), *_combined("z", mark, x, way)] if run.blocks else []
    results = f"hold l1: U{mark}|O{mark} mx{mark} z{mark}"
    return _nested([*around, results], _sequence(queries, statistics, _output(run, mark, x, way)))


def _rounds(run: Run) -> list[str]:
    """Rounds of heads in each group: scores of the next head, softmax of this one, values of the one before."""
    around, x, y = _groups(run)
    split, way = f"spread n by {run.slice} over {x}", _way(run)

    def loaded(name: str, op: str) -> list[str]:
        return _nested([split, f"hold l1: {name}"], _sequence([f"broadcast {name} over {y} with {way}"], _compute("", op)))

    scores = _nested(["hold l1: Q"], _sequence([f"broadcast Q over {x} with {way}"], loaded("K", "scores")))
    maxima, sums = (_combined(name, "", x, way) for name in ("mx", "z"))
    steps = [*_compute("", "scale", "max"), *maxima, *_compute("", "exp", "sum"), *sums]
    softmax = _nested([split], _sequence(steps))
    values = _nested(["hold l1: U|O"], _sequence(loaded("V", "values"), _output(run, "", x, way)))
    return _nested([*around, "hold l1 x3: S|S2|E", "hold l1 x2: mx z"], _children("overlap", scores, softmax, values))


def _groups(run: Run) -> tuple[list[str], str, str]:
    """Groups of tiles with heads of their own, the rows of a head along y; the axes of a group."""
    groups, share = run.tiles // run.group, run.batch * run.heads // run.lanes
    x, y = (f"tile.{axis}" + (f"%{run.group}" if groups > 1 else "") for axis in "xy")
    around = []
    for axis in "yx" if groups > 1 else "":
        share = -(-share // groups)
        around.append(f"spread h by {share} over tile.{axis}/{run.group}")
    rows = [f"for m by {run.block}"] if run.blocks else []
    return [*around, "for h by 1", *rows, f"spread m by {run.slice} over {y}"], x, y


def _loop(run: Run) -> list[str]:
    return [f"for n by {run.block}"] if run.blocks else []


def _way(run: Run) -> str:
    """The algorithm of the collectives: in software, tile by tile."""
    return "chain" if run.dataflow == FLAT else "multicast"


def _combined(name: str, mark: str, x: str, way: str) -> list[str]:
    return [f"{kind} {name}{mark} over {x} with {way}" for kind in ("reduce", "broadcast")]


def _output(run: Run, mark: str, x: str, way: str) -> list[str]:
    """The sum of the parts of the output, on the first tile of each row, which divides and stores it."""
    return [f"reduce U{mark} over {x} with {way}", *_nested([f"spread e by {run.head} over {x}"], _compute(mark, "divide"))]


__all__ = ["DATAFLOWS", "FLASH", "Run", "largest_slice", "mapping", "workload"]
