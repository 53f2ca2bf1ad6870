"""Rings side by side: every part of a payload goes round a circuit of its own, so that links which no one ring uses work too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from halley.errors import BadInput, Fault
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import Setting, mirror
from halley.network.algorithms.rings import ring_all_gather
from halley.network.algorithms.tables import Kind, Steps, Transfer

_K = CollectiveKind

Circuit: TypeAlias = tuple[int, ...]
"""All ranks, each a neighbour of the next and the last of the first."""

SERVED = (_K.ALL_GATHER, _K.REDUCE_SCATTER, _K.ALL_REDUCE)


@dataclass(frozen=True, slots=True)
class Circuits:
    """Equal parts of every share, each round one circuit; one that occurs twice carries two parts, as over double links.

    >>> Circuits(((0, 1, 2), (2, 1, 0))).steps(CollectiveKind.ALL_GATHER)[0][:2]
    (Transfer(source=0, target=1, chunk=0, combine=False, shared=False), Transfer(source=1, target=2, chunk=2, combine=False, \
shared=False))

    Raises BadInput: no circuits, or one that lacks a rank.
    """

    circuits: tuple[Circuit, ...]

    def __post_init__(self) -> None:
        every = list(range(self.ranks))
        strange = [circuit for circuit in self.circuits if sorted(circuit) != every]
        if strange or not every:
            got = str(strange[0]) if strange else "none"
            raise BadInput(Fault("collective on circuits", f"circuits of the ranks 0 to {self.ranks - 1}", got))

    @property
    def ranks(self) -> int:
        return len(self.circuits[0]) if self.circuits else 0

    @property
    def name(self) -> str:
        return f"{len(self.circuits)} circuits"

    def chunks(self, kind: Kind) -> int:
        return self.ranks * len(self.circuits)

    def steps(self, kind: Kind) -> Steps:
        """The table. Raises BadInput: a kind that rings do not serve."""
        if kind not in SERVED:
            raise BadInput(Fault(f"{kind} by {self.name}", f"one of {', '.join(SERVED)}", str(kind)))
        rings = [self._gathering(part) for part in range(len(self.circuits))]
        gather = tuple(tuple(t for transfers in step for t in transfers) for step in zip(*rings, strict=True))
        if kind is _K.ALL_GATHER:
            return gather
        return mirror(gather, True) + (gather if kind is _K.ALL_REDUCE else ())

    def _gathering(self, part: int) -> Steps:
        circuit, parts = self.circuits[part], len(self.circuits)
        return tuple(
            tuple(Transfer(circuit[t.source], circuit[t.target], circuit[t.chunk] * parts + part, t.combine) for t in step)
            for step in ring_all_gather(Setting(self.ranks, self.ranks))
        )


def both_ways(*circuits: Circuit) -> tuple[Circuit, ...]:
    """Each circuit forwards and backwards.

    >>> both_ways((0, 1, 2))
    ((0, 1, 2), (2, 1, 0))
    """
    return tuple(way for circuit in circuits for way in (circuit, circuit[::-1]))
