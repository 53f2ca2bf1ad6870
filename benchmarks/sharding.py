"""Shardings to the proven optimum: CPU time from the problem to the plan, tables of collectives and layouts included."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping

from benchmarks.measure import Measurement
from halley.io.chips.fits import load_chip_fit
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.mapping import CollectiveKind
from halley.ir.workload import Op, OpKind, Workload
from halley.kernels.machine import machine
from halley.optim import value_bounds
from halley.rewrite.backward import backward
from halley.sharding.layouts import Mesh, MeshAxis
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.training.part_costs import MemoryBudget, model_costs
from halley.training.part_solvers import CostTerms
from halley.training.sharding import training_problem
from halley.workloads.training import training_model
from halley.workloads.user import graph

LAYER = """
A[m,k] = scale(X[m,k], scale=2)
Q[h,m,d] = A[m,k] * Wq[k,h,d]
An[n,k] = A[m,k]
K[h,n,d] = An[n,k] * Wk[k,h,d]
V[h,n,e] = An[n,k] * Wv[k,h,e]
S[h,m,n] = Q[h,m,d] * K[h,n,d]
mx[h,m]:fp32, z[h,m]:fp32 = softmax(S[h,m,n])
P[h,m,n] = softmax_from_stats(S[h,m,n], mx[h,m], z[h,m])
O[h,m,e] = P[h,m,n] * V[h,n,e]
Z[m,k] = O[h,m,e] * Wo[h,e,k]
X2[m,k] = X[m,k] + Z[m,k]
F[m,f] = X2[m,k] * Wu[k,f]
H[m,f] = gelu(F[m,f])
D[m,k] = H[m,f] * Wd[f,k]
Y[m,k] = X2[m,k] + D[m,k]
"""
WEIGHTS = dict.fromkeys(("Wq", "Wk", "Wv", "Wo", "Wu", "Wd"), 16.0)
AXES = (MeshAxis("x", 8), MeshAxis("y", 4), MeshAxis("z", 2))
BANDWIDTH = {"x": 300e9, "y": 50e9, "z": 25e9}
MODELS = ("gpt3-1t", "llama3-70b", "mixtral-8x7b", "deepseek-v3")
REAL_TARGETS = {1: 0.02, 2: 0.2, 3: 1.0}
"""CPU time [s] to stay below for a layer of a model with its backward, compiled, by the number of axes: tens of them on two axes,
or some on three, in the time of a plan."""
PART_TARGETS = {0: 0.02, 1: 0.03, 2: 0.1}
"""CPU time [s] to stay below for all parts of a model, by the number of axes: tens of them in the 5 s of a plan."""
TARGETS = {1: 0.01, 2: 0.03, 3: 0.2}
"""CPU time [s] to stay below, by the number of axes."""


def measurements() -> Iterator[Measurement]:
    layer = graph(LAYER, {"m": 2048, "n": 2048, "k": 4096, "h": 32, "d": 128, "e": 128, "f": 16384})
    for count, target in TARGETS.items():
        problem = ShardingProblem(layer, AXES[:count], kernel, collective, weights=WEIGHTS)
        seconds = _cpu(lambda problem=problem: shard(problem))
        yield Measurement(f"sharding of a layer of {len(layer.ops)} ops, {count} axes", seconds, "s", target)
    for count in (1, 2):
        seconds = _cpu(lambda mesh=AXES[:count]: shard(_training(layer, mesh)))
        yield Measurement(f"sharding of a layer with its backward, {count} axes", seconds, "s", 1.0)
    free = shard(_training(layer, AXES[:1]))
    seconds = _cpu(lambda: shard(_training(layer, AXES[:1]), capacity=free.memory - 1))
    yield Measurement("  with one byte less than that takes, to the proven optimum, 1 axis", seconds, "s", 1.0)
    yield from _models()
    yield from _parts()


def _models() -> Iterator[Measurement]:
    """The last kind of layer of each model, one sequence, with its backward: nothing is tied but products."""
    value_bounds.SWITCH.loops(ahead=value_bounds.SWITCH.load_after)
    for name in MODELS:
        part = training_model(load_model(name), batch=1).blocks[-1]
        found, weights = backward(part.workload), dict.fromkeys(part.weights, 16.0)
        for count, target in REAL_TARGETS.items():
            mesh = tuple(MeshAxis(axis, ranks) for axis, ranks in zip("xyz", (8, 2) if count == 2 else (8, 4, 2), strict=False))
            problem = training_problem(found, mesh[:count], kernel, collective, weights, {"Y": "X"})
            seconds = _cpu(lambda problem=problem: shard(problem))
            label = f"sharding of a layer of {name}, {len(found.workload.ops)} ops, {count} axes"
            yield Measurement(label, seconds, "s", target)


def _parts() -> Iterator[Measurement]:
    """Embedding, layer and head of a model together, as a plan search asks for them: new microbatches on meshes of known size;
    and with less budget than the fastest shardings take."""
    shape, chip = load_model("gpt3-1t"), machine(load_system("dgx-h100-pod").chip)
    for count, target in PART_TARGETS.items():
        terms = CostTerms(AXES[:count], collective, chip, load_chip_fit("a100").efficiency)
        model_costs(shape, 1, shape.sequence, terms)
        microbatches = iter((2, 3, 4, 5))
        seconds = _cpu(lambda terms=terms, more=microbatches: model_costs(shape, next(more), shape.sequence, terms))
        yield Measurement(f"costs of gpt3-1t's parts, {count} axes", seconds, "s", target)
    free = model_costs(shape, 2, shape.sequence, terms)
    budget = MemoryBudget(0.999 * math.fsum(part.sharding.memory for part, _ in free.counted))
    seconds = _cpu(lambda: model_costs(shape, 2, shape.sequence, terms, budget=budget))
    yield Measurement("  with a thousandth less memory than that takes, to the proven optimum, 2 axes", seconds, "s", 1.5)


def kernel(op: Op, local: Mapping[str, int]) -> float:
    points = math.prod(local[dim] for dim in op.dims)
    return 2 * points / 300e12 if op.kind is OpKind.CONTRACT else 6 * points / 2e12


def collective(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    """Bytes over the slowest axis."""
    ranks = math.prod(axis.ranks for axis in AXES if axis.name in axes)
    passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    return passes * (2e-6 + size * (ranks - 1) / ranks / min(BANDWIDTH[name] for name in axes))


def _training(layer: Workload, mesh: Mesh) -> ShardingProblem:
    return training_problem(backward(layer), mesh, kernel, collective, WEIGHTS, {"Y": "X"})


def _cpu(call: Callable[[], object], repeats: int = 3) -> float:
    """The least of some."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)
