"""``halley collective``: what a collective costs on a network, how far that is from the least possible, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import ForceOption, JsonOption
from halley.cli.report import refuse_existing
from halley.errors import BadInput, Fault
from halley.formulas.software import overlaid_time
from halley.io.files.save import dumps, write_atomic
from halley.io.networks import chakra, members
from halley.io.networks.fits import load_fit
from halley.io.networks.jobs import kind_of, read_beside, whole_bytes
from halley.io.networks.nccl_export import nccl_text
from halley.io.networks.network import load_network
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.bounds.demands import all_to_all
from halley.network.bounds.flow import concurrent_flow
from halley.network.fit.overlay import Overlay
from halley.network.graph.fabric import Fabric, with_overhead
from halley.network.graph.groups import Group
from halley.network.time.choice import chosen
from halley.network.time.collective import candidates, slot_times
from halley.network.time.contention import Contention, collective_execution, concurrent
from halley.network.time.schedules import is_line
from halley.network.time.sweep import sweep
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.collective import (
    Answer,
    answer_document,
    answer_tables,
    contention_document,
    contention_tables,
    kind_tables,
)
from halley.report.networks.sweep import Software, sweep_document, sweep_plot, sweep_table
from halley.report.table import Table
from halley.report.terminal import show
from halley.units import SECONDS, format_bytes, parse

SIZES = "1KiB:1GiB"
"""Sizes of a plot or table for which none are given."""
MOST_SIZES = 128
LARGE = 256
"""Ranks from which on a comparison of all candidates takes long enough to say so."""


def collective(
    kind: Annotated[
        str | None, typer.Argument(metavar="COLLECTIVE", help="all-reduce, all-gather, all-to-all, ...; see --list.")
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Size, e.g. 256MiB; --list says what it counts.", metavar="SIZE")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", help="Name of a shipped network, or a path to a network file.", metavar="NAME")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Ranks that take part: 0-7, 0,1,5 or 0-63:8.", metavar="LIST")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Parts of axes that take part: gpu, gpu=0:4 or node=0:2,gpu.", metavar="AXES")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="This algorithm or candidate instead of the fastest.", metavar="NAME")
    ] = None,
    startup: Annotated[
        str | None, typer.Option("--start-up", help="Time before every step, e.g. 2us; none unless given.", metavar="TIME")
    ] = None,
    per_message: Annotated[
        str | None, typer.Option("--per-message", help="Time of the sender for each message; none unless given.", metavar="TIME")
    ] = None,
    software: Annotated[
        str | None, typer.Option("--software", help="Fit of a communication library, by name or path.", metavar="NAME")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", help="Many sizes, e.g. 1KiB:1GiB, by factors of 2, or 1KiB:1GiB:4.", metavar="A:B")
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", help="What runs at once, e.g. 'all-to-all 64MiB on gpu', or a file.", metavar="TEXT"),
    ] = None,
    optimum: Annotated[bool, typer.Option("--optimum", help="All-to-all: also the best routing of all, with its proof.")] = False,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="Longest time of the search for it, e.g. 60s.", metavar="TIME")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every candidate.")] = False,
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Plot times over sizes to this file: .svg or .png.", metavar="FILE")
    ] = None,
    nccl: Annotated[
        str | None, typer.Option("--nccl", help="Write predictions over sizes as nccl-tests print them.", metavar="FILE")
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--chakra", help="Write the messages as Chakra traces PREFIX.RANK.et, or one .json file.", metavar="PREFIX"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List collectives and algorithms, with sources.")] = False,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Cost a collective on a network: time, bound, limiting link, energy, and why the other algorithms lose.

    Example: halley collective all-reduce --size 256MiB --system dgx-h100
    """
    if listed:
        show(options.output(), kind_tables())
        return
    if out is not None and Path(out).suffix.lower() not in (".svg", ".png"):
        raise BadInput(Fault("--output", "a name that ends in .svg or .png", repr(out)))
    written = list(filter(None, (out, nccl)))
    for target in written:
        refuse_existing(target, force)
    asked = _asked(_kind(kind), _fabric(system, per_message), ranks, group, algorithm, startup, software)
    many = _sizes(sizes) if sizes is not None or written else ()
    shown = Shown([], {}, [])
    if size is not None or not many or beside or optimum or trace or asked.kind is Pattern.BARRIER:
        answer = _answer(asked, whole_bytes(size, asked.kind, "--size"))
        answer = _with_optimum(answer, time_limit) if optimum else answer
        shown.tables.extend(answer_tables(answer, everything))
        shown.document.update(answer_document(answer))
        shown.sizes.append(answer.cost.size)
        if beside:
            found = _contention(answer, beside)
            shown.tables.extend(contention_tables(found, asked.fabric))
            shown.document["beside"] = contention_document(found, asked.fabric)
        if trace is not None:
            _write_trace(answer, trace, force)
    if many:
        _sweep(asked, many, shown if sizes is not None or size is None else None, out, nccl, force)
    if json:
        options.print_json(shown.document)
    else:
        show(options.output(), shown.tables)
    _tell_extrapolation(asked, (*shown.sizes, *many))
    for target in written:
        options.remarks().print(Text(f"written to {target}"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options ask for."""

    kind: Kind
    fabric: Fabric
    team: Group
    algorithm: str | None
    startup: float
    overlay: Overlay | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What goes to stdout, as tables and as data, and the sizes [B] that were asked for alone."""

    tables: list[Table]
    document: dict[str, object]
    sizes: list[int]


def _asked(
    kind: Kind,
    fabric: Fabric,
    ranks: str | None,
    group: str | None,
    algorithm: str | None,
    startup: str | None,
    software: str | None,
) -> Asked:
    """Raises BadInput: whatever cannot be read, or is not there."""
    team = members.team(fabric, _members(fabric, ranks, group))
    delay = 0.0 if startup is None else parse(startup, SECONDS, where="--start-up", zero=True)
    overlay = None if software is None else load_fit(software)
    if overlay is not None and not isinstance(kind, CollectiveKind):
        raise BadInput(Fault("--software", "a collective", f"a {kind}, of which no library was measured", "leave it out"))
    if team.graph.ranks >= LARGE and algorithm is None:
        remark = f"compares all algorithms on {team.graph.ranks} ranks; --algorithm asks for one alone"
        options.remarks().print(Text(remark))
    return Asked(kind, fabric, team, algorithm, delay, overlay)


def _kind(text: str | None) -> Kind:
    if text is None:
        raise BadInput(Fault("collective", "a collective", "none", "'halley collective --list' lists them"))
    return kind_of(text, "collective")


def _fabric(name: str | None, per_message: str | None) -> Fabric:
    if name is None:
        remedy = "add for example '--system dgx-h100'; 'halley topology list' lists them"
        raise BadInput(Fault("--system", "a network", "none", remedy))
    fabric = load_network(name)
    if per_message is None:
        return fabric
    return with_overhead(fabric, parse(per_message, SECONDS, where="--per-message", zero=True))


def _members(fabric: Fabric, ranks: str | None, group: str | None) -> tuple[int, ...] | None:
    """The ranks that take part; None for all."""
    if ranks is not None and group is not None:
        raise BadInput(Fault("--ranks and --group", "one of them", "both"))
    if ranks is not None:
        return members.ranks(ranks, fabric)
    return None if group is None else members.in_box(members.box(group, fabric), fabric)


def _sizes(text: str | None) -> tuple[int, ...]:
    """The sizes from first to last, each the factor times the one before.

    >>> _sizes("1kB:9kB:3")
    (1000, 3000, 9000)
    """
    parts = (text or SIZES).split(":")
    where = "--sizes"
    if len(parts) not in (2, 3):
        raise BadInput(Fault(where, "two sizes and perhaps a factor, such as 1KiB:1GiB or 1KiB:1GiB:4", repr(text)))
    first, last = (whole_bytes(part, None, where) for part in parts[:2])
    factor = int(parts[2]) if len(parts) == 3 and parts[2].isdecimal() else 2 if len(parts) == 2 else 0
    if factor < 2 or first >= last:
        raise BadInput(Fault(where, "sizes that grow, by a whole factor of at least 2", repr(text)))
    found = [first]
    while found[-1] * factor <= last and len(found) < MOST_SIZES:
        found.append(found[-1] * factor)
    return tuple(found)


def _answer(asked: Asked, size: int) -> Answer:
    kind, team = asked.kind, asked.team
    if asked.algorithm is None:
        found = candidates(kind, team, size, asked.startup)
    else:
        found = (chosen(kind, team, size, asked.algorithm, asked.startup),)
    library = _library(asked, (size,), (found[0].bound.value,))
    software = None if library is None else (library[0], library[1][0])
    return Answer(asked.fabric, team, asked.startup, found[0], found, software)


def _library(asked: Asked, sizes: Sequence[int], bounds: Sequence[float]) -> Software | None:
    """The library's time at every size, never below the bound."""
    overlay, ranks = asked.overlay, asked.team.graph.ranks
    if overlay is None or not isinstance(asked.kind, CollectiveKind):
        return None
    kind = asked.kind
    times = tuple(float(overlaid_time(overlay.time(kind, ranks, size), bound)) for size, bound in zip(sizes, bounds, strict=True))
    return f"{overlay.machine}, {overlay.software}", times


def _tell_extrapolation(asked: Asked, sizes: Sequence[int]) -> None:
    """Where the library's times reach beyond what was measured."""
    if asked.overlay is not None and isinstance(asked.kind, CollectiveKind) and asked.team.graph.ranks > 1:
        ends = np.array([min(sizes), max(sizes)])
        for text in asked.overlay.remarks(asked.kind, asked.team.graph.ranks, ends):
            options.remarks().print(Text(text))


def _sweep(asked: Asked, sizes: Sequence[int], shown: Shown | None, out: str | None, nccl: str | None, force: bool) -> None:
    """All sizes: into what is shown, if it is to be, and into files."""
    team, kind = asked.team, asked.kind
    if team.graph.ranks < 2 or kind is Pattern.BARRIER:
        got = "a barrier, which has no size" if kind is Pattern.BARRIER else "1"
        raise BadInput(Fault("times over sizes", "a collective among at least 2 ranks", got))
    swept = sweep(kind, team, sizes, asked.algorithm, asked.startup)
    library = _library(asked, swept.sizes, swept.bounds)
    title = f"{kind} among {team.graph.ranks} ranks of {asked.fabric.name}"
    if shown is not None:
        shown.tables.append(sweep_table(swept, title, library))
        shown.document["sweep"] = sweep_document(swept, library)
    if out:
        drawn = sweep_plot(swept, title, library)
        write_atomic(out, png_file(drawn) if out.lower().endswith(".png") else svg_file(drawn), force)
    if nccl:
        times = library[1] if library else [cost.time for cost in swept.best]
        rows = list(zip(swept.sizes, times, strict=True))
        write_atomic(nccl, nccl_text(kind, team.graph.ranks, rows, title), force)


def _with_optimum(answer: Answer, time_limit: str | None) -> Answer:
    if answer.cost.kind is not CollectiveKind.ALL_TO_ALL or answer.team.graph.ranks < 2:
        got = f"{answer.cost.kind} among {answer.team.graph.ranks}"
        raise BadInput(Fault("--optimum", "an all-to-all among at least 2 ranks", got))
    graph = answer.team.graph
    limit = options.seconds(time_limit, 60.0) or 60.0
    flow = concurrent_flow(graph, all_to_all(graph, answer.cost.size), time_limit=limit)
    return replace(answer, optimum=flow)


def _contention(answer: Answer, beside: Sequence[str]) -> Contention:
    """The chosen schedule beside what the sentences say."""
    cost, fabric = answer.cost, answer.fabric
    others = read_beside(beside, fabric, answer.startup)
    name = f"{cost.kind} {format_bytes(cost.size)} by {cost.algorithm}"
    groups = [answer.team.ranks]
    own = collective_execution(
        name,
        fabric.graph,
        cost.kind,
        groups,
        cost.schedule,
        cost.size,
        startup=answer.startup,
        line=is_line(answer.team),
        slots=slot_times(answer.team, cost.schedule, cost.size, answer.startup),
    )
    return concurrent([own, *others.executions], fabric.graph, others.background)


def _write_trace(answer: Answer, prefix: str, force: bool) -> None:
    """The chosen schedule's messages, as one JSON file or one Chakra trace per rank."""
    cost, team = answer.cost, answer.team
    table = cost.schedule.steps(cost.kind, team.graph.ranks, is_line(team))
    sizes = cost.schedule.sizes(cost.kind, team.graph.ranks, cost.size)
    made = chakra.trace(table, sizes, team.graph.ranks, str(cost.kind))
    if prefix.endswith(".json"):
        files = [(prefix, dumps(chakra.trace_document(made)).encode())]
    else:
        files = list(chakra.trace_files(made, prefix))
    for name, _ in files:
        refuse_existing(name, force)
    for name, content in files:
        write_atomic(name, content, force)
    options.remarks().print(Text(f"written to {files[0][0]}" + (f" and {len(files) - 1} more" if files[1:] else "")))
