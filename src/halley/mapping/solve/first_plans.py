"""Dives: first mappings found quickly, as incumbents for pruning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halley.cost.program import Indices
from halley.mapping.bounds.incumbents import Values

if TYPE_CHECKING:
    from halley.mapping.solve.group_search import GroupSearch

DIVES_WITHOUT_GAIN = 32
"""Dives end after this many consecutive mappings that do not improve the incumbents."""


def dive(search: GroupSearch, bounds: Values, places: Sequence[tuple[int, int]], order: Indices) -> None:
    """A first mapping of each frame for its most promising combination (``order``: of ``places``), until many consecutive ones do
    not improve the incumbents. A good incumbent prunes most of the search; which one it is does not change the result."""
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
