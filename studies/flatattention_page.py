"""The page of the study of FlatAttention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

from validation.mesh.attention import FLASH, FLASH_2, FLASH_3, FLAT, FLAT_ASYNCHRONOUS, FLAT_HARDWARE
from validation.mesh.runs import CHANNEL, figures

from halley.report.draw import PALETTE
from halley.report.markup import svg_file
from halley.units import format_time
from studies import flatattention as study
from studies.flatattention import (
    CHANNELS,
    FABRIC_CHANNELS,
    FABRICS,
    GROUPS,
    HEAD,
    HEAD_DIMS,
    NAME,
    SEQUENCES,
    TILES,
    TITLE,
    time,
    utilisation,
)
from studies.flatattention_figure import Dot, Panel, curves
from studies.kept import KeptStudy
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

LONG = SEQUENCES[-1]
FLATS = (FLAT, FLAT_HARDWARE, FLAT_ASYNCHRONOUS)
FASTER, LESS_TRAFFIC, LESS_BANDWIDTH = 4.1, 16.0, 0.4
"""Published: FlatAttention over FlashAttention-3 on the same mesh, at most, in time and traffic; HBM bandwidth against H100's."""
H100 = 3.35e12
"""Bandwidth of HBM [B/s], as in the chip file h100."""
GROUPS_OF_LONG = {16: 0.927, 32: 0.923}
"""Published utilisation in groups of so many tiles a side, sequence 4,096, head dim 128, 128 heads."""
PUBLISHED_FLASH = 0.1947
"""Published utilisation of FlashAttention-3, sequence 4,096, head dim 128, 64 heads."""

WORDS = {
    FLAT: "FlatAttention, software collectives",
    FLAT_HARDWARE: "FlatAttention, hardware collectives",
    FLAT_ASYNCHRONOUS: "FlatAttention, asynchronous",
}
DATAFLOW_WORDS = ("FlatAttention", "FlashAttention")
FABRIC_FILLS = dict(
    zip((f"{word}, {tiles} x {tiles} tiles" for word in DATAFLOW_WORDS for tiles in FABRICS), PALETTE, strict=False)
)
PUBLISHED_BLOCKS, FULL_BLOCKS = "FlashAttention-3, published blocks", "FlashAttention, full blocks (the better of 2 and 3)"
FILLS = dict(zip((*WORDS.values(), PUBLISHED_BLOCKS, FULL_BLOCKS), (PALETTE[at] for at in (1, 5, 0, 4, 6)), strict=True))

Found: TypeAlias = Sequence[Mapping[str, Any]]


def chosen(found: Found, *dataflows: str, channels: int = CHANNELS, **fields: Any) -> list[Mapping[str, Any]]:
    """The rows of these dataflows whose fields are these; with the published blocks and on the finest fabric, unless ``full`` and
    ``tiles`` are given."""
    wanted = {"channels": channels, "full": False, "tiles": TILES} | fields
    return [row for row in found if row["dataflow"] in dataflows and wanted.items() <= row.items()]


def best(found: Found, *dataflows: str, **fields: Any) -> Mapping[str, Any]:
    """The fastest of them."""
    return min(chosen(found, *dataflows, **fields), key=time)


def span(values: Sequence[float]) -> str:
    """Ratios from the least to the largest."""
    return f"{min(values):.2f} to {max(values):.2f} x"


def headline(known: Mapping[str, Any]) -> str:
    """The result in a line."""
    found = known["rows"]
    flat, flash = (best(found, name, sequence=LONG, head=HEAD) for name in (FLAT_ASYNCHRONOUS, FLASH_3))
    gains = gains_over_flash(found)
    most, least = (max(pair[1] for pair in gains.values()), min(pair[1] for pair in gains.values()))
    return (
        f"{least:.1f} to {most:.1f} x faster than FlashAttention with the largest blocks on the same mesh (published: up to "
        f"{FASTER} x), with {flash['traffic'] / flat['traffic']:.1f} x less HBM traffic at {LONG:,} tokens; the published blocks "
        f"of FlashAttention are small for short sequences, and make it up to {max(pair[0] for pair in gains.values()):.1f} x; "
        "the best group is the sequence over 128"
    )


