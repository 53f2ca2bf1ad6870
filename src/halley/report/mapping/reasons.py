"""Why one plan beats another: every second, joule and byte of the difference, attributed. Subtracts what `halley.cost` counted.

Parts of a difference of times are those of the latency anatomy, parts of energy are components, parts of traffic are tensors at
memories. Each kind adds up to the difference of the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halley.cost.events import Access, LinkTraffic
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, walk
from halley.mapping.result import Result, Solution
from halley.report.mapping.causes import causes
from halley.report.table import Table, ratio
from halley.units import format_bytes, format_energy, format_time

LEAST_LISTED_SHARE = 0.01
"""Parts below this share of the largest one are listed as one."""

ROUNDING = 1e-12
"""Differences below this share of the largest quantity are rounding."""


@dataclass(frozen=True, slots=True)
class Change:
    """A quantity [s, J or B] in two plans; 0 in a plan that lacks it. ``memory`` is that of traffic."""

    subject: str
    before: float
    after: float
    memory: str = ""

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Joining:
    """A collective in two plans: bytes [B] over all links, and its time [s] in the critical member, hidden or not."""

    name: str
    bytes: Change
    time: Change


@dataclass(frozen=True, slots=True)
class Reasons:
    """What changes from the plan ``before`` to the plan ``after``, largest changes first; ``traffic`` by memory, ``outer`` first.

    ``time`` [s] adds up to the difference in ``times``, ``energy`` [J] to that in ``energies``, ``traffic`` [B] of a memory to
    that of all bytes read and written there.
    """

    before: str
    after: str
    times: Change
    energies: Change
    time: tuple[Change, ...]
    energy: tuple[Change, ...]
    traffic: tuple[Change, ...]
    collectives: tuple[Joining, ...]
    outer: str

    @property
    def same(self) -> bool:
        """Whether nothing changes."""
        return not (self.time or self.energy or self.traffic or self.collectives)


def reasons(before: Solution, after: Solution, memories: Sequence[str], names: tuple[str, str] | None = None) -> Reasons:
    """The reasons of the difference between two plans. ``memories`` outermost first; ``names`` if not the plans' own."""
    first, second = names or (before.name, after.name)
    old, new = before.estimate, after.estimate
    moved = _changes(_traffic(before), _traffic(after))
    return Reasons(
        first,
        second,
        Change("time", float(old.time), float(new.time)),
        Change("energy", float(old.energy), float(new.energy)),
        _changes(*({("", name): time for name, time in causes(plan.plan, plan.estimate).items()} for plan in (before, after))),
        _changes(*({("", name): float(value) for name, value in cost.energy_by.items()} for cost in (old, new))),
        tuple(change for memory in memories for change in moved if change.memory == memory),
        _joinings(_crossings(before), _crossings(after)),
        memories[0],
    )


def all_reasons(result: Result) -> tuple[Reasons, ...]:
    """From each baseline to the best plan."""
    memories = memory_names([result.problem.chip])
    return tuple(reasons(baseline, result.best, memories) for baseline in result.baselines)


def memory_names(chips: Iterable[Chip]) -> tuple[str, ...]:
    """The memories of chips, outermost first."""
    return tuple(dict.fromkeys(memory.name for chip in chips for level in chip.levels for memory in level.memories))


def _changes(before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float]) -> tuple[Change, ...]:
    """What differs by (memory, subject), the largest first."""
    keys = dict.fromkeys((*before, *after))
    found = (Change(key[1], before.get(key, 0.0), after.get(key, 0.0), key[0]) for key in keys)
    noise = ROUNDING * max([*before.values(), *after.values()], default=0.0)
    return tuple(sorted((change for change in found if abs(change.difference) > noise), key=_size))


def _size(change: Change) -> float:
    return -abs(change.difference)


def _traffic(plan: Solution) -> dict[tuple[str, str], float]:
    """Bytes read and written by (memory, tensor), over all instances."""
    found: dict[tuple[str, str], float] = {}
    for event in plan.estimate.events:
        if isinstance(event, Access):
            key = (event.memory, event.tensor)
            found[key] = found.get(key, 0.0) + float(event.total)
    return found


def _crossings(plan: Solution) -> dict[str, tuple[float, float]]:
    """Bytes [B] and time [s] of each collective, by what it is and where."""
    nodes = {path: node for path, node in walk(plan.plan) if isinstance(node, Collective)}
    found: dict[str, tuple[float, float]] = {}
    for event in plan.estimate.events:
        if isinstance(event, LinkTraffic) and event.path in nodes:
            node = nodes[event.path]
            name = f"{node.kind.value} {' '.join(node.tensors)} over {node.level}.{node.axis} ({node.algorithm})"
            amount, time = found.get(name, (0.0, 0.0))
            found[name] = (amount + float(event.total), time + float(event.time))
    return found


def _joinings(before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]) -> tuple[Joining, ...]:
    found = []
    for name in dict.fromkeys((*before, *after)):
        (old, old_time), (new, new_time) = before.get(name, (0.0, 0.0)), after.get(name, (0.0, 0.0))
        if (old, old_time) != (new, new_time):
            found.append(Joining(name, Change(name, old, new), Change(name, old_time, new_time)))
    return tuple(sorted(found, key=lambda joining: (_size(joining.time), _size(joining.bytes))))


# --- words ----------------------------------------------------------------------------------------------------------------


