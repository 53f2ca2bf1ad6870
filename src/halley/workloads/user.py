"""User graphs: einsums, elementwise functions and reductions, one per line, as a `Workload`.

Each line becomes one op with the name of its result, and one kernel. `halley.workloads.construction.notation` has the grammar.

| line | op |
|---|---|
| ``C[m,n] = A[m,k] * B[k,n]``, dims of both factors missing on the left | contract, on the matrix engine |
| ``O[f,p] = I[c,2p+r-1] * W[f,c,r]`` | contract that reads I at affine indices |
| ``Y[i] = A[i,j] * B[j,k] * C[k]``, three factors or more | the same product by product, from left to right |
| ``Y[m,n] = f(X[m,n], ...)`` or ``X[m,n] + ...`` | map |
| ``z[m] = sum(X[m,n])``, ``q[m] = sum(square(X[m,n]))`` | reduce over the dims missing on the left |
| ``Kn[n,d] = K[m,d]``, ``Y[n,m] = X[m,n]`` | copy, with dims renamed or reordered |
| ``I[c,h]`` | no op: I has these dims |
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.affine import AffineIndex
from halley.ir.workload import DTYPE_BYTES, FUNCTIONS, MONOIDS, Op, OpKind, Tensor, Workload
from halley.workloads.construction.notation import Call, LineFault, Place, Ref, Statement, Term, read
from halley.workloads.construction.parameters import SIZE_LIMIT, WorkloadKind, check, element_type, text

REDUCTIONS = tuple(name for name, monoid in MONOIDS.items() if monoid.arity == 1)
"""Monoids over one value; those over two are recurrences."""

STATES = {"softmax": "the maximum and the sum of exponentials", "welford": "the mean and the sum of squared deviations"}
"""Reductions with two result tensors."""

_EXTENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([0-9]{1,20})")


def graph(lines: str | Sequence[str], dims: Mapping[str, int], dtype: str = "bf16", outputs: Sequence[str] = ()) -> Workload:
    """The workload that the lines describe. ``dims``: extent of every dim; ``dtype``: element type of tensors without one;
    ``outputs``: the results, by default the tensors that no line reads.

    >>> work = graph("S[m,n] = A[m,k] * B[k,n]\\nR[m,n] = relu(S[m,n])", {"m": 4, "n": 5, "k": 6})
    >>> work.macs(), work.inputs, work.outputs
    (120, ('A', 'B'), ('R',))

    Raises BadInput with every fault of the lines, each with its line and column.
    """
    joined = lines if isinstance(lines, str) else "\n".join(lines)
    return graph_from_text(joined, extents_text(dims), dtype, " ".join(outputs) or None)


def graph_from_text(lines: str, dims: str, dtype: str = "bf16", outputs: str | None = None) -> Workload:
    """`graph` with all its arguments as text, as in the command line and in result files: dims like ``m=4 n=5``.

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"lines": lines, "dims": dims, "dtype": dtype, "outputs": outputs}
    check(GRAPH, given)
    extents, faults = _extents(dims)
    if faults:
        raise BadInput(faults)
    made, misfits = assemble(lines.splitlines(), extents, dtype, tuple(outputs.split()) if outputs else (), given)
    if made is None:
        raise BadInput(Fault(_place(item), item.expected, item.got, item.remedy) for item in misfits)
    return made


def dims_of(lines: str) -> tuple[str, ...]:
    """The dims that the lines of a graph name, in the order in which they first appear.

    >>> dims_of("C[m,n] = A[m,k] * B[k,n]")
    ('m', 'n', 'k')

    Raises BadInput with every fault of the lines.
    """
    statements, misfits = read(lines.splitlines())
    if misfits:
        raise BadInput(Fault(_place(item), item.expected, item.got, item.remedy) for item in misfits)
    refs = (ref for statement in statements for ref in (*statement.targets, *_all_refs(statement.value)))
    return tuple(dict.fromkeys(dim for ref in refs for dim in ref.dims))


def _all_refs(value: Term | None) -> Iterator[Ref]:
    """The tensors of an expression, from left to right."""
    if isinstance(value, Ref):
        yield value
    elif value is not None:
        for argument in value.arguments:
            yield from _all_refs(argument)


def extents_text(dims: Mapping[str, int]) -> str:
    """Extents as one text: ``m=4 n=5``."""
    return " ".join(f"{name}={extent}" for name, extent in dims.items())


def _place(misfit: LineFault) -> str:
    return f"graph, line {misfit.line}, column {misfit.column}" if misfit.line else "graph"


