"""Groups of kernels that may run as one on a chip that runs kernel by kernel: which there are in a training graph, and what each
op then adds.

    up | activate            ->  up with activate as its tail          (a product and the maps of its results)
    norm's gradient | sum    ->  norm's gradient and sum               (maps and reductions over the same points)

Two kernels of one pass make a group where the second reads what the first makes and nothing that runs between them needs the
first and is needed by the second. What only the two touch stays on the chip; what others read is still written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from halley.ir.workload import Op, OpKind, Workload
from halley.search.fused import walked
from halley.training.kernels import LOCAL, Share, TrainingGraph, kernels, shares_of

LEFT_OUT = (
    "fused groups of more than two kernels, of parts of kernels, across passes, of a product with a norm or softmax",
    "of fused groups that share a kernel, all but the one with a product, or else the first",
    "room that fused groups save: what stays between their kernels counts as if it were stored",
)
"""What no plan with fused groups does."""


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """Two kernels as one. ``first`` and ``second``: their ops; ``graph``: the training graph in which they are one kernel."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    graph: TrainingGraph

    @property
    def ops(self) -> tuple[str, ...]:
        """All its ops, in the order of the graph."""
        return (*self.first, *self.second)

    @property
    def name(self) -> str:
        """Its kernels, each by its first op."""
        return f"{'+'.join(self.first) if self._product else self.first[0]} | {self.second[0]}"

    @property
    def _product(self) -> bool:
        return self.graph.workload.op(self.first[0]).kind is OpKind.CONTRACT


@lru_cache(maxsize=256)
def fusions(graph: TrainingGraph) -> tuple[Fusion, ...]:
    """The groups of two kernels of a graph, no kernel in more than one: where it could be in several, in that with the product,
    else in the first.

    >>> from halley.training.kernels import training_graph
    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.mlp import gemm_gelu_gemm
    >>> found = fusions(training_graph(backward(gemm_gelu_gemm(4, 5, 6)), ["W1", "W2"]))
    >>> [group.name for group in found]
    ['expand | activate', 'contract_d_H | activate_d_F']
    """
    free = _candidates(graph)
    found, taken = list[Fusion](), set[str]()
    for first, second in sorted(free, key=lambda pair: graph.workload.op(pair[0][0]).kind is not OpKind.CONTRACT):
        if taken.isdisjoint((*first, *second)):
            taken.update((*first, *second))
            found.append(Fusion(first, second, replace(graph, shares={**graph.shares, **_joined(graph, first, second)})))
    return tuple(found)


def _candidates(graph: TrainingGraph) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pairs of kernels that may be one, in the order of the second."""
    work = graph.workload
    apart = [_whole(graph, kernel) for kernel in kernels(work)]
    known = [kernel for kernel in apart if kernel]
    behind, passes = _needed(work), graph.found.passes
    seconds = [kernel for kernel in known if all(work.op(name).kind in LOCAL for name in kernel)]
    pairs = ((first, second) for second in seconds for first in known if first is not second)
    same = (pair for pair in pairs if passes[pair[0][0]] == passes[pair[1][0]])
    return [pair for pair in same if _fits(work, *pair, behind)]


def _whole(graph: TrainingGraph, kernel: tuple[str, ...]) -> tuple[str, ...]:
    """A kernel with the products that it does as one; nothing where another stands for it, or for an attention core, or where
    its ops may be split in different ways."""
    shares = [graph.shares[name] for name in kernel]
    if any(share.part or share.core is not None for share in shares):
        return ()
    alike = len(kernel) == 1 or any(set(kernel) <= set(group) for group in graph.alike)
    return shares[0].merged or (kernel if alike else ())


def _fits(work: Workload, first: tuple[str, ...], second: tuple[str, ...], behind: Mapping[str, frozenset[str]]) -> bool:
    """Whether two kernels can be one."""
    ahead, after = [work.op(name) for name in first], [work.op(name) for name in second]
    made = {name for op in ahead for name in op.outputs}
    if not any(made.intersection(op.inputs) for op in after):
        return False
    inside = {*first, *second}
    between = set[str]().union(*(behind[name] for name in second)) - inside
    if any(not behind[name].isdisjoint(first) for name in between):
        return False
    if ahead[0].kind is OpKind.CONTRACT:
        return _tailed(work, ahead, after)
    together = frozenset.intersection(*(frozenset(walked(work, op)) for op in (*ahead, *after)))
    return bool(together) and all(op.kind in LOCAL for op in ahead) and _points(ahead) == _points(after)


def _tailed(work: Workload, products: list[Op], maps: list[Op]) -> bool:
    """Maps at each point of the results of products, all of which they read."""
    points = {frozenset(work.tensors[op.outputs[0]].dims) for op in products}
    same = points == {frozenset(op.dims) for op in maps} and len(points) == 1
    read = {name for op in maps for name in op.inputs}
    return same and all(op.kind is OpKind.MAP for op in maps) and all(op.outputs[0] in read for op in products)


def _points(ops: Collection[Op]) -> frozenset[str]:
    """The dims that a kernel of maps and reductions walks."""
    return frozenset(dim for op in ops for dim in op.dims)


def _joined(graph: TrainingGraph, first: tuple[str, ...], second: tuple[str, ...]) -> dict[str, Share]:
    """What each op adds where two kernels are one."""
    work = graph.workload
    found = dict(shares_of(graph.found, graph.weights, ((*first, *second),)))
    if work.op(first[0]).kind is not OpKind.CONTRACT:
        return found
    merged = graph.shares[first[0]].merged
    lead = {first[0]: replace(found[first[0]], merged=merged, tail=second)}
    rest = {name: replace(share, part=True) for name, share in found.items() if name != first[0]}
    return lead | rest


def _needed(work: Workload) -> dict[str, frozenset[str]]:
    """By op, all ops whose results it needs, at first or second hand."""
    makers = {name: op.name for op in work.ops for name in op.outputs}
    found: dict[str, frozenset[str]] = {}
    for op in work.ops:
        direct = {makers[name] for name in op.inputs if name in makers}
        found[op.name] = frozenset(direct).union(*(found[name] for name in direct))
    return found
