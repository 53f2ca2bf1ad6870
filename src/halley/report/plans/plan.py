"""A plan of training as tables: what it is, where its time and memory go, and why the others are slower."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from halley.answer import Certificate, Status
from halley.kernels.groups import GroupShape
from halley.kernels.machine import PEAK, machine
from halley.kernels.searched import (
    AnyKernel,
    AttentionShape,
    KernelCost,
    KernelShape,
    Product,
    SearchedKernels,
    shape_of,
)
from halley.kernels.software import Software
from halley.kernels.times import Attention, Gemm, Scan
from halley.network.graph.bill import Bill
from halley.pipeline.data_parallel import Sharded
from halley.report.mapping.plots import format_operations
from halley.report.plans.others import others_table
from halley.report.plans.partitions import on_chip_tables
from halley.report.plans.sharding import sharding_tables
from halley.report.plans.traffic import ROUNDING, traffic_tables
from halley.report.plans.words import dim_words, schedule_words, system_words
from halley.report.table import Table, percent
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.sharding.text import joined
from halley.training.energy import plan_energy
from halley.training.op_mapping import ops_of_kernels, ops_of_shapes
from halley.training.part_costs import part_counts
from halley.training.plan import Plan, PlanCost, TrainingResult
from halley.training.search.joint import ASKED, KERNELS, searched_in_plan
from halley.training.uncertainty.plans import DRAWS, PlanUncertainty, uncertainty
from halley.units import counted, format_bytes, format_energy, format_power, format_time

ACCOUNT: Mapping[str, str] = {
    "forward": "forward passes",
    "recompute": "recomputation",
    "backward": "backward passes",
    "host": "waiting for the host to launch kernels",
    "sharding": "exposed ZeRO collectives",
    "sending": "sending to the next stage",
    "bubble": "pipeline bubble",
    "transfers": "waiting for transfers between stages",
    "reduction": "exposed sum of gradients",
    "waiting": "waiting for the slowest stage",
    "norm": "norm of the gradients",
    "step": "optimizer step",
    "gather": "gathering updated parameters",
}
"""What the parts of an iteration's account are."""
HELD: Mapping[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "states": "optimizer state",
    "activations": "saved activations",
    "working": "buffers of the running pass",
}
"""What memory holds."""
SHARDED: Mapping[Sharded, str] = {
    Sharded.NOTHING: "nothing",
    Sharded.OPTIMIZER: "optimizer state (ZeRO 1)",
    Sharded.GRADIENTS: "state and gradients (ZeRO 2)",
    Sharded.PARAMETERS: "state, gradients and parameters (ZeRO 3)",
}
SURE = 0.995
"""Share of draws from which on the best plan is taken to stay the best."""
SHORT_PARTS = 6
"""Parts of the time on one screen."""
SHORT_OTHERS = 3
"""Other kinds of plan on one screen."""
EXPERTS_REMARK = "mixtures of experts: measured runs on B200 took 1.1 to 2.6 times as long as planned"
"""Beside the time of their plans (`validation.training.bridge`)."""
SCANS_REMARK = "no scan of a state space was measured: its kernel is assumed to reach the rates of the measured attention"
"""Beside the time of plans of Mamba-2 (docs/decisions/0138-scans-in-plans.md)."""
BAR_CHARACTERS = 24
"""Characters of the longest bar."""


def headline(result: TrainingResult) -> str:
    """The model, what it is trained on, and where the times of its kernels come from."""
    problem = result.problem
    return (
        f"{problem.shape.name} on {system_words(problem.system)}, "
        f"{problem.batch:,} sequences of {problem.sequence:,} tokens an iteration; {kernel_words(result)}"
    )


def kernel_words(result: TrainingResult) -> str:
    """Whether kernels are searched, and the share of their time that formulas give."""
    if result.problem.searched is None:
        return "kernel times by formula at peaks" if result.problem.efficiency == PEAK else "kernel times by fitted formulas"
    found = _times_by_source(result)
    whole, formula = (math.fsum(math.fsum(found[name]) for name in names) for names in (found, set(found) - SEARCHED_NAMES))
    return f"kernels searched on {result.problem.chip.name}, {percent(formula, whole)} of their time by formula"