def _extents(dims: str) -> tuple[dict[str, int], list[Fault]]:
    extents: dict[str, int] = {}
    faults = []
    for word in dims.replace(",", " ").split():
        match = _EXTENT.fullmatch(word)
        where = "graph, dims"
        if not match or not 1 <= int(match[2]) <= SIZE_LIMIT:
            faults.append(Fault(where, f"dims with extents from 1 to {SIZE_LIMIT}, such as m=64 n=128", repr(word)))
        elif match[1] in extents:
            faults.append(Fault(where, "each dim once", f"{match[1]!r} again", "remove one"))
        else:
            extents[match[1]] = int(match[2])
    return extents, faults


def assemble(
    lines: Sequence[str],
    extents: Mapping[str, int],
    dtype: str = "bf16",
    outputs: Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
) -> tuple[Workload | None, list[LineFault]]:
    """The workload, or None and all faults (line 0: a fault of the whole graph)."""
    statements, misfits = read(lines)
    build = _Builder(extents, dtype, misfits)
    for statement in statements:
        build.add(statement)
    if not misfits:
        misfits += build.left_over(outputs)
    misfits.sort()
    if misfits:
        return None, misfits
    read_names = {name for op in build.ops for name in op.inputs}
    extents = {**extents, **build.own_dims}
    results = tuple(outputs) or tuple(name for name in build.made if name not in read_names)
    kernels = tuple((op.name,) for op in build.ops)
    work = Workload(
        GRAPH.name, dict(extents), build.tensors, tuple(build.ops), results, kernels=kernels, parameters=dict(parameters or {})
    )
    return work, []


