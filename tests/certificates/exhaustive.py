"""The slow, obviously right search: cost every mapping of a small space one by one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from tests.certificates.composing import in_groups, mappings

from halley.cost.evaluate import evaluate
from halley.errors import HalleyError
from halley.ir.hardware import (
    CHIP_TOPOLOGIES,
    Axis,
    Chip,
    Dataflow,
    Exchange,
    Level,
    Link,
    MatrixEngine,
    Memory,
    Network,
    VectorEngine,
)
from halley.ir.mapping import Hold, Node
from halley.ir.workload import Op, Workload
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Frontier
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.bounds.shapes import Trees
from halley.mapping.solve.group import GroupState
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.frame_sets import GroupSpace
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.canonical import canonical
from halley.workloads import attention, conv_chain, gated_mlp, gemm, gemm_layernorm, gemm_rmsnorm, gemm_softmax, graph

Front = list[tuple[float, float]]
Part = tuple[tuple[str, ...], ...]
Cut = list[list[tuple[str, ...]]]
FUNCTIONS = ("add", "mul", "max", "exp", "div", "rsqrt")


def group_search(
    workload: Workload, chip: Chip, space: GroupSpace, around: Callable[[Node], Node], objectives: tuple[str, ...]
) -> GroupSearch:
    """The search of some frames, without compulsory bounds."""
    costs = Costing(workload, chip, space.ops, around, objectives, Trees(), SearchCounter())
    return GroupSearch(GroupState(costs, lambda frame, laid: {"time": 0.0, "energy": 0.0}, Frontier(len(objectives))), space)


class TooLarge(Exception):
    """The drawn space is too large to walk."""


def kernels(workload: Workload) -> list[tuple[str, ...]]:
    """Op names by kernel; by op where kernels may be cut."""
    whole = [] if workload.divisible else list(workload.kernels)
    return whole or [(op.name,) for op in workload.ops]


def cuts(workload: Workload) -> list[Cut]:
    """Every way to put kernels together into groups that can run one after the other: all partitions of the set of kernels but
    those in which groups wait for each other. The groups are in an order in which they can run."""
    ordered = (_in_order(workload, cut) for cut in _partitions(kernels(workload)))
    return [cut for cut in ordered if cut]


def _partitions(parts: list[tuple[str, ...]]) -> list[Cut]:
    if not parts:
        return [[]]
    found: list[Cut] = []
    for rest in _partitions(parts[1:]):
        found.append([[parts[0]], *rest])
        found += [[*rest[:at], [parts[0], *group], *rest[at + 1 :]] for at, group in enumerate(rest)]
    return found


def _in_order(workload: Workload, cut: Cut) -> Cut:
    """Time and again a group of which all inputs are there; nothing where some wait for each other."""
    ready, waiting, order = set(workload.inputs), list(cut), []
    while waiting:
        for group in waiting:
            ops = [workload.op(name) for kernel in group for name in kernel]
            made = {tensor for op in ops for tensor in op.outputs}
            if all(tensor in ready | made for op in ops for tensor in op.inputs):
                break
        else:
            return []
        waiting.remove(group)
        order.append(group)
        ready |= made
    return order


def exhaustive(workload: Workload, chip: Chip, limit: int) -> tuple[Front, int]:
    """The time-energy front over every mapping of one variant, with axes whole and in groups, and how many mappings there are.
    `TooLarge` where a group has more than ``limit`` walks, before any is costed."""
    found = [_exhaustive(workload, each, limit) for each in in_groups(chip)]
    return pareto([point for front, _ in found for point in front]), sum(size for _, size in found)


def _exhaustive(workload: Workload, chip: Chip, limit: int) -> tuple[Front, int]:
    """The same for one way to see the axes."""
    everything: Front = []
    size, every = 0, cuts(workload)
    parts = dict.fromkeys(tuple(part) for cut in every for part in cut)
    walks = {part: _walks(workload, chip, part, limit) for part in parts}
    found = {part: _group(workload, chip, part, walks[part]) for part in parts}
    for cut in every:
        groups = [found[tuple(part)] for part in cut]
        size += math.prod(count for _, count in groups)
        sums: Front = [(0.0, 0.0)]
        for front, _ in groups:
            sums = pareto([(a + c, b + d) for a, b in sums for c, d in front])
        everything += sums
    return pareto(everything), size


def _walks(workload: Workload, chip: Chip, group: Part, limit: int) -> list[tuple[Node, int]]:
    """The mappings of a group, as `mappings` gives them."""
    names = {name for kernel in group for name in kernel}
    found = list(itertools.islice(mappings(workload, chip, _ops(workload, names)), limit + 1))
    if len(found) > limit:
        raise TooLarge
    return found


def _ops(workload: Workload, names: set[str]) -> list[Op]:
    return [op for op in workload.ops if op.name in names]


def _group(workload: Workload, chip: Chip, group: Part, walks: list[tuple[Node, int]]) -> tuple[Front, int]:
    machine = hierarchy(chip)
    names = {name for kernel in group for name in kernel}
    ops = _ops(workload, names)
    made = {name for op in ops for name in op.outputs}
    kept = [
        name
        for name in dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
        if name not in made or name in workload.outputs or any(op.name not in names for op in workload.consumers(name))
    ]
    points: Front = []
    for walk, several in walks:
        tree: Node = canonical(Hold(machine.outer, tuple((name,) for name in kept), walk, 1), workload.dims)
        points = pareto([*points, *fitting(workload, chip, tree, several)])
    return points, sum(several for _, several in walks)


def fitting(workload: Workload, chip: Chip, tree: Node, several: int) -> Front:
    """Time and energy of those of the ``several`` mappings of a tree that fit."""
    estimate = evaluate(workload, chip, tree)
    fits = np.ones(several, dtype=bool)
    for name, used in estimate.footprint.items():
        fits &= used <= chip.memory(name).capacity
    time, energy = (np.broadcast_to(value, several)[fits] for value in (estimate.time, estimate.energy))
    return list(zip(time.tolist(), energy.tolist(), strict=True))


def pareto(points: Front) -> Front:
    """The points that no other matches in both values, by rising time."""
    result: Front = []
    for time, energy in sorted(points):
        if not result or energy < result[-1][1]:
            result.append((time, energy))
    return result


def draw_batched(draw: random.Random) -> Workload:
    """A compound operation over two or three batch items or heads, which the mappings walk in a loop around everything."""
    kind, b = draw.choice(["gemm", "softmax", "heads", "grouped"]), draw.randint(2, 3)
    m, n, k = draw.randint(1, 2), draw.randint(1, 3), draw.randint(1, 2)
    match kind:
        case "gemm":
            return gemm(m, n, k, b=b)
        case "softmax":
            return gemm_softmax(m, n, 1, b=b, variant=draw.choice(["plain", "online"]))
        case "heads":
            return attention(1, b, b, m, n, 1, value_dim=1, variant=draw.choice(["online", "deferred", "plain"]))
        case _:
            return attention(1, 2 * b, b, 1, n, 1, value_dim=1, variant=draw.choice(["online", "deferred", "plain"]))


def draw_graph(draw: random.Random) -> Workload:
    """Three or four kernels that read each other's results across the order in which they are written."""
    lines, made = [], ["X[m,n]"]
    for place in range(draw.randint(3, 4)):
        name, first, second = f"T{place}[m,n]", *(draw.choice(made) for _ in range(2))
        match draw.choice(["contract", "map", "map", "sum"]):
            case "contract" if not any("*" in line for line in lines):
                lines.append(f"{name} = A{place}[m,k] * B{place}[k,n]")
            case "map":
                lines.append(f"{name} = relu({first})")
            case _:
                lines.append(f"{name} = {first} + {second if second != first else f'Y{place}[m,n]'}")
        made.append(name)
    dims = {"m": draw.randint(1, 2), "n": draw.randint(1, 3)} | ({"k": 2} if any("*" in line for line in lines) else {})
    return graph(lines, dims)


