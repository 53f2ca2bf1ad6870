"""Claims of neighbouring systems: ClusterFusion, Streaming DiLoCo and NoLoCo, Fire-Flyer, partitions on Frontier, NanoFlow. The
page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, PALETTE, WIDTH, BarPart, ChartBar, box, canvas, line, shortened, stacked, words
from halley.report.markup import svg_file
from halley.serving.step import KERNELS_PER_LAYER
from halley.units import format_time
from studies import neighbours_decode as decode
from studies import neighbours_partitions as partitions
from studies import neighbours_training as training
from studies.kept import KeptStudy, StudyCase
from studies.store import filled
from studies.study import Finding, bullet
from studies.tables import table

NAME, TITLE = "neighbours", "Claims of neighbouring systems: fused decoding, training over slow links, cheaper nodes, overlap"
OTHERS = tuple(Path(module.__file__) for module in (decode, training, partitions))
FUSED, ORDERS, NANO, OPTIMUM = 1.61, (30.0, 300.0), 1.91, (0.59, 0.72)
"""Published: ClusterFusion's mean speed-up; what is taken for two orders of magnitude; NanoFlow's throughput over that of other
systems, and its share of the optimum."""
PUBLISHED = 1.405 * 1.707
"""Three levels of partitions over ZeRO 3 on Frontier: ZeRO++ gains 40.5 % over ZeRO 3, three levels 70.7 % over ZeRO++."""
FRAMEWORK = "vllm"
"""Its gaps are those of the figure."""
SEPARATE, CLUSTERS, ALONE = "three kernels", "one kernel, clusters", "one kernel, SMs alone"
READ, CHIP, GAPS = "memory at its peak", "rest on the chip", "gaps"
FILLS = {READ: PALETTE[0], CHIP: PALETTE[1], GAPS: PALETTE[3]}
COMPUTE, MEMORY = ("matrices", "head"), ("attention", "elementwise")

Known: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]


# --- decoding ------------------------------------------------------------------------------------------------------------


def operation(known: Known, keys: int) -> dict[str, tuple[float, float, int]]:
    """By mapping: time on the chip [s], bytes of the outer memory, kernels."""
    alone = {(row["kernel"], row["keys"], row["links"]): row for row in known["kernels"]}
    parts = [alone["projections", None, True], alone["attention", keys, True], alone["output", None, True]]
    written = {row["mapping"]: row for row in known["fused"] if row["keys"] == keys}
    return {
        SEPARATE: (sum(row["time"] for row in parts), sum(row["traffic"] for row in parts), decode.SEPARATE),
        CLUSTERS: (written["clusters"]["time"], written["clusters"]["traffic"], decode.ONE),
        ALONE: (written["alone"]["time"], written["alone"]["traffic"], decode.ONE),
    }


def gap(known: Known, software: str = FRAMEWORK) -> float:
    """Between two kernels of a framework [s]."""
    return float(next(row["gap"] for row in known["tokens"] if row["software"] == software))


def with_gaps(item: tuple[float, float, int], each: float) -> float:
    """Time of an operation with a gap of this length for each of its kernels [s]."""
    return item[0] + item[2] * each


def token(row: Row) -> dict[str, float]:
    """The time of a token: as served, fused, without gaps and host, and of its bytes at the peak [s]."""
    served = sum(row["parts"].values())
    return {
        "served": served,
        "fused": served - decode.SAVED * decode.LAYERS * row["gap"],
        "no gaps": served - row["parts"]["host"],
        "peak": row["bytes"] / row["peak"],
    }


def gains(known: Known, kind: str) -> list[float]:
    """Times of tokens as served over those of another kind."""
    return [times["served"] / times[kind] for times in map(token, known["tokens"])]


def decode_findings(known: Known) -> Iterator[Finding]:
    """ClusterFusion."""
    few, many = decode.KEYS[0], decode.KEYS[-1]
    every = {keys: operation(known, keys) for keys in decode.KEYS}
    three, one, _ = every[few].values()
    handed = 4 * decode.HEADS * decode.HEAD * 2
    yield Finding(
        f"**Traffic is no part of the gain**: with {few:,} keys three kernels move {three[1] / 1e6:.1f} MB, one kernel "
        f"{one[1] / 1e6:.1f} MB. What kernels hand to each other is written and read in {handed / 1e3:.0f} kB, "
        f"{handed / three[1]:.2%} of it.",
        all(abs(each[CLUSTERS][1] / each[SEPARATE][1] - 1) < 0.005 for each in every.values()) and handed < 0.001 * three[1],
    )
    bare = [each[SEPARATE][0] / each[CLUSTERS][0] for each in every.values()]
    yield Finding(
        f"**Without gaps one kernel gains nothing**: it is {min(bare):.2f} to {max(bare):.2f} x as fast as three, which read "
        "memory at nearly its peak.",
        0.96 < min(bare) <= max(bare) < 1.01,
    )
    each = gap(known)
    short, long = ((with_gaps(every[keys][SEPARATE], each), with_gaps(every[keys][CLUSTERS], each)) for keys in (few, many))
    saved = (decode.SEPARATE - decode.ONE) * each
    yield Finding(
        f"**The gaps are the gain**: with vLLM's {each * 1e6:.1f} us before each kernel, one kernel is "
        f"{short[0] / short[1]:.2f} x as fast as three with {few:,} keys, {long[0] / long[1]:.2f} x with {many:,}. Two gaps less "
        f"are {format_time(saved)}; it saves {format_time(short[0] - short[1])} with {few:,} keys.",
        saved >= 0.95 * (short[0] - short[1]) > 0 and short[0] / short[1] > long[0] / long[1] > 1,
    )
    slow = [each[ALONE][0] / each[CLUSTERS][0] for each in every.values()]
    links = {(row["keys"], row["links"]): row["time"] for row in known["kernels"] if row["kernel"] == "attention"}
    core = [links[keys, False] / links[keys, True] for keys in decode.KEYS]
    yield Finding(
        "**Collectives between SMs hardly matter**: without them 32 heads occupy 32 of 132 SMs until the output projection, but "
        f"these read as fast as the memory allows. One kernel takes {min(slow):.3f} to {max(slow):.3f} x as long, the best "
        f"attention alone {min(core):.3f} to {max(core):.3f} x.",
        max(slow) < 1.05 and max(core) < 1.05,
    )
    partial = 2 * 4 * decode.HEADS * decode.CLUSTER * (decode.HEAD + 2)
    cache = next(row["traffic"] for row in known["kernels"] if row["keys"] == few and row["links"])
    yield Finding(
        "**Partial results of attention are small**: were they combined through memory, as a kernel that splits the keys "
        f"does, {partial / 1e3:.0f} kB would be written and read, {partial / cache:.1%} of the bytes of attention over {few:,} "
        "keys, and less over more. The gain of distributed shared memory is a kernel less, not bytes.",
        partial < 0.01 * cache,
    )
    fused, none, peak = (gains(known, kind) for kind in ("fused", "no gaps", "peak"))
    yield Finding(
        f"**A token gains {min(fused):.2f} to {max(fused):.2f} x from {decode.SAVED} gaps less** of {KERNELS_PER_LAYER} in a "
        f"layer; ClusterFusion's mean is {FUSED} x. Without any gap and any time of the host it would be {min(none):.2f} to "
        f"{max(none):.2f} x.",
        min(fused) > 1 and max(fused) < 1.15 and max(none) < FUSED,
    )
    yield Finding(
        f"**So gaps alone do not explain {FUSED} x**: kernels must also come nearer to the peak bandwidth than those of the "
        f"fits. At the peak, with no time of the host, it would be {min(peak):.2f} to {max(peak):.2f} x.",
        max(none) < FUSED < max(peak),
    )


def decode_tables(known: Known) -> tuple[list[str], list[str]]:
    """The operation by keys and mapping; tokens by framework and keys."""
    each, lines, tokens = gap(known), [], []
    for keys in decode.KEYS:
        found = operation(known, keys)
        whole = with_gaps(found[SEPARATE], each)
        for name, item in found.items():
            ratios = (f"{found[SEPARATE][0] / item[0]:.2f} x", f"{whole / with_gaps(item, each):.2f} x")
            moved = f"{item[1] / 1e6:.1f} MB"
            lines.append((f"{keys:,}", name, format_time(item[0]), moved, format_time(with_gaps(item, each)), *ratios))
    for row in known["tokens"]:
        times = token(row)
        shown = (format_time(times["served"]), f"{row['parts']['host'] / times['served']:.0%}", f"{row['gap'] * 1e6:.1f} us")
        ratios = tuple(f"{times['served'] / times[kind]:.2f} x" for kind in ("fused", "no gaps", "peak"))
        tokens.append((row["software"], f"{row['keys']:,}", *shown, *ratios))
    head = ("keys", "mapping", "time on the chip", "outer traffic", "with gaps", "faster than three", "with gaps")
    other = ("framework", "keys", "token", "host and gaps", "gap", "fused", "no gaps", "peak")
    return table(head, lines, 2), table(other, tokens)


def decode_figure(known: Known) -> Element:
    """The operation by mapping and keys, with the gaps of a framework."""
    bars, each = [], gap(known)
    peak = known["tokens"][0]["peak"]
    for keys in decode.KEYS[::2]:
        for name, item in operation(known, keys).items():
            least = item[1] / peak
            values = {READ: least, CHIP: item[0] - least, GAPS: item[2] * each}
            parts = tuple(
                BarPart(key, value, f"{keys:,} keys, {name}: {key} {format_time(value)}") for key, value in values.items()
            )
            bars.append(ChartBar(f"{keys:,} keys, {name}", parts, format_time(sum(values.values())), name == CLUSTERS))
    return stacked("Projections and attention of a token in a layer: time by mapping", bars, FILLS, format_time, 1e-6)


# --- training ------------------------------------------------------------------------------------------------------------


def bandwidth_findings(known: Known) -> Iterator[Finding]:
    """Streaming DiLoCo."""
    by = {row["method"]: row["bandwidth"] for row in known["bandwidths"]}
    data, plain, bits, parts, both = (by[name] for name in (training.DATA, *(each.name for each in training.EXCHANGES)))
    yield Finding(
        f"**Two orders of magnitude**: {_bits(both)} a worker instead of DiLoCo's {_bits(plain)}, {plain / both:.0f} x less, "
        f"and of {_bits(data)} for data parallelism, {data / both:,.0f} x less.",
        ORDERS[0] < plain / both < ORDERS[1] and data / both > 100,
    )
    yield Finding(
        f"**Both means count alike**: 4 bits instead of 32 need {plain / bits:.1f} x less, fragments beside the computation "
        f"{plain / parts:.1f} x less.",
        7.5 < plain / bits < 8.5 and 7.5 < plain / parts < 10,
    )
    yield Finding(
        f"**A period of {training.PERIOD} steps needs {data / plain:.0f} x less, not {training.PERIOD} x**: the plan of data "
        "parallelism hides most of its exchanges behind the backward pass, while DiLoCo waits for its own.",
        5 < data / plain < 0.3 * training.PERIOD,
    )


def pair_findings(known: Known) -> Iterator[Finding]:
    """NoLoCo."""
    rows = known["pairs"]
    best = [row["fastest"] / row["pair"] for row in rows]
    hundreds = [row for row in rows if row["ranks"] >= 100]
    low, high = ([row[name] / row["pair"] for row in hundreds] for name in ("doubling", "binomial"))
    yield Finding(
        f"**It depends on the all-reduce**: for 128 and 512 accelerators a pair is {min(low):.1f} to {max(high):.1f} x as "
        f"fast as an all-reduce that sends whole vectors, but at most {max(best):.1f} x as fast as the fastest one, which sends "
        "each byte about twice at any number of them.",
        min(low) > 5 and max(high) > 10 and max(best) < 2.05,
    )


def node_findings(known: Known) -> Iterator[Finding]:
    """Fire-Flyer."""
    by = {(row["model"], row["node"]): row for row in known["nodes"]}
    dgx, own, one = training.NODES
    ports, shared = ([by[model, name]["time"] / by[model, dgx]["time"] for model in training.TRAINED] for name in (own, one))
    yield Finding(
        f"**Nearly the performance of DGX**: with PCIe an iteration takes {min(ports) - 1:.0%} to {max(ports) - 1:.0%} longer, "
        f"with one port of InfiniBand for a node {min(shared) - 1:.0%} to {max(shared) - 1:.0%}, for equal GPUs.",
        1 < min(ports) <= max(ports) < 1.05 and max(shared) < 1.15,
    )
    first, last = (by[next(iter(training.TRAINED)), name] for name in (dgx, one))
    yield Finding(
        f"**The network is a part of the saving**: links of {last['links'] / 1e3:.0f} instead of {first['links'] / 1e3:.0f} "
        f"thousand USD, which is {1 - last['stated'] / first['stated']:.0%} of the stated price of chips and links. Stated power "
        f"falls by {1 - last['power'] / first['power']:.0%} only: 40 % less energy must come from cards and nodes.",
        0.2 < 1 - last["stated"] / first["stated"] < 0.5 and 1 - last["power"] / first["power"] < 0.1,
    )


def bandwidth_table(known: Known) -> list[str]:
    """The bandwidth that each method needs."""
    rows = known["bandwidths"]
    first = rows[0]["bandwidth"]
    ratios = [f"{first / row['bandwidth']:,.0f} x" for row in rows]
    lines = [
        (row["method"], _bits(row["bandwidth"]), ratio, f"{row['speed']:.1%}") for row, ratio in zip(rows, ratios, strict=True)
    ]
    return table(("method", "bandwidth of a worker", "less than data parallelism", "speed"), lines)


def pair_table(known: Known) -> list[str]:
    """Pairs and all-reduces by size of model and network."""
    names = ("fastest", "doubling", "binomial")
    lines = [
        (
            row["model"],
            f"{row['ranks']}",
            format_time(row["pair"]),
            *(f"{format_time(row[name])} ({row[name] / row['pair']:.1f} x)" for name in names),
        )
        for row in known["pairs"]
    ]
    return table(("parameters", "accelerators", "pair", *(f"all-reduce, {name}" for name in names)), lines, 2)


def node_table(known: Known) -> list[str]:
    """Plans by model and kind of node."""
    dgx = {row["model"]: row["time"] for row in known["nodes"] if row["node"] == next(iter(training.NODES))}
    lines = [
        (
            row["model"],
            row["node"],
            row["plan"],
            str(row["zero"]),
            format_time(row["time"]),
            f"{row['time'] / row['bound'] - 1:.2%}",
            f"{row['time'] / dgx[row['model']]:.2f} x",
            f"{row['links'] / 1e3:,.0f}",
            f"{row['power'] / 1e3:.1f} kW",
        )
        for row in known["nodes"]
    ]
    head = ("model", "nodes", "axes", "ZeRO", "time", "gap", "over DGX", "links, thousand USD", "stated power")
    return table(head, lines, 3)


def partition_gains(known: Known, kind: str) -> dict[float, float]:
    """By share of the line rate, the time of ZeRO 3 over all dies over that of the best plan of a kind."""
    times = {(row["share"], row["kind"]): row["time"] for row in known["partitions"]}
    return {share: times[share, partitions.FLAT] / times[share, kind] for share in partitions.SHARES}


def partition_findings(known: Known) -> Iterator[Finding]:
    """Hierarchical ZeRO++."""
    levels, whole = (partition_gains(known, kind) for kind in (partitions.LEVELS, partitions.ANY))
    flat = {row["share"]: row for row in known["partitions"] if row["kind"] == partitions.FLAT}
    full = partitions.SHARES[0]
    yield Finding(
        "**At the line rate there is nothing to gain**: an all-gather over all levels takes each byte into a node once, over all "
        "four adapters, and hides behind the computation. ZeRO 3 over all dies is the best plan, at "
        f"{flat[full]['utilisation']:.0%} of the peak.",
        levels[full] < 1.01 and whole[full] < 1.01,
    )
    slower = [share for share in partitions.SHARES if share < full]
    yield Finding(
        "**It depends on what collectives between nodes achieve**: without pipelines the best plan is "
        + " and ".join(f"{levels[share]:.2f}" for share in slower)
        + " x as fast as ZeRO 3 over all dies at "
        + " and ".join(f"1/{1 / share:.0f}" for share in slower)
        + f" of the line rate. The published gain over ZeRO 3, {PUBLISHED:.1f} x, needs an even smaller share.",
        1.05 < levels[slower[0]] < levels[slower[-1]] < PUBLISHED,
    )
    yield Finding(
        "**A short pipeline gains more**: with any plan it is "
        + " and ".join(f"{whole[share]:.2f}" for share in slower)
        + " x. Stages exchange activations alone, and no stage gathers all parameters.",
        all(whole[share] > levels[share] for share in slower),
    )


def partition_table(known: Known) -> list[str]:
    """Plans by share of the line rate."""
    first = {row["share"]: row["time"] for row in known["partitions"] if row["kind"] == partitions.FLAT}
    lines = [
        (
            f"1/{1 / row['share']:.0f}" if row["share"] < 1 else "1",
            row["kind"],
            row["plan"],
            str(row["zero"]),
            format_time(row["time"]),
            f"{row['time'] / row['bound'] - 1:.1%}",
            f"{row['utilisation']:.0%}",
            f"{first[row['share']] / row['time']:.2f} x",
        )
        for row in known["partitions"]
    ]
    head = ("share of the line rate", "plans", "axes", "ZeRO", "time", "gap", "of the peak", "faster than ZeRO 3 over all")
    return table(head, lines, 3)


def _bits(bandwidth: float) -> str:
    """A bandwidth [B/s] in bits.

    >>> _bits(57e6), _bits(62.5e9)
    ('0.46 Gbit/s', '500 Gbit/s')
    """
    value = bandwidth * 8 / 1e9
    return f"{value:.2f} Gbit/s" if value < 1 else f"{value:.1f} Gbit/s" if value < 100 else f"{value:.0f} Gbit/s"


def bandwidth_figure(known: Known) -> Element:
    """The bandwidth that each method needs, on a logarithmic axis."""
    rows, left, top, pitch, first = known["bandwidths"], 190.0, 12.0, 30.0, 1e-1
    room = WIDTH - left - 100.0
    bottom, decades = top + pitch * len(rows), 4
    content = []
    for power in range(decades + 1):
        x = left + room * power / decades
        content += [line(x, top, x, bottom + 4, GRID)]
        content += [words(x, bottom + 18, f"{first * 10**power:g} Gbit/s", "middle", FAINT, 12)]
    for index, row in enumerate(rows):
        value = row["bandwidth"] * 8 / 1e9
        width, y = room * math.log10(value / first) / decades, top + pitch * index
        content += [words(left - 8, y + 19, shortened(row["method"], left - 12), "end")]
        content += [box(left, y + 4, width, pitch - 8, PALETTE[0], f"{row['method']}: {_bits(row['bandwidth'])}")]
        content += [words(left + width + 6, y + 19, _bits(row["bandwidth"]))]
    return canvas(bottom + 26, "Bandwidth of a worker for 95 % of the speed without exchanges", content)


# --- overlap inside a device ---------------------------------------------------------------------------------------------


def resources(row: Row) -> dict[str, float]:
    """The time of a step by what it is limited by [s]."""
    parts = row["parts"]
    return {
        "matrices": sum(parts.get(name, 0.0) for name in COMPUTE),
        "memory": sum(parts.get(name, 0.0) for name in MEMORY),
        "network": parts.get("collectives", 0.0),
        "host": parts.get("host", 0.0),
    }


def overlap_bounds(known: Known, row: Row) -> tuple[float, float]:
    """Largest gain in throughput from overlap: with the framework's kernels, with those of no framework."""
    ideal = next(each for each in known["overlap"] if (each["software"], each["users"]) == (decode.IDEAL, row["users"]))
    now = row["decoding"] / sum(resources(row).values())
    most = [each["decoding"] / max(value for name, value in resources(each).items() if name != "host") for each in (row, ideal)]
    return most[0] / now, most[1] / now


