"""Decoding with Llama-2-7B on an H100 with thread block clusters: attention and its projections as separate kernels and as one
kernel (ClusterFusion), and the share of the gaps between kernels in the time of a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import sqrt
from typing import Any, TypeAlias

from halley.cost.own import OwnMapping
from halley.errors import Infeasible
from halley.io.chips.fits import DEFAULT_FIT, load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.networks.fits import load_libraries
from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.products.estimate import estimate
from halley.serving.deployment import Deployment, Load
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.served import served
from halley.serving.steady import Lengths
from halley.serving.step import StepBatch
from halley.workloads.attention import attention
from halley.workloads.construction.graph import STATISTIC, contract, tensors
from halley.workloads.construction.steps import scale_scores, softmax_and_values
from halley.workloads.user import graph
from studies.cases import exchanges, figures, without_links

CHIP, SYSTEM, MODEL = "h100-clusters", "1 x h100", "llama2-7b"
HEADS, HEAD, WIDTH, LAYERS, CLUSTER = 32, 128, 4096, 32, 4
KEYS = (1024, 2048, 4096, 8192, 16384)
SOFTWARE = ("vllm", "vllm-2024", "trtllm-2024")
"""Serving frameworks whose fits are of H100, among others."""
SEPARATE, ONE = 3, 1
"""Kernels of the compound operation: projections, attention, output projection; all in one."""
SAVED = 4
"""Launches of a layer that its fused kernel saves: norm, projections, rotation, attention and projection are one kernel."""
TILES = (16, 32, 64, 128)
"""Of model dim and keys, tried in the mappings of one kernel."""

CLUSTERS = """\
hold dram: X WQ WK WV KC VC WO K V Y
  hold l2: O
    sequence prefetch
      hold l2: X
        spread h by 1 over cluster.c
          hold rf: Q
            sequence
              spread c by {part} over sm.s
                for c by {model}
                  hold smem x4: X WQ
                    compute query
              all-reduce Q over sm.s with one-shot
              hold rf: K
                sequence
                  spread c by {part} over sm.s
                    for c by {model}
                      hold smem x4: X WK
                        compute key
                  all-reduce K over sm.s with one-shot
              hold rf: V
                sequence
                  spread c by {part} over sm.s
                    for c by {model}
                      hold smem x4: X WV
                        compute value
                  all-reduce V over sm.s with one-shot
              hold rf: O
                sequence
                  spread n by {keys} over sm.s
                    hold rf: S|S2|E|P mx z
                      sequence
                        hold smem: Q
                          for n by {tile}
                            hold smem x4: KC
                              compute scores
                        compute scale
                        compute max
                        all-reduce mx over sm.s with one-shot
                        compute exp
                        compute sum
                        all-reduce z over sm.s with one-shot
                        compute divide
                        for n by {tile}
                          hold smem x4: P
                            hold smem x4: VC
                              compute values
                  all-reduce O over sm.s with one-shot
"""
"""A head a cluster: its SMs divide the contraction of the projection, then the keys."""
ALONE = """\
hold dram: X WQ WK WV KC VC WO K V Y
  hold l2: O
    sequence prefetch
      spread h by 4 over cluster.c
        spread h by 1 over sm.s
          hold rf: Q O
            sequence
              for c by {model}
                hold smem x4: X WQ
                  compute query
              hold rf: K
                for c by {model}
                  hold smem x4: X WK
                    compute key
              hold rf: V
                for c by {model}
                  hold smem x4: X WV
                    compute value
              hold rf: S|S2|E|P mx z
                sequence
                  hold smem: Q
                    for n by {tile}
                      hold smem x4: KC
                        compute scores
                  compute scale
                  compute max
                  compute exp
                  compute sum
                  compute divide
                  for n by {tile}
                    hold smem x4: P
                      hold smem x4: VC
                        compute values
"""
"""A head an SM: no SM needs anything of another."""
OUTPUT = """\
      spread c2 by 125 over cluster.c
        spread c2 by 32 over sm.s
          hold rf x2: Y
            for h by 5
              for e by 16
                hold smem x4: WO
                  hold smem x4: O
                    compute output array e x c2
