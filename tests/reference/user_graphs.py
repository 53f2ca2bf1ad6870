"""Graphs that a user could write: drawn at random, and what they must give, read by another reader than Halley's.

Here every array has an axis per dim of the graph, of extent 1 where the tensor lacks the dim, so that a line is NumPy's
broadcasting and a sum over axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

REF = re.compile(r"(\w+)\[([\w, ]+)\](?::\w+)?")

POINTWISE: dict[str, Callable[..., np.ndarray]] = {
    "identity": lambda x: x,
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "reciprocal": lambda x: x**-1.0,
    "maximum": lambda x, y: np.where(x > y, x, y),
    "minimum": lambda x, y: np.where(x < y, x, y),
    "multiply_add": lambda x, y, z: x * y + z,
    "exp": lambda x: np.e**x,
    "rsqrt": lambda x: x**-0.5,
    "sqrt": lambda x: x**0.5,
    "relu": lambda x: (x + abs(x)) / 2,
    "sigmoid": lambda x: 0.5 + 0.5 * np.tanh(x / 2),
    "tanh": lambda x: np.sinh(x) / np.cosh(x),
    "square": lambda x: x * x,
    "scale": lambda x, scale: scale * x,
    "exp_difference": lambda x, y: np.exp2((x - y) / np.log(2)),
    "square_difference": lambda x, y: x * x - 2 * x * y + y * y,
    # a quotient of exponentials would be 0 / 0 far below zero
    "softmax_from_stats": lambda x, largest, total: np.exp2((x - largest) / np.log(2)) / total,
}
"""Functions by name; constants by keyword."""

OVER: dict[str, Callable[[np.ndarray, tuple[int, ...]], list[np.ndarray]]] = {
    "sum": lambda x, axes: [x.sum(axis=axes, keepdims=True)],
    "mean": lambda x, axes: [x.mean(axis=axes, keepdims=True)],
    "max": lambda x, axes: [x.max(axis=axes, keepdims=True)],
    "softmax": lambda x, axes: [
        x.max(axis=axes, keepdims=True),
        np.exp(x - x.max(axis=axes, keepdims=True)).sum(axis=axes, keepdims=True),
    ],
    "welford": lambda x, axes: [
        x.mean(axis=axes, keepdims=True),
        x.var(axis=axes, keepdims=True) * np.prod([x.shape[axis] for axis in axes]),
    ],
}

INFIX = {"+": "add", "-": "subtract", "*": "mul", "/": "divide"}


def expected(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """The tensors that no line reads."""
    dims = {name: int(extent) for name, extent in (word.split("=") for word in parameters["dims"].split())}
    order = list(dims)
    known: Arrays = {}
    made: dict[str, list[str]] = {}
    used: set[str] = set()

    def load(name: str, own: list[str]) -> np.ndarray:
        if name not in known:
            known[name] = spread(given[name], own, order)
        else:
            used.add(name)
        return known[name]

    for line in parameters["lines"].splitlines():
        left, right = line.split("=", 1)
        targets = [(name, own.replace(" ", "").split(",")) for name, own in REF.findall(left)]
        refs = [(name, own.replace(" ", "").split(",")) for name, own in REF.findall(right)]
        arrays = [load(*ref) for ref in refs]
        words = re.findall(r"(\w+)\(", right)
        sign = re.search(r"\] ?(?::\w+)? ?([-+*/])", right)
        constants = {name: float(value) for name, value in re.findall(r"(\w+)=([-.\w]+)", right)}
        over = words.pop(0) if words and words[0] in OVER else None
        function = words[0] if words else INFIX[sign[1]] if sign else "identity"
        value = POINTWISE[function](*arrays, **constants)
        gone = tuple(axis for axis, dim in enumerate(order) if dim not in targets[0][1])
        if not words and not over and not sign and refs[0][1] != targets[0][1]:  # a copy
            old = [dim for dim in refs[0][1] if dim not in targets[0][1]]
            new = [dim for dim in targets[0][1] if dim not in refs[0][1]]
            names = [new[old.index(dim)] if dim in old else dim for dim in refs[0][1]]
            flat = flattened(value, refs[0][1], order)
            results = [spread(flat, names, order)]
        else:
            results = OVER[over](value, gone) if over else [value.sum(axis=gone, keepdims=True)] if sign else [value]
        for (name, own), result in zip(targets, results, strict=True):
            known[name], made[name] = result, own
    return {name: flattened(known[name], own, order) for name, own in made.items() if name not in used}


def spread(array: np.ndarray, own: list[str], order: list[str]) -> np.ndarray:
    """An axis per dim of the graph."""
    turned = array.transpose([own.index(dim) for dim in order if dim in own])
    return np.expand_dims(turned, tuple(axis for axis, dim in enumerate(order) if dim not in own))


def flattened(array: np.ndarray, own: list[str], order: list[str]) -> np.ndarray:
    """The axes of the tensor's own dims, in its order."""
    present = [dim for dim in order if dim in own]
    kept = array.reshape([array.shape[order.index(dim)] for dim in present])
    return kept.transpose([present.index(dim) for dim in own])


