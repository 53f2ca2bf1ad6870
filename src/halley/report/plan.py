"""A plan of training as tables: what it is, where its time and memory go, and why the others lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from halley.network.bill import Bill
from halley.planning.axes import Role
from halley.planning.data_parallel import Sharded
from halley.planning.plan import Alternative, Outcome, Plan, PlanCertificate, PlanCost, TrainingResult
from halley.planning.schedule import Schedule
from halley.report.partitions import on_chip_tables
from halley.report.plots import format_operations
from halley.report.sharding import sharding_tables
from halley.report.table import Table, percent
from halley.rewrite.recompute import Recompute
from halley.units import format_bytes, format_power, format_rate, format_time

ACCOUNT: Mapping[str, str] = {
    "forward": "forward passes",
    "recompute": "forward work, repeated",
    "backward": "backward passes",
    "sharding": "passes wait for shared-out parameters and gradients",
    "sending": "sending to the next stage",
    "bubble": "pipeline bubble",
    "transfers": "waiting for transfers between stages",
    "reduction": "sum of gradients, not hidden",
    "waiting": "waiting for the slowest stage",
    "norm": "norm of the gradients",
    "step": "optimizer step",
    "gather": "gathering updated parameters",
}
"""What the parts of an iteration's account are."""
EXPOSED: Mapping[str, str] = {
    "sharding": "gathering and scattering in each pass",
    "reduction": "sum of gradients",
    "gather": "gathering updated parameters",
}
"""What work waits for, where it has no name as a collective."""
HELD: Mapping[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "states": "optimizer state",
    "activations": "activations in flight",
    "working": "buffers of the pass at work",
}
"""What memory holds."""
ROLES: Mapping[Role, str] = {Role.DATA: "the batch", Role.PIPELINE: "layers", Role.MODEL: "ops"}
"""What a role's chips share out."""
SHARED_OUT: Mapping[Sharded, str] = {
    Sharded.NOTHING: "nothing",
    Sharded.OPTIMIZER: "optimizer state (ZeRO 1)",
    Sharded.GRADIENTS: "state and gradients (ZeRO 2)",
    Sharded.PARAMETERS: "state, gradients and parameters (ZeRO 3)",
}
BAR = 24
"""Characters of the longest bar."""
REASONS = 3
"""Reasons that are named for each alternative."""
ROUNDING = 1e-9
"""Share of a time below which a part of it is rounding."""
LEAST = 1e-3
"""Share of the best time below which a difference is no reason."""


def account_name(key: str) -> str:
    """A part of the account in words."""
    return ACCOUNT.get(key, key)


def plan_words(plan: Plan) -> str:
    """A plan in one line.

    ``data 16 x pipeline 8 x model 8, microbatch 1, interleaved 1F1B with 4 chunks, recompute selective, ZeRO 1``
    """
    degrees = f"data {plan.data} x pipeline {plan.pipeline.stages} x model {plan.model}"
    parts = [degrees, f"microbatch {plan.microbatch}"]
    if plan.pipeline.stages > 1:
        parts.append(_schedule(plan))
    if plan.recompute is not Recompute.NONE:
        parts.append(f"recompute {plan.recompute}")
    if plan.sharded is not Sharded.NOTHING:
        parts.append(f"ZeRO {int(plan.sharded)}")
    if plan.offload:
        parts.append("offload")
    if not plan.fused:
        parts.append("attention not fused")
    return ", ".join(parts)


def headline(result: TrainingResult) -> str:
    """The model and what it is trained on."""
    problem, system = result.problem, result.problem.system
    return (
        f"{problem.shape.name} on {system.chips:,} x {system.chip.name} ({system.name}), "
        f"{problem.batch:,} sequences of {problem.sequence:,} tokens an iteration"
    )


def verdict(certificate: PlanCertificate, outcome: Outcome) -> str:
    """What is proven.

    ``optimal: no plan of the declared space is faster (3.1e+05 plans; bound 12.3 s, gap 0 %)``
    """
    gap = f"gap {100 * certificate.gap:.2g} %" if certificate.bound > 0 else "no bound"
    return f"{outcome.value} ({certificate.size:,} plans; bound {format_time(certificate.bound)}, {gap})"


def plan_tables(result: TrainingResult, ops: bool = False) -> list[Table]:
    """All that is to be said; ``ops``: how every op is split, instead of the ops of the forward pass in groups."""
    cost, plan = result.cost, result.plan
    return [
        _figures(cost),
        _axes(result),
        _choices(plan),
        account_table("Where the time goes, on the stage that is done last", cost.account, cost.time, ACCOUNT, "iteration"),
        *_exposed(cost),
        memory_table(cost),
        *_loads(cost),
        *_shardings(cost, ops),
        *on_chip_tables(cost),
        *_alternatives(result),
        certificate_table(result.certificate),
    ]


