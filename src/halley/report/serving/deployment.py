"""One deployment on one screen: what users get, where the time goes, memory, and which limit holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from halley.report.mapping.plots import roofline_plot
from halley.report.mapping.roofline import Peak, Roof, Roofline
from halley.report.plans.plan import account_table, bar
from halley.report.table import Table, percent
from halley.serving.bounds import MATRIX_RATE
from halley.serving.deployment import Deployment, Load
from halley.serving.served import JOULES_PER_KWH, MILLION, Served
from halley.serving.step import PARTS
from halley.units import counted, format_bytes, format_time

SECONDS_PER_HOUR = 3600.0
"""Rates of tokens are in tokens per hour."""


def serving_headline(deployment: Deployment, load: Load) -> str:
    """What is served on what."""
    model, system, lengths = deployment.model, deployment.system, load.lengths
    what = counted(load.concurrency, "user") if load.concurrency is not None else f"{load.rate:g} requests/s"
    cached = f", {lengths.prefix:,.0f} of them cached" if lengths.prefix else ""
    return (
        f"{model.shape.name} ({model.weights}, cache {model.cache}) on {system.chips:,} x {system.chip.name}, "
        f"{what}, {lengths.input:,.0f} tokens in{cached}, {lengths.output:,.0f} out"
    )


def serving_words(value: Served) -> str:
    """The layout and what is reached, in one line."""
    deployment, state = value.deployment, value.state
    layout = f"{deployment.replicas} x ({deployment.layout.text})" if deployment.replicas > 1 else deployment.layout.text
    return (
        f"{layout}, {deployment.software.name}: {value.output:,.0f} tokens/s, TTFT {format_time(state.ttft)}, "
        f"TPOT {format_time(state.tpot)}; limited by {state.limit}"
    )


def bound_words(value: Served) -> str:
    """How far the throughput is from the least bound."""
    least = value.bounds[0]
    share = value.requests / least.rate
    most = least.rate * value.load.lengths.output
    return f"no schedule of requests serves more than {most:,.0f} tokens/s here ({least.name}); this is {share:.0%}"


def serving_tables(value: Served) -> list[Table]:
    """All that is to be said, the most wanted first."""
    state = value.state
    return [
        _figures(value),
        account_table("Where the time of a mean step goes", state.parts, state.step, PARTS, "step"),
        serving_memory_table(value),
        bounds_table(value),
    ]


def _figures(value: Served) -> Table:
    state, chips, software = value.state, value.deployment.chips, value.deployment.software
    rows = [
        ("throughput", f"{value.output:,.1f} tokens/s out, {value.total:,.0f} in and out; {value.requests:.3g} requests/s"),
        ("time to first token (TTFT)", f"{format_time(state.ttft)} on average{_interval(state.ttft, software.ttft_reach)}"),
        (
            "time per output token (TPOT)",
            f"{format_time(state.tpot)}{_interval(state.tpot, software.tpot_reach)}; {value.user:,.1f} tokens/s for each user",
        ),
        ("end to end", format_time(value.end_to_end)),
        ("per chip", f"{value.chip:,.1f} tokens/s on each of {chips:,}"),
        (
            "batch",
            f"{state.decoding:,.1f} sequences and {state.chunk:,.0f} prompt tokens a step; {value.users:,.1f} users in flight",
        ),
    ]
    if value.deployment.speculation is not None:
        rows.append(("speculation", value.deployment.speculation.text))
    rows += [("cache", remark) for remark in value.deployment.remarks]
    rows += list(_costs(value))
    return Table("The deployment", ("", ""), tuple(rows), strong=frozenset({0}))


def _interval(time: float, reach: float | None) -> str:
    """The interval of a time in words, nothing where no error is known.

    >>> _interval(0.02, 0.2)
    ' (16.37 ms to 24.43 ms with a chance of 80 %)'
    """
    if reach is None:
        return ""
    return f" ({format_time(time * math.exp(-reach))} to {format_time(time * math.exp(reach))} with a chance of 80 %)"


def _costs(value: Served) -> Iterator[tuple[str, str]]:
    if value.power is not None and value.energy is not None:
        stated = f"at {value.power / 1e3:,.1f} kW, the stated power of the parts"
        yield "energy", f"{value.energy / JOULES_PER_KWH:,.2f} kWh per million output tokens, {stated}"
    if value.price is not None:
        tokens = value.output * SECONDS_PER_HOUR / MILLION
        yield "price", f"{value.price:,.0f} USD of stated parts; {tokens:,.1f} million output tokens an hour"


def cost_table(value: Served, years: float, power_price: float, cost: float) -> Table:
    """What a million output tokens cost."""
    parts = value.cost(years, 0.0) or 0.0
    rows = (
        ("parts", f"{parts:,.3f} USD: {value.price or 0:,.0f} USD over {years:g} years"),
        ("energy", f"{cost - parts:,.3f} USD at {power_price:g} USD/kWh and full power"),
        ("together", f"{cost:,.3f} USD"),
    )
    return Table("Cost of a million output tokens", ("", ""), rows, strong=frozenset({2}))


def serving_memory_table(value: Served) -> Table:
    """Memory of a chip."""
    memory, lengths = value.deployment.memory, value.load.lengths
    kept = "cache in use" if memory.model.hybrid is None else "cache and states in use"
    held = {"weights": memory.weights, kept: value.used, "activations and logits": memory.activations}
    held["reserve"] = memory.reserve
    held["weights of the draft"] = 0.0 if memory.draft is None else memory.draft.weights
    held = {name: size for name, size in held.items() if size}
    largest = max(held.values())
    rows = [(name, format_bytes(size), percent(size, memory.capacity), bar(size, largest)) for name, size in held.items()]
    fits = value.deployment.engine_memory.users(math.ceil(lengths.input + lengths.output)) * value.deployment.engines
    rows.append(
        (
            "cache capacity",
            format_bytes(max(memory.cache, 0)),
            percent(max(memory.cache, 0), memory.capacity),
            counted(fits, "whole request"),
        )
    )
    usable = f"of {format_bytes(memory.capacity)}"
    rows.append(("usable", format_bytes(memory.usable), percent(memory.usable, memory.capacity), usable))
    return Table("Memory of a chip", ("", "bytes", "of capacity", ""), tuple(rows), frozenset({1, 2}), frozenset({len(rows) - 1}))


def bounds_table(value: Served) -> Table:
    """Bounds of the throughput for any schedule."""
    output = value.load.lengths.output
    rows = tuple((item.name, f"{item.rate * output:,.0f}", percent(value.requests, item.rate), item.why) for item in value.bounds)
    title = "At most, by any schedule of requests (tokens/s out), and the share that is reached"
    return Table(title, ("", "tokens/s", "reached", ""), rows, frozenset({1, 2}), frozenset({0}))


def serving_roofline(value: Served) -> Element:
    """What all chips reach under the rates of their kernels, their memories and their ports."""
    bounds = [item for item in value.bounds if item.capacity > 0]
    operations = next(item.demand for item in bounds if item.name == MATRIX_RATE)
    roofs, peaks = [], []
    for item in bounds:
        busy, limit, used = 1 / item.rate, operations * item.rate, value.requests / item.rate
        if item.name == MATRIX_RATE:
            peaks.append(Peak("matrix engines", 0.0, busy, limit, used))
        else:
            intensity = operations / item.demand
            roofs.append(Roof((item.name,), item.name, item.capacity, item.demand, intensity, busy, limit, used))
    return roofline_plot(Roofline(operations, operations * value.requests, tuple(roofs), tuple(peaks)))
