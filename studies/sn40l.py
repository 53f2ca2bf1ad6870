"""Fused against unfused on the memory tiers of the SN40L: HBM, DDR, and DDR with HBM as a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from halley import Workload, build, load_chip
from halley.workloads import MODELS
from studies.cases import Case, Row
from studies.study import Account, Finding, Study
from studies.tables import MEANING, chosen, ratios, spread, times_as

CHIPS = Path(__file__).with_name("chips")
TIERS: dict[str, str | Path] = {
    "HBM": CHIPS / "sn40l-hbm.yaml",
    "DDR": CHIPS / "sn40l-ddr.yaml",
    "DDR, HBM": "sn40l",
}
"""The tiers that hold the data, from the outermost: chips of this study, and the shipped one."""

SOCKETS = 8
"""Of the published node; heads, hidden dim of the feed-forward block and columns are divided by it."""

MODELS_ASKED = ("llama2-7b", "llama2-70b")
TOKENS = 4096
SEQUENCES = 16

SCORES = "GEMM-Softmax: scores of one KV head, prefill"
PREFILL = "Self-attention of a socket, prefill"
DECODE = "Self-attention of a socket, one decoded token"
DECODES = f"Self-attention of a socket, one decoded token of {SEQUENCES} sequences"
MLP = "Gated MLP of a socket, prefill"
MLP_DECODE = "Gated MLP of a socket, one decoded token"
GROUPS = (SCORES, PREFILL, MLP, DECODE, DECODES, MLP_DECODE)


def cases() -> list[Case]:
    """Every operation on every tier."""
    tiers = {series: load_chip(chip) for series, chip in TIERS.items()}
    return [Case(group, model, series, work, chip) for group, model, work in _operations() for series, chip in tiers.items()]


def _operations() -> Iterator[tuple[str, str, Workload]]:
    """(operation, model, workload) of one of eight sockets; llama2-7b alone where the search is long."""
    for group in GROUPS:
        for model in MODELS_ASKED:
            if group in (SCORES, PREFILL) or model == MODELS_ASKED[0]:
                yield group, model, workload(group, model)


def workload(group: str, model: str) -> Workload:
    """What one socket does of a layer."""
    shape = MODELS[model]
    heads, kv_heads, hidden = shape.heads // SOCKETS, max(1, shape.kv_heads // SOCKETS), shape.ffn // SOCKETS
    head = {"head_dim": shape.head_dim, "causal": True}
    attention = {"heads": heads, "kv_heads": kv_heads, "keys": TOKENS} | head
    match group:
        case _ if group == SCORES:
            return build("gemm-softmax", {"m": heads // kv_heads * TOKENS, "n": TOKENS, "k": shape.head_dim})
        case _ if group in (MLP, MLP_DECODE):
            return build("gated-mlp", {"tokens": TOKENS if group == MLP else 1, "model": shape.hidden, "hidden": hidden})
        case _:
            batch = SEQUENCES if group == DECODES else 1
            return build("attention", attention | {"batch": batch, "queries": TOKENS if group == PREFILL else 1})


def quick(case: Case) -> bool:
    """Decoding through the feed-forward block from HBM."""
    return case.group == MLP_DECODE and case.series == "HBM" and case.name == "llama2-7b"


def account(rows: Sequence[Row]) -> Account:
    """What the page says."""
    fused, single = (spread(ratios(rows, way, SCORES, PREFILL, series="HBM")) for way in ("unfused", "op_by_op"))
    headline = (
        f"softmax and attention in prefill from HBM: {fused} over unfused kernels, {single} over op by op (SN40L: 2 x to 13 x "
        "over unfused); almost no gain in decode, because the model has no launch overhead"
    )
    return Account(headline, BEFORE, _agrees(rows), _differs(rows), f"{_collectives(rows)}\n\n{AFTER}")


BEFORE = f"""\
## The claim

The SN40L has three tiers of memory (on-chip SRAM, HBM, DDR) and streams data through fused kernels on the chip. On eight sockets,
several benchmarks run 2 x to 13 x faster than an unfused baseline (Prabhakar et al., arXiv 2405.07518, abstract).

## Method

The search covers three levels of memory: an outer memory, a shared buffer, and local memories of the clusters. If the SRAM of the
SN40L is modelled as a pool and local memories, the chip has one level more. Three chip files therefore model it:

| chip | outer memory | shared buffer | local memory | represents |
|---|---|---|---|---|
| `studies/chips/sn40l-hbm.yaml` | HBM, 64 GiB, 2 TB/s | SRAM, 260 MiB | SRAM, 256 KiB | a model in HBM: the usual case |
| `studies/chips/sn40l-ddr.yaml` | DDR, 1.5 TiB, 200 GB/s | SRAM, 260 MiB | SRAM, 256 KiB | the chip without HBM |
| `sn40l` ([shipped](../reference/chips.md)) | DDR | HBM | SRAM, 512 KiB | three tiers in a row: HBM buffers DDR |

The workload is the part of a layer of Llama 2 that one of eight sockets computes (tensor parallel: heads and hidden dim divided
by eight), in prefill of {TOKENS} tokens and in decode with as many keys. Time is minimised. Transfers between sockets are left
out. The mapping strategies:

