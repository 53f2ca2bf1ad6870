"""Small workloads that read tensors at affine indices, drawn at random: convolutions, pooling, diagonals, bands."""

from __future__ import annotations

from random import Random

from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, OpKind, Tensor, Workload


def drawn_affine(random: Random) -> Workload:
    """A small workload with affine indices, of any kind."""
    return random.choice([_convolution, _convolution, _convolution, _pooling, _chain, _einsum, _einsum])(random)


def _index(random: Random, dim: str, out: str, tap: str, extents: dict[str, int]) -> AffineIndex:
    """A position with stride, dilation, padding and sometimes a reversed kernel; adds the extents of all three dims."""
    stride, dilation = random.choice([1, 1, 2, 3]), random.choice([1, 1, 1, 2])
    extents[out], extents[tap] = random.randint(1, 5), random.randint(1, 3)
    reach = stride * (extents[out] - 1) + dilation * (extents[tap] - 1) + 1
    before, after = (random.choice([0, 0, 1, 1, 2, -1]) for _ in range(2))
    extents[dim] = max(reach - before - after, 1)
    reverse = random.random() < 0.25
    constant = (dilation * (extents[tap] - 1) if reverse else 0) - before
    index = AffineIndex(dim, ((out, stride), (tap, -dilation if reverse else dilation)), constant)
    first, last = index.positions(extents)
    return index if last >= 0 and first < extents[dim] else AffineIndex(dim, ((out, 1), (tap, 1)))


def _workload(extents: dict[str, int], tensors: dict[str, str], ops: tuple[Op, ...], outputs: tuple[str, ...]) -> Workload:
    made = {name: Tensor(name, tuple(dims.split())) for name, dims in tensors.items()}
    used = {dim for tensor in made.values() for dim in tensor.dims} | {dim for op in ops for dim in op.dims}
    return Workload("affine", {dim: extent for dim, extent in extents.items() if dim in used}, made, ops, outputs)


def _convolution(random: Random) -> Workload:
    """O[g? f? p q?] = X[g? c? h w?] W[g? f? c? r s?]: in one or two dims, grouped or depthwise, by the array or the lanes."""
    extents = {"g": random.randint(1, 3), "f": random.randint(1, 3), "c": random.randint(1, 3)}
    indices = [_index(random, "h", "p", "r", extents)]
    if random.random() < 0.5:
        indices.append(_index(random, "w", "q", "s", extents))
    group = random.choice(["", "", "g "])
    filters = random.choice(["f ", "f ", ""]) if group else "f "
    channels = random.choice(["c ", "c ", ""]) if filters else ""
    rows, columns = ("p q", "r s") if len(indices) == 2 else ("p", "r")
    tensors = {
        "X": f"{group}{channels}{'h w' if len(indices) == 2 else 'h'}",
        "W": f"{group}{filters}{channels}{columns}",
        "O": f"{group}{filters}{rows}",
    }
    dims = tuple(f"{group}{rows} {channels}{columns} {filters}".split())
    if random.random() < 0.75:
        op = Op("O", OpKind.CONTRACT, ("X", "W"), ("O",), dims, indices=tuple(indices))
    else:
        op = Op("O", OpKind.REDUCE, ("X", "W"), ("O",), dims, function="mul", monoid="sum", indices=tuple(indices))
    return _workload(extents, tensors, (op,), ("O",))


def _pooling(random: Random) -> Workload:
    extents = {"c": random.randint(1, 3)}
    indices = (_index(random, "h", "p", "r", extents), _index(random, "w", "q", "s", extents))
    monoid = random.choice(["max", "sum", "mean"])
    constants = (("count", float(extents["r"] * extents["s"])),) if monoid == "mean" else ()
    function = random.choice(["identity", "square"])
    dims = ("p", "q", "r", "s", "c")
    op = Op("O", OpKind.REDUCE, ("X",), ("O",), dims, function, monoid, constants=constants, indices=indices)
    return _workload(extents, {"X": "c h w", "O": "c p q"}, (op,), ("O",))