def overlap_findings(known: Known) -> Iterator[Finding]:
    """NanoFlow."""
    bounds = {(row["software"], row["users"]): overlap_bounds(known, row) for row in known["overlap"]}
    chip = [bound for (software, _), (bound, _) in bounds.items() if software == decode.IDEAL]
    many = {key: bound for key, bound in bounds.items() if key[1] > decode.USERS[0] and key[0] != decode.IDEAL}
    own = [bound for bound, _ in many.values()]
    whole = [bound for (software, _), (_, bound) in many.items() if software == "vllm-2024"]
    yield Finding(
        f"**Overlap inside the chip alone gains at most {max(chip):.2f} x**, as matrices take most of each step. With the host "
        f"beside it, it is {min(own):.2f} to {max(own):.2f} x with {decode.USERS[1]} users or more, "
        f"about what NanoFlow gained ({NANO} x).",
        max(chip) < min(own) and abs(max(own) / NANO - 1) < 0.05,
    )
    older = [bound for (software, _), (bound, _) in many.items() if software == "vllm-2024"]
    shares = NANO / max(whole), NANO / min(whole)
    yield Finding(
        f"**Over vLLM of 2024, {NANO} x takes faster kernels, too**: with kernels that lose nothing to a framework the bound is "
        f"{min(whole):.2f} to {max(whole):.2f} x with as many users. {NANO} x is {shares[0]:.0%} to {shares[1]:.0%} of it; "
        f"NanoFlow states {OPTIMUM[0]:.0%} to {OPTIMUM[1]:.0%} of the optimum over its models.",
        OPTIMUM[0] < shares[0] <= shares[1] < OPTIMUM[1] and max(older) < NANO < min(whole),
    )


