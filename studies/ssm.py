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
    told = ", ".join(f"{chip} {ratio}" for chip, ratio in single.items())
    headline = (
        f"fusing kernels brings {spread(ratios(rows, 'unfused'))}, fusing ops far more (op by op: {told}); the vector engine "
        "is the limit of Mamba and Hyena on chips built for GEMMs, the memory on a dataflow unit. The published ratios compare "
        "chips, not mappings"
    )
    return Account(headline, _before(rows), _agrees(rows), _differs(rows), AFTER)


def _before(rows: Sequence[Row]) -> str:
    return f"""\
## The claim

A reconfigurable dataflow unit with two more modes in its compute tiles, one for Fourier transforms and one for scans, runs Hyena
5.95 x faster than a GPU (A100) and 1.95 x faster than the same unit without them; Mamba 2.12 x and 1.75 x (Ko and Olukotun,
arXiv 2503.22937, abstract).

These ratios compare chips. What is tried here is another question that the same blocks raise: on one chip, what does fusing
them bring, and what limits it? So nothing here confirms or refutes the published numbers.

## Method

Blocks: [Mamba, Mamba-2 and Hyena](../reference/workloads.md) of the smallest published models (model dim 768), bf16. Chips:
[edge and cloud](../reference/chips.md), and the SN40L with its data in HBM ([how it is told](sn40l.md)), the nearest to a
dataflow unit. Time is minimised. The scan of Mamba with what stands around it is one kernel; so is each long convolution of
Hyena with its gate (two transforms, product, transform back).

The search may cut the kernels of these blocks between any two ops, and lanes lie along channels (Mamba) and the sequence (Hyena):
see [decisions](../decisions/0026-divisible-kernels.md).

Ways to map:

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
            "**On chips built for GEMMs, what is not a GEMM is the limit.** The vector engine is the busiest resource in all "
            f"best plans of Mamba and Hyena on edge and cloud, for {percent(min(shares), 1.0)} to {percent(max(shares), 1.0)} of "
            "the time. That is the paper's point too: such chips run scans and transforms badly.",
            all(row.busiest == "engine vector" for row in built_for_gemms),
        ),
        Finding(
            "**Mamba-2 was made for such chips**: in chunks, most of its scan are GEMMs. Its block is faster than a Mamba block "
            f"of that size ({', '.join(faster)}), and its busiest resource is another one, or the vector engine for less of the "
            f"time ({', '.join(f'{row.busiest} on {row.series}, {percent(row.share, 1.0)}' for row in chunked)}).",
            all(row.busiest != "engine vector" or row.share < scanned[row.series].share for row in chunked)
            and all(ratio > 1.0 for ratio in gains.values()),
        ),
        Finding(
            f"**On a dataflow unit fusion pays most**: Mamba and Hyena take {spread(unit)} as long op by op on the SN40L, "
            f"{spread(others)} on the others. Its vector engines are many, so that what counts is its memory: the HBM bus is "
            "the busiest resource of every best plan.",
            min(unit) > max(others) and all(row.busiest == "bus hbm" for row in rows if row.series == "SN40L, HBM" and row.best),
        ),
    )


def _differs(rows: Sequence[Row]) -> tuple[Finding, ...]:
    mamba, hyena = ratios(rows, "unfused", MAMBA, MAMBA_2), ratios(rows, "unfused", HYENA)
    groups = [len(row.fused) for row in rows if row.best]
    return (
        Finding(
            f"**Fusing kernels with each other brings little**: Mamba blocks {spread(mamba)}, Hyena {spread(hyena)} over "
            "unfused kernels. A Mamba block's kernels already hold the whole scan with its discretisation and gate, as its "
            "authors' kernel does; what lies between them is small beside the vector engine's time.",
            max(mamba) < 1.3 and max(hyena) < 1.1,
        ),
        Finding(
            "**Fusing all of a kernel is not the answer either.** Every best plan cuts its block into several groups of "
            f"ops ({min(groups)} to {max(groups)}), and none fuses all. A scan and a transform keep their sequence whole in "
            "every tile; a group that holds several such tensors has room for fewer channels beside each other, and lanes stay "
            "empty.",
            min(groups) > 1,
        ),
    )


AFTER = """\
## Limits

- The paper's workloads are long sequences; here they are short, as a sequence must fit a cluster's buffer.
- The transform is counted as radix-2 butterflies on the vector engine; one by matrix products is not tried.
- A scan is counted as work per point; how a tile hands its state to the next in a pipeline is not modelled."""

PLOTS = {"ssm": ("Time over the best plan's: fusion (left) and collectives (right) by block and chip", GROUPS)}
STUDY = Study("ssm", "Mamba and Hyena, fused and unfused", cases, quick, account, PLOTS, {})