def _chain(random: Random) -> Workload:
    """A map, a convolution of its result, and another that reads the first at indices of its own or one that reads it plainly."""
    extents = {"c": random.randint(1, 2), "f": random.randint(1, 2)}
    first = _index(random, "h", "p", "r", extents)
    ops = [
        Op("Y", OpKind.MAP, ("X",), ("Y",), ("h", "c"), "relu"),
        Op("S", OpKind.CONTRACT, ("Y", "W"), ("S",), ("p", "c", "r", "f"), indices=(first,)),
    ]
    tensors = {"X": "h c", "Y": "h c", "W": "r c f", "S": "p f"}
    outputs = ["S"]
    match random.choice(["pool", "twice", "plain", "none"]):
        case "pool":
            extents["u"] = random.randint(1, extents["p"])
            extents["v"] = random.randint(1, 2)
            index = AffineIndex("p", (("u", random.choice([1, 2])), ("v", 1)), random.choice([0, 0, -1]))
            if index.positions(extents)[1] >= 0:
                ops.append(Op("T", OpKind.REDUCE, ("S",), ("T",), ("u", "v", "f"), monoid="max", indices=(index,)))
                tensors["T"] = "u f"
                outputs = ["T"]
        case "twice":
            extents["u"] = random.randint(1, 3)
            index = AffineIndex("h", (("u", random.choice([1, 2])),), random.choice([0, 0, -1]) if extents["u"] > 1 else 0)
            ops.append(Op("T", OpKind.MAP, ("Y",), ("T",), ("u", "c"), indices=(index,)))
            tensors["T"] = "u c"
            outputs.append("T")
        case "plain":
            ops.append(Op("T", OpKind.MAP, ("Y", "X"), ("T",), ("h", "c"), "add"))
            tensors["T"] = "h c"
            outputs.append("T")
    return _workload(extents, tensors, tuple(ops), tuple(outputs))


def _einsum(random: Random) -> Workload:
    """Diagonals A[i, i], bands A[i, 2 i + j], three terms x[p + q + r], and a batch dim in both factors."""
    extents = {name: random.randint(1, 4) for name in "ijkb"}
    match random.choice(["diagonal", "band", "three", "batch"]):
        case "diagonal":
            stride = random.choice([1, 2])
            extents |= {"u": extents["i"], "v": stride * extents["i"]}
            indices = (AffineIndex("u", (("i", 1),)), AffineIndex("v", (("i", stride),)))
            op = Op("O", OpKind.CONTRACT, ("A", "B"), ("O",), ("i", "k", "j"), indices=indices)
            return _workload(extents, {"A": "u v k", "B": "k j", "O": "i j"}, (op,), ("O",))
        case "band":
            stride = random.choice([1, 2, -1])
            most = abs(stride) * (extents["i"] - 1) + extents["j"]
            extents["v"] = most + random.choice([0, 1])
            index = AffineIndex("v", (("i", stride), ("j", 1)), most - extents["j"] if stride < 0 else 0)
            op = Op("O", OpKind.CONTRACT, ("A", "B"), ("O",), ("i", "j", "k"), indices=(index,))
            return _workload(extents, {"A": "i v", "B": "j k", "O": "i k"}, (op,), ("O",))
        case "three":
            terms = (("i", 1), ("j", random.choice([1, 2])), ("k", random.choice([1, -1])))
            first, last = AffineIndex("v", terms).positions(extents)
            index = AffineIndex("v", terms, random.randint(-last, -first))
            extents["v"] = max(last + index.constant + random.choice([0, 0, 1]), 1)
            op = Op("O", OpKind.CONTRACT, ("A", "B"), ("O",), ("i", "j", "k", "b"), indices=(index,))
            return _workload(extents, {"A": "v", "B": "j k b", "O": "i b"}, (op,), ("O",))
        case _:
            op = Op("O", OpKind.CONTRACT, ("A", "B"), ("O",), ("b", "i", "j", "k"))
            extents["u"] = extents["i"]
            op = Op("O", OpKind.CONTRACT, ("A", "B"), ("O",), ("b", "i", "j", "k"), indices=(AffineIndex("u", (("i", 1),)),))
            return _workload(extents, {"A": "b u j", "B": "b j k", "O": "b i k"}, (op,), ("O",))
