"""Cost formulas as straight-line programs: lower bounds of sets of mappings.

`evaluate` runs once on symbolic tile sizes and returns terms. A term in the tile sizes of one dim only is a *factor*: a table
over the choices for that dim. The remaining arithmetic, on factors of several dims, is converted to a normal form: sums of
products with one factor per dim, and maxima of such sums. The normal form is short, and merges all terms of one dim into one
factor. `Program` evaluates it. With the minimum (where a factor is subtracted: the maximum) of each factor over a set of choices,
the result is a lower bound of the costs of all of them; for sets of one choice it is the cost, except for rounding.

Terms are assumed to be non-negative, as sizes, counts, bytes, times and energies are. A sum that may be negative (a range beyond
the extent) is clipped at zero, as in the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from halley.cost.programs.grid import SWITCH, Grid, cheapest_order
from halley.cost.programs.instructions import Array as Array
from halley.cost.programs.instructions import Code, Instruction, NumpyCode, Place, allocated, apply, made_of, numpy_code, tabulate
from halley.cost.programs.instructions import Indices as Indices
from halley.formulas.numbers import Number
from halley.formulas.terms import Operation, Term, TermFactory

_CONSTANT, _OPEN, _ADD, _SUBTRACT = Operation.CONSTANT, Operation.OPEN, Operation.ADD, Operation.SUBTRACT
_MULTIPLY, _DIVIDE, _MINIMUM, _MAXIMUM = Operation.MULTIPLY, Operation.DIVIDE, Operation.MINIMUM, Operation.MAXIMUM
# members by plain names, as in `halley.formulas.terms`

NUMPY_CALL_TIME, NUMPY_VALUE_TIME = 1e-6, 1e-9
"""Approximate time [s] of a NumPy call, and of each of its values."""

ROWS_PER_BLOCK = 1 << 14
"""Rows computed at once: the three registers of an instruction fit in a core's cache; with fewer rows the call overhead of NumPy
dominates."""


CACHED_FORMS_LIMIT = 1 << 17
"""Largest number of cached normal forms: a long search makes millions, but needs those of a shape only while compiling it."""

Product = tuple[int, ...]
"""Basis indices of the multiplied items, ascending; at most one factor of each dim."""

Sum = dict[Product, float]
"""Coefficients by product."""

Key = tuple[tuple[Product, float], ...]
"""A sum as a hashable value."""


class Factor(NamedTuple):
    """A table to load for a factor: its dim, its term, and whether the maximum over the set is needed instead of the minimum."""

    kind: str
    term: Term
    upper: bool


class Opaque(NamedTuple):
    """An operation on sums that cannot be expressed as a sum of products."""

    operation: Operation
    arguments: tuple[Key, ...]


class NormalForms:
    """Normal forms of terms, cached.

    Factors are assumed to be non-negative; the code that tabulates them must check it. With ``differences`` a factor may be a
    difference, such as visits minus the first one. Bounds are then tighter, but if a difference is negative for some choice, the
    form without differences must be used."""

    def __init__(self, terms: TermFactory, differences: bool = True) -> None:
        self.terms = terms
        self.differences = differences
        self.basis: list[Term | Opaque] = []
        self._kind: list[str] = []  # for each item of the basis, the dim of a factor; empty for other items
        self._place: dict[object, int] = {}
        self._sums: dict[int, Sum] = {}
        self._products: dict[tuple[Product, Product], tuple[Product, float]] = {}
        self._merged: dict[Key, Key] = {}
        self._keys: dict[int, Key] = {}
        self._least: dict[int, float] = {}

    def key(self, number: Number) -> Key:
        """The normal form of a term or number."""
        if not isinstance(number, Term):
            return (((), float(number)),)
        if len(self._sums) > CACHED_FORMS_LIMIT:  # mostly of shapes that are already compiled; the basis is kept
            self._sums, self._products, self._merged, self._keys = {}, {}, {}, {}
        sums = self._sums
        left: list[Term] = [number]
        while left:  # operands first, without recursion, as sums can be long
            term = left[-1]
            if term.index not in sums:
                if len(term.kinds) > 1 and (waiting := [part for part in term.operands if part.index not in sums]):
                    left += waiting
                    continue
                sums[term.index] = self._sum(term)
            left.pop()
        return self._key(number)

    def _key(self, term: Term) -> Key:
        """The merged normal form of a term whose sum is known."""
        found = self._keys.get(term.index)
        if found is None:
            found = self._keys[term.index] = self._merge(self._sums[term.index])
        return found

    def _sum(self, term: Term) -> Sum:
        if len(term.kinds) <= 1:
            return self._factor(term)
        operation = term.operation
        if operation is _MAXIMUM or operation is _MINIMUM:
            return self._extreme(operation, term.a, term.b)
        if operation is _ADD or operation is _SUBTRACT:
            return _added(self._sums[term.a.index], self._sums[term.b.index], 1.0 if operation is _ADD else -1.0)
        if operation is _MULTIPLY:
            return self._multiplied(self._sums[term.a.index], self._sums[term.b.index])
        if operation is _DIVIDE and len(divisor := self._sums[term.b.index]) == 1:
            return self._divided(self._sums[term.a.index], *next(iter(divisor.items())), term)
        return self._opaque(Opaque(operation, tuple(map(self._key, term.operands))))

    def _factor(self, term: Term) -> Sum:
        """A factor, with its constant coefficient separated."""
        coefficient = 1.0
        while True:
            operation = term.operation
            if operation is _CONSTANT:
                return {(): coefficient * term.a}
            if operation is _MULTIPLY and term.a.operation is _CONSTANT:
                coefficient, term = coefficient * term.a.a, term.b
            elif operation is _MULTIPLY and term.b.operation is _CONSTANT:
                coefficient, term = coefficient * term.b.a, term.a
            elif operation is _DIVIDE and term.b.operation is _CONSTANT:
                coefficient, term = coefficient / term.b.a, term.a
            else:
                return {(self._at(term.index, term),): coefficient}

    def _at(self, key: object, item: Term | Opaque) -> int:
        place = self._place.setdefault(key, len(self.basis))
        if place == len(self.basis):
            self.basis.append(item)
            self._kind.append(next(iter(item.kinds), "") if isinstance(item, Term) else "")
        return place

    def _opaque(self, part: Opaque) -> Sum:
        return {(self._at(part, part),): 1.0}

    def _multiplied(self, a: Sum, b: Sum) -> Sum:
        result: Sum = {}
        known = self._products
        for first, x in a.items():
            for second, y in b.items():
                product, coefficient = known.get((first, second)) or self._product(first, second)
                result[product] = result.get(product, 0.0) + x * y * coefficient
        return result

    def _product(self, first: Product, second: Product) -> tuple[Product, float]:
        """The product of two products: factors of the same dim are merged."""
        if not first:
            return second, 1.0
        if not second:
            return first, 1.0
        found = self._products.get((first, second))
        if found is None:
            of, coefficient = self._kind, 1.0
            at = {of[place]: place for place in first if of[place]}
            left: list[int] = []
            for place in second:
                if of[place] in at:
                    joined = self.terms.combine(_MULTIPLY, self.basis[at[of[place]]], self.basis[place])
                    (((at[of[place]],), scale),) = self._factor(joined).items()
                    coefficient *= scale
                else:
                    left.append(place)
            left += [at[of[place]] if of[place] else place for place in first]
            found = tuple(sorted(left)), coefficient
            self._products[first, second] = found
        return found

    def _divided(self, a: Sum, divisor: Product, coefficient: float, term: Term) -> Sum:
        """A sum divided by one product: multiplied by the inverse of each of its factors."""
        items = [self.basis[place] for place in divisor]
        if not all(isinstance(item, Term) for item in items):
            return self._opaque(Opaque(term.operation, (self._merge(a), ((divisor, coefficient),))))
        inverse: Sum = {(): 1.0 / coefficient}
        for item in items:
            inverse = self._multiplied(inverse, self._factor(self.terms.combine(Operation.DIVIDE, 1, item)))
        return self._multiplied(a, inverse)

    def _extreme(self, operation: Operation, a: Term, b: Term) -> Sum:
        """Nested maxima (or minima) flattened; alternatives that cannot be the maximum are dropped."""
        first, second = self._alternatives(operation, a), self._alternatives(operation, b)
        if operation is _MAXIMUM:  # each side's own were compared before
            first = _not_below(first, second)
            second = _not_below(second, first)
        kept = tuple(sorted({*first, *second}))
        return dict(kept[0]) if len(kept) == 1 else self._opaque(Opaque(operation, kept))

    def _alternatives(self, operation: Operation, term: Term) -> tuple[Key, ...]:
        """The arguments of a nested maximum (or minimum); for other terms, the term's sum itself."""
        item = self._sums[term.index]
        if len(item) == 1:
            ((product, coefficient),) = item.items()
            part = self.basis[product[0]] if len(product) == 1 and coefficient == 1.0 else None
            if isinstance(part, Opaque) and part.operation is operation:
                return part.arguments
        return (self._key(term),)

    def _merge(self, item: Sum) -> Key:
        """The sum with products merged that differ only in the factor of one dim: these factors are added."""
        key = tuple(sorted((product, c) for product, c in item.items() if c != 0.0))
        if len(key) < 2:
            return key
        if key not in self._merged:
            self._merged[key] = self._joined(key)
        return self._merged[key]

    def _joined(self, key: Key) -> Key:
        of = self._kind
        kinds = sorted({of[place] for place in {place for product, _ in key for place in product}} - {""})
        products = dict(key)
        for kind in kinds:
            groups: dict[tuple[Product, bool], list[tuple[int, float, Product]]] = {}
            for product, coefficient in products.items():
                own, rest = -1, product
                for place in product:
                    if of[place] == kind:
                        at = product.index(place)
                        own, rest = place, product[:at] + product[at + 1 :]
                        break
                group = rest, self.differences or coefficient > 0
                if group in groups:
                    groups[group].append((own, coefficient, product))
                else:
                    groups[group] = [(own, coefficient, product)]
            products = {}
            for (rest, _), members in groups.items():
                if len(members) == 1:
                    ((_, coefficient, product),) = members
                    products[product] = products.get(product, 0.0) + coefficient
                    continue
                sign = -1.0 if all(coefficient < 0 for _, coefficient, _ in members) else 1.0
                total: Number = 0
                for place, coefficient, _ in members:
                    factor: Any = self.basis[place] if place >= 0 else 1.0  # a term: nothing else has a kind
                    total = total + sign * (coefficient * factor)
                joined: Sum = self._factor(total) if isinstance(total, Term) else {(): float(total)}
                joined = {product: sign * coefficient for product, coefficient in joined.items()}
                for own_product, coefficient in joined.items():
                    product, scale = self._product(rest, own_product)
                    products[product] = products.get(product, 0.0) + coefficient * scale
            if min(products.values()) < 0.0:
                products = self._parted(products, kind)
        return tuple(sorted((product, c) for product, c in products.items() if c != 0.0))

    def _parted(self, products: Sum, kind: str) -> Sum:
        """Split products that have a factor with few possible values into (minimum of the factor) x rest and a non-negative
        remainder, so that subtracted products can be merged with the former."""
        result: Sum = {}
        for product, coefficient in products.items():
            own = next((place for place in product if self._kind[place] == kind), -1)
            least = self._at_least(own) if own >= 0 and coefficient > 0.0 else 0.0
            parts = {product: coefficient}
            if least > 0.0:
                rest = tuple(place for place in product if place != own)
                parts = {rest: coefficient * least}
                for further, scale in self._factor(cast(Term, self.basis[own]) - least).items():
                    whole, more = self._product(rest, further)
                    parts[whole] = parts.get(whole, 0.0) + coefficient * scale * more
            for part, amount in parts.items():
                result[part] = result.get(part, 0.0) + amount
        return result

    def _at_least(self, place: int) -> float:
        """The minimum of a factor if all its open numbers have finite ranges; else 0."""
        if place not in self._least:
            term = cast(Term, self.basis[place])
            opened = [part for part in made_of([term]) if part.operation is Operation.OPEN]
            ranges = [part.b for part in opened]
            few = all(most is not None for _, most in ranges)
            grid = np.meshgrid(*(np.arange(least, most + 1.0) for least, most in ranges)) if few else []
            columns = {part.a: axis.ravel() for part, axis in zip(opened, grid, strict=False)}
            self._least[place] = float(tabulate([term], columns)[0].min()) if few else 0.0
        return self._least[place]


