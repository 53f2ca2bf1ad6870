"""FlatAttention on meshes of tiles: FlashAttention-2 and -3 and FlatAttention by fabric, group, sequence and channels of HBM.

The dataflows and the constants are those of `validation.mesh`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any, TypeAlias

from validation.mesh import attention as dataflows
from validation.mesh import runs
from validation.mesh.attention import FLASH, FLAT, FLAT_ASYNCHRONOUS, FLAT_HARDWARE, Run, largest_slice

from halley.ir.text import to_text
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.simulate.simulation import simulate
from halley.workloads.attention import attention
from studies.kept import StudyCase

NAME, TITLE = "flatattention", "FlatAttention: collectives inside a mesh of tiles"
TILES, BATCH, HEADS = 32, 4, 32
SEQUENCES, HEAD_DIMS, GROUPS = (512, 1024, 2048, 4096), (64, 128), (4, 8, 16, 32)
CHANNELS = 32
"""Of the chip; others are tried with one head dim."""
FEW, MANY = (2, 4, 8, 16), (64, 128, 256, 512)
OTHER_RUNS = {1024: GROUPS, 4096: (32,)}
"""Sequences that are tried with other channels, and the groups: where memory is the limit, the largest groups read least."""
FABRICS = {32: GROUPS, 16: (2, 4, 8, 16), 8: (1, 2, 4, 8)}
"""Fabrics of one peak by tiles of a side, with their groups: fewer tiles have more units and memory each, and larger slices."""
FABRIC_CHANNELS = (8, 16, 32, 64)
"""Channels of HBM of each fabric."""
PEAK = 2 * TILES**2 * 32 * 16 * runs.CLOCK
"""Operations a second of all matrix engines."""
HEAD, SHORT = 128, 1024
"""Where no steps overlap, only runs of this head dim and at most this sequence are simulated: the formulas are as long."""
SEARCHED = (512, 1024)
LIMIT = 1500.0
"""Seconds of a search."""
OTHERS = (Path(dataflows.__file__), Path(runs.__file__))

Row: TypeAlias = dict[str, Any]


def figure(
    dataflow: str,
    sequence: int,
    head: int,
    group: int = 1,
    channels: int = CHANNELS,
    full: bool = False,
    tiles: int = TILES,
) -> runs.Figure:
    """A run of the study; nothing is published for most of them."""
    largest = largest_slice(runs.shipped(tiles), head)
    run = Run(dataflow, BATCH, HEADS, sequence, head, tiles, group, largest, full)
    return runs.Figure(run, channels, 0.0)


def row(asked: runs.Figure, simulated: bool) -> Row:
    """Times of a run, by the formulas and, if asked, in the simulation."""
    run, chip = asked.run, runs.machine(asked)
    return {
        "dataflow": run.dataflow,
        "tiles": run.tiles,
        "sequence": run.sequence,
        "head": run.head,
        "group": run.group,
        "channels": asked.channels,
        "full": run.full,
        "slice": run.slice,
        "traffic": run.traffic,
        "formulas": runs.formula_time(asked, chip),
        "simulation": runs.simulated_time(asked, chip) if simulated else None,
    }


def asked() -> dict[runs.Figure, bool]:
    """The runs, and whether they are simulated: all dataflows on the chip, those compared with other channels, then fabrics."""
    found = dict(_on_the_chip())
    for wanted, simulated in (*_with_other_channels(), *_on_fabrics()):
        found.setdefault(wanted, simulated)
    return found


def _on_the_chip() -> Iterator[tuple[runs.Figure, bool]]:
    for head in HEAD_DIMS:
        for sequence in SEQUENCES:
            for dataflow in FLASH:
                for full in (False, True):
                    yield figure(dataflow, sequence, head, full=full), head == HEAD
            few = head == HEAD and sequence <= SHORT
            for dataflow in (FLAT, FLAT_HARDWARE, FLAT_ASYNCHRONOUS):
                for group in GROUPS:
                    yield figure(dataflow, sequence, head, group), few or dataflow == FLAT_ASYNCHRONOUS


def _with_other_channels() -> Iterator[tuple[runs.Figure, bool]]:
    for sequence, groups in OTHER_RUNS.items():
        for channels in (*FEW, *MANY):
            for dataflow in FLASH:
                for full in (False, True) if sequence < SEQUENCES[-1] else (False,):
                    yield figure(dataflow, sequence, HEAD, 1, channels, full), channels in MANY
            for group in groups if channels < MANY[1] else ():
                yield figure(FLAT_ASYNCHRONOUS, sequence, HEAD, group, channels), True


def _on_fabrics() -> Iterator[tuple[runs.Figure, bool]]:
    for tiles, groups in FABRICS.items():
        for channels in FABRIC_CHANNELS:
            for sequence in SEQUENCES:
                for dataflow in FLASH:
                    for full in (False, True):
                        yield figure(dataflow, sequence, HEAD, 1, channels, full, tiles), tiles < TILES or channels > CHANNELS
                for group in groups:
                    yield figure(FLAT_ASYNCHRONOUS, sequence, HEAD, group, channels, tiles=tiles), True


def time(found: Mapping[str, Any]) -> float:
    """In the simulation; by the formulas where it was not simulated."""
    return float(found["simulation"] or found["formulas"])


def utilisation(found: Mapping[str, Any]) -> float:
    """Of the matrix engines."""
    return figure(found["dataflow"], found["sequence"], found["head"]).work / time(found) / PEAK


def search(sequence: int) -> Row:
    """The search's own mapping, with the bandwidth and the barriers of the asynchronous dataflow."""
    chip = runs.machine(figure(FLAT_ASYNCHRONOUS, sequence, HEAD, GROUPS[0]))
    work_of, started = attention(BATCH, HEADS, HEADS, sequence, sequence, HEAD, dtype="fp16"), process_time()
    best = optimise(Problem(work_of, chip, baselines=False, time_limit=LIMIT)).best
    seconds = process_time() - started
    own = attention(BATCH, HEADS, HEADS, sequence, sequence, HEAD, variant=best.variant, dtype="fp16")
    simulated = simulate(own, chip, best.plan).time
    return {
        "sequence": sequence,
        "formulas": float(best.certificate.value),
        "bound": float(best.certificate.bound),
        "simulation": simulated,
        "seconds": seconds,
        "plan": to_text(best.plan),
    }


def cases() -> Iterator[StudyCase]:
    """All runs, and the searches."""
    for wanted, simulated in asked().items():
        run = wanted.run
        group = f"{run.group} x {run.group} of {run.tiles} x {run.tiles} tiles"
        size = f"{run.sequence} tokens, head dim {run.head}, {group}, {wanted.channels} channels"
        blocks = ", full blocks" if run.full else ""
        yield StudyCase("rows", f"{run.dataflow}, {size}{blocks}", lambda w=wanted, s=simulated: [row(w, s)])
    for sequence in SEARCHED:
        yield StudyCase("searches", f"{sequence} tokens", lambda s=sequence: [search(s)])