def draw_hidden(draw: random.Random) -> Workload:
    """Two kernels with a dim in common beside their rows, which a group can walk inside these: columns, what the second one sums
    over, or heads."""
    m, f, k = draw.randint(1, 2), draw.randint(2, 3), draw.randint(1, 2)
    match draw.choice(["map", "sum", "two", "heads"]):
        case "map":
            return graph(["T[m,f] = X[m,k] * W[k,f]", "Y[m,f] = relu(T[m,f])"], {"m": m, "k": k, "f": f})
        case "sum":
            return graph(["T[m,f] = relu(X[m,f])", "Y[m,n] = T[m,f] * W[f,n]"], {"m": m, "f": f, "n": k})
        case "two":
            return graph(["T[m,f] = X[m,k] * V[k,f]", "Y[m,n] = T[m,f] * W[f,n]"], {"m": m, "k": 1, "f": f, "n": 1})
        case _:
            return graph(["A[m,h] = S[m,h,n] * V[h,n]", "Y[m,c] = A[m,h] * W[h,c]"], {"m": m, "h": f, "n": 1, "c": k})


def draw_projected(draw: random.Random) -> Workload:
    """Queries of heads and their scores: heads are columns of the projection and a batch of the scores, named before or behind
    the tokens."""
    query, scores = draw.choice([("h,m,d", "h,m,n"), ("m,h,d", "m,h,n")])
    lines = [f"Q[{query}] = X[m,c] * W[c,h,d]", f"S[{scores}] = Q[{query}] * K[h,n,d]"]
    return graph(lines, {"m": draw.randint(1, 2), "h": 2, "c": 1, "d": draw.randint(1, 2), "n": draw.randint(1, 2)})