def overlap_table(known: Known) -> list[str]:
    """Parts of the mean step, and bounds."""
    lines = []
    for row in known["overlap"]:
        own, whole = overlap_bounds(known, row)
        times = tuple(format_time(value) for value in resources(row).values())
        lines.append((row["software"], f"{row['users']:,}", *times, f"{own:.2f} x", f"{whole:.2f} x"))
    head = ("framework", "users", "matrices", "attention, elementwise", "collectives", "host", "bound", "bound, ideal kernels")
    return table(head, lines)


# --- the page ------------------------------------------------------------------------------------------------------------

SECTIONS = {
    "decode-says": decode_findings,
    "bandwidths-say": bandwidth_findings,
    "pairs-say": pair_findings,
    "nodes-say": node_findings,
    "partitions-say": partition_findings,
    "overlap-says": overlap_findings,
}


def findings(known: Known) -> Iterator[Finding]:
    """All sentences."""
    for section in SECTIONS.values():
        yield from section(known)


def headline(known: Known) -> str:
    """The result in a line."""
    by = {row["method"]: row["bandwidth"] for row in known["bandwidths"]}
    few = operation(known, decode.KEYS[0])
    ratio = with_gaps(few[SEPARATE], gap(known)) / with_gaps(few[CLUSTERS], gap(known))
    fused, diloco, both = gains(known, "fused"), training.EXCHANGES[0].name, training.EXCHANGES[-1].name
    return (
        f"one kernel for attention and its projections in decoding is up to {ratio:.2f} x faster, by gaps between kernels and "
        f"not by traffic, and a token {min(fused):.2f} to {max(fused):.2f} x (ClusterFusion {FUSED} x); Streaming DiLoCo needs "
        f"{by[diloco] / by[both]:.0f} x less bandwidth than DiLoCo, {by[training.DATA] / by[both]:,.0f} x less than data "
        "parallelism"
    )


