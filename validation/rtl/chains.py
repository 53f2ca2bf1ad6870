"""Two GEMMs in a row on the same machine: S = Q K, O = S V, with S in the buffer.

For each tile of rows of Q the first GEMM makes rows of S, the second uses them up. Each is a phase; the first tiles of the next
phase come in while the present one computes. The machine is that of single GEMMs, whose constants were fitted on single GEMMs
alone: no chain is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from validation.outcome import Case, Line, positive, read_figures, whole

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.workloads.construction.graph import contract, tensors

TABLE = Path("rtl") / "rtl_two_gemm_chain.csv"
"""Where the table lies in the folder of data."""

SIZES = tuple(f"{tile}{dim}{gemm}" for gemm in (1, 2) for tile in ("", "micro_") for dim in "MNK")

MEAN, WORST = 0.025, 0.20
"""What is allowed."""

TREE = """
hold dram: Q K V O
  for m by {m}
    hold buffer x2: S
      sequence prefetch
        for n by {n}
          for k by {k}
            hold buffer x2: Q K
              for m by 16
                for k by 16
                  spread m by 1 over pe.x
                    spread k by 1 over pe.y
                      hold register x4: Q
                        compute first
        for f by {f}
          hold buffer x2: O
            for n by {n2}
              hold buffer x2: V
                for m by 16
                  for n by 16
                    spread m by 1 over pe.x
                      spread n by 1 over pe.y
                        hold register x4: S
                          compute second
"""


@dataclass(frozen=True, slots=True)
class Chain:
    """One run: S of M x N over K in tiles of m x n x k, then O of M x F over N in tiles of m x f x n2; the cycles in RTL."""

    M: int
    N: int
    K: int
    F: int
    m: int
    n: int
    k: int
    f: int
    n2: int
    cycles: float

    @property
    def name(self) -> str:
        first, second = f"{self.M} x {self.N} x {self.K}", f"{self.F} x {self.N}"
        return f"{first} by {self.m} x {self.n} x {self.k}, {second} by {self.f} x {self.n2}"


def chains(path: Path) -> tuple[Chain, ...]:
    """The rows of the table. Raises BadInput: a row that is not a run, a size of 0, GEMMs that do not follow each other."""
    found = []
    for number, row in enumerate(read_figures(path, (*SIZES, "rtl_cycles")), start=1):
        where = f"{path}, row {number}"
        size = {column: whole(row, column, where) for column in SIZES}
        if 0 in size.values():
            raise BadInput(Fault(where, "sizes of at least 1", "0"))
        for one, other in (("M1", "M2"), ("N1", "K2"), ("micro_M1", "micro_M2")):
            if size[one] != size[other]:
                raise BadInput(Fault(where, f"{one} equal to {other}, as the second GEMM takes the first one's rows", str(size)))
        outer = (size["M1"], size["N1"], size["K1"], size["N2"])
        inner = (size["micro_M1"], size["micro_N1"], size["micro_K1"], size["micro_N2"], size["micro_K2"])
        found.append(Chain(*outer, *inner, positive(row, "rtl_cycles", where)))
    return tuple(found)


def workload(chain: Chain) -> Workload:
    dims = {"m": chain.M, "n": chain.N, "k": chain.K, "f": chain.F}
    ops = (contract("first", "Q K", "S", "m n k"), contract("second", "S V", "O", "m f n"))
    letters = {"Q": "m k", "K": "k n", "S": "m n", "V": "n f", "O": "m f"}
    return Workload("two-gemms", dims, tensors("fp16", letters), ops, ("O",), kernels=(("first",), ("second",)))


def tree(chain: Chain) -> Node:
    return parse(TREE.format(m=chain.m, n=chain.n, k=chain.k, f=chain.f, n2=chain.n2))


def predicted(chain: Chain, machine: Chip, clock: float) -> float:
    """Cycles that Halley says the run takes at that clock [Hz]."""
    return float(evaluate(workload(chain), machine, tree(chain)).time) * clock


def line(path: Path, machine: Chip, clock: float) -> Line:
    """Every run of the table."""
    cases = tuple(Case(chain.name, predicted(chain, machine, clock), chain.cycles) for chain in chains(path))
    return Line("cycles, chains", cases, MEAN, WORST)


__all__ = ["Chain", "chains", "line", "predicted", "tree", "workload"]