def verdict(certificate: Certificate, status: Status) -> str:
    """What is proven.

    ``optimal: nothing in the declared space is better (3.1e+05 plans; bound 12.3 s, gap 0 %)``
    """
    gap = f"gap {_percent(certificate.gap, 2)} %" if certificate.bound > 0 else "no bound"
    return f"{status.value} ({_plans(certificate)}; bound {format_time(certificate.bound)}, {gap})"


def _plans(certificate: Certificate) -> str:
    """Number of plans of the space."""
    return "plans not counted" if certificate.size is None else f"{certificate.size:,} plans"


def _percent(share: float, digits: int) -> str:
    """
    >>> _percent(0.03456, 2), _percent(2.419, 2)
    ('3.5', '242')
    """
    return f"{100 * share:.{digits}g}" if share < 1 else f"{100 * share:.0f}"


def plan_tables(result: TrainingResult, ops: bool = False) -> list[Table]:
    """All that is to be said, the most wanted first; ``ops``: how every op is split, instead of the ops of the forward pass in
    groups."""
    cost, certificate = result.cost, certificate_table(result.certificate)
    on_chip = on_chip_tables(cost)
    parts = summary_tables(result), others_table(result), shardings(cost, ops), on_chip, [certificate]
    return [table for part in parts for table in part]


def short_tables(result: TrainingResult) -> list[Table]:
    """One screen: what the best plan reaches, its parallelism, where the time goes, and what comes next."""
    cost, plan = result.cost, result.plan
    held = sum(cost.memory[cost.fullest].values())
    time, *rates = _figures(result).rows[:3]
    figures = (
        time,
        *uncertainty_rows(uncertainty(result)),
        *rates,
        ("memory", f"{format_bytes(held)} of {format_bytes(cost.capacity)}, {cost.tier}, on the fullest chip"),
        ("recomputed", "nothing" if plan.recompute is Recompute.NONE else str(plan.recompute)),
        ("software", _software(result.problem.software)),
        *([("how far to trust", EXPERTS_REMARK)] if result.problem.shape.experts else []),
        *([("how far to trust", SCANS_REMARK)] if result.problem.shape.state_space else []),
    )
    account = dict(sorted(cost.account.items(), key=lambda item: -item[1])[:SHORT_PARTS])
    shown = {name: time for name, time in cost.account.items() if name in account}
    rest = cost.time - sum(shown.values())
    parts = shown | ({"rest": rest} if rest > ROUNDING * cost.time else {})
    names = {**ACCOUNT, "rest": "all other parts"}
    tables = [
        Table("The best plan", ("", ""), figures, strong=frozenset({0})),
        _axes(result),
        account_table("Where the time goes, on the stage that finishes last", parts, cost.time, names, "iteration"),
    ]
    for table in others_table(result):
        rows = tuple(row[:3] for row in table.rows[1 : 1 + SHORT_OTHERS])
        tables.append(Table("The next best kinds of plan", table.head[:3], rows, table.right))
    return tables


def summary_tables(result: TrainingResult) -> Iterator[Table]:
    """What the best plan is and reaches, its time, memory and traffic."""
    cost, plan = result.cost, result.plan
    yield _figures(result)
    yield from uncertainty_tables(uncertainty(result))
    yield _axes(result)
    yield _choices(plan, cost.tier, cost.second, result.problem.software)
    if known := searched_in_plan(result):
        yield kernels_table(result, known)
    if result.problem.searched is not None:
        yield sources_table(result)
    yield account_table("Where the time goes, on the stage that finishes last", cost.account, cost.time, ACCOUNT, "iteration")
    yield energy_table(result)
    yield memory_table(cost)
    yield from traffic_tables(plan, cost)


def _figures(result: TrainingResult) -> Table:
    cost, chips = result.cost, result.problem.system.chips
    rows = [
        ("iteration", format_time(cost.time)),
        ("tokens", f"{cost.tokens_per_second:,.0f} /s; {_number(cost.tokens_per_second / chips)} /s on each chip"),
        ("utilisation (MFU)", _rate(cost.utilisation, cost.peak / chips) + ": the model's operations, masked scores included"),
    ]
    if cost.hardware_work > cost.model_work:
        rows.append(("of hardware (HFU)", _rate(cost.hardware_utilisation, cost.peak / chips) + ": with recomputation"))
    rows += bill_rows(cost.model_work / cost.time, cost.bill)
    return Table("The best plan", ("", ""), tuple(rows), strong=frozenset({0}))