def page(known: Known) -> str:
    """The whole page."""
    operations, tokens = decode_tables(known)
    parts = {
        "headline": headline(known),
        "tiles": str(len(decode.TILES) ** 2),
        "decode": "\n".join(operations),
        "tokens": "\n".join(tokens),
        "bandwidths": "\n".join(bandwidth_table(known)),
        "pairs": "\n".join(pair_table(known)),
        "nodes": "\n".join(node_table(known)),
        "partitions": "\n".join(partition_table(known)),
        "overlap": "\n".join(overlap_table(known)),
        **{name: "\n".join(bullet(item.text) for item in section(known)) for name, section in SECTIONS.items()},
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_suffix(".md"), parts)


def cases() -> Iterator[StudyCase]:
    """Tables that take seconds as a whole, the others row by row."""
    for key, kernel in decode.kernels():
        yield StudyCase("kernels", key, kernel)
    for keys in decode.KEYS:
        for name in decode.WRITTEN:
            yield StudyCase("fused", f"{name}, {keys} keys", partial(decode.fused, keys, name))
    yield StudyCase("tokens", "all", decode.tokens)
    yield StudyCase("overlap", "all", decode.overlapped)
    yield StudyCase("bandwidths", "all", training.bandwidths)
    yield StudyCase("pairs", "all", lambda: list(training.pairs()))
    for model in training.TRAINED:
        for name in training.NODES:
            yield StudyCase("nodes", f"{model}, {name}", partial(training.node, model, name))
    for share in partitions.SHARES:
        for kind in partitions.KINDS:
            yield StudyCase("partitions", f"{share:g}, {kind}", partial(partitions.partition, share, kind))


def _files(known: Known) -> dict[str, str]:
    return {
        f"{NAME}-decode.svg": svg_file(decode_figure(known)),
        f"{NAME}-bandwidth.svg": svg_file(bandwidth_figure(known)),
        f"{NAME}.md": page(known),
    }


STUDY = KeptStudy(NAME, __file__, cases, _files, OTHERS)
