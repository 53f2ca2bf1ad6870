"""Gradients of an op's inputs from the gradients of its outputs, by kind of op.

C = A B                 dA = dC B^T, dB = A^T dC
O[p] = I[2p+r] W[r]     dI[2p+r] += dO[p] W[r], dW[r] = sum over p of dO[p] I[2p+r]
Y = f(X, g)             dX = dY df/dX; summed over the dims that X lacks
z = sum over n of f(X)  as a map, with dz constant along n
out = table[index]      d table[index] += d out, and vice versa
H[t] = a[t] H[t-1] + x  g[t] = a[t+1] g[t+1] + dH[t]; dx = g, da[t] = g[t] H[t-1]
F = DFT(x)              dx = the conjugate transform of dF, not divided by the points
U[p, r] = x[2p+r]       dx[2p+r] += dU[p, r]
M[p] = max of x[2p+r]   dx[2p+r] += dM[p] where x[2p+r] = M[p]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from halley.errors import BadInput, Fault
from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, OpKind
from halley.rewrite.derivatives import DERIVATIVES, PASS_THROUGH, POSITIONAL, Derivative
from halley.rewrite.gradients import GradientGraph

Independent = Callable[[str], bool]
"""Whether the results are independent of a maximum, as a free variable."""


def pull_back(graph: GradientGraph, op: Op, independent: Independent) -> None:
    """Add the contributions of an op to the gradients of its inputs; the gradients of its outputs must be complete.

    Raises BadInput: an op without a derivative.
    """
    if op.indices and op.kind not in (OpKind.CONTRACT, OpKind.MAP, OpKind.REDUCE):
        sums = ", ".join(f"{index.dim} at {index}" for index in op.indices)
        raise _unsupported(op, "a map, a reduction or a contraction where a tensor is read at sums", f"{op.kind}, {sums}")
    match op.kind:
        case OpKind.CONTRACT:
            _contraction(graph, op)
        case OpKind.MAP:
            _map(graph, op)
        case OpKind.REDUCE:
            _reduction(graph, op, independent)
        case OpKind.SCAN:
            _scan(graph, op)
        case OpKind.FFT:
            _transform(graph, op)
        case OpKind.GATHER | OpKind.SCATTER:
            _indexed(graph, op)
        case OpKind.PERMUTE:
            _permutation(graph, op)
        case OpKind.WINDOW:
            _windows(graph, op)
        case _:
            assert_never(op.kind)


def pull_back_softmax(graph: GradientGraph, op: Op, exponential: Op, total: Op) -> None:
    """``P = E / z`` with ``E = exp(x - max)``, ``z`` its sum along a dim: ``dx = P (dP - sum of dP P)``, which needs only P."""
    source, result = exponential.inputs[0], op.outputs[0]
    gradient = graph.gradient(result)
    if gradient is None or not graph.needs(source):
        return
    z = total.outputs[0]
    (inner,) = graph.make(op, z, OpKind.REDUCE, (gradient, result), graph.dims(z), total.dims, "mul", "sum")
    rule = Derivative("scaled_difference", ("y", "d", "s"), lambda given: {"scale": 1.0})
    _apply(graph, exponential, rule, {"y": result, "d": gradient, "s": inner}, source)


def _contraction(graph: GradientGraph, op: Op) -> None:
    gradient = graph.gradient(op.outputs[0])
    if gradient is None:
        return
    for place, name in enumerate(op.inputs):
        if not graph.needs(name):
            continue
        pair = (gradient, op.inputs[1]) if place == 0 else (op.inputs[0], gradient)
        if op.indices:
            _contraction_at_sums(graph, op, place, pair)
            continue
        own = graph.dims(name)
        summed = [dim for dim in op.dims if dim not in own]
        if summed:
            # rows, then the summed dims, then columns
            _give(graph, op, name, OpKind.CONTRACT, pair, (*own[:-1], *summed, *own[-1:]))
        else:
            _give(graph, op, name, OpKind.MAP, pair, own, "mul")


def _contraction_at_sums(graph: GradientGraph, op: Op, place: int, pair: tuple[str, str]) -> None:
    """The contribution to one factor of a contraction that reads tensors at affine indices, at each point of the dims that select
    an element; points of one element are then added up."""
    name, other = op.inputs[place], op.inputs[1 - place]
    own = graph.workload.points(op, name)
    read = _read(graph, op, (other,))
    summed = [dim for dim in op.dims if dim not in own]
    kind, function = (OpKind.CONTRACT, "identity") if summed else (OpKind.MAP, "mul")
    (made,) = graph.make(op, name, kind, pair, own, (*own[:-1], *summed, *own[-1:]), function, indices=read)
    _give_points(graph, op, name, made)


def _read(graph: GradientGraph, op: Op, inputs: Collection[str]) -> tuple[AffineIndex, ...]:
    """The affine indices at which the op reads these tensors."""
    return tuple(index for index in op.indices if any(index.dim in graph.dims(name) for name in inputs))


def _give_points(graph: GradientGraph, op: Op, target: str, made: str) -> None:
    """Add a contribution that has the dims of the op in place of those that it reads at sums: points of one element are added."""
    if sums := _read(graph, op, (target,)):
        (made,) = graph.make(op, target, OpKind.SCATTER, (made,), graph.dims(target), graph.dims(made), indices=sums)
    graph.give(target, made)


def _give(
    graph: GradientGraph,
    op: Op,
    target: str,
    kind: OpKind,
    inputs: tuple[str, ...],
    over: tuple[str, ...],
    function: str = "identity",
    along: str = "",
) -> None:
    """Add an op whose result is a contribution with all dims of its target."""
    (made,) = graph.make(op, target, kind, inputs, graph.dims(target), over, function, along=along)
    graph.give(target, made)


def _map(graph: GradientGraph, op: Op) -> None:
    gradient = graph.total(op.outputs[0])
    if gradient is not None:
        _pointwise(graph, op, gradient, lambda: op.outputs[0])


def _pointwise(graph: GradientGraph, op: Op, gradient: str, value: Callable[[], str]) -> None:
    """Contributions to the inputs of the op's function, from the ``gradient`` of its result; ``value`` returns the name of the
    function's result."""
    if op.function not in DERIVATIVES:
        remedy = f"functions with derivatives: {', '.join(sorted(DERIVATIVES))}"
        raise BadInput(Fault(f"backward of op {op.name}", "a function that has a derivative", repr(op.function), remedy))
    for name, rule in zip(op.inputs, DERIVATIVES[op.function], strict=True):
        if rule is None or not graph.needs(name):
            continue
        words = {str(place): each for place, each in enumerate(op.inputs)} | {"d": gradient}
        if "y" in rule.arguments:
            words["y"] = value()
        _apply(graph, op, rule, words, name)


