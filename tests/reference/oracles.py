"""Textbook results of every compound operation, in plain float64 NumPy, for whoever executes workloads.

`inputs` draws arrays for the inputs of a workload, `oracle` says what its outputs must be. Nothing here reads the op graph, the
functions or the constants of a workload: only its name, its parameters and the layout that docs/reference/workloads.md states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tests.reference import sequences
from tests.reference.user_graphs import expected

from halley.ir.workload import Workload

Arrays = dict[str, np.ndarray]


def inputs(workload: Workload, seed: int = 0, spread: float = 1.0) -> Arrays:
    """Arrays for all inputs: normal with standard deviation ``spread``; indices (int32) within the indexed dim, v or else m."""
    random = np.random.default_rng(seed)
    drawn: Arrays = {}
    for name in workload.inputs:
        tensor = workload.tensors[name]
        shape = tuple(workload.dims[dim] for dim in tensor.dims)
        if tensor.dtype == "int32":
            drawn[name] = random.integers(0, workload.dims["v" if "v" in workload.dims else "m"], shape).astype(np.int32)
        else:
            drawn[name] = random.normal(0.0, spread, shape)
            if name == "A" and workload.name in ("mamba", "mamba-2"):  # a rate of decay
                drawn[name] = -np.abs(drawn[name])
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


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form, by the logistic function: (1 + tanh u) / 2 = 1 / (1 + exp(-2 u))."""
    u = (2.0 / np.pi) ** 0.5 * (x + 0.044715 * x * x * x)
    return x * np.exp(u - np.logaddexp(u, -u))


def _gemm_gelu_gemm(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    return {"Y": gelu(given["X"] @ given["W1"]) @ given["W2"]}


def _mla(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Query by query and head by head; queries and keys with their rotary part appended."""
    batched = {name: array[None] for name, array in given.items()} if parameters["sequences"] == 1 else dict(given)
    queries, keys = parameters["queries"], parameters["keys"]
    scale = (parameters["head_dim"] + parameters["rope_dim"]) ** 0.5
    result = np.empty((parameters["sequences"], parameters["heads"], queries, parameters["value_dim"]))
    for sequence in range(parameters["sequences"]):
        latents = batched["X"][sequence] @ given["Wc"] if parameters["model"] else batched["C"][sequence]
        for head in range(parameters["heads"]):
            key = np.concatenate([latents @ given["Wk"][head], batched["R"][sequence]], axis=1)
            value = latents @ given["Wv"][head]
            for query in range(queries):
                seen = keys - queries + query + 1 if parameters["causal"] else keys
                row = np.concatenate([batched["Qc"][sequence, head, query], batched["Qr"][sequence, head, query]])
                result[sequence, head, query] = softmax(key[:seen] @ row / scale) @ value[:seen]
    return {"O": result if parameters["sequences"] > 1 else result[0]}


def _moe(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Slot by slot: the MLP of the expert on the slot's token, weighted by what the token gives that expert."""
    result = np.zeros_like(given["X"])
    logits = given["X"] @ given["Wr"]
    for expert in range(parameters["experts"]):
        for slot in range(parameters["capacity"]):
            token = given["index"][expert, slot]
            best = np.argsort(-logits[token])[: parameters["top_k"]]
            if expert not in best:
                continue
            weight = softmax(logits[token, best])[list(best).index(expert)]
            x = given["X"][token]
            hidden = silu(x @ given["Wg"][expert]) * (x @ given["Wu"][expert])
            result[token] += weight * (hidden @ given["Wd"][expert])
    return {"Y": result}


def _normed(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray], rows: np.ndarray, which: str) -> np.ndarray:
    if parameters["rms"]:
        return rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + 1e-5) * given[f"gain{which}"]
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.sqrt(rows.var(axis=1, keepdims=True) + 1e-5) * given[f"gain{which}"] + given[f"bias{which}"]


