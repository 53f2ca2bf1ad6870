"""The kernels of a training graph: what each op contributes to its kernel.

Ops that the workload's ``kernels`` name together share a launch, and only tensors that cross the kernel's boundary pass through
memory. Inside, a reduction ends a pass over the data: ops that read its result need another pass, from the cache.

    kernel (mean, variance, rstd, normalise): X from memory | X from the cache | X from the cache, A to memory

A product is a separate kernel, and so are sums of partial results, because a collective may follow them. Products of one input
with several weights (queries, keys and values; gate and up) are one product, and so are their gradients. The attention core,
from the scores to the weighted values, is one kernel where it is fused (FlashAttention), and another one in the backward pass.
That one recomputes the scores: the graph repeats them, and saves the statistics of their rows. So is a scan by chunks, whose
backward kernel recomputes all of it from its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from halley.ir.workload import Op, OpKind, Workload, roles
from halley.memory.saved import saved_activations
from halley.rewrite.backward import Differentiated
from halley.rewrite.gradients import unused
from halley.rewrite.recompute import Recompute, chosen_ops, recompute
from halley.sharding.space import CompoundKernel
from halley.workloads.model import ChunkedScan

PARTIAL_SUM_KINDS = (OpKind.CONTRACT, OpKind.SCATTER, OpKind.GATHER)
"""Ops whose results may be partial sums that are added up before they are reduced."""

LOCAL_KINDS = (OpKind.MAP, OpKind.REDUCE)


@dataclass(frozen=True, slots=True)
class AttentionCore:
    """An attention core: its forward ``ops``, with the ``scores`` (several products in latent attention) and ``values``, the
    last product. ``causal``: under a mask."""

    ops: tuple[str, ...]
    scores: tuple[str, ...]
    values: str
    causal: bool


@dataclass(frozen=True, slots=True)
class ScanCore:
    """A scan by chunks as two kernels: the forward ``ops``, and those of the kernel ``behind``, in the backward pass."""

    ops: tuple[str, ...]
    behind: tuple[str, ...]
    scan: ChunkedScan


@dataclass(frozen=True, slots=True)
class OpContribution:
    """What an op contributes to its kernel.

    ``first``: it has the launch. ``opens``: it begins a pass. ``awaited``: a reduction that the kernel waits for; where ranks
    divide it, they reduce its result, and the kernel ends there. ``read``, ``written``: its tensors in memory; ``cached``:
    those that only pass through the cache. ``drawn``: random masks that it generates. ``summed``: the gradient of a weight that
    it produces and that is added to the sum over microbatches. ``merged``: products that it computes as one. ``core``: it
    represents a whole fused attention core, or a scan; with ``backward``, that of the backward pass. ``part``: another op
    represents it.
    """

    first: bool = True
    opens: bool = True
    awaited: bool = False
    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    summed: str = ""
    merged: tuple[str, ...] = ()
    core: AttentionCore | ScanCore | None = None
    backward: bool = False
    part: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TrainingGraph:
    """A graph with its backward pass, as kernels. ``contributions``: by op. ``same_split``: ops with the same split because one
    kernel has them. ``weights``: inputs that are trained. ``stored``: tensors that pass between kernels, or into or out of
    the graph; others are never in memory. ``products``: element type to which operands of products with weights are cast; "":
    none are. ``compounds``: the ops of scans."""

    found: Differentiated
    weights: tuple[str, ...]
    contributions: Mapping[str, OpContribution]
    same_split: tuple[tuple[str, ...], ...]
    stored: frozenset[str]
    products: str = ""
    compounds: tuple[CompoundKernel, ...] = ()

    @property
    def workload(self) -> Workload:
        return self.found.workload


def training_graph(
    found: Differentiated,
    weights: Collection[str],
    choice: Recompute = Recompute.NONE,
    fused: bool = True,
    products: str = "",
    scans: Collection[ChunkedScan] = (),
) -> TrainingGraph:
    """The graph with ``choice`` recomputed, as kernels; ``fused``: attention cores, and ``scans`` of the forward graph, are one
    kernel each; ``products``: as in `TrainingGraph`. All ops of a scan are split alike, also where they are kernels of their own.

    Fully recomputed layers run again as a whole, as in frameworks. Masks of dropout are generated again where their reader is
    recomputed. Tokens, targets and routes, a few bytes per token, are given to each op that reads them in the layout that it
    needs.

    Raises BadInput: a graph that already recomputes.
    """
    cores = attention_cores(found.workload, found.forward) if fused else ()
    again = _again(found, cores, tuple(scans) if fused else (), choice)
    known = _inputs_per_reader(_redrawn(_with_windows(recompute(found, again, whole=choice is Recompute.FULL))))
    shares = dict(_contributions(known, weights))
    alike, whole = [*_alike(known.workload), *_same_again(known)], list(kernels(known.workload))
    for siblings in _siblings(known):
        alike.append(siblings)
        shares |= {name: replace(shares[name], **more) for name, more in _merged(known, siblings)}
    for core in cores:
        names = _core_ops(known, core)
        shares |= dict.fromkeys(names, OpContribution(part=True))
        shares |= {name: OpContribution(core=core, backward=behind) for name, behind in _core_leaders(known, core)}
        alike.append(names)
        whole = [tuple(name for name in kernel if name not in names) for kernel in whole]
        whole += [core.ops, tuple(name for name in names if name not in core.ops)]
    compounds = []
    for scan in scans:
        names = _scan_ops(known, scan)
        alike.append(names)
        compounds.append(CompoundKernel(names, scan.heads))
        if not fused:
            continue
        shares |= dict.fromkeys(names, OpContribution(part=True))
        shares |= dict(_scan_leaders(known, scan, names))
        whole = [tuple(name for name in kernel if name not in names) for kernel in whole]
        whole += [scan.ops, tuple(name for name in names if name not in scan.ops)]
    stored = frozenset(_stored(known.workload, whole))
    return TrainingGraph(known, tuple(weights), shares, tuple(alike), stored, products, tuple(compounds))


def resized(graph: TrainingGraph, before: Workload, after: Workload) -> TrainingGraph | None:
    """The training graph of ``after`` from that of ``before``, if the two only differ in extents; else None.

    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.gemm import gemm
    >>> small, large = (training_graph(backward(gemm(m, 5, 6)), ["B"]) for m in (4, 8))
    >>> found = resized(small, gemm(4, 5, 6), gemm(8, 5, 6))
    >>> found is not None and found.workload == large.workload
    True
    """
    work = graph.workload
    if replace(before, dims=after.dims, parameters=after.parameters) != after or work.dims.keys() != after.dims.keys():
        return None
    return replace(graph, found=replace(graph.found, workload=replace(work, dims=after.dims, parameters=after.parameters)))


def attention_cores(workload: Workload, forward: Collection[str]) -> tuple[AttentionCore, ...]:
    """Products of weights and values whose weights are a softmax over the dims that they sum over, with all ops that lead to
    the weights from the products before; no other op reads the tensors between.

    >>> from halley.workloads.attention import attention
    >>> work = attention(1, 2, 2, 3, 4, 5)
    >>> attention_cores(work, [op.name for op in work.ops])[0].ops
    ('scores', 'scale', 'max', 'exp', 'sum', 'divide', 'values')
    """
    ops = [op for op in workload.ops if op.name in forward]
    found = (_core(workload, ops, op) for op in ops if op.kind is OpKind.CONTRACT)
    return tuple(core for core in found if core is not None)


def _core(workload: Workload, forward: list[Op], values: Op) -> AttentionCore | None:
    inside, waiting = {values.name}, [values.inputs[0]]
    scores, softmax = set[str](), set[str]()
    while waiting:
        op = workload.producer(waiting.pop())
        if op is None or op.name in inside:
            continue
        if op.kind is OpKind.CONTRACT:
            scores.add(op.name)
        elif op.kind in LOCAL_KINDS:
            waiting += op.inputs
            if op.kind is OpKind.REDUCE and workload.reduced(op) == workload.reduced(values):
                softmax.add(op.monoid)
            if op.function == "exp_difference":
                softmax.add(op.function)
        else:
            return None
        inside.add(op.name)
    ops = [op for op in forward if op.name in inside]
    made = {name for op in ops if op is not values for name in op.outputs}
    outside = made & {*workload.outputs, *(name for op in forward if op.name not in inside for name in op.inputs)}
    if not scores or not softmax.issuperset({"max", "sum", "exp_difference"}) or outside:
        return None
    causal = any(dict(op.constants).get("causal") == 1.0 for op in ops)
    return AttentionCore(tuple(op.name for op in ops), tuple(op.name for op in ops if op.name in scores), values.name, causal)


def _again(
    found: Differentiated, cores: tuple[AttentionCore, ...], scans: tuple[ChunkedScan, ...], choice: Recompute
) -> set[str]:
    """The ops that are recomputed. Of a fused core, unless the whole layer is: all but the statistics of rows, which are saved,
    and the values, which the backward pass does not need. Of a scan: all but the last one."""
    again = set(chosen_ops(found, choice))
    if choice is not Recompute.FULL:
        for core in cores:
            kinds = {name: found.workload.op(name).kind for name in core.ops if name != core.values}
            again = (again - set(core.ops)) | {name for name, kind in kinds.items() if kind is not OpKind.REDUCE}
        for scan in scans:
            again = (again - set(scan.ops)) | set(scan.ops[:-1])
    return again


def _core_ops(found: Differentiated, core: AttentionCore) -> tuple[str, ...]:
    """The core's ops in the forward graph, recomputed ones, and those of the backward pass; named as `backward` and `recompute`
    do."""
    work = found.workload
    inside = {name for op in core.ops if op != core.values for name in work.op(op).outputs}
    names = {*core.ops, *(f"again_{name}" for name in core.ops)}
    names |= {f"{name}_d_{source}" for name in core.ops for source in work.op(name).inputs}
    names |= {f"sum_d_{name}" for name in inside}
    return tuple(op.name for op in work.ops if op.name in names)


def _scan_ops(found: Differentiated, scan: ChunkedScan) -> tuple[str, ...]:
    """The ops of a scan in the forward graph, recomputed ones, and those of the backward pass, with the sums of gradients that
    only come from these; named as `backward` and `recompute` do."""
    names, made = {*scan.ops, *(f"again_{name}" for name in scan.ops)}, set[str]()
    for op in found.backward:
        of_scan = any(op.name.startswith(f"{name}_d_") for name in scan.ops)
        if of_scan or (op.name.startswith(("sum_d_", "copy_d_")) and made.issuperset(op.inputs)):
            names.add(op.name)
            made.update(op.outputs)
    return tuple(op.name for op in found.workload.ops if op.name in names)


def _scan_leaders(found: Differentiated, scan: ChunkedScan, names: tuple[str, ...]) -> Iterator[tuple[str, OpContribution]]:
    """The ops that represent the scan, each with all dims that its kernel splits: its last one, again where it is recomputed, and
    the first one of its backward pass."""
    work, last = found.workload, scan.ops[-1]
    behind = tuple(name for name in names if name not in (*scan.ops, f"again_{last}"))
    core = ScanCore(scan.ops, behind, scan)
    first = next(name for name in behind if found.passes[name] == "backward" and set(scan.heads) <= set(work.op(name).dims))
    yield last, OpContribution(core=core)
    if f"again_{last}" in names:
        yield f"again_{last}", OpContribution(core=core)
    yield first, OpContribution(core=core, backward=True)


def _core_leaders(found: Differentiated, core: AttentionCore) -> Iterator[tuple[str, bool]]:
    """The ops that represent the core: its last product, again where it is recomputed, and the first op of its backward pass."""
    work, values = found.workload, found.workload.op(core.values)
    wanted = {core.values: False, f"again_{core.values}": False, f"{core.values}_d_{values.inputs[0]}": True}
    return ((op.name, wanted[op.name]) for op in work.ops if op.name in wanted)


def _with_windows(found: Differentiated) -> Differentiated:
    """Windows, which are copies, are neither saved nor written for the backward pass: each of its kernels that reads them takes
    them of their sequence."""
    work, forward = found.workload, len(found.forward) + len(found.repeated)
    ops, tensors, names = list(work.ops), dict(work.tensors), {op.name for op in work.ops}
    parts = [list(kernel) for kernel in work.kernels]
    for window in (op for op in work.ops if op.kind is OpKind.WINDOW):
        (made,) = window.outputs
        for kernel in parts:
            readers = [n for n, op in enumerate(ops) if n >= forward and op.name in kernel and made in op.inputs]
            if not readers or window.name in kernel:
                continue
            copy = unused(f"again_{made}", tensors)
            tensors[copy] = replace(work.tensors[made], name=copy)
            for number in readers:
                inputs = tuple(copy if name == made else name for name in ops[number].inputs)
                ops[number] = replace(ops[number], inputs=inputs)
            again = replace(window, name=unused(f"again_{window.name}", names), outputs=(copy,))
            names.add(again.name)
            kernel.insert(kernel.index(ops[readers[0]].name), again.name)
            ops.insert(readers[0], again)
    return replace(found, workload=replace(work, ops=tuple(ops), tensors=tensors, kernels=tuple(map(tuple, parts))))


def _redrawn(found: Differentiated) -> Differentiated:
    """Masks that a recomputed op reads become separate inputs from there on: they are generated again instead of saved."""
    work, repeated = found.workload, found.backward[: len(found.repeated)]
    new = {name: f"again_{name}" for op in repeated for name in op.inputs if _mask(work, name)}
    if not new:
        return found
    behind = {op.name for op in found.backward}
    ops = tuple(
        replace(op, inputs=tuple(new.get(name, name) for name in op.inputs)) if op.name in behind else op for op in work.ops
    )
    tensors = dict(work.tensors) | {again: replace(work.tensors[name], name=again) for name, again in new.items()}
    return replace(found, workload=replace(work, tensors=tensors, ops=ops))


def _inputs_per_reader(found: Differentiated) -> Differentiated:
    """Indices of the batch become a separate input of each reader: no collective moves them, and no layout ties their readers."""
    work = found.workload
    given = {name for name in work.inputs if work.tensors[name].dtype == "int32"}
    tensors = {name: tensor for name, tensor in work.tensors.items() if name not in given}
    ops = []
    for op in work.ops:
        own = {name: unused(f"{name}_of_{op.name}", tensors) for name in op.inputs if name in given}
        tensors |= {new: replace(work.tensors[name], name=new) for name, new in own.items()}
        ops.append(replace(op, inputs=tuple(own.get(name, name) for name in op.inputs)))
    return replace(found, workload=replace(work, tensors=tensors, ops=tuple(ops)))


def _mask(workload: Workload, name: str) -> bool:
    """A mask of dropout: bytes that come with the batch."""
    return workload.tensors[name].dtype == "int8" and workload.producer(name) is None


# --- kernels of maps and reductions -------------------------------------------------------------------------------------


def _contributions(found: Differentiated, weights: Collection[str]) -> Iterator[tuple[str, OpContribution]]:
    return contributions_of(found, weights, kernels(found.workload))


def contributions_of(
    found: Differentiated, weights: Collection[str], parts: Iterable[tuple[str, ...]]
) -> Iterator[tuple[str, OpContribution]]:
    """What each op of these kernels contributes."""
    work = found.workload
    readers: dict[str, list[str]] = {}
    for op in work.ops:
        for name in op.inputs:
            readers.setdefault(name, []).append(op.name)
    gradients = {found.gradients[name] for name in weights if name in found.gradients}
    for kernel in parts:
        yield from _of_kernel(work, [work.op(name) for name in kernel], readers, gradients)


def kernels(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """The workload's kernels, or single ops if it names none; products and sums of partial results separately.

    >>> from halley.workloads.gemm import gemm_softmax
    >>> kernels(gemm_softmax(4, 5, 6))
    (('gemm',), ('max', 'exp', 'sum', 'divide'))
    """
    sums, found = _sums(workload), list[tuple[str, ...]]()
    for kernel in workload.kernels or tuple((op.name,) for op in workload.ops):
        found += [(name,) for name in kernel if workload.op(name).kind is OpKind.CONTRACT]
        rest = [name for name in kernel if workload.op(name).kind is not OpKind.CONTRACT]
        groups = (tuple(name for name in rest if (name in sums) is first) for first in (True, False))
        found += [group for group in groups if group]
    return tuple(found)


def _sums(workload: Workload) -> set[str]:
    """Additions of possibly partial sums: of products, gathers and scatters, and of such additions."""
    found = set[str]()
    for op in workload.ops:
        if op.kind is OpKind.MAP and op.function == "add":
            makers = [workload.producer(name) for name in op.inputs]
            if all(maker is not None and (maker.kind in PARTIAL_SUM_KINDS or maker.name in found) for maker in makers):
                found.add(op.name)
    return found


def _alike(workload: Workload) -> Iterator[tuple[str, ...]]:
    """Maps and reductions of one kernel. (Gathers and scatters have strategies of their own.)"""
    sums = _sums(workload)
    for kernel in kernels(workload):
        group = tuple(name for name in kernel if workload.op(name).kind in LOCAL_KINDS and name not in sums)
        if len(group) > 1:
            yield group


def _same_again(found: Differentiated) -> Iterator[tuple[str, ...]]:
    """Recomputed ops, each with its repetition: the same function is called again. Gathers and scatters with their gradients,
    which return the same way."""
    later = {op.name: op for op in found.backward}
    for op in map(found.workload.op, found.forward):
        names = [f"again_{op.name}"]
        if op.kind in (OpKind.GATHER, OpKind.SCATTER):
            names += [f"{op.name}_d_{source}" for source in op.inputs]
        same = [name for name in names if name in later]
        if same:
            yield (op.name, *same)


def _siblings(found: Differentiated) -> Iterator[tuple[str, ...]]:
    """Forward products of one input over the same dims, with a common dim among their columns, that with most dims first. Of
    products that have none in common, those of each dim of columns."""
    work = found.workload
    groups: dict[tuple[object, ...], list[Op]] = {}
    for op in map(work.op, found.forward):
        if op.kind is OpKind.CONTRACT:
            role, made = roles(work, op), work.tensors[op.outputs[0]].dtype
            key = op.inputs[0], frozenset(role.rows), frozenset(role.reduced), frozenset(role.batch), made
            groups.setdefault(key, []).append(op)
    for group in groups.values():
        columns = {op.name: set(roles(work, op).columns) for op in group}
        left = group
        while left:
            # the widest set of products that share a dim of the columns
            dims = dict.fromkeys(dim for op in left for dim in roles(work, op).columns)
            same = max(([op for op in left if dim in columns[op.name]] for dim in dims), key=len, default=[])
            if len(same) > 1:
                yield tuple(op.name for op in sorted(same, key=lambda op: -len(op.dims)))
            left = [op for op in left if op not in same] if same else []


def _merged(found: Differentiated, siblings: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Changes to the contributions of siblings, their repetitions and gradients: the first represents all of them. The gradient
    of their input is one sum of products."""
    work = found.workload
    known = {op.name for op in work.ops}
    source = work.op(siblings[0]).inputs[0]
    weights = [work.op(name).inputs[1] for name in siblings]
    gradients = tuple(f"{name}_d_{weight}" for name, weight in zip(siblings, weights, strict=True))
    entering = tuple(f"{name}_d_{source}" for name in siblings)
    for group in (siblings, tuple(f"again_{name}" for name in siblings), gradients, entering):
        if known.issuperset(group):
            yield group[0], {"merged": group}
            yield from ((name, {"part": True}) for name in group[1:])
    made = {name for op in work.ops if op.name in entering for name in op.outputs}
    for op in work.ops:
        if op.function == "add" and made.issuperset(op.inputs):
            made.update(op.outputs)
            yield op.name, {"part": True}