def _apply(graph: GradientGraph, op: Op, rule: Derivative, words: Mapping[str, str], target: str) -> None:
    """Add the rule's value as a contribution to the target, summed over the dims of the op that the target lacks."""
    inputs = tuple(words[word] for word in rule.arguments)
    own = graph.workload.points(op, target) if op.indices else graph.dims(target)
    lost = [dim for dim in op.dims if dim not in own]
    read = _read(graph, op, (target,))
    if rule is PASS_THROUGH and not lost and (not read or set(graph.dims(inputs[0])) == set(own)):
        _give_points(graph, op, target, inputs[0])
        return
    positional = rule.function in POSITIONAL
    covered = {dim for name in inputs for dim in (graph.workload.points(op, name) if name in op.inputs else graph.dims(name))}
    if positional and not covered.issuperset(op.dims):  # broadcast: a tensor without a dim has no position along it
        inputs = (*graph.make(op, target, OpKind.MAP, inputs[:1], op.dims, op.dims), *inputs[1:])
    kept = [dim for dim in own if dim in covered or positional or read]
    over = op.dims if positional else (*kept, *lost)
    constants, indices = rule.constants(dict(op.constants)), _read(graph, op, inputs)
    kind, monoid = (OpKind.REDUCE, "sum") if lost else (OpKind.MAP, "")
    (made,) = graph.make(op, target, kind, inputs, kept, over, rule.function, monoid, constants=constants, indices=indices)
    _give_points(graph, op, target, made)


def _reduction(graph: GradientGraph, op: Op, independent: Independent) -> None:
    def points() -> str:
        """The function's result at every point, recomputed: the forward op does not store it."""
        if op.function == "identity":
            return op.inputs[0]
        constants = dict(op.constants)
        made = graph.make(
            op, op.inputs[0], OpKind.MAP, op.inputs, op.dims, op.dims, op.function, constants=constants, indices=op.indices
        )
        return made[0]

    for gradient in _of_points(graph, op, points, independent):
        _pointwise(graph, op, gradient, points)


def _of_points(graph: GradientGraph, op: Op, points: Callable[[], str], independent: Independent) -> list[str]:
    """Gradients of the points of a reduction, as terms of a sum."""
    first = op.outputs[0]
    result = graph.total(op.outputs[-1])

    def point(inputs: tuple[str, ...], function: str, constants: Mapping[str, float] | None = None) -> tuple[str, ...]:
        indices = _read(graph, op, inputs)
        return graph.make(op, op.inputs[0], OpKind.MAP, inputs, op.dims, op.dims, function, constants=constants, indices=indices)

    def chosen(gradient: str) -> tuple[str, ...]:
        """Every point that equals the maximum gets the full gradient of the maximum."""
        return point((gradient, points(), first), "select_equal")

    match op.monoid:
        case "sum":
            return [result] if result else []
        case "mean":
            return [_scaled(graph, op, first, result, 1.0 / dict(op.constants)["count"])] if result else []
        case "max":
            if result is None or independent(first):
                return []
            return list(chosen(result))
        case "softmax":
            found: list[str] = []
            if result:
                found += point((result, points(), first), "mul_exp_difference")
            if not independent(first):
                if result:  # the sum is relative to the maximum
                    pair = (result, op.outputs[1])
                    dims = graph.dims(first)
                    minus = graph.make(op, first, OpKind.MAP, pair, dims, dims, "scaled_product", constants={"scale": -1.0})
                    graph.give(first, minus[0])
                largest = graph.total(first)
                found += chosen(largest) if largest else ()
            return found
        case "welford":
            mean = graph.total(first)
            count = math.prod(graph.workload.dims[dim] for dim in graph.workload.reduced(op))
            found = [_scaled(graph, op, first, mean, 1.0 / count)] if mean else []
            if result:
                found += point((result, points(), first), "scaled_difference", {"scale": 2.0})
            return found
        case _:
            raise _unsupported(op, "a reduction by sum, mean, max, softmax or welford", op.monoid)


