"""State-space blocks, long and 2-D convolutions: their textbook results, token by token, and random sizes to draw them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

LONG = ("mamba", "mamba-2", "hyena")
"""Kinds of many ops, on which a tree takes long to run."""


def mamba_sizes(random: Random) -> dict[str, object]:
    sizes = {name: random.randint(1, 3) for name in ("model", "inner", "state", "rank", "batch")}
    return {**sizes, "length": random.randint(1, 5), "taps": random.randint(1, 4)}


def mamba_2_sizes(random: Random) -> dict[str, object]:
    return {name: random.randint(1, 3) for name in ("chunks", "chunk", "model", "heads", "head_dim", "state", "taps")}


def hyena_sizes(random: Random) -> dict[str, object]:
    return {name: random.randint(1, most) for name, most in (("length", 5), ("model", 3), ("taps", 3), ("batch", 2))}


def conv_sizes(random: Random) -> dict[str, object]:
    groups, kernel, dilation = random.randint(1, 2), random.randint(1, 3), random.choice([1, 1, 2])
    reach = dilation * (kernel - 1) + 1
    return {
        "height": reach + random.randint(0, 3),
        "width": reach + random.randint(0, 3),
        "channels": groups * random.randint(1, 2),
        "filters": groups * random.randint(1, 2),
        "kernel": kernel,
        "stride": random.randint(1, 3),
        "padding": random.randint(0, min(reach - 1, 2)),
        "dilation": dilation,
        "groups": groups,
        "images": random.randint(1, 2),
    }


def chain_sizes(random: Random) -> dict[str, object]:
    layers, kernel = random.choice([1, 1, 2, 2, 3]), random.randint(2, 3)
    least = layers * (kernel - 1) + 1
    sizes = {name: random.randint(1, 3) for name in ("channels", "filters", "images")}
    extents = {name: least + random.randint(0, 3) for name in ("height", "width")}
    return {**sizes, **extents, "kernel": kernel, "layers": layers}


SIZES: dict[str, Callable[[Random], dict[str, object]]] = {
    "mamba": mamba_sizes,
    "mamba-2": mamba_2_sizes,
    "hyena": hyena_sizes,
    "conv": conv_sizes,
    "conv-chain": chain_sizes,
}


def silu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1.0 + np.tanh(x / 2.0))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > 30.0, x, np.log1p(np.exp(np.minimum(x, 30.0))))


def causal(tokens: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """tokens [t, ...] convolved along t with taps [j, ...]; the last tap meets the present token."""
    result = np.zeros_like(tokens)
    for t in range(len(tokens)):
        for back in range(min(len(taps), t + 1)):
            result[t] += taps[len(taps) - 1 - back] * tokens[t - back]
    return result


def _mamba(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Token by token, with one state [e, n] that is updated in place."""
    tokens = given["X"].reshape(parameters["batch"], parameters["length"], -1)
    results = []
    for sequence in tokens:
        x = silu(causal(sequence @ given["Wx"], given["short"]) + given["bias"])
        state = np.zeros_like(given["A"])
        rows = []
        for t in range(parameters["length"]):
            step = softplus(x[t] @ given["Wd"] @ given["Wt"] + given["step_bias"])
            state = np.exp(step[:, None] * given["A"]) * state + np.outer(step * x[t], x[t] @ given["Wb"])
            y = state @ (x[t] @ given["Wc"]) + given["D"] * x[t]
            rows.append((silu(sequence[t] @ given["Wz"]) * y) @ given["Wy"])
        results.append(rows)
    return {"Y": np.array(results).reshape(*given["X"].shape[:-1], -1)}