def draw_affine(draw: random.Random) -> Workload:
    """A convolution in one dim with a stride, padding or a dilated kernel, on the array or depthwise, with or without a function
    of its result; or pooling."""
    p, r, c, f = draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 2)
    dilation = draw.choice([1, 1, 2])
    taken = dilation * (r - 1) + 1
    stride, padding = draw.randint(1, min(2, taken)), draw.choice([0, 0, 1])
    h = max(stride * (p - 1) + taken - 2 * padding + draw.choice([0, 0, 1]), 1)
    at = f"{stride}p+{dilation}r-{min(padding, stride * (p - 1) + taken - 1)}"
    match draw.choice(["array", "array", "function", "depthwise", "pooling"]):
        case "array":
            lines, dims = [f"O[f,p] = I[c,{at}] * W[f,c,r]"], {"f": f, "c": c}
        case "function":
            lines, dims = [f"T[f,p] = I[c,{at}] * W[f,c,r]", "O[f,p] = relu(T[f,p])"], {"f": f, "c": c}
        case "depthwise":
            lines, dims = [f"O[c,p] = I[c,{at}] * W[c,r]"], {"c": c}
        case _:
            lines, dims = [f"O[c,p] = max(I[c,{at}])"], {"c": c}
    return graph(["I[c,h]", *lines], {**dims, "p": p, "r": r, "h": h})


def draw_divisible(draw: random.Random) -> Workload:
    """A GEMM and what follows it, or a convolution, whose kernels may be cut anywhere."""
    m, n = draw.randint(1, 2), draw.randint(1, 2)
    match draw.choice(["softmax", "rmsnorm", "convolution"]):
        case "softmax":
            return replace(gemm_softmax(m, n, 1, variant="plain"), divisible=True)
        case "rmsnorm":
            return replace(gemm_rmsnorm(m, n, 1), divisible=True)
        case _:
            return conv_chain(2, m + 1, 1, n, kernel=2, layers=1)


def draw_small(draw: random.Random) -> tuple[Workload, Chip]:
    """One or two ops with extents of 1 to 3 on a chip of two to five levels, contractions on two or three: few enough mappings
    that hundreds of problems are walked in seconds."""
    m, n, k = draw.randint(1, 2), draw.randint(1, 3), draw.randint(1, 2)
    levels_inside: Sequence[int] = (1, 2, 3, 4)
    sizes: Sequence[tuple[int, ...]] = ((), (), (), (2,), (2,), (3,), (2, 2))
    match draw.choice(["gemm", "fused", "convolution", "map", "map", "sum", "sum", "pooling", "pooling", "rows", "chain"]):
        case "gemm":
            levels_inside = draw.choice([(1,), (2,)])
            work = gemm(*draw.choice([(m, 1, 1), (1, n, 1), (1, 1, n), (m, 1, k)]))
        case "fused":
            levels_inside, sizes = (1,), ((), (2,))
            work = graph(["T[m,n] = A[m,k] * B[k,n]", "Y[m,n] = relu(T[m,n])"], {"m": m, "n": k, "k": 1})
        case "convolution":
            levels_inside, sizes = (1,), ((), (2,))
            work = graph(["I[c,h]", "O[f,p] = I[c,p+r] * W[f,c,r]"], {"f": m, "c": 1, "p": 2, "r": k, "h": 1 + k})
        case "map":
            work = graph(["Y[m,n] = X[m,n] + Z[m,n]"], {"m": m, "n": n})
        case "sum":
            work = graph(["Y[m] = max(X[m,n])"], {"m": m, "n": n})
        case "rows":
            work = graph(["X[m] = max(S[m,n])", "Y[m,n] = exp_difference(S[m,n], X[m])"], {"m": m, "n": n})
        case "chain":
            work = graph(["T[m,n] = relu(X[m,n])", "Y[m] = sum(T[m,n])"], {"m": m, "n": n})
        case _:
            work = graph(["I[c,h]", "O[c,p] = max(I[c,p+r])"], {"c": m, "p": n, "r": k, "h": n + k - 1})
    return work, draw_hierarchy(draw, levels_inside, sizes)


