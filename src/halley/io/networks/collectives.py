"""Questions about collectives, and their answers: one size with every candidate, what runs beside it, many sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.answer import Answerable, Certificate, Status, relative_gap
from halley.errors import BadInput, Fault
from halley.formulas.software import overlaid_time
from halley.io.networks import members
from halley.io.networks.fits import load_fit
from halley.io.networks.jobs import read_beside
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.bounds.demands import all_to_all
from halley.network.bounds.flow import Flow, concurrent_flow
from halley.network.fit.overlay import Overlay
from halley.network.graph.fabric import Fabric
from halley.network.graph.groups import Group
from halley.network.time.choice import chosen
from halley.network.time.collective import CollectiveCost, candidates, slot_times
from halley.network.time.contention import Contention, collective_execution, concurrent
from halley.network.time.schedules import is_line
from halley.network.time.sweep import Sweep, sweep
from halley.units import format_bytes, format_time

Software = tuple[str, tuple[float, ...]]
"""Name of a library, and its time at every size [s]."""

OPTIMAL_GAP = 1e-9
"""Relative gap at which a time is at its bound, but for rounding."""


@dataclass(frozen=True, slots=True)
class CollectiveQuestion:
    """A collective on some ranks of a network.

    ``size`` [B]: None where only ``sizes`` [B] are asked for. ``ranks``: None for all. ``algorithm``: one alone, or candidate;
    None compares all. ``startup`` [s] before every step. ``software``: fit of a communication library, by name or path.
    ``beside``: sentences about what runs at once. ``optimum``: the best routing of all too, searched for ``limit`` [s].
    """

    kind: Kind
    fabric: Fabric
    size: int | None
    ranks: tuple[int, ...] | None = None
    algorithm: str | None = None
    startup: float = 0.0
    software: str | None = None
    sizes: tuple[int, ...] = ()
    beside: tuple[str, ...] = ()
    optimum: bool = False
    limit: float = 60.0


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """What a communication library takes [s], by its fit ``name``; ``remark``: where that reaches beyond what was measured, or
    an empty string."""

    name: str
    time: float
    remark: str


@dataclass(frozen=True, slots=True)
class SingleCollective:
    """One collective of one size: its cost, every candidate with it, fastest first; ``software``: the time of a library;
    ``optimum``: the best routing of all its bytes, if it was asked for."""

    fabric: Fabric
    team: Group
    startup: float
    cost: CollectiveCost
    candidates: tuple[CollectiveCost, ...]
    software: LibraryTime | None = None
    optimum: Flow | None = None

    @property
    def certificate(self) -> Certificate:
        """No algorithm, known or not, takes less than the bound [s]."""
        closed = relative_gap(self.cost.time, self.cost.bound.value) <= OPTIMAL_GAP
        status = Status.OPTIMAL if closed else Status.ENUMERATED
        return Certificate(self.cost.time, self.cost.bound.value, status, size=len(self.candidates), closed=self.cost.bound.why)


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveAnswer(Answerable):
    """What a question asks for, None where it does not. ``overlay``: fit of the library; ``swept_software``: its times over the
    sizes of ``sweep``."""

    question: CollectiveQuestion
    team: Group
    single: SingleCollective | None
    contention: Contention | None
    sweep: Sweep | None
    overlay: Overlay | None
    swept_software: Software | None

    def __repr__(self) -> str:
        if self.single is None:
            return f"CollectiveAnswer: {self.title}"
        cost, library = self.single.cost, self.single.software
        measured = f"{format_time(library.time)} by the fit {library.name}; " if library else ""
        physical = f"{cost.algorithm} {format_time(cost.time)}, no algorithm takes less than {format_time(cost.bound.value)}"
        return f"CollectiveAnswer: {self.title}\n{measured}{physical}"

    @property
    def title(self) -> str:
        """What is asked."""
        return f"{self.question.kind} among {self.team.graph.ranks} ranks of {self.question.fabric.name}"

    def remarks(self) -> tuple[str, ...]:
        """Where the library's times over sizes reach beyond what was measured."""
        kind, sizes = self.question.kind, self.question.sizes
        if self.overlay is None or not isinstance(kind, CollectiveKind) or self.team.graph.ranks < 2 or not sizes:
            return ()
        return tuple(self.overlay.remarks(kind, self.team.graph.ranks, np.array([min(sizes), max(sizes)])))