def _scaled(graph: GradientGraph, op: Op, target: str, gradient: str, scale: float) -> str:
    dims = graph.dims(gradient)
    return graph.make(op, target, OpKind.MAP, (gradient,), dims, dims, "scale", constants={"scale": scale})[0]


def _scan(graph: GradientGraph, op: Op) -> None:
    gradient = graph.gradient(op.outputs[0])
    if gradient is None:
        return

    def scan(inputs: tuple[str, ...], monoid: str, reverse: bool) -> str:
        constants = {"reverse": 1.0} if reverse else {}
        result = op.outputs[0]
        return graph.make(
            op, result, OpKind.SCAN, inputs, graph.dims(result), op.dims, monoid=monoid, along=op.along, constants=constants
        )[0]

    if dict(op.constants).get("reverse"):
        raise _unsupported(op, "a scan from its start", "one from its end")
    match op.monoid:
        case "sum":
            _pointwise(graph, op, scan((gradient,), "sum", True), lambda: _value(graph, op))
        case "linear" | "linear_before":
            factor, x = op.inputs
            collected = scan((factor, gradient), "linear_lagged" if op.monoid == "linear" else "linear_before", True)
            if graph.needs(x):
                _apply(graph, op, PASS_THROUGH, {"d": collected}, x)
            if graph.needs(factor):
                # the state before each step: recomputed, as fused kernels do, or the op's own result
                found = scan(op.inputs, "linear_before", False) if op.monoid == "linear" else op.outputs[0]
                _apply(graph, op, Derivative("mul", ("d", "y")), {"d": collected, "y": found}, factor)
        case _:
            raise _unsupported(op, "a scan by sum, linear or linear_before", op.monoid)


def _value(graph: GradientGraph, op: Op) -> str:
    constants = dict(op.constants)
    return graph.make(op, op.inputs[0], OpKind.MAP, op.inputs, op.dims, op.dims, op.function, constants=constants)[0]


def _transform(graph: GradientGraph, op: Op) -> None:
    gradients = [graph.gradient(name) for name in op.outputs]
    there = [item for item in gradients if item is not None]
    if not there or not any(graph.needs(name) for name in op.inputs):
        return
    if len(op.inputs) == len(op.outputs) == 1:
        raise _unsupported(op, "planes of real numbers", "a tensor of complex ones", "give real and imaginary part")
    planes = tuple(item or _scaled(graph, op, op.outputs[0], there[0], 0.0) for item in gradients)
    own = graph.dims(op.inputs[0])
    # the adjoint reads what the op wrote: all points, or the leading ones that were stored
    (entry,) = (dim for dim in own if dim == op.along or dim not in op.dims)
    over = tuple(op.along if dim == entry else dim for dim in own)
    inverse = dict(op.constants).get("inverse", 0.0) == 1.0
    constants = {} if inverse else {"inverse": 1.0}
    points = graph.workload.dims[op.along]
    made = graph.make(op, op.inputs[0], OpKind.FFT, planes, own, over, along=op.along, constants=constants, outputs=op.inputs)
    for name, plane in zip(op.inputs, made, strict=True):
        if graph.needs(name):
            graph.give(name, _scaled(graph, op, name, plane, 1.0 / points if inverse else float(points)))


def _indexed(graph: GradientGraph, op: Op) -> None:
    gradient = graph.gradient(op.outputs[0])
    at = next((i for i, name in enumerate(op.inputs) if graph.tensors[name].dtype.startswith("int")), 0)
    index, other = op.inputs[at], op.inputs[1 - at]
    if gradient is None or not graph.needs(other):
        return
    kind = OpKind.SCATTER if op.kind is OpKind.GATHER else OpKind.GATHER
    _give(graph, op, other, kind, (gradient, index), op.dims, along=op.along)


def _permutation(graph: GradientGraph, op: Op) -> None:
    gradient = graph.gradient(op.outputs[0])
    if gradient is not None:
        _give(graph, op, op.inputs[0], OpKind.PERMUTE, (gradient,), graph.dims(op.inputs[0]))


def _windows(graph: GradientGraph, op: Op) -> None:
    """Windows overlap, so the backward adds: a scatter along the sequence."""
    gradient = graph.gradient(op.outputs[0])
    if gradient is not None:
        _give(graph, op, op.inputs[0], OpKind.SCATTER, (gradient,), op.dims, along=op.along)


def _unsupported(op: Op, expected: str, got: str, remedy: str = "") -> BadInput:
    return BadInput(Fault(f"backward of op {op.name}", expected, got, remedy))