def uncertainty_rows(known: PlanUncertainty | None) -> Iterator[tuple[str, str]]:
    """The interval of the time of an iteration, and whether the best plan stays the best; nothing where no error is known."""
    if known is None:
        return
    assumed = [source.name for source in known.sources if source.assumed and source.elasticity]
    unmeasured = f"; not measured: {', '.join(assumed)}" if assumed else ""
    yield "interval of 80 %", f"{_reach(known)}, by the errors on held-out measurements{unmeasured}"
    if known.fastest[0] < SURE:
        second = max(range(1, len(known.fastest)), key=lambda place: known.fastest[place])
        own, other = (percent(known.fastest[place], 1) for place in (0, second))
        robust = ""
        if known.robust:
            least, more = (percent(known.regrets[place], 1) for place in (known.robust, 0))
            robust = f"; most robust: plan {known.robust}, {least} slower than the fastest on average, the best plan {more}"
        yield "rank", f"the fastest in {own} of draws of these errors, plan {second} in {other}{robust}"


def uncertainty_tables(known: PlanUncertainty | None) -> Iterator[Table]:
    """Which errors make the interval, and how plans compare under draws of them."""
    if known is None:
        return
    rows = tuple(
        (source.name, percent(source.error, 1) + " (assumed)" * source.assumed, f"{source.elasticity:.2f} %")
        for source in known.sources
    )
    head = ("times of", "mean error", "1 % more adds")
    yield Table(f"Errors of predictions: an iteration takes {_reach(known)} with a chance of 80 %", head, rows, frozenset({1, 2}))
    plans = tuple(
        (f"plan {place}" if place else "the best plan", percent(share, 1), percent(regret, 1))
        for place, (share, regret) in enumerate(zip(known.fastest, known.regrets, strict=True))
    )
    head = ("plan", "the fastest in", "slower than the fastest, on average")
    yield Table(f"The best plans under {DRAWS:,} draws of these errors", head, plans, frozenset({1, 2}))


def _reach(known: PlanUncertainty) -> str:
    return f"{format_time(known.low)} to {format_time(known.high)}"


def energy_table(result: TrainingResult) -> Table:
    """The energy of an iteration by what takes it, and what is left out."""
    energy, tokens = plan_energy(result), result.cost.tokens
    rows = [(name, format_energy(spent), percent(spent, energy.total)) for name, spent in energy.parts.items()]
    rows.append(("all of these", f"{format_energy(energy.total)}, {format_energy(energy.total / tokens)} a token", ""))
    unstated = f"; not stated, so zero here: {', '.join(energy.unstated)}" * bool(energy.unstated)
    title = f"Energy of an iteration, all chips, without hosts, switches, cooling and losses of supplies{unstated}"
    return Table(title, ("", "energy", "share"), tuple(rows), frozenset({2}), strong=frozenset({len(rows) - 1}))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rate(share: float, peak: float) -> str:
    return f"{percent(share, 1)}, {format_operations(share * peak)} of {format_operations(peak)} on each chip"


def bill_rows(rate: float, costs: Bill) -> Iterator[tuple[str, str]]:
    """The price and the power of a system, and what they bring at a ``rate`` [op/s] where those of all parts are stated."""
    if costs.price:
        ratio = "" if costs.unpriced else f"; {format_operations(rate / costs.price)} for each USD"
        yield "price", f"{costs.price:,.0f} USD{_unstated(costs.unpriced)}{ratio}"
    if costs.power:
        ratio = "" if costs.unpowered else f"; {format_operations(rate / costs.power)} for each W"
        yield "power", f"{format_power(costs.power)}{_unstated(costs.unpowered)}{ratio}"


def _unstated(parts: Sequence[str]) -> str:
    return f" (without {', '.join(parts)}: not stated)" if parts else ""


