"""Which results do not depend on a maximum: softmax is invariant under a shift of its scores.

A maximum m is treated as a free variable. How each tensor changes when m increases by c is propagated through the graph:

- *shift* s: the tensor increases by s c (m itself: 1; ``x - m``: -1);
- *degree* k: the tensor is multiplied by exp(k c) (``exp(x - m)``: -1, like its sums; ``E / z``: 0).

A tensor of shift 0 and degree 0 does not depend on m. Where no rule applies, a tensor counts as dependent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from halley.ir.workload import Op, OpKind, Workload
from halley.rewrite.derivatives import DERIVATIVES


@dataclass(frozen=True, slots=True)
class MaximumDependence:
    """How a tensor depends on the maximum: additive ``shift`` and exponential ``degree``."""

    shift: int = 0
    degree: int = 0


INDEPENDENT = MaximumDependence()


def is_independent(workload: Workload, maximum: str, outputs: Collection[str]) -> bool:
    """Whether none of the outputs depends on the tensor ``maximum`` as a free variable. False may also mean unknown.

    >>> from halley.workloads.attention import attention
    >>> is_independent(attention(1, 2, 2, 3, 4, 5, variant="deferred"), "mx", ("O",))
    True
    """
    changes: dict[str, MaximumDependence | None] = {maximum: MaximumDependence(shift=1)}
    for op in workload.ops:
        if maximum in op.outputs:
            # the sum of exponentials computed together with the maximum is relative to it
            changes |= {name: MaximumDependence(degree=-1) for name in op.outputs if name != maximum}
            continue
        selected = _selectors(op)
        given = [INDEPENDENT if i in selected else changes.get(name, INDEPENDENT) for i, name in enumerate(op.inputs)]
        if any(change != INDEPENDENT for change in given):
            changes |= dict.fromkeys(op.outputs, _after(op, given))
    return all(changes.get(name, INDEPENDENT) == INDEPENDENT for name in outputs)


def _selectors(op: Op) -> tuple[int, ...]:
    """Indices of arguments with zero derivative, which only select."""
    rules = DERIVATIVES.get(op.function, ())
    return tuple(i for i, rule in enumerate(rules) if rule is None) if op.kind in (OpKind.MAP, OpKind.REDUCE) else ()


def _after(op: Op, given: list[MaximumDependence | None]) -> MaximumDependence | None:
    """The dependence of an op's outputs; None where no rule applies."""
    known = [change for change in given if change is not None]
    if len(known) < len(given):
        return None
    degrees, shifts = [change.degree for change in known], [change.shift for change in known]
    match op.kind:
        case OpKind.CONTRACT:
            return None if any(shifts) else MaximumDependence(degree=sum(degrees))
        case OpKind.PERMUTE | OpKind.GATHER | OpKind.WINDOW:
            return known[0]
        case OpKind.REDUCE if op.monoid == "sum" and not any(shifts):
            return _mapped(op.function, degrees, shifts)
        case OpKind.MAP:
            return _mapped(op.function, degrees, shifts)
        case _:
            return None


def _mapped(function: str, degrees: list[int], shifts: list[int]) -> MaximumDependence | None:
    if not any(degrees) and not any(shifts):
        return INDEPENDENT
    if not any(shifts):
        match function:
            case "identity" | "scale" | "relu":
                return MaximumDependence(degree=degrees[0])
            case "mul" | "product":
                return MaximumDependence(degree=sum(degrees))
            case "divide":
                return MaximumDependence(degree=degrees[0] - degrees[1])
            case "log":
                return MaximumDependence(shift=degrees[0])
            case "add" | "subtract" if degrees[0] == degrees[1]:
                return MaximumDependence(degree=degrees[0])
    match function, any(degrees):
        case ("identity", False):
            return MaximumDependence(shift=shifts[0])
        case ("add", False):
            return MaximumDependence(shift=shifts[0] + shifts[1])
        case ("subtract", False):
            return MaximumDependence(shift=shifts[0] - shifts[1])
        case ("exp", False):
            return MaximumDependence(degree=shifts[0])
        case (("exp_difference" | "exp_selected"), False):
            return MaximumDependence(degree=shifts[0] - shifts[1])
        case ("softmax_from_stats", _) if not degrees[0] and not degrees[1] and not shifts[2]:
            return MaximumDependence(degree=shifts[0] - shifts[1] - degrees[2])
    return None
