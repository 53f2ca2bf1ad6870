"""How one replica of a model is laid out over chips, and what its groups of ranks pay to communicate.

Ranks are numbered tensor-parallel first, then attention-data-parallel, then pipeline. The experts of a layer are spread over
all ranks of a stage: ``ep`` groups of them, each expert over the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number, minimum
from halley.formulas.timing import busy_time, transfer_time
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.fit.overlay import Overlay
from halley.network.graph.lanes import Lane, lanes
from halley.network.time.phased import MeasuredLane, collective_time, sending_bandwidth


@dataclass(frozen=True, slots=True, order=True)
class ReplicaLayout:
    """``tp``: ranks that share each head and matrix; ``pp``: stages; ``ep``: groups among which experts are distributed; ``dp``:
    groups with attention (and users) of their own within one replica.

    >>> ReplicaLayout(tp=4, dp=2, ep=8).chips
    8
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def stage(self) -> int:
        """Chips of one stage."""
        return self.tp * self.dp

    @property
    def chips(self) -> int:
        """Chips of a replica."""
        return self.tp * self.dp * self.pp

    @property
    def text(self) -> str:
        """As users write it.

        >>> ReplicaLayout(tp=8).text, ReplicaLayout(tp=4, dp=2, ep=8).text
        ('TP 8', 'TP 4, EP 8, attention-DP 2')
        """
        named = (("TP", self.tp), ("PP", self.pp), ("EP", self.ep), ("attention-DP", self.dp))
        return ", ".join(f"{name} {size}" for name, size in named if size > 1 or name == "TP")


@dataclass(frozen=True, eq=False)
class ReplicaNetwork:
    """A system as the groups of a replica see it. ``libraries``: by axis, what a communication library was measured to take.

    It keeps the times that it was asked for: deployments that share one time each collective once."""

    system: System
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    _made: dict[tuple[Lane, str], MeasuredLane] = field(default_factory=dict)
    _times: dict[tuple[object, ...], Number] = field(default_factory=dict)

    def dimensions(self, ranks: int, stride: int, measured: bool) -> tuple[MeasuredLane, ...]:
        """The lanes of a group of ``ranks`` that lie ``stride`` apart, with libraries where they are ``measured``. Raises
        BadInput: the group does not divide the axes."""
        found: list[MeasuredLane] = []
        where = f"a group of {ranks} ranks, {stride} apart, on system {self.system.name}"
        for axis in reversed(self.system.axes):
            if ranks == 1:
                break
            if stride >= axis.size:
                if stride % axis.size:
                    raise BadInput(Fault(where, f"a stride that axis {axis.name} ({axis.size} ranks) divides", str(stride)))
                stride //= axis.size
                continue
            size = min(ranks, axis.size // stride)
            if ranks % size or axis.size % (size * stride):
                raise BadInput(Fault(where, f"parts that divide axis {axis.name} ({axis.size} ranks)", str(ranks)))
            library = axis.name if measured and axis.name in self.libraries else ""
            for lane in reversed(lanes(axis, size, stride)):
                made = self._made.setdefault((lane, library), MeasuredLane(lane, self.libraries.get(library)))
                found.append(made)
            ranks, stride = ranks // size, 1
        if ranks > 1:
            raise BadInput(Fault(where, f"at most {self.system.chips} chips", f"{ranks} times as many", "name a larger system"))
        return tuple(reversed(found))

    def collective(
        self, kind: CollectiveKind, ranks: int, stride: int, size: Number, startup: float, share: float = 1.0
    ) -> Number:
        """Time [s] of a collective of ``size`` [B] (as `halley.network.time.collective.CONVENTIONS` counts): the faster of the
        server's own kernels, which take a ``startup`` [s] before the steps of the best schedule at a ``share`` of the links'
        bandwidth, and a measured library."""
        if ranks == 1:
            return 0.0 * size
        asked = np.asarray(size, dtype=np.float64)
        key = kind, ranks, stride, asked.shape, asked.tobytes(), startup, share
        if key not in self._times:
            self._times[key] = self._collective(kind, ranks, stride, size, startup, share)
        return self._times[key]

    def _collective(self, kind: CollectiveKind, ranks: int, stride: int, size: Number, startup: float, share: float) -> Number:
        own = startup + collective_time(kind, self.dimensions(ranks, stride, False))(size / share)
        if not self.libraries:
            return own
        lines = self.dimensions(ranks, stride, True)
        if not any(line.library for line in lines):
            return own
        other = collective_time(kind, lines)(size)
        return minimum(own, other)

    def send(self, stride: int, size: Number, startup: float) -> Number:
        """Time [s] of a message to the chip that lies ``stride`` further."""
        for axis in reversed(self.system.axes):
            if stride < axis.size:
                rate = sending_bandwidth(axis, 2)
                return transfer_time(startup + axis.link.latency, busy_time(size, rate))
            stride //= axis.size
        return 0.0 * size


def check_layout(layout: ReplicaLayout, heads: int, experts: int, layers: int, where: str) -> None:
    """Raises BadInput: degrees that the model does not have."""
    faults = []
    for name, degree in (("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep), ("dp", layout.dp)):
        if degree < 1:
            faults.append(Fault(f"{where}, {name}", "at least 1", str(degree)))
    if not faults:
        if heads % layout.tp:
            faults.append(Fault(f"{where}, tp", f"a divisor of {heads} heads", str(layout.tp)))
        if layout.pp > layers:
            faults.append(Fault(f"{where}, pp", f"at most {layers} layers", str(layout.pp)))
        if experts == 0 and (layout.ep > 1 or layout.dp > 1):
            got = f"ep {layout.ep}, dp {layout.dp}"
            faults.append(Fault(where, "ep 1 and dp 1 of a model without experts", got, "use more replicas instead"))
        elif experts and (layout.stage % layout.ep or layout.ep > experts):
            faults.append(
                Fault(f"{where}, ep", f"a divisor of tp x dp ({layout.stage}), at most {experts} experts", str(layout.ep))
            )
    if faults:
        raise BadInput(faults)
