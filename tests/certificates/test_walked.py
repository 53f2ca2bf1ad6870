"""Groups that walk a further dim inside their rows: the optimum is that of the walk through all mappings, no mapping of larger
blocks beats it, winners run and count as they should, and sums stay in the shared buffer between tiles."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.certificates.composing import buffered
from tests.certificates.exhaustive import draw_chip, draw_hidden, fitting
from tests.certificates.test_search import compare
from tests.reference.test_counts import Checker

from halley.errors import Infeasible
from halley.io.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Temporal, walk
from halley.ir.workload import Workload
from halley.rewrite.legality import faults
from halley.rewrite.tidy import tidy
from halley.search.frames import frames
from halley.search.optimise import optimise
from halley.search.problem import Objective, Problem
from halley.search.space import Frame
from halley.search.template import template
from halley.workloads import attention, gated_mlp, gemm_gelu_gemm


def draw_far(draw: random.Random) -> Chip:
    """A chip with a small shared buffer, far from the outer memory: it pays to keep there what comes again."""
    chip = draw_chip(draw)
    outer, shared, clusters = chip.levels
    (memory,), (buffer,) = outer.memories, shared.memories
    far = replace(memory, read_energy=1e-10, write_energy=1e-10, read_bandwidth=1e8, write_bandwidth=1e8)
    local = tuple(replace(own, capacity=200.0) for own in clusters.memories)
    near = replace(shared, memories=(replace(buffer, capacity=draw.choice([24.0, 32.0, 48.0])),))
    return replace(chip, levels=(replace(outer, memories=(far,)), near, replace(clusters, memories=local)))


def draw_block(draw: random.Random) -> Workload:
    m, k, f = draw.randint(2, 4), draw.randint(1, 3), draw.randint(3, 8)
    return gated_mlp(m, k, f) if draw.random() < 0.4 else gemm_gelu_gemm(m, k, f)
