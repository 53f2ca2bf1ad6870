"""The short form of a system: ``1024 x h100, nvlink 8, ib``.

A count of chips, a chip, and the axes that join them, the innermost first:

    system = count "x" chip {"," axis}
    axis   = port [topology] [size {"x" size}]

A port is one of the chip's in the table of parts (nvlink, ib, pcie, ici, ...), or a row of the table of link technologies.
Several sizes make a product: ``ici 4x4x4`` is a torus. One axis at most may leave its size out and takes the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.chip import origins_of
from halley.io.chips.load import load_chip
from halley.io.files.entries import Entry
from halley.io.files.shelf import is_path
from halley.io.files.text import KeyPath
from halley.io.networks.models import BlockFile, LinkEntry, libraries_of, links_table
from halley.io.networks.network import read_axes
from halley.io.systems.models import SIMPLE, ChipParts, PortFile
from halley.io.systems.parts import parts_row, read_parts
from halley.ir.hardware import Topology
from halley.ir.system import System
from halley.library import CHIPS, SYSTEMS

_HEAD = re.compile(r"(\S+)\s+[xX]\s+(.+)")
CHIP_LIMIT = 1 << 20
"""Most chips of a short form: nothing but its axes grows with them."""
_SIZES = re.compile(r"[0-9]{1,9}(x[0-9]{1,9})*")
_ALIASES = {"torus": Topology.RING, "mesh": Topology.LINE}
"""Products of these are called so."""
_TOPOLOGIES = (*(str(item) for item in SIMPLE), *_ALIASES)
_EXAMPLE = "write for example '1024 x h100, nvlink 8, ib'"


@dataclass(frozen=True, slots=True)
class _Words:
    """An axis as it is written: ``sizes`` is empty where the axis takes the rest."""

    text: str
    word: str
    port: PortFile
    sizes: tuple[int, ...]


def parse_words(text: str) -> System:
    """The system that a short form describes.

    >>> system = parse_words("128 x tpu-v4, ici 4x4x4, ethernet-400g-dsp")
    >>> [(axis.name, axis.topology.value, axis.size) for axis in system.axes]
    [('ethernet-400g-dsp', 'switch', 2), ('ici-x', 'ring', 4), ('ici-y', 'ring', 4), ('ici-z', 'ring', 4)]

    Raises BadInput: every fault of the text.
    """
    head, *tail = (part.strip() for part in text.split(","))
    match = _HEAD.fullmatch(head)
    if match is None:
        raise BadInput(Fault("system", "a count of chips and a chip", repr(head), _EXAMPLE))
    faults: list[Fault] = []
    count, chip_name = _count(match[1], faults), match[2].strip()
    if not is_path(chip_name):
        chip_name = chip_name.lower()  # as names of shipped chips are
    if chip_name not in CHIPS.names() and not is_path(chip_name):
        raise BadInput([*faults, _unknown(chip_name)])
    chip = load_chip(chip_name)
    row = parts_row(chip.name)
    found = [_axis(part, chip.name, row, faults) for part in tail]
    words = [item for item in found if item is not None]
    sized = _sized(words, count, row, faults) if not faults else []
    if faults:
        raise BadInput(faults)
    blocks = [block for item in reversed(sized) for block in _blocks(item, sized)]
    axes, findings, brought = read_axes(blocks, CHIP_LIMIT)
    if findings:
        raise BadInput(
            [Fault(f"system, {'.'.join(map(str, item.path))}", item.expected, item.got, item.remedy) for item in findings]
        )
    parts = read_parts(chip.name)
    sources = _sources(blocks, brought) | {".".join(map(str, path)): product_text for path, product_text in parts.sources.items()}
    name = ", ".join(" ".join(part.split()) for part in (head, *tail))
    costs = parts.chip, parts.memory, parts.node
    return System(name, chip, axes, (), parts.host, *costs, "", sources, libraries_of(blocks))


def _unknown(name: str) -> Fault:
    """The complaint about what is neither a chip nor a system."""
    if name in SYSTEMS.names():
        return Fault("system, chip", "a chip before axes", repr(name), "a system brings axes of its own: leave these out")
    hint = did_you_mean(name, [*CHIPS.names(), *SYSTEMS.names()])
    remedy = hint if hint.startswith("did") else "'halley chips' and 'halley system list' name them"
    return Fault("system, chip", "a shipped chip, a shipped system, or a path to either's file", repr(name), remedy)


def _count(text: str, faults: list[Fault]) -> int:
    if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= CHIP_LIMIT:
        return int(text)
    faults.append(Fault("system, count", f"a whole number of chips from 1 to {CHIP_LIMIT:,}", repr(text), _EXAMPLE))
    return 1


def _axis(text: str, chip: str, row: ChipParts, faults: list[Fault]) -> _Words | None:
    """The axis that its words describe; None, and the faults, where they describe none."""
    where, words = f"system, axis {text!r}", text.lower().split()
    if not words:
        faults.append(Fault("system", "an axis after each comma", "nothing", "leave the comma out"))
        return None
    word, rest, before = words[0], words[1:], len(faults)
    rows = links_table().rows
    port = row.ports.get(word)
    if port is None and word in rows:
        link = LinkEntry.model_construct(technology=Entry(word))
        port = PortFile.model_construct(link=link, topology=Entry(str(Topology.SWITCH)), assumed="joined as the short form says")
    if port is None:
        hint = did_you_mean(word, [*row.ports, *rows])
        remedy = hint if hint.startswith("did") else f"link technologies are {', '.join(rows)}"
        ports = f"a port of {chip} ({', '.join(row.ports)})" if row.ports else "a port"
        faults.append(Fault(where, f"{ports} or a link technology", repr(word), remedy))
    topology = rest.pop(0) if rest and not rest[0][0].isdigit() else ""
    if topology and topology not in _TOPOLOGIES:
        faults.append(Fault(where, f"a topology ({', '.join(_TOPOLOGIES)})", repr(topology), did_you_mean(topology, _TOPOLOGIES)))
    sizes = rest.pop(0) if rest else ""
    if sizes and not (_SIZES.fullmatch(sizes) and min(map(int, sizes.split("x"))) > 0):
        faults.append(Fault(where, "a size such as 8 or 4x4x4", repr(sizes)))
    if rest:
        faults.append(Fault(where, "a port, a topology, a size", repr(" ".join(rest)), "put a comma between axes"))
    if len(faults) > before or port is None:
        return None
    if topology:
        port = port.model_copy(update={"topology": Entry(str(_ALIASES.get(topology, topology)))})
    return _Words(text, word, port, tuple(map(int, sizes.split("x"))) if sizes else ())


def _sized(words: Sequence[_Words], count: int, row: ChipParts, faults: list[Fault]) -> list[_Words]:
    """The axes with all sizes, those of one chip left out; the faults where they do not make up the count."""
    open_ones = [item for item in words if not item.sizes]
    known = math.prod(size for item in words for size in item.sizes)
    product_text = " x ".join(str(size) for item in words for size in item.sizes) or "none"
    if not words and count > 1:
        port = next(iter(row.ports), "nvlink-4")
        faults.append(Fault("system", f"axes that join the {count} chips", "none", f"add for example ', {port}'"))
    elif len(open_ones) > 1:
        got = " and ".join(repr(item.text) for item in open_ones)
        faults.append(Fault("system", "one axis at most without a size", got, "give the sizes of the others"))
    elif open_ones and count % known:
        below = max(count // known, 1) * known
        remedy = f"try {below} or {below + known} chips"
        got = product_text if product_text == str(known) else f"{product_text} = {known}"
        faults.append(Fault("system", f"sizes whose product divides {count} chips", got, remedy))
    elif not open_ones and known != count:
        remedy = "leave out the size of one axis, which then takes the rest" if words else ""
        faults.append(Fault("system", f"sizes whose product is {count} chips", f"{product_text} = {known}", remedy))
    if faults:
        return []
    full = [item if item.sizes else replace(item, sizes=(count // known,)) for item in words]
    return [item for item in full if math.prod(item.sizes) > 1]


def _blocks(item: _Words, all_words: Sequence[_Words]) -> list[BlockFile]:
    """The axis, or the axes of its product, as a file would have them; names are the ports', numbered where they come twice."""
    alike = [other for other in all_words if other.word == item.word]
    name = item.word if len(alike) == 1 else f"{item.word}-{1 + next(i for i, other in enumerate(alike) if other is item)}"
    letters = "xyzuvw" if len(item.sizes) <= 6 else ""
    return [
        BlockFile.model_construct(
            name=name if len(item.sizes) == 1 else f"{name}-{letters[place] if letters else place}",
            size=Entry(size),
            topology=item.port.topology,
            link=item.port.link,
            multicast=item.port.multicast if item.port.topology.value == Topology.SWITCH else None,
            reduction=item.port.reduction if item.port.topology.value == Topology.SWITCH else None,
            on_request=item.port.on_request if item.port.topology.value == Topology.SWITCH else None,
            library=item.port.library,
            source=item.port.source,
            assumed=item.port.assumed,
        )
        for place, size in enumerate(item.sizes)
    ]


def _sources(blocks: Sequence[BlockFile], brought: dict[KeyPath, str]) -> dict[str, str]:
    """Origins by dotted key; sizes are the user's own."""
    found = {("axes", place, *path): text for place, block in enumerate(blocks) for path, text in origins_of(block, (), "")}
    return {
        ".".join((str(path[0]), blocks[int(path[1])].name, *map(str, path[2:]))): text
        for path, text in (found | brought).items()
        if text and path[2:] != ("size",)
    }
