"""A first chip file: a copy of another chip's, or a GPU from the line of its data sheet."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from string import Template

from halley.errors import BadInput, Fault, UnitError, did_you_mean, visible
from halley.io.chips.load import parse_chip
from halley.io.chips.save import chip_text
from halley.io.files.shelf import found
from halley.ir.workload import DTYPE_BYTES
from halley.library import CHIPS, gpu_text
from halley.units import BYTES, BYTES_PER_SECOND, HERTZ, Dimension, parse

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
"""What a new chip may be called: also the name of its file."""

EXAMPLE = "181 TFLOPS fp16, 1.6 TB/s, 64 GB"

CLOCK = "1.5 GHz"
"""Clock of a GPU whose data sheet has none."""
CORE_MACS = 1024
"""Multiply-accumulates of a core in a cycle where the data sheet has no number of cores: those of the A100 in 16 bits."""
TEMPLATE_ARRAY_UNITS = 8 * 32
"""Units of the matrix engine of the template."""
DEFAULT_LANES = 64
"""Vector lanes of a core where the data sheet has no rate in fp32."""
EXCHANGED = 22.0
"""Bytes a cycle that a core exchanges with all others of an axis."""
CORE_CACHE = 40 * 1024 / 108
"""L2 of a core where the data sheet has none [KiB]: that of the A100."""

RATE = re.compile(r"([0-9.]+)\s*([kMGTPE]?)(?:FLOPS|FLOP/s|OPS|OP/s)\s+(\w+(?:\s*(?:/|and|&)\s*\w+)*)", re.IGNORECASE)
CORES = re.compile(r"([0-9]{1,6})\s*(?:x\s*)?(?:cores?|sms?|cus?|compute units?|units?|clusters?)", re.IGNORECASE)
CACHE = re.compile(r"(.+?)\s*(?:of\s+)?(?:l2|cache|l2 cache)", re.IGNORECASE)
MEMORY = re.compile(r"(.+?)\s*(?:of\s+)?(?:d?ram|memory|hbm\w*|gddr\w*|lpddr\w*|ddr\w*)", re.IGNORECASE)
PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}

ENERGIES = {
    "fp16": "{row: mac-7nm-fp16, assumed: 7 nm stands for the process of the chip}",
    "bf16": "{row: mac-7nm-bf16, assumed: 7 nm stands for the process of the chip}",
    "int8": "{row: mac-7nm-int8, assumed: 7 nm stands for the process of the chip}",
    "fp32": "{row: mac-7nm-fp32, assumed: 7 nm stands for the process of the chip}",
    "fp8": '{value: 0.45 pJ, assumed: "int8 multiply and fp32 add at 7 nm, as in the rows mac-7nm-int8 and add-7nm-fp32"}',
    "fp64": '{value: 6.76 pJ, assumed: "four times the row mac-7nm-fp32, as work grows with the square of the word"}',
}
"""Energy of a multiply-accumulate by element type, as the file has it."""
ACCUMULATORS = {"fp16": "fp32", "bf16": "fp32", "fp8": "fp32", "int8": "int32"}
"""Type of sums in the making, by that of the operands."""
MOST_CORES = 10_000
"""More cores than any chip has: a line that needs them has a wrong prefix."""


@dataclass(slots=True)
class DataSheet:
    """What a data sheet says: ``rates`` [op/s] by element type, with two operations per multiply-accumulate;
    ``bandwidth`` and ``capacity`` of the memory; where it says so, ``clock``, ``cores`` and ``cache``. Quantities are kept
    as they are written."""

    rates: dict[str, float] = field(default_factory=dict)
    bandwidth: str = ""
    capacity: str = ""
    clock: str = ""
    cores: int = 0
    cache: str = ""


def read_data_sheet(text: str) -> DataSheet:
    """The data sheet that a line says.

    >>> read_data_sheet("181 TFLOPS fp16/bf16, 1.6 TB/s, 64 GB, 104 CUs").rates
    {'fp16': 181000000000000.0, 'bf16': 181000000000000.0}

    Raises BadInput: a part that is none of these, one that is said twice, or a rate, the bandwidth or the capacity is missing.
    """
    sheet, faults = DataSheet(), list[Fault]()
    for part in filter(None, (word.strip() for word in text.split(","))):
        try:
            _read_part(sheet, part)
        except BadInput as error:
            faults += error.faults
    if not faults:
        needed = [
            ("a rate such as 181 TFLOPS fp16", sheet.rates),
            ("a bandwidth such as 1.6 TB/s", sheet.bandwidth),
            ("a capacity such as 64 GB", sheet.capacity),
        ]
        faults = [
            Fault("--from-datasheet", what, "none", f"write for example '{EXAMPLE}'") for what, given in needed if not given
        ]
    if faults:
        raise BadInput(faults)
    return sheet


def _read_part(sheet: DataSheet, part: str) -> None:
    if match := RATE.fullmatch(part):
        for dtype in re.split(r"\s*(?:/|and|&)\s*", match[3].lower()):
            if dtype not in DTYPE_BYTES or dtype not in ENERGIES:
                raise BadInput(_fault("an element type", repr(dtype), did_you_mean(dtype, ENERGIES)))
            _once(dtype in sheet.rates, part)
            sheet.rates[dtype] = _number(match[1], part) * PREFIX[match[2].lower()]
    elif match := CORES.fullmatch(part):
        _once(bool(sheet.cores), part)
        sheet.cores = int(match[1])
        if not sheet.cores:
            raise BadInput(_fault("a number of cores above 0", repr(part)))
    elif _is(part, BYTES_PER_SECOND):
        _once(bool(sheet.bandwidth), part)
        sheet.bandwidth = part
    elif _is(part, HERTZ):
        _once(bool(sheet.clock), part)
        sheet.clock = part
    elif (match := CACHE.fullmatch(part)) and _is(match[1], BYTES):
        _once(bool(sheet.cache), part)
        sheet.cache = match[1]
    elif _is(size := match[1] if (match := MEMORY.fullmatch(part)) else part, BYTES):
        _once(bool(sheet.capacity), part)
        sheet.capacity = size
    else:
        known = (
            "a rate with its element type (181 TFLOPS fp16), a bandwidth (1.6 TB/s), a capacity (64 GB), and where it is known"
        )
        more = "a number of cores (104 cores), a clock (1.7 GHz), a cache (8 MiB L2)"
        raise BadInput(_fault(f"{known} {more}", repr(part[:60]), "leave the part out, or write it so"))


def _fault(expected: str, got: str, remedy: str = "") -> Fault:
    return Fault("--from-datasheet", expected, got, remedy)


def _once(again: bool, part: str) -> None:
    if again:
        raise BadInput(_fault("each figure once", f"{part[:60]!r} besides another one", "remove one"))


def _number(text: str, part: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadInput(_fault("a number above 0", repr(part[:60])))
    return value


def _is(text: str, dimension: Dimension) -> bool:
    """Whether it is a quantity of this dimension, in absolute units."""
    try:
        return parse(text, dimension) < math.inf
    except UnitError:
        return False


def gpu_from(name: str, line: str) -> str:
    """The text of a chip file like a GPU whose peaks, memory and, where they are said, cores, clock and cache are those of a data
    sheet.

    >>> parse_chip(gpu_from("mine", "181 TFLOPS fp16, 1.6 TB/s, 64 GB")).memory("dram").read_bandwidth
    1600000000000.0

    Raises BadInput: the name or the line is none.
    """
    check_name(name)
    sheet = read_data_sheet(line)
    clock = parse(sheet.clock or CLOCK, HERTZ)
    reference = next(iter(sheet.rates.values()))
    wanted = reference / (2 * clock * CORE_MACS)
    if max(wanted, sheet.cores) > MOST_CORES:
        got = (
            f"{sheet.cores:,} cores"
            if sheet.cores
            else f"a rate for {wanted:.3g} cores of {CORE_MACS} multiply-accumulates a cycle"
        )
        raise BadInput(_fault(f"a chip of at most {MOST_CORES:,} cores", got, "look at the prefix of the rate"))
    cores = sheet.cores or _splittable(wanted)
    stated = f'source: "data sheet: {line.replace(chr(34), "")}"'
    rates = {dtype: rate / (2 * clock * cores * TEMPLATE_ARRAY_UNITS) for dtype, rate in sheet.rates.items()}
    lanes = max(1, round(sheet.rates["fp32"] / (2 * clock * cores))) if "fp32" in sheet.rates else DEFAULT_LANES
    assumption = "the rate in fp32 over cores and clock" if "fp32" in sheet.rates else "as on the A100"
    cache = sheet.cache or f"{max(1, round(CORE_CACHE * cores))} KiB"
    text = Template(gpu_text()).substitute(
        name=name,
        description=f'"a GPU by its data sheet: {line.replace(chr(34), "")}"',
        clock=_marked(sheet.clock or CLOCK, sheet.clock, stated, "the data sheet has none; peaks do not depend on it"),
        capacity=f"{{value: {sheet.capacity}, {stated}}}",
        bandwidth=f"{{value: {sheet.bandwidth}, {stated}}}",
        cache=_marked(cache, sheet.cache, stated, "of each core as on the A100, 40 MiB for 108"),
        cache_rate=48 * cores,
        axes=_axes(cores, stated if sheet.cores else ""),
        rates=_lines({dtype: f"{{value: {rate!r}, {stated}}}" for dtype, rate in rates.items()}),
        accumulators=_lines(
            {dtype: _marked(wide, "", "", "as on the A100") for dtype, wide in ACCUMULATORS.items() if dtype in rates}
        ),
        energies=_lines({dtype: ENERGIES[dtype] for dtype in rates}),
        lanes=f'{{value: {lanes}, assumed: "{assumption}"}}',
    )
    parse_chip(text, f"{name}.yaml", sourced=True)
    return text


def _marked(value: str, given: str, stated: str, assumed: str) -> str:
    return f"{{value: {value}, {stated}}}" if given else f'{{value: {value}, assumed: "{assumed}"}}'


def _lines(entries: Mapping[str, str]) -> str:
    return "\n".join(f"      {key}: {value}" for key, value in entries.items()) or "      {}"


def _sides(count: int) -> tuple[int, int]:
    """The two factors of a count that are nearest to each other, the larger one first.

    >>> _sides(108), _sides(7)
    ((12, 9), (7, 1))
    """
    small = next(side for side in range(math.isqrt(count), 0, -1) if count % side == 0)
    return count // small, small


def _splittable(wanted: float) -> int:
    """The nearest count of cores that makes a grid of which no side is more than twice the other: dims may be split over both.

    >>> _splittable(58.9), _splittable(0.2)
    (60, 1)
    """
    count = max(1, round(wanted))
    around: Iterable[int] = range(max(1, count - count // 4), count + count // 4 + 1)
    good = [each for each in around if _sides(each)[0] <= 2 * _sides(each)[1]]
    return min(good or [count], key=lambda each: (abs(each - wanted), each))


def _axes(cores: int, stated: str) -> str:
    """The lines of the axes: a grid of cores of which each reaches any other through L2."""
    said = f"{stated[:-1]}; " if stated else 'assumed: "so many that a core does 1024 multiply-accumulates a cycle; '
    named = [(name, size) for name, size in zip("xy", _sides(cores), strict=True) if size > 1 or name == "x"]
    lines = []
    for name, size in named:
        lines += [
            f"        {name}:",
            f'          size: {{value: {size}, {said}the grid is so that two dims may be split"}}',
            "          topology: {value: full, assumed: any core reaches any other through L2}",
            "          link:",
            '            assumed: "a write to L2 by a core and a read by another; 22 bytes a cycle for each, as on the H200"',
            f"            bandwidth: {EXCHANGED / max(1, size - 1):.3g} B/cycle",
            "            latency: 524 cycles",
            '            energy: {value: 4.24 pJ/bit, assumed: "one write and one read of L2"}',
            "          collectives:",
            '            barrier: {value: 1.39 us, assumed: "as on the H200"}',
        ]
    return "\n".join(lines)


def check_name(name: str) -> None:
    """Raises BadInput: a chip and its file cannot be called so."""
    if not NAME.fullmatch(name) or name in CHIPS.names():
        got = f"{name[:60]!r}, which ships with Halley" if name in CHIPS.names() else repr(name[:60])
        raise BadInput(
            Fault("NAME", "a name of letters, digits and - _ . that no shipped chip has", got, "write for example 'my-chip'")
        )


def copy_of(name: str, like: str) -> str:
    """The text of a chip's file under another name, with its comments and sources.

    >>> parse_chip(copy_of("mine", "edge")).name
    'mine'

    Raises BadInput: the name is none; there is no such chip, or its file has faults.
    """
    check_name(name)
    text, file, shipped = found(CHIPS, like)
    chip = parse_chip(text, file)
    head = (
        f"# {name}: a copy of {visible(chip.name)}, to be changed. Where a number is from, its `source`, `assumed` or `row`\n"
        "# says, or else the source of its section: change that with the number. `halley chips FILE` lists the numbers,\n"
        f"# `halley energies` the rows. What follows is the {'shipped file' if shipped else 'file'}, with its comments.\n#\n"
    )
    changed, count = re.subn(r"^name: *[^{}#\n]*", f"name: {name}", text, count=1, flags=re.MULTILINE)
    if not count:  # the name is not on a line of its own
        changed = chip_text(replace(chip, name=name))
    parse_chip(head + changed, f"{name}.yaml")
    return head + changed