@dataclass(slots=True)
class _Builder:
    """Tensors and ops so far; every fault goes to ``misfits``."""

    extents: Mapping[str, int]
    dtype: str
    misfits: list[LineFault]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    own_dims: dict[str, int] = field(default_factory=dict)
    """Extents of the dims of tensors that are read at sums before any line names their dims."""
    ops: list[Op] = field(default_factory=list)

    def add(self, statement: Statement) -> None:
        """Add the op of one line."""
        before = len(self.misfits)
        if statement.value is None:
            self._declare(statement.line, statement.targets[0])
            return
        pairs = _pairs(statement)
        if pairs:
            for pair in pairs:
                self.add(pair)
            return
        call, inner = _parts(statement.value)
        refs = self._refs(statement, inner if inner is not None else call if call is not None else statement.value)
        for ref in refs:
            self._tensor(statement.line, ref)
        for ref in statement.targets:
            self._new(statement.line, ref, [read.name for read in refs])
        self._calls(statement, call, inner, refs)
        if len(self.misfits) == before:
            op = self._op(statement, call, inner, refs)
            if op is not None:
                self.ops.append(op)

    def wrong(self, line: int, column: int, expected: str, got: str, remedy: str = "") -> None:
        self.misfits.append(LineFault(line, column, expected, got, remedy))

    def left_over(self, outputs: Sequence[str]) -> Iterator[LineFault]:
        """Faults of the graph as a whole."""
        if not self.ops:
            yield LineFault(0, 0, "at least one line such as C[m,n] = A[m,k] * B[k,n]", "none")
            return
        used = {dim for tensor in self.tensors.values() for dim in tensor.dims} | {dim for op in self.ops for dim in op.dims}
        for dim in self.extents:
            if dim not in used:
                yield LineFault(0, 0, "dims that a tensor has", repr(dim), "remove it")
        for name in outputs:
            if name not in self.made:
                yield LineFault(0, 0, "outputs that a line makes", repr(name), did_you_mean(name, self.made))

    # -- names

    def _refs(self, statement: Statement, value: Term) -> list[Ref]:
        """The tensors that a function takes as arguments; a nested function is a fault."""
        if isinstance(value, Ref):
            return [value]
        refs = []
        for argument in value.arguments:
            if isinstance(argument, Ref):
                refs.append(argument)
            else:
                remedy = "one function a line, or one inside a reduction; give the inner result a line of its own"
                self.wrong(statement.line, argument.column, "a tensor", f"the function {argument.name}", remedy)
        return refs

    def _tensor(self, line: int, ref: Ref) -> None:
        """A tensor in this line; the first line with the tensor defines its dims."""
        before = len(self.misfits)
        for dim in ref.dims:
            if dim not in self.extents:
                self.wrong(line, ref.column, f"known dims in {ref.name}", repr(dim), did_you_mean(dim, self.extents))
        if ref.dtype and ref.dtype not in DTYPE_BYTES:
            self.wrong(line, ref.column, "a known element type", repr(ref.dtype), did_you_mean(ref.dtype, DTYPE_BYTES))
        known = self.tensors.get(ref.name)
        if known is None:
            dims = ref.dims if ref.plain or len(self.misfits) > before else self._named(line, ref)
            self.tensors[ref.name] = Tensor(ref.name, dims, ref.dtype or self.dtype)
            self.seen[ref.name] = line
            return
        first = f"as on line {self.seen[ref.name]}"
        there, own = ",".join(known.dims), [dim for dim in known.dims if dim in self.own_dims]
        if len(known.dims) != len(ref.places) or (ref.plain and known.dims != ref.dims and not own):
            copied = f"to read it otherwise, copy it first: {ref.name}2[{ref.text}] = {ref.name}[{there}]"
            remedy = copied if len(ref.places) == len(known.dims) else ""
            self.wrong(line, ref.column, f"{ref.name}[{there}], {first}", f"[{ref.text}]", remedy)
        elif len(self.misfits) == before:
            for index in self._indices([ref]):
                start, last = index.positions({**self.extents, **self.own_dims})
                if index.dim in own and (start < 0 or last >= self.own_dims[index.dim]):
                    expected = f"places of {ref.name} that line {self.seen[ref.name]} has, or a line that says its dims"
                    self.wrong(line, ref.column, expected, f"{index} from {start} to {last}", self._remedy(ref))
        if ref.dtype and ref.dtype != known.dtype and ref.dtype in DTYPE_BYTES:
            self.wrong(line, ref.column, f"{known.dtype} for {ref.name}, {first}", ref.dtype, "name the type once")

    def _named(self, line: int, ref: Ref) -> tuple[str, ...]:
        """The dims of a tensor that is read at sums, and whose dims no line names: each as long as the largest sum."""
        dims: list[str] = []
        for number, place in enumerate(ref.places):
            if place.dim and place.dim not in dims:
                dims.append(place.dim)
                continue
            dims.append(f"{ref.name}_{number}")
            start, last = AffineIndex(dims[-1], place.terms, place.constant).positions(self.extents)
            self.own_dims[dims[-1]] = last + 1
            if start < 0 or dims[-1] in self.extents:
                expected, got = f"a line that says the dims of {ref.name}", f"{place} from {start}"
                self.wrong(line, ref.column, expected, got, self._remedy(ref))
        return tuple(dims)

    def _remedy(self, ref: Ref) -> str:
        """How to name the dims of a tensor that is read at sums."""
        free = (name for name in "hwxyzuv" if name not in self.extents)
        names = [place.dim or next(free, "h") for place in ref.places]
        return f"add for example the line {ref.name}[{','.join(names)}], and the extents of these dims"

    def _declare(self, line: int, ref: Ref) -> None:
        """A line that says the dims of a tensor."""
        if not ref.plain:
            expected = f"a dim of its own at each place of {ref.name}"
            self.wrong(line, ref.column, expected, f"[{ref.text}]", "a line without '=' names dims")
        elif ref.name in self.tensors:
            self.wrong(line, ref.column, f"the dims of {ref.name} before it is used", f"line {self.seen[ref.name]}", "move it up")
        else:
            self._tensor(line, ref)
            self.declared.add(ref.name)

    def _indices(self, refs: Sequence[Ref]) -> tuple[AffineIndex, ...]:
        """The affine indices at which tensors are read."""
        found = []
        for ref in refs:
            dims = self.tensors[ref.name].dims
            found += [AffineIndex(dim, at.terms, at.constant) for dim, at in zip(dims, ref.places, strict=True) if at.dim != dim]
        return tuple(dict.fromkeys(found))

    def _new(self, line: int, ref: Ref, sources: Sequence[str]) -> None:
        """A tensor that this line computes from the ``sources``."""
        if not ref.plain:
            self.wrong(line, ref.column, f"a dim of its own at each place of {ref.name}, which this line makes", f"[{ref.text}]")
            return
        if ref.name in self.declared and ref.name not in self.made and ref.name not in self.sources:
            self._tensor(line, ref)
            self.made[ref.name] = line
            self.sources.setdefault(ref.name, tuple(sources))
            return
        self.sources.setdefault(ref.name, tuple(sources))
        if ref.name not in self.tensors:
            self._tensor(line, ref)
            self.made[ref.name] = line
            return
        remedy = "use another name, or another order of lines"
        if ref.name in self.made:
            expected, got = "each tensor made once", f"{ref.name}, which line {self.made[ref.name]} makes"
        elif cycle := self._back_to(ref.name, sources):
            expected, got = "a graph without cycles", f"the cycle {' -> '.join((ref.name, *cycle))}"
            remedy = "use another name for the new value"
        else:
            expected, got = "a tensor made before it is read", f"{ref.name}, which line {self.seen[ref.name]} reads"
        self.wrong(line, ref.column, expected, got, remedy)

    def _back_to(self, name: str, sources: Sequence[str]) -> tuple[str, ...]:
        """The tensors on a dependency path from ``name`` back to ``name`` through ``sources``; empty if there is none."""
        ways: dict[str, tuple[str, ...]] = {}
        left: list[tuple[str, tuple[str, ...]]] = [(source, (name,)) for source in dict.fromkeys(sources)]
        while left:
            here, behind = left.pop()
            if here == name:
                return behind
            if here not in ways:
                ways[here] = (here, *behind)
                left += [(source, ways[here]) for source in self.sources.get(here, ())]
        return ()

    # -- functions

    def _calls(self, statement: Statement, call: Call | None, inner: Call | None, refs: Sequence[Ref]) -> None:
        """Function names, numbers of arguments, constants."""
        for each, known in ((call, (*FUNCTIONS, *REDUCTIONS)), (inner, tuple(FUNCTIONS))):
            if each is None:
                continue
            if each.name not in known:
                what = "a function" if each is inner else "a function or a reduction"
                self.wrong(statement.line, each.column, f"{what} that exists", repr(each.name), did_you_mean(each.name, known))
                continue
            function = MONOIDS[each.name] if each.name in REDUCTIONS and each is call else FUNCTIONS[each.name]
            if len(each.arguments) != function.arity:
                expected = f"{function.arity} argument{'s' if function.arity > 1 else ''} of {each.name} ({function.equation})"
                self.wrong(statement.line, each.column, expected, str(len(each.arguments)))
            wanted = function.constants if function.constants != ("count",) else ()  # a mean knows what it counts
            given = dict(each.constants)
            for name in given:
                if name not in wanted:
                    remedy = did_you_mean(name, wanted) if wanted else "remove it"
                    self.wrong(statement.line, each.column, f"known constants of {each.name}", repr(name), remedy)
            for name in wanted:
                if name not in given:
                    expected = f"the constant {name} of {each.name} ({function.equation})"
                    self.wrong(statement.line, each.column, expected, "nothing", f"add for example {name}=1")
        count = len(statement.targets)
        if call is not None and call.name in STATES:
            if count != 2:
                expected = f"two tensors on the left: {STATES[call.name]}"
                self.wrong(statement.line, statement.targets[0].column, expected, str(count))
        elif count > 1:
            self.wrong(statement.line, statement.targets[1].column, "one tensor on the left", str(count))

    # -- ops

    def _op(self, statement: Statement, call: Call | None, inner: Call | None, refs: Sequence[Ref]) -> Op | None:
        targets = statement.targets
        left, right = targets[0].dims, tuple(dict.fromkeys(dim for ref in refs for dim in ref.dims))
        inputs, outputs = tuple(ref.name for ref in refs), tuple(ref.name for ref in targets)
        name, missing = outputs[0], tuple(dim for dim in right if dim not in left)
        indices = self._indices(refs)
        if call is None:
            return self._copy(statement, refs[0])
        for other in targets[1:]:
            if set(other.dims) != set(left):
                self.wrong(statement.line, other.column, f"the dims of {name}", f"[{other.text}]")
                return None
        for dim in left:
            if dim not in right:
                expected = f"dims on the left that the right side has ({', '.join(right)})"
                self.wrong(statement.line, targets[0].column, expected, repr(dim), did_you_mean(dim, right))
                return None
        if call.name in REDUCTIONS:
            if not missing:
                self.wrong(statement.line, call.column, f"a dim that {name} lacks, for {call.name} to run over", "none")
                return None
            function, constants = (inner.name, dict(inner.constants)) if inner else ("identity", {})
            if call.name == "mean":
                constants["count"] = float(math.prod(self.extents[dim] for dim in missing))
            numbers = tuple(constants.items())
            over = (*left, *missing)
            return Op(name, OpKind.REDUCE, inputs, outputs, over, function, call.name, constants=numbers, indices=indices)
        if not missing:
            return Op(name, OpKind.MAP, inputs, outputs, left, call.name, constants=call.constants, indices=indices)
        if call.infix and call.name == "mul":
            return self._contract(statement, call, refs, missing)
        remedy = f"reduce it, as in sum({call.name}(...)), or add {', '.join(missing)} on the left"
        expected = f"all dims of the right side in {name}"
        self.wrong(statement.line, targets[0].column, expected, f"none of {', '.join(missing)}", remedy)
        return None

    def _contract(self, statement: Statement, call: Call, refs: Sequence[Ref], missing: tuple[str, ...]) -> Op | None:
        first, second = refs
        for dim in missing:
            if dim not in first.dims or dim not in second.dims:
                remedy = "for a sum on the vector engine write sum(mul(..., ...))"
                expected = f"{dim}, which the left side lacks, in both factors"
                self.wrong(statement.line, call.column, expected, "one that has it", remedy)
                return None
        left = statement.targets[0].dims
        names = (statement.targets[0].name,)
        over = (*left[:-1], *missing, *left[-1:])
        return Op(names[0], OpKind.CONTRACT, (first.name, second.name), names, over, indices=self._indices(refs))

    def _copy(self, statement: Statement, source: Ref) -> Op | None:
        target = statement.targets[0]
        if indices := self._indices([source]):
            if set(source.dims) != set(target.dims):
                expected = f"the dims that select an element of {source.name} ({', '.join(source.dims)}) on the left"
                self.wrong(statement.line, target.column, expected, f"[{target.text}]")
                return None
            return Op(target.name, OpKind.MAP, (source.name,), (target.name,), target.dims, indices=indices)
        old = [dim for dim in source.dims if dim not in target.dims]
        new = [dim for dim in target.dims if dim not in source.dims]
        sizes = [self.extents[dim] for dim in old], [self.extents[dim] for dim in new]
        if sizes[0] != sizes[1]:
            expected = f"a copy with the extents of {source.name}[{','.join(source.dims)}]"
            got = f"{', '.join(f'{dim}={self.extents[dim]}' for dim in (*old, *new))}"
            self.wrong(statement.line, target.column, expected, got, "to reduce dims, write for example sum(...)")
            return None
        if source.dims == target.dims:
            return Op(target.name, OpKind.MAP, (source.name,), (target.name,), target.dims)
        return Op(target.name, OpKind.PERMUTE, (source.name,), (target.name,), target.dims)