def draw_workload(draw: random.Random) -> Workload:
    """A compound operation with extents of 1 to 3."""

    def size(high: int) -> int:
        return draw.randint(1, high)

    match draw.choice(["gemm", "softmax", "layernorm", "rmsnorm", "mlp", "attention"]):
        case "gemm":
            return gemm(size(3), size(3), size(3))
        case "softmax":
            return gemm_softmax(size(2), size(3), size(2), variant=draw.choice(["plain", "online"]))
        case "layernorm":
            return gemm_layernorm(size(2), size(2), size(2), variant=draw.choice(["two-pass", "welford"]))
        case "rmsnorm":
            return gemm_rmsnorm(size(2), size(2), size(2))
        case "mlp":
            return gated_mlp(size(2), 1, size(2))
        case _:
            return attention(1, 1, 1, size(2), size(3), 1, value_dim=1, variant="online")


def draw_chip(draw: random.Random) -> Chip:
    """A small chip of the hierarchy whose buffers, ports and links are each sometimes the bottleneck."""

    def memory(name: str, capacity: float) -> Memory:
        rates = (draw.choice([0.5, 1, 2, 4]) * 1e9 for _ in range(2))
        return Memory(name, capacity, *rates, draw.choice([0, 5e-9]), draw.random() * 1e-12, draw.random() * 1e-12)

    link = Link(draw.choice([1e9, 32e9]), 2e-9, 1e-12)
    axes = draw.choice([(2,), (2,), (3,), (1,), (2, 2)])
    topology = draw.choice(CHIP_TOPOLOGIES)
    further = random.Random(repr(draw.getstate()))  # leaves what is drawn otherwise as it is
    exchange = further.choice([Exchange(), Exchange(5e-9, 3e-9, 2e-9, 8e8)])
    able = further.random() < 0.3
    network = Network(
        tuple(
            Axis("xy"[i], size, topology, link, exchange=exchange, multicast=able, reduction=able) for i, size in enumerate(axes)
        ),
        Link(draw.choice([0.5, 2]) * 1e9, 0, 1e-12),
        draw.random() < 0.7,
    )
    local = tuple(memory(name, draw.choice([12, 40, 200])) for name in ("ibuf", "wbuf", "obuf"))
    return Chip(
        "drawn",
        (
            Level("dram", (memory("dram", 1e9),)),
            Level("glb", (memory("glb", draw.choice([30, 100, 1000])),)),
            Level("cluster", local, network),
        ),
        MatrixEngine(
            "array",
            draw.choice([1, 2, 4]),
            draw.choice([2, 3]),
            1e9,
            draw.choice([Dataflow.WEIGHT, Dataflow.OUTPUT, Dataflow.INPUT]),
            draw.random() < 0.5,
            energy={"bf16": 1e-12},
            reads={"input": ("ibuf",), "weight": ("wbuf",), "output": ("obuf",)},
            latency=further.choice([0.0, 3e-9]),
        ),
        VectorEngine(
            "lanes",
            draw.choice([2, 4]),
            1e9,
            dict.fromkeys(FUNCTIONS, 0.5),
            dict.fromkeys(FUNCTIONS, 1e-12),
            latency=further.choice([0.0, 2e-9]),
        ),
        static_power=draw.choice([0.0, 1e-3]),
    )