def cases() -> Iterator[dict[str, int]]:
    """Every head dim and sequence."""
    return ({"head": head, "sequence": sequence} for head in HEAD_DIMS for sequence in SEQUENCES)


def agreeing(known: Mapping[str, Any]) -> Iterator[Finding]:
    """What the rows say as the paper does."""
    found = known["rows"]
    flat = {tuple(case.values()): best(found, FLAT_ASYNCHRONOUS, **case) for case in cases()}
    yield Finding(
        "**Best dataflow**: asynchronous FlatAttention in its best group is the fastest in all eight cases, also compared with "
        "FlashAttention with full blocks.",
        all(
            time(flat[tuple(case.values())]) < time(other)
            for case in cases()
            for other in (*chosen(found, *FLASH, FLAT, FLAT_HARDWARE, **case), *chosen(found, *FLASH, full=True, **case))
        ),
    )
    yield Finding(
        "**Best group**: 4 x 4 tiles for 512 tokens, 8 x 8 for 1,024, 16 x 16 for 2,048 and 32 x 32 for 4,096, with both head "
        "dims, by formulas and simulation: the sequence over 128, so that a head is one block and a tile has the most rows and "
        f"keys that fit. Only for {LONG:,} tokens is 16 x 16 faster by the formulas, and for head dim 64 in the simulation too. "
        f"Published for 1,024 tokens: 8 x 8; for {LONG:,} and head dim {HEAD} 16 x 16 and 32 x 32 are as good.",
        [
            case
            for case in cases()
            for measure in (time, lambda row: float(row["formulas"]))
            if min(chosen(found, FLAT_ASYNCHRONOUS, **case), key=measure)["group"] != case["sequence"] // 128
        ]
        == [{"head": head, "sequence": LONG} for head in (64, 64, HEAD)]
        and all(row["slice"] == 128 for row in flat.values())
        and min(published(), key=published().__getitem__) == 8,
    )
    long, flash = flat[HEAD, LONG], best(found, FLASH_3, sequence=LONG, head=HEAD)
    yield Finding(
        f"**Against FlashAttention-3**, {LONG:,} tokens, head dim {HEAD}: {time(flash) / time(long):.1f} x faster with "
        f"{flash['traffic'] / long['traffic']:.1f} x less traffic (paper: up to {FASTER} x and {LESS_TRAFFIC:.0f} x). "
        f"The paper's own utilisation of FlatAttention over that of FlashAttention-3, "
        f"{GROUPS_OF_LONG[32]:.1%} over {PUBLISHED_FLASH:.1%}, though of different batches, would be "
        f"{GROUPS_OF_LONG[32] / PUBLISHED_FLASH:.1f} x.",
        FASTER < time(flash) / time(long) < 1.25 * FASTER and abs(flash["traffic"] / long["traffic"] / LESS_TRAFFIC - 1) < 0.05,
    )
    yield from _bandwidth(found, flash)
    yield from _fabrics(found)
    yield from _collectives(found)


