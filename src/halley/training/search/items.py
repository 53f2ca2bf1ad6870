"""Items of the search for training plans: groups of plans, single plans, and timed plans."""

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
    """A plan of the space with its time [s] and the costs of its parts; the time is infinite where it does not fit with the
    shardings tried. ``bound`` [s]: lower bound over all shardings that fit, for all layers in a microbatch."""

    time: float
    layout: int
    option: int
    costs: ModelCosts
    bound: float


class OverCapacityPlan(NamedTuple):
    """A plan that does not fit with the shardings in ``costs``, after ``tries`` to find others; ``least`` [s]: lower bound over
    those that fit, for all layers in a microbatch."""

    layout: int
    option: int
    costs: ModelCosts
    least: float
    tries: int = 0


class ItemStage(IntEnum):
    """How far an item is evaluated: bound of its work; pruned by memory; bounds from some axes; rough bounds of layers; bounds
    of layers; sharded. The last is a single plan over capacity."""

    WORK = 0
    MEMORY = 1
    AXES = 2
    ROUGH = 3
    LAYERS = 4
    SHARDED = 5
    OVER_CAPACITY = 6


class SearchItem(NamedTuple):
    """An open item with its bound [s]."""

    bound: float
    stage: ItemStage
    key: int


@dataclass(slots=True, eq=False)
class PlanGroup:
    """Plans of one group in the order of their bounds. ``waiting``: not timed yet; ``tight``: known not to fit with these
    shardings."""

    costs: ModelCosts
    bounds: Floats
    layouts: Integers
    options: Integers
    waiting: NDArray[np.bool_]
    tight: NDArray[np.bool_]
