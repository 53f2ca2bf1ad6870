"""The figure of the packages shows the imports of the source."""

from __future__ import annotations

import random

import pytest
from docs.imports import FIGURE, figure, reduction

from halley.report.markup import svg_file


def reached(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """All pairs that a path of arrows connects."""
    found = set(arrows)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


@pytest.mark.parametrize("seed", range(20))
def test_arrows_left_out_follow_from_those_drawn(seed: int) -> None:
    draw = random.Random(seed)
    names = "abcdefg"
    graph = {name: {other for other in names if other > name and draw.random() < 0.5} for name in names}
    drawn, every = set(reduction(graph)), {(name, other) for name in names for other in graph[name]}
    assert drawn <= every
    assert reached(drawn) == reached(every)
    for arrow in drawn:
        assert arrow not in reached(drawn - {arrow})


@pytest.mark.medium
def test_the_figure_is_that_of_the_source() -> None:
    assert FIGURE.read_text(encoding="utf-8") == svg_file(figure()), "run python -m docs.imports"
