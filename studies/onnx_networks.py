"""Whole networks from ONNX files on two chips: what the command finds in a fixed time, and what it leaves open."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from halley.answers.load import load
from halley.mapping.network import NetworkResult
from halley.units import format_time
from studies.kept import KeptStudy, Rows, StudyCase
from studies.onnx_files import TRANSFORMERS, files
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "onnx-networks", "Whole networks from ONNX files on two chips"
CHIPS = ("edge", "tpu-v4i-like")
NETWORKS = ("bvlc_alexnet", "resnet50", "squeezenet", "vgg19", "zfnet512", *TRANSFORMERS)
LIMIT = 40
"""Seconds of all searches of a network on a chip."""
PUBLISHED = {"resnet50": 4.09, "vgg19": 19.63, "vit-b16": 17.5}
"""Giga multiply-accumulates of an image as published: He et al. 2016, Simonyan and Zisserman 2015, Touvron et
al. 2021 (DeiT-B, with one token more)."""


def cases() -> Iterator[StudyCase]:
    """A row for each network and chip."""
    for name in NETWORKS:
        for chip in CHIPS:
            yield StudyCase("rows", f"{name}, {chip}", partial(_solved, name, chip))


@cache
def _written() -> tuple[tempfile.TemporaryDirectory[str], dict[str, Path]]:
    """All networks as files, and the folder that they are in, which is removed at the end."""
    folder = tempfile.TemporaryDirectory()
    return folder, files(Path(folder.name))


def _solved(name: str, chip: str) -> Rows:
    return [solve(name, _written()[1][name], chip)]


def solve(name: str, path: Path, chip: str, limit: int = LIMIT) -> dict[str, Any]:
    """The row of a network on a chip, by the command; its processor time [s] includes reading the file."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "answer.json")
        limits = ["--dtype", "bf16", "--time-limit", f"{limit}s"]
        words = ["optimise", str(path), "--chip", chip, *limits, "--output", str(written)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        made = subprocess.run([sys.executable, "-m", "halley", *words], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if made.returncode not in (0, 3):  # 3: not proven within the time
            raise RuntimeError(f"{name} on {chip}: {made.stderr}")
        found: NetworkResult = load(written).value
    network = found.network
    return {
        "network": name,
        "chip": chip,
        "macs": network.macs,
        "left_out": [item.operator for item in network.left_out],
        "operators": sum(layer.count * (layer.operator.count("+") + 1) for layer in network.layers),
        "layers": sum(layer.count for layer in network.layers),
        "distinct": len(network.layers),
        "searched": sum(item.result is not None for item in found.layers),
        "time": found.time,
        "bound": found.certificate.bound,
        "energy": found.energy,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What the rows show."""
    gaps = {(row["network"], row["chip"]): row["time"] / row["bound"] - 1 for row in rows}
    errors = [abs(row["macs"] / 1e9 / PUBLISHED[row["network"]] - 1) for row in rows if row["network"] in PUBLISHED]
    transformers = [gap for (name, _), gap in gaps.items() if name in TRANSFORMERS]
    distinct = sum(row["distinct"] for row in rows)
    unmapped = distinct - sum(row["searched"] for row in rows)
    worst = max(gaps, key=lambda key: gaps[key])
    return [
        Finding(
            f"**Every operator of the files is part of a layer**; none is left out. {unmapped} of {distinct} distinct layers "
            f"{'has' if unmapped == 1 else 'have'} no mapping, and {'is' if unmapped == 1 else 'are'} no part of time and gap: "
            "the first convolution of ViT-B/16 on edge, whose smallest tiles do not fit into the input buffer.",
            unmapped == 1 and not any(row["left_out"] for row in rows),
        ),
        Finding(
            f"**Multiply-accumulates equal published counts** to {max(errors):.1%} ({', '.join(PUBLISHED)}).",
            max(errors) < 0.005,
        ),
        Finding(
            f"The largest gap of a network is {gaps[worst]:.0%} "
            f"({worst[0]} on {worst[1]}), that of a transformer {max(transformers):.0%}.",
            gaps[worst] < 4,
        ),
    ]


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    rows = known["rows"]
    gaps = sorted(row["time"] / row["bound"] - 1 for row in rows)
    return f"{len(rows) // len(CHIPS)} networks in {LIMIT} s of search each; the gap is {gaps[len(gaps) // 2]:.0%} in the median"


def page(known: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    rows = known["rows"]
    lines = [
        (
            row["network"],
            row["chip"],
            f"{row['macs'] / 1e9:.3g}",
            f"{row['operators']:,}",
            f"{row['layers']:,}",
            f"{row['searched']:,} of {row['distinct']:,}" if row["searched"] < row["distinct"] else f"{row['distinct']:,}",
            format_time(row["time"]),
            f"{row['time'] / row['bound'] - 1:.1%}",
            f"{row['cpu']:.0f}",
        )
        for row in rows
    ]
    head = ("network", "chip", "GMAC", "operators", "layers", "distinct", "time", "gap", "CPU s")
    parts = {
        "headline": headline(known),
        "limit": str(LIMIT),
        "table": "\n".join(table(head, lines, 2)),
        "findings": "\n".join(bullet(finding.text) for finding in findings(rows)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NAME}.md": page(known)}


STUDY = KeptStudy(NAME, __file__, cases, _files, (Path(__file__).with_name("onnx_files.py"),))
