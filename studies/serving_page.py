"""The page of the study of serving: figures, tables, and the sentences with what has to hold for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, INK, WIDTH, BarPart, ChartBar, box, canvas, colours, ink_on, line, stacked, words
from halley.report.mapping.plots import Plane
from halley.report.markup import el
from halley.report.networks.sweep import LINES
from halley.serving.step import PARTS
from halley.units import format_bytes, format_time
from studies.serving import (
    ACCEPTANCES,
    BATCHES,
    COMPARED,
    DRAFTS,
    FIXED,
    LIMIT,
    PUBLISHED,
    SCHEMES,
    SERVED,
    USERS,
    WINDOWS,
)
from studies.store import filled
from studies.study import Finding, bullet
from studies.systems80_figure import shade
from studies.tables import table

Known: TypeAlias = Mapping[str, Any]
SHOWN_CONTEXTS = (1024, 16384, 131072)
"""Contexts of the figure and the table of latents and experts."""


def page(known: Known) -> str:
    """The whole page."""
    said = findings(known)
    parts = {
        "headline": headline(known),
        "layouts": "\n".join(_layouts(known)),
        "cloud": "\n".join(_cloud(known)),
        "contexts": "\n".join(_contexts(known)),
        "attention": "\n".join(_attention(known)),
        "ratios": "\n".join(_ratios(known)),
        "agrees": "\n".join(bullet(item.text) for item in said["agrees"]),
        "differs": "\n".join(bullet(item.text) for item in said["differs"]),
        "more": "\n".join(bullet(item.text) for item in said["more"]),
        "machine": known["machine"],
    }
    return filled(Path(__file__).with_name("serving.md"), parts)


def headline(known: Known) -> str:
    """The result in a line."""
    every = [item for group in ("agrees", "differs") for item in findings(known)[group]]
    decode = known["layouts"][-1]["decoding"]
    low, high = _between(known, "batch of 96"), _between(known, "prompts")
    return (
        f"Llama-3-8B on 16 SN40L decodes {decode:,.0f} tokens/s (measured 1,100); {len(findings(known)['agrees'])} of "
        f"{len(every)} published observations hold; CloudMatrix384 from its data sheet: {low} tokens/s a chip in decoding "
        f"(published 1,943), {high} for prompts (6,688)"
    )


def _between(known: Known, what: str) -> str:
    rates = sorted(row["rate"] for row in known["cloud"] if row["what"] == what)
    return f"{rates[0]:,.0f} to {rates[-1]:,.0f}"


def _rate(known: Known, software: str, what: str) -> float:
    return float(next(row["rate"] for row in known["cloud"] if (row["software"], row["what"]) == (software, what)))


def findings(known: Known) -> dict[str, tuple[Finding, ...]]:
    """Sentences, and whether the rows bear them out: what agrees with the sources, what does not, what was found beyond."""
    return {"agrees": tuple(_agrees(known)), "differs": tuple(_differs(known)), "more": tuple(_more(known))}


def _gains(known: Known, draft: str, scheme: str) -> dict[float, list[float]]:
    return {row["acceptance"]: row["gains"] for row in known["speculation"] if (row["draft"], row["scheme"]) == (draft, scheme)}


def _agrees(known: Known) -> Iterator[Finding]:
    rows = known["layouts"]
    decode, first, last = rows[-1]["decoding"], rows[0], rows[-1]
    yield Finding(
        f"**Decoding with TP 16**: {decode:,.0f} tokens/s; measured 1,100, DFModel 1,188.",
        abs(decode / 1100 - 1) < 0.1,
    )
    yield Finding(
        f"**More TP, less latency and less throughput**: from TP 1 to TP 16, TTFT falls from {format_time(first['ttft'])} to "
        f"{format_time(last['ttft'])} and TPOT from {format_time(first['tpot'])} to {format_time(last['tpot'])}; prefill falls "
        f"from {first['prompts']:,.0f} to {last['prompts']:,.0f} tokens/s and decoding from {first['decoding']:,.0f} to "
        f"{last['decoding']:,.0f}.",
        all(a[key] > b[key] for a, b in pairwise(rows) for key in ("ttft", "tpot", "prompts", "decoding")),
    )
    yield Finding(
        "**More PP, more throughput and more latency**: the same rows, read the other way, as TP x PP is 16.",
        all(a[key] > b[key] for a, b in pairwise(rows) for key in ("pp", "ttft", "tpot", "prompts", "decoding")),
    )
    prompt = [_share(row["prompt_parts"], "matrices", "attention", "collectives") for row in rows]
    yield Finding(
        f"**Prefill is compute and transfers**: matrices, attention and collectives take {min(prompt):.0%} or more of the time, "
        f"collectives {_share(last['prompt_parts'], 'collectives'):.0%} with TP 16.",
        min(prompt) > 0.95,
    )
    memory = [_share(row["decode_parts"], "matrices", "head", "attention") for row in rows]
    yield Finding(
        f"**Decode is memory and network latency**: weights and cache are read in {memory[-1]:.0%} of the time with TP 16, and "
        f"messages of 8 KB, which are nearly all latency, take {_share(last['decode_parts'], 'collectives'):.0%}.",
        memory[-1] > 0.8 and _share(last["decode_parts"], "collectives") > 0.05,
    )
    best = {scheme: [max(_gains(known, draft, scheme)[0.8]) for draft in DRAFTS] for scheme in SCHEMES}
    small, large = _gains(known, "llama-68m", "tree"), _gains(known, "llama3-70b", "tree")
    yield Finding(
        f"**Trees need the smallest draft and a short window**: at an acceptance of 0.8 the best speed-ups are "
        f"{best['tree'][0]:.1f} x, {best['tree'][1]:.1f} x and {best['tree'][2]:.1f} x with drafts of 68M, 8B and 70B; beyond a "
        "window of six they fall.",
        all(gains.index(max(gains)) < 6 and max(gains) > max(large[chance]) for chance, gains in small.items()),
    )
    yield Finding(
        f"**For sequences, the small and the medium draft are good, the large one is not**: {best['sequence'][0]:.1f} x, "
        f"{best['sequence'][1]:.1f} x and {best['sequence'][2]:.1f} x.",
        best["sequence"][0] > best["sequence"][1] > 1.5 * best["sequence"][2],
    )
    long = _gains(known, "llama-68m", "sequence")
    yield Finding(
        f"**For sequences, window and acceptance both help**: with 68M, from a window of 1 to 8, the speed-up rises from "
        f"{long[0.5][0]:.1f} x to {long[0.5][-1]:.1f} x at an acceptance of 0.5 and from {long[0.95][0]:.1f} x to "
        f"{long[0.95][-1]:.1f} x at 0.95. (At 0.5 it stops rising at six.)",
        all(a < b for a, b in pairwise(long[0.95])) and all(long[a][7] < long[b][7] for a, b in pairwise(ACCEPTANCES)),
    )
    found = _rate(known, "sglang", "tpot 15 ms")
    yield Finding(
        f"**CloudMatrix384**, with software as on GPUs: {_rate(known, 'sglang', 'batch of 96'):,.0f} tokens/s a chip with the "
        f"published batch of 96 (published 1,943), {found:,.0f} within 15 ms (538), {_rate(known, 'sglang', 'prompts'):,.0f} for "
        "prompts (6,688): within 30 %. Nothing was fitted to the machine; the shares of the data sheet are those of an A100.",
        all(
            abs(_rate(known, "sglang", what) / PUBLISHED[key] - 1) < 0.3
            for what, key in (("batch of 96", "tpot 50 ms"), ("tpot 15 ms", "tpot 15 ms"), ("prompts", "prompts"))
        ),
    )


def _share(parts: Mapping[str, float], *names: str) -> float:
    return sum(parts[name] for name in names) / sum(parts.values())


def _differs(known: Known) -> Iterator[Finding]:
    found = _rate(known, "ideal", "tpot 50 ms")
    yield Finding(
        f"**The best batch of CloudMatrix384 is larger in the model**: without time of the host, {found:,.0f} tokens/s a chip "
        "within 50 ms, at more than twice the published batch. The machine's own kernels, their waits for each other and busy "
        "experts are not in the model.",
        found > 2 * PUBLISHED["tpot 50 ms"],
    )


def _more(known: Known) -> Iterator[Finding]:
    at = {(row["model"], row["context"]): row for row in known["contexts"]}
    heads, groups, _, latents = SERVED
    long, short = 131072, 1024
    yield Finding(
        f"**The cache decides what a long context costs.** At {long:,} tokens a sequence of GPT3-175B needs "
        f"{format_bytes(at[heads, long]['cache'])} and one of DeepSeek-V3 {format_bytes(at[latents, long]['cache'])}, though the "
        f"latter has four times the parameters; eight H200 decode {at[heads, long]['rate']:,.0f} and "
        f"{at[latents, long]['rate']:,.0f} tokens/s a chip.",
        at[heads, long]["cache"] > 50 * at[latents, long]["cache"] and at[latents, long]["rate"] > 10 * at[heads, long]["rate"],
    )
    yield Finding(
        f"**Latents save capacity, not time.** At {short:,} tokens DeepSeek-V3 decodes twice as fast as Llama-3-70B "
        f"({at[latents, short]['rate']:,.0f} against {at[groups, short]['rate']:,.0f} tokens/s a chip), at {long:,} no "
        f"longer ({at[latents, long]['rate']:,.0f} against {at[groups, long]['rate']:,.0f}): absorbed, each of its 128 heads "
        "multiplies the whole latent, so that attention over its small cache is limited by products.",
        at[latents, short]["rate"] > 1.5 * at[groups, short]["rate"] and at[latents, long]["rate"] < at[groups, long]["rate"],
    )
    yield from _latents_and_experts(known)
    pays = {(row["target"], row["acceptance"]): row for row in known["batches"]}
    first, second = pays["llama2-7b", 0.4], pays["llama3-70b", 0.6]
    yield Finding(
        f"**Speculation stops paying when the batch fills the chip.** With {FIXED} proposed tokens, Llama-2-7B with a draft of "
        f"68M gains {first['fixed'][0]:.2f} x alone at an acceptance of 0.4, and takes {1 / first['fixed'][-1]:.2f} x the time "
        f"with {USERS[-1]} sequences; Llama-3-70B with 8B at 0.6 gains up to {_last_paying(second['fixed'])} sequences, and with "
        f"the best window for each batch up to {_last_paying(second['gains'])}.",
        first["fixed"][0] > 1 > first["fixed"][-1] and second["fixed"][-1] < 1 < max(second["gains"]),
    )
    ratios = [row["prompt_time"] / row["answer_time"] for row in known["ratios"]]
    yield Finding(
        f"**Chips for prompts per chip for decoding**: {max(ratios):.1f} where prompts are 32 times as long as answers, "
        f"{min(ratios):.2f} where answers are four times as long. No fixed ratio of the pools serves both.",
        max(ratios) > 5 and min(ratios) < 0.2,
    )


def _latents_and_experts(known: Known) -> Iterator[Finding]:
    at = {(row["model"], row["context"], row["users"]): row for row in known["attention"]}
    groups, both, latents = COMPARED
    short, long = SHOWN_CONTEXTS[0], SHOWN_CONTEXTS[-1]
    few, many, alone = at[latents, short, 32], at[groups, short, 32], at[latents, short, 1]
    yield Finding(
        f"**Experts pay when a batch shares them.** At a context of {short:,} tokens, 32 sequences of DeepSeek-V3 read "
        f"{format_bytes(few['weights'])} of weights for each token and those of Llama-3-70B {format_bytes(many['weights'])}: "
        f"they touch {few['weights'] / alone['weights'] * 32:.0f} times the weights of one sequence, where a dense model reads "
        f"the same. So Llama-3-70B decodes {many['rate'] / few['rate']:.1f} times as fast with 32, and "
        f"{at[groups, short, 512]['rate'] / at[latents, short, 512]['rate']:.1f} times with 512.",
        few["weights"] > 2 * many["weights"] and many["rate"] > 1.5 * few["rate"],
    )
    falls = {name: at[name, short, 64]["rate"] / at[name, long, 64]["rate"] for name in COMPARED}
    yield Finding(
        f"**Latents keep long contexts cheap.** With 64 sequences, {long:,} tokens of context instead of {short:,} cost "
        f"Llama-3-70B a factor of {falls[groups]:.1f}, Mixtral {falls[both]:.1f} and DeepSeek-V3 {falls[latents]:.1f}; attention "
        f"takes {at[groups, long, 64]['attention']:.0%}, {at[both, long, 64]['attention']:.0%} and "
        f"{at[latents, long, 64]['attention']:.0%} of the step.",
        falls[groups] > falls[both] > falls[latents],
    )
    most = {name: max((n for n in BATCHES if at[name, long, n]["rate"]), default=0) for name in COMPARED}
    yield Finding(
        f"**Llama-3-70B wins over DeepSeek-V3 until its caches do not fit**: wherever both serve a batch, it decodes faster. At "
        f"{long:,} tokens sixteen H200 hold {most[groups]} sequences of it, and {most[latents]} of DeepSeek-V3, which then "
        f"decodes {at[latents, long, most[latents]]['rate']:,.0f} tokens/s a chip against "
        f"{at[groups, long, most[groups]]['rate']:,.0f}. "
        f"Mixtral, with the fewest active parameters and half the cache of Llama-3-70B, is ahead of both everywhere.",
        all(
            at[both, c, n]["rate"] > at[groups, c, n]["rate"] > at[latents, c, n]["rate"]
            for c in {row["context"] for row in known["attention"]}
            for n in BATCHES
            if at[groups, c, n]["rate"] and at[latents, c, n]["rate"]
        )
        and most[latents] > most[groups]
        and at[latents, long, most[latents]]["rate"] > at[groups, long, most[groups]]["rate"],
    )


def _last_paying(gains: Sequence[float]) -> int:
    """Most sequences with which it still gains."""
    return max((users for users, gain in zip(USERS, gains, strict=True) if gain > 1), default=0)


# --- tables -------------------------------------------------------------------------------------------------------------


def _layouts(known: Known) -> list[str]:
    head = ("TP", "PP", "TTFT", "prefill, tokens/s", "TPOT", "decoding, tokens/s")
    rows = known["layouts"]
    return table(
        head,
        [
            (
                str(row["tp"]),
                str(row["pp"]),
                format_time(row["ttft"]),
                f"{row['prompts']:,.0f}",
                format_time(row["tpot"]),
                f"{row['decoding']:,.0f}",
            )
            for row in rows
        ],
        0,
    )


def _cloud(known: Known) -> list[str]:
    head = ("what", "published, tokens/s a chip", "no time of the host", "software as on GPUs")
    names = {
        "batch of 96": ("decoding, batch of 96 a chip", PUBLISHED["tpot 50 ms"]),
        "tpot 50 ms": ("decoding within 50 ms a token, best batch", PUBLISHED["tpot 50 ms"]),
        "tpot 15 ms": ("decoding within 15 ms a token, best batch", PUBLISHED["tpot 15 ms"]),
        "prompts": ("prompts of 4,096 tokens", PUBLISHED["prompts"]),
    }
    lines = []
    for what, (title, published) in names.items():
        cells = []
        for software in ("ideal", "sglang"):
            row = next(row for row in known["cloud"] if (row["software"], row["what"]) == (software, what))
            batch = f" (batch {row['batch']})" if what.startswith("tpot") else ""
            cells.append(f"{row['rate']:,.0f}{batch}")
        lines.append((title, f"{published:,.0f}", *cells))
    return table(head, lines, 1)


def _contexts(known: Known) -> list[str]:
    head = ("model", "context", "cache of a sequence", "sequences that fit", "sequences", "tokens/s a chip")
    return table(
        head,
        [
            (
                row["model"],
                f"{row['context']:,}",
                format_bytes(row["cache"]),
                f"{row['fits']:,}",
                f"{row['users']:,}",
                f"{row['rate']:,.0f}",
            )
            for row in known["contexts"]
            if row["context"] in (1024, 8192, 131072)
        ],
        1,
    )


def _attention(known: Known) -> list[str]:
    head = (
        "model",
        "context",
        "sequences",
        "layout of a replica",
        "weights a token",
        "cache a token",
        "attention",
        "tokens/s a chip",
    )
    return table(
        head,
        [
            (
                row["model"],
                f"{row['context']:,}",
                f"{row['users']:,}",
                row["layout"],
                format_bytes(row["weights"]),
                format_bytes(row["cache"]),
                f"{row['attention']:.0%}",
                f"{row['rate']:,.0f}",
            )
            for row in known["attention"]
            if row["context"] in SHOWN_CONTEXTS and row["users"] in (1, 64, 512) and row["rate"]
        ],
        1,
    )


def _ratios(known: Known) -> list[str]:
    head = ("prompt", "answer", "time of the prompt", "time of the answer", "chips for prompts per chip for decoding")
    return table(
        head,
        [
            (
                f"{row['prompt']:,}",
                f"{row['answer']:,}",
                format_time(row["prompt_time"]),
                format_time(row["answer_time"]),
                f"{row['prompt_time'] / row['answer_time']:.2f}",
            )
            for row in known["ratios"]
        ],
        0,
    )


# --- figures ------------------------------------------------------------------------------------------------------------


def figures(known: Known) -> dict[str, Element]:
    """By file name."""
    return {
        "serving-prefill": _bars(known, "prompt_parts", "prompts", "Time to first token by part"),
        "serving-decode": _bars(known, "decode_parts", "decoding", "Time per output token by part"),
        "serving-speculation": _heat(known),
        "serving-contexts": _curves_of_contexts(known),
        "serving-attention": _curves_of_attention(known),
        "serving-batches": _curves_of_batches(known),
    }


def _bars(known: Known, key: str, rate: str, title: str) -> Element:
    order = ("matrices", "attention", "collectives", "head")
    bars = [
        ChartBar(
            f"TP {row['tp']}, PP {row['pp']}",
            tuple(BarPart(name, row[key][name], f"{PARTS[name]}: {format_time(row[key][name])}") for name in order),
            f"{format_time(sum(row[key].values()))}, {row[rate]:,.0f} tokens/s",
        )
        for row in known["layouts"]
    ]
    return stacked(title, bars, colours(order), format_time)


def _heat(known: Known) -> Element:
    """Tokens per second of a sequence: drafts to the right, schemes downwards; acceptance against window in each."""
    cell, high, left, top = 37.0, 26.0, 92.0, 44.0
    most = max(rate for row in known["speculation"] for rate in row["rates"])
    wide, tall = cell * len(WINDOWS) + 38, high * len(ACCEPTANCES) + 62
    content: list[Element] = []
    for down, scheme in enumerate(SCHEMES):
        for across, (draft, (name, _)) in enumerate(DRAFTS.items()):
            x, y = left + wide * across, top + tall * down
            content.append(words(x, y - 22, f"{scheme}, draft of {name}", font_weight="bold"))
            for place, window in enumerate(WINDOWS):
                content.append(words(x + cell * (place + 0.5), y - 6, str(window), "middle", FAINT, 11))
            for line_, acceptance in enumerate(ACCEPTANCES):
                rates = next(
                    row["rates"]
                    for row in known["speculation"]
                    if (row["draft"], row["scheme"], row["acceptance"]) == (draft, scheme, acceptance)
                )
                if not across:
                    content.append(words(x - 8, y + high * line_ + 17, f"{acceptance:.2f}", "end", FAINT, 12))
                for place, rate in enumerate(rates):
                    fill_ = shade(min(rate / most, 1.0))
                    tip = f"{scheme}, draft of {name}, acceptance {acceptance}, window {WINDOWS[place]}: {rate:.1f} tokens/s"
                    content.append(box(x + cell * place, y + high * line_, cell, high, fill_, tip, stroke="#ffffff"))
                    text = f"{rate:.0f}"
                    content.append(words(x + cell * (place + 0.5), y + high * line_ + 17, text, "middle", ink_on(fill_), 11))
        content.append(words(left - 8, top + tall * down - 6, "window", "end", FAINT, 11))
    content.append(words(8, top + 17 + high * 1.5, "accept-", size=12, fill=FAINT))
    content.append(words(8, top + 31 + high * 1.5, "ance", size=12, fill=FAINT))
    return canvas(top + tall * len(SCHEMES) - 16, "Tokens per second with speculation", content)


def _curve(plane: Plane, xs: Sequence[float], ys: Sequence[float], colour: str, tip: str, **more: str | float) -> Element:
    corners = " ".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y in zip(xs, ys, strict=True) if y > 0)
    return el("polyline", el("title", tip), points=corners, fill="none", stroke=colour, stroke_width=2, **more)


def _axes(plane: Plane, xs: Sequence[float], ys: Sequence[float], below: str, above: str) -> list[Element]:
    right, bottom = plane.left + plane.width, plane.top + plane.height
    made: list[Element] = []
    for y in ys:
        made += [
            line(plane.left, plane.y(y), right, plane.y(y)),
            words(plane.left - 6, plane.y(y) + 4, f"{y:,g}", "end", FAINT, 12),
        ]
    for x in xs:
        made += [line(plane.x(x), plane.top, plane.x(x), bottom), words(plane.x(x), bottom + 17, f"{x:,g}", "middle", FAINT, 12)]
    made += [line(plane.left, bottom, right, bottom, INK), line(plane.left, plane.top, plane.left, bottom, INK)]
    made.append(words(plane.left + plane.width / 2, bottom + 36, below, "middle", FAINT, 12))
    made.append(words(plane.left, plane.top - 8, above, fill=FAINT, size=12))
    return made


def _curves_of_contexts(known: Known) -> Element:
    contexts = sorted({row["context"] for row in known["contexts"]})
    plane = Plane(60, 30, WIDTH - 390, 330, contexts[0], contexts[-1], 5, 5000)
    ys = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
    limit = f"tokens/s a chip, at most {format_time(LIMIT)} a token"
    content = _axes(plane, contexts, ys, "context [tokens]", limit)
    ends: list[tuple[float, str, str]] = []
    for (name, _), colour in zip(SERVED.items(), LINES, strict=False):
        rows = [row for row in known["contexts"] if row["model"] == name]
        content.append(_curve(plane, [row["context"] for row in rows], [row["rate"] for row in rows], colour, name))
        ends.append((plane.y(rows[-1]["rate"]), name, colour))
    content += _end_labels(plane, ends)
    return canvas(plane.top + plane.height + 48, "Throughput of decoding by context", content)


def _curves_of_attention(known: Known) -> Element:
    """Tokens per second and chip by sequences: a plane for each context; names at the ends of the lines of the first."""
    names_room = 105.0
    width = (WIDTH - names_room - 65 * len(SHOWN_CONTEXTS)) / len(SHOWN_CONTEXTS)
    content: list[Element] = []
    for place, context in enumerate(SHOWN_CONTEXTS):
        left = 50 + place * (width + 60) + (names_room if place else 0)
        plane = Plane(left, 50, width, 300, BATCHES[0], BATCHES[-1], 5, 10000)
        content.append(words(plane.left, 18, f"context of {context:,} tokens", font_weight="bold"))
        ys = (5, 10, 30, 100, 300, 1000, 3000, 10000)
        content += _axes(plane, BATCHES[::3], ys, "sequences", "tokens/s a chip")
        ends = []
        for name, colour in zip(COMPARED, LINES, strict=False):
            rows = [row for row in known["attention"] if (row["model"], row["context"]) == (name, context) and row["rate"]]
            xs, rates = [row["users"] for row in rows], [row["rate"] for row in rows]
            content.append(_curve(plane, xs, rates, colour, f"{name}, context of {context:,} tokens"))
            content.append(el("circle", cx=plane.x(xs[-1]), cy=plane.y(rates[-1]), r=3.5, fill=colour))
            ends.append((plane.y(rates[-1]), name, colour))
        content += [] if place else _end_labels(plane, ends)
    return canvas(50 + 300 + 48, "Throughput of decoding with latents and experts", content)


def _curves_of_batches(known: Known) -> Element:
    width = (WIDTH - 120) / 2
    content: list[Element] = []
    for place, target in enumerate(dict.fromkeys(row["target"] for row in known["batches"])):
        rows = [row for row in known["batches"] if row["target"] == target]
        plane = Plane(50 + place * (width + 60), 50, width - 110, 280, USERS[0], USERS[-1], 0.3, 4)
        content.append(words(plane.left, 18, f"{target} with {rows[0]['draft']} on {rows[0]['system']}", font_weight="bold"))
        content += _axes(
            plane, USERS, (0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4), "sequences", f"speed-up; dashed: {FIXED} tokens proposed"
        )
        content.append(line(plane.left, plane.y(1), plane.left + plane.width, plane.y(1), INK, stroke_width=1.5))
        ends = []
        for row, colour in zip(rows, LINES, strict=False):
            tip = f"acceptance {row['acceptance']}"
            content.append(_curve(plane, USERS, row["gains"], colour, f"{tip}, best window"))
            fixed = _curve(plane, USERS, row["fixed"], colour, f"{tip}, {FIXED} tokens", stroke_dasharray="5 4")
            content.append(fixed)
            ends.append((plane.y(row["gains"][-1]), f"accept {row['acceptance']}", colour))
        content += _end_labels(plane, ends)
    return canvas(50 + 280 + 48, "Speed-up by speculation by batch", content)


def _end_labels(plane: Plane, ends: Sequence[tuple[float, str, str]]) -> list[Element]:
    """Names at the ends of lines, moved apart where they would overlap."""
    made, last = [], -100.0
    for y, name, colour in sorted(ends):
        at = max(y, last + 17)
        x = plane.left + plane.width
        made += [line(x, y, x + 10, at, GRID), words(x + 13, at + 4, name, fill=colour, font_weight="bold", size=12)]
        last = at
    return made
