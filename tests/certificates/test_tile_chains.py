"""Tables of factors over sets of tile-size chains: each entry is the extreme over the chains of its set."""

from __future__ import annotations

import numpy as np
import pytest

from halley.cost.programs.instructions import tabulate
from halley.cost.programs.program import Factor
from halley.formulas.numbers import Number, ceil_div
from halley.formulas.terms import TermFactory
from halley.mapping.space.stages import Slot
from halley.mapping.space.tile_chains import ChainTree


def _sizes(extent: int) -> tuple[int, ...]:
    return tuple(sorted({-(-extent // parts) for parts in range(1, extent + 1)}))


@pytest.mark.parametrize("shared", [0, 1])
def test_tables_have_the_extremes_of_every_set(shared: int) -> None:
    """By enumeration of the chains of each node; tables that are asked for again, among others, are the same."""
    terms = TermFactory()
    outer, inner = terms.open("outer", "m"), terms.open("inner", "m")
    symbols: dict[str, Number] = {"outer": outer, "inner": inner}
    slots = (Slot("outer", "m", _sizes, lambda tiles: 24), Slot("inner", "m", _sizes, lambda tiles: tiles["outer"]))
    tree = ChainTree("m", slots, shared, symbols)
    rising, falling, negative = ceil_div(outer, inner) * inner, 24 / inner, outer - 5 * inner
    factors = [Factor("m", term, upper) for term in (rising, falling, negative) for upper in (False, True)]
    first = tree.tables(factors[1:4])
    tables = tree.tables(factors)
    assert all(again is own for again, own in zip(tables[1:4], first, strict=True))
    for factor, table in zip(factors, tables, strict=True):
        (values,) = tabulate([factor.term], tree.columns)
        extreme = max if factor.upper else min
        expected = [extreme(values[at : at + size]) for at, size in zip(tree.start, tree.size, strict=True)]
        assert table.tolist() == expected
        assert tree.negative(factor) is bool(np.min(expected) < 0)