def fit_of(fabric: Fabric, ranks: Sequence[int] | None, kind: Kind) -> str | None:
    """The fit of the library that was measured on the one axis along which these ranks (all for None) differ; None where there
    is none, or it says nothing of such collectives.

    >>> from halley.io.networks.network import load_network
    >>> fit_of(load_network("dgx-h100"), None, CollectiveKind.ALL_REDUCE)
    'h100-sxm-nccl-2.29.2'
    """
    if not isinstance(kind, CollectiveKind) or not fabric.libraries:
        return None
    left, used = range(fabric.graph.ranks) if ranks is None else ranks, []
    for axis in reversed(fabric.axes):
        if len({rank % axis.size for rank in left}) > 1:
            used.append(axis.name)
        left = [rank // axis.size for rank in left]
    name = fabric.libraries.get(used[0]) if len(used) == 1 else None
    return name if name is not None and load_fit(name).serves(kind) else None


def answered(question: CollectiveQuestion) -> CollectiveAnswer:
    """The answer. Raises BadInput: whatever cannot be read, does not fit the network, or is no question."""
    kind, fabric = question.kind, question.fabric
    team = members.team(fabric, question.ranks)
    overlay = None if question.software is None else load_fit(question.software)
    if overlay is not None and not isinstance(kind, CollectiveKind):
        raise BadInput(Fault("--software", "a collective", f"a {kind}, of which no library was measured", "leave it out"))
    single = None if question.size is None else _single(question, team, overlay, question.size)
    swept = _swept(question, team) if question.sizes else None
    library = None if swept is None else _library(question, team, overlay, swept.sizes, swept.bounds)
    beside = _contention(question, single) if single is not None and question.beside else None
    return CollectiveAnswer(question, team, single, beside, swept, overlay, library)


def _single(question: CollectiveQuestion, team: Group, overlay: Overlay | None, size: int) -> SingleCollective:
    kind, startup = question.kind, question.startup
    if question.algorithm is None:
        found = candidates(kind, team, size, startup)
    else:
        found = (chosen(kind, team, size, question.algorithm, startup),)
    library = _library(question, team, overlay, (size,), (found[0].bound.value,))
    software = None
    if library is not None and overlay is not None and isinstance(kind, CollectiveKind):
        remark = "; ".join(overlay.remarks(kind, team.graph.ranks, size)) if team.graph.ranks > 1 and size else ""
        software = LibraryTime(library[0], library[1][0], remark)
    flow = None
    if question.optimum:
        if kind is not CollectiveKind.ALL_TO_ALL or team.graph.ranks < 2:
            raise BadInput(Fault("--optimum", "an all-to-all among at least 2 ranks", f"{kind} among {team.graph.ranks}"))
        flow = concurrent_flow(team.graph, all_to_all(team.graph, size), time_limit=question.limit)
    return SingleCollective(question.fabric, team, startup, found[0], found, software, flow)


def _library(
    question: CollectiveQuestion, team: Group, overlay: Overlay | None, sizes: Sequence[int], bounds: Sequence[float]
) -> Software | None:
    """The library's time at every size, never below the bound."""
    kind, ranks = question.kind, team.graph.ranks
    if overlay is None or not isinstance(kind, CollectiveKind):
        return None
    times = tuple(float(overlaid_time(overlay.time(kind, ranks, size), bound)) for size, bound in zip(sizes, bounds, strict=True))
    return f"{overlay.machine}, {overlay.software}", times


def _swept(question: CollectiveQuestion, team: Group) -> Sweep:
    if team.graph.ranks < 2 or question.kind is Pattern.BARRIER:
        got = "a barrier, which has no size" if question.kind is Pattern.BARRIER else "1"
        raise BadInput(Fault("times over sizes", "a collective among at least 2 ranks", got))
    return sweep(question.kind, team, question.sizes, question.algorithm, question.startup)


def _contention(question: CollectiveQuestion, single: SingleCollective) -> Contention:
    """The chosen schedule beside what the sentences say."""
    cost, fabric, team = single.cost, question.fabric, single.team
    others = read_beside(question.beside, fabric, question.startup)
    name = f"{cost.kind} {format_bytes(cost.size)} by {cost.algorithm}"
    own = collective_execution(
        name,
        fabric.graph,
        cost.kind,
        [team.ranks],
        cost.schedule,
        cost.size,
        startup=question.startup,
        line=is_line(team),
        slots=slot_times(team, cost.schedule, cost.size, question.startup),
    )
    return concurrent([own, *others.executions], fabric.graph, others.background)
