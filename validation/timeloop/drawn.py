"""Mappings of GEMMs to the two architectures, drawn at random: what Halley's own rules of counting do to energy, away from the
mappings that Timeloop was run on. Timeloop's energy of a drawn mapping is that of its counts (`validation.timeloop.convention`),
which equal its own wherever both are known."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache

from validation.timeloop.convention import counts, energies
from validation.timeloop.convert import HERE, from_timeloop, machine, workload
from validation.timeloop.files import Block, Case, Problem, case_folders, read_case

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.rewrite.legality import faults as legality_faults

TENSORS = {"A": ("M", "K"), "W": ("K", "N"), "Z": ("M", "N")}
ARCHITECTURES = ("e01_os_1024", "t01_ws_1024")
"""Cases whose architecture and energies stand for each of the two."""

TEMPORAL = "temporal"
Loops = tuple[tuple[str, int], ...]


@cache
def _known(name: str) -> Case:
    return read_case(HERE / "cases" / name)


def drawn(number: int, seed: int = 0, least: int = 6, most: int = 11) -> Iterator[tuple[Case, Estimate]]:
    """Legal mappings that fit, half of them to each architecture, with Halley's estimate: dims are powers of two, from the
    ``least`` to the ``most``; their factors of two are dealt to the levels and the mesh at random, as far as they fit."""
    source = random.Random(seed)
    found = 0
    while found < number:
        case = _mapping(source, _known(ARCHITECTURES[found % 2]), f"drawn {found}", (least, most))
        chip = machine(case.architecture, case.blocks)
        tree, work = from_timeloop(case.blocks, case.architecture, case.problem), workload(case.problem)
        if not legality_faults(tree, work, chip):
            found += 1
            yield case, evaluate(work, chip, tree)


def known_cases() -> Iterator[tuple[Case, Estimate]]:
    """The mappings that Timeloop was run on, with Halley's estimate of each."""
    for folder in case_folders(HERE / "cases"):
        case = read_case(folder)
        chip, tree = machine(case.architecture, case.blocks), from_timeloop(case.blocks, case.architecture, case.problem)
        yield case, evaluate(workload(case.problem), chip, tree)


def _mapping(source: random.Random, known: Case, name: str, powers: tuple[int, int]) -> Case:
    """A mapping with the architecture and the energies of a case; a level keeps some of the tensors that it keeps there."""
    architecture = known.architecture
    levels = range(len(architecture.storages))
    keeps = [block.keeps if not at else _some(source, block.keeps) for at, block in enumerate(known.blocks)]
    fanout = [dict(zip("xy", architecture.fanout(at + 1), strict=True)) if at + 1 in levels else {} for at in levels]
    places = [(at, way) for at in levels for way in (TEMPORAL, *fanout[at])]
    factors: dict[tuple[int, str, str], int] = {}

    def has_room() -> bool:
        for at, storage in enumerate(architecture.storages):
            inside = {dim: math.prod(size for (own, _, d), size in factors.items() if d == dim and own >= at) for dim in "MNK"}
            kept = sum(math.prod(inside[dim] for dim in TENSORS[tensor]) for tensor in keeps[at])
            used = {way: math.prod(size for (own, w, _), size in factors.items() if (own, w) == (at, way)) for way in "xy"}
            if (at and kept > storage.capacity) or any(used[way] > width for way, width in fanout[at].items()):
                return False
        return True

    extents = {dim: 2 ** source.randint(*powers) for dim in "MNK"}
    for dim in (dim for dim, extent in extents.items() for _ in range(int(math.log2(extent)))):
        for at, way in (*source.sample(places, len(places)), (0, TEMPORAL)):
            factors[at, way, dim] = 2 * factors.get((at, way, dim), 1)
            if has_room():
                break
            factors[at, way, dim] //= 2

    def loops(at: int, way: str) -> Loops:
        return tuple((dim, size) for dim in source.sample("MNK", 3) if (size := factors.get((at, way, dim), 1)) > 1)

    blocks = tuple(Block(loops(at, TEMPORAL), loops(at, "x"), loops(at, "y"), keeps[at]) for at in levels)
    return Case(name, architecture, Problem(extents, TENSORS, "Z"), blocks, known.energy, known.mac_energy, {})


def _some(source: random.Random, tensors: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in sorted(tensors) if source.random() < 0.8)


def timeloop_energy(case: Case, estimate: Estimate) -> float:
    """Energy [pJ] as Timeloop counts it."""
    macs = int(estimate.work()["mac"])
    return sum(energies(counts(estimate, case.problem.output), case).values()) + macs * case.mac_energy


def own_energy(estimate: Estimate) -> float:
    """Energy [pJ] as Halley counts it."""
    return float(estimate.energy) * 1e12


__all__ = ["drawn", "known_cases", "own_energy", "timeloop_energy"]
