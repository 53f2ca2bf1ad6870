"""Short constructors for ops and tensors of workloads: names are given as one string, separated by spaces.

The last dim of an op runs along the vector lanes. A reduction iterates its input in its memory order: the reduced dim last.
"""

from __future__ import annotations

from collections.abc import Mapping

from halley.ir.workload import Op, OpKind, Tensor

STATISTIC = "fp32"
"""Element type of row statistics (maximum, sum, mean, variance), which accumulate the rounding errors of a row."""

EPSILON = 1e-5
"""Added to a variance or mean square before the square root, so that a constant row does not divide by zero."""


def tensors(dtype: str, dims: Mapping[str, str]) -> dict[str, Tensor]:
    """Tensors of one element type by name.

    >>> tensors("bf16", {"A": "m k"})["A"].dims
    ('m', 'k')
    """
    return {name: Tensor(name, tuple(words.split()), dtype) for name, words in dims.items()}


def contract(name: str, inputs: str, output: str, dims: str, scaled_by: str = "") -> Op:
    """A GEMM: input 0 has the rows, input 1 the columns, both the contraction."""
    return Op(name, OpKind.CONTRACT, _names(inputs), (output,), _names(dims), scaled_by=scaled_by)


def elementwise(
    name: str,
    function: str,
    inputs: str,
    output: str,
    dims: str,
    running: str = "",
    constants: Mapping[str, float] | None = None,
) -> Op:
    """A map: ``output[dims] = function(inputs)``; an input is broadcast along dims that it lacks."""
    numbers = tuple((constants or {}).items())
    return Op(name, OpKind.MAP, _names(inputs), (output,), _names(dims), function, running=_names(running), constants=numbers)


def reduction(
    name: str,
    monoid: str,
    inputs: str,
    outputs: str,
    dims: str,
    function: str = "identity",
    constants: Mapping[str, float] | None = None,
    scaled_by: str = "",
) -> Op:
    """``outputs`` = the ``monoid`` of ``function(inputs)`` over the dims that the outputs lack."""
    numbers = tuple((constants or {}).items())
    given = _names(inputs), _names(outputs), _names(dims)
    return Op(name, OpKind.REDUCE, *given, function, monoid, scaled_by=scaled_by, constants=numbers)


def batch(b: int) -> tuple[str, dict[str, int]]:
    """The prefix of the dims and the extent of the batch; both empty for a batch of 1.

    >>> batch(3), batch(1)
    (('b ', {'b': 3}), ('', {}))
    """
    return ("b ", {"b": b}) if b > 1 else ("", {})


def _names(words: str) -> tuple[str, ...]:
    return tuple(words.split())
