"""Checks of a chip's figures before a mapping is costed on it."""

from __future__ import annotations

from collections.abc import Iterable

from halley.errors import BadInput, Fault
from halley.ir.hardware import Chip
from halley.ir.workload import OpKind, Workload


def check_bursts(workload: Workload, chip: Chip) -> None:
    """Raises BadInput: a memory has a burst length, and the workload reads a tensor beyond its ends, where tiles of one size have
    boxes of different sizes; the bursts of these are not counted."""
    padded = [index.dim for index in workload.indices if index.padded(workload.dims)]
    for memory in chip.memories if padded else ():
        if memory.burst:
            where, expected = f"chip {chip.name}, memory {memory.name}", f"no burst for {workload.name}, which pads {padded[0]}"
            raise BadInput(Fault(where, expected, f"a burst of {memory.burst} B", "leave the burst out"))


def check_engines(workload: Workload, chip: Chip, ops: Iterable[str]) -> None:
    """Check that every dtype and elementary function in use has a rate and an energy on its engine; there are no defaults.

    Raises BadInput, all faults at once: also for ops of which the chip has no engine. An engine without any energies is taken as
    one whose energy is not of interest.
    """
    faults: dict[str, Fault] = {}
    asked = [workload.op(name) for name in ops]
    for kind, engine in (("matrix", chip.matrix), ("vector", chip.vector)):
        without = [op.name for op in asked if (op.kind is OpKind.CONTRACT) is (kind == "matrix")]
        if engine is None and without:
            remedy = f"add engines.{kind} to the chip's file, or leave these ops out"
            faults[kind] = Fault(f"chip {chip.name}", f"a {kind} engine for {', '.join(without)}", "none", remedy)
    for op in asked:
        if op.kind is OpKind.CONTRACT and chip.matrix is not None:
            dtype = workload.tensors[op.inputs[0]].dtype
            if chip.matrix.energy and dtype not in chip.matrix.energy:
                where = f"chip {chip.name}, engine {chip.matrix.name}"
                faults[dtype] = Fault(where, f"an energy per MAC in {dtype}", "none", f"add --dtype {min(chip.matrix.energy)}")
        elif chip.vector is not None:
            for function in workload.work(op):
                if function not in chip.vector.rate or (chip.vector.energy and function not in chip.vector.energy):
                    where = f"chip {chip.name}, engine {chip.vector.name}"
                    faults[function] = Fault(where, f"a rate and an energy for {function}", "none", "add them to the chip's file")
    if faults:
        raise BadInput(faults.values())
