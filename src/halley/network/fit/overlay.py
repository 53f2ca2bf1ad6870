"""What a communication library makes of a network: protocols fitted to measurements, laid over the physical model.

The physical model knows links; a library adds start-ups, protocols that reach a part of the bandwidth, and a choice between
them by size. Both come together as ``overlaid_time(overlay.time(...), bound)``: the software's time, and never below the
lower bound of the network (where switches reduce, the bound of a network with such switches).

Protocols are shared by all collectives of a family and all numbers of ranks; only where the library changes from one protocol to
the next belongs to one collective on one number of ranks. Quantities are SI.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number, minimum
from halley.formulas.software import protocol_time, sent_bytes
from halley.formulas.timing import busy_time
from halley.ir.mapping import CollectiveKind


class Family(StrEnum):
    """Collectives that one kind of kernel serves."""

    RING = "ring"
    EXCHANGE = "exchange"


FAMILIES = {
    CollectiveKind.ALL_REDUCE: Family.RING,
    CollectiveKind.ALL_GATHER: Family.RING,
    CollectiveKind.REDUCE_SCATTER: Family.RING,
    CollectiveKind.BROADCAST: Family.RING,
    CollectiveKind.REDUCE: Family.RING,
    CollectiveKind.ALL_TO_ALL: Family.EXCHANGE,
    CollectiveKind.GATHER: Family.EXCHANGE,
    CollectiveKind.SCATTER: Family.EXCHANGE,
    CollectiveKind.SHIFT: Family.EXCHANGE,
}


@dataclass(frozen=True, slots=True)
class RankDemand:
    """What a collective asks of each rank: steps, bytes that it sends, bytes of its own share that it copies."""

    steps: int
    sent: Number
    own: Number


def demand(kind: CollectiveKind, ranks: int, size: Number) -> RankDemand:
    """The demand of a collective of ``size`` bytes (number or array); sizes by the convention of `halley.formulas.collectives`.

    >>> demand(CollectiveKind.ALL_REDUCE, 4, 240)
    RankDemand(steps=6, sent=360.0, own=60.0)
    """
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return RankDemand(2 * (ranks - 1), sent_bytes(2, ranks, size), size / ranks)
        case (
            CollectiveKind.ALL_GATHER
            | CollectiveKind.REDUCE_SCATTER
            | CollectiveKind.ALL_TO_ALL
            | CollectiveKind.GATHER
            | CollectiveKind.SCATTER
        ):
            return RankDemand(ranks - 1, sent_bytes(1, ranks, size), size / ranks)
        case CollectiveKind.BROADCAST | CollectiveKind.REDUCE:
            return RankDemand(ranks - 1, size, 0 * size)
        case CollectiveKind.SHIFT:
            return RankDemand(1, size, 0 * size)
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way in which the library moves bytes: start-up [s], latency of a step [s], bandwidth at which a rank sends [B/s], rate
    at which it copies its own share [B/s]."""

    startup: float
    latency: float
    bandwidth: float
    copy_rate: float

    def time(self, asked: RankDemand) -> Number:
        """[s], for numbers and arrays."""
        sending, copying = busy_time(asked.sent, self.bandwidth), busy_time(asked.own, self.copy_rate)
        return protocol_time(self.startup, asked.steps, self.latency, sending, copying)


@dataclass(frozen=True, slots=True)
class Choice:
    """From ``size`` bytes on, the library uses this protocol of the family."""

    size: int
    protocol: int


@dataclass(frozen=True, slots=True)
class Series:
    """One collective on one number of ranks: the library's choices by size (the first from 1 byte), the sizes [B] and the number
    of rows that were measured, and the mean relative error: of the fit, and on rows that a fit to the others did not see
    (None: too few)."""

    kind: CollectiveKind
    ranks: int
    choices: tuple[Choice, ...]
    least: int
    most: int
    rows: int
    error: float
    held_out: float | None = None

    def protocol(self, size: float) -> int:
        """The protocol for that many bytes."""
        return self.choices[bisect_right(self.choices, size, key=lambda choice: choice.size) - 1].protocol


