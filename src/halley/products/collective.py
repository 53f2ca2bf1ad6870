"""`halley.collective`: a collective on a network."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.io.networks import members
from halley.io.networks.collectives import CollectiveAnswer, CollectiveQuestion, answered, fit_of
from halley.io.networks.jobs import kind_of, whole_bytes
from halley.io.systems.fabric import load_fabric
from halley.network.graph.fabric import Fabric
from halley.products.arguments import checked


@checked
def collective(
    kind: str,
    size: int | str | None,
    system: Fabric | str | Path,
    ranks: Iterable[int] | str | None = None,
    algorithm: str | None = None,
    startup: float = 0.0,
    software: str | None = None,
    beside: Iterable[str] = (),
) -> CollectiveAnswer:
    """The time of a collective of a ``size``, in bytes or as text, on a network, or on that of a name, a file or a system,
    and every candidate.

    ``ranks`` that take part, all unless given; ``algorithm``: one alone; ``startup`` [s] before every step; ``software``: fit of
    a communication library, by default that of the axis along which the ranks differ, "none" for none; ``beside``: sentences
    about what runs at the same time.

    >>> answer = collective("all-reduce", "1MiB", "dgx-h100")
    >>> answer.single.cost.time == min(cost.time for cost in answer.single.candidates)
    True

    Raises BadInput: an unknown name, a size that is none, ranks that the network lacks.
    """
    if not 0 <= startup < math.inf:
        raise BadInput(Fault("collective, startup", "seconds, at least 0", f"{startup}"))
    fabric = system if isinstance(system, Fabric) else load_fabric(system)
    found = kind_of(kind, "collective")
    text = f"{size} B" if isinstance(size, int) else size
    chosen = members.ranks(ranks, fabric) if isinstance(ranks, str) else None if ranks is None else tuple(ranks)
    library = None if software == "none" else software
    if software is None and algorithm is None:
        library = fit_of(fabric, chosen, found)
    asked = CollectiveQuestion(
        found, fabric, whole_bytes(text, found, "size"), chosen, algorithm, startup, library, beside=tuple(beside)
    )
    return answered(asked)
