"""Construction of the backward part of a graph: names, tensors, contributions to each gradient, and their sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from halley.ir.affine import AffineIndex
from halley.ir.workload import Op, OpKind, Tensor, Workload


class GradientGraph:
    """Ops are added in order; a forward tensor receives *contributions*, whose sum `gradient` returns.

    A contribution may lack dims of its tensor: it is then constant along them (the backward of a sum), and is broadcast by the op
    that reads it, if possible.
    """

    def __init__(self, workload: Workload, active: Collection[str]) -> None:
        self.workload = workload
        self.tensors: dict[str, Tensor] = dict(workload.tensors)
        self.ops: list[Op] = []
        self._active = frozenset(active)
        self._contributions: dict[str, list[str]] = {}
        self._totals: dict[str, str | None] = {}
        self._gradients: dict[str, str | None] = {}
        self._owners: dict[str, str] = {}
        self._op_names = {op.name for op in workload.ops}
        self._kernel = 0
        self._kernels: dict[str, int] = {}

    def needs(self, tensor: str) -> bool:
        """Whether the gradient of the tensor is needed: requested, or an intermediate step to a requested one."""
        return tensor in self._active

    def dims(self, tensor: str) -> tuple[str, ...]:
        return self.tensors[tensor].dims

    def begin(self, kernel: int) -> None:
        """Ops added from now on belong to the backward of this forward kernel."""
        self._kernel = kernel

    def seed(self, output: str) -> str:
        """Add an input that holds the gradient of an output; its name."""
        name = self._tensor(f"d_{output}", replace(self.workload.tensors[output], name=""))
        self.give(output, name)
        return name

    def give(self, target: str, tensor: str) -> None:
        """Add an existing tensor to the contributions to the target's gradient."""
        self._contributions.setdefault(target, []).append(tensor)

    def make(
        self,
        source: Op,
        target: str,
        kind: OpKind,
        inputs: Sequence[str],
        dims: Sequence[str],
        over: Iterable[str],
        function: str = "identity",
        monoid: str = "",
        along: str = "",
        constants: Mapping[str, float] | None = None,
        indices: tuple[AffineIndex, ...] = (),
        outputs: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Add an op with iteration space ``over`` to the backward of ``source``. Its result has ``dims`` and the element type of
        ``target``. ``outputs``: the targets of an op with several results. Returns the names of the result tensors."""
        targets = tuple(outputs) or (target,)
        made = tuple(
            self._tensor(f"d_{name}_by_{source.name}", Tensor("", tuple(dims), self.tensors[name].dtype)) for name in targets
        )
        self._owners |= dict(zip(made, targets, strict=True))
        name = self._op_name(f"{source.name}_d_{target}")
        numbers = tuple((constants or {}).items())
        op = Op(name, kind, tuple(inputs), made, tuple(over), function, monoid, along=along, constants=numbers, indices=indices)
        self._add(op)
        return made

    def total(self, target: str) -> str | None:
        """The sum of a tensor's contributions; it may lack dims of the tensor. None if there are no contributions."""
        if target not in self._totals:
            self._totals[target] = self._add_up(target)
        return self._totals[target]

    def gradient(self, target: str) -> str | None:
        """The sum of a tensor's contributions with all dims of the tensor, in its order."""
        if target not in self._gradients:
            total = self.total(target)
            full = total is None or self.dims(total) == self.dims(target)
            self._gradients[target] = total if total is None or full else self.copy(target, total)
        return self._gradients[target]

    def copy(self, target: str, tensor: str) -> str:
        """A copy of the tensor with the dims and the element type of the target."""
        return self._sum(target, "identity", (tensor,), self.dims(target))

    def prune(self, results: Collection[str]) -> None:
        """Remove ops on which no result depends, such as the gradient of a maximum that does not influence the outputs."""
        needed, left = set(results), []
        for op in reversed(self.ops):
            if needed.intersection(op.outputs):
                needed.update(op.inputs)
                left.append(op)
        self.ops = left[::-1]
        made = {name for op in self.ops for name in op.outputs}
        self.tensors = {name: item for name, item in self.tensors.items() if name not in self._owners or name in made}

    def kernels(self) -> tuple[tuple[str, ...], ...]:
        """Kernels: consecutive backward ops of one forward kernel together; each contraction alone."""
        groups: list[list[str]] = []
        open_for: int | None = None
        for op in self.ops:
            kernel = self._kernels[op.name]
            alone = op.kind is OpKind.CONTRACT
            if alone or kernel != open_for:
                groups.append([])
            groups[-1].append(op.name)
            open_for = None if alone else kernel
        return tuple(map(tuple, groups))

    def named(self) -> dict[str, str]:
        """New names ``d_<tensor>`` for tensors that are complete gradients."""
        taken = set(self.tensors)
        found = {}
        for target, tensor in (self._totals | self._gradients).items():
            wanted = f"d_{target}"
            if tensor is not None and tensor != wanted and self._owners.get(tensor) == target and wanted not in taken:
                found[tensor] = wanted
        return found

    def _add_up(self, target: str) -> str | None:
        parts = self._contributions.get(target, [])
        if not parts:
            return None
        own = self.dims(target)
        # contributions with fewer dims last: they are added to sums that have the dims
        parts = sorted(parts, key=lambda name: -len(self.dims(name)))
        total = parts[0]
        for part in parts[1:]:
            covered = {*self.dims(total), *self.dims(part)}
            total = self._sum(target, "add", (total, part), tuple(dim for dim in own if dim in covered))
        return total

    def _sum(self, target: str, function: str, inputs: tuple[str, ...], dims: tuple[str, ...]) -> str:
        made = self._tensor(f"d_{target}_sum", Tensor("", dims, self.tensors[target].dtype))
        self._owners[made] = target
        word = "sum" if function == "add" else "copy"
        self._add(Op(self._op_name(f"{word}_d_{target}"), OpKind.MAP, inputs, (made,), dims, function))
        return made

    def _add(self, op: Op) -> None:
        self.ops.append(op)
        self._kernels[op.name] = self._kernel

    def _tensor(self, wanted: str, tensor: Tensor) -> str:
        name = unused(wanted, self.tensors)
        self.tensors[name] = replace(tensor, name=name)
        return name

    def _op_name(self, wanted: str) -> str:
        name = unused(wanted, self._op_names)
        self._op_names.add(name)
        return name


def unused(wanted: str, taken: Collection[str]) -> str:
    """The name, with a number appended if it is taken.

    >>> unused("dX", {"dX", "dX_2"})
    'dX_3'
    """
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name