def _axes(result: TrainingResult) -> Table:
    """The degrees of parallelism on each axis of the system."""
    plan, names = result.plan, result.cost.parallelisms
    rows = []
    for axis in result.problem.system.axes:
        parts = [part for part in plan.assignment if part.axis == axis.name]
        cells = []
        for role in Role:
            found = [part for part in parts if part.role is role]
            text = " x ".join(str(part.size) for part in found)
            # what a part of the batch or of the layers is for, its role says
            known = joined({name for part in found for name in names.get(part.axis, ()) if role is Role.MODEL})
            cells.append(f"{text} ({known})" if known else text or "-")
        rows.append((axis.name, f"{axis.topology} of {axis.size}", *cells))
    whole = (str(plan.data), str(plan.pipeline.stages), str(plan.model))
    rows.append(("all", f"{result.problem.system.chips} chips", *whole))
    head = ("axis", "", "batch (DP)", "layers (PP)", "ops (TP, SP, CP, EP)")
    return Table("Parallelism on each axis", head, tuple(rows), strong=frozenset({len(rows) - 1}))


def _choices(plan: Plan, tier: str, second: str, software: Software | None) -> Table:
    pipeline = plan.pipeline
    layers = sorted(set(plan.layers))
    each = f"{layers[0]}" if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
    kept = second if plan.offload else tier
    rows = [
        ("microbatch", f"{counted(plan.microbatch, 'sequence')}; {pipeline.microbatches} of them for each data-parallel rank"),
        ("schedule", schedule_words(plan) if pipeline.stages > 1 else "one stage"),
        ("layers", f"{each} in each of {len(plan.layers)} chunks" if len(plan.layers) > 1 else f"all {each} on every chip"),
        ("recomputed", "nothing" if plan.recompute is Recompute.NONE else str(plan.recompute)),
        ("sharded over data-parallel ranks", SHARDED[plan.sharded]),
        ("optimizer state in", kept),
        ("attention", "one kernel" if plan.fused else "kernel by kernel"),
    ]
    rows.append(("software", _software(software)))
    return Table("Schedule and memory", ("", ""), tuple(rows))


def _software(software: Software | None) -> str:
    """Its name, and how near it came to the measured iterations that were held out."""
    if software is None:
        return "none: hosts never delay a chip"
    if software.error is None:
        return f"{software.name}, not measured"
    return f"{software.name}; {100 * software.error:.0f} % mean error on iterations held out"


def bar(part: float, largest: float) -> str:
    """A bar of characters.

    >>> len(bar(1.0, 2.0))
    12
    """
    return "\N{FULL BLOCK}" * round(BAR_CHARACTERS * part / largest) if largest > 0 else ""


def account_table(title: str, account: Mapping[str, float], time: float, names: Mapping[str, str], whole: str = "") -> Table:
    """Where the time goes, by part; ``names``: of the parts; ``whole``: of a last row with all of it, if there is to be one."""
    shown = {key: value for key, value in account.items() if value > ROUNDING * time}
    largest = max(shown.values(), default=0.0)
    rows = [(names.get(key, key), format_time(value), percent(value, time), bar(value, largest)) for key, value in shown.items()]
    strong = frozenset({len(rows)} if whole else ())
    rows += [(whole, format_time(time), "", "")] if whole else []
    return Table(title, ("", "time", "share", ""), tuple(rows), frozenset({1, 2}), strong)


def memory_table(cost: PlanCost) -> Table:
    """What the fullest chip holds at its peak."""
    held = cost.memory[cost.fullest]
    total, largest = sum(held.values()), max(held.values(), default=0.0)
    rows = [
        (HELD.get(key, key), format_bytes(value), percent(value, cost.capacity), bar(value, largest))
        for key, value in held.items()
    ]
    rows.append(("in all", format_bytes(total), percent(total, cost.capacity), f"of {format_bytes(cost.capacity)}, {cost.tier}"))
    if away := cost.offloaded[cost.fullest]:
        rows.append((f"in {cost.second}", format_bytes(away), "", ""))
    title = f"Memory of a chip at its peak, stage {cost.fullest + 1} of {len(cost.memory)}"
    return Table(title, ("", "bytes", "of capacity", ""), tuple(rows), frozenset({1, 2}), frozenset({len(held)}))


