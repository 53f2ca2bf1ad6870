"""The best deployment and why no other is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from xml.etree.ElementTree import Element

from halley.answer import Certificate
from halley.report.draw import FAINT, INK, PALETTE, PAPER, WIDTH, canvas, line, ticks, words
from halley.report.markup import el
from halley.report.serving.deployment import serving_tables
from halley.report.table import Table, gap_text
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.plans.candidates import OperatingPoint
from halley.serving.plans.problem import ServingObjective, ServingProblem
from halley.serving.plans.search import ServingPlan
from halley.serving.speculation import Speculation
from halley.units import counted, format_time

FRONT_ROWS = 12
"""Points of the front that are shown at most."""


def serving_plan_headline(problem: ServingProblem) -> str:
    """What is asked."""
    system, lengths, limits = problem.system, problem.lengths, problem.limits
    parts = [f"TTFT at most {format_time(limits.ttft)}"] if math.isfinite(limits.ttft) else []
    parts += [f"TPOT at most {format_time(limits.tpot)}"] if math.isfinite(limits.tpot) else []
    level = ", ".join(parts) or "no limits"
    name = problem.models[0].shape.name
    return f"{name} on {system.chips:,} x {system.chip.name}, {lengths.input:,.0f} tokens in, {lengths.output:,.0f} out; {level}"


def serving_plan_words(plan: ServingPlan) -> str:
    """The best deployment in one line."""
    value, lengths = plan.served, plan.problem.lengths
    asked = ""
    if plan.problem.objective is ServingObjective.CHIPS:
        verb = "chip serves" if plan.chips == 1 else "chips serve"
        asked = f"{plan.chips:,} {verb} {plan.problem.rate:g} requests/s: "
    if plan.pools is not None:
        pools = plan.pools
        prompts = f"{pools.prompt_replicas} x ({pools.prompts.text}) for prompts"
        decoding = f"{pools.decode_replicas} x ({pools.decoding.text}) for decoding"
        times = f"TTFT {format_time(pools.ttft)}, TPOT {format_time(pools.tpot)}"
        drafting = speculation_words(plan.problem, pools.speculation)
        return f"{asked}apart: {prompts}, {decoding}{drafting}; {pools.rate * lengths.output:,.0f} tokens/s, {times}"
    deployment, users = value.deployment, counted(plan.best.users, "user")
    return asked + (
        f"{deployment.replicas} x ({deployment.layout.text}), weights {deployment.model.weights}, "
        f"cache {deployment.model.cache}, "
        f"{deployment.software.budget:,} tokens a step{speculation_words(plan.problem, deployment.speculation)}, "
        f"{users} an engine: {value.output:,.0f} tokens/s"
    )


def speculation_words(problem: ServingProblem, chosen: Speculation | None) -> str:
    """What was decided about speculation, where a draft was asked for."""
    if problem.drafts is None:
        return ""
    return ", no speculation" if chosen is None else f", speculation with {chosen.text}"


def gap_words(gap: float, what: str, compared: str) -> str:
    """How far a bound is: a gap, or above 100 % a factor.

    >>> gap_words(0.25, "bound", "higher"), gap_words(22.43, "bound", "higher")
    ('gap 25.0 %', 'bound 23.4 times higher')
    """
    return f"{what} {1 + gap:,.3g} times {compared}" if 1 < gap < math.inf else f"gap {gap_text(gap)}"


def serving_plan_verdict(plan: ServingPlan) -> str:
    """What is proven."""
    best, gap = f"best of {counted(plan.candidates, 'deployment')}", plan.certificate.gap
    if plan.problem.objective is ServingObjective.CHIPS:
        least = counted(plan.certificate.bound, "chip")
        return f"{best}; none of them serves that with fewer than {least} ({gap_words(gap, 'bound', 'lower')})"
    most = plan.bound * plan.problem.lengths.output
    return f"{best}; no schedule on any of them serves more than {most:,.0f} tokens/s ({gap_words(gap, 'bound', 'higher')})"


def serving_plan_tables(plan: ServingPlan, details: bool = False) -> list[Table]:
    """All that is to be said."""
    tables = [] if plan.pools is None else [_pools(plan)]
    tables += serving_tables(plan.served)
    if plan.front:
        tables.append(front_table(plan.front, 10**6 if details else FRONT_ROWS))
    tables.append(serving_certificate(plan.certificate, plan))
    return tables


def _replicas(layout: ReplicaLayout, count: int) -> str:
    return f"{count} x ({layout.text}): {counted(count * layout.chips, 'chip')}"


def _pools(plan: ServingPlan) -> Table:
    pools, output = plan.pools, plan.problem.lengths.output
    if pools is None:
        raise ValueError("a plan without pools")
    rows = (
        ("prompts", f"{_replicas(pools.prompts, pools.prompt_replicas)}, up to {pools.prompt_budget:,} tokens a step"),
        (
            "decoding",
            f"{_replicas(pools.decoding, pools.decode_replicas)}, {counted(pools.users, 'sequence')} an engine",
        ),
        ("throughput", f"{pools.rate * output:,.0f} tokens/s out, {pools.rate:.3g} requests/s"),
        ("TTFT, TPOT", f"{format_time(pools.ttft)}, {format_time(pools.tpot)}; {1 / pools.tpot:,.1f} tokens/s for each user"),
        ("cache of a request", f"moves in {format_time(pools.transfer)}"),
    )
    less = "need more chips" if plan.problem.objective is ServingObjective.CHIPS else "serve less"
    less = less if plan.together else "exceed the limits"
    return Table(f"Prompts and decoding apart; together (below) they {less}", ("", ""), rows, strong=frozenset({2}))


def front_table(front: Sequence[tuple[OperatingPoint, Deployment]], most: int) -> Table:
    """Tokens per second for a user against those of a chip."""
    shown = front if len(front) <= most else [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]
    speculates = any(deployment.speculation for _, deployment in front)
    rows = tuple(
        (
            f"{point.user:,.1f}",
            f"{point.chip:,.1f}",
            format_time(point.ttft),
            format_time(point.tpot),
            f"{deployment.replicas} x ({deployment.layout.text})",
            deployment.model.weights,
            f"{point.users:,.0f}",
            *((str(deployment.speculation.window if deployment.speculation else 0),) if speculates else ()),
        )
        for point, deployment in shown
    )
    head = ("tokens/s, user", "tokens/s, chip", "TTFT", "TPOT", "layout", "weights", "users", *(["window"] * speculates))
    title = f"No costed deployment is better in both ({counted(len(front), 'point')})"
    return Table(title, head, rows, frozenset({0, 1, 2, 3, 6, 7}), spare=frozenset({2, 5}))


def serving_certificate(certificate: Certificate, plan: ServingPlan) -> Table:
    """What was searched, and what is proven."""
    space = ", ".join(counted(count, name.removesuffix("s")) for name, count in certificate.space.items())
    unit = "chips" if certificate.unit == "chips" else "chip-seconds a token"
    rows = (
        ("space", f"{counted(plan.candidates, 'deployment')}: {space}; each with every batch that fits"),
        *((("left out" if not index else ""), text) for index, text in enumerate(certificate.left_out)),
        ("effort", f"{certificate.effort['costed']:,} costed, all bounded"),
        ("value", f"{certificate.value:.4g} {unit}"),
        ("bound", f"{certificate.bound:.4g} for any schedule of requests; {gap_words(certificate.gap, 'value', 'higher')}"),
        ("from", plan.bound_why),
        ("closed", certificate.closed),
    )
    return Table("Certificate", ("", ""), rows)


def front_figure(front: Sequence[tuple[OperatingPoint, Deployment]], height: float = 380.0) -> Element:
    """The curve of tokens per second and user against those of a chip."""
    left, top, width, depth = 80.0, 20.0, WIDTH - 110, height - 76
    most_user, most_chip = (1.05 * max(getattr(point, name) for point, _ in front) for name in ("user", "chip"))
    bottom = top + depth

    def place(point: OperatingPoint) -> tuple[float, float]:
        return left + width * point.user / most_user, bottom - depth * point.chip / most_chip

    drawn = []
    for value in ticks(most_user, count=8):
        x = left + width * value / most_user
        drawn += [line(x, top, x, bottom), words(x, bottom + 18, f"{value:,.4g}", "middle", FAINT, 12)]
    for value in ticks(most_chip, count=5):
        y = bottom - depth * value / most_chip
        drawn += [line(left, y, left + width, y), words(left - 8, y + 4, f"{value:,.0f}", "end", FAINT, 12)]
    drawn += [line(left, bottom, left + width, bottom, INK), line(left, top, left, bottom, INK)]
    drawn.append(words(left + width / 2, bottom + 42, "tokens/s for a user", "middle", FAINT, 12))
    middle = top + depth / 2
    drawn.append(words(16, middle, "tokens/s of a chip", "middle", FAINT, 12, transform=f"rotate(-90 16 {middle:.2f})"))
    drawn += [line(*place(a), *place(b), PALETTE[0], stroke_width=1.5) for (a, _), (b, _) in pairwise(front)]
    for point, deployment in front:
        tip = f"{deployment.layout.text}: {point.user:,.1f} tokens/s a user, {point.chip:,.1f} a chip"
        x, y = place(point)
        drawn.append(el("circle", el("title", tip), cx=x, cy=y, r=4.5, fill=PALETTE[0], stroke=PAPER))
    return canvas(height, "Throughput of a chip against the speed for a user", drawn)
