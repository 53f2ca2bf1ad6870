"""Searched kernels in files of answers: their mappings, timed again when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.files.models import Model
from halley.io.results.envelope import Saved
from halley.ir.hardware import Chip
from halley.kernels.searched import KernelCost, KernelShape, SearchedKernels


class ProductModel(Model):
    """A product and its best mapping on the chip."""

    rows: int = Field(ge=1, description="rows of the result")
    columns: int = Field(ge=1, description="columns of the result")
    depth: int = Field(ge=1, description="extent that is summed over")
    batch: int = Field(ge=1, description="products of this size")
    dtype: str = Field(description="type of the operands")
    result: str = Field(description="type of the result")
    time: float = Field(description="time [s]; follows from the mapping")
    mapping: str = Field(description="the mapping, as text")


def time_again(saved: Saved, kernels: SearchedKernels, shapes: Iterable[tuple[str, KernelShape, str]]) -> list[Fault]:
    """Adds kernels with their mappings, each timed again, and returns every fault of a mapping that is none. ``shapes``: where in
    the answer each kernel is, the kernel, its mapping as text."""
    # loaded when it is needed: answers are written without it
    timed_kernel: Callable[[Chip, KernelShape, str], KernelCost] = import_module("halley.kernels.search").timed_kernel
    faults = list[Fault]()
    for name, shape, mapping in shapes:
        where = f"{saved.name}: answer.{name}"
        try:
            kernels.known[shape] = timed_kernel(kernels.chip, shape, mapping)
        except BadInput as error:
            faults += [Fault(f"{where}, {fault.where}", fault.expected, fault.got, fault.remedy) for fault in error.faults]
    return faults