def kernels_table(result: TrainingResult, known: Mapping[KernelShape, KernelCost]) -> Table:
    """The searched kernels of a plan, the longest first, each as one chip computes it, with the ops that it computes."""
    chip, rates, ops = result.problem.chip, machine(result.problem.chip), ops_of_shapes(result)
    rows = [
        (
            str(shape),
            shape.result if isinstance(shape, Product) else shape.dtype,
            format_time(cost.time),
            percent(shape.macs, cost.time * rates.mac_rate(shape.dtype)),
            " ".join(ops[shape]),
        )
        for shape, cost in sorted(known.items(), key=lambda item: -item[1].time)
    ]
    title = f"Kernels of the plan with their best mappings on {chip.name}: rows x columns x depth; heads x queries x keys x width"
    return Table(title, ("kernel", "result", "time", "of peak", "ops"), tuple(rows), frozenset({2, 3}))


def sources_table(result: TrainingResult) -> Table:
    """Where the times of kernels come from, for one microbatch through all layers on the chips that share them."""
    found = _times_by_source(result)
    whole = math.fsum(time for times in found.values() for time in times)
    rows = [
        (name, f"{len(times)}", format_time(math.fsum(times)), percent(math.fsum(times), whole))
        for name, times in found.items()
        if times
    ]
    title = "Where the times of kernels come from, for one microbatch through the model, without collectives"
    return Table(title, ("", "ops", "time", "share"), tuple(rows), frozenset({1, 2, 3}))


def _times_by_source(result: TrainingResult) -> dict[str, list[float]]:
    """Times [s] of the ops of a microbatch in all layers, by their source."""
    counts = part_counts(result.problem.shape, result.plan.microbatch, result.problem.sequence)
    found: dict[str, list[float]] = {name: [] for name in SEARCHED_KINDS.values()}
    for part, ops, count in zip(result.cost.parts.parts, ops_of_kernels(result).values(), counts, strict=True):
        for item in part.sharding.ops:
            if item.op in ops:
                found.setdefault(_source(ops[item.op], result.problem.searched), []).append(count * item.time)
    return found


SEARCHED_KINDS: Mapping[type[KernelShape], str] = {
    Product: "searched: products",
    GroupShape: "searched: products with the ops behind them",
    AttentionShape: "searched: attention, forward",
}
"""What searched kernels are called where their times are added up."""

SEARCHED_NAMES = frozenset(SEARCHED_KINDS.values())


def _source(kernel: AnyKernel, searched: SearchedKernels | None) -> str:
    shape = shape_of(kernel)
    if searched is not None and shape is not None:
        if shape in searched.known:
            return SEARCHED_KINDS[type(shape)]
        if searched.missing([kernel]):
            return SEARCHED_KINDS[type(shape)].replace("searched", "formula, for want of time")
    match kernel:
        case Gemm():
            return "formula: products on the vector lanes"
        case Attention():
            return f"formula: attention, {'backward' if kernel.backward else 'forward'}"
        case Scan():
            return f"formula: scans by chunks, {'backward' if kernel.backward else 'forward'}"
        case _:
            return "formula: streams at the rates of the data sheet"


def shardings(cost: PlanCost, ops: bool) -> Iterator[Table]:
    """How ops are split over the chips of the role that shares them out, and the collectives that follow."""
    for name, sharding in cost.shardings.items():
        if sharding.problem.mesh:
            words = dim_words(sharding.problem.workload.dims)
            yield from sharding_tables(name, sharding, "one microbatch, forward and backward", ops, cost.splitting, words)


def certificate_table(certificate: Certificate) -> Table:
    """What was searched, how, and what is proven."""
    space = ", ".join(f"{count:,} {name}" for name, count in certificate.space.items())
    effort = certificate.effort
    kernels = f", {effort[KERNELS]:,} of {effort[ASKED]:,} kernels searched" if ASKED in effort else ""
    words = (
        f"{effort['bounded']:,} plans bounded, {effort['evaluated']:,} timed exactly, "
        f"{effort['solved']:,} shardings of the whole model{kernels}, in {certificate.seconds:.2f} s"
    )
    rows = (
        ("space", f"{_plans(certificate)}, each with every sharding of its ops: {space}"),
        *((("left out" if not index else ""), text) for index, text in enumerate(certificate.left_out)),
        ("effort", words),
        ("bound", f"{format_time(certificate.bound)}; gap {_percent(certificate.gap, 3)} %"),
        ("closed", certificate.closed),
    )
    return Table("Certificate", ("", ""), rows)
