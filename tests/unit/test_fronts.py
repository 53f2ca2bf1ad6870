"""What a stage can be, as a tree of sets: every node that is one pick gives that pick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halley.mapping.solve.stage_fronts import CHILDREN_PER_SET, Fronts


@pytest.mark.parametrize(
    "count",
    [
        1,
        2,
        CHILDREN_PER_SET,
        CHILDREN_PER_SET + 1,
        3 * CHILDREN_PER_SET,
        CHILDREN_PER_SET**2 + 1,
        CHILDREN_PER_SET**2 + CHILDREN_PER_SET + 1,
    ],
)
def test_a_node_of_one_pick_gives_it(count: int) -> None:
    """A group of picks may have a single one left over; it stands alone on several levels."""
    states = np.random.default_rng(count).permutation(np.arange(3.0 * count)).reshape(3, count)
    picks: list[Any] = list(range(count))
    tree = Fronts(states, picks)
    single = np.flatnonzero(tree.size == 1)
    found: list[Any] = [tree.pick(int(node)) for node in single]
    assert set(found) == set(picks)
    assert (tree.states[:, single] == states[:, found]).all()