def _transformer_layer(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Head by head, query by query."""
    tokens, group = parameters["tokens"], parameters["heads"] // parameters["kv_heads"]
    matrices = {name: given[name] if group > 1 else given[name][:, None] for name in ("Wq", "Wo")}
    queries, keys = (_normed(parameters, given, given[name], "1") for name in ("X", "Xn"))
    after = given["X"].copy()
    for head in range(parameters["heads"]):
        shared, member = divmod(head, group)
        q, k, v = queries @ matrices["Wq"][shared, member], keys @ given["Wk"][shared], keys @ given["Wv"][shared]
        for query in range(tokens):
            seen = query + 1 if parameters["causal"] else tokens
            weights = softmax(k[:seen] @ q[query] / parameters["head_dim"] ** 0.5)
            after[query] += weights @ v[:seen] @ matrices["Wo"][shared, member]
    rows = _normed(parameters, given, after, "2")
    up = rows @ given["Wu"]
    hidden = silu(rows @ given["Wg"]) * up if parameters["gated"] else gelu(up)
    return {"Y": after + hidden @ given["Wd"]}


def _attention_einsum(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    return {"O": np.exp(given["Q"] @ given["K"].transpose(0, 2, 1)) @ given["V"]}


def _gpt_layer(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    z = np.zeros((parameters["tokens"], parameters["model"]))
    for head in range(parameters["heads"]):
        q, k, v = given["Xq"] @ given["Wq"][head], given["X"] @ given["Wk"][head], given["X"] @ given["Wv"][head]
        z += np.exp(q @ k.T) @ v @ given["Wz"][head]
    return {"Y": z @ given["Wa"] @ given["Wb"]}


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


def _dlrm(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """As published: a vector of the dense result and the products of all pairs, one sample at a time."""
    results = []
    tables = parameters["tables"]
    first = np.concatenate([given["Wx"], given["Wc"], given["Wp"].reshape(tables * tables, -1)])
    for sample in range(parameters["batch"]):
        x = given["X"][sample]
        for layer in range(1, parameters["bottom_layers"] + 1):
            x = np.maximum(x @ given[f"Wb{layer}"], 0.0)
        bags = [given["table"][t][given["index"][sample, t]].sum(axis=0) for t in range(tables)]
        pairs = [given["pairs"][t, u] * (bags[t] @ bags[u]) for t in range(tables) for u in range(tables)]
        y = np.concatenate([x, [bag @ x for bag in bags], pairs]) @ first
        for layer in range(2, parameters["top_layers"] + 1):
            y = np.maximum(y, 0.0) @ given[f"Wt{layer}"]
        results.append(0.5 * (1.0 + np.tanh(y / 2.0)))
    return {"Y": np.stack(results)}


def _hpl(_: Any, given: Mapping[str, np.ndarray]) -> Arrays:
    left, upper = np.linalg.solve(np.linalg.inv(given["Ui"]).T, given["A21"].T).T, given["Li"] @ given["A12"]
    return {"L21": left, "U12": upper, "Anew": given["A22"] - left @ upper}


def _fft(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """On any tables of twiddle factors; that the right ones make one long transform is another test."""
    columns = np.fft.fft(given["Xr"] + 1j * given["Xi"], axis=0) * (given["Wr"] + 1j * given["Wi"])
    result = np.fft.fft(columns, axis=1).T
    return {"Yr": result.real, "Yi": result.imag}


ORACLES: dict[str, Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], Arrays]] = {
    "gemm": _gemm,
    "gemm-softmax": _gemm_softmax,
    "gemm-layernorm": _gemm_layernorm,
    "gemm-rmsnorm": _gemm_rmsnorm,
    "attention": _attention,
    "mla": _mla,
    "gated-mlp": _gated_mlp,
    "gemm-gelu-gemm": _gemm_gelu_gemm,
    "moe": _moe,
    "transformer-layer": _transformer_layer,
    "attention-einsum": _attention_einsum,
    "gpt-layer": _gpt_layer,
    "dlrm": _dlrm,
    "hpl": _hpl,
    "fft": _fft,
    "gated-scan": _gated_scan,
    "power-spectrum": _power_spectrum,
    "embedding": _embedding,
    "scatter-add": _scatter_add,
    "merge-heads": _merge_heads,
    "graph": expected,
} | sequences.ORACLES
