"""What else runs on a network at the same time, from sentences.

    all-to-all 64 MiB on every node by direct after 10 us 3 times
    1 GiB from 0 to 5
    40 % load on node

The first is a collective, on all ranks or on a group (`halley.io.networks.members`): ``on gpu=0:4``, ``on ranks 0-3``; ``every``
adds the copies of the group at all other coordinates. The second is a message, the third a share of links (of one axis, or of
all) that other traffic takes throughout. A file has a list of such sentences under the key ``beside``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.text import read_text_bounded, read_yaml
from halley.io.networks import members
from halley.network.algorithms.tables import KINDS, Kind, Pattern
from halley.network.graph.fabric import Fabric
from halley.network.time.choice import chosen
from halley.network.time.collective import slot_times
from halley.network.time.contention import ConcurrentRun, Floats, collective_execution, message
from halley.network.time.schedules import is_line
from halley.units import BYTES, SECONDS, parse

MOST_JOBS = 32
"""Most collectives that run beside the one in question."""
MOST_TIMES = 1000
"""Most repetitions of a collective."""
MOST_STEPS = 20_000
"""Steps of one execution, all its times together."""
_SIZE = r"(?P<size>[0-9.]+(?:e[0-9]+)? ?[A-Za-z]+)"
_WHEN = r"(?: after (?P<start>[0-9.]+(?:e-?[0-9]+)? ?[a-zµ]+))?(?:,? (?P<times>[0-9]{1,6}) times)?"
_COLLECTIVE = re.compile(
    rf"(?P<kind>[a-z][a-z_-]*)(?: {_SIZE})?(?: on (?P<every>every )?(?:axis )?(?P<ranks>ranks )?(?P<group>\S+))?"
    rf"(?: by (?P<algorithm>[a-z][a-z0-9-]*))?{_WHEN}"
)
_MESSAGE = re.compile(rf"{_SIZE} from (?P<source>[0-9]{{1,9}}) to (?P<target>[0-9]{{1,9}}){_WHEN}")
_LOAD = re.compile(r"(?P<share>[0-9.]{1,12}) ?% load(?: on (?:axis )?(?P<axis>\S+))?")


@dataclass(frozen=True, eq=False, slots=True)
class Beside:
    """What runs beside: executions, and the share of each link [edges] that background traffic takes."""

    executions: tuple[ConcurrentRun, ...]
    background: Floats


def kind_of(text: str, where: str) -> Kind:
    """The collective or pattern of that name. Raises BadInput: none of that name."""
    found = next((kind for kind in KINDS if kind.value == text.replace("_", "-").lower()), None)
    if found is None:
        raise BadInput(Fault(where, "a collective", repr(text[:40]), did_you_mean(text[:40], [kind.value for kind in KINDS])))
    return found


def whole_bytes(text: str | None, kind: Kind | None, where: str) -> int:
    """A size in bytes; 0 for a barrier, which has none. Raises UnitError, BadInput: no size above zero, a part of a byte."""
    if kind is Pattern.BARRIER:
        if text is not None:
            raise BadInput(Fault(where, "no size", repr(text[:40]), "a barrier carries nothing"))
        return 0
    if text is None:
        raise BadInput(Fault(where, "a size", "none", "write for example 256MiB"))
    value = parse(text, BYTES, where=where)
    if value != int(value) or value > 2**60:
        raise BadInput(Fault(where, "a whole number of bytes, at most 1 EiB", repr(text[:40])))
    return int(value)


def read_beside(texts: Iterable[str], fabric: Fabric, startup: float = 0.0) -> Beside:
    """What the sentences, and the files among them (names that end in .yaml or .yml), describe.

    Raises BadInput: every sentence that cannot be read or does not fit the network.
    """
    background = np.zeros(len(fabric.graph.edges))
    executions: list[ConcurrentRun] = []
    faults: list[Fault] = []
    said = list(_sentences(texts))
    if len(said) > MOST_JOBS:
        raise BadInput(Fault("--beside", f"at most {MOST_JOBS} sentences", str(len(said))))
    for number, (where, sentence) in enumerate(said, 1):
        try:
            if match := _LOAD.fullmatch(sentence):
                background += _load(match, fabric, where)
            else:
                executions.append(_execution(f"{number}: {sentence}", sentence, fabric, startup, where))
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(faults)
    return Beside(tuple(executions), background)


def sentences(texts: Iterable[str]) -> tuple[str, ...]:
    """The sentences, those of files in place of the files' names. Raises BadInput: a file that cannot be read."""
    return tuple(sentence for _, sentence in _sentences(texts))