def drawn(random: Random) -> dict[str, object]:
    """A chain of up to seven lines: GEMMs with new weights, functions, row statistics, a second reader of an earlier tensor."""
    sizes = {dim: random.randint(1, 6) for dim in "hmnk"}
    batch = "h," if random.random() < 0.4 else ""
    used = {"h"} if batch else set()
    lines = [f"T0[{batch}m,n] = A[{batch}m,k] * B[k,n]" if random.random() < 0.6 else f"T0[{batch}m,n] = relu(A[{batch}m,n])"]
    used |= {"m", "n"} | ({"k"} if "k" in lines[0] else set())
    row, last = f"{batch}m", "n"
    matrices = ["T0"]
    for number in range(1, random.randint(1, 6)):
        now, made = f"{matrices[-1]}[{row},{last}]", f"T{number}"
        kind = random.choice(["function", "two", "row", "softmax", "gemm", "copy"])
        if kind == "function":
            function = random.choice(["relu", "sigmoid", "tanh", "square", "scale(", "minimum("])
            more = {"scale(": ", scale=-0.5", "minimum(": f", bound[{last}]"}.get(function, "")
            lines.append(f"{made}[{row},{last}] = {function.strip('(')}({now}{more})".replace("bound", f"bound{number}"))
        elif kind == "two":
            lines.append(f"{made}[{row},{last}] = {now} {random.choice('+-*')} {random.choice(matrices)}[{row},{last}]")
        elif kind == "row":
            lines.append(f"r{number}[{row}]:fp32 = {random.choice(['sum', 'mean', 'max'])}({random.choice(['', 'square('])}{now}")
            lines[-1] += ")" * lines[-1].count("(")
            lines.append(f"{made}[{row},{last}] = {now} {random.choice('+-')} r{number}[{row}]")
        elif kind == "softmax":
            lines.append(f"x{number}[{row}]:fp32, z{number}[{row}]:fp32 = softmax({now})")
            lines.append(f"{made}[{row},{last}] = softmax_from_stats({now}, x{number}[{row}], z{number}[{row}])")
        elif kind == "gemm":
            new = f"c{number}"
            sizes[new] = random.randint(1, 5)
            used.add(new)
            lines.append(f"{made}[{row},{new}] = {now} * W{number}[{last},{new}]")
            last, matrices = new, []
        else:
            new = f"c{number}"
            sizes[new] = sizes[last]
            used.add(new)
            lines.append(f"{made}[{new},{row}] = {now}")
            lines.append(f"{made}x[{row},{new}] = {made}[{new},{row}]")
            last, matrices, made = new, [], f"{made}x"
        matrices.append(made)
    return {"lines": "\n".join(lines), "dims": " ".join(f"{dim}={extent}" for dim, extent in sizes.items() if dim in used)}
