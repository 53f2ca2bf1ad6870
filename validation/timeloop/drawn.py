"""Mappings of GEMMs to the two architectures, drawn at random: what Halley's own rules of counting do to energy, away from the
mappings that Timeloop was run on. Timeloop's energy of a drawn mapping is that of its counts (`validation.timeloop.convention`),
which equal its own wherever both are known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache

from validation.timeloop.convention import counts, energies
from validation.timeloop.convert import HERE, WORD, from_timeloop, machine, workload
from validation.timeloop.files import Block, Case, Problem, read_case

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.rewrite.legality import faults as legality_faults

TENSORS = {"A": ("M", "K"), "W": ("K", "N"), "Z": ("M", "N")}
ARCHITECTURES = ("e01_os_1024", "t01_ws_1024")
"""Cases whose architecture and energies stand for each of the two."""

Loops = tuple[tuple[str, int], ...]


@cache
def _known(name: str) -> Case:
    return read_case(HERE / "cases" / name)


def drawn(number: int, seed: int = 0) -> Iterator[tuple[Case, Estimate]]:
    """Legal mappings that fit, with Halley's estimate of each: dims are powers of two from 64 to 2048, and their factors of two
    are dealt to the levels and the mesh at random."""
    source = random.Random(seed)
    found = 0
    while found < number:
        case = _mapping(source, _known(ARCHITECTURES[found % 2]), found)
        if case is None:
            continue
        chip, tree, work = (
            machine(case.architecture, case.blocks),
            from_timeloop(case.blocks, case.architecture, case.problem),
            workload(case.problem),
        )
        estimate = evaluate(work, chip, tree)
        room = {storage.name: storage.capacity for storage in case.architecture.storages[1:]}
        fits = all(float(estimate.footprint.get(name, 0)) <= words * WORD for name, words in room.items())
        if fits and not legality_faults(tree, work, chip):
            found += 1
            yield case, estimate


def _mapping(source: random.Random, known: Case, number: int) -> Case | None:
    """A mapping with the architecture and the energies of a case; None where the mesh has too many loops."""
    architecture = known.architecture
    levels = range(len(architecture.storages))
    fanout = [architecture.fanout(level + 1) if level + 1 in levels else (1, 1) for level in levels]
    places = [(level, way) for level in levels for way in ("temporal", "x", "y") if way == "temporal" or max(fanout[level]) > 1]
    factors: dict[tuple[int, str, str], int] = {}
    extents = {dim: 2 ** source.randint(6, 11) for dim in "MNK"}
    for dim, extent in extents.items():
        for _ in range(int(math.log2(extent))):
            level, way = source.choice(places)
            factors[level, way, dim] = 2 * factors.get((level, way, dim), 1)

    def loops(level: int, way: str) -> Loops:
        order = source.sample("MNK", 3)
        return tuple((dim, factors[level, way, dim]) for dim in order if (level, way, dim) in factors)

    blocks = []
    for level in levels:
        along = {way: loops(level, way) for way in ("temporal", "x", "y")}
        if any(math.prod(count for _, count in along[way]) > width for way, width in zip("xy", fanout[level], strict=True)):
            return None
        keeps = frozenset(name for name in TENSORS if level == 0 or source.random() < 0.75)
        if level and not any(keeps):
            return None
        blocks.append(Block(along["temporal"], along["x"], along["y"], keeps))
    problem = Problem(extents, TENSORS, "Z")
    return Case(f"drawn {number}", architecture, problem, tuple(blocks), known.energy, known.mac_energy, {})


def timeloop_energy(case: Case, estimate: Estimate) -> float:
    """Energy [pJ] as Timeloop counts it."""
    macs = int(estimate.work()["mac"])
    return sum(energies(counts(estimate, case.problem.output), case).values()) + macs * case.mac_energy


def own_energy(estimate: Estimate) -> float:
    """Energy [pJ] as Halley counts it."""
    return float(estimate.energy) * 1e12


__all__ = ["drawn", "own_energy", "timeloop_energy"]
