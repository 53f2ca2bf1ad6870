"""COMET's three compound operations on the shapes of published models, and how their ratios depend on shape and chip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from halley import Chip, Workload, build, load_chip, shapes
from halley.workloads import MODELS
from studies.cases import Case, Row
from studies.study import Account, Finding, Study
from studies.tables import MEANING, WORDS, chosen, ratios, spread, table, times_as

TOKENS = {
    "bert-base": 512,
    "bert-large": 512,
    "vit-l/16": 197,
    "gpt3-6.7b": 2048,
    "gpt3-175b": 2048,
    "falcon-7b": 2048,
    "llama3-8b": 8192,
    "llama3-70b": 8192,
}
"""The models, and the sequence that each is asked for: what it was published with."""

CHIPS = ("edge", "cloud")
DECODED = 16
"""Sequences that decode a token at once, for the vocabulary."""

SCORES = "GEMM-Softmax: scores of one KV head"
VOCABULARY = "GEMM-Softmax: 16 decoded tokens to the vocabulary"
NORM = "GEMM and norm: output projection"
PREFILL = "Self-attention: one KV head, prefill"
DECODE = "Self-attention: all heads, one decoded token"
BY_ROWS = "GEMM-Softmax of m rows: n 8192, k 128"
BY_DEPTH = "GEMM-LayerNorm by contraction k: m 2048, n 4096"
BY_MEMORY = "bert-large's attention by bandwidth of the outer memory"
SWEEPS = (BY_ROWS, BY_DEPTH, BY_MEMORY)
OPERATIONS = {"GEMM-Softmax": (SCORES, VOCABULARY), "GEMM-LayerNorm": (NORM,), "self-attention": (PREFILL, DECODE)}
MODEL_GROUPS = tuple(group for groups in OPERATIONS.values() for group in groups)
PUBLISHED = {"GEMM-Softmax": 1.42, "GEMM-LayerNorm": 3.46, "self-attention": 1.82}
"""COMET's largest speed-ups over unfused baselines (arXiv 2509.00599, abstract); the nearest here are in `OPERATIONS`."""


def cases() -> list[Case]:
    """Every case; the models first, then the sweeps."""
    chips = [load_chip(name) for name in CHIPS]
    made = [Case(group, name, chip.name, work, chip) for group, name, work in (*_models(), *_sweeps()) for chip in chips]
    return [*made, *_by_memory(chips)]


def _models() -> Iterator[tuple[str, str, Workload]]:
    """(operation, model, workload); images have no vocabulary, and encoders do not decode."""
    for model, tokens in TOKENS.items():
        yield SCORES, model, shapes(model, tokens)["scores-softmax"]
    for model in TOKENS:
        if MODELS[model].vocabulary is not None:
            yield VOCABULARY, model, shapes(model, DECODED)["vocabulary-softmax"]
    for model, tokens in TOKENS.items():
        yield NORM, model, shapes(model, tokens)["projection-norm"]
    yield NORM, "mamba-2.8b", build("gemm-rmsnorm", {"m": 2048, "n": 2560, "k": 5120})
    for model, tokens in TOKENS.items():
        yield PREFILL, model, one_head(model, tokens)
    for model, tokens in TOKENS.items():
        if MODELS[model].causal:
            yield DECODE, model, shapes(model, tokens)["attention-decode"]


