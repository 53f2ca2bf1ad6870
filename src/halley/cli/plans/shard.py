"""``halley shard``: any graph on a whole system, every op sharded over its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from halley.answer import Status
from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption, TimeLimitOption
from halley.cli.output import give
from halley.cli.parameters import has_layer, refuse_beside, workload_from
from halley.cli.plans.systems import (
    EfficiencyOption,
    KernelsOption,
    SystemOption,
    WorkersOption,
    efficiency_of,
    kernel_workers,
    system_of,
)
from halley.cli.solve import searching
from halley.errors import BadInput, Fault
from halley.graphs.plan import GraphProblem, plan_graph
from halley.graphs.searched import plan_searched_graph
from halley.importers.training import LIBRARY, is_searched, refuse_unless_searched
from halley.io.cache import user_store
from halley.io.chips.load import load_problem
from halley.io.results.graphs import graph_document
from halley.kernels.machine import PEAK
from halley.kernels.searched import SearchedKernels
from halley.report.plans.graph import graph_headline, graph_tables, graph_verdict


def shard(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Kind of workload, graph, problem file (.yaml), or model.")],
    system: SystemOption = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Number of equal layers; the graph is one of them.", metavar="NUMBER")
    ] = None,
    microbatches: Annotated[
        str | None, typer.Option("--microbatches", help="Number of microbatches, one after the other.", metavar="NUMBER")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", help="Fix the dim of an op that an axis splits, as OP=AXIS:DIM; repeatable.", metavar="WORDS"),
    ] = None,
    chain: Annotated[
        list[str] | None,
        typer.Option("--chain", help="OUTPUT=INPUT of the next layer, laid out alike; repeatable.", metavar="WORDS"),
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="DFModel's view: compute, memory and network overlap, at full rates.")
    ] = False,
    fused: Annotated[bool, typer.Option("--fused", help="With --overlap: chips run fused kernels concurrently.")] = False,
    efficiency: EfficiencyOption = None,
    kernels: KernelsOption = LIBRARY,
    workers: WorkersOption = None,
    time_limit: TimeLimitOption = None,
    ops: Annotated[bool, typer.Option("--ops", help="Show the sharding of every op.")] = False,
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write the plan as JSON.", metavar="FILE")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find the fastest sharding of a graph over all chips of a system, with a lower bound: any dim of each op along each axis.

    Example: halley shard gemm --m 65536 --n 8192 --k 8192 --system '16 x h100, nvlink 8, ib'

    The workload's parameters follow it as options; 'halley workloads KIND' lists them.
    """
    if workload.endswith((".yaml", ".yml")) and not has_layer(context.args):
        refuse_beside(workload, context.args)
        file = load_problem(workload)
        work = file.built()
    else:
        work = workload_from(workload, context.args, options.own_options(context))
    searched, limit = is_searched(kernels, efficiency, "--"), options.seconds(time_limit)
    refuse_unless_searched(searched, "time-limit", limit, "--")
    processes = kernel_workers(workers, searched)
    found = system_of(system)
    problem = GraphProblem(
        work,
        found,
        options.whole_number("--layers", layers, 1, example=32),
        options.whole_number("--microbatches", microbatches, 1, example=8),
        same_layout=tuple(_pair(words, "--chain", "OUTPUT=INPUT") for words in chain or ()),
        splits=_splits(split or ()),
        overlap=overlap,
        fused=fused,
        efficiency=PEAK if overlap or searched else efficiency_of(found, efficiency),
        searched=SearchedKernels(found.chip) if searched else None,
    )
    if out:
        refuse_existing(out, force)
    if not searched:
        plan = plan_graph(problem)
    else:
        remarks, store = options.remarks(), user_store()
        with searching(remarks, f"{work.name} on {found.name}", "sharding") as bar:
            plan = plan_searched_graph(problem, bar, limit, store, processes)
        if store is not None and store.fault is not None:
            remarks.print(Text(f"searched kernels were not kept: {store.fault}"))
    give((graph_headline(plan), graph_verdict(plan)), graph_tables(plan, ops), graph_document(plan), json, out, force)
    if searched and plan.certificate.status is Status.LIMIT:
        raise typer.Exit(LIMIT_EXIT_CODE)


def _pair(words: str, option: str, form: str) -> tuple[str, str]:
    """What stands on both sides of the equals sign. Raises BadInput: another form."""
    name, sign, other = (part.strip() for part in words.partition("="))
    if not (name and sign and other):
        raise BadInput(Fault(option, form, repr(words)))
    return name, other


def _splits(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """The splits that are fixed. Raises BadInput: another form, or an axis of an op twice."""
    found: dict[str, dict[str, str]] = {}
    for words in given:
        op, rest = _pair(words, "--split", "OP=AXIS:DIM")
        axis, sign, dim = (part.strip() for part in rest.partition(":"))
        if not (axis and sign) or axis in found.setdefault(op, {}):
            raise BadInput(Fault("--split", "OP=AXIS:DIM, each axis of an op once", repr(words)))
        found[op][axis] = dim
    return found
