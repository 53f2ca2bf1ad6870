"""Training over slow links: the bandwidth that data parallelism, DiLoCo and Streaming DiLoCo need; an exchange between pairs
against an all-reduce (NoLoCo); nodes of A100 on PCIe (Fire-Flyer)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias

from halley.importers.training import training_problem
from halley.io.systems.fabric import fabric_of
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Axis
from halley.ir.system import System
from halley.network.graph.bill import bill
from halley.network.graph.fabric import Fabric
from halley.products.collective import collective
from halley.sharding.axes import assignment_text
from halley.training.search.search import best_training_plan
from halley.workloads.training import training_model

MODEL, WORKER, WORKERS, SEQUENCES = "llama2-7b", 8, 8, 64
"""GPUs of a worker, workers, sequences of a worker in a step."""
LATENCY = 1e-3
"""Between workers [s], as between sites of a region."""
GOAL, PRECISION = 0.95, 0.02
"""Share of the speed without communication between workers; how near a bandwidth is found."""
LEAST, MOST = 1e5, 1e11
"""Bandwidths of a GPU that are tried [B/s]."""
PERIOD, FRAGMENTS, WINDOW = 100, 8, 5
"""Steps between exchanges of the same parameters; fragments of them; steps during which one is exchanged."""
FULL, SHORT = 32, 4
"""Bits of a parameter in an exchange."""

Rows: TypeAlias = list[dict[str, Any]]


@cache
def parameters() -> int:
    """Of the model."""
    return training_model(load_model(MODEL), batch=1, sequence=1).parameters


def slow(bandwidth: float) -> System:
    """Workers of one node each, whose GPUs of equal rank are joined by links of this bandwidth."""
    system = load_system(f"{WORKERS * WORKER} x h100, nvlink {WORKER}, ib")
    outer, *inner = system.axes
    return replace(system, axes=(_joined(outer, bandwidth, LATENCY), *inner))


def _joined(axis: Axis, bandwidth: float, latency: float) -> Axis:
    """A switch with links of this bandwidth; a message over two of them has this latency."""
    return replace(axis, link=replace(axis.link, bandwidth=bandwidth, latency=latency / 2))


def worker_time() -> float:
    """A step of a worker on its own [s]."""
    problem = training_problem(MODEL, f"{WORKER} x h100, nvlink {WORKER}", SEQUENCES)
    return best_training_plan(problem, others=0).cost.time


def planned(bandwidth: float) -> float:
    """A step of the best plan with data parallelism between workers [s]."""
    fixed = f"ib=dp:{WORKERS}"
    problem = training_problem(MODEL, slow(bandwidth), SEQUENCES * WORKERS, fix=fixed)
    return best_training_plan(problem, others=0).cost.time


def all_reduce(bandwidth: float, size: float) -> float:
    """Of all workers, for the share of a GPU of what they exchange [s]."""
    return _collective(_switch(WORKERS, bandwidth, LATENCY), size / WORKER)


def _switch(ranks: int, bandwidth: float, latency: float) -> Fabric:
    """So many chips at one switch."""
    system = load_system(f"{ranks} x h100, ib")
    return fabric_of(replace(system, axes=(_joined(system.axes[0], bandwidth, latency),)))


def _collective(fabric: Fabric, size: float, algorithm: str | None = None) -> float:
    return float(collective("all-reduce", math.ceil(size), fabric, algorithm=algorithm, software="none").single.cost.time)


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """Parameters are exchanged every ``PERIOD`` steps in so many ``fragments`` and ``bits``, each beside ``window`` steps."""

    name: str
    bits: int = FULL
    fragments: int = 1
    window: int = 0

    def speed(self, bandwidth: float, step: float) -> float:
        """Share of the speed without exchanges. An exchange that does not end within its window, or before the next one, is
        waited for."""
        size = parameters() * self.bits / 8 / self.fragments
        waited = max(all_reduce(bandwidth, size) - self.window * step, 0.0)
        return PERIOD * step / (PERIOD * step + self.fragments * waited)


EXCHANGES = (
    Synchronisation("DiLoCo"),
    Synchronisation("DiLoCo, 4 bits", SHORT),
    Synchronisation("fragments, overlapped", FULL, FRAGMENTS, WINDOW),
    Synchronisation("Streaming DiLoCo", SHORT, FRAGMENTS, WINDOW),
)


def least_bandwidth(speed: Callable[[float], float]) -> float:
    """The least bandwidth of a GPU [B/s] at which the speed is ``GOAL``."""
    low, high = LEAST, MOST
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if speed(middle) >= GOAL else (middle, high)
    return high


def bandwidths() -> Rows:
    """The bandwidth that each method needs, of a worker with all its GPUs, and the bytes of a step on average."""
    step, found = worker_time(), []
    at = least_bandwidth(lambda bandwidth: step / planned(bandwidth))
    found.append({"method": DATA, "step": step, "bandwidth": at * WORKER, "speed": step / planned(at)})
    for each in EXCHANGES:
        at = least_bandwidth(partial(each.speed, step=step))
        found.append({"method": each.name, "step": step, "bandwidth": at * WORKER, "speed": each.speed(at, step)})
    return found


DATA = "data parallelism"

RANKS, SITES, FAR = (8, 32, 128, 512), 125e6, 0.05
"""Accelerators of a network, bandwidth [B/s] and latency [s] of a link over the internet."""
ALGORITHMS = (None, "doubling", "binomial")
"""The fastest; recursive doubling of whole vectors; a binomial tree up and down."""
MESSAGES = {"125M": 125_000_000, "6.8B": 6_800_000_000}
"""Parameters of the least and the largest model of NoLoCo."""


def pairs() -> Iterator[dict[str, Any]]:
    """An all-reduce of all parameters against an exchange between two, in fp32."""
    for name, count in MESSAGES.items():
        size = count * FULL / 8
        pair = _collective(_switch(2, SITES, FAR), size)
        for ranks in RANKS:
            fabric = _switch(ranks, SITES, FAR)
            times = {each or "fastest": _collective(fabric, size, each) for each in ALGORITHMS}
            yield {"model": name, "ranks": ranks, "pair": pair} | times


NODES = {
    "DGX A100": "64 x a100, nvlink 8, ib",
    "PCIe, 8 ports a node": "64 x a100, pcie 8, ib",
    "PCIe, 1 port a node": "64 x a100, pcie 8, ib",
}
SHARED = "PCIe, 1 port a node"
TRAINED = {"llama2-7b": 512, "megatron-22b": 512}
"""Models and sequences of an iteration."""


def node_system(name: str) -> System:
    """64 A100 in nodes of eight; the GPUs of a Fire-Flyer node share one port of InfiniBand."""
    system = load_system(NODES[name])
    outer, *inner = system.axes
    if name == SHARED:
        link = replace(outer.link, bandwidth=outer.link.bandwidth / 8, price=(outer.link.price or 0.0) / 8)
        return replace(system, axes=(replace(outer, link=link), *inner))
    return system


def node(model: str, name: str) -> Rows:
    """The best plan on a kind of node."""
    system = node_system(name)
    result = best_training_plan(training_problem(model, system, TRAINED[model]), others=0)
    cost, parts = result.cost, bill(system)
    return [
        {
            "model": model,
            "node": name,
            "time": cost.time,
            "bound": result.certificate.bound,
            "utilisation": cost.utilisation,
            "plan": assignment_text(result.plan.assignment),
            "zero": int(result.plan.sharded),
            "links": sum(item.price or 0.0 for item in parts.items if item.part.startswith("links")),
            "stated": parts.price,
            "power": parts.power,
        }
    ]