def draw_hierarchy(
    draw: random.Random,
    levels_inside: Sequence[int] = (1, 1, 2, 3),
    sizes: Sequence[tuple[int, ...]] = ((), (2,), (2,), (3,), (2, 2)),
) -> Chip:
    """A small chip with so many levels inside the outermost memory, with axes of these sizes at each. At the last level, a memory
    for each operand, one for all, or one for results while the engines read from the level before."""
    base, names = draw_chip(draw), iter("abcdefgh")

    def memory(name: str, capacity: float) -> Memory:
        rates = (draw.choice([0.5, 1, 2, 4]) * 1e9 for _ in range(2))
        return Memory(name, capacity, *rates, draw.choice([0, 5e-9]), draw.random() * 1e-12, draw.random() * 1e-12)

    def network() -> Network | None:
        link = Link(draw.choice([1e9, 32e9]), 2e-9, 1e-12)
        topology, chosen = draw.choice(CHIP_TOPOLOGIES), draw.choice(sizes)
        axes = tuple(Axis(next(names), size, topology, link) for size in chosen)
        return Network(axes, Link(draw.choice([0.5, 2]) * 1e9, 0, 1e-12), draw.random() < 0.7) if axes else None

    below = draw.choice(levels_inside)
    levels = [Level("dram", (memory("dram", 1e9),))]
    for at in range(below - 1):
        several = draw.random() < 0.3
        held = tuple(memory(f"m{at}{letter}", draw.choice([30, 100, 1000])) for letter in ("xy" if several else "x"))
        levels.append(Level(f"level{at}", held, network() if at or draw.random() < 0.3 else None))
    match draw.choice(["one", "each", "results"] if below > 1 else ["one", "each"]):
        case "one":
            local = {"input": "buf", "weight": "buf", "output": "buf"}
        case "each":
            local = {"input": "ibuf", "weight": "wbuf", "output": "obuf"}
        case _:
            outside = levels[-1].memories[0].name
            local = {"input": outside, "weight": outside, "output": "reg"}
    own = [name for name in dict.fromkeys(local.values()) if not name.startswith("m")]
    levels.append(Level("last", tuple(memory(name, draw.choice([12, 40, 200])) for name in own), network()))
    assert base.matrix is not None
    engine = replace(base.matrix, reads={role: (name,) for role, name in local.items()})
    vector = replace(base.vector, reads=(local["output"],)) if base.vector else None
    return replace(base, levels=tuple(levels), matrix=engine, vector=vector)


def draw_lockstep(draw: random.Random) -> Chip:
    """A chip of `draw_hierarchy` some of whose memories swap buffers at a barrier, one at least."""
    chip = draw_hierarchy(draw)
    names = [memory.name for memory in chip.memories[1:]]
    chosen = {*draw.sample(names, draw.randint(1, len(names)))}
    levels = (
        replace(level, memories=tuple(replace(memory, lockstep=memory.name in chosen) for memory in level.memories))
        for level in chip.levels
    )
    return replace(chip, levels=tuple(levels))


def draw_dma(draw: random.Random) -> Chip:
    """A chip of `draw_hierarchy` some of whose memories have a DMA engine, one at least, and whose memories have latencies."""
    chip = draw_hierarchy(draw)
    names = [memory.name for memory in chip.memories[1:]]
    chosen = {*draw.sample(names, draw.randint(1, len(names)))}
    levels = (
        replace(
            level,
            memories=tuple(
                replace(memory, dma=memory.name in chosen, latency=draw.choice((0.0, 3e-9, 2e-8))) for memory in level.memories
            ),
        )
        for level in chip.levels
    )
    return replace(chip, levels=tuple(levels))


def more_of_everything(chip: Chip, factor: float) -> Chip:
    """The same chip with larger and faster memories."""
    levels = tuple(
        replace(
            level,
            memories=tuple(
                replace(
                    m,
                    capacity=m.capacity * factor,
                    read_bandwidth=m.read_bandwidth * factor,
                    write_bandwidth=m.write_bandwidth * factor,
                )
                for m in level.memories
            ),
        )
        for level in chip.levels
    )
    return replace(chip, levels=levels)


__all__ = [
    "HalleyError",
    "TooLarge",
    "cuts",
    "draw_affine",
    "draw_batched",
    "draw_chip",
    "draw_divisible",
    "draw_dma",
    "draw_graph",
    "draw_hidden",
    "draw_hierarchy",
    "draw_lockstep",
    "draw_small",
    "draw_workload",
    "exhaustive",
    "kernels",
    "more_of_everything",
    "pareto",
]
