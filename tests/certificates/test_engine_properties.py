"""The search against exhaustive enumeration on chips with instruction sizes, wide accumulators and costs of collectives."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_chip
from tests.certificates.test_search import compare

from halley.ir.hardware import Chip, Exchange, Granularity


def draw_stating(draw: random.Random) -> Chip:
    """A small chip with everything that a file may leave out."""
    chip = draw_chip(draw)
    outer, shared, inner = chip.levels
    assert chip.matrix is not None
    assert chip.vector is not None
    assert inner.network is not None
    exchange = Exchange(draw.choice([0.0, 4e-9]), draw.choice([0.0, 6e-9]), 3e-9, draw.choice([4e8, 1e12]))
    copies, adds = draw.random() < 0.5, draw.random() < 0.7
    axes = tuple(replace(axis, exchange=exchange, multicast=copies, reduction=adds) for axis in inner.network.axes)
    engine = replace(
        chip.matrix,
        latency=draw.choice([1e-9, 9e-9]),
        granularity=Granularity(draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 3)),
        accumulators={"bf16": "fp32"},
    )
    levels = (outer, shared, replace(inner, network=replace(inner.network, axes=axes)))
    return replace(chip, levels=levels, matrix=engine, vector=replace(chip.vector, latency=2e-9))


@pytest.mark.parametrize("seed", range(8))
def test_search_equals_exhaustive_enumeration(seed: int) -> None:
    compare(seed + 7000, 500, on=draw_stating)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_search_equals_exhaustive_enumeration_on_many(seed: int) -> None:
    compare(seed + 8000, 6000, on=draw_stating)