def _of_kernel(
    work: Workload, kernel: list[Op], readers: Mapping[str, list[str]], gradients: Collection[str]
) -> Iterator[tuple[str, OpContribution]]:
    """What each op of a kernel contributes. A tensor from outside comes from memory once, and from the cache in later passes,
    as do results of earlier passes; the results of reductions, a number per row, stay in registers."""
    inside, passes = {op.name for op in kernel}, _passes(kernel)
    touched: dict[str, set[int]] = {}
    for op in kernel:
        here = passes[op.name]
        opens = here not in {passes[name] for name in itertools.takewhile(op.name.__ne__, passes)}
        fresh = [name for name in dict.fromkeys(op.inputs) if here not in touched.get(name, ())]
        makers = {name: work.producer(name) for name in fresh}
        outside = [name for name, maker in makers.items() if maker is None or maker.name not in inside]
        new = [name for name in outside if name not in touched]
        drawn = [name for name in new if _mask(work, name) and readers[name][0] == op.name]
        again = [name for name in fresh if name not in new]
        cached = [name for name in again if (maker := makers[name]) is None or maker.kind is not OpKind.REDUCE]
        left = {name for name in (*drawn, *op.outputs) if name in work.outputs or not inside.issuperset(readers.get(name, ()))}
        for name in (*fresh, *op.outputs):
            touched.setdefault(name, set()).add(here)
        share = OpContribution(
            first=op is kernel[0],
            opens=opens,
            awaited=op.kind is OpKind.REDUCE and any(not inside.isdisjoint(readers.get(name, ())) for name in op.outputs),
            read=tuple(name for name in new if name not in drawn),
            written=tuple(name for name in (*drawn, *op.outputs) if name in left),
            cached=tuple(cached),
            drawn=tuple(drawn),
            summed=next((name for name in op.outputs if name in gradients), ""),
        )
        yield op.name, share