def one_head(model: str, tokens: int) -> Workload:
    """Self-attention of one KV head with its query heads."""
    shape = MODELS[model]
    sizes = {"batch": 1, "heads": shape.heads // shape.kv_heads, "kv_heads": 1, "queries": tokens, "keys": tokens}
    return build("attention", sizes | {"head_dim": shape.head_dim, "causal": shape.causal})


def _sweeps() -> Iterator[tuple[str, str, Workload]]:
    for rows in (1, 16, 64, 256, 1024, 4096):
        yield BY_ROWS, f"m {rows}", build("gemm-softmax", {"m": rows, "n": 8192, "k": 128})
    for depth in (16, 64, 256, 1024, 4096):
        yield BY_DEPTH, f"k {depth}", build("gemm-layernorm", {"m": 2048, "n": 4096, "k": depth})


def _by_memory(chips: Sequence[Chip]) -> Iterator[Case]:
    work = one_head("bert-large", 512)
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        for chip in chips:
            yield Case(BY_MEMORY, f"{factor:g} of the chip's", chip.name, work, faster_memory(chip, factor))


def faster_memory(chip: Chip, factor: float) -> Chip:
    """The chip with an outer memory of that many times the bandwidth."""
    outer, *inner = chip.levels
    memories = tuple(
        replace(m, read_bandwidth=m.read_bandwidth * factor, write_bandwidth=m.write_bandwidth * factor) for m in outer.memories
    )
    return replace(chip, levels=(replace(outer, memories=memories), *inner))


def quick(case: Case) -> bool:
    """One small case of each operation, and one that needs a collective."""
    return case.series == "edge" and ((case.name == "bert-base" and case.group in (SCORES, NORM, PREFILL)) or case.name == "m 16")


def account(rows: Sequence[Row]) -> Account:
    """What the page says."""
    parts = [
        f"{name} up to {times_as(max(ratios(rows, 'unfused', *groups)))} over unfused (COMET {PUBLISHED[name]} x)"
        for name, groups in OPERATIONS.items()
    ]
    return Account("; ".join(parts), _before(rows), _agrees(rows), _differs(rows), _after(rows))


def _before(rows: Sequence[Row]) -> str:
    return f"""\
## The claim

COMET models compound operations with explicit collectives between clusters. Its optimised dataflows are up to 1.42 x
(GEMM-Softmax), 3.46 x (GEMM-LayerNorm) and 1.82 x (self-attention) faster than unfused ones, on an edge and a cloud
accelerator (Negi et al., arXiv 2509.00599, abstract). Its code is not public, and its shapes and chips are not known here. This
page therefore reports a range over other configurations. It does not reproduce the three figures.
[Another page](comet-baselines.md) asks which baseline they may be over.

## Method

The chips are [edge and cloud](../reference/chips.md). Their version 1 was fixed before any result was seen. Version 2, which this
study uses, was not: it has one bus for reads and writes of DRAM, and a static power. Elements are bf16, and time is minimised.
Each of five mapping strategies is searched to its optimum, with the same effort and all algorithmic variants:

{MEANING}
The operations:

- the scores of one KV head, with its query heads stacked, then softmax over the keys;
- the projection of {DECODED} decoded tokens to the vocabulary, then softmax;
- the output projection of attention, then the model's LayerNorm or RMSNorm (for Mamba: the block's output projection, then the
  next block's RMSNorm);
- self-attention of one KV head in prefill, and of all heads for one decoded token.

```console
$ halley optimise attention --batch 1 --heads 1 --kv-heads 1 --queries 512 --keys 512 --head-dim 64 --chip edge
$ python -m studies comet
```

## Result

{_results(rows)}

The figures show each case twice: the gain from fusion on the left, the gain from collectives on the right.
1 x is the best plan."""


def _results(rows: Sequence[Row]) -> str:
    ways = [(way, chip) for way in ("unfused", "op_by_op") for chip in CHIPS]
    lines = [
        (name, f"{PUBLISHED[name]:.2f} x", *(spread(ratios(rows, way, *groups, series=chip)) for way, chip in ways))
        for name, groups in OPERATIONS.items()
    ]
    return "\n".join(table(("operation", "COMET, up to", *(f"over {WORDS[way]}, {chip}" for way, chip in ways)), lines))


def _agrees(rows: Sequence[Row]) -> tuple[Finding, ...]:
    softmax, attention = (max(ratios(rows, "unfused", *OPERATIONS[name])) for name in ("GEMM-Softmax", "self-attention"))
    memory, slow = (ratios(rows, "unfused", BY_MEMORY, series=chip) for chip in ("cloud", "edge"))
    quiet = ratios(rows, "silent", BY_MEMORY, series="cloud")
    few, none = (ratios(rows, way, DECODE, series="cloud") for way in ("local", "silent"))
    return (
        Finding(
            f"**Fusing GEMM-Softmax and self-attention gains more than published**: up to {times_as(softmax)} and "
            f"{times_as(attention)} over unfused kernels, where COMET has 1.42 x and 1.82 x. Scores are not written to outer "
            "memory, and the matrix engine computes the next rows while the vector engine computes the softmax of these. Before "
            "the search allowed stages to overlap, the same cases gained 1.50 x and 1.89 x, close to COMET's figures. Shapes and "
            "chips differ, so this may be coincidence. The ratios are largest with short contractions (heads of 64) and slow "
            "memory (edge).",
            softmax > 1.42 and attention > 1.82,
        ),
        Finding(
            "**Collectives allow faster mappings** if there are few rows. One decoded token has one row per query head. On "
            f"cloud, a fused mapping that splits no reduction takes up to {times_as(max(few))} the time of the best. The best "
            f"mapping without collectives, over all partitions, takes up to {times_as(max(none))}, because most of the 16 "
            "clusters have no row.",
            max(few) > 1.5 and max(none) > 1.2,
        ),
        Finding(
            "**With slower outer memory, fusion gains more and collectives gain less.** On cloud, bert-large's attention gains "
            f"{times_as(memory[0])} by fusion with a quarter of the bandwidth, and {times_as(memory[-1])} with four times the "
            f"bandwidth. Without collectives it takes {times_as(quiet[0])} and {times_as(quiet[-1])} (second figure). On edge, "
            f"fusion gains {times_as(slow[0])} and {times_as(slow[-1])}. With more rows, fusion gains more. With one row, the "
            "time is that of reading the keys.",
            memory[0] > memory[-1] and slow[0] > slow[-1] and quiet[0] < quiet[-1],
        ),
    )


def _differs(rows: Sequence[Row]) -> tuple[Finding, ...]:
    norm, depth, deep = (
        ratios(rows, way, group) for way, group in (("unfused", NORM), ("unfused", BY_DEPTH), ("op_by_op", BY_DEPTH))
    )
    vocabulary, silent = ratios(rows, "unfused", VOCABULARY), ratios(rows, "silent", *MODEL_GROUPS)
    scores, prefill = (ratios(rows, "silent", group) for group in (SCORES, PREFILL))
    prefills = [row for row in rows if row.group == PREFILL]
    sums = sum(any(item.kind == "reduce-scatter" for item in row.exchanges) for row in prefills)
    return (
        Finding(
            f"**GEMM-LayerNorm** gains {spread(norm)} over unfused kernels on the models' shapes, far from 3.46 x. A projection "
            "contracts over hundreds to thousands of elements. Its GEMM takes nearly all of the time, and a norm in one kernel "
            f"reads the result only once more. Shorter contractions gain up to {times_as(max(depth))} (second figure). Op by op, "
            f"with mean, variance and all other results in outer memory, the gain is up to {times_as(max(deep))}. A ratio of "
            "3.46 x therefore needs a short contraction and either such a baseline or one that is not searched.",
            max(norm) < 1.5 and max(depth) < 3.46 <= max(deep),
        ),
        Finding(
            f"**The softmax over the vocabulary** gains almost nothing ({spread(vocabulary)}): a few rows read a large matrix "
            "once, and the scores are small compared with it.",
            max(vocabulary) < 1.05,
        ),
        Finding(
            "**With many rows, scores gain little from collectives**: the rows are split over the clusters. "
            f"Without collectives, the best plan takes {spread(scores)} the time. Attention gains more: without collectives, "
            f"prefill takes {spread(prefill)} the time. {sums} of {len(prefills)} best plans for prefill split a sum over the "
            "clusters and add the parts with a reduce-scatter. This is mostly the sum over the keys, because the result is "
            f"only as wide as a head. Over all models and operations the range is {spread(silent)}. No single choice of "
            "fused groups and splits is best everywhere: see the groups in the tables below.",
            max(scores) < 1.1 < max(prefill) and 0 < sums < len(prefills),
        ),
    )


def _after(rows: Sequence[Row]) -> str:
    models = [row for row in rows if row.group not in SWEEPS]
    worth = sum(ratio > 1.02 for ratio in ratios(models, "silent"))
    energy = [row.unfused.energy / row.best.energy for row in models if row.unfused and row.best]
    parts = [f"**{group}**\n\n" + "\n".join(chosen(row for row in models if row.group == group)) for group in MODEL_GROUPS]
    return f"""\
## Energy

The plans compared are the fastest ones, not those with the least energy. An unfused plan takes {spread(energy)} the energy of
the best plan. The ratio is largest if fusion keeps scores on the chip. It is below 1 if the best plan saves time by a collective
or by reading an operand twice.

## Which collectives, and where

{sum(bool(row.exchanges) for row in models)} of {len(models)} best plans of the models have collectives. In {worth} cases
the best plan without collectives takes over 2 % longer. An *all-reduce* combines statistics (maximum, sum, mean, variance: a few
bytes per row) of rows that are split over clusters. A *reduce-scatter* completes a GEMM whose contraction is split, where each
cluster has one term of every result. *Centre* (to the middle of a line and back) and *bidirectional* are algorithms. "Enclosing
loops" is the number of temporal loops outside the collective: with 0 it runs once per kernel, otherwise once per tile. The last
column is the time of the best plan without collectives relative to the best plan.

{(chr(10) * 2).join(parts)}

## Limits

- Chips and shapes are not COMET's. The ratios depend on both: see the second figure.
- Every certificate lists what the search space leaves out (`halley show`). Where a row of the tables has a gap, its ratios are
  those of the best plans found within the time limit.
- Masked tiles of causal attention are computed, except those that visible loops skip.
- COMET's abstract states no energy, so energy is not compared.

Shapes: {"; ".join(f"{model}: {MODELS[model].source}; {tokens} tokens" for model, tokens in TOKENS.items())}; mamba-2.8b: Gu and
Dao, arXiv 2312.00752, model dim 2560, 5120 channels; 2048 tokens."""


PLOTS = {
    "comet": ("Time over the best plan's: fusion (left) and collectives (right) by operation and model", MODEL_GROUPS),
    "comet-sweeps": ("The same by rows, by length of the contraction, and by bandwidth of the outer memory", SWEEPS),
}
CLAIMS = {
    group: ((PUBLISHED[name],), f"COMET: up to {PUBLISHED[name]} x") for name, groups in OPERATIONS.items() for group in groups
}
STUDY = Study("comet", "COMET's compound operations: fused, with and without collectives", cases, quick, account, PLOTS, CLAIMS)
