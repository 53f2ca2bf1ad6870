"""``halley collective``: what a collective costs on a network, how far that is from the least possible, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.answers.collective import document
from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import give
from halley.errors import BadInput, Fault
from halley.io.files.save import dumps, write_atomic
from halley.io.networks import chakra, members
from halley.io.networks.collectives import CollectiveAnswer, CollectiveQuestion, SingleCollective, answered, fit_of
from halley.io.networks.jobs import kind_of, sentences, whole_bytes
from halley.io.networks.nccl_export import nccl_text
from halley.io.systems.fabric import load_fabric
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.fabric import Fabric, with_overhead
from halley.network.time.schedules import is_line
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.collective import collective_tables, kind_tables
from halley.report.networks.sweep import sweep_plot
from halley.report.terminal import show
from halley.units import SECONDS, parse

PICTURES = (".svg", ".png")
SIZES = "1KiB:1GiB"
"""Sizes of a plot or table for which none are given."""
MOST_SIZES = 128
"""Most sizes of a plot or table: more are closer together than a plot resolves."""
MANY_RANKS = 256
"""Ranks from which on a comparison of all candidates takes long enough to say so."""


def collective(
    kind: Annotated[
        str | None, typer.Argument(metavar="COLLECTIVE", help="all-reduce, all-gather, all-to-all, ...; see --list.")
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Size, e.g. 256MiB; --list says what it counts.", metavar="SIZE")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--system", help="A shipped network or system, '64 x h100, nvlink 8, ib', or a path.", metavar="NAME"),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Ranks that take part: 0-7, 0,1,5 or 0-63:8.", metavar="LIST")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Parts of axes that take part: gpu, gpu=0:4 or node=0:2,gpu.", metavar="AXES")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="Use this algorithm or candidate instead of the fastest.", metavar="NAME")
    ] = None,
    startup: Annotated[
        str | None, typer.Option("--start-up", help="Time before every step, e.g. 2us; 0 by default.", metavar="TIME")
    ] = None,
    per_message: Annotated[
        str | None, typer.Option("--per-message", help="Time of the sender for each message; 0 by default.", metavar="TIME")
    ] = None,
    software: Annotated[
        str | None,
        typer.Option("--software", help="Fit of a library, by name or path; none: link rates alone.", metavar="NAME"),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", help="Many sizes, e.g. 1KiB:1GiB, by factors of 2, or 1KiB:1GiB:4.", metavar="A:B")
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", help="What runs concurrently, e.g. 'all-to-all 64MiB on gpu', or a file.", metavar="TEXT"),
    ] = None,
    optimum: Annotated[bool, typer.Option("--optimum", help="All-to-all: also find the optimal routing, with a proof.")] = False,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="Time limit of that search, e.g. 60s.", metavar="TIME")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every candidate.")] = False,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write the answer as JSON.", metavar="FILE")] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", help="Plot times over sizes to this file: .svg or .png.", metavar="FILE")
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
    """Cost a collective on a network: time, bound, limiting link, energy, and why other algorithms are slower.

    Example: halley collective all-reduce --size 256MiB --system dgx-h100
    """
    if listed:
        show(options.output(), kind_tables())
        return
    if out is not None and Path(out).suffix.lower() in PICTURES and figure is None:
        options.remarks().print(Text("the picture is --figure FILE now; -o FILE.json writes the answer"))
        out, figure = None, out
    if out is not None and not out.endswith(".json"):
        remedy = "a picture of times over sizes is --figure FILE"
        raise BadInput(Fault("--output", "a name that ends in .json", repr(out), remedy))
    if figure is not None and Path(figure).suffix.lower() not in PICTURES:
        raise BadInput(Fault("--figure", "a name that ends in .svg or .png", repr(figure)))
    written = list(filter(None, (figure, nccl)))
    for target in filter(None, (out, *written)):
        refuse_existing(target, force)
    found = _kind(kind)
    fabric = _fabric(system, per_message)
    chosen = _members(fabric, ranks, group)
    many = _sizes(sizes) if sizes is not None or written else ()
    alone = size is not None or not many or bool(beside) or optimum or bool(trace) or found is Pattern.BARRIER
    library = None if software == "none" else software
    if software is None and algorithm is None:
        library = fit_of(fabric, chosen, found)
    question = CollectiveQuestion(
        found,
        fabric,
        whole_bytes(size, found, "--size") if alone else None,
        chosen,
        algorithm,
        0.0 if startup is None else parse(startup, SECONDS, where="--start-up", zero=True),
        library,
        many,
        sentences(beside or ()),
        optimum,
        options.seconds(time_limit, 60.0) or 60.0,
    )
    if members.team(fabric, question.ranks).graph.ranks >= MANY_RANKS and algorithm is None:
        remark = f"compares all algorithms on {members.team(fabric, question.ranks).graph.ranks} ranks; --algorithm asks for one"
        options.remarks().print(Text(f"{remark} alone"))
    answer = answered(question)
    if trace is not None and answer.single is not None:
        _write_trace(answer.single, trace, force)
    _write(answer, figure, nccl, force)
    # times over sizes that a file alone needs are not shown
    shown = answer if sizes is not None or size is None else replace(answer, sweep=None, swept_software=None)
    give((), collective_tables(shown, everything), document(answer), json, out, force)
    for text in answer.remarks():
        options.remarks().print(Text(text))
    for target in written:
        options.remarks().print(Text(f"written to {target}"))


def _kind(text: str | None) -> Kind:
    if text is None:
        raise BadInput(Fault("collective", "a collective", "none", "'halley collective --list' lists them"))
    return kind_of(text, "collective")


def _fabric(name: str | None, per_message: str | None) -> Fabric:
    if name is None:
        remedy = "add for example '--system dgx-h100'; 'halley topology list' lists them"
        raise BadInput(Fault("--system", "a network", "none", remedy))
    fabric = load_fabric(name)
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


def _write(answer: CollectiveAnswer, figure: str | None, nccl: str | None, force: bool) -> None:
    """Times over sizes, as a picture and as nccl-tests print them."""
    swept, library = answer.sweep, answer.swept_software
    if swept is None:
        return
    if figure:
        drawn = sweep_plot(swept, answer.title, library)
        write_atomic(figure, png_file(drawn) if figure.lower().endswith(".png") else svg_file(drawn), force)
    if nccl:
        times = library[1] if library else [cost.time for cost in swept.best]
        rows = list(zip(swept.sizes, times, strict=True))
        write_atomic(nccl, nccl_text(answer.question.kind, answer.team.graph.ranks, rows, answer.title), force)


def _write_trace(answer: SingleCollective, prefix: str, force: bool) -> None:
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
