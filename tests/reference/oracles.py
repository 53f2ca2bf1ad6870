"""Textbook results of every compound operation, in plain float64 NumPy, for whoever executes workloads.

`inputs` draws arrays for the inputs of a workload, `oracle` says what its outputs must be. Nothing here reads the op graph, the
functions or the constants of a workload: only its name, its parameters and the layout that docs/reference/workloads.md states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from halley.ir.workload import Workload

Arrays = dict[str, np.ndarray]


def inputs(workload: Workload, seed: int = 0, spread: float = 1.0) -> Arrays:
    """Arrays for all inputs: normal with standard deviation ``spread``; indices (int32) within the indexed dim v."""
    random = np.random.default_rng(seed)
    drawn: Arrays = {}
    for name in workload.inputs:
        tensor = workload.tensors[name]
        shape = tuple(workload.dims[dim] for dim in tensor.dims)
        if tensor.dtype == "int32":
            drawn[name] = random.integers(0, workload.dims["v"], shape).astype(np.int32)
        else:
            drawn[name] = random.normal(0.0, spread, shape)
    return drawn


def oracle(workload: Workload, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs that the workload must have on these inputs."""
    return ORACLES[workload.name](dict(workload.parameters), arrays)


def softmax(rows: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    """x times the logistic function of x."""
    return x * 0.5 * (1.0 + np.tanh(x / 2.0))


def _gemm(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    return {"C": given["A"] @ given["B"]}


def _gemm_softmax(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    return {"P": softmax(given["A"] @ given["B"])}


def _gemm_layernorm(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    rows = given["A"] @ given["B"]
    normal = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(rows.var(axis=1, keepdims=True) + 1e-5)
    return {"P": normal * given["gain"] + given["bias"]}


def _gemm_rmsnorm(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    rows = given["A"] @ given["B"]
    return {"P": rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-5) * given["gain"]}


def _attention(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Sequence by sequence, query head by query head, query by query; masked keys are not even looked at."""
    kv_heads, queries, keys = (parameters[name] for name in ("kv_heads", "queries", "keys"))
    group = parameters["heads"] // kv_heads
    result = np.empty((parameters["batch"] * kv_heads, group * queries, parameters["value_dim"]))
    for sequence in range(parameters["batch"]):
        for head in range(parameters["heads"]):
            shared, member = sequence * kv_heads + head // group, head % group
            for query in range(queries):
                row = member * queries + query
                seen = keys - queries + query + 1 if parameters["causal"] else keys
                scores = given["K"][shared, :seen] @ given["Q"][shared, row] / parameters["head_dim"] ** 0.5
                result[shared, row] = softmax(scores) @ given["V"][shared, :seen]
    return {"O": result}


def _gated_mlp(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    return {"Y": (silu(given["X"] @ given["Wg"]) * (given["X"] @ given["Wu"])) @ given["Wd"]}


def _gated_scan(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """The recurrence in closed form: each x arrives multiplied by all the a that came after it."""
    state = np.zeros_like(given["X"])
    for t in range(parameters["length"]):
        for s in range(t + 1):
            state[t] += given["A"][s + 1 : t + 1].prod(axis=0) * given["X"][s]
    return {"Y": silu(given["Z"]) * state}


def _power_spectrum(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """The discrete Fourier transform as a matrix."""
    points = np.arange(parameters["n"])
    transform = np.exp(-2j * np.pi * np.outer(points, points) / parameters["n"])
    return {"P": np.abs((given["Xr"] + 1j * given["Xi"]) @ transform) ** 2}


def _selection(index: np.ndarray, rows: int) -> np.ndarray:
    """The matrix with a 1 in column index[i] of row i."""
    return (index[:, None] == np.arange(rows)).astype(float)


def _embedding(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    return {"Y": _selection(given["index"], parameters["vocabulary"]) @ given["table"]}


def _scatter_add(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    return {"Y": _selection(given["index"], parameters["slots"]).T @ given["X"]}


def _merge_heads(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    return {"Y": np.stack([given["X"][head] for head in range(parameters["heads"])], axis=1)}


ORACLES: dict[str, Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], Arrays]] = {
    "gemm": _gemm,
    "gemm-softmax": _gemm_softmax,
    "gemm-layernorm": _gemm_layernorm,
    "gemm-rmsnorm": _gemm_rmsnorm,
    "attention": _attention,
    "gated-mlp": _gated_mlp,
    "gated-scan": _gated_scan,
    "power-spectrum": _power_spectrum,
    "embedding": _embedding,
    "scatter-add": _scatter_add,
    "merge-heads": _merge_heads,
}
