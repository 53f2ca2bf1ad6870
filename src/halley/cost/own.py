"""A mapping that the user wrote, with what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from halley.answer import Answerable
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import Fault, IllegalMapping
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.rewrite import legality
from halley.units import format_bytes


@dataclass(frozen=True, slots=True, repr=False)
class OwnMapping(Answerable):
    """A mapping of the user's with what it costs."""

    workload: Workload
    chip: Chip
    plan: Node
    estimate: Estimate


def own_mapping(workload: Workload, chip: Chip, plan: Node, where: str = "mapping") -> OwnMapping:
    """The mapping with its cost. Raises IllegalMapping: it breaks a rule."""
    if faults := legality.faults(plan, workload, chip):
        raise IllegalMapping([Fault(f"{where}: {f.where}", f.expected, f.got, f.remedy) for f in faults])
    return OwnMapping(workload, chip, plan, evaluate(workload, chip, plan))


def capacity_faults(chip: Chip, cost: Estimate, where: str) -> list[Fault]:
    """One fault for each memory that the mapping overfills."""
    return [
        Fault(
            f"{where}: memory {name}",
            f"at most {format_bytes(chip.memory(name).capacity)} in {name}",
            f"{format_bytes(float(used))} live at once",
            f"hold smaller tiles in {name}, or fewer tensors",
        )
        for name, used in cost.footprint.items()
        if float(used) > chip.memory(name).capacity
    ]