def _figures(cost: PlanCost) -> Table:
    rows = [
        ("iteration", format_time(cost.time)),
        ("tokens", f"{cost.tokens_per_second:,.0f} /s"),
        ("utilisation", f"{percent(cost.utilisation, 1)} of {format_operations(cost.peak)} (the model's own work)"),
    ]
    if cost.hardware_work > cost.model_work:
        rows.append(("", f"{percent(cost.hardware_utilisation, 1)} with work that is repeated"))
    rows += bill_rows(cost.model_work / cost.time, cost.bill)
    return Table("The best plan", ("", ""), tuple(rows), strong=frozenset({0}))


def bill_rows(rate: float, costs: Bill) -> Iterator[tuple[str, str]]:
    """What the price and the power of a system bring, at a ``rate`` [op/s]."""
    if costs.price:
        text = f"{format_operations(rate / costs.price)} for each USD of {costs.price:,.0f}"
        yield "for its price", text + _unstated(costs.unpriced)
    if costs.power:
        text = f"{format_operations(rate / costs.power)} for each W of {format_power(costs.power)}"
        yield "for its power", text + _unstated(costs.unpowered)


def _unstated(parts: Sequence[str]) -> str:
    return f" (without {', '.join(parts)}: not stated)" if parts else ""


def _axes(result: TrainingResult) -> Table:
    """Each axis of the system and what its chips share out."""
    plan, names = result.plan, result.cost.parallelisms
    rows = []
    for axis in result.problem.system.axes:
        parts = [part for part in plan.assignment if part.axis == axis.name]
        cells = []
        for role in Role:
            found = [part for part in parts if part.role is role]
            text = " x ".join(str(part.size) for part in found)
            # what a part of the batch or of the layers is for, its role says
            known = dict.fromkeys(name for part in found for name in names.get(part.axis, ()) if role is Role.MODEL)
            cells.append(f"{text} ({', '.join(known)})" if known else text or "-")
        rows.append((axis.name, f"{axis.topology} of {axis.size}", *cells))
    whole = (str(plan.data), str(plan.pipeline.stages), str(plan.model))
    rows.append(("all", f"{result.problem.system.chips} chips", *whole))
    head = ("axis", "", "batch (DP)", "layers (PP)", "ops (TP, SP, CP, EP)")
    return Table("What the chips of each axis share out", head, tuple(rows), strong=frozenset({len(rows) - 1}))


def _choices(plan: Plan) -> Table:
    pipeline = plan.pipeline
    layers = sorted(set(plan.layers))
    dealt = f"{layers[0]}" if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
    kept = "the host's memory" if plan.offload else "the chip's memory"
    rows = [
        ("microbatch", f"{_count(plan.microbatch, 'sequence')}; {pipeline.microbatches} of them for each data-parallel rank"),
        ("schedule", _schedule(plan) if pipeline.stages > 1 else "one stage"),
        ("layers", f"{dealt} in each of {_count(len(plan.layers), 'chunk')}"),
        ("recomputed", "nothing" if plan.recompute is Recompute.NONE else str(plan.recompute)),
        ("data-parallel ranks share out", SHARED_OUT[plan.sharded]),
        ("optimizer state in", kept),
        ("attention", "one kernel" if plan.fused else "kernel by kernel"),
    ]
    return Table("Schedule and memory", ("", ""), tuple(rows))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _schedule(plan: Plan) -> str:
    pipeline = plan.pipeline
    if pipeline.schedule is Schedule.GPIPE:
        return "GPipe"
    return f"interleaved 1F1B, {pipeline.chunks} chunks a stage" if pipeline.chunks > 1 else "1F1B"


def bar(part: float, largest: float) -> str:
    """A bar of characters.

    >>> len(bar(1.0, 2.0))
    12
    """
    return "\N{FULL BLOCK}" * round(BAR * part / largest) if largest > 0 else ""


def account_table(title: str, account: Mapping[str, float], time: float, names: Mapping[str, str], whole: str = "") -> Table:
    """Where the time goes, by part; ``names``: of the parts; ``whole``: of a last row with all of it, if there is to be one."""
    shown = {key: value for key, value in account.items() if value > ROUNDING * time}
    largest = max(shown.values(), default=0.0)
    rows = [(names.get(key, key), format_time(value), percent(value, time), bar(value, largest)) for key, value in shown.items()]
    strong = frozenset({len(rows)} if whole else ())
    rows += [(whole, format_time(time), "", "")] if whole else []
    return Table(title, ("", "time", "share", ""), tuple(rows), frozenset({1, 2}), strong)