def on_fabrics(found: Found) -> dict[tuple[int, int], dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """By sequence and channels, then tiles of a side: FlatAttention in its best group, and FlashAttention with full blocks."""
    return {
        (sequence, channels): {
            tiles: (best(found, FLAT_ASYNCHRONOUS, **case), best(found, *FLASH, full=True, **case))
            for tiles in FABRICS
            for case in [{"sequence": sequence, "head": HEAD, "channels": channels, "tiles": tiles}]
        }
        for sequence in SEQUENCES
        for channels in FABRIC_CHANNELS
    }


def _fabrics(found: Found) -> Iterator[Finding]:
    """Fewer and larger tiles."""
    every = on_fabrics(found)
    fine, coarse = max(FABRICS), min(FABRICS)
    finer = [utilisation(each[fine][0]) / utilisation(each[coarse][0]) for each in every.values()]
    coarser = [utilisation(each[coarse][1]) / utilisation(each[fine][1]) for each in every.values()]
    slices = [best(found, FLAT_ASYNCHRONOUS, sequence=LONG, head=HEAD, tiles=tiles)["slice"] for tiles in FABRICS]
    smaller = [
        (*case, tiles, row["group"])
        for case, each in every.items()
        for tiles, (row, _) in each.items()
        if row["group"] * row["slice"] != row["sequence"]
    ]
    yield Finding(
        f"**Best group on each fabric**: with {', '.join(f'{tiles} x {tiles}' for tiles in FABRICS)} tiles it is the sequence "
        f"over the slice that fits a tile, {', '.join(map(str, slices))}, so that a head is one block. Only with {coarse} x "
        f"{coarse} tiles and {FABRIC_CHANNELS[-1]} channels are smaller groups faster: each tile by itself for 1,024 and 2,048 "
        f"tokens, 2 x 2 for {LONG:,}.",
        smaller == [(sequence, FABRIC_CHANNELS[-1], coarse, group) for sequence, group in ((1024, 1), (2048, 1), (LONG, 2))],
    )
    yield Finding(
        f"**Fabric**, channels and sequence: FlatAttention and FlashAttention want opposite fabrics of the same peak. {fine} x "
        f"{fine} tiles are {span(finer)} as fast as {coarse} x {coarse} for FlatAttention; for FlashAttention with full blocks "
        f"{coarse} x {coarse} are {span(coarser)} as fast as {fine} x {fine}, because a tile that is larger shares more keys by "
        "itself.",
        min(coarser) > 1 and max(finer) > 1.2 and min(finer) > 0.95,
    )


def _bandwidth(found: Found, flash: Mapping[str, Any]) -> Iterator[Finding]:
    """HBM."""
    fields = {"sequence": LONG, "head": HEAD}
    flat = {row["channels"]: row for count in (16, 32) for row in [best(found, FLAT_ASYNCHRONOUS, channels=count, **fields)]}
    other = {count: best(found, FLASH_3, channels=count, **fields) for count in (64, 256, 512)}
    yield Finding(
        f"**Bandwidth**, {LONG:,} tokens: FlatAttention reaches {utilisation(flat[16]):.0%} of the peak with 16 channels of HBM "
        f"and {utilisation(flat[32]):.0%} with 32, FlashAttention-3 {utilisation(other[256]):.0%} with 256 and "
        f"{utilisation(other[512]):.0%} with 512: 16 times the bandwidth, as the traffic is.",
        abs(utilisation(flat[16]) / utilisation(other[256]) - 1) < 0.02
        and abs(utilisation(flat[32]) / utilisation(other[512]) - 1) < 0.02,
    )
    yield Finding(
        f"**Against H100's bandwidth**: 32 channels are {1 - CHANNELS * CHANNEL / H100:.0%} less than H100 has (paper: "
        f"{LESS_BANDWIDTH:.0%} less, at about its peak). FlashAttention-3 on the mesh reaches {utilisation(flash):.0%} of the "
        f"peak with them, and {utilisation(other[64]):.0%} with 64, which are more than H100 has.",
        abs(1 - CHANNELS * CHANNEL / H100 - LESS_BANDWIDTH) < 0.02
        and 64 * CHANNEL > H100
        and utilisation(other[64]) < 0.5 * utilisation(flat[32]),
    )


def _collectives(found: Found) -> Iterator[Finding]:
    """Software, hardware, overlap."""
    whole = {name: [best(found, name, group=32, **case) for case in cases()] for name in FLATS}
    own = {name: [best(found, name, **case) for case in cases()] for name in FLATS}
    flash = [best(found, *FLASH, **case) for case in cases()]
    slower, faster = (
        [time(one) / time(other) for one, other in pairs]
        for pairs in (zip(whole[FLAT], flash, strict=True), zip(flash, own[FLAT], strict=True))
    )

    def gain(rows: Mapping[str, Found], slow: str, fast: str) -> list[float]:
        return [time(one) / time(other) for one, other in zip(rows[slow], rows[fast], strict=True)]

    yield Finding(
        f"**Hardware collectives** are {span(gain(whole, FLAT, FLAT_HARDWARE))} as fast as software ones in groups of 32 x 32, "
        f"but only {span(gain(own, FLAT, FLAT_HARDWARE))} if each has its best group: software ones are then in groups of 4 x 4 "
        "or 8 x 8, where a collective takes few steps.",
        min(gain(whole, FLAT, FLAT_HARDWARE)) > 3
        and max(gain(own, FLAT, FLAT_HARDWARE)) < 1.5
        and all(row["group"] in (4, 8) for row in own[FLAT]),
    )
    yield Finding(
        f"**Software collectives** in groups of 32 x 32 are slower than FlashAttention, by {span(slower)}; in their best group "
        f"they are {span(faster)} as fast as FlashAttention with the published blocks.",
        min(slower) > 1 and min(faster) > 1,
    )
    yield Finding(
        f"**Overlap** buys more than hardware: asynchronous FlatAttention is "
        f"{span(gain(own, FLAT_HARDWARE, FLAT_ASYNCHRONOUS))} as fast as one step after the other, each in its best group. Both "
        "have hardware collectives; an asynchronous dataflow with software ones was not tried.",
        all(
            overlapped > hardware
            for overlapped, hardware in zip(
                gain(own, FLAT_HARDWARE, FLAT_ASYNCHRONOUS), gain(own, FLAT, FLAT_HARDWARE), strict=True
            )
        ),
    )


def differing(known: Mapping[str, Any]) -> Iterator[Finding]:
    """What the rows say otherwise than the paper, or about the model."""
    found = known["rows"]
    yield _blocks(found)
    pairs = [(best(found, FLASH_2, **case), best(found, FLASH_3, **case)) for case in cases()]
    full = [(best(found, FLASH_2, full=True, **case), best(found, FLASH_3, full=True, **case)) for case in cases()]
    yield Finding(
        "**FlashAttention-3 gains little over FlashAttention-2** where HBM is the limit: "
        f"{span([time(one) / time(other) for one, other in pairs])} as fast with the published blocks and 32 channels, and "
        f"{span([time(one) / time(other) for one, other in full])} with full ones, as two heads at a time "
        "leave each half of the rows. In the paper it is slower in all six cases.",
        all(0.97 < time(one) / time(other) < 1.02 for one, other in pairs)
        and min(time(one) / time(other) for one, other in full) < 0.6
        and _published_flash_3_is_slower(),
    )
    long = {group: best(found, FLAT_ASYNCHRONOUS, sequence=LONG, head=HEAD, group=group) for group in GROUPS_OF_LONG}
    yield Finding(
        f"**Groups of 16 x 16 for {LONG:,} tokens**: {utilisation(long[16]):.0%} of the peak, {utilisation(long[32]):.0%} in "
        f"groups of 32 x 32; published {GROUPS_OF_LONG[16]:.1%} and {GROUPS_OF_LONG[32]:.1%}, so that there "
        "both are as good. In groups of 16 x 16 a head takes two blocks of keys, for which "
        "the mapping has two lanes of heads in place of rounds.",
        utilisation(long[16]) < 0.9 < utilisation(long[32]) < 1.05 * GROUPS_OF_LONG[32],
    )
    yield _models(found)
    yield _search(known)


def _published_flash_3_is_slower() -> bool:
    by = {(row.run.dataflow, row.run.sequence, row.run.head): row.time for row in figures() if row.run.dataflow in FLASH}
    return all(by[FLASH_3, *key] > each for (name, *key), each in by.items() if name == FLASH_2)


def _blocks(found: Found) -> Finding:
    """What FlatAttention gains over FlashAttention with full blocks."""
    gains = gains_over_flash(found)
    own, other = (" / ".join(f"{pair[at]:.1f}" for pair in gains.values()) for at in (0, 1))
    last, same = gains[LONG]
    return Finding(
        f"**Blocks of FlashAttention**: as published, a tile has the sequence over 32 rows and keys, 32 for 1,024 tokens, "
        f"though 128 fit. FlatAttention is {own} x faster than that for 512 / 1,024 / 2,048 / 4,096 tokens (head dim {HEAD}, the "
        f"better of FlashAttention-2 and -3), but {other} x faster than FlashAttention with the largest blocks that leave all "
        f"tiles work. Only for {LONG:,} tokens are both the same.",
        all(before > 1.8 * after > 4 for key, (before, after) in gains.items() if key < LONG) and abs(last / same - 1) < 1e-9,
    )


def gains_over_flash(found: Found) -> dict[int, tuple[float, float]]:
    """FlatAttention in its best group over FlashAttention, by sequence: with its published blocks, and with full ones."""
    gains = {}
    for sequence in SEQUENCES:
        case = {"sequence": sequence, "head": HEAD}
        flat = time(best(found, FLAT_ASYNCHRONOUS, **case))
        one, other = (time(best(found, *FLASH, full=full, **case)) / flat for full in (False, True))
        gains[sequence] = one, other
    return gains


def errors(rows: Found) -> list[float]:
    """Formulas over simulation."""
    return [row["formulas"] / row["simulation"] - 1 for row in rows if row["simulation"]]


def _models(every: Found) -> Finding:
    found = [row for row in every if row["tiles"] == TILES]
    steps = errors([row for row in found if row["dataflow"] != FLAT_ASYNCHRONOUS and row["channels"] <= CHANNELS])
    rounds = errors([row for row in found if row["dataflow"] == FLAT_ASYNCHRONOUS])
    wide = errors([row for row in found if row["dataflow"] == FLASH_3 and row["channels"] > CHANNELS])
    return Finding(
        f"**Formulas and simulation**, 32 x 32 tiles, differ by at most {max(map(abs, steps)):.2%} in {len(steps)} runs of "
        "FlashAttention with up to 32 channels and of FlatAttention one step after the other. For asynchronous FlatAttention the "
        "formulas are "
        f"{-min(rounds):.0%} too short to {max(rounds):.0%} too long, for FlashAttention-3 with more channels "
        f"{-min(wide):.0%} too short to {max(wide):.0%} too long; the page gives simulated times for both.",
        max(map(abs, steps)) < 0.03
        and -0.25 < min(rounds) < 0
        and 0.2 < max(rounds) < 0.5
        and -0.15 < min(wide) < 0 < max(wide) < 0.15
        and all(row["simulation"] for row in found if row["dataflow"] == FLAT_ASYNCHRONOUS)
        and all(row["simulation"] for row in found if row["dataflow"] == FLASH_3 and row["channels"] > CHANNELS),
    )


def _search(known: Mapping[str, Any]) -> Finding:
    flat = [best(known["rows"], FLAT_ASYNCHRONOUS, sequence=row["sequence"], head=HEAD) for row in known["searches"]]
    pairs = list(zip(known["searches"], flat, strict=True))
    longest = max(row["seconds"] for row in known["searches"])
    times = [
        f"{row['sequence']:,} tokens: {format_time(row['formulas'])} (FlatAttention {format_time(own['formulas'])}), simulated "
        f"{format_time(row['simulation'])} ({format_time(own['simulation'])})"
        for row, own in pairs
    ]
    return Finding(
        f"**Halley's search** proves its own mapping best by the formulas, in at most {longest:.0f} s of CPU time. "
        f"{'; '.join(times)}. It too finds groups of 4 x 4 for 512 tokens and of 8 x 8 for 1,024. By the formulas it is "
        "faster than FlatAttention; simulated, both take about as long. A likely cause is that it fills two buffers with tiles "
        "that it broadcasts, which the formulas take to be cheaper ([more](../validation.md#attention-on-a-mesh-of-tiles)).",
        all(
            row["bound"] == row["formulas"] < own["formulas"]
            and abs(row["simulation"] / own["simulation"] - 1) < 0.05
            and f"tile.x/{own['group']}" in row["plan"]
            for row, own in pairs
        ),
    )


def published() -> dict[int, float]:
    """Published times of asynchronous FlatAttention by group: 1,024 tokens, head dim 128, 128 heads."""
    return {
        each.run.group: each.time
        for each in figures()
        if (each.run.dataflow, each.run.batch, each.run.sequence) == (FLAT_ASYNCHRONOUS, study.BATCH, 1024)
    }


def groups_table(found: Found) -> list[str]:
    """Times by group, and the published ones where there are any."""
    rows = []
    for case in cases():
        for name in FLATS:
            cells = []
            for group in GROUPS:
                row = best(found, name, group=group, **case)
                text = told(row)
                cells.append(f"**{text}**" if row is best(found, name, **case) else text)
            rows.append((*_sizes(case, name == FLAT), WORDS[name].removeprefix("FlatAttention, "), *cells))
    head = ("head dim", "tokens", "FlatAttention, collectives", *(f"{group} x {group}" for group in GROUPS))
    return table(head, rows, 3)


def told(row: Mapping[str, Any]) -> str:
    """A time, with the mark of formulas."""
    return format_time(time(row)) + ("" if row["simulation"] else " (f)")


def flash_table(found: Found) -> list[str]:
    """Times of FlashAttention with both kinds of blocks."""
    rows = [
        (
            str(case["head"]),
            f"{case['sequence']:,}",
            *(told(best(found, name, full=full, **case)) for full in (False, True) for name in FLASH),
        )
        for case in cases()
    ]
    return table(("head dim", "tokens", *FLASH, *(f"{name}, full" for name in FLASH)), rows, 0)


def _sizes(case: Mapping[str, int], first: bool) -> tuple[str, str]:
    return (str(case["head"]), f"{case['sequence']:,}") if first else ("", "")


def channels_table(found: Found) -> list[str]:
    """Utilisation by channels."""
    rows = []
    for sequence in study.OTHER_RUNS:
        for count in sorted((CHANNELS, *study.FEW, *study.MANY)):
            case = {"sequence": sequence, "head": HEAD, "channels": count}
            flat = chosen(found, FLAT_ASYNCHRONOUS, **case)
            own = min(flat, key=time) if flat else None
            flash = [
                best(found, name, full=full, **case) for full in (False, True) for name in FLASH if full_known(sequence, full)
            ]
            shares = [f"{utilisation(row):.1%}" for row in flash]
            shown = (f"{utilisation(own):.1%}", f"{own['group']} x {own['group']}") if own else ("", "")
            rows.append(
                (f"{sequence:,}", str(count), f"{count * CHANNEL / 1e12:.2f}", *shown, *shares, *shares[: 4 - len(shares)])
            )
    head = (
        "tokens",
        "channels",
        "TB/s",
        "FlatAttention",
        "group",
        *(f"{name}{blocks}" for blocks in ("", ", full") for name in FLASH),
    )
    return table(head, rows, 0)


def fabrics_table(found: Found) -> list[str]:
    """Utilisation by fabric, sequence and channels."""
    rows = []
    for (sequence, channels), each in on_fabrics(found).items():
        shares = []
        for flat, flash in each.values():
            shares += [f"{utilisation(flat):.1%} ({flat['group']} x {flat['group']})", f"{utilisation(flash):.1%}"]
        rows.append((f"{sequence:,}" if channels == FABRIC_CHANNELS[0] else "", str(channels), *shares))
    names = (f"{tiles} x {tiles}: {word}" for tiles in FABRICS for word in ("FlatAttention (group)", "FlashAttention"))
    return table(("tokens", "channels", *names), rows, 1)


def full_known(sequence: int, full: bool) -> bool:
    """Whether the study has the blocks: for the longest sequence the full ones are the published ones."""
    return not full or sequence < LONG


def page(known: Mapping[str, Any]) -> str:
    """The whole page."""
    found = known["rows"]
    against = [
        (f"{group} x {group}", format_time(each), format_time(time(row)), f"{time(row) / each - 1:+.1%}")
        for group, each in published().items()
        for row in [best(found, FLAT_ASYNCHRONOUS, sequence=1024, head=HEAD, group=group)]
    ]
    parts = {
        "headline": headline(known),
        "groups": "\n".join(groups_table(found)),
        "flash": "\n".join(flash_table(found)),
        "channels": "\n".join(channels_table(found)),
        "fabrics": "\n".join(fabrics_table(found)),
        "published": "\n".join(table(("group", "published", "simulated", "error"), against)),
        "agrees": "\n".join(bullet(item.text) for item in agreeing(known)),
        "differs": "\n".join(bullet(item.text) for item in differing(known)),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_name("flatattention.md"), parts)


def dot(row: Mapping[str, Any], at: int) -> Dot:
    where = f"{row['dataflow']}, {row['sequence']:,} tokens, {row['channels']} channels, {row['tiles']} x {row['tiles']} tiles"
    return Dot(at, utilisation(row), f"{where}, group {row['group']}: {utilisation(row):.1%}, {format_time(time(row))}")


def groups_figure(found: Found) -> Element:
    """Utilisation by group, a panel for each sequence."""
    panels = []
    for sequence in SEQUENCES:
        case = {"sequence": sequence, "head": HEAD}
        lines = {WORDS[name]: [dot(row, row["group"]) for row in chosen(found, name, **case)] for name in FLATS}
        levels = {
            PUBLISHED_BLOCKS: utilisation(best(found, FLASH_3, **case)),
            FULL_BLOCKS: utilisation(best(found, *FLASH, full=True, **case)),
        }
        panels.append(Panel(f"{sequence:,} tokens", GROUPS[0], GROUPS[-1], lines, levels, {}))
    along = f"tiles of a side of a group, head dim {HEAD}, {CHANNELS} channels of HBM"
    return curves("Share of the peak by group and sequence", along, panels, FILLS)


def fabrics_figure(found: Found) -> Element:
    """Utilisation by channels of HBM on fabrics of one peak."""
    every = on_fabrics(found)
    panels = []
    for sequence in SEQUENCES:
        lines: dict[str, list[Dot]] = {name: [] for name in FABRIC_FILLS}
        for channels in FABRIC_CHANNELS:
            for tiles, pair in every[sequence, channels].items():
                for word, row in zip(DATAFLOW_WORDS, pair, strict=True):
                    lines[f"{word}, {tiles} x {tiles} tiles"].append(dot(row, channels))
        panels.append(Panel(f"{sequence:,} tokens", FABRIC_CHANNELS[0], FABRIC_CHANNELS[-1], lines, {}, {"H100": H100 / CHANNEL}))
    along = f"channels of HBM of 64 GB/s, head dim {HEAD}"
    return curves("Share of the peak by fabric, channels of HBM and sequence", along, panels, FABRIC_FILLS)


def channels_figure(found: Found) -> Element:
    """Utilisation by channels of HBM."""
    marks = {"chip": float(CHANNELS), "H100": H100 / CHANNEL}
    panels = []
    for sequence in study.OTHER_RUNS:
        every: dict[str, list[Dot]] = {WORDS[FLAT_ASYNCHRONOUS]: [], PUBLISHED_BLOCKS: [], FULL_BLOCKS: []}
        for count in sorted((CHANNELS, *study.FEW, *study.MANY)):
            case = {"sequence": sequence, "head": HEAD, "channels": count}
            if chosen(found, FLAT_ASYNCHRONOUS, **case):
                every[WORDS[FLAT_ASYNCHRONOUS]].append(dot(best(found, FLAT_ASYNCHRONOUS, **case), count))
            every[PUBLISHED_BLOCKS].append(dot(best(found, FLASH_3, **case), count))
            every[FULL_BLOCKS].append(dot(best(found, *FLASH, full=full_known(sequence, full=True), **case), count))
        panels.append(Panel(f"{sequence:,} tokens", study.FEW[0], study.MANY[-1], every, {}, marks))
    fills = {name: FILLS[name] for name in (WORDS[FLAT_ASYNCHRONOUS], PUBLISHED_BLOCKS, FULL_BLOCKS)}
    return curves("Share of the peak by channels of HBM", f"channels of HBM of 64 GB/s, head dim {HEAD}", panels, fills)


def _files(known: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{NAME}-groups.svg": svg_file(groups_figure(known["rows"])),
        f"{NAME}-channels.svg": svg_file(channels_figure(known["rows"])),
        f"{NAME}-fabrics.svg": svg_file(fabrics_figure(known["rows"])),
        f"{NAME}.md": page(known),
    }


STUDY = KeptStudy(NAME, study.__file__, study.cases, _files, study.OTHERS)

__all__ = [
    "NAME",
    "STUDY",
    "TITLE",
    "agreeing",
    "channels_figure",
    "differing",
    "fabrics_figure",
    "groups_figure",
    "headline",
    "page",
]
