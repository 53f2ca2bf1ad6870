"""AccelForge's energy-optimal GEMMs on chips of two, three and four levels of memories: the same mapping in both, bit by bit.

``python -m validation.accelforge.compare`` prints Halley's own optimum beside the peer's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from validation.outcome import Case, Line, Outcome

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Solution
from halley.workloads import gemm

HERE = Path(__file__).parent

TREES = {
    "simple 256": """
hold main: A B C
  for m by 128
    for n by 64
      hold glb: C
        for k by 1
          hold glb: A B
            compute gemm
""",
    "nvdla 256": """
hold dram: A B C
  for m by 128
    hold glb: A
      for n by 32
        hold glb: C
          for k by 128
            hold glb: B
              hold register: B
                compute gemm
""",
    "nvdla 1024": """
hold dram: A B C
  for m by 128
    for n by 256
      hold glb: C
        for k by 192
          hold glb: A
            for n by 32
              hold glb: B
                hold register: B
                  compute gemm
""",
    "eyeriss 224": """
hold main: A B C
  hold glb: B
    for m by 28
      hold glb: C
        for k by 96
          spread m by 2 over pe.x
            spread k by 8 over pe.y
              hold ispad: A
                for n by 1
                  hold wspad: B
                    for m by 1
                      hold pspad: C
                        compute gemm
""",
}
"""The peer's optimum of each case, from its own description: by chip and rows of the GEMM."""

MEMORIES = {
    "MainMemory": ("main", "dram"),
    "GlobalBuffer": ("glb",),
    "Register": ("register",),
    "InputScratchpad": ("ispad",),
    "WeightScratchpad": ("wspad",),
    "OutputScratchpad": ("pspad",),
}
TENSORS = {"T0": "A", "W0": "B", "T1": "C"}

SINGLE = 1e-7
"""The peer's energies are in single precision."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A GEMM of m x n x k in int8 on a chip of this folder; the peer's optimum of energy [J], its time [s], the CPU time of its
    mapper [s], and the bits of each action: memory, tensor, read or write."""

    chip: str
    m: int
    n: int
    k: int
    energy: float
    time: float
    cpu: float
    actions: Mapping[str, int]

    @property
    def name(self) -> str:
        return f"{self.chip} {self.m}"

    def workload(self) -> Workload:
        return gemm(self.m, self.n, self.k, dtype="int8")

    def machine(self) -> Chip:
        return load_chip(HERE / f"{self.chip}.yaml")


def peers() -> tuple[Peer, ...]:
    return tuple(Peer(**entry) for entry in json.loads((HERE / "figures.json").read_text()))


def costed(peer: Peer) -> Estimate:
    """The peer's mapping, by Halley."""
    return evaluate(peer.workload(), peer.machine(), parse(TREES[peer.name]))


def actions(peer: Peer, estimate: Estimate) -> Iterator[tuple[str, int, int]]:
    """(action, Halley's bits, the peer's). Weights that stand still in an array are read by no port in Halley, so what the peer
    reads of its registers, at no energy, is left out."""
    found: dict[tuple[str, str, str], float] = {}
    for way, amounts in (("read", estimate.reads()), ("write", estimate.writes())):
        for (memory, tensor, _), amount in amounts.items():
            found[memory, tensor, way] = found.get((memory, tensor, way), 0) + 8 * float(amount)
    for action, bits in peer.actions.items():
        memory, tensor, way = action.split()
        if memory == "MAC":
            yield action, int(estimate.work()["mac"]), bits
        elif (memory, way) != ("Register", "read"):
            (here,) = (name for name in MEMORIES[memory] if name in {each.name for each in peer.machine().memories})
            yield action, int(found.get((here, TENSORS[tensor], way), 0)), bits


def old_values(peer: Peer, estimate: Estimate) -> float:
    """Energy [J] of the old values that the peer fills into siblings that share a sum, beyond those of Halley, which fills one of
    them: a write, and a read."""
    if peer.chip != "eyeriss":
        return 0.0
    pad, siblings = peer.machine().memory("pspad"), 12
    filled = float(estimate.writes()["pspad", "C", "fill"])
    return (siblings - 1) * filled * (pad.read_energy + pad.write_energy)


def best(peer: Peer) -> Solution:
    """Halley's mapping of the least energy."""
    return optimise(Problem(peer.workload(), peer.machine(), Objective.ENERGY, baselines=False)).best


def compare() -> Outcome:
    """Accesses and energies of the peer's mappings."""
    accesses, energies = [], []
    for peer in peers():
        estimate = costed(peer)
        shared = 0.0 if peer.chip != "eyeriss" else 11 * float(estimate.writes()["pspad", "C", "fill"]) * 8
        for action, own, theirs in actions(peer, estimate):
            more = shared if action.startswith("OutputScratchpad") else 0.0
            accesses.append(Case(f"{peer.name} {action}", own + more, theirs))
        energies.append(Case(peer.name, float(estimate.energy) + old_values(peer, estimate), peer.energy))
    return Outcome("accelforge", (Line("accesses", tuple(accesses)), Line("energy", tuple(energies), SINGLE, SINGLE)))


HEADER = "| chip | GEMM | peer: energy | time | CPU time | Halley: energy | time | CPU time |\n|---|---|---|---|---|---|---|---|"


def row(peer: Peer) -> str:
    """Both optima; CPU times are those of the two searches."""
    start = time.process_time()
    plan = best(peer).estimate
    taken = time.process_time() - start
    theirs = f"{1e6 * peer.energy:.2f} uJ | {1e6 * peer.time:.1f} us | {peer.cpu:.1f} s"
    own = f"{1e6 * float(plan.energy):.2f} uJ | {1e6 * float(plan.time):.1f} us | {taken:.1f} s"
    return f"| `{peer.chip}` | {peer.m} x {peer.n} x {peer.k} | {theirs} | {own} |"


if __name__ == "__main__":
    print(HEADER, *map(row, peers()), sep="\n")
