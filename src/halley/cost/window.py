"""Counts over dims that are read at a sum of two others, whose tiles overlap (docs/model.md, "Windows").

If a tensor over h is read at p + r, a loop over p or r narrows h: the window of a tile of a points of p and a tile of b points of
r has a + b - 1 points. Summed over tiles this is a sum of products of sums over p and over r.
"""

from __future__ import annotations

from collections.abc import Mapping

from halley.cost.counting import Axes, AxisName, Counter, CountingScope, DimFactor, Loop, Sums
from halley.cost.masking import MaskCounter
from halley.formulas.numbers import Number, ceil_div, positive
from halley.formulas.tiling import Split, covered, steps, visits, windowed
from halley.ir.hardware import Chip
from halley.ir.masks import masks
from halley.ir.workload import Window, Workload


def counter_of(workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> Counter:
    """The counter for a workload: with windows, with masks, or the basic one."""
    made = WindowCounter if workload.windows else MaskCounter if masks(workload) else Counter
    return made(workload, chip, totals, times, sums)


class WindowCounter(Counter):
    """A `Counter` for dims that windows read, whose tiles overlap. Such a dim is tiled either by its own loops, around ops that
    iterate it, or by loops over base and offset, around ops that read windows of it; never by both."""

    def __init__(self, workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> None:
        super().__init__(workload, chip, totals, times, sums)
        self._windows = workload.windows

    def _cut(self, dim: str, loops: tuple[Loop, ...]) -> Window | None:
        """The window whose base or offset narrows a dim in these loops, or None."""
        window = self._windows.get(dim)
        narrowed = window is not None and any(loop.dim in (window.base, window.offset) for loop in loops)
        return window if narrowed else None

    def boxes(
        self,
        dims: tuple[str, ...],
        scope: CountingScope,
        loops: tuple[Loop, ...],
        each: Axes,
        critical: Axes = frozenset(),
        leaf: Mapping[str, DimFactor] | None = None,
        skip: tuple[str, ...] = (),
    ) -> Number:
        """As for `Counter`: members with different tiles of the base have different windows, so each of them counts."""
        windows = [window for window in (self._cut(dim, loops) for dim in dims) if window is not None]
        if not windows:
            return super().boxes(dims, scope, loops, each, critical, leaf, skip)
        summed = {window.dim for window in windows}
        rest = tuple(dim for dim in dims if dim not in summed)
        adding = tuple(dim for window in windows for dim in (window.base, window.offset))
        others = {dim: along for dim, along in leaf.items() if dim not in summed} if leaf else None
        result = super().boxes(rest, scope, loops, each, critical, others, (*skip, *adding))
        every = self._less(self._every, critical)
        for window in windows:
            if leaf and window.dim in leaf:
                result = result * leaf[window.dim](every)
                continue
            base, offset = window.base, window.offset
            result = result * windowed(
                self._sum(base, loops, every, steps, "steps"),
                self.visits(base, loops, every),
                self.covered(offset, loops, every),
                self.visits(offset, loops, every),
            )
        return result

    def folds(self, dim: str, loops: tuple[Loop, ...], summed: Axes, width: int, beside: int = 1, multiple: int = 1) -> Number:
        """As for `Counter`; of windows: summed over all pairs of a tile of the base and a tile of the offset."""
        window = self._cut(dim, loops)
        if window is None:
            return super().folds(dim, loops, summed, width, beside, multiple)
        result: Number = 0
        for base, bases in self.sizes(window.base, loops, summed):
            for offset, offsets in self.sizes(window.offset, loops, summed):
                points = ceil_div((base + offset - 1) * beside, multiple) * multiple
                result = result + bases * offsets * ceil_div(points, width)
        return result

    def first_tile(self, dim: str, loops: tuple[Loop, ...]) -> Number:
        window = self._cut(dim, loops)
        if window is None:
            return super().first_tile(dim, loops)
        return super().first_tile(window.base, loops) + super().first_tile(window.offset, loops) - 1

    def resident(self, dim: str, loops: tuple[Loop, ...], within: Axes, index: Mapping[AxisName, int]) -> Number:
        window = self._cut(dim, loops)
        if window is None:
            return super().resident(dim, loops, within, index)
        places = [
            (loop, loop.axis is not None and loop.axis not in within, index.get(loop.axis, 0) if loop.axis else 0)
            for loop in loops
        ]
        return self._first(window, "resident", places) * positive(super().resident(dim, loops, within, index))

    def _first(self, window: Window, name: str, places: list[tuple[Loop, bool, int]]) -> Number:
        """Points of the windows of selected tiles. ``places``: (loop, whether all its tiles count, otherwise the index of the
        tile)."""

        def chosen(dim: str) -> list[Split]:
            return [Split(loop.tile, summed, place) for loop, summed, place in places if loop.dim == dim]

        base, offset = chosen(window.base), chosen(window.offset)
        return windowed(
            self._keep(window.base, f"{name} steps", base, steps),
            self._keep(window.base, f"{name} visits", base, visits),
            self._keep(window.offset, name, offset, covered),
            self._keep(window.offset, f"{name} visits", offset, visits),
        )
