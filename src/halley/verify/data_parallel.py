"""Verification of data parallelism: ranks with sequences of their own, the sum of their gradients by a collective's table of
steps, and the gradients of one rank with all sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.errors import HalleyError
from halley.execute.interpreter import random_inputs
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.masks import with_extents
from halley.ir.workload import Workload
from halley.network.algorithms import ALGORITHMS, Setting
from halley.network.graph.topologies import build
from halley.network.time.simulate import initial_chunks, simulate
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding
from halley.units import counted
from halley.verify.findings import Finding
from halley.verify.meshes import MeshRun, WrongShare, whole_graph
from halley.verify.sharding import POINTS, small_graph

SEQUENCES = "b"
"""The dim of a part's graph that data-parallel ranks divide."""

MOST_RANKS = 3
"""Data-parallel ranks that are executed."""

Arrays = Mapping[str, NDArray[Any]]


def gradients_finding(name: str, sharding: Sharding, gradients: Mapping[str, str], ranks: int, kind: CollectiveKind) -> Finding:
    """Data-parallel ranks, each a mesh of its own under this sharding, forward and backward: after the collective of gradients
    (all-reduce, or reduce-scatter of ZeRO) every rank has the sum that one rank with all sequences has, and their other results
    are its results. ``gradients``: by weight, the tensor of its gradient."""
    what, ranks = "gradients", min(ranks, MOST_RANKS)
    try:
        small = small_graph(sharding.problem.workload)
        whole = with_extents(small, {**small.dims, SEQUENCES: ranks * small.dims[SEQUENCES]})
        if any(math.prod(whole.dims[dim] for dim in op.dims) > POINTS for op in whole.ops):
            return Finding(name, what, None, "too large to execute, even at a reduced size")
        given = random_inputs(whole, seed=0)
    except HalleyError as error:
        return Finding(name, what, None, f"not a legal graph at reduced extents: {error.faults[0]}")
    with np.errstate(all="ignore"):
        wanted = whole_graph(whole, given)
        try:
            found = [_outputs(sharding, small, _share(small, given, rank)) for rank in range(ranks)]
        except WrongShare as error:
            return Finding(name, what, False, str(error))
    names = [tensor for tensor in gradients.values() if tensor in small.outputs]
    others = [tensor for tensor in small.outputs if tensor not in names]
    wrong = [
        tensor
        for tensor in others
        if not _close(np.concatenate([each[tensor] for each in found], _axis(small, tensor)), wanted[tensor])
    ]
    if names and not wrong:
        vectors = [_flat(each, names) for each in found]
        wrong += ["the sum of gradients"] if not _summed(kind, vectors, _flat(wanted, names)) else []
    size = f"{ranks} ranks with {small.dims[SEQUENCES]} sequences each"
    if wrong:
        return Finding(name, what, False, f"{', '.join(wrong)}: other values than one rank with all sequences has, on {size}")
    detail = f"{kind} of {counted(len(names), 'gradient')}: each of {size} ends with those of one rank that has all"
    return Finding(name, what, True, detail)


def _axis(work: Workload, tensor: str) -> int:
    return work.tensors[tensor].dims.index(SEQUENCES)


def _share(work: Workload, given: Arrays, rank: int) -> dict[str, NDArray[Any]]:
    """The inputs of a rank: its sequences, and all weights."""
    count, found = work.dims[SEQUENCES], {}
    for name, array in given.items():
        own = SEQUENCES in work.tensors[name].dims
        found[name] = np.take(array, range(rank * count, (rank + 1) * count), _axis(work, name)) if own else array
    return found


def _outputs(sharding: Sharding, small: Workload, given: Arrays) -> Arrays:
    """What a data-parallel rank computes, on two chips along each axis of the mesh."""
    problem = sharding.problem
    if not problem.mesh:
        return whole_graph(small, given)
    mesh = tuple(MeshAxis(axis.name, 2) for axis in problem.mesh)
    return MeshRun(replace(sharding, problem=replace(problem, workload=small, mesh=mesh, splits={})), given).run()


def _flat(arrays: Arrays, names: list[str]) -> NDArray[Any]:
    return np.concatenate([np.ravel(arrays[name]) for name in names])


def _close(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-9, equal_nan=True))


def _summed(kind: CollectiveKind, vectors: list[NDArray[Any]], wanted: NDArray[Any]) -> bool:
    """Whether the collective, run step by step on a ring, leaves each rank with the sum, or with its own part of it."""
    ranks, pad = len(vectors), -len(wanted) % len(vectors)
    filled = [np.pad(vector, (0, pad)) for vector in vectors]
    ring = build(Axis("data", ranks, Topology.RING, Link(1.0)))
    held = simulate(ring, ALGORITHMS["ring"].make[kind](Setting(ranks, ranks)), initial_chunks(kind, filled, ranks)).held
    parts = np.split(np.pad(wanted, (0, pad)), ranks)
    every = range(ranks)
    return all(
        chunk in held[rank] and _close(held[rank][chunk], parts[chunk])
        for rank in every
        for chunk in (every if kind is CollectiveKind.ALL_REDUCE else (rank,))
    )
