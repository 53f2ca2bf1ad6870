"""AccelForge's mappings costed by Halley: every action equal, but for one rule; Halley's optimum is no worse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from validation.accelforge import sweep
from validation.accelforge.compare import HERE, TREES, Peer, actions, best, compare, costed, old_values, peers

from halley.io.chips.load import load_chip
from halley.ir.text import parse
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.rewrite.legality import check
from halley.workloads import gemm

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
PEERS = peers()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_action_and_the_energy_are_the_peers(peer: Peer) -> None:
    check(parse(TREES[peer.name]), peer.workload(), peer.machine())
    estimate = costed(peer)
    differ = {action for action, own, theirs in actions(peer, estimate) if own != theirs}
    # siblings that share a sum: the peer fills the old value into each, Halley into the first
    assert differ == ({"OutputScratchpad T1 read", "OutputScratchpad T1 write"} if peer.chip == "eyeriss" else set())
    assert float(estimate.energy) + old_values(peer, estimate) == pytest.approx(peer.energy, rel=1e-7)


def test_the_outcome_holds_and_names_every_case() -> None:
    outcome = compare()
    assert all(line.holds for line in outcome.lines)
    assert len(outcome.lines[1].cases) == len(PEERS) == len(TREES)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_halleys_optimum_takes_no_more_energy(peer: Peer) -> None:
    """Its figures are those of the page; tiles need not divide a dim there, and weights may bypass the global buffer."""
    found = best(peer)
    energy, time = float(found.estimate.energy), float(found.estimate.time)
    assert found.certificate.gap == 0
    assert energy <= peer.energy * (1 + 1e-7)
    (line,) = re.findall(rf"\| `{peer.chip}` \| {peer.m} x .*", PAGE.read_text())
    for figure in (f"{1e6 * peer.energy:.2f} uJ", f"{1e6 * energy:.2f} uJ", f"{1e6 * peer.time:.1f} us", f"{1e6 * time:.1f} us"):
        assert f"| {figure} |" in line


def test_the_peers_file_says_what_the_chip_says() -> None:
    """Energies per bit and sizes of the architecture that is not one of its own examples."""
    text = (HERE / "eyeriss-peer.yaml").read_text()
    (peer,) = (peer for peer in PEERS if peer.chip == "eyeriss")
    chip = peer.machine()
    energies = [float(energy) for energy in re.findall(r"name: read, energy: ([0-9.e-]+)", text)]
    order = ("main", "glb", "ispad", "wspad", "pspad")
    assert energies == pytest.approx([chip.memory(name).read_energy / 8 for name in order])
    fanouts = [int(size) for size in re.findall(r"fanout: (\d+)", text)]
    assert fanouts == [axis.size for _, axis in chip.axes]


def test_the_swept_sizes_and_energies_are_those_of_the_tutorial() -> None:
    """32 sizes, evenly by factor; the energy of an access grows with the square root."""
    study = yaml.safe_load(sweep.STUDY.read_text())["axes"]["buffer"]["set"]
    sizes = [int(word.split()[0]) for word in study["glb.capacity"].split(",")]
    assert sizes == [round(32 * (4 * 2**20 / 32) ** (index / 31)) for index in range(32)]
    assert [point.size for point in sweep.points()] == sizes
    for way in ("read", "write"):
        energies = [float(word.split()[0]) for word in study[f"glb.{way}_energy"].split(",")]
        assert energies == pytest.approx([0.24 * (size / 108 / 1024) ** 0.5 for size in sizes], rel=1e-5)


def test_the_page_has_the_sweep_and_halley_needs_no_more_energy() -> None:
    assert sweep.table(sweep.points()) in PAGE.read_text()
    assert all(point.energy < point.peer_energy for point in sweep.points())


@pytest.mark.medium
@pytest.mark.parametrize("index", [0, 19, 31])
def test_the_sweep_is_reproduced(index: int) -> None:
    point = sweep.points()[index]
    chip = load_chip(HERE / "eyeriss.yaml")
    per_bit = 0.24e-12 * (point.size / 108 / 1024) ** 0.5
    levels = tuple(
        replace(
            level,
            memories=tuple(
                replace(memory, capacity=point.size, read_energy=8 * per_bit, write_energy=8 * per_bit)
                if memory.name == "glb"
                else memory
                for memory in level.memories
            ),
        )
        for level in chip.levels
    )
    work = gemm(4096, 4096, 4096, dtype="int8")
    found = optimise(Problem(work, replace(chip, levels=levels), Objective.ENERGY, baselines=False)).best
    assert float(found.estimate.energy) == pytest.approx(point.energy, rel=1e-5)