def _pairs(statement: Statement) -> list[Statement]:
    """A product of more than two tensors as products of two, from left to right; empty for all other lines. Each sums over the
    dims that nothing later needs."""
    value = statement.value
    if not isinstance(value, Call) or not value.infix or len(value.arguments) < 3 or len(statement.targets) != 1:
        return []
    factors = [factor for factor in value.arguments if isinstance(factor, Ref)]
    if len(factors) < len(value.arguments):
        return []
    (target,) = statement.targets
    made: list[Statement] = []
    product = factors[0]
    for number, factor in enumerate(factors[1:], 1):
        later = {dim for ref in (target, *factors[number + 1 :]) for dim in ref.dims}
        both = tuple(dict.fromkeys((*product.dims, *factor.dims)))
        missing = [dim for dim in both if dim not in later]
        call = Call("mul", (product, factor), (), value.column, infix=True)
        if any(dim not in product.dims or dim not in factor.dims for dim in missing):
            call = Call("sum", (Call("mul", (product, factor), (), value.column),), (), value.column)
        kept = tuple(Place(((dim, 1),)) for dim in both if dim in later)
        result = target if number == len(factors) - 1 else Ref(f"{target.name}_{number}", kept, target.dtype, target.column)
        made.append(Statement(statement.line, (result,), call))
        product = result
    return made


def _parts(value: Term) -> tuple[Call | None, Call | None]:
    """(the function or reduction of a line, the function inside the reduction)."""
    if isinstance(value, Ref):
        return None, None
    if value.name in REDUCTIONS and len(value.arguments) == 1 and isinstance(value.arguments[0], Call):
        return value, value.arguments[0]
    return value, None


GRAPH = WorkloadKind(
    "graph",
    "a graph of your own, written as einsums, functions and reductions",
    graph_from_text,
    (
        text("lines", "one operation a line, such as C[m,n] = A[m,k] * B[k,n]"),
        text("dims", "extents, such as m=64 n=64 k=32"),
        element_type(),
        text("outputs", "names of the results; the tensors that no line reads, unless given", None),
    ),
)
