"""A whole network on one chip: every distinct layer is searched once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halley.answer import Answerable, Certificate, Status
from halley.errors import BadInput, Fault, Infeasible, SearchStopped
from halley.ir.hardware import Chip
from halley.ir.neural_network import NetworkLayer, NeuralNetwork
from halley.mapping.optimise import Progress, optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Result

TIME_LIMIT = 300.0
"""Time of all searches of a network, unless the user names one [s]."""
SECOND_TIME_LIMIT = 20.0
"""Most time of a second search where the first one found no mapping [s]."""
SECOND_PARTS = 4
"""How many times the part of another layer it has."""
LEAST_SHARE = 0.25
"""Of its part of the time, what a search is given at least."""
LATE = "not reached within the time limit"
INTERRUPTED = "interrupted"

UNITS: Mapping[Objective, str] = {Objective.TIME: "s", Objective.ENERGY: "J"}
"""Objectives of networks, whose values add up over layers, with their units."""

Search = Callable[[Problem, str], tuple[Result, bool]]
"""Searches a layer: from the problem, and its name and place in the order, to the result and whether the search was interrupted.
Raises as `optimise`."""


@dataclass(frozen=True, slots=True)
class LayerResult:
    """A layer with the result of its search, or why it has none."""

    layer: NetworkLayer
    result: Result | None
    reason: str = ""

    @property
    def time(self) -> float:
        """Time of one node [s]."""
        return float(self.result.best.estimate.time) if self.result else 0.0

    @property
    def energy(self) -> float:
        """Energy of one node [J]."""
        return float(self.result.best.estimate.energy) if self.result else 0.0

    @property
    def bound(self) -> float:
        """Lower bound of the objective of one node."""
        return self.result.best.certificate.bound if self.result else 0.0


@dataclass(frozen=True, slots=True, repr=False)
class NetworkResult(Answerable):
    """The best mappings of the layers of a network, each searched by itself; its inputs and results are in the outermost memory.
    ``limit`` [s] of all searches."""

    network: NeuralNetwork
    chip: Chip
    objective: Objective
    gap: float
    limit: float
    layers: tuple[LayerResult, ...]

    @property
    def time(self) -> float:
        """Time of all nodes with a mapping, one after the other [s]."""
        return sum(item.layer.count * item.time for item in self.layers)

    @property
    def energy(self) -> float:
        """Energy of all nodes with a mapping [J]."""
        return sum(item.layer.count * item.energy for item in self.layers)

    @property
    def certificate(self) -> Certificate:
        """Of the layers that have a mapping; the others are left out."""
        done = [item.result.best for item in self.layers if item.result]
        found = {solution.status for solution in done} | ({Status.LIMIT} if len(done) < len(self.layers) else set())
        status = next((status for status in (Status.LIMIT, Status.WITHIN) if status in found), Status.OPTIMAL)
        bound = sum(item.layer.count * item.bound for item in self.layers)
        value = self.time if self.objective is Objective.TIME else self.energy
        effort = {name: sum(solution.certificate.effort[name] for solution in done) for name in ("costed", "bounded")}
        seconds = sum(solution.certificate.seconds for solution in done)
        without = tuple(f"{item.layer.name}: {item.reason}" for item in self.layers if not item.result)
        return Certificate(
            value, bound, status, UNITS[self.objective], size=None, left_out=without, effort=effort, seconds=seconds
        )

    @property
    def left_out(self) -> tuple[float, float]:
        """Time [s] and energy [J] in which the outermost memory moves the bytes of operators without a layer."""
        memory, moved = self.chip.memories[0], sum(item.bytes for item in self.network.left_out)
        return moved / memory.read_bandwidth, moved * memory.read_energy

    @property
    def enough(self) -> bool:
        """Whether each layer is proven to within the gap that was asked for."""
        done = [item.result.best for item in self.layers if item.result]
        proven = all(found.status is Status.OPTIMAL or found.certificate.gap <= self.gap for found in done)
        return proven and len(done) == len(self.layers)


def searched(problem: Problem, name: str, progress: Progress | None = None) -> tuple[Result, bool]:
    """A search of a layer."""
    found = optimise(problem, progress)
    return found, found.best.certificate.closed.endswith(INTERRUPTED)


def optimise_layers(
    network: NeuralNetwork,
    chip: Chip,
    objective: Objective = Objective.TIME,
    gap: float = 0.0,
    limit: float | None = None,
    search: Search = searched,
) -> NetworkResult:
    """The best mapping of each distinct layer, without baselines. ``gap`` of each; ``limit`` [s] of all searches.

    Layers with least work come first: each has an equal part of the time that is left, so what short searches leave is used by
    the long ones. A layer whose search found no mapping comes again in the end, with a larger part, and without a limit of one's
    own some more. Ctrl-C ends the searches with the layers so far.

    Raises BadInput: an objective that does not add up, an element type that the chip lacks; KeyboardInterrupt before any layer.
    """
    if objective not in UNITS:
        remedy = "products of layers do not add up"
        raise BadInput(Fault("objective", "time or energy for a whole network", str(objective), remedy))
    known = sorted(chip.matrix.energy) if chip.matrix else []
    if network.macs and known and network.dtype not in known:
        remedy = f"add --dtype {known[0]}"
        raise BadInput(Fault(f"chip {chip.name}", f"an engine for products in {network.dtype}", f"{', '.join(known)}", remedy))
    extra = SECOND_TIME_LIMIT if limit is None else 0.0
    limit = TIME_LIMIT if limit is None else limit
    layers = _Searches(network, chip, objective, gap, limit, extra, search, {}).run()
    return NetworkResult(network, chip, objective, gap, limit, tuple(layers))


@dataclass(slots=True)
class _Searches:
    """The searches of the layers of a network, and the results so far by name. ``overtime``: the most by which one exceeded its
    part [s]: a search finishes its answer after its limit, which the next ones leave time for."""

    network: NeuralNetwork
    chip: Chip
    objective: Objective
    gap: float
    limit: float
    extra: float
    search: Search
    results: dict[str, LayerResult]
    overtime: float = 0.0

    def run(self) -> list[LayerResult]:
        end = time.monotonic() + self.limit
        try:
            self._all(end)
        except KeyboardInterrupt:
            if not any(item.result for item in self.results.values()):
                raise
            end = math.inf
        reason = LATE if time.monotonic() >= end else INTERRUPTED
        return [self.results.get(layer.name, LayerResult(layer, None, reason)) for layer in self.network.layers]

    def _all(self, end: float) -> None:
        order = sorted(self.network.layers, key=lambda layer: layer.count * layer.workload.macs())
        queue = deque((layer, 1, f"{place} of {len(order)}") for place, layer in enumerate(order, 1))
        while queue:
            layer, parts, words = queue.popleft()
            now = time.monotonic()
            share = (end - now) * parts / (parts + sum(others for _, others, _ in queue))
            if parts > 1:
                share = max(min(SECOND_TIME_LIMIT, share), self.extra)
            if share <= 0:
                return
            given = max(share - self.overtime, LEAST_SHARE * share)
            if self._one(layer, given, words):
                return
            self.overtime = max(self.overtime, time.monotonic() - now - given)
            if parts == 1 and self.results[layer.name].reason == LATE:
                queue.append((layer, SECOND_PARTS, "again"))

    def _one(self, layer: NetworkLayer, share: float, words: str) -> bool:
        """Search a layer; whether that was interrupted."""
        problem = Problem(layer.workload, self.chip, self.objective, gap=self.gap, time_limit=share, baselines=False)
        interrupted, reason, result = False, "", None
        try:
            result, interrupted = self.search(problem, f"{layer.name} ({words})")
        except SearchStopped:
            reason = LATE
        except (BadInput, Infeasible) as error:
            reason = _reason(error.faults)
        self.results[layer.name] = LayerResult(layer, result, reason)
        return interrupted


def _reason(faults: Sequence[Fault]) -> str:
    return f"expected {faults[0].expected}; got {faults[0].got}"[:120] if faults else "none"
