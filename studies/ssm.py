"""Mamba and Hyena: fused against unfused on edge, cloud, and a reconfigurable dataflow unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from halley import Workload, build, load_chip
from halley.report.table import percent
from studies.cases import Case, Row
from studies.study import Account, Finding, Study
from studies.tables import MEANING, ratios, spread, table, times_as

CHIPS: dict[str, str | Path] = {
    "edge": "edge",
    "cloud": "cloud",
    "SN40L, HBM": Path(__file__).with_name("chips") / "sn40l-hbm.yaml",
}
MAMBA = "Mamba block"
MAMBA_2 = "Mamba-2 block"
HYENA = "Hyena operator"
GROUPS = (MAMBA, MAMBA_2, HYENA)


def cases() -> list[Case]:
    """Every block on every chip."""
    chips = {series: load_chip(chip) for series, chip in CHIPS.items()}
    return [Case(group, name, series, work, chip) for group, name, work in _blocks() for series, chip in chips.items()]


def _blocks() -> Iterator[tuple[str, str, Workload]]:
    """(block, size, workload): the smallest published models, at lengths of which some fit every chip."""
    yield MAMBA, "130m, 512 tokens", build("mamba", {"length": 512, "model": 768})
    sizes = {"chunks": 8, "chunk": 64, "model": 768, "heads": 24, "head_dim": 64}
    yield MAMBA_2, "130m, 512 tokens", build("mamba-2", sizes)
    for length in (512, 2048):
        yield HYENA, f"125m, {length} tokens", build("hyena", {"length": length, "model": 768})


def quick(case: Case) -> bool:
    """The shortest Hyena on the edge chip."""
    return case.group == HYENA and case.series == "edge" and case.name.endswith(" 512 tokens")


def account(rows: Sequence[Row]) -> Account:
    """What the page says."""
    single = {chip: spread(ratios(rows, "op_by_op", series=chip)) for chip in CHIPS}
    ranges = ", ".join(f"{chip} {ratio}" for chip, ratio in single.items())
    headline = (
        f"fusing kernels gains {spread(ratios(rows, 'unfused'))}, fusing ops far more (over op by op: {ranges}); the limit of "
        "Mamba and Hyena is the vector engine on chips built for GEMMs, and the memory on a dataflow unit. The published ratios "
        "compare chips, not mappings"
    )
    return Account(headline, _before(rows), _agrees(rows), _differs(rows), AFTER)


def _before(rows: Sequence[Row]) -> str:
    return f"""\
## The claim

A reconfigurable dataflow unit with two additional modes in its compute tiles, one for Fourier transforms and one for scans, runs
Hyena 5.95 x faster than a GPU (A100) and 1.95 x faster than the same unit without these modes. For Mamba the ratios are 2.12 x
and 1.75 x (Ko and Olukotun, arXiv 2503.22937, abstract).

These ratios compare chips. This study asks a different question about the same blocks: on one chip, how much does fusion gain,
and what limits it? It neither confirms nor refutes the published ratios.

## Method

Blocks: [Mamba, Mamba-2 and Hyena](../reference/workloads.md) of the smallest published models (model dim 768), bf16. Chips:
[edge and cloud](../reference/chips.md), and the SN40L with its data in HBM ([how it is modelled](sn40l.md)), which is the nearest
to a dataflow unit. Time is minimised. The scan of Mamba, with its discretisation and gate, is one kernel. So is each long
convolution of Hyena with its gate (two transforms, product, inverse transform).

The search may divide the kernels of these blocks between any two ops ([decision](../decisions/0026-divisible-kernels.md)). The
lanes of the vector engine process channels (Mamba) or positions of the sequence (Hyena).

The mapping strategies:

{MEANING}
```console
$ halley optimise hyena --length 512 --model 768 --chip cloud
$ python -m studies ssm
```

## What limits the best plans

