"""Collective algorithms as step tables: one module per family, every entry in `ALGORITHMS`."""

from __future__ import annotations

from halley.network.algorithms.algorithm import Able, Algorithm, ChunkRule, Setting
from halley.network.algorithms.barriers import BARRIERS
from halley.network.algorithms.chains import CHAINS
from halley.network.algorithms.direct import DIRECT
from halley.network.algorithms.doubling import DOUBLING
from halley.network.algorithms.in_network import IN_NETWORK
from halley.network.algorithms.rings import RINGS
from halley.network.algorithms.trees import TREES

__all__ = ["ALGORITHMS", "Able", "Algorithm", "ChunkRule", "Setting"]

ALGORITHMS: dict[str, Algorithm] = {
    item.name: item for item in (*RINGS, *DIRECT, *DOUBLING, *CHAINS, *TREES, *IN_NETWORK, *BARRIERS)
}
"""Every algorithm by name. Whatever is added here is checked by `verify` for all sizes in
tests/laws/test_network_algorithms.py."""