def _exposed(cost: PlanCost) -> Iterator[Table]:
    found = sorted((item for item in cost.exposed if item.time > ROUNDING * cost.time), key=lambda item: -item.time)
    if found:
        names = [f"{EXPOSED.get(item.kind, item.kind)} over the chips that share out {ROLES[item.role]}" for item in found]
        rows = tuple(
            (name, format_time(item.time), percent(item.time, cost.time)) for name, item in zip(names, found, strict=True)
        )
        yield Table("Communication that work waits for", ("", "time", "share"), rows, frozenset({1, 2}))


def memory_table(cost: PlanCost) -> Table:
    """What the fullest chip holds at its peak."""
    held = cost.memory[cost.fullest]
    total, largest = sum(held.values()), max(held.values(), default=0.0)
    rows = [
        (HELD.get(key, key), format_bytes(value), percent(value, cost.capacity), bar(value, largest))
        for key, value in held.items()
    ]
    rows.append(("in all", format_bytes(total), percent(total, cost.capacity), f"of {format_bytes(cost.capacity)}"))
    if away := cost.offloaded[cost.fullest]:
        rows.append(("in the host's memory", format_bytes(away), "", ""))
    title = f"Memory of a chip at its peak, stage {cost.fullest + 1} of {len(cost.memory)}"
    return Table(title, ("", "bytes", "of capacity", ""), tuple(rows), frozenset({1, 2}), frozenset({len(held)}))


def _loads(cost: PlanCost) -> Iterator[Table]:
    """The hierarchical roofline in numbers."""
    operations = sum(load.demand for load in cost.loads if load.unit == "op")
    rows = []
    for load in cost.loads:
        if not load.demand:
            continue
        of_bytes = load.unit == "B"
        intensity = f"{operations / load.demand:,.0f} op/B" if of_bytes else ""
        demand = format_bytes(load.demand) if of_bytes else f"{format_operations(load.demand).removesuffix('/s')}"
        capacity = format_rate(load.capacity) if of_bytes else format_operations(load.capacity)
        rows.append((load.resource, demand, capacity, intensity, format_time(load.time), percent(load.time, cost.time)))
    if rows:
        head = ("resource of a chip", "an iteration asks for", "it has", "intensity", "least time", "share")
        yield Table("What each resource is asked for", head, tuple(rows), frozenset({1, 2, 3, 4, 5}))


def _shardings(cost: PlanCost, ops: bool) -> Iterator[Table]:
    """How ops are split over the chips of the role that shares them out, and the collectives that follow."""
    for name, sharding in cost.shardings.items():
        if sharding.problem.mesh:
            yield from sharding_tables(name, sharding, "one microbatch, forward and backward", ops)


def why(alternative: Alternative, best: float) -> str:
    """What a plan takes longer, the most first; what it saves last."""
    said = [(key, time) for key, time in alternative.slower if abs(time) > LEAST * best]
    worse = [f"+{format_time(time)} {account_name(key)}" for key, time in said if time > 0][:REASONS]
    better = [f"-{format_time(-time)} {account_name(key)}" for key, time in said if time < 0][:1]
    return "; ".join([*worse, *better]) or "as fast to a tenth of a per cent"


def _alternatives(result: TrainingResult) -> Iterator[Table]:
    best = result.cost.time
    rows = [(plan_words(result.plan), format_time(best), "", "the best")]
    rows += [
        (
            plan_words(item.plan),
            format_time(item.cost.time),
            f"+{100 * (item.cost.time / best - 1):.2f} %",
            why(item, best),
        )
        for item in result.alternatives
    ]
    if result.alternatives:
        count = len(result.alternatives)
        title = f"The {count} best plans of other kinds, and why they lose" if count > 1 else "The next best, and why it loses"
        yield Table(title, ("plan", "time", "slower", "why"), tuple(rows), frozenset({1, 2}), frozenset({0}))


def certificate_table(certificate: PlanCertificate) -> Table:
    """What was searched, how, and what is proven."""
    space = ", ".join(f"{count:,} {name}" for name, count in certificate.space.items())
    effort = (
        f"{certificate.bounded:,} plans bounded, {certificate.evaluated:,} timed exactly, "
        f"{certificate.solved:,} shardings of the whole model, in {certificate.seconds:.2f} s"
    )
    rows = (
        ("space", f"{certificate.size:,} plans, each with every sharding of its ops: {space}"),
        ("left out", "; ".join(certificate.left_out) or "nothing that the page on training names"),
        ("effort", effort),
        ("bound", f"{format_time(certificate.bound)}; gap {100 * certificate.gap:.3g} %"),
        ("closed", certificate.closed),
    )
    return Table("Certificate", ("", ""), rows)
