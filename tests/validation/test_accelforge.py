"""AccelForge's mappings costed by Halley: every action equal, but for one rule; Halley's optimum is no worse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from validation.accelforge.compare import HERE, TREES, Peer, actions, best, compare, costed, old_values, peers

from halley.ir.text import parse
from halley.rewrite.legality import check

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