def _sentences(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(where, sentence) of each."""
    for text in texts:
        if not text.endswith((".yaml", ".yml")):
            yield "--beside", " ".join(text.split())
            continue
        document = read_yaml(read_text_bounded(text), text)
        data = document.data
        listed = data.get("beside") if isinstance(data, dict) and len(data) == 1 else None
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise BadInput(Fault(document.where(()), "the one key beside, with a list of sentences", repr(data)[:60]))
        yield from ((document.where(("beside", place)), " ".join(item.split())) for place, item in enumerate(listed))


def _load(match: re.Match[str], fabric: Fabric, where: str) -> Floats:
    """[edges] the share that the load takes."""
    try:
        share = float(match["share"]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise BadInput(Fault(where, "a load from 0 to below 100 %", repr(match["share"])))
    names = [axis.name for axis in fabric.axes]
    if match["axis"] is not None and match["axis"] not in names:
        remedy = did_you_mean(match["axis"], names) if names else "its links are listed one by one: leave the axis out"
        raise BadInput(Fault(where, f"an axis of {fabric.name}", repr(match["axis"][:40]), remedy))
    place = None if match["axis"] is None else names.index(match["axis"])
    return np.array([share if place in (None, edge.dimension) else 0.0 for edge in fabric.graph.edges])


def _execution(name: str, sentence: str, fabric: Fabric, startup: float, where: str) -> ConcurrentRun:
    found = _MESSAGE.fullmatch(sentence)
    if found:
        size = whole_bytes(found["size"], None, where)
        made = message(name, fabric.graph, int(found["source"]), int(found["target"]), size, startup)
        return _timed(made, found, where)
    match = _COLLECTIVE.fullmatch(sentence)
    if match is None:
        remedy = "write for example 'all-to-all 64MiB on gpu', '1GiB from 0 to 5' or '40 % load on gpu'"
        raise BadInput(Fault(where, "a collective, a message or a load", repr(sentence[:60]), remedy))
    kind = kind_of(match["kind"], where)
    size = whole_bytes(match["size"], kind, where)
    groups = _groups(match, fabric, where)
    team = members.team(fabric, groups[0])
    schedule = chosen(kind, team, size, match["algorithm"], startup).schedule
    slots = slot_times(team, schedule, size, startup)
    made = collective_execution(
        name, fabric.graph, kind, groups, schedule, size, startup=startup, line=is_line(team), slots=slots
    )
    return _timed(made, match, where)


def _groups(match: re.Match[str], fabric: Fabric, where: str) -> tuple[tuple[int, ...], ...]:
    """The group, and its copies where every one of them is asked for."""
    if match["group"] is None:
        return (tuple(range(fabric.graph.ranks)),)
    if match["ranks"]:
        return (members.ranks(match["group"], fabric, where),)
    box = members.box(match["group"], fabric, where)
    return members.copies(box, fabric) if match["every"] else (members.in_box(box, fabric),)


def _timed(made: ConcurrentRun, match: re.Match[str], where: str) -> ConcurrentRun:
    """With its start, and as often as it runs."""
    start = 0.0
    if match["start"] is not None:
        start = parse(match["start"], SECONDS, where=where, zero=True)
    times = int(match["times"] or 1)
    if not 1 <= times <= MOST_TIMES:
        raise BadInput(Fault(where, f"from 1 to {MOST_TIMES} times", str(times)))
    if times * len(made.stages) > MOST_STEPS:
        raise BadInput(Fault(where, f"at most {MOST_STEPS} steps in all", str(times * len(made.stages)), "ask for fewer times"))
    return replace(made, start=start, stages=made.stages * times)
