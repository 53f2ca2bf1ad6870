"""What the user has decided about a plan: ``--fix tp=8,pp=8,zero=1``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from halley.errors import BadInput, Fault, did_you_mean
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.training.help import OPTION_NAMES
from halley.training.plan import Fixed

WHERE = "--fix"
NAMES = {word: name for name, word in OPTION_NAMES.items()}
"""Words of the user for decisions of other names. ``tp`` counts all chips that share the ops of a stage; what they split is
for the search to say."""
ROLES = {"dp": Role.DATA, "pp": Role.PIPELINE, "tp": Role.MODEL}
ASIDE = {
    "sp": "tensor and sequence parallelism share the chips of tp=",
    "cp": "context parallelism is one way to use the chips of tp=",
    "ep": "expert parallelism is one way to use the chips of tp=",
    "mb": "write microbatch=",
}
"""Words that a user may try, and what to write instead."""
_WHOLE = re.compile(r"[0-9]{1,9}")
_PART = re.compile(r"(dp|pp|tp):([0-9]{1,9})")


def parse_fixed(text: str | None, axes: Sequence[str] = ()) -> Fixed:
    """The decisions in the words; ``axes``: of the system, whose parts may be given as ``node=dp:16+pp:8``.

    >>> parse_fixed("tp=8, zero=1, node=dp:16+pp:8", ["node", "gpu"]).axes["node"][Role.PIPELINE]
    8

    Raises BadInput with every fault of the words.
    """
    given: dict[str, Any] = {}
    parts: dict[str, dict[Role, int]] = {}
    faults: list[Fault] = []
    for word in filter(None, re.split(r"[,\s]+", text or "")):
        key, equals, value = word.partition("=")
        name = NAMES.get(key, key)
        if not equals:
            faults.append(Fault(WHERE, "words such as tp=8", repr(word), "write KEY=VALUE, with commas between them"))
        elif name in given or key in parts:
            faults.append(Fault(f"{WHERE} {key}", "each word once", "it again", "remove one"))
        elif key in axes and key not in KNOWN:
            parts[key] = _parts(key, value, faults)
        elif key not in KNOWN:
            known = [*KNOWN, *axes]
            faults.append(Fault(WHERE, "a known word", repr(key), ASIDE.get(key) or did_you_mean(key, known)))
        else:
            try:
                given[name] = READERS[name](value)
            except ValueError as error:
                faults.append(Fault(f"{WHERE} {key}", str(error), repr(value)))
    if faults:
        raise BadInput(faults)
    return Fixed(**given, axes=parts)


def _parts(axis: str, text: str, faults: list[Fault]) -> dict[Role, int]:
    parts: dict[Role, int] = {}
    for part in text.split("+"):
        found = _PART.fullmatch(part)
        if not found:
            faults.append(Fault(f"{WHERE} {axis}", "parts such as dp:16+pp:8", repr(part)))
        elif ROLES[found[1]] in parts:
            faults.append(Fault(f"{WHERE} {axis}", "each of dp, pp and tp once", f"{found[1]} again"))
        else:
            parts[ROLES[found[1]]] = int(found[2])
    return parts


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text) or int(text) < 1:
        raise ValueError("a whole number from 1")
    return int(text)


def _zero(text: str) -> Sharded:
    if text not in ("0", "1", "2", "3"):
        raise ValueError("0, 1, 2 or 3: the stage of ZeRO")
    return Sharded(int(text))


def _either(yes: str, no: str) -> Callable[[str], bool]:
    def read(text: str) -> bool:
        if text not in (yes, no):
            raise ValueError(f"{yes} or {no}")
        return text == yes

    return read


def _word(kind: type[PipelineSchedule] | type[Recompute]) -> Callable[[str], Any]:
    words = [str(item) for item in kind]

    def read(text: str) -> Any:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return kind(text)

    return read


READERS: dict[str, Callable[[str], Any]] = {
    "data": _whole,
    "stages": _whole,
    "model": _whole,
    "microbatch": _whole,
    "schedule": _word(PipelineSchedule),
    "chunks": _whole,
    "recompute": _word(Recompute),
    "sharded": _zero,
    "offload": _either("yes", "no"),
    "fused": _either("fused", "unfused"),
}
"""By the name of a decision, what reads its value."""
KNOWN = tuple(word for word in (*NAMES, *READERS) if word not in NAMES.values())
"""The words that the user may write."""