@dataclass(frozen=True, slots=True)
class Fit:
    """The protocols of a family, from the one for small messages to the one for large ones, and what was measured of it."""

    family: Family
    protocols: tuple[Protocol, ...]
    series: tuple[Series, ...]

    def find(self, kind: CollectiveKind, ranks: int) -> Series | None:
        return next((item for item in self.series if item.kind is kind and item.ranks == ranks), None)

    def time(self, kind: CollectiveKind, ranks: int, size: Number) -> Number:
        """[s] of sizes above 0 on two ranks or more."""
        asked, found = demand(kind, ranks, size), self.find(kind, ranks)
        if found is None:
            return self._unmeasured(asked, size / ranks)
        if not isinstance(size, np.ndarray):
            return self.protocols[found.protocol(size)].time(asked)
        bounds = np.array([choice.size for choice in found.choices])
        chosen = np.array([choice.protocol for choice in found.choices])[np.searchsorted(bounds, size, side="right") - 1]
        return np.choose(chosen, [protocol.time(asked) for protocol in self.protocols])

    def _unmeasured(self, asked: RankDemand, share: Number) -> Number:
        """The fastest of the protocols that some series uses for shares (bytes over ranks) of that size."""
        fastest: Number = math.inf
        for protocol, (least, most) in zip(self.protocols, self._shares(), strict=True):
            used, time = (least <= share) & (share < most), protocol.time(asked)
            time = np.where(used, time, math.inf) if isinstance(share, np.ndarray) else time if used else math.inf
            fastest = minimum(fastest, time)
        return fastest

    def _shares(self) -> list[tuple[float, float]]:
        """Per protocol, between which shares series use it: what serves small ones only says nothing of large ones."""
        found = [(math.inf, 0.0) for _ in self.protocols]
        for item in self.series:
            ends = [choice.size / item.ranks for choice in item.choices[1:]]
            for choice, start, end in zip(item.choices, (0.0, *ends), (*ends, math.inf), strict=True):
                least, most = found[choice.protocol]
                found[choice.protocol] = (min(least, start), max(most, end))
        return found


@dataclass(frozen=True, slots=True)
class Channels:
    """Cores of a chip that the library's kernels hold while a collective runs; 0 where nobody states them."""

    count: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Overlay:
    """The fits of a machine's library, and where they come from.

    ``machine``: name of the hardware; ``software``: library and version; ``source``: of the measurements; ``dated``: day of
    the fit. ``channels``: what its kernels hold of a chip.
    """

    machine: str
    software: str
    source: str
    dated: str
    fits: tuple[Fit, ...]
    channels: Channels = Channels()

    def serves(self, kind: CollectiveKind) -> bool:
        """Whether something of the collective's family was measured."""
        return any(fit.family is FAMILIES[kind] for fit in self.fits)

    def time(self, kind: CollectiveKind, ranks: int, size: Number) -> Number:
        """Time [s] of a collective of ``size`` bytes, a number or an array, on ``ranks`` ranks; 0 on one rank.

        `remarks` says where it reaches beyond what was measured. Raises BadInput: no rank, a size that is not above 0, a
        collective of a family of which nothing was measured.
        """
        fit = self._fit(kind)
        if ranks < 1:
            raise BadInput(Fault(f"{self.machine}, {kind}", "at least 1 rank", str(ranks)))
        if not ((size > 0).all() if isinstance(size, np.ndarray) else size > 0):
            raise BadInput(Fault(f"{self.machine}, {kind}", "sizes above 0 bytes", f"{np.min(size):g}"))
        return 0.0 * size if ranks == 1 else fit.time(kind, ranks, size)

    def remarks(self, kind: CollectiveKind, ranks: int, size: Number) -> tuple[str, ...]:
        """Where a time is extrapolated, in sentences; none where neighbours were measured. Raises BadInput as `time`."""
        fit = self._fit(kind)
        found = fit.find(kind, ranks)
        if found is None:
            measured = sorted({item.ranks for item in fit.series if item.kind is kind})
            among = f"measured on {', '.join(map(str, measured))} ranks" if measured else "never measured itself"
            return (f"{kind} on {ranks} ranks is extrapolated: {among}",)
        least, most = float(np.min(size)), float(np.max(size))
        if found.least <= least and most <= found.most:
            return ()
        return (f"{kind} on {ranks} ranks is extrapolated: measured from {found.least} to {found.most} bytes",)

    def _fit(self, kind: CollectiveKind) -> Fit:
        found = next((fit for fit in self.fits if fit.family is FAMILIES[kind]), None)
        if found is None:
            known = ", ".join(sorted({str(item.kind) for fit in self.fits for item in fit.series}))
            raise BadInput(Fault(f"{self.machine}, {kind}", f"a collective like those measured ({known})", str(kind)))
        return found
