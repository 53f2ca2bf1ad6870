"""Recomputation as a rewrite of graphs: tensors that the backward pass reads are recomputed instead of saved.

    forward: S, P, O; backward reads P   ->   forward: S, P, O; again: S, P; backward reads the second P

The caller chooses the ops. Two choices are common (Korthikanti et al., arXiv 2205.05198): the whole forward graph from its inputs
(*full*), or attention from the scores to their softmax (*selective*: large tensors, little work).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Op, OpKind, Workload
from halley.rewrite.backward import Differentiated
from halley.rewrite.gradients import unused


class Recompute(StrEnum):
    """The common choices of ops to recompute."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


def recompute(found: Differentiated, ops: Recompute | Collection[str], whole: bool = False) -> Differentiated:
    """The same gradients, with the results of the given forward ops recomputed at the start of the backward pass.

    ``ops``: names of forward ops, or a common choice. Ops whose results the backward pass needs are repeated: the ops
    ``again_<op>`` compute the tensors ``again_<tensor>``, in the same kernels as in the forward graph. ``whole``: all given ops
    are repeated, including those with unused results, as in frameworks that call the forward function again.

    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.attention import attention
    >>> found = recompute(backward(attention(1, 2, 2, 3, 4, 5)), Recompute.SELECTIVE)
    >>> found.repeated, found.saved
    (('scores', 'scale', 'max', 'exp', 'sum', 'divide'), ('Q', 'K', 'V'))

    Raises BadInput: a name that no forward op has, a graph that is recomputed already.
    """
    work = found.workload
    forward = {op.name: op for op in work.ops[: len(found.forward)]}
    chosen = set(chosen_ops(found, ops) if isinstance(ops, Recompute) else ops)
    where = f"recompute of {work.name}"
    faults = [Fault(where, "forward ops", repr(name), did_you_mean(name, forward)) for name in sorted(chosen - set(forward))]
    if found.repeated:
        faults.append(Fault(where, "a graph without repeated ops", f"one that repeats {found.repeated[0]}", "choose all at once"))
    if faults:
        raise BadInput(faults)
    given = [op for name, op in forward.items() if name in chosen]
    repeated = given if whole else _needed(found, given)
    if not repeated:
        return found
    return _with_repeated(found, repeated)


def chosen_ops(found: Differentiated, choice: Recompute) -> tuple[str, ...]:
    """The forward ops of a common choice.

    Selective: the exponentials of every softmax, and the masks by decay of scans, the ops after them up to the next contraction
    (excluded), and the ops before them back to the previous contraction (included).
    """
    match choice:
        case Recompute.NONE:
            return ()
        case Recompute.FULL:
            return found.forward
        case Recompute.SELECTIVE:
            core: set[str] = set()
            forward = found.workload.ops[: len(found.forward)]
            for op in forward:
                if op.name not in core and (op.function == "decay_mask" or _of_softmax(found.workload, op)):
                    core |= _upstream(found.workload, op) | _downstream(forward, op)
            return tuple(op.name for op in forward if op.name in core)


_LOCAL = (OpKind.MAP, OpKind.REDUCE)


def _of_softmax(workload: Workload, op: Op) -> bool:
    """Whether an op takes the exponentials of differences to a row's maximum."""
    if op.function not in ("exp_difference", "exp_selected"):
        return False
    largest = workload.producer(op.inputs[1])
    return largest is None or largest.kind in _LOCAL


def _upstream(workload: Workload, op: Op) -> set[str]:
    """The op and its predecessors, back to contractions (included)."""
    found, waiting = {op.name}, [op]
    while waiting:
        for name in waiting.pop().inputs:
            source = workload.producer(name)
            if source is not None and source.name not in found and source.kind in (*_LOCAL, OpKind.CONTRACT):
                found.add(source.name)
                if source.kind in _LOCAL:
                    waiting.append(source)
    return found


def _downstream(forward: Collection[Op], op: Op) -> set[str]:
    """The successors of the op before the next contraction."""
    found, made = set(), set(op.outputs)
    for each in forward:
        if each.kind in _LOCAL and made.intersection(each.inputs):
            found.add(each.name)
            made.update(each.outputs)
    return found


def _needed(found: Differentiated, chosen: list[Op]) -> list[Op]:
    """The chosen ops whose results the backward pass reads, and the chosen ops that these need."""
    wanted = {name for op in found.backward for name in op.inputs}
    needed = []
    for op in reversed(chosen):
        if wanted.intersection(op.outputs):
            needed.append(op)
            wanted.update(op.inputs)
    return needed[::-1]


def _with_repeated(found: Differentiated, repeated: list[Op]) -> Differentiated:
    work = found.workload
    tensors, names = dict(work.tensors), {op.name for op in work.ops}
    again: dict[str, str] = {}
    copies: dict[str, Op] = {}
    for op in repeated:
        for name in op.outputs:
            again[name] = unused(f"again_{name}", tensors)
            tensors[again[name]] = replace(work.tensors[name], name=again[name])
        copies[op.name] = replace(_renamed(op, again), name=unused(f"again_{op.name}", names))
    ops = (
        *work.ops[: len(found.forward)],
        *copies.values(),
        *(replace(op, inputs=tuple(again.get(name, name) for name in op.inputs)) for op in found.backward),
    )
    own = [kernel for kernel in work.kernels if kernel[0] in found.forward]
    repeats = (tuple(copies[name].name for name in kernel if name in copies) for kernel in own)
    kernels = (*own, *filter(None, repeats), *work.kernels[len(own) :])
    whole = replace(work, tensors=tensors, ops=ops, kernels=kernels)
    return replace(found, workload=whole, repeated=tuple(copies))


def _renamed(op: Op, names: dict[str, str]) -> Op:
    def of(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in tensors)

    return replace(
        op,
        inputs=of(op.inputs),
        outputs=of(op.outputs),
        running=of(op.running),
        scaled_by=names.get(op.scaled_by, op.scaled_by),
    )
