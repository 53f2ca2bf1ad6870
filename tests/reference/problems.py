"""Small random problems: shipped workloads with small sizes, and chips of every shape that matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.reference import sequences
from tests.reference.user_graphs import drawn

from halley.ir.hardware import (
    CHIP_TOPOLOGIES,
    Axis,
    Chip,
    Dataflow,
    Exchange,
    Granularity,
    Level,
    Link,
    MatrixEngine,
    Memory,
    Network,
    VectorEngine,
)
from halley.ir.workload import Workload
from halley.workloads import build, variants


def random_workload(random: Random, kinds: tuple[str, ...] = ()) -> Workload:
    """A small shipped workload, any variant; without ``kinds`` not one of the `LONG` ones."""
    kind = random.choice(kinds or tuple(kind for kind in SIZES if kind not in LONG))
    return random.choice(variants(build(kind, SIZES[kind](random))))


def _attention(random: Random) -> dict[str, object]:
    shared, queries = random.randint(1, 2), random.randint(1, 5)
    return {
        "batch": random.randint(1, 2),
        "heads": shared * random.randint(1, 2),
        "kv_heads": shared,
        "queries": queries,
        "keys": queries + random.randint(0, 4),
        "head_dim": random.randint(1, 4),
        "value_dim": random.randint(1, 4),
        "causal": random.random() < 0.5,
    }


def _mla(random: Random) -> dict[str, object]:
    queries = random.randint(1, 3)
    return {
        "heads": random.randint(1, 3),
        "queries": queries,
        "keys": queries + random.randint(0, 3),
        **{name: random.randint(1, 3) for name in ("latent", "head_dim", "rope_dim", "value_dim", "sequences")},
        "model": random.choice([None, 2]),
        "causal": random.random() < 0.5,
    }


def _moe(random: Random) -> dict[str, object]:
    experts = random.randint(1, 4)
    sizes = {name: random.randint(1, 4) for name in ("tokens", "model", "hidden")}
    return {**sizes, "experts": experts, "top_k": random.randint(1, min(experts, 3))}


def _layer(random: Random) -> dict[str, object]:
    shared = random.randint(1, 2)
    return {
        **{name: random.randint(1, 3) for name in ("tokens", "model", "head_dim", "hidden")},
        "heads": shared * random.randint(1, 2),
        "kv_heads": shared,
        **{name: random.random() < 0.5 for name in ("causal", "gated", "rms")},
    }


def _in_bf16(random: Random, **most: int) -> dict[str, object]:
    """The element type that the random chips have energies for."""
    return {**_sizes(**most)(random), "dtype": "bf16"}


def _sizes(**most: int) -> Callable[[Random], dict[str, object]]:
    return lambda random: {name: random.randint(1, limit) for name, limit in most.items()}


SIZES: dict[str, Callable[[Random], dict[str, object]]] = {
    "gemm": _sizes(m=8, n=8, k=8, b=3),
    "gemm-softmax": _sizes(m=7, n=8, k=5),
    "gemm-layernorm": _sizes(m=7, n=8, k=5),
    "gemm-rmsnorm": _sizes(m=7, n=8, k=5),
    "attention": _attention,
    "mla": _mla,
    "gated-mlp": _sizes(tokens=6, model=5, hidden=6),
    "gemm-gelu-gemm": _sizes(tokens=6, model=5, hidden=6),
    "moe": _moe,
    "transformer-layer": _layer,
    "attention-einsum": lambda random: _in_bf16(random, heads=3, queries=4, keys=5, head_dim=4, value_dim=4),
    "gpt-layer": lambda random: _in_bf16(random, tokens=4, model=4, heads=3, head_dim=3, hidden=4),
    "gated-scan": _sizes(length=6, channels=6),
    "power-spectrum": lambda random: {"m": random.randint(1, 6), "n": 1 << random.randint(0, 3)},
    "embedding": _sizes(tokens=8, vocabulary=4, width=5),
    "scatter-add": _sizes(tokens=8, slots=4, width=5),
    "graph": drawn,
    "merge-heads": _sizes(tokens=5, heads=4, head_dim=5),
} | sequences.SIZES


LONG = ("mla", "moe", "transformer-layer", "gpt-layer", *sequences.LONG)
"""Kinds of many ops, on which a tree takes long to run: a test that is about them draws them."""


def random_chip(random: Random) -> Chip:
    """DRAM, a shared buffer, clusters along two axes with three buffers each, and sometimes a row of PEs in each cluster."""
    energy = iter(range(1, 100))
    further = Random(repr(random.getstate()))  # leaves what is drawn otherwise as it is
    exchanges = (Exchange(), Exchange(startup=3e-9, barrier=2e-9, adder=1e-9, add_bandwidth=7e8))

    def memory(name: str) -> Memory:
        read, write, latency = random.choice([1e9, 3e9]), random.choice([1e9, 2e9]), random.choice([0.0, 1e-8])
        return Memory(name, 1e9, read, write, latency, next(energy) * 1e-12, next(energy) * 1e-12)

    def axis(name: str, size: int) -> Axis:
        plain = Axis(name, size, random.choice(CHIP_TOPOLOGIES), Link(random.choice([1e9, 4e9]), 2e-9, next(energy) * 1e-12))
        copies, adds = (further.random() < 0.5 for _ in range(2))
        return replace(plain, exchange=further.choice(exchanges), multicast=copies, reduction=adds)

    def network(*axes: Axis) -> Network:
        port = Link(random.choice([1e9, 2e9]), 0.0, next(energy) * 1e-12) if random.random() < 0.8 else None
        port = port and replace(port, latency=3e-9 if port.bandwidth > 1e9 else 0.0)
        return Network(axes, port, random.random() < 0.7, random.random() < 0.4)

    x, y = random.choice([(2, 2), (3, 2), (4, 1), (2, 3), (1, 5)])
    cluster = tuple(memory(name) for name in ("ibuf", "wbuf", "obuf"))
    levels = [
        Level("dram", (memory("dram"),)),
        Level("glb", (memory("glb"),)),
        Level("cluster", cluster, network(axis("x", x), axis("y", y))),
    ]
    if random.random() < 0.4:
        levels.append(Level("pe", (memory("rf"),), network(axis("p", random.choice([2, 3])))))
    rates = dict.fromkeys(("add", "mul", "max"), 1.0) | dict.fromkeys(("exp", "div", "rsqrt"), 0.25)
    return Chip(
        "random",
        tuple(levels),
        MatrixEngine(
            "mxu", random.choice([1, 2, 4]), random.choice([1, 2, 3]), 1e9, random.choice(list(Dataflow)), random.random() < 0.5,
            energy={"bf16": 5e-13}, latency=further.choice([0.0, 7e-9]),
            granularity=further.choice([Granularity(), Granularity(3, 2, 4)]),
            accumulators=further.choice([{}, {"bf16": "fp32"}]),
        ),
        VectorEngine(
            "simd", random.choice([1, 2, 4]), 1e9, rates, {name: (i + 1) * 1e-13 for i, name in enumerate(rates)},
            latency=further.choice([0.0, 5e-9]),
        ),
        static_power=0.1,
    )  # fmt: skip
