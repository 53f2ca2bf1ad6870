"""Backward pass as a rewrite of graphs: forward -> forward and backward.

    S = A B; P = softmax(S)  ->  ... ; dS = P (dP - sum of dP P); dA = dS B^T; dB = A^T dS

The ops are differentiated in reverse order (`halley.rewrite.pullbacks`); gradients of a tensor from several readers are added up.
Backward ops and gradients are ordinary ops and tensors: they are sharded, fused, scheduled and costed like others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.rewrite.gradients import GradientGraph
from halley.rewrite.invariance import is_independent
from halley.rewrite.pullbacks import pull_back, pull_back_softmax


@dataclass(frozen=True, slots=True)
class Differentiated:
    """A graph with its backward pass.

    ``workload``: forward ops, then backward ops; its outputs are those of the forward graph and the gradients. ``forward``:
    names of the forward ops. ``seeds``: by output, the input that holds its gradient. ``gradients``: by requested tensor, its
    gradient; two tensors may share one. ``repeated``: forward ops that the start of the backward pass recomputes
    (`halley.rewrite.recompute`).
    """

    workload: Workload
    forward: tuple[str, ...]
    seeds: Mapping[str, str]
    gradients: Mapping[str, str]
    repeated: tuple[str, ...] = ()

    @property
    def backward(self) -> tuple[Op, ...]:
        """The ops after the forward ones."""
        return self.workload.ops[len(self.forward) :]

    @property
    def passes(self) -> dict[str, str]:
        """By op, in order, the pass that it belongs to: ``forward``, ``recompute`` or ``backward``."""
        ahead, again = len(self.forward), len(self.repeated)
        numbers = enumerate(self.workload.ops)
        return {op.name: "forward" if n < ahead else "recompute" if n < ahead + again else "backward" for n, op in numbers}

    @property
    def saved(self) -> tuple[str, ...]:
        """Tensors saved from the forward for the backward pass: those that it reads but neither computes nor gets as a seed.

        They include weights and other inputs of the forward graph, in the order of the workload's tensors.
        """
        made = {name for op in self.backward for name in op.outputs}
        read = {name for op in self.backward for name in op.inputs} - made - set(self.seeds.values())
        return tuple(name for name in self.workload.tensors if name in read)


def backward(workload: Workload, outputs: Sequence[str] | None = None, wrt: Sequence[str] | None = None) -> Differentiated:
    """The graph with the gradients of ``wrt`` when each output receives a gradient (a new input ``d_<output>``).

    ``outputs``: those of the workload unless given. ``wrt``: inputs or other tensors; by default all inputs that are not
    integers. The gradient of T is the tensor ``d_T``, or an equal tensor (both terms of a sum have the gradient of the sum). It
    has the element type of T. Backward ops are named ``<op>_d_<input>``, sums ``sum_d_<tensor>``. Kernels: each contraction
    alone; the other backward ops of one forward kernel together.

    >>> from halley.workloads.gemm import gemm
    >>> found = backward(gemm(4, 5, 6))
    >>> [(op.name, op.inputs, op.dims) for op in found.backward]
    [('gemm_d_A', ('d_C', 'B'), ('m', 'n', 'k')), ('gemm_d_B', ('A', 'd_C'), ('k', 'm', 'n'))]
    >>> found.saved, found.workload.macs() == 3 * gemm(4, 5, 6).macs()
    (('A', 'B'), True)

    Raises BadInput: tensors that the workload lacks, an output that is not a float, an op without derivative, a tensor that no
    output depends on.
    """
    ends = tuple(workload.outputs if outputs is None else outputs)
    asked = tuple(_floating(workload) if wrt is None else wrt)
    _check(workload, ends, asked)
    graph = GradientGraph(workload, _active(workload, asked))
    seeds = {name: graph.seed(name) for name in ends}
    places = {name: i for i, kernel in enumerate(workload.kernels) for name in kernel}
    softmaxes = _softmaxes(workload, {*ends, *asked})
    for number, op in reversed(list(enumerate(workload.ops))):
        graph.begin(places.get(op.name, len(places) + number))
        if op.name in softmaxes:
            pull_back_softmax(graph, op, *softmaxes[op.name])
        elif any(graph.needs(name) for name in op.inputs):
            pull_back(graph, op, lambda maximum: is_independent(workload, maximum, ends))
    graph.begin(-1)
    found = {name: graph.gradient(name) for name in asked}
    if wrt is not None:
        _check_found(workload, found)
    given = set(seeds.values())
    complete = {name: graph.copy(name, item) if item in given else item for name, item in found.items() if item is not None}
    graph.prune(complete.values())
    return _finished(workload, graph, seeds, complete)


def _finished(workload: Workload, graph: GradientGraph, seeds: Mapping[str, str], gradients: Mapping[str, str]) -> Differentiated:
    named = graph.named()

    def name(tensor: str) -> str:
        return named.get(tensor, tensor)

    ops = tuple(replace(op, inputs=tuple(map(name, op.inputs)), outputs=tuple(map(name, op.outputs))) for op in graph.ops)
    tensors: dict[str, Tensor] = {name(key): replace(tensor, name=name(key)) for key, tensor in graph.tensors.items()}
    results = {key: name(tensor) for key, tensor in gradients.items()}
    kernels = workload.kernels or tuple((op.name,) for op in workload.ops)
    whole = replace(
        workload,
        tensors=tensors,
        ops=(*workload.ops, *ops),
        outputs=tuple(dict.fromkeys((*workload.outputs, *results.values()))),
        kernels=(*kernels, *graph.kernels()),
    )
    return Differentiated(whole, tuple(op.name for op in workload.ops), dict(seeds), results)


def _floating(workload: Workload) -> Iterable[str]:
    return (name for name in workload.inputs if not _integer(workload, name))


def _integer(workload: Workload, tensor: str) -> bool:
    return workload.tensors[tensor].dtype.startswith("int")


def _active(workload: Workload, asked: Iterable[str]) -> set[str]:
    """The requested tensors and all that depend on them: the only ones whose gradients are needed."""
    found = set(asked)
    for op in workload.ops:
        if found.intersection(op.inputs):
            found.update(op.outputs)
    return found


def _softmaxes(workload: Workload, named: Collection[str]) -> dict[str, tuple[Op, Op]]:
    """Softmaxes that are written out as exponentials, their sum, and a division: by the division's name, the ops of exponentials
    and sum. Softmaxes whose intermediate tensors are in ``named`` (requested, or outputs) are left out."""
    found = {}
    for op in workload.ops:
        if op.kind is not OpKind.MAP or op.function != "divide":
            continue
        exponential, total = (workload.producer(name) for name in op.inputs)
        if (
            exponential is not None
            and total is not None
            and exponential.kind is OpKind.MAP
            and exponential.function in ("exp_difference", "exp_selected")
            and (total.kind, total.function, total.monoid) == (OpKind.REDUCE, "identity", "sum")
            and total.inputs == exponential.outputs
            and {each.name for each in workload.consumers(op.inputs[0])} == {op.name, total.name}
            and {each.name for each in workload.consumers(op.inputs[1])} == {op.name}
            and not set(op.inputs).intersection(named)
            # one number is subtracted from all elements of a row
            and set(workload.tensors[exponential.inputs[1]].dims) <= set(workload.tensors[op.inputs[1]].dims)
        ):
            found[op.name] = exponential, total
    return found


def _check(workload: Workload, outputs: Sequence[str], wrt: Sequence[str]) -> None:
    where = f"backward of {workload.name}"
    faults = [
        Fault(where, "known tensors", repr(name), did_you_mean(name, workload.tensors))
        for name in dict.fromkeys((*outputs, *wrt))
        if name not in workload.tensors
    ]
    for name in dict.fromkeys((*outputs, *wrt)):
        if name in workload.tensors and _integer(workload, name):
            faults.append(Fault(where, "tensors of real numbers", f"{name} of {workload.tensors[name].dtype}"))
    if not outputs or not wrt:
        faults.append(Fault(where, "at least one output and one tensor to differentiate by", "none"))
    if faults:
        raise BadInput(faults)


def _check_found(workload: Workload, found: Mapping[str, str | None]) -> None:
    lost = [name for name, gradient in found.items() if gradient is None]
    if lost:
        raise BadInput(
            Fault(f"backward of {workload.name}", "tensors that an output depends on", ", ".join(lost), "leave them out of wrt")
        )