def _passes(kernel: list[Op]) -> dict[str, int]:
    """By op, the number of its pass. A reduction ends its pass."""
    found, ready = dict[str, int](), dict[str, int]()
    for op in kernel:
        found[op.name] = max((ready.get(name, 0) for name in op.inputs), default=0)
        ready |= dict.fromkeys(op.outputs, found[op.name] + (op.kind is OpKind.REDUCE))
    return found


def _stored(work: Workload, whole: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Tensors that are not internal to a kernel."""
    kernel_of = {name: number for number, kernel in enumerate(whole) for name in kernel}
    made = {name: kernel_of[op.name] for op in work.ops for name in op.outputs}
    yield from (name for name in work.tensors if name not in made or name in work.outputs)
    yield from (name for op in work.ops for name in op.inputs if name in made and made[name] != kernel_of[op.name])


# --- memory -------------------------------------------------------------------------------------------------------------


def saved_tensors(graph: TrainingGraph) -> tuple[str, ...]:
    """Tensors that a microbatch saves from the forward to the backward pass, without weights."""
    return saved_activations(graph.workload, [op.name for op in graph.found.backward], graph.weights).tensors


def lifetimes(graph: TrainingGraph) -> tuple[tuple[str, ...], ...]:
    """By op, the tensors in memory while it runs, from their producer to their last reader; without weights, their gradients,
    saved tensors and internal tensors of kernels."""
    work = graph.workload
    still = {*saved_tensors(graph), *(graph.found.gradients.get(name, "") for name in graph.weights)}
    last = {name: number for number, op in enumerate(work.ops) for name in op.inputs}
    found, alive = list[tuple[str, ...]](), tuple[str, ...]()
    for number, op in enumerate(work.ops):
        alive = (*alive, *(name for name in op.outputs if name in graph.stored and name not in still))
        found.append(alive)
        alive = tuple(name for name in alive if last.get(name, number) > number)
    return tuple(found)
