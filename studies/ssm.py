"""Mamba and Hyena: fused against unfused on edge, cloud, and a reconfigurable dataflow unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from halley import Workload, build, load_chip
from halley.report.table import percent
from studies.cases import Case, Row
from studies.study import Account, Finding, Study
from studies.tables import MEANING, ratios, spread, table

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
        f"fusing kernels brings {spread(ratios(rows, 'unfused'))}; the vector engine is the limit, and cutting kernels into "
        f"single ops can be faster (of the best of whole kernels: {told}). The published ratios compare chips, not mappings"
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

**The numbers below are from before the search cut kernels.** What they showed changed it: it now cuts the kernels of these
blocks between any two ops, and lanes lie along channels (Mamba) and the sequence (Hyena). So best plans are better today than
told here; see [decisions](../decisions.md).

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
    vector = [row for row in rows if row.busiest == "engine vector"]
    fitting = [row for row in rows if row.best]
    unit = ratios(rows, "op_by_op", MAMBA, series="SN40L, HBM")
    return (
        Finding(
            f"**Not the memory but what is not a GEMM is the limit.** In {len(vector)} of {len(fitting)} best plans the vector "
            f"engine is the busiest resource, for {percent(min(row.share for row in vector), 1.0)} of the time or more. That is "
            "the paper's point too: chips built for GEMMs run scans and transforms badly.",
            len(vector) > 0.8 * len(fitting),
        ),
        Finding(
            f"**On a dataflow unit Mamba's fused scan pays**: op by op takes {spread(unit)} as long on the SN40L, whose vector "
            "engines are many, so that HBM counts for more.",
            min(unit) > 1.2,
        ),
    )


def _differs(rows: Sequence[Row]) -> tuple[Finding, ...]:
    mamba, hyena = ratios(rows, "unfused", MAMBA, MAMBA_2), ratios(rows, "unfused", HYENA)
    single = [ratio for chip in ("edge", "cloud") for ratio in ratios(rows, "op_by_op", series=chip)]
    absent = [row for row in rows if row.best is None]
    return (
        Finding(
            f"**Fusing kernels brings little**: Mamba blocks {spread(mamba)}, Hyena {spread(hyena)} over unfused kernels. A "
            "Mamba block's kernels already hold the whole scan with its discretisation and gate, as its authors' kernel does; "
            "what lies between them is small beside the vector engine's time.",
            max(mamba) < 1.3 and max(hyena) < 2,
        ),
        Finding(
            f"**Fusing inside the kernels can lose.** On edge and cloud op by op takes {spread(single)} as long as the best of "
            "whole kernels, although it moves several times the bytes. A scan and a transform keep their sequence whole in "
            "every tile. A fused kernel holds several such tensors, so that fewer channels fit beside each other, and lanes "
            "stay empty. The search of that time fused kernels but did not cut them, so that its best was not the best there "
            "could be.",
            min(single) < 1,
        ),
        Finding(
            f"**{len(absent)} of {len(rows)} cases fit no buffer**: longer sequences, such as the paper's, would have to be cut "
            "into chunks.",
            len(absent) > 0,
        ),
    )


AFTER = """\
## Limits

- The paper's workloads are long sequences; here they are short, as a sequence must fit a cluster's buffer.
- The transform is counted as radix-2 butterflies on the vector engine; one by matrix products is not tried.
- A scan is counted as work per point; how a tile hands its state to the next in a pipeline is not modelled.
- Stages of a fused group run one after the other, not side by side on parts of the chip."""

PLOTS = {"ssm": ("Time over the best plan's: fusion (left) and collectives (right) by block and chip", GROUPS)}
STUDY = Study("ssm", "Mamba and Hyena, fused and unfused", cases, quick, account, PLOTS, {})
