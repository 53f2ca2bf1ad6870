"""What a search for training plans has in line: groups of plans, single plans, and those that are timed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.training.part_costs import ModelCosts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Timed(NamedTuple):
    """A plan of the space with its time [s] and the costs of its parts, an infinite time where it does not fit with the shardings
    that were tried; ``bound`` [s]: of all its shardings that fit, for all layers in a microbatch."""

    time: float
    layout: int
    option: int
    costs: ModelCosts
    bound: float


class OverCapacity(NamedTuple):
    """A plan that does not fit with the shardings in ``costs``, after ``tries`` to find others; ``least`` [s]: of all that do,
    for all layers in a microbatch."""

    layout: int
    option: int
    costs: ModelCosts
    least: float
    tries: int = 0


class Stage(IntEnum):
    """What is known of an item: the work of its plans at least; which of them may fit; what that takes on some axes, and after
    it; roughly what layers take; what they take; their shardings; a single plan that is over."""

    WORK = 0
    MEMORY = 1
    AXES = 2
    ROUGH = 3
    LAYERS = 4
    SHARDED = 5
    OVER_CAPACITY = 6


class Item(NamedTuple):
    """Something to look at, at its bound [s]."""

    bound: float
    stage: Stage
    key: int


@dataclass(slots=True, eq=False)
class Group:
    """Plans of one group in the order of their bounds; those ``waiting`` have no time yet, those ``tight`` surely do not fit with
    these shardings."""

    costs: ModelCosts
    bounds: Floats
    layouts: Integers
    options: Integers
    waiting: NDArray[np.bool_]
    tight: NDArray[np.bool_]
