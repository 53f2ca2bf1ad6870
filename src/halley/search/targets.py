"""What is tried before all is proved against the best that is found: first mappings, then targets.

Targets are values to beat that are close to the bounds. Mostly one of them is beaten, and then all is proved against a value
close to the best. To look for whatever beats a poor value takes many times longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from halley.cost.program import Indices
from halley.search.frontier import Frontier, Values

if TYPE_CHECKING:
    from halley.search.solve import GroupSearch

NEARER, CLOSE = 0.4, 0.02
"""Targets go up by this share of what is left to the best value, until they are this close to it."""

VAIN = 32
"""First mappings in a row that are no better than what is found before no more are looked for."""


def dive(search: GroupSearch, bounds: Values, places: Sequence[tuple[int, int]], order: Indices) -> None:
    """A first mapping of each frame, of its most promising combination (``order``: of the places), until many in a row are no
    better than what is found. A good value early spares most of the rest; which one it is changes no result."""
    dived: set[int] = set()
    vain = 0
    for position in order:
        frame, combination = places[position]
        if vain == VAIN:
            return
        if frame not in dived and not search.found.hopeless(bounds[position][None, :])[0]:
            dived.add(frame)
            before = search.found.points
            search.solve(frame, combination, quick=True)
            vain = vain + 1 if search.found.points is before else 0


def targets(bounds: Values, found: Frontier) -> Iterator[float]:
    """Values between the least of some bounds and the best that is found, less and less ambitious; none with several objectives.

    >>> found = Frontier(1)
    >>> found.add(np.array([2.0]), None)
    >>> [round(target, 2) for target in targets(np.array([[1.0], [1.5]]), found)]
    [1.4, 1.64, 1.78, 1.87, 1.92, 1.95]
    """
    if found.points.shape != (1, 1) or not len(bounds):
        return
    target, best = float(bounds.min()), float(found.points[0, 0])
    while (target := target + (best - target) * NEARER) < best * (1 - CLOSE):
        yield target


def improved(search: GroupSearch, bounds: Values, places: Sequence[tuple[int, int]]) -> Values | None:
    """The bounds of a group's frames and combinations (``places``, the most promising first), as high as targets that none beats
    show them to be; none where a target is beaten: then the best is found. Only frames with overlapped stages are worth it."""
    joint = [search.frames[frame].joint for frame, _ in places]
    for target in targets(bounds[joint], search.found):
        if _beaten(search, target, bounds, places):
            return None
        bounds = np.maximum(bounds, target / (1 + search.gap))
    return bounds


def _beaten(search: GroupSearch, target: float, bounds: Values, places: Sequence[tuple[int, int]]) -> bool:
    """Whether there are mappings that beat a target: then the best of them is found, as what is no better is not looked at."""
    known, search.found = search.found, Frontier(1, search.gap)
    search.found.add(np.array([target]), None)
    try:
        for bound, place in zip(bounds, places, strict=True):
            if not search.found.hopeless(bound[None, :])[0]:
                search.tally.tick()
                search.solve(*place)
    finally:
        tried, search.found = search.found, known
        known.join(tried)
    return None not in tried.payloads