def reasons_table(found: Reasons) -> Table:
    """One sentence per reason, with what it changes; each kind with its sum."""
    faster = found.times.before / found.times.after if found.times.after else 1.0
    if found.same:
        return Table(f"{found.after} and {found.before}", ("", "", ""), (("", "the same costs: nothing differs", ""),))
    title = f"Why {found.after} takes {format_time(found.times.after)} and {found.before} {format_time(found.times.before)}"
    sections = (
        ("time", [*_sentences(found.time, format_time), _together(found.times, format_time, f" ({ratio(faster)} as fast)")]),
        ("traffic", list(_traffic_sentences(found))),
        ("collectives", [_collective_sentence(joining) for joining in found.collectives]),
        ("energy", [*_sentences(found.energy, format_energy), _together(found.energies, format_energy)]),
    )
    rows: list[tuple[str, str, str]] = []
    strong: set[int] = set()
    for kind, lines in sections:
        for index, (sentence, amount) in enumerate(lines):
            if sentence.startswith("together"):
                strong.add(len(rows))
            rows.append((kind if index == 0 else "", sentence, amount))
    return Table(title, ("", "reason", "change"), tuple(rows), frozenset({2}), frozenset(strong))


def headline(found: Reasons) -> str:
    """What explains most of the difference in time, and what changes most at the outermost memory, in one line; "nothing differs"
    for equal plans."""
    if found.same:
        return "nothing differs"
    helping = [change for change in found.time if change.difference * found.times.difference > 0]
    said = [f"mostly {change.subject}, {_signed(change, format_time)}" for change in helping[:1]]
    sentence, amount = next(_traffic_sentences(found))
    return "; ".join([*said, f"{sentence}, {amount}" if amount else sentence])


def _sentences(changes: Sequence[Change], words: Callable[[float], str]) -> Iterator[tuple[str, str]]:
    """The changes as sentences; the small ones in one."""
    largest = max((abs(change.difference) for change in changes), default=0.0)
    small = [change for change in changes if abs(change.difference) < LEAST_LISTED_SHARE * largest]
    for change in changes:
        if change not in small:
            yield _sentence(change, words), _signed(change, words)
    if small:
        rest = Change("", sum(change.before for change in small), sum(change.after for change in small))
        yield f"{len(small)} smaller", _signed(rest, words)


def _sentence(change: Change, words: Callable[[float], str]) -> str:
    before, after = (words(value) if value else "none" for value in (change.before, change.after))
    return f"{change.subject}: {before} before, {after} after"


def _collective_sentence(joining: Joining) -> tuple[str, str]:
    time = _sentence(joining.time, format_time)
    return f"{time}; bytes over links", _signed(joining.bytes, format_bytes)


def _traffic_sentences(found: Reasons) -> Iterator[tuple[str, str]]:
    """The outermost memory tensor by tensor; the others with the tensors that change most."""
    memories = tuple(dict.fromkeys(change.memory for change in found.traffic))
    if found.outer not in memories:
        yield f"nothing changes at {found.outer}", ""
    for memory in memories:
        here = [change for change in found.traffic if change.memory == memory]
        total = Change(memory, sum(change.before for change in here), sum(change.after for change in here))
        if memory == found.outer:
            gone = [change for change in here if not change.after]
            came = [change for change in here if not change.before]
            for group, verb in ((gone, "no longer travel"), (came, "now travel")):
                if group:
                    names = _listed([change.subject for change in group])
                    moved = Change(memory, sum(c.before for c in group), sum(c.after for c in group))
                    yield f"{names} {verb}{'s' if len(group) == 1 else ''} to {memory}", _signed(moved, format_bytes)
            yield from _sentences([_at(change) for change in here if change.before and change.after], format_bytes)
            yield f"together at {memory}", _signed(total, format_bytes)
        else:
            most = ", ".join(f"{change.subject} {_signed(change, format_bytes)}" for change in here[:3])
            yield f"{memory}, mostly {most}", _signed(total, format_bytes)


def _at(change: Change) -> Change:
    return Change(f"{change.subject} at {change.memory}", change.before, change.after, change.memory)


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["S"]), _listed(["S", "E", "P"])
    ('S', 'S, E and P')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _together(change: Change, words: Callable[[float], str], more: str = "") -> tuple[str, str]:
    return f"together: {words(change.before)} before, {words(change.after)} after{more}", _signed(change, words)


def _signed(change: Change, words: Callable[[float], str]) -> str:
    """The difference with its sign."""
    return f"{'-' if change.difference < 0 else '+' if change.difference > 0 else ''}{words(abs(change.difference))}"


# --- a document -----------------------------------------------------------------------------------------------------------


def reasons_document(found: Reasons) -> dict[str, Any]:
    """The reasons as JSON: every part, however small; and the sentences."""

    def parts(changes: Iterable[Change], key: str, unit: str) -> list[dict[str, Any]]:
        return [{key: c.subject, f"before_{unit}": c.before, f"after_{unit}": c.after} for c in changes]

    def whole(change: Change, unit: str) -> dict[str, float]:
        return {f"before_{unit}": change.before, f"after_{unit}": change.after}

    return {
        "before": found.before,
        "after": found.after,
        "time": {**whole(found.times, "s"), "parts": parts(found.time, "cause", "s")},
        "energy": {**whole(found.energies, "J"), "parts": parts(found.energy, "component", "J")},
        "traffic": [{"memory": c.memory, "tensor": c.subject, **whole(c, "B")} for c in found.traffic],
        "collectives": [{"collective": c.name, **whole(c.bytes, "B"), **whole(c.time, "s")} for c in found.collectives],
        "sentences": [{"kind": kind, "reason": text, "change": amount} for kind, text, amount in _labelled(reasons_table(found))],
    }


def _labelled(table: Table) -> Iterator[tuple[str, str, str]]:
    """The rows, each with its kind."""
    kind = ""
    for first, text, amount in table.rows:
        kind = first or kind
        yield kind, text, amount
