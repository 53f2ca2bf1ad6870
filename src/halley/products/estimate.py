"""`halley.estimate`: the cost of a mapping of one's own."""

from __future__ import annotations

from pathlib import Path

from halley.cost.own import OwnMapping, capacity_faults, own_mapping
from halley.errors import Infeasible
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.products.arguments import checked


@checked
def estimate(mapping: str | Node, workload: Workload, chip: Chip | str | Path) -> OwnMapping:
    """The cost of a mapping, as a tree or as text, of a workload on a chip, or on that of a name or file.

    >>> from halley import build
    >>> text = "hold dram: A B C\\n  hold ibuf: A\\n    hold wbuf: B\\n      hold obuf: C\\n        compute gemm"
    >>> own = estimate(text, build("gemm", {"m": 8, "n": 8, "k": 8}), "edge")
    >>> own.estimate.traffic("dram")
    384

    Raises BadInput: the text or the chip is wrong; IllegalMapping: a rule is broken; Infeasible: a memory is too small.
    """
    machine = chip if isinstance(chip, Chip) else load_chip(chip)
    found = own_mapping(workload, machine, parse(mapping) if isinstance(mapping, str) else mapping)
    if overfull := capacity_faults(machine, found.estimate, "mapping"):
        raise Infeasible(overfull)
    return found