def _added(a: Sum, b: Sum, sign: float) -> Sum:
    result = dict(a)
    for product, coefficient in b.items():
        result[product] = result.get(product, 0.0) + sign * coefficient
    return result


def _not_below(keys: tuple[Key, ...], others: tuple[Key, ...]) -> tuple[Key, ...]:
    """The sums that are above each of the others for some values of the (non-negative) products."""
    sums = [dict(other) for other in others]
    found: list[Key] = []
    for key in keys:
        for other in sums:
            if _below(key, other):
                break
        else:
            found.append(key)
    return tuple(found)


def _below(a: Key, b: Sum) -> bool:
    """Whether a <= b for all values of the (non-negative) products."""
    for product, c in a:
        if c > b.get(product, 0.0):
            return False
    if min(b.values(), default=0.0) >= 0.0:
        return True
    mine = dict(a)
    return all(c >= 0.0 for product, c in b.items() if product not in mine)


class Program:
    """Computes lower bounds of ``outputs`` (terms or numbers), in their order."""

    def __init__(self, normal: NormalForms | None, outputs: Sequence[Number]) -> None:
        """Without ``normal``, the program has the terms as they are, valid only for sets of one choice. It is as long as the
        formulas, while a normal form can be much longer."""
        writer = _Writer(normal) if normal is not None else _Copier()
        self.outputs = tuple(writer.output(output) for output in outputs)
        self.factors = writer.factors
        self.values = writer.code
        self._ready: NumpyCode | None = None
        self._prepared: tuple[Sequence[Array], Any] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def code(self) -> Code:
        """The code with allocated registers, on one level. It is not cached, as a search has thousands of programs."""
        return allocated(self.values, self.outputs, [0] * len(self.values))

    def __call__(self, tables: Sequence[Array], choices: Mapping[str, Indices], rows: int) -> Array:
        """Lower bounds, outputs x rows. ``tables``: for each factor, its value by node; ``choices``: by dim, a node per row.

        The accelerator caches the last tables: they must not be changed in place."""
        kernels = SWITCH.loops()
        if kernels is not None:
            if self._prepared is None or self._prepared[0] is not tables:
                self._prepared, self._ready = (tables, kernels.CompiledProgram(self.code, self.factors, tables)), None
            return cast(Array, self._prepared[1](choices, rows))
        loads = [(tables[at].take, factor.kind) for at, factor in enumerate(self.factors)]
        if self._ready is None:
            self._ready = numpy_code(self.code)
        calls, constants, outputs, needed = self._ready
        result = np.empty((len(outputs), rows))
        held = np.empty((needed, min(rows, ROWS_PER_BLOCK)))
        for start in range(0, rows, ROWS_PER_BLOCK):
            stop = min(rows, start + ROWS_PER_BLOCK)
            registers = [*held[:, : stop - start], *constants]
            nodes = {kind: own[start:stop] for kind, own in choices.items()}
            for function, a, b, target in calls:
                if function is None:
                    take, kind = loads[a]
                    take(nodes[kind], None, registers[target], "clip")
                else:
                    function(registers[a], registers[b], out=registers[target])
            for row, place in enumerate(outputs):
                result[row, start:stop] = registers[place] if isinstance(place, int) else place
        SWITCH.spent += len(calls) * (math.ceil(rows / ROWS_PER_BLOCK) * NUMPY_CALL_TIME + rows * NUMPY_VALUE_TIME)
        return result

    def grid(self, tables: Sequence[Array], choices: Mapping[str, Indices]) -> Grid:
        """The grid of all combinations of the ``choices`` (nodes by dim), traversed in the order of its dims, the last
        contiguous.

        `order` gives the fastest order. All dims of the factors must be present; a dim without factors only multiplies the
        size."""
        kinds = [factor.kind for factor in self.factors]
        if empty := sorted(dim for dim in {*kinds, *choices} if not len(choices.get(dim, ()))):
            raise ValueError(f"grid: expected choices for every dim; got none for {', '.join(empty)}")
        columns = [table.take(choices[kind], mode="clip") for table, kind in zip(tables, kinds, strict=True)]
        return Grid(self.values, self.outputs, kinds, columns, {dim: len(nodes) for dim, nodes in choices.items()})

    def order(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        """The order of the dims with the least work for a grid with these numbers of choices."""
        return cheapest_order(self.values, [factor.kind for factor in self.factors], counts)


class _Writer:
    """Generates the instructions for normal forms; every value has its own number, constants are floats."""

    def __init__(self, normal: NormalForms) -> None:
        self.normal = normal
        self.factors: list[Factor] = []
        self.code: list[Instruction] = []
        self._steps: dict[object, int] = {}
        self._sums: dict[tuple[Key, bool], Place] = {}
        self._items: dict[tuple[int, bool], Place] = {}

    def output(self, number: Number) -> Place:
        return self.sum(self.normal.key(number), False)

    def _step(self, operation: Operation, a: Place, b: Place = 0.0) -> int:
        key = (operation, a, b, type(a), type(b))
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = len(self.code)
            self.code.append(Instruction(operation, found, a, b))
        return found

    def sum(self, key: Key, upper: bool) -> Place:
        """The lower (or upper) bound of a sum."""
        known = (key, upper)
        place = self._sums.get(known)
        if place is None:
            constant = 0.0
            found: int | None = None
            negative = False
            for product, coefficient in key:
                negative = negative or coefficient < 0.0
                value = self.product(product, upper is not (coefficient < 0.0))
                if isinstance(value, float):
                    constant += coefficient * value
                else:
                    scaled = int(value) if coefficient == 1.0 else self._step(_MULTIPLY, value, coefficient)
                    found = scaled if found is None else self._step(_ADD, found, scaled)
            if found is not None and constant:
                found = self._step(_ADD, found, constant)
            if found is not None and negative:
                found = self._step(_MAXIMUM, found, 0.0)
            place = self._sums[known] = constant if found is None else found
        return place

    def product(self, product: Product, upper: bool) -> Place:
        result: Place = 1.0
        for number in product:
            value = self._items.get((number, upper))
            if value is None:
                item = self.normal.basis[number]
                value = self._load(item, upper) if isinstance(item, Term) else self._opaque(item, upper)
                self._items[number, upper] = value
            if isinstance(result, float) and isinstance(value, float):
                result = result * value
            elif result == 1.0 and isinstance(result, float):
                result = value
            elif isinstance(value, float):
                result = self._step(_MULTIPLY, result, value)
            else:
                result = self._step(_MULTIPLY, value, result)
        return result

    def _load(self, term: Term, upper: bool) -> int:
        found = len(self.code)
        self.code.append(Instruction(_OPEN, found, len(self.factors), 0.0))
        self.factors.append(Factor(next(iter(term.kinds)), term, upper))
        return found

    def _opaque(self, part: Opaque, upper: bool) -> Place:
        falls = part.operation in (_DIVIDE, Operation.FLOOR_DIVIDE, Operation.CEIL_DIVIDE)
        values = [self.sum(key, upper is not (falls and at == 1)) for at, key in enumerate(part.arguments)]
        if all(isinstance(value, float) for value in values):
            return float(apply(part.operation, *(np.float64(value) for value in values)))
        if part.operation is Operation.POSITIVE:
            return self._step(Operation.POSITIVE, values[0])
        found = values[0]
        for value in values[1:]:
            found = self._step(part.operation, found, value)
        return found


class _Copier:
    """Generates the instructions for terms as they are; terms of one dim are loaded as factors."""

    def __init__(self) -> None:
        self.factors: list[Factor] = []
        self.code: list[Instruction] = []
        self._places: dict[int, Place] = {}

    def output(self, number: Number) -> Place:
        """The place of a number's value."""
        if not isinstance(number, Term):
            return float(number)
        left: list[Term] = [number]
        while left:  # operands first, without recursion
            term = left[-1]
            if term.index not in self._places:
                if len(term.kinds) > 1 and (waiting := [part for part in term.operands if part.index not in self._places]):
                    left += waiting
                    continue
                self._places[term.index] = self._write(term)
            left.pop()
        return self._places[number.index]

    def _write(self, term: Term) -> Place:
        if term.operation is Operation.CONSTANT:
            return float(term.a)
        target = len(self.code)
        if len(term.kinds) <= 1:
            self.code.append(Instruction(Operation.OPEN, target, len(self.factors), 0.0))
            self.factors.append(Factor(next(iter(term.kinds)), term, False))
        else:
            b = 0.0 if term.b is None else self._places[term.b.index]
            self.code.append(Instruction(term.operation, target, self._places[term.a.index], b))
        return target
