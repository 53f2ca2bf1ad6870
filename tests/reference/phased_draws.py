"""Random schedules that go through several dimensions, for the tests."""

from __future__ import annotations

import random
from fractions import Fraction

from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.hierarchical import Part, Phase, Phased, Run, other_phases, phases
from halley.network.algorithms.tables import Kind


def drawn_plan(draw: random.Random, kind: Kind, shape: tuple[int, ...], pieces: int = 1, parts: int = 1) -> Phased:
    """Any algorithm that serves each phase, any order for each part, any way through the dimensions."""
    orders = [tuple(draw.sample(range(len(shape)), len(shape))) for _ in range(parts)]
    ways = [(phases(kind, order), *other_phases(kind, order)) for order in orders]  # type: ignore[arg-type]
    chosen = draw.randrange(len(ways[0]))
    shares = [Fraction(1, parts)] * parts
    if parts == 2:
        shares = [Fraction(1, 3), Fraction(2, 3)]
    found = tuple(
        Part(share, tuple(_run(draw, phase, shape) for phase in own[chosen])) for share, own in zip(shares, ways, strict=True)
    )
    lines = frozenset(draw.sample(range(len(shape)), draw.randint(0, len(shape))))
    return Phased(shape, found, pieces, lines=lines)


def _run(draw: random.Random, phase: Phase, shape: tuple[int, ...]) -> Run:
    fits = [i.name for i in ALGORITHMS.values() if not i.network and not i.unfit(phase.kind, shape[phase.dimension])]
    return Run(phase, draw.choice(fits), draw.randint(1, 3))
