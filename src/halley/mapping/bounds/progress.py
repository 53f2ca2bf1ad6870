"""Effort counters of a search, and its interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Interrupted(Exception):
    """The time limit or the user stopped the search."""


@dataclass(slots=True)
class SearchCounter:
    """Effort of a search: mappings costed, bounds computed. ``tick`` is called often, and raises `Interrupted` to stop."""

    costed: int = 0
    bounds: int = 0
    tick: Callable[[], None] = lambda: None