{_limits(rows)}
"""


def _limits(rows: Sequence[Row]) -> str:
    """The busiest resource of every best plan."""
    head = ("block", "size", "chip", "busiest", "busy")
    lines = [(row.group, row.name, row.series, row.busiest, percent(row.share, 1.0)) for row in rows if row.best]
    return "\n".join(table(head, lines, 4))


def _agrees(rows: Sequence[Row]) -> tuple[Finding, ...]:
    built_for_gemms = [row for row in rows if row.series in ("edge", "cloud") and row.group in (MAMBA, HYENA)]
    shares = [row.share for row in built_for_gemms]
    unit = ratios(rows, "op_by_op", MAMBA, HYENA, series="SN40L, HBM")
    others = ratios(rows, "op_by_op", MAMBA, HYENA, series="edge") + ratios(rows, "op_by_op", MAMBA, HYENA, series="cloud")
    chunked = [row for row in rows if row.group == MAMBA_2 and row.best]
    scanned = {row.series: row for row in rows if row.group == MAMBA}
    gains = {
        row.series: other.best.time / row.best.time
        for row in chunked
        if row.series in ("edge", "cloud") and row.best and (other := scanned[row.series]).best
    }
    faster = [f"{times_as(ratio)} on {series}" for series, ratio in gains.items()]
    return (
        Finding(
            "**On chips built for GEMMs, the other ops are the limit.** The vector engine is the busiest resource in all "
            f"best plans of Mamba and Hyena on edge and cloud, for {percent(min(shares), 1.0)} to {percent(max(shares), 1.0)} of "
            "the time. The paper makes the same point: such chips run scans and transforms poorly.",
            all(row.busiest == "engine vector" for row in built_for_gemms),
        ),
        Finding(
            "**Mamba-2 was designed for such chips**: with chunks, most of its scan consists of GEMMs. Its block is faster than "
            f"a Mamba block of the same size ({', '.join(faster)}). Its busiest resource is a different one, or the vector "
            f"engine for a smaller part of the time "
            f"({', '.join(f'{row.busiest} on {row.series}, {percent(row.share, 1.0)}' for row in chunked)}).",
            all(row.busiest != "engine vector" or row.share < scanned[row.series].share for row in chunked)
            and all(ratio > 1.0 for ratio in gains.values()),
        ),
        Finding(
            f"**Fusion gains most on a dataflow unit**: op by op, Mamba and Hyena take {spread(unit)} the time on the SN40L, and "
            f"{spread(others)} on the other chips. The SN40L has many vector engines, so its memory is the limit: the HBM bus is "
            "the busiest resource of every best plan.",
            min(unit) > max(others) and all(row.busiest == "bus hbm" for row in rows if row.series == "SN40L, HBM" and row.best),
        ),
    )


def _differs(rows: Sequence[Row]) -> tuple[Finding, ...]:
    mamba, hyena = ratios(rows, "unfused", MAMBA, MAMBA_2), ratios(rows, "unfused", HYENA)
    groups = [len(row.fused) for row in rows if row.best]
    return (
        Finding(
            f"**Fusing kernels with each other gains little**: Mamba blocks {spread(mamba)}, Hyena {spread(hyena)} over unfused "
            "kernels. One kernel of a Mamba block already contains the whole scan with its discretisation and gate, like the "
            "kernel of Mamba's authors. The traffic between kernels takes little time compared with the vector engine.",
            max(mamba) < 1.3 and max(hyena) < 1.1,
        ),
        Finding(
            "**Fusing all ops of a block is not best either.** Every best plan divides its block into several groups of ops "
            f"({min(groups)} to {max(groups)}). A scan or a transform needs its whole sequence in every tile. A group with "
            "several such tensors has capacity for fewer channels at a time, and lanes stay idle.",
            min(groups) > 1,
        ),
    )


AFTER = """\
## Limits

- The paper's sequences are long. Here they are short, because a sequence must fit into a cluster's buffer.
- The transform is counted as radix-2 butterflies on the vector engine. Transforms by matrix products are not considered.
- A scan is counted as work per point. The transfer of the state from tile to tile in a pipeline is not modelled."""

PLOTS = {"ssm": ("Time over the best plan's: fusion (left) and collectives (right) by block and chip", GROUPS)}
STUDY = Study("ssm", "Mamba and Hyena, fused and unfused", cases, quick, account, PLOTS, {})