{MEANING}
The paper's abstract does not say whether its baseline is closer to *op by op* or to *unfused*, so both are given.

```console
$ halley optimise gated-mlp --tokens 1 --model 4096 --hidden 1376 --chip studies/chips/sn40l-hbm.yaml
$ python -m studies sn40l
```
"""

AFTER = """\
## Correspondence with the published cases

Prefill and decode of Llama 2 on one of eight sockets are the cases nearest to the paper's language models. [The study of
state-space models](ssm.md) has long convolutions by Fourier transform. This study does not cover training, composition of
experts, switching between experts, or a whole layer as one graph (its search takes minutes).

## What is not modelled

- The overhead of launching a kernel and of synchronising at its end.
- Concurrent kernels on arbitrary sets of units. Stages of a fused group overlap, or run concurrently on partitions of one axis of
  the units, and pass tiles through SRAM. The chip's compiler can place them more freely.
- Four levels of memory at once: HBM as a buffer *and* the SRAM as a pool. The mapping language cannot express a plan that streams
  weights from DDR to HBM while the chip computes from HBM. The third chip therefore shows the effect of the lower tiers. It is no
  prediction.
- Links between sockets: all-reduces after attention and after the feed-forward block.
- Memory units as one flexible pool: half of them are modelled as a pool, half as local memories."""


def _agrees(rows: Sequence[Row]) -> tuple[Finding, ...]:
    prefill = ratios(rows, "unfused", SCORES, PREFILL, series="HBM")
    single = ratios(rows, "op_by_op", SCORES, PREFILL, series="HBM")
    slow, slower = (ratios(rows, way, SCORES, PREFILL, series="DDR") for way in ("unfused", "op_by_op"))
    best = {row.series: row.best.time for row in rows if row.group == PREFILL and row.name == MODELS_ASKED[0] and row.best}
    pooled = ratios(rows, "local", DECODE, DECODES, series="HBM")
    return (
        Finding(
            f"**Softmax and attention in prefill, from HBM.** Fusion gains {spread(prefill)} over unfused kernels, at the lower "
            f"end of the published range, and {spread(single)} over op by op, well inside it. The cause is the traffic of the "
            "scores: between kernels they are written and read once, op by op several times.",
            min(prefill) > 1.8 and max(single) <= 13,
        ),
        Finding(
            f"**With a slower tier, fusion gains more**: from DDR {spread(slow)} over unfused kernels and {spread(slower)} over "
            "op by op. Fused attention needs little bandwidth of the outer memory: with a tenth of it, it takes "
            f"{times_as(best['DDR'] / best['HBM'])} the time.",
            min(slow) > max(1.0, min(prefill)) and best["DDR"] / best["HBM"] < 2,
        ),
        Finding(
            "**1040 units need split reductions in decode.** From HBM, a fused mapping that splits no reduction leaves most "
            f"units idle and takes {spread(pooled)} the time of the best.",
            min(pooled) > 1.5,
        ),
    )


def _collectives(rows: Sequence[Row]) -> str:
    lines = [line for group in GROUPS for line in ("", f"**{group}**", "", *chosen(row for row in rows if row.group == group))]
    return "\n".join(["## Which collectives, and where", *lines])


def _unfused_over_best(rows: Sequence[Row]) -> float:
    """Of attention and feed-forward block together, in prefill from HBM."""
    here = [row for row in rows if row.group in (PREFILL, MLP) and row.name == MODELS_ASKED[0] and row.series == "HBM"]
    return sum(row.unfused.time for row in here if row.unfused) / sum(row.best.time for row in here if row.best)


def _differs(rows: Sequence[Row]) -> tuple[Finding, ...]:
    together = _unfused_over_best(rows)
    decode = ratios(rows, "unfused", DECODE, DECODES, MLP_DECODE)
    mlp = ratios(rows, "unfused", MLP, series="HBM")
    return (
        Finding(
            f"**Decode** gains {spread(decode)} over unfused kernels on all tiers. Weights and keys are read once in either "
            "case, and only a vector passes between the kernels. On real chips, launches and synchronisation matter most in "
            "decode, and one kernel for a whole layer avoids them. The model does not include them, so this part of the "
            "published gain cannot appear.",
            max(decode) < 1.5,
        ),
        Finding(
            f"**The feed-forward block in prefill** gains {spread(mlp)} from HBM. With thousands of tokens the matrix engines "
            "are the limit, and the traffic that fusion saves overlaps with their work.",
            max(mlp) < 1.3,
        ),
        Finding(
            "**A whole layer therefore gains less than its attention.** The feed-forward block gains little, and the projections "
            "can be fused with a norm only. In prefill from HBM, attention and feed-forward block together take "
            f"{times_as(together)} the time if they are not fused.",
            together < max(ratios(rows, "unfused", PREFILL, series="HBM")),
        ),
    )


PLOTS = {"sn40l": ("Time over the best plan's: fusion (left) and collectives (right) by operation, model and tiers", GROUPS)}
CLAIMS = dict.fromkeys(GROUPS, ((2.0, 13.0), "SN40L: 2 x to 13 x"))
STUDY = Study("sn40l", "Fusion on the SN40L's memory tiers", cases, quick, account, PLOTS, CLAIMS)