def _mamba_2(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """One long sequence, token by token and head by head; chunks do not matter."""
    chunks, chunk, heads = parameters["chunks"], parameters["chunk"], parameters["heads"]
    tokens = given["X"].reshape(chunks * chunk, -1)
    x, b, c = (
        silu(causal(np.tensordot(tokens, given[f"W{mark}"], 1), given[f"short_{mark}"]) + given[f"bias_{mark}"]) for mark in "xbc"
    )
    state = np.zeros((heads, parameters["head_dim"], parameters["state"]))
    rows = []
    for t, token in enumerate(tokens):
        step = softplus(token @ given["Wt"] + given["step_bias"])
        y = np.empty_like(x[t])
        for h in range(heads):
            state[h] = np.exp(step[h] * given["A"][h]) * state[h] + step[h] * np.outer(x[t, h], b[t])
            y[h] = state[h] @ c[t] + given["D"][h] * x[t, h]
        gated = silu(np.tensordot(token, given["Wz"], 1)) * y
        normal = gated / np.sqrt((gated**2).mean() + 1e-5) * given["gain"]
        rows.append(np.tensordot(normal, given["Wy"], 2))
    return {"Y": np.array(rows).reshape(chunks, chunk, -1)}


def _hyena(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Convolutions as sums; no transform."""
    tokens = given["X"].reshape(parameters["batch"], parameters["length"], -1)
    results = []
    for sequence in tokens:
        v, x1, x2 = (causal(sequence @ given[f"W{mark}"], given[f"short_{mark}"]) for mark in "v12")
        z = x2 * causal(x1 * causal(v, given["h1"][::-1]), given["h2"][::-1])
        results.append(z @ given["Wy"])
    return {"Y": np.array(results).reshape(given["X"].shape)}


def _conv(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """One tap at a time; the images with the rows that are never read, and every dim that the workload leaves out."""
    images, groups, kernel = parameters.get("images", 1), parameters.get("groups", 1), parameters.get("kernel", 3)
    stride, padding, dilation = parameters.get("stride", 1), parameters.get("padding", 0), parameters.get("dilation", 1)
    channels, filters = parameters["channels"] // groups, parameters["filters"] // groups
    reach = dilation * (kernel - 1) + 1
    rows, columns = ((parameters[name] + 2 * padding - reach) // stride + 1 for name in ("height", "width"))
    height, width = given["I"].shape[1:3] if images > 1 else given["I"].shape[:2]
    image = given["I"].reshape(images, height, width, groups, channels).transpose(0, 3, 4, 1, 2)
    taps = given["W"].reshape(kernel, kernel, groups, channels, filters).transpose(2, 4, 3, 0, 1)
    step = 1 if kernel == 1 and padding == 0 else stride
    wide = np.pad(image, ((0, 0), (0, 0), (0, 0), (padding, padding), (padding, padding)))
    result = np.zeros((images, groups, filters, rows, columns))
    for r in range(kernel):
        for s in range(kernel):
            part = wide[..., r * dilation :: step, s * dilation :: step][..., :rows, :columns]
            result += np.einsum("bgcpq,gfc->bgfpq", part, taps[:, :, :, r, s])
    kept = [size for size in (groups, filters) if size > 1] or ([1] if groups == 1 else [])
    result = result.transpose(0, 3, 4, 1, 2).reshape(*([images] if images > 1 else []), rows, columns, *kept)
    return {"O": result}


def _conv_chain(parameters: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> Arrays:
    """Shifted images, weighted and added."""
    size, layers = parameters["kernel"], parameters["layers"]
    x = given["x0"].reshape(parameters["images"], parameters["height"], parameters["width"], -1)
    for layer in range(1, layers + 1):
        weights = given[f"W{layer}"]
        height, width = (extent - size + 1 for extent in x.shape[1:3])
        result = np.zeros((len(x), height, width, weights.shape[-1]))
        for r in range(size):
            for s in range(size):
                result += x[:, r : r + height, s : s + width] @ weights[r, s]
        x = np.maximum(result, 0.0) if layer < layers else result
    return {f"S{layers}": x if parameters["images"] > 1 else x[0]}


ORACLES: dict[str, Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], Arrays]] = {
    "mamba": _mamba,
    "mamba-2": _mamba_2,
    "hyena": _hyena,
    "conv": _conv,
    "conv-chain": _conv_chain,
}
