"""The software that launches kernels: the time of its host, and how near its own kernels come to those of the chip's fit.

A host (a thread of the processor beside the chip) launches kernels and collectives into a queue, and the chip takes them from it.
The chip waits for the host only where the launches of a pass take longer than its kernels. A CUDA graph holds all kernels of a
pass through a layer and takes one launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from halley.errors import BadInput, Fault
from halley.formulas.software import dispatch_time
from halley.kernels.machine import Efficiency

TIMES = ("launch", "block", "collective", "graph")
"""The numbers of a software that are times of its host."""


def is_within(name: str, value: float) -> bool:
    """Whether a number of that name is in its range: times from 0 s to below 1 s, `contention` from 0 to below 1, rates above 0
    and at most 1.

    >>> is_within("launch", 5.0), is_within("kernels", 1.0)
    (False, True)
    """
    return 0 <= value < 1 if name in (*TIMES, "contention") else 0 < value <= 1


@dataclass(frozen=True, slots=True)
class Software:
    """``launch`` [s] of the host for a kernel; ``block`` [s] for a pass through a part of the model (a layer, the embedding, the
    head), whatever its kernels; ``collective`` [s] for a collective between the chips that share ops. ``graph`` [s] for a CUDA
    graph, which replaces all three; None: kernels are launched one by one. ``attention``: rate of its attention kernel, as a
    share of the fitted one, and ``attention_on`` by name of the chips where that share is another (fits of chips were measured
    with different attention kernels). ``kernels``: rates of all kernels, as shares of the fitted ones. ``contention``: share of
    the chip that a collective over data-parallel ranks takes from the kernels beside it. ``origin``: by name of a number, its
    source or assumption; ``rows`` that were fitted, mean relative ``error`` of the rows held out; ``reach``: of 80 % of
    them, the logarithm of measured over predicted time is at most this far from 0.

    Raises BadInput: a time below 0, a share that is not above 0 and at most 1.
    """

    name: str
    launch: float = 0.0
    block: float = 0.0
    collective: float = 0.0
    graph: float | None = None
    attention: float = 1.0
    attention_on: Mapping[str, float] = field(default_factory=dict, hash=False)
    kernels: float = 1.0
    contention: float = 0.0
    source: str = ""
    origin: Mapping[str, str] = field(default_factory=dict, hash=False)
    rows: int = 0
    error: float | None = None
    reach: float | None = None

    def __post_init__(self) -> None:
        where, faults = f"software {self.name}", []
        for name in TIMES:
            value = getattr(self, name)
            if value is not None and not is_within(name, value):
                faults.append(Fault(f"{where}, {name}", "a time from 0 s to below 1 s", f"{value!r} s"))
        shares = {"attention": self.attention, "kernels": self.kernels}
        shares |= {f"attention_on.{chip}": value for chip, value in self.attention_on.items()}
        for name, value in shares.items():
            if not is_within(name, value):
                faults.append(Fault(f"{where}, {name}", "a share above 0, at most 1", repr(value)))
        if not is_within("contention", self.contention):
            faults.append(Fault(f"{where}, contention", "a share from 0 to below 1", repr(self.contention)))
        if faults:
            raise BadInput(faults)

    def on(self, chip: str) -> Software:
        """The software on the chip of that name, with that chip's share for its attention kernel.

        >>> Software("flash", attention_on={"h100": 0.57}).on("h100").attention
        0.57
        """
        return (
            replace(self, attention=self.attention_on.get(chip, self.attention), attention_on={}) if self.attention_on else self
        )

    def host_time(self, launches: float, collectives: float = 0.0) -> float:
        """Time of the host [s] for a pass of a part with so many kernels and collectives; 0 for a pass without kernels."""
        if not launches:
            return 0.0
        if self.graph is not None:
            return self.graph
        return float(dispatch_time(launches, self.launch, collectives, self.collective, self.block))

    def of(self, fitted: Efficiency) -> Efficiency:
        """The efficiency of this software's kernels: that of the chip's fit, with all rates lowered.

        >>> from halley.kernels.machine import PEAK
        >>> Software("slow", kernels=0.5).of(PEAK).matrix
        0.5
        """
        if self.kernels == 1:
            return fitted
        rates = {name: self.kernels * getattr(fitted, name) for name in ("matrix", "vector", "memory", "cache")}
        return replace(fitted, **rates)