"""
"""The second projection, behind a barrier of all SMs."""

Rows: TypeAlias = list[dict[str, Any]]


def step(keys: int) -> Workload:
    """Query, key and value of one token, its attention over a cache, and the output projection."""
    scale = scale_scores("S", "h m n", 1 / sqrt(HEAD), False, 1, keys)
    rest = softmax_and_values("plain", scale, "h m", "n", "e", values="VC")
    first = tuple(contract(name, f"X {weight}", made, f"h m c {dim}") for name, weight, made, dim in PROJECTIONS)
    middle = (contract("scores", "Q KC", "S", "h m d n"), *rest.ops)
    ops = (*first, *middle, contract("output", "O WO", "Y", "m h e c2"))
    inputs = {"X": "m c", "WQ": "c h d", "WK": "c h d", "WV": "c h e", "KC": "h n d", "VC": "h n e", "WO": "h e c2"}
    made = {"Q": "h m d", "K": "h m d", "V": "h m e", "S": "h m n", "Y": "m c2"} | rest.made
    dims = {"h": HEADS, "m": 1, "n": keys, "d": HEAD, "e": HEAD, "c": WIDTH, "c2": WIDTH}
    known = tensors("bf16", inputs | made) | tensors(STATISTIC, rest.statistics)
    return Workload("decode", dims, known, ops, ("Y", "K", "V"))


PROJECTIONS = (("query", "WQ", "Q", "d"), ("key", "WK", "K", "d"), ("value", "WV", "V", "e"))


def projections() -> dict[str, Workload]:
    """The projections alone; the first three are one product of three times as many columns."""
    lines = {"projections": "Q[h,m,d] = X[m,c] * W[c,h,d]", "output": "Y[m,p] = O[m,h,e] * W[h,e,p]"}
    first = {"h": len(PROJECTIONS) * HEADS, "m": 1, "c": WIDTH, "d": HEAD}
    sizes = {"projections": first, "output": {"m": 1, "h": HEADS, "e": HEAD, "p": WIDTH}}
    return {name: graph([text], sizes[name], "bf16") for name, text in lines.items()}


def core(keys: int) -> Workload:
    """Attention over the cache as one kernel."""
    made = attention(1, HEADS, HEADS, 1, keys, HEAD)
    return replace(made, kernels=(tuple(op.name for op in made.ops),))


def alone(work: Workload, chip: Chip) -> dict[str, Any]:
    """The fastest mapping of one kernel, proven."""
    best = optimise(Problem(work, chip, baselines=False, fixed_variant=True)).best
    cost = figures(best, chip)
    said = [str(each) for each in exchanges(best)]
    return {"time": cost.time, "traffic": cost.traffic, "gap": best.certificate.gap, "collectives": said}


def kernels() -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Each kernel alone, with links between SMs and without: its name, and what makes its row."""
    for name, work in projections().items():
        yield name, partial(kernel, name, None, True, work)
    for keys in KEYS:
        for links in (True, False):
            yield f"attention, {keys} keys, {'links' if links else 'no links'}", partial(kernel, "attention", keys, links)


def kernel(name: str, keys: int | None, links: bool, work: Workload | None = None) -> Rows:
    """The best mapping of a kernel; attention over this number of keys where no workload is given."""
    chip = load_chip(CHIP)
    asked = core(keys) if work is None and keys is not None else work
    assert asked is not None  # one of the two is given
    return [{"kernel": name, "keys": keys, "links": links} | alone(asked, chip if links else without_links(chip))]


def written(text: str, keys: int, model: int, tile: int) -> OwnMapping:
    """The cost of a written mapping of one kernel."""
    mapping = (text + OUTPUT).format(part=WIDTH // CLUSTER, keys=keys // CLUSTER, model=model, tile=tile)
    return estimate(mapping, step(keys), CHIP)


WRITTEN = {"clusters": CLUSTERS, "alone": ALONE}


def fused(keys: int, name: str) -> Rows:
    """A mapping of one kernel, with the best tiles of those that are tried."""
    return [{"keys": keys, "mapping": name} | best(WRITTEN[name], keys)]


def best(text: str, keys: int) -> dict[str, Any]:
    """The best of the tiles."""
    return min(_tried(text, keys), key=lambda row: float(row["time"]))


def _tried(text: str, keys: int) -> Iterator[dict[str, Any]]:
    chip = load_chip(CHIP)
    outer = [memory.name for memory in chip.levels[0].memories]
    for model, tile in product(TILES, TILES):
        try:
            cost = written(text, keys, model, tile).estimate
        except Infeasible:
            continue
        moved = sum(float(cost.traffic(name)) for name in outer)
        yield {"time": float(cost.time), "traffic": moved, "model": model, "tile": tile}


def deployment(model: str, system: str, software: str, tp: int = 1) -> Deployment:
    """Served with kernels that reach the measured shares of the data sheet."""
    found = load_system(system)
    layout, shares = ReplicaLayout(tp=tp), load_chip_fit(DEFAULT_FIT).efficiency
    return Deployment(ServedModel(load_model(model)), found, layout, load_software(software), shares, load_libraries(found))


def tokens() -> Rows:
    """The time of a token by software and context, its parts, and the least time of its bytes."""
    found = []
    for software in SOFTWARE:
        made = deployment(MODEL, SYSTEM, software)
        shape = made.model.shape
        for keys in KEYS:
            parts = {name: float(value) for name, value in made.step.parts(StepBatch(users=1, context=keys)).items()}
            # the table of embeddings is not read, the head is
            weights = 2 * (sum(_matrices()) * shape.layers + shape.vocabulary * shape.model)
            cache = 2 * 2 * keys * shape.kv_heads * shape.head_dim * shape.layers
            found.append(
                {
                    "software": software,
                    "keys": keys,
                    "gap": made.software.gap,
                    "parts": parts,
                    "bytes": weights + cache,
                    "sustained": made.rates.memory,
                    "peak": load_chip(CHIP).levels[0].memories[0].read_bandwidth,
                }
            )
    return found


def _matrices() -> tuple[int, int]:
    """Elements of the matrices of a layer: of attention, of the feed-forward block."""
    shape = load_model(MODEL)
    heads = shape.heads + shape.kv_heads
    return 2 * shape.model * heads * shape.head_dim, 3 * shape.model * shape.hidden


SERVED = ("llama2-70b", "8 x a100, nvlink 8", 8)
USERS, PROMPT, ANSWER = (64, 256, 1024), 512, 512
IDEAL = "ideal"


def overlapped() -> Rows:
    """Parts of a mean step of Llama-2-70B on eight A100 by users in flight."""
    found = []
    for software in (IDEAL, "vllm", "vllm-2024"):
        for users in USERS:
            model, system, tp = SERVED
            state = served(deployment(model, system, software, tp), Load(Lengths(PROMPT, ANSWER), concurrency=users)).state
            parts = {name: float(value) for name, value in state.parts.items()}
            found.append({"software": software, "users": users, "parts": parts, "decoding": state.decoding, "step": state.step})
    return found
