"""First mappings, quickly: what is no better than them need not be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halley.cost.program import Indices
from halley.mapping.bounds.incumbents import Values

if TYPE_CHECKING:
    from halley.mapping.solve.group_search import GroupSearch

DIVES_WITHOUT_GAIN = 32
"""First mappings in a row that are no better than what is found before no more are looked for."""


def dive(search: GroupSearch, bounds: Values, places: Sequence[tuple[int, int]], order: Indices) -> None:
    """A first mapping of each frame, of its most promising combination (``order``: of the places), until many in a row are no
    better than what is found. A good value early spares most of the rest; which one it is changes no result."""
    dived: set[int] = set()
    without_gain = 0
    for position in order:
        frame, combination = places[position]
        if without_gain == DIVES_WITHOUT_GAIN:
            return
        if frame not in dived and not search.found.pruned(bounds[position][None, :])[0]:
            dived.add(frame)
            before = search.found.points
            search.solve(frame, combination, quick=True)
            without_gain = without_gain + 1 if search.found.points is before else 0
